"""Show a profile: interference, price, and where the MPI time went.

Tables show the first rows; `mpicoloc report` and mpicoloc.open(FILE) in Python have all of them. Of what was
not measured the reason is told.

  mpicoloc show mpicoloc-1234.h5
  mpicoloc show --json mpicoloc-1234.h5
"""

from __future__ import annotations

import argparse
import json

from mpicoloc.cli.memory import bounded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help="profile that a job wrote, mpicoloc-<job id>.h5")
    parser.add_argument("--json", action="store_true", help="print the key numbers as JSON")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the profile; 0, or an error that `main` reports."""
    # Imported here: h5py and pandas take long, and `mpicoloc show --help` needs neither.
    from mpicoloc.store import profiles

    profile = profiles.read(args.file)
    if args.json:
        from mpicoloc.report.summary import summary

        print(json.dumps(summary(profile), indent=2, allow_nan=False))
        return 0
    from mpicoloc.report.table import show
    from mpicoloc.report.terminal import console
    from mpicoloc.store import signature

    show(profile, console(), signature.facts(args.file))
    return 0
