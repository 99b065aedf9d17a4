"""Show a profile: interference, price, and where the MPI time went.

Long tables show their first 8 rows, the first N with --top N, or all rows with --all. For each quantity that
was not measured, the output gives the reason.

  mpicoloc show mpicoloc-1234.h5
  mpicoloc show --top 20 mpicoloc-1234.h5
  mpicoloc show --json mpicoloc-1234.h5
  mpicoloc show before.h5 after.h5
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from mpicoloc import messages
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import bounded
from mpicoloc.errors import MpicolocError, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="profile that a job wrote, mpicoloc-<job id>.h5"
    )
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--top", metavar="N", type=arguments.count, help="show N rows of each long table (default 8)"
    )
    rows.add_argument("--all", action="store_true", help="show all rows")
    parser.add_argument(
        "--json", action="store_true", help="print the key numbers as JSON; for several profiles, a list"
    )


@bounded
def run(args: argparse.Namespace) -> int:
    """Print all readable profiles. Returns the exit code for the first profile that cannot be read, or 0."""
    code, summaries, is_one = 0, [], len(args.files) == 1
    for file in args.files:
        try:
            if args.json:
                summaries.append(_summary(file))
                continue
            if not is_one:
                print(f"==> {printable(file)} <==", flush=True)
            _show(file, _n_top(args))
        except MpicolocError as error:
            messages.trouble(str(error))
            code = code or error.exit_code
    if args.json and not (is_one and code):
        print(json.dumps(summaries[0] if is_one else summaries, indent=2, allow_nan=False))
    return code


def _summary(file: str) -> dict[str, Any]:
    # Imported here: h5py takes long, and `mpicoloc show --help` does not need it.
    from mpicoloc.profile import profiles
    from mpicoloc.profile.summary import summary

    return summary(profiles.read(file))


def _n_top(args: argparse.Namespace) -> int | None:
    from mpicoloc.profile.terminal import N_TOP

    return None if args.all else args.top or N_TOP


def _show(file: str, n_top: int | None) -> None:
    from mpicoloc.profile import profiles, signature
    from mpicoloc.profile.terminal import show
    from mpicoloc.show.table import console

    show(profiles.read(file), console(), signature.facts(file), n_top)
