"""Show a profile: interference, price, and where the MPI time went.

Long tables show their first 8 rows, with --top N as many as you like, with --all all of them. Of what was not
measured the reason is told.

  mpicoloc show mpicoloc-1234.h5
  mpicoloc show --top 20 mpicoloc-1234.h5
  mpicoloc show --json mpicoloc-1234.h5
"""

from __future__ import annotations

import argparse
import json

from mpicoloc.cli.memory import bounded
from mpicoloc.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help="profile that a job wrote, mpicoloc-<job id>.h5")
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--top", metavar="N", help="show N rows of each long table (default 8)")
    rows.add_argument("--all", action="store_true", help="show all rows")
    parser.add_argument("--json", action="store_true", help="print the key numbers as JSON")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the profile; 0, or an error that `main` reports."""
    if args.top is not None and not (args.top.isdecimal() and int(args.top) > 0):
        raise UsageError(f"--top must be a whole number above 0, got {args.top!r}")
    # Imported here: h5py and pandas take long, and `mpicoloc show --help` needs neither.
    from mpicoloc.store import profiles

    profile = profiles.read(args.file)
    if args.json:
        from mpicoloc.report.summary import summary

        print(json.dumps(summary(profile), indent=2, allow_nan=False))
        return 0
    from mpicoloc.report.table import N_TOP, show
    from mpicoloc.report.terminal import console
    from mpicoloc.store import signature

    n_top = None if args.all else int(args.top or N_TOP)
    show(profile, console(), signature.facts(args.file), n_top)
    return 0
