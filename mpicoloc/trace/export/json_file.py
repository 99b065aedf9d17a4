"""All facts and tables as one JSON file."""

from __future__ import annotations

import json
from typing import TextIO

from mpicoloc.core.tables import COLUMNS, Table
from mpicoloc.profile.frames import Frames
from mpicoloc.show import outputs
from mpicoloc.trace.export import facts


def write(job: Frames, out: str) -> None:
    """Write the facts of `job`, and its tables as lists of rows, to the file `out`."""
    profile = job.profile
    with outputs.text_file(out) as file:
        start = json.dumps(facts.facts(profile), indent=1, allow_nan=False)
        file.write(start.removesuffix("\n}") + ',\n "tables": {')
        for i, name in enumerate(COLUMNS):
            file.write(("," if i else "") + f"\n  {json.dumps(name)}: [")
            _rows(file, profile.tables[name])
            file.write("]")
        file.write("\n }\n}\n")


def _rows(file: TextIO, array: Table) -> None:
    for i, row in enumerate(facts.records(array)):
        file.write((",\n   " if i else "\n   ") + json.dumps(row, allow_nan=False))
