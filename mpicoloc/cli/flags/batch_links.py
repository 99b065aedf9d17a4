"""Flags of `mpicoloc batch` for jobs that share links: what their programs send."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.core.profile import Profile

    Table = dict[str, dict[int, float]]


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

    Raises
    ------
    UsageError
        If there is an allocation to compare with, and nothing to compare.
    """
    if args.utilisation is None and args.against is not None:
        raise UsageError("--against compares what jobs lose to links: give --utilisation too")
    return args.utilisation is not None


def read(args: argparse.Namespace) -> Table | None:
    """Utilisation of levels by program; None: links delay nobody.

    Raises
    ------
    DataError
        If a file tells no utilisation, or two tell that of one program.
    """
    if not are_used(args):
        return None
    from mpicoloc.profile import profiles, utilisation_file
    from mpicoloc.slowdown.features import program_name

    found: Table = {}
    for path in args.utilisation:
        if path.endswith(".h5"):
            profile = profiles.read(path)
            table = {program_name(profile.job.command): _of_profile(path, profile)}
        else:
            table = utilisation_file.read(path)
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
