"""List the profiles below a folder: the history of its jobs.

An index in the user's cache folder stores the facts of profiles, so that only new profiles are read.

  mpicoloc history ~/profiles
  mpicoloc history --csv ~/profiles > jobs.csv
"""

from __future__ import annotations

import argparse
import json

from mpicoloc import messages
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import bounded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        nargs="?",
        default=".",
        help="folder of profiles, searched with its subfolders",
    )
    parser.add_argument(
        "--last", metavar="N", type=arguments.count, help="list only the N jobs that began last"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print all facts of each profile as JSON")
    how.add_argument(
        "--csv", action="store_true", help="print all facts of each profile as comma-separated values"
    )


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the list; returns 1 if a file could not be read, else 0."""
    from mpicoloc.profile.history import history, records, show

    jobs = history(args.folder)
    if jobs.attrs["note"]:
        messages.note(jobs.attrs["note"])
    jobs = jobs if args.last is None else jobs.tail(args.last)
    if args.csv:
        from mpicoloc.show.table import write

        write(jobs.to_csv(index=False))
    elif args.json:
        print(json.dumps(records(jobs), indent=2, allow_nan=False))
    else:
        show(records(jobs))
    unread = jobs[jobs["trouble"].notna()]
    for trouble in unread["trouble"]:
        messages.trouble(trouble)
    return 1 if len(unread) else 0
