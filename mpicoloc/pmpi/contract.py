"""Python view of csrc/common/mpicoloc.h: layouts, constants and shared-memory files.

This module loads the compiled contract; `node_agent` has the functions that drive an agent. Functions import
NumPy only where they need it, so that the coordinator, beside a running application, starts without it.
Constants of the header are attributes of this module (`contract.MC_RANK_FINALIZING`).
"""

from __future__ import annotations

import errno
import functools
import glob
import io
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from mpicoloc.errors import DataError, EnvironmentFault

if TYPE_CHECKING:
    import numpy as np


_AT_ONCE_BYTES = 16 * mmap.PAGESIZE


def open_shared(path: str | os.PathLike[str], flags: int = os.O_RDONLY, is_own: bool = True) -> io.FileIO:
    """Open a file, unbuffered, with the checks of `mc_shm_open`, because another user may have planted it.

    Raises `OSError` like `os.open`, and also if the file is not regular, or with `is_own`, not this user's.
    """
    handle = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or (is_own and status.st_uid != os.geteuid()):
        os.close(handle)
        reason = "it is another user's" if stat.S_ISREG(status.st_mode) else "it is not a regular file"
        raise PermissionError(errno.EPERM, reason, os.fspath(path))
    mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb"}.get(flags & os.O_ACCMODE, "r+b")
    return io.FileIO(handle, mode)


def is_own_file(path: str | os.PathLike[str]) -> bool:
    """Whether the path is a regular file of this user."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def copy_sparse(file: io.FileIO, n_bytes: int | None = None) -> memoryview:
    """A writable copy of the file's first `n_bytes`, or of all bytes; holes of the file stay unallocated.

    A segment of a running job has 8 MB, most of it empty, which matters on a node with hundreds of ranks.
    """
    handle = file.fileno()
    size_bytes = os.fstat(handle).st_size
    size_bytes = size_bytes if n_bytes is None else min(size_bytes, n_bytes)
    memory = mmap.mmap(-1, max(size_bytes, 1), flags=mmap.MAP_PRIVATE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    view = memoryview(memory)
    for begin, end in _extents(handle, size_bytes):
        for at in range(begin, end, _AT_ONCE_BYTES):
            content = os.pread(handle, min(_AT_ONCE_BYTES, end - at), at)
            _put(view[at:], content)
    return view[:size_bytes]


def _extents(handle: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of the file that contain data; the whole file if the file system does not know them."""
    end = 0
    while end < size_bytes:
        try:
            begin = os.lseek(handle, end, os.SEEK_DATA)
        except OSError:  # no more data
            return
        end = min(os.lseek(handle, begin, os.SEEK_HOLE), size_bytes)
        yield begin, end


def _put(view: memoryview, content: bytes) -> None:
    if content == bytes(len(content)):
        return
    for at in range(0, len(content), mmap.PAGESIZE):
        page = content[at : at + mmap.PAGESIZE]
        if page != bytes(len(page)):
            view[at : at + len(page)] = page


try:
    from mpicoloc._contract import ffi, lib  # type: ignore[import-not-found, unused-ignore]
except ImportError as error:  # pragma: no cover - a broken installation
    raise EnvironmentFault(
        f"mpicoloc._contract cannot be loaded ({error}): install mpicoloc again"
    ) from error


_STRUCT_OF_SUFFIX = {".seg": "mc_segment", ".node": "mc_node", ".board": "mc_board"}


class Counter(NamedTuple):
    """One row of the counter table."""

    name: str
    unit: str
    meaning: str


class SegmentHead(NamedTuple):
    """A rank's identity and state."""

    world_rank: int
    pid: int
    state: int
    job_id: str


def __getattr__(name: str) -> int:
    if name.startswith("MC_") and hasattr(lib, name):
        return int(getattr(lib, name))
    raise AttributeError(f"the contract has no {name!r}")


@functools.cache
def dtype(name: str) -> np.dtype[Any]:
    """NumPy dtype of a C type of the contract, with equal size and offsets; char arrays are byte strings."""
    return _dtype_of(ffi.typeof(name))


def _dtype_of(ctype: Any) -> np.dtype[Any]:
    import numpy as np

    if ctype.kind == "array":
        if ctype.item.cname == "char":
            return np.dtype(f"S{ctype.length}")
        return np.dtype((_dtype_of(ctype.item), (ctype.length,)))
    if ctype.kind == "struct":
        # This raises an exception for an opaque struct, whereas a query of its fields makes cffi abort.
        itemsize = ffi.sizeof(ctype)
        fields = dict(ctype.fields)
        return np.dtype(
            {
                "names": list(fields),
                "formats": [_dtype_of(field.type) for field in fields.values()],
                "offsets": [field.offset for field in fields.values()],
                "itemsize": itemsize,
            }
        )
    if ctype.kind != "primitive":
        raise TypeError(f"{ctype.cname} has no place in shared memory")
    if ctype.cname in ("float", "double"):
        return np.dtype(f"f{ffi.sizeof(ctype)}")
    sign = "i" if int(ffi.cast(ctype, -1)) < 0 else "u"
    return np.dtype(f"{sign}{ffi.sizeof(ctype)}")


@functools.cache
def counters() -> tuple[Counter, ...]:
    """The header's counter table, in the order of the struct mc_counters."""
    rows: list[Counter] = []
    while lib.mc_counter_text(len(rows), 0) != ffi.NULL:
        rows.append(Counter(*(ffi.string(lib.mc_counter_text(len(rows), i)).decode() for i in range(3))))
    return tuple(rows)


def shm_path(key: str, what: str) -> str:
    """Path of a job's file on this node; `what` is "node", "<rank>.seg" ..."""
    buffer = ffi.new("char[]", lib.MC_PATH_LEN)
    status = lib.mc_shm_path(buffer, lib.MC_PATH_LEN, key.encode(), what.encode())
    if status != lib.MC_OK:
        raise EnvironmentFault(
            f"path of job key {key!r} in shared memory is too long: shorten MPICOLOC_SHM_DIR"
        )
    return os.fsdecode(ffi.string(buffer))


def board_path() -> str:
    """Path of the board of this version on this node."""
    return shm_path(f"abi{lib.MC_ABI_VERSION}", "board")


def read_board() -> np.void:
    """A copy of this node's board, wherever its file is; jobs that have ended are left out.

    Raises `DataError` if the board is of another version. Raises `OSError` if there is none.
    """
    import numpy as np

    board = ffi.new("mc_board *")
    if lib.mc_board_read(board) != lib.MC_OK:
        return read_file(board_path())
    record: np.void = np.frombuffer(ffi.buffer(board), dtype=dtype("mc_board"), count=1)[0]
    return record


def board_socket() -> str:
    """Name of the abstract socket where the jobs of this node meet; empty if they need no socket."""
    name = ffi.new("char[]", lib.MC_NAME_LEN)
    return str(ffi.string(name).decode()) if lib.mc_board_socket_name(name, lib.MC_NAME_LEN) else ""


def why_unseen() -> str:
    """Why a job that starts here might not see all other jobs of the node; empty if it would."""
    reason = lib.mc_board_would_not_see()
    return str(ffi.string(reason).decode()) if reason else ""


def n_on_board(path: str, quiet_s: float = 0.0) -> int:
    """Jobs on a board of any version whose agents live, or gave a sign of life less than `quiet_s` ago.

    Raises `DataError` if the file is not a board or cannot be read.
    """
    n = int(lib.mc_board_n_alive(os.fsencode(path), int(quiet_s * 1e9)))
    if n < 0:
        raise DataError(f"{path} is not a board of mpicoloc, or cannot be read")
    return n


def why_no_counters() -> str:
    """Why hardware counters for the meter `ipc` do not work; empty if they do."""
    reason = ffi.new("char[]", lib.MC_TEXT_LEN)
    lib.mc_perf_available(reason, lib.MC_TEXT_LEN)
    return str(ffi.string(reason).decode())


def n_foreign() -> int:
    """Number of running jobs on this node with another version of mpicoloc."""
    return int(lib.mc_board_n_foreign())


def segment_paths(key: str) -> list[str]:
    """Segment files of a job on this node, in rank order; only this user's, as others may plant files."""
    found = {}
    for path in glob.glob(glob.escape(shm_path(key, "")) + ".*.seg"):
        rank = path.rsplit(".", 2)[1]
        if rank.isdecimal() and is_own_file(path):
            found[path] = int(rank)
    return sorted(found, key=found.__getitem__)


def segment_heads(key: str) -> list[SegmentHead]:
    """The heads of the job's segments on this node, except incomplete ones."""
    return [
        SegmentHead(one.world_rank, one.pid, one.state, ffi.string(one.job_id).decode("utf-8", "replace"))
        for one in _mapped_segments(key)
    ]


def _mapped_segments(key: str) -> Iterator[Any]:
    """The job's segments on this node; each stays mapped until the next iteration."""
    for path in segment_paths(key):
        segment = lib.mc_segment_map(path.encode())
        if segment:
            yield segment
            lib.mc_shm_unmap(segment, ffi.sizeof("mc_segment"))


def n_untraced(key: str) -> int:
    """Number of the job's events on this node that the agent has not yet written to the trace file."""
    rings = (segment.ring for segment in _mapped_segments(key))
    return sum(
        ring.n_put - min(ring.n_taken, ring.n_put) for ring in rings if ring.is_kept and not ring.error
    )


def map_file(path: str | os.PathLike[str]) -> np.void:
    """Read-only mapping of a segment, node file or board, which shows later changes.

    Result: one record of the file's struct. Raises `DataError` if the file is not one of mpicoloc's, or of
    another version.
    """
    with open_shared(path, is_own=False) as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return _record(path, mapped)


def read_file(path: str | os.PathLike[str]) -> np.void:
    """A private copy of what `map_file` maps, for files that may have holes.

    Reading, unlike mapping, leaves holes unallocated. So it works even if memory is full (no SIGBUS), or if a
    process truncates a board at the same time. Only a board may belong to another user.

    Raises `DataError` if the file is not one of mpicoloc's, or of another version. Raises `OSError` if it
    cannot be read, or is another user's.
    """
    with open_shared(path, is_own=not os.fspath(path).endswith(".board")) as file:
        return _record(path, file.read(max(ffi.sizeof(struct) for struct in _STRUCT_OF_SUFFIX.values())))


def read_segment(
    path: str | os.PathLike[str], has_events: bool = True
) -> tuple[np.void, np.ndarray[Any, Any]]:
    """A private copy of this user's segment, with pending cycles settled, and its events in order of time.

    There are no events if the node agent writes the trace to a file, or without `has_events`. Reading, unlike
    mapping, leaves holes of the sparse file unallocated; pages of zeros take no memory in the copy either.

    Raises `DataError` if the file is not a segment of this version.
    """
    import numpy as np

    n_bytes = None if has_events else ffi.sizeof("mc_segment")
    with open_shared(path) as file:
        content = copy_sparse(file, n_bytes)
        segment = _record(path, content)
        if segment["state"] in (lib.MC_RANK_INIT, lib.MC_RANK_RUNNING):
            earlier, content = segment, copy_sparse(file, n_bytes)
            segment = _record(path, content)
            _drop_rows_born_after(earlier, segment)
    lib.mc_segment_settle(ffi.cast("mc_segment *", ffi.from_buffer(content)))
    ring = np.frombuffer(content, dtype=np.uint8, offset=ffi.sizeof("mc_segment"))
    n_room = 0 if segment["ring"]["is_kept"] else int(segment["n_events_max"])
    n_room = min(n_room, ring.nbytes // ffi.sizeof("mc_event"))
    events = ring[: n_room * ffi.sizeof("mc_event")].view(dtype("mc_event"))
    events = events[events["t_ns"] > 0]
    return segment, events[np.argsort(events["t_ns"], kind="stable")]


_TABLES = ("sites", "peers", "collectives", "parts", "cycles")


def _drop_rows_born_after(earlier: np.void, segment: np.void) -> None:
    """Clear the rows of a copy that had no key in an earlier copy, because such rows may be incomplete.

    The writer stores a row's key after its names, but only x86 guarantees that a reader sees them in this
    order: on other processors a copy may have the new key and the old names. If an earlier copy has the key,
    the names are complete.
    """
    for before, lane in zip(lanes(earlier), lanes(segment), strict=True):
        for table in _TABLES:
            keys = lane[table]["key"]
            # Write only changed rows, so that pages of zeros stay unallocated.
            keys[(before[table]["key"] == 0) & (keys != 0)] = 0


def text(cell: Any) -> str:
    """The text in a char array up to the zero byte; remains of an earlier, longer text may follow it."""
    return bytes(cell).split(b"\0")[0].decode("utf-8", "replace")


def lanes(segment: np.void) -> list[np.void]:
    """The tables of a rank's threads, records of mc_lane and mc_small_lane, which have the same fields."""
    return [*segment["lanes"], *segment["small_lanes"]]


def latest_call_ns(segment: np.void) -> int:
    """End of the last finished MPI call of any thread of a rank, or the time when a thread got its tables."""
    return max(int(lane["head"]["calls"]["t_last"]) for lane in lanes(segment))


def _record(path: str | os.PathLike[str], content: Any) -> np.void:
    import numpy as np

    name = os.fspath(path)
    struct = _STRUCT_OF_SUFFIX.get(os.path.splitext(name)[1])
    if struct is None:
        raise DataError(
            f"{name} is not a file of mpicoloc: its name must end in {' or '.join(_STRUCT_OF_SUFFIX)}"
        )
    if len(content) < dtype(struct).itemsize:
        raise DataError(
            f"{name} is truncated: it has {len(content)} bytes, a {struct} has {dtype(struct).itemsize}"
        )
    record: np.void = np.frombuffer(content, dtype=dtype(struct), count=1)[0]
    found = (int(record["magic"]), int(record["abi_version"]))
    if found != (lib.MC_MAGIC, lib.MC_ABI_VERSION):
        raise DataError(
            f"{name} has magic {found[0]:#x} and version {found[1]}, not {lib.MC_MAGIC:#x} and "
            f"{lib.MC_ABI_VERSION}: the job ran with another version of mpicoloc"
        )
    # Without this check a struct that grew without a new version would be misread.
    n_events = int(record["n_events_max"]) if struct == "mc_segment" else 0
    if int(record["size_bytes"]) != ffi.sizeof(struct) + n_events * ffi.sizeof("mc_event"):
        raise DataError(f"{name} has structs of an unexpected size: install all parts of mpicoloc again")
    return record


def tell_profile(key: str, state: int, complaint: str = "") -> None:
    """Tell the job's processes on this node the outcome of the profile, and remove the job's files.

    The files are removed first: in a container all processes may end with the ranks, which end as soon as
    they know the outcome. Waiting processes have mapped the files, so they still see the outcome.
    """
    segments, nodes = segment_paths(key), [shm_path(key, "node")]
    mapped = [(path, _mapped(path)) for path in (*nodes, *segments)]
    for path in (*nodes, *segments, *(shm_path(key, what) for what in ("log", "checkpoint"))):
        with suppress(OSError):
            os.unlink(path)
    text = complaint.encode()[: lib.MC_COMPLAINT_LEN - 1]
    for path, file in mapped:
        if file is None:
            continue
        struct = _STRUCT_OF_SUFFIX[os.path.splitext(path)[1]]
        if len(file) >= ffi.sizeof(struct):
            record = ffi.cast(f"{struct} *", ffi.from_buffer(file))
            if struct == "mc_segment":
                lib.mc_segment_set_outcome(record, state, text)
            else:
                record.profile = state


def _mapped(path: str) -> mmap.mmap | None:
    """A writable mapping of the file; None if it does not exist or is empty."""
    try:
        with open_shared(path, os.O_RDWR) as file:
            return mmap.mmap(file.fileno(), 0)
    except (OSError, ValueError):
        return None
