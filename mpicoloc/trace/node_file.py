"""One node's file of a trace (csrc/trace/, docs/explain/trace.md): a sequence of blocks with checksums.

A file is written by another program and may be truncated or damaged. At most one block is in memory at a
time, besides the list of blocks (an `INDEX` row each, `MAX_BLOCKS` at most), and every length in the file is
checked before use.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core import progress
from mpicoloc.core.profile import text
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.pmpi import elf

SUFFIX = ".trace"
MAGIC, VERSION = 0x7274636D, 1
MAX_EVENTS = 32768
"""Largest number of events in a block."""
MAX_BYTES = 1 << 21
"""Largest payload of a block, bytes."""
MAX_BLOCKS = 1 << 26
"""Largest number of blocks of a trace, all nodes together; the list of so many blocks takes 2.5 GiB."""
HEAD, CALLS, EVENTS = 1, 2, 3

BLOCK = np.dtype(
    [("magic", "<u4"), ("version", "<u2"), ("type", "<u2"), ("size_bytes", "<u4"), ("crc", "<u4")]
)
FILE_HEAD = np.dtype(
    [("job_id", "S64"), ("hostname", "S64"), ("world_size", "<i4"), ("n_nodes", "<i4"),
     ("start_realtime_ns", "<i8"), ("t_init", "<u8")]
)  # fmt: skip
COLUMN = np.dtype([("width", "<u4"), ("n_exceptions", "<u4")])
CHUNK = np.dtype(
    [("rank", "<i4"), ("n", "<u4"), ("n_kinds", "<u4"), ("_pad", "<u4"), ("t_first", "<u8"), ("t_min", "<u8"),
     ("t_max", "<u8"), ("t_step", "<i8"), ("columns", COLUMN, (4,))]
)  # fmt: skip
KIND = np.dtype([("peer", "<i4"), ("call", "<u2"), ("i_site", "<u2")])
INDEX = np.dtype(
    [("at", "<u8"), ("size_bytes", "<u4"), ("crc", "<u4"), ("rank", "<i4"), ("n", "<u4"), ("t_min", "<u8"),
     ("t_max", "<u8")]
)  # fmt: skip
"""Row of the in-memory list of blocks of events."""

SENT, RECEIVED, MESSAGE, ONE_SIDED, CALL = 0x4000, 0x2000, 0x1000, 0x0800, 0x07FF
"""Bits of a kind's `call`: sent to the peer; received from it; not a call but another message of the next
call; one-sided, so that the peer makes no call; number of the call."""
SITE, LANE_SHIFT = 0x07FF, 11
"""Bits of a kind's `i_site`: number of the call site; the lane is above it."""


def folder_of(path: str | os.PathLike[str]) -> str:
    """Folder of the trace of the profile at `path`."""
    return os.fspath(path).removesuffix(".h5") + SUFFIX


class Events(NamedTuple):
    """Events of one rank in the order in which they ended, one array for each column."""

    t_ns: NDArray[np.uint64]
    duration_ns: NDArray[np.uint64]
    bytes: NDArray[np.uint64]
    kind: NDArray[np.uint16]
    """Index in `kinds`."""
    kinds: NDArray[np.void]
    """Peer, call with flag bits, call site with lane."""


@dataclass(frozen=True)
class TraceFile:
    """A node's file; only its list of blocks has been read."""

    path: str
    job_id: str
    hostname: str
    n_ranks: int
    start_ns: int
    """Wall-clock time at `t_init_ns`; `t_init_ns` is by the node's own clock."""
    t_init_ns: int
    names: tuple[str, ...]
    index: NDArray[np.void]
    trouble: str
    """Description of a damaged end of the file; empty if it is intact."""

    def payloads(self, rows: NDArray[np.void]) -> Iterator[tuple[np.void, bytes]]:
        """The payload of each of these blocks, after a check of its checksum.

        Raises `DataError` if the file was changed or damaged.
        """
        with _opened(self.path) as file:
            for row in rows:
                file.seek(int(row["at"]))
                payload = file.read(int(row["size_bytes"]))
                if len(payload) != row["size_bytes"] or zlib.crc32(payload) != row["crc"]:
                    raise DataError(f"{self.path} is damaged at byte {int(row['at'])}: copy it again")
                yield row, payload

    def events(self, rows: NDArray[np.void]) -> Iterator[tuple[int, Events]]:
        """Rank and events of each of these blocks."""
        for row, payload in self.payloads(rows):
            try:
                yield int(row["rank"]), decode(payload)
            except ValueError as error:
                raise DataError(f"{self.path} is damaged at byte {int(row['at'])}: {error}") from error
            progress.count("events", int(row["n"]))


def read(path: str) -> TraceFile:
    """The list of blocks of the file at `path`.

    Raises `DataError` if it is not a trace of this version. Raises `EnvironmentFault` if it cannot be opened.
    """
    with _opened(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        head = np.frombuffer(_first_payload(file, path), FILE_HEAD, 1)[0]
        names, index, trouble = _scan(file, size_bytes)
        index, n_bad = _without_bad_end(file, index)
    if len(index) > MAX_BLOCKS:
        raise DataError(f"{path} has {len(index):,} blocks, more than a trace can have: it is damaged")
    if n_bad:
        trouble = f"its last {n_bad} blocks are incomplete"
    return TraceFile(
        path=path,
        job_id=text(head["job_id"]),
        hostname=text(head["hostname"]),
        n_ranks=int(head["world_size"]),
        start_ns=int(head["start_realtime_ns"]),
        t_init_ns=int(head["t_init"]),
        names=names,
        index=index,
        trouble=trouble,
    )


def _opened(path: str) -> BinaryIO:
    try:
        return elf.open_regular(path)
    except FileNotFoundError as error:
        raise DataError(f"no such file: {path}") from error
    except OSError as error:
        raise EnvironmentFault(f"cannot open {path}: {error.strerror}") from error


def _next_block(file: Any) -> np.void | None:
    """Header of the block at the file's position; None if no block begins there."""
    content = file.read(BLOCK.itemsize)
    if len(content) < BLOCK.itemsize:
        return None
    block: np.void = np.frombuffer(content, BLOCK, 1)[0]
    is_one = block["magic"] == MAGIC and block["size_bytes"] <= MAX_BYTES and block["size_bytes"] % 8 == 0
    return block if is_one else None


def _first_payload(file: Any, path: str) -> bytes:
    block = _next_block(file)
    if block is None or block["type"] != HEAD:
        raise DataError(f"{path} is not a trace of mpicoloc, or nothing was written to it")
    if block["version"] != VERSION:
        raise DataError(f"{path} has version {block['version']}, but this mpicoloc reads {VERSION}: upgrade")
    payload: bytes = file.read(int(block["size_bytes"]))
    if len(payload) < FILE_HEAD.itemsize or zlib.crc32(payload) != block["crc"]:
        raise DataError(f"{path} is damaged at its beginning: copy it again")
    return payload


def _scan(file: Any, size_bytes: int) -> tuple[tuple[str, ...], NDArray[np.void], str]:
    """Names of calls, the list of blocks, and a description of the end if the file is truncated."""
    names: tuple[str, ...] = ()
    rows = bytearray()
    at, trouble = file.tell(), ""
    while at < size_bytes and len(rows) <= MAX_BLOCKS * INDEX.itemsize:
        block = _next_block(file)
        payload_at = at + BLOCK.itemsize
        if block is None or payload_at + int(block["size_bytes"]) > size_bytes:
            trouble = f"it ends at byte {at} of {size_bytes}"
            break
        if block["type"] == EVENTS:
            row = _row(file, block, payload_at)
            if row is None:
                trouble = f"it ends at byte {at} of {size_bytes}"
                break
            rows += row
        elif block["type"] == CALLS:
            names = _names(file.read(int(block["size_bytes"])), int(block["crc"]))
        at = payload_at + int(block["size_bytes"])
        file.seek(at)
    return names, np.frombuffer(rows, INDEX), trouble


def _row(file: Any, block: np.void, payload_at: int) -> bytes | None:
    """`INDEX` row of a block of events whose payload begins at the file's position; None if it is invalid."""
    content = file.read(CHUNK.itemsize)
    if len(content) < CHUNK.itemsize or block["size_bytes"] < CHUNK.itemsize:
        return None
    chunk = np.frombuffer(content, CHUNK, 1)[0]
    if not 0 < chunk["n"] <= MAX_EVENTS:
        return None
    found = [chunk[name] for name in ("rank", "n", "t_min", "t_max")]
    return np.array((payload_at, block["size_bytes"], block["crc"], *found), INDEX).tobytes()


def _names(payload: bytes, crc: int) -> tuple[str, ...]:
    try:
        found = json.loads(payload) if zlib.crc32(payload) == crc else []
    except (ValueError, RecursionError):
        return ()
    return tuple(str(name)[:40] for name in found[: CALL + 1]) if isinstance(found, list) else ()


def _without_bad_end(file: Any, index: NDArray[np.void]) -> tuple[NDArray[np.void], int]:
    """Drop damaged blocks at the end: if a node dies, the file may have its last blocks without content."""
    n_bad = 0
    while n_bad < len(index):
        row = index[len(index) - n_bad - 1]
        file.seek(int(row["at"]))
        if zlib.crc32(file.read(int(row["size_bytes"]))) == row["crc"]:
            break
        n_bad += 1
    return index[: len(index) - n_bad], n_bad


def decode(payload: bytes) -> Events:
    """The events of a block.

    Raises `ValueError` if the payload is not a valid block of events.
    """
    if len(payload) < CHUNK.itemsize:
        raise ValueError("a block is too short")
    chunk = np.frombuffer(payload, CHUNK, 1)[0]
    n, n_kinds = int(chunk["n"]), int(chunk["n_kinds"])
    if not 0 < n <= MAX_EVENTS or not 0 < n_kinds <= n:
        raise ValueError(f"a block claims {n} events of {n_kinds} kinds")
    payload += bytes(8)
    at = CHUNK.itemsize
    _need(payload, at, n_kinds * KIND.itemsize)
    kinds = np.frombuffer(payload, KIND, n_kinds, at)
    at += n_kinds * KIND.itemsize
    columns = []
    for column in chunk["columns"]:
        values, at = _column(payload, at, n, int(column["width"]), int(column["n_exceptions"]))
        columns.append(values)
    steps, duration_ns, n_bytes, kind = columns
    if int(kind.max()) >= n_kinds:
        raise ValueError("a block has an event of a kind that it does not define")
    # Times are unsigned 64-bit numbers with wrap-around, so a step back is a large step forward.
    steps = steps + np.array(chunk["t_step"]).astype(np.uint64)
    t_ns = chunk["t_first"] + np.cumsum(steps, dtype=np.uint64)
    return Events(t_ns, duration_ns, n_bytes, kind.astype(np.uint16), kinds)


def _need(payload: bytes, at: int, size_bytes: int) -> None:
    """Check that `size_bytes` follow `at`, not counting the 8 bytes of padding that reads may extend into."""
    if at + size_bytes > len(payload) - 8:
        raise ValueError("a block ends before its events do")


def _column(payload: bytes, at: int, n: int, width: int, n_exceptions: int) -> tuple[NDArray[np.uint64], int]:
    if width > 8 or n_exceptions > n:
        raise ValueError(f"a block's column has an impossible size: {width} bytes, {n_exceptions} exceptions")
    _need(payload, at, n * width + 12 * n_exceptions)
    values = _values(payload, at, n, width)
    at += n * width
    if n_exceptions:
        wide = np.frombuffer(payload, "<u8", n_exceptions, at)
        at += 8 * n_exceptions
        places = np.frombuffer(payload, "<u4", n_exceptions, at)
        at += 4 * n_exceptions
        if int(places.max()) >= n:
            raise ValueError("a block has an exception for an event that it does not have")
        values[places] = wide
    return values, at


def _values(payload: bytes, at: int, n: int, width: int) -> NDArray[np.uint64]:
    if width == 0:
        return np.zeros(n, np.uint64)
    if width in (1, 2, 4, 8):
        return np.frombuffer(payload, f"<u{width}", n, at).astype(np.uint64)
    # Read 8 bytes at each multiple of the width, so that reads overlap, and mask the upper bytes.
    values: NDArray[np.uint64] = np.ndarray(n, "<u8", payload, at, (width,))
    return values & np.uint64((1 << 8 * width) - 1)
