"""A fat-tree cluster on one machine: hosts and switches are network namespaces, links have a speed.

  sudo mpicoloc lab up --topology 'XGFT(2;4,2;1,2)' --rate 1Gbit
  mpicoloc lab run -n 8 -- ./app
  mpicoloc lab counters
  sudo mpicoloc lab down

Root makes and ends a lab; any user can run jobs in it. When its first process ends for any reason, the lab
ends and leaves nothing behind.
"""

from __future__ import annotations

import argparse
from typing import Any

from mpicoloc.cli import arguments, verbosity
from mpicoloc.job import flags

_TOPOLOGY = "XGFT(2;4,2;1,2)"
_EXAMPLES = {
    "up": "--topology 'XGFT(2;4,2;1,2)' --rate 1Gbit,10Gbit",
    "run": "-n 8 --placement cyclic -- ./app",
    "exec": "h0 -- ip addr",
    "counters": "--since before.json",
    "topology": "> lab.yaml",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb and its actions."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="each has a --help of its own"
    )
    up = _action(actions, "up", "up", "make a lab; needs root")
    up.add_argument(
        "--topology", metavar="XGFT", default=_TOPOLOGY, help=f"the fat-tree (default {_TOPOLOGY})"
    )
    up.add_argument(
        "--rate",
        metavar="RATE",
        default="1Gbit",
        help="what a link carries each way, in kbit, Mbit or Gbit: once, or per level, hosts' links first, "
        "with commas (default 1Gbit)",
    )
    _add_run(actions)
    run = _action(actions, "exec", "execute", "run any command on a host or switch")
    run.add_argument("host", metavar="HOST", help="h0, h1 ..., s1-0 ...")
    run.add_argument("app", nargs=argparse.REMAINDER, metavar="COMMAND", help="command and arguments")
    counters = _action(actions, "counters", "counters", "bytes and packets on every link, up and down")
    counters.add_argument("--since", metavar="FILE", help="count from what --json printed into this file")
    counters.add_argument("--json", action="store_true", help="print JSON")
    _action(actions, "topology", "topology", "print the fat-tree for `mpicoloc network --topology`")
    status = _action(actions, "status", "status", "list the labs that are up; exit code 1 if none is")
    status.set_defaults(name=None)
    status.add_argument("--json", action="store_true", help="print JSON")
    _action(actions, "down", "down", "end a lab and all that runs in it; needs root")


def _action(actions: Any, name: str, function: str, words: str) -> argparse.ArgumentParser:
    parser = arguments.action(actions, f"lab {name}", words, _EXAMPLES.get(name, ""), function)
    parser.add_argument("--name", metavar="NAME", default="lab", help="the lab (default lab)")
    return parser


def _add_run(actions: Any) -> None:
    run = _action(actions, "run", "run", "run an MPI program on hosts of the lab and write its profile")
    run.add_argument(
        "-n", "-np", dest="n_ranks", metavar="N", type=arguments.count, help="ranks (default: one per host)"
    )
    run.add_argument("--hosts", metavar="LIST", help="hosts to use, in this order, as 0-3,6 (default: all)")
    run.add_argument(
        "--placement",
        metavar="WAY",
        default="block",
        help="block: ranks fill host after host; cyclic: they go round; F2, F4 ...: so many hosts of each "
        "first-level switch, RF: random hosts, one rank on each (default block)",
    )
    flags.add_first(run)
    run.add_argument("--plain", action="store_true", help="without mpicoloc in the job: no profile")
    run.add_argument("--mpirun", metavar="PATH", help="the mpirun to use; default: of the MPI that app links")
    run.add_argument("--mpirun-arg", action="append", default=[], metavar="ARG", help="one more for mpirun")
    flags.add_advanced(
        run.add_argument_group(
            "advanced", "Each option whose variable is named may also be given by that, in the environment."
        )
    )
    run.add_argument("app", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    from mpicoloc.lab import actions as lab_actions

    args.run_flags = verbosity.flags()  # for `mpicoloc run` on a host
    return int(getattr(lab_actions, args.act)(args))
