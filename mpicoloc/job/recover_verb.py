"""Write a partial profile from the checkpoints of a job that was killed as a whole, or whose node died.

  mpicoloc recover mpicoloc-1234.h5
  mpicoloc recover /scratch/a/1234.parts /scratch/b/1234.parts --out 1234.h5

While a job runs, each of its nodes keeps a copy of its part of the profile on disk, in the folder
mpicoloc-1234.parts beside the profile, and renews it every minute (--checkpoint-s). `recover` does not delete
these parts. Options for price and network are read from the current environment.
"""

from __future__ import annotations

import argparse
import os

from mpicoloc import messages
from mpicoloc.cli.arguments import bounded
from mpicoloc.errors import DataError, UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "places",
        metavar="PROFILE",
        nargs="+",
        help="missing profile, or its folder of parts, or a part; give several if nodes have their own disks",
    )
    parser.add_argument("--out", metavar="FILE", help="file for the profile (default: the first PROFILE's)")


@bounded
def run(args: argparse.Namespace) -> int:
    """Write the profile, and print where it is."""
    from mpicoloc.profile import checkpoints, hdf5, profiles
    from mpicoloc.profile.recover import check_replaces, recover

    out = args.out or checkpoints.profile_of(args.places[0])
    if out.endswith((".part", ".parts")) or os.path.isdir(out):
        raise UsageError(f"the profile's name does not follow from {args.places[0]}: give --out FILE")
    profile, left_out = recover(args.places)
    for line in left_out:
        messages.trouble(f"left out: {line}")
    if os.path.lexists(out):
        try:
            there = profiles.read(out)
        except DataError as error:
            raise DataError(
                f"{error}. This file is not replaced: remove it, or name another with --out"
            ) from None
        check_replaces(out, there, profile)
    hdf5.write(profile, out)
    print(out)
    return 0
