"""The actions of `mpicoloc lab`: make labs, run jobs in them, and print what is to be known of them."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from mpicoloc import config, messages
from mpicoloc.core.progress import stage
from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.job import flags, launcher, target
from mpicoloc.lab import agent, control, placing, plan
from mpicoloc.network.topology import xgft
from mpicoloc.show.output import console
from mpicoloc.show.table import Column, listing


def up(args: argparse.Namespace) -> int:
    """Make a lab."""
    with stage(f"making lab {args.name}"):
        control.start(args.name, args.topology, args.rate)
    print(_line(control.ask(args.name, "describe")))
    return 0


def _line(lab: dict[str, Any]) -> str:
    """A lab on one line."""
    rates = sorted({f"{rate_bps * 8e-9:g} Gbit/s" for rate_bps in lab["capacity_bps"]})
    return (
        f"lab {lab['name']}: {lab['topology']}, {lab['n_hosts']} hosts, {lab['n_switches']} switches, "
        f"{' and '.join(rates)}, up for {lab['up_s']:.0f} s"
    )


def down(args: argparse.Namespace) -> int:
    """End a lab and all that runs in it."""
    if not control.stop(args.name):
        messages.note(f"no lab {args.name!r} is up, so there is nothing to end")
    return 0


def status(args: argparse.Namespace) -> int:
    """List the labs that are up; 1 if none is."""
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
    print("\n".join(map(_line, labs)) or "no lab is up")
    return 0 if labs else 1


def _tree(lab: dict[str, Any]) -> Any:
    return xgft.parse(lab["topology"], lab["capacity_bps"])


def topology(args: argparse.Namespace) -> int:
    """Print the fat-tree for `mpicoloc network --topology`."""
    print(plan.yaml(_tree(control.ask(args.name, "describe"))), end="")
    return 0


def execute(args: argparse.Namespace) -> int:
    """Run any command on a host or switch."""
    usage = "mpicoloc lab exec HOST [--] command [arguments]"
    command = flags.application(args.app, "command", usage)
    lab = control.ask(args.name, "describe")
    if args.host not in lab["pids"]:
        raise UsageError(f"no host {args.host!r} in lab {args.name}: it has h0 to h{lab['n_hosts'] - 1}")
    return agent.execute(args.name, args.host, command)


def run(args: argparse.Namespace) -> int:
    """Have `mpicoloc run` start the job on its first host; mpirun reaches the others by the lab's agent."""
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
        (chosen.family, chosen.path), ranks, app, args.mpirun_arg, args.run_flags, is_plain=args.plain
    )
    return agent.execute(args.name, f"h{ranks[0]}", command, env)


def _ranks(args: argparse.Namespace, lab: dict[str, Any]) -> list[int]:
    """Host of each rank."""
    tree = _tree(lab)
    if args.placement not in placing.PLACEMENTS and args.hosts:
        raise UsageError(f"--placement {args.placement} chooses the hosts itself: leave out --hosts")
    hosts = placing.hosts(args.hosts, tree.n_hosts)
    n_ranks = args.n_ranks or len(hosts)
    return placing.place(n_ranks, hosts[:n_ranks], args.placement, tree)


def _link(row: dict[str, Any]) -> str:
    return f"{row['lower']} {row['upper']}" if "lower" in row else f"all {row['n_links']}"


_COLUMNS = (
    Column("link", _link, is_name=True),
    Column("level"),
    *(
        Column(f"{way} {what}", f"{way}_{what}", left_out=rank)
        for way, what, rank in (
            ("up", "bytes", 0),
            ("up", "packets", 1),
            ("down", "bytes", 0),
            ("down", "packets", 2),
        )
    ),
)


def counters(args: argparse.Namespace) -> int:
    """Bytes and packets on every link, up and down."""
    now = control.ask(args.name, "counters")
    try:
        counted = control.since(now, control.read_counters(args.since) if args.since else None)
    except DataError as error:
        raise DataError(f"{args.since}: {error}") from None
    if args.json:
        print(json.dumps(counted))
        return 0
    rows = sorted((*counted["levels"], *counted["links"]), key=lambda row: row["level"])
    console().print(listing(_COLUMNS, rows))
    return 0
