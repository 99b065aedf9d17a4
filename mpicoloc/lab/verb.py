"""Emulate a fat-tree cluster on one machine: network namespaces as hosts and switches, links with set rates.

  sudo mpicoloc lab up --topology 'XGFT(2;4,2;1,2)' --rate 1Gbit
  mpicoloc lab run -n 8 -- ./app
  mpicoloc lab counters
  sudo mpicoloc lab down

Root starts and ends a lab; any user can run jobs in it. When its first process ends, for any reason, the
whole lab disappears.
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
        dest="action", metavar="ACTION", required=True, help="each action has its own --help"
    )
    up = _action(actions, "up", "up", "start a lab; needs root")
    up.add_argument(
        "--topology", metavar="XGFT", default=_TOPOLOGY, help=f"the fat-tree (default {_TOPOLOGY})"
    )
    up.add_argument(
        "--rate",
        metavar="RATE",
        default="1Gbit",
        help="rate of a link in each direction, in kbit, Mbit or Gbit: one for all, or one per level, hosts' "
        "links first, separated by commas (default 1Gbit)",
    )
    _add_run(actions)
    run = _action(actions, "exec", "execute", "run any command on a host or switch")
    run.add_argument("host", metavar="HOST", help="host or switch: h0, h1 ..., s1-0 ...")
    run.add_argument("app", nargs=argparse.REMAINDER, metavar="COMMAND", help="command and arguments")
    counters = _action(actions, "counters", "counters", "print bytes and packets on every link, up and down")
    counters.add_argument(
        "--since", metavar="FILE", help="subtract the counts in this file, an earlier output of --json"
    )
    counters.add_argument("--json", action="store_true", help="print JSON")
    _action(actions, "topology", "topology", "print the fat-tree for `mpicoloc network --topology`")
    status = _action(actions, "status", "status", "list the labs that are up; exit code 1 if none is")
    status.set_defaults(name=None)
    status.add_argument("--json", action="store_true", help="print JSON")
    _action(actions, "down", "down", "end a lab and everything that runs in it; needs root")


def _action(actions: Any, name: str, function: str, words: str) -> argparse.ArgumentParser:
    parser = arguments.action(actions, f"lab {name}", words, _EXAMPLES.get(name, ""), function)
    parser.add_argument("--name", metavar="NAME", default="lab", help="name of the lab (default lab)")
    return parser


def _add_run(actions: Any) -> None:
    run = _action(actions, "run", "run", "run an MPI program on hosts of the lab and write its profile")
    run.add_argument(
        "-n", "-np", dest="n_ranks", metavar="N", type=arguments.count, help="ranks (default: one per host)"
    )
    run.add_argument("--hosts", metavar="LIST", help="hosts to use, in this order, e.g. 0-3,6 (default: all)")
    run.add_argument(
        "--placement",
        metavar="WAY",
        default="block",
        help="block: ranks fill one host after another; cyclic: round robin over the hosts; F2, F4, ...: 2, "
        "4, ... hosts of each first-level switch; RF: random hosts, one rank on each (default block)",
    )
    flags.add_first(run)
    run.add_argument(
        "--plain", action="store_true", help="run the job without mpicoloc, and so without a profile"
    )
    run.add_argument(
        "--mpirun", metavar="PATH", help="the mpirun to use (default: that of the MPI that app links)"
    )
    run.add_argument(
        "--mpirun-arg", action="append", default=[], metavar="ARG", help="one more argument for mpirun"
    )
    flags.add_advanced(
        run.add_argument_group(
            "advanced", "Options that name an environment variable can also be set by that variable."
        )
    )
    run.add_argument("app", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    from mpicoloc.lab import actions as lab_actions

    args.run_flags = verbosity.flags()  # for `mpicoloc run` on a host
    return int(getattr(lab_actions, args.act)(args))
