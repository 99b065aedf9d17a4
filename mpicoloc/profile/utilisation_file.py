"""Tables of what programs do to a network: CSV or JSON with ``program, level_1, level_2, ...``."""

from __future__ import annotations

import math
import re

from mpicoloc.errors import DataError
from mpicoloc.profile.queue_files import number_of, table_rows

_LEVEL = re.compile(r"level_(\d{1,2})")


def read(path: str) -> dict[str, dict[int, float]]:
    """Utilisation of levels by program.

    Columns, or keys of JSON objects: ``program``, and ``level_L`` for at least one level L of links: the
    part of its time for which the program keeps such links busy. Cells may be empty. Level 0 are links of
    hosts.

    Raises
    ------
    UsageError
        If the file cannot be read.
    DataError
        If it has no such columns, a number is none, or a program is there twice.
    """
    found: dict[str, dict[int, float]] = {}
    for i, row in enumerate(table_rows(path, "utilisation", {"program", "level_1"}, {"program"}), 1):
        name = str(row["program"])
        if name in found:
            raise DataError(f"{path}: row {i}: program {name!r} is there twice; keep one row")
        levels = {int(match[1]): key for key in row if (match := _LEVEL.fullmatch(str(key)))}
        values = {level: number_of(path, i, key, row[key]) for level, key in levels.items()}
        found[name] = {level: value for level, value in values.items() if not math.isnan(value)}
        if not found[name]:
            raise DataError(f"{path}: row {i} has no level_1, level_2, ...: give the utilisation of a level")
    if not found:
        raise DataError(f"{path} has no program; columns are program, level_1, level_2, ...")
    return found
