"""What one node knows of a job, and the same as bytes for other nodes and for the disk."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mpicoloc.core.tables import Table
from mpicoloc.profile import bundle

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
    """What one node knows of a job. `facts` is plain JSON data, so that a part can travel without pickle.

    In `tables` node rows are numbered from 0 (this node) and module rows within the part. `until_unix_s` of
    the facts is 0, or the job went on after this time.
    """

    tables: Mapping[str, Table]
    facts: Mapping[str, Any] = field(default_factory=dict)


def pack(part: NodePart) -> Iterator[bytes | memoryview]:
    """The part as bytes, in pieces, for `unpack` elsewhere."""
    return bundle.pack(part.facts, part.tables)


def unpack(content: bytes | memoryview) -> NodePart:
    """The part that `pack` made bytes of.

    Raises `ValueError`, `TypeError`, `LookupError`, `ArithmeticError`, `RecursionError` if it is none, or one
    of another version of mpicoloc.
    """
    facts, tables = bundle.unpack(memoryview(content))
    for name, kind in _TYPES.items():
        if not _is(kind, facts.get(name)):
            raise ValueError(f"its {name} is {facts.get(name)!r}")
    for name, one in _LISTS.items():
        values = facts.get(name)
        if not isinstance(values, list) or not all(_is(one, value) for value in values):
            raise ValueError(f"its {name} is no list of {one.__name__}")
    return NodePart(tables, facts)


def _is(kind: type | tuple[type, ...], value: Any) -> bool:
    """Whether a value is of the kind, and one that a profile can have."""
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    if isinstance(value, str):
        return len(value.encode()) <= _MAX_TEXT_BYTES  # refuses halves of letters
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) <= _MAX_NUMBER
