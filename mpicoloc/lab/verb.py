"""A fat-tree cluster on one machine: hosts and switches are network namespaces, links have a speed.

  sudo mpicoloc lab up --topology 'XGFT(2;4,2;1,2)' --rate 1Gbit
  mpicoloc lab run -n 8 -- ./app
  mpicoloc lab counters
  sudo mpicoloc lab down

Root makes and ends a lab; any user runs jobs in it. It ends with its first process, however that ends, and
then nothing of it is left.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from mpicoloc import config, messages
from mpicoloc.cli import helping, verbosity
from mpicoloc.core.progress import stage
from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.job import flags, target

_TOPOLOGY = "XGFT(2;4,2;1,2)"
_EXAMPLES = {
    "up": "--topology 'XGFT(2;4,2;1,2)' --rate 1Gbit,10Gbit",
    "run": "-n 8 --placement cyclic -- ./app",
    "exec": "h0 -- ip addr",
    "counters": "--since before.json",
    "topology": "> lab.yaml",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb and of what may follow it."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="each has a --help of its own"
    )
    up = _action(actions, "up", _up, "make a lab; needs root")
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
    run = _action(actions, "exec", _exec, "run any command on a host or switch")
    run.add_argument("host", metavar="HOST", help="h0, h1 ..., s1-0 ...")
    run.add_argument("app", nargs=argparse.REMAINDER, metavar="COMMAND", help="command and arguments")
    counters = _action(actions, "counters", _counters, "bytes and packets on every link, up and down")
    counters.add_argument("--since", metavar="FILE", help="count from what --json printed into this file")
    counters.add_argument("--json", action="store_true", help="print JSON")
    _action(actions, "topology", _topology, "print the fat-tree for `mpicoloc network --topology`")
    status = _action(actions, "status", _status, "list the labs that are up; exit code 1 if none is")
    status.set_defaults(name=None)
    status.add_argument("--json", action="store_true", help="print JSON")
    _action(actions, "down", _down, "end a lab and all that runs in it; needs root")


def _action(actions: Any, name: str, function: Any, words: str) -> argparse.ArgumentParser:
    parser = helping.action(actions, f"lab {name}", words, _EXAMPLES.get(name, ""))
    parser.add_argument("--name", metavar="NAME", default="lab", help="the lab (default lab)")
    parser.set_defaults(act=function)
    return parser


def _add_run(actions: Any) -> None:
    run = _action(actions, "run", _run, "run an MPI program on hosts of the lab and write its profile")
    run.add_argument("-n", "-np", dest="n_ranks", metavar="N", help="ranks (default: one per host)")
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
    """Do what the action says."""
    return int(args.act(args))


def _up(args: argparse.Namespace) -> int:
    from mpicoloc.lab import control
    from mpicoloc.lab import terminal as lab_report

    with stage(f"making lab {args.name}"):
        control.start(args.name, args.topology, args.rate)
    print(lab_report.line(control.ask(args.name, "describe")))
    return 0


def _down(args: argparse.Namespace) -> int:
    from mpicoloc.lab import control

    if not control.stop(args.name):
        messages.note(f"no lab {args.name!r} is up, so there is nothing to end")
    return 0


def _status(args: argparse.Namespace) -> int:
    from mpicoloc.lab import agent, control
    from mpicoloc.lab import terminal as lab_report

    labs = []
    for name in agent.names() if args.name is None else [args.name]:
        # Anybody may take a name; that hides no other lab.
        try:
            labs.append(control.ask(name, "describe"))
        except EnvironmentFault as error:
            messages.trouble(str(error))
        except UsageError:
            messages.trouble(f"{name!r} is no lab of mpicoloc")
    if args.json:
        print(json.dumps(labs))
        return 0
    for lab in labs:
        print(lab_report.line(lab))
    if not labs:
        print("no lab is up")
    return 0 if labs else 1


def _topology(args: argparse.Namespace) -> int:
    from mpicoloc.lab import control, plan
    from mpicoloc.network.topology import xgft

    lab = control.ask(args.name, "describe")
    print(plan.yaml(xgft.parse(lab["topology"], lab["capacity_bps"])), end="")
    return 0


def _exec(args: argparse.Namespace) -> int:
    from mpicoloc.lab import agent, control

    usage = "mpicoloc lab exec HOST [--] command [arguments]"
    command = flags.application(args.app, "command", usage)
    lab = control.ask(args.name, "describe")
    if args.host not in lab["pids"]:
        raise UsageError(f"no host {args.host!r} in lab {args.name}: it has h0 to h{lab['n_hosts'] - 1}")
    return agent.execute(args.name, args.host, command)


def _run(args: argparse.Namespace) -> int:
    """Have `mpicoloc run` start the job on its first host; mpirun reaches the others by the lab's agent."""
    from mpicoloc.job import launcher
    from mpicoloc.lab import agent, control, placing

    lab = control.ask(args.name, "describe")
    app = flags.application(args.app, "application", "mpicoloc lab run [-n N] [--] app [arguments]")
    ranks = _ranks(args, lab)
    options = config.flags_to_env(flags.given(args))
    env = {**placing.SETTINGS, **os.environ, **options}
    config.validate(env)
    # A folder of the machine is one for all hosts; each has a /dev/shm of its own.
    env.pop(config.BY_KEY["shm_dir"].env, None)
    chosen = launcher.given(args.mpirun) if args.mpirun else None
    if chosen is None:
        found = target.find(app, env)
        chosen = launcher.find(found.abi, found.libmpi, found.file)
    command = placing.command(
        (chosen.family, chosen.path), ranks, app, args.mpirun_arg, verbosity.flags(), is_plain=args.plain
    )
    return agent.execute(args.name, f"h{ranks[0]}", command, env)


def _ranks(args: argparse.Namespace, lab: dict[str, Any]) -> list[int]:
    """Host of each rank."""
    from mpicoloc.lab import placing
    from mpicoloc.network.topology import xgft

    tree = xgft.parse(lab["topology"], lab["capacity_bps"])
    if args.placement not in placing.PLACEMENTS and args.hosts:
        raise UsageError(f"--placement {args.placement} chooses the hosts itself: leave out --hosts")
    hosts = placing.hosts(args.hosts, tree.n_hosts)
    n_ranks = config.parse_whole("-n", args.n_ranks or str(len(hosts)))
    return placing.place(n_ranks, hosts[:n_ranks], args.placement, tree)


def _counters(args: argparse.Namespace) -> int:
    from mpicoloc.lab import control
    from mpicoloc.lab import terminal as lab_report

    now = control.ask(args.name, "counters")
    try:
        counted = control.since(now, control.read_counters(args.since) if args.since else None)
    except DataError as error:
        raise DataError(f"{args.since}: {error}") from None
    if args.json:
        print(json.dumps(counted))
        return 0
    lab_report.show_counters(counted)
    return 0
