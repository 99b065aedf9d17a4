"""Show the jobs on this node while they run: slowdown, shutters, time in MPI, bytes sent.

The list shows every job under mpicoloc on the node, with numbers for your own jobs, which are read from
shared memory without disturbing the jobs. In a pipe the list is printed once. Ends with Ctrl-C.

  mpicoloc top
  mpicoloc top --once --json
"""

from __future__ import annotations

import argparse
import json
import sys

from mpicoloc.cli.arguments import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "--interval-s", type=positive, metavar="S", default=2.0, help="time between two updates (default 2)"
    )
    parser.add_argument(
        "--once", action="store_true", help="print the list once, with rates since the job's start"
    )
    parser.add_argument("--json", action="store_true", help="print the list once, as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the list; on a terminal, keep updating it."""
    from mpicoloc.job import live
    from mpicoloc.show.table import console

    if args.json:
        print(json.dumps(live.as_json(live.jobs(), {}), indent=2, allow_nan=False))
    elif args.once or not sys.stdout.isatty():
        console().print(live.table(live.jobs(), {}))
    else:
        live.watch(args.interval_s)
    return 0
