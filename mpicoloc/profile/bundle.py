"""Pack a profile, or a node's part of a job, into bytes for another process or the disk: JSON, then rows.

Unpacking is safe for data from an untrusted source: no part of the data is executed, and the result is not
larger than the input.
"""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from mpicoloc.core.plain_values import dataclass_from
from mpicoloc.core.profile import (
    COLUMNS,
    Estimate,
    Interference,
    Job,
    MeterResult,
    MpiSummary,
    Network,
    NetworkLevel,
    Price,
    Profile,
    Table,
    dtype,
)

T = TypeVar("T")
_SIZE_BYTES = 8


def pack(facts: Mapping[str, Any], tables: Mapping[str, Table]) -> Iterator[bytes | memoryview]:
    """Pack the facts, which must be JSON, and all tables; yields the bytes in pieces."""
    n_rows = {name: len(tables[name]) for name in COLUMNS}
    text = json.dumps({"facts": facts, "n_rows": n_rows, "kind": _kind()}, allow_nan=False).encode()
    yield len(text).to_bytes(_SIZE_BYTES, "little")
    yield text
    for name in COLUMNS:
        yield np.ascontiguousarray(tables[name]).view(np.uint8).data


def unpack(content: memoryview) -> tuple[Mapping[str, Any], dict[str, Table]]:
    """Unpack the arguments of `pack`; the tables are views of `content`.

    Raises `ValueError`, `TypeError`, `LookupError`, `ArithmeticError`, `RecursionError` if `content` is not a
    bundle, or is a bundle of a version of mpicoloc that has other columns.
    """
    start = _SIZE_BYTES + int.from_bytes(content[:_SIZE_BYTES], "little")
    head = json.loads(bytes(content[_SIZE_BYTES:start]))
    if head["kind"] != _kind():
        raise ValueError("its tables were written by another version of mpicoloc: use that version")
    if not isinstance(head["facts"], dict):
        raise ValueError("it lacks the job's facts")
    tables = {}
    for name in COLUMNS:
        tables[name] = np.ndarray((head["n_rows"][name],), dtype(name), buffer=content, offset=start)
        start += tables[name].nbytes
    if start != len(content):
        raise ValueError(f"it has {len(content)} bytes, but its tables end at byte {start}")
    return head["facts"], tables


def _kind() -> int:
    """Checksum of the tables' columns, to recognise bundles of other versions."""
    return zlib.crc32(repr([(name, dtype(name).descr) for name in COLUMNS]).encode())


_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "job_id": str,
    "command": str,
    "mpi_library": str,
    "out_path": str,
    "world_rank": int,
    "world_size": int,
    "n_nodes": int,
    "n_cores": int,
    "mode": str,
    "user": str,
    "batch_name": str,
    "start_unix_s": (float, int),
    "until_unix_s": (float, int),
}
_LISTS = {"not_finalized": int, "notes": str}
_MAX_TEXT_BYTES = 1 << 16
_MAX_NUMBER = 1 << 40


@dataclass(frozen=True)
class NodePart:
    """One node's part of a job. `facts` is plain JSON data, so that a part can be sent without pickle.

    In `tables`, this node is row 0 of the nodes, and the rows of modules are numbered within the part. For a
    checkpoint after which the job went on, the fact `until_unix_s` is the time of that checkpoint. For the
    final part, it is 0.
    """

    tables: Mapping[str, Table]
    facts: Mapping[str, Any] = field(default_factory=dict)


def pack_part(part: NodePart) -> Iterator[bytes | memoryview]:
    """Pack a part; yields the bytes in pieces."""
    return pack(part.facts, part.tables)


def unpack_part(content: bytes | memoryview) -> NodePart:
    """Unpack the part that `pack_part` packed.

    Raises `ValueError`, `TypeError`, `LookupError`, `ArithmeticError`, `RecursionError` if `content` is not a
    part, or is one of another version of mpicoloc.
    """
    facts, tables = unpack(memoryview(content))
    for name, kind in _TYPES.items():
        if not _is(kind, facts.get(name)):
            raise ValueError(f"its {name} is invalid: {facts.get(name)!r}")
    for name, one in _LISTS.items():
        values = facts.get(name)
        if not isinstance(values, list) or not all(_is(one, value) for value in values):
            raise ValueError(f"its {name} is not a list of {one.__name__}")
    return NodePart(tables, facts)


def _is(kind: type | tuple[type, ...], value: Any) -> bool:
    """Whether a value has the type, and is in the range that a profile can have."""
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    if isinstance(value, str):
        return len(value.encode()) <= _MAX_TEXT_BYTES  # encode() also refuses lone surrogates
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _MAX_NUMBER


_FACTS = ("job", "mpi", "interference", "price", "network")


def pack_profile(profile: Profile, more: Mapping[str, Any]) -> Iterator[bytes | memoryview]:
    """Pack a profile and additional plain values; yields the bytes in pieces."""
    facts = {name: getattr(profile, name) for name in _FACTS}
    head = {name: None if one is None else dataclasses.asdict(one) for name, one in facts.items()}
    more_facts = {"partial": profile.partial, "notes": profile.notes, "more": more}
    return pack(head | more_facts, profile.tables)


def unpack_profile(content: memoryview) -> tuple[Profile, Mapping[str, Any]]:
    """Unpack the arguments of `pack_profile`; the tables are views of `content`.

    Raises `ValueError`, `TypeError`, `LookupError`, `ArithmeticError`, `RecursionError`, `DataError` if
    `content` is not such a bundle.
    """
    head, tables = unpack(content)
    found = head["interference"]
    beside = {
        "slowdown": _maybe(Estimate, found["slowdown"]),
        "alternatives": tuple(dataclass_from(Estimate, other) for other in found["alternatives"]),
        "meters": tuple(
            dataclass_from(MeterResult, result, slowdown=_maybe(Estimate, result["slowdown"]))
            for result in found["meters"]
        ),
    }
    network = head["network"] or {"levels": ()}
    levels = tuple(dataclass_from(NetworkLevel, row) for row in network["levels"])
    profile = Profile(
        job=dataclass_from(Job, head["job"]),
        tables=tables,
        mpi=dataclass_from(MpiSummary, head["mpi"]),
        interference=dataclass_from(Interference, found, **beside),
        price=_maybe(Price, head["price"]),
        partial=bool(head["partial"]),
        notes=tuple(map(str, head["notes"])),
        network=_maybe(Network, head["network"], levels=levels),
    )
    return profile, head["more"]


def _maybe(kind: type[T], values: Mapping[str, Any] | None, **given: Any) -> T | None:
    return None if values is None else dataclass_from(kind, values, **given)
