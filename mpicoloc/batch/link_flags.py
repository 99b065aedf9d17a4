"""Flags of `mpicoloc batch` for jobs that share links: what their programs send."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.row_file import number_of, table_rows
from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.core.profile import Profile

    Table = dict[str, dict[int, float]]


Floats = NDArray[np.float64]
_NAMES_TOLD = 5


def of_programs(
    names: Sequence[str], table: Mapping[str, Mapping[int, float]], height: int, source: str
) -> Floats:
    """Utilisation of each level by programs.

    Shapes: result (n_programs, height). Result: of programs that are not in the table 0: they send nothing
    that is known. What is above 1 counts as 1, as in `network.sharing`. Raises `DataError` if none of the
    programs is there, or a number is negative, or a program uses a level that the machine lacks.
    """
    if not table.keys() & set(names):
        some = ", ".join(names[:_NAMES_TOLD]) + ", ..." * (len(names) > _NAMES_TOLD)
        raise DataError(f"{source} has none of the programs that the jobs run ({some}): name one of these")
    found = np.zeros((len(names), height))
    for name, levels in table.items():
        for level, value in levels.items():
            if value < 0:
                raise DataError(f"{source}: {name} has {value:g} of level {level}: give a part from 0 to 1")
            if level >= height:
                raise DataError(
                    f"{source}: {name} uses level {level}, the machine's links have levels 0 to "
                    f"{height - 1}: leave it out, or give a --topology with more levels"
                )
            if name in names:
                found[names.index(name), level] = min(value, 1.0)
    return found


_LEVEL = re.compile(r"level_(\d{1,2})")


def read_utilisation(path: str) -> dict[str, dict[int, float]]:
    """Utilisation of levels by program.

    Columns, or keys of JSON objects: ``program``, and ``level_L`` for at least one level L of links: the
    part of its time for which the program keeps such links busy. Cells may be empty. Level 0 are links of
    hosts.

    Raises `UsageError` if the file cannot be read. Raises `DataError` if it has no such columns, a number is
    none, or a program is there twice.
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for shared links."""
    add = parser.add_argument
    add(
        "--utilisation",
        metavar="FILE",
        action="append",
        help="part of its time for which each program keeps links of each level busy: program, level_1, "
        "level_2, ...; or a profile; may be repeated. Jobs that share links are delayed then",
    )
    add("--against", metavar="NAME", help="allocation to compare what jobs lose to links with, as E(P)")


def are_used(args: argparse.Namespace) -> bool:
    """Whether jobs that share links are delayed.

    Raises `UsageError` if there is an allocation to compare with, and nothing to compare.
    """
    if args.utilisation is None and args.against is not None:
        raise UsageError("--against compares what jobs lose to links: give --utilisation too")
    return args.utilisation is not None


def read(args: argparse.Namespace) -> Table | None:
    """Utilisation of levels by program; None: links delay nobody.

    Raises `DataError` if a file tells no utilisation, or two tell that of one program.
    """
    if not are_used(args):
        return None
    from mpicoloc.core.features import program_name
    from mpicoloc.profile import profiles

    found: Table = {}
    for path in args.utilisation:
        if path.endswith(".h5"):
            profile = profiles.read(path)
            table = {program_name(profile.job.command): _of_profile(path, profile)}
        else:
            table = read_utilisation(path)
        if both := found.keys() & table.keys():
            raise DataError(f"{path}: {min(both)} is in another --utilisation file too: keep one of both")
        found |= table
    return found


def _of_profile(path: str, profile: Profile) -> dict[int, float]:
    network = profile.network
    levels = {} if network is None else {row.level: row.utilisation_frac for row in network.levels}
    known = {level: value for level, value in levels.items() if value is not None}
    if not known:
        raise DataError(
            f"{path} has no utilisation of links: run the job with --topology, or give a table of "
            "`mpicoloc network`'s figures"
        )
    return known
