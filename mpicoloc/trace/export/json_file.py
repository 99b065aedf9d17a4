"""All facts and tables as one JSON file."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any

from mpicoloc.core.plain_values import plain
from mpicoloc.core.profile import COLUMNS, Profile, Table, text
from mpicoloc.profile.frames import Frames
from mpicoloc.profile.summary import summary
from mpicoloc.show import outputs

_N_AT_ONCE = 1 << 14


def facts(profile: Profile) -> dict[str, Any]:
    """Everything except the tables: the keys of ``mpicoloc show --json`` and all other facts."""
    found = summary(profile)
    for part in ("job", "mpi", "interference", "price", "network"):
        value = getattr(profile, part)
        if value is not None:
            found[part] = dataclasses.asdict(value) | found[part]
    found["notes"] = list(profile.notes)
    return dict(plain(found))


def records(array: Table) -> Iterator[dict[str, Any]]:
    """The rows of a table, with decoded texts."""
    names = array.dtype.names or ()
    for i in range(0, len(array), _N_AT_ONCE):
        piece = array[i : i + _N_AT_ONCE]
        columns = [list(map(_cell, piece[name].tolist())) for name in names]
        yield from (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        return text(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write(job: Frames, out: str) -> None:
    """Write the facts of `job`, and its tables as lists of rows, to the file `out`."""
    profile = job.profile
    with outputs.text_file(out) as file:
        start = json.dumps(facts(profile), indent=1, allow_nan=False)
        file.write(start.removesuffix("\n}") + ',\n "tables": {')
        for i, name in enumerate(COLUMNS):
            file.write(("," if i else "") + f"\n  {json.dumps(name)}: [")
            for j, row in enumerate(records(profile.tables[name])):
                file.write((",\n   " if j else "\n   ") + json.dumps(row, allow_nan=False))
            file.write("]")
        file.write("\n }\n}\n")
