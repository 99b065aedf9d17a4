"""Show a profile: interference, price, and where the MPI time went.

Tables show the first rows; `mpicoloc report` and mpicoloc.open(FILE) in Python have all of them. Of what was
not measured the reason is told.

  mpicoloc show mpicoloc-1234.h5
  mpicoloc show --json mpicoloc-1234.h5
  mpicoloc show before.h5 after.h5
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from mpicoloc.cli import tell
from mpicoloc.cli.memory import bounded
from mpicoloc.errors import MpicolocError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="profile that a job wrote, mpicoloc-<job id>.h5"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the key numbers as JSON; of several profiles, a list"
    )


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the profiles; 0, or an error that `main` reports."""
    if len(args.files) > 1:
        return _several(args)
    if args.json:
        print(json.dumps(_summary(args.files[0]), indent=2, allow_nan=False))
    else:
        _show(args.files[0])
    return 0


def _several(args: argparse.Namespace) -> int:
    """All that can be read; the exit code is that of the first one that cannot."""
    from mpicoloc.core.tables import printable

    code, summaries = 0, []
    for file in args.files:
        try:
            if args.json:
                summaries.append(_summary(file))
                continue
            print(f"==> {printable(file)} <==", flush=True)
            _show(file)
        except MpicolocError as error:
            tell.trouble(str(error))
            code = code or error.exit_code
    if args.json:
        print(json.dumps(summaries, indent=2, allow_nan=False))
    return code


def _summary(file: str) -> dict[str, Any]:
    # Imported here: h5py and pandas take long, and `mpicoloc show --help` needs neither.
    from mpicoloc.report.summary import summary
    from mpicoloc.store import profiles

    return summary(profiles.read(file))


def _show(file: str) -> None:
    from mpicoloc.report.table import show
    from mpicoloc.report.terminal import console
    from mpicoloc.store import profiles, signature

    show(profiles.read(file), console(), signature.facts(file))
