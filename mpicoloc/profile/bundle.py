"""Tables with plain facts as bytes on their way to another process or node: JSON, then the rows.

Whoever unpacks them need not trust whoever packed them: nothing in it is run, and what comes out is no larger
than what went in.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mpicoloc.core.tables import COLUMNS, Table, dtype

_SIZE_BYTES = 8


def pack(facts: Mapping[str, Any], tables: Mapping[str, Table]) -> Iterator[bytes | memoryview]:
    """The facts, which must be JSON, and all tables, in pieces."""
    n_rows = {name: len(tables[name]) for name in COLUMNS}
    text = json.dumps({"facts": facts, "n_rows": n_rows, "kind": _kind()}, allow_nan=False).encode()
    yield len(text).to_bytes(_SIZE_BYTES, "little")
    yield text
    for name in COLUMNS:
        yield np.ascontiguousarray(tables[name]).view(np.uint8).data


def unpack(content: memoryview) -> tuple[Mapping[str, Any], dict[str, Table]]:
    """What `pack` was given; the tables are views of `content`.

    Raises `ValueError`, `TypeError`, `LookupError`, `ArithmeticError`, `RecursionError` if it is no such
    bundle, or one of a version with other columns.
    """
    start = _SIZE_BYTES + int.from_bytes(content[:_SIZE_BYTES], "little")
    head = json.loads(bytes(content[_SIZE_BYTES:start]))
    if head["kind"] != _kind():
        raise ValueError("its tables are of another version of mpicoloc: use the one that wrote it")
    if not isinstance(head["facts"], dict):
        raise ValueError("it has no facts")
    tables = {}
    for name in COLUMNS:
        tables[name] = np.ndarray((head["n_rows"][name],), dtype(name), buffer=content, offset=start)
        start += tables[name].nbytes
    if start != len(content):
        raise ValueError(f"it has {len(content)} bytes, its tables end at {start}")
    return head["facts"], tables


def _kind() -> int:
    """Another number for other columns."""
    return zlib.crc32(repr([(name, dtype(name).descr) for name in COLUMNS]).encode())
