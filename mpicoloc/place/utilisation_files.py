"""Link utilisation of programs: from tables, and from profiles of jobs that ran with `--topology`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from mpicoloc.core.profile import Floats, Profile
from mpicoloc.core.row_file import number_of, table_rows
from mpicoloc.core.slowdown import program_name
from mpicoloc.errors import DataError
from mpicoloc.profile import profiles

_NAMES_TOLD = 5


def of_programs(
    names: Sequence[str], table: Mapping[str, Mapping[int, float]], height: int, source: str
) -> Floats:
    """Link utilisation by program and level.

    Shapes: result (n_programs, height). Result: 0 for programs that are not in the table. Values above 1
    count as 1, as in `network.utilisation`. Raises `DataError` if the table has none of the programs, a
    number is negative, or a program uses a level that the machine lacks.
    """
    if not table.keys() & set(names):
        some = ", ".join(names[:_NAMES_TOLD]) + ", ..." * (len(names) > _NAMES_TOLD)
        raise DataError(f"{source} has none of the programs that the jobs run ({some}): add at least one")
    found = np.zeros((len(names), height))
    for name, levels in table.items():
        for level, value in levels.items():
            if value < 0:
                raise DataError(
                    f"{source}: level {level} of {name} is {value:g}: give a fraction from 0 to 1"
                )
            if level >= height:
                raise DataError(
                    f"{source}: {name} uses level {level}, but the machine's links only have levels 0 to "
                    f"{height - 1}: remove that level, or give a --topology with more levels"
                )
            if name in names:
                found[names.index(name), level] = min(value, 1.0)
    return found


_LEVEL = re.compile(r"level_(\d{1,2})")


def read_table(path: str) -> dict[str, dict[int, float]]:
    """Utilisation of levels by program.

    Columns, or keys of JSON objects: ``program``, and ``level_L`` for at least one level L of links. The
    number in ``level_L`` is the fraction of its time for which the program keeps the links of that level
    busy. Level 0 is the links of hosts. Cells can be empty.

    Raises `UsageError` if the file cannot be read. Raises `DataError` if a column is missing, a number is
    malformed, or a program appears twice.
    """
    found: dict[str, dict[int, float]] = {}
    for i, row in enumerate(table_rows(path, "utilisation", {"program", "level_1"}, {"program"}), 1):
        name = str(row["program"])
        if name in found:
            raise DataError(f"{path}: row {i}: program {name!r} appears twice; keep one row")
        levels = {int(match[1]): key for key in row if (match := _LEVEL.fullmatch(str(key)))}
        values = {level: number_of(path, i, key, row[key]) for level, key in levels.items()}
        found[name] = {level: value for level, value in values.items() if not math.isnan(value)}
        if not found[name]:
            raise DataError(f"{path}: row {i} has no level_1, level_2, ...: give at least one of these")
    if not found:
        raise DataError(f"{path} lists no program: add rows with program, level_1, level_2, ...")
    return found


def read(paths: Sequence[str]) -> dict[str, dict[int, float]]:
    """Utilisation of levels by program.

    Raises `DataError` if a file has no utilisation, or two files have the same program.
    """
    found: dict[str, dict[int, float]] = {}
    for path in paths:
        if path.endswith(".h5"):
            profile = profiles.read(path)
            table = {program_name(profile.job.command): _of_profile(path, profile)}
        else:
            table = read_table(path)
        if both := found.keys() & table.keys():
            raise DataError(
                f"{path}: program {min(both)} is also in another --utilisation file: keep it in only one"
            )
        found |= table
    return found


def _of_profile(path: str, profile: Profile) -> dict[int, float]:
    network = profile.network
    levels = {} if network is None else {row.level: row.utilisation_frac for row in network.levels}
    known = {level: value for level, value in levels.items() if value is not None}
    if not known:
        raise DataError(
            f"{path} has no utilisation of links: run the job with --topology, or give a table of the "
            "utilisation that `mpicoloc network` prints"
        )
    return known
