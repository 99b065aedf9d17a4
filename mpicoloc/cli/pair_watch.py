"""`mpicoloc pair --watch`: the pairing service of a Slurm cluster; `--release` takes back what it said."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from mpicoloc import config
from mpicoloc.cli import tell
from mpicoloc.errors import MpicolocError, UsageError

if TYPE_CHECKING:
    from mpicoloc.model.pairs import Rules
    from mpicoloc.model.steering import Action, Partitions
    from mpicoloc.run.pairing import Steering


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the service."""
    group = parser.add_argument_group("watching Slurm")
    group.add_argument(
        "--watch", action="store_true", help="look at Slurm's queue again and again, and place pairs"
    )
    group.add_argument(
        "--release", metavar="NODES", nargs="?", const="",
        help="give back the waiting jobs that the service has sent to nodes (to NODES), and end",
    )  # fmt: skip
    group.add_argument("--profiles", metavar="FOLDER", help="where jobs leave their profiles")
    group.add_argument(
        "--alone", metavar="PARTITION", default="whole",
        help="where users submit, a node for each job (default whole)",
    )  # fmt: skip
    group.add_argument(
        "--shared", metavar="PARTITION", default="shared",
        help="where only this service puts jobs, two on a processor (default shared)",
    )  # fmt: skip
    group.add_argument("--interval-s", metavar="S", default="10", help="between two looks (default 10)")
    group.add_argument("--audit", metavar="FILE", help="add a line of JSON for each decision")
    group.add_argument("--dry-run", action="store_true", help="decide and note, but change nothing")
    group.add_argument("--once", action="store_true", help="look once")


def run(args: argparse.Namespace, rules: Rules) -> int:
    """Look until it is ended; with --once, 0 or an error that `main` reports."""
    if args.profiles is None:
        raise UsageError("--watch needs --profiles FOLDER: what is known of the jobs")
    interval_s = config.positive("--interval-s", args.interval_s)
    from mpicoloc.run import kinds, orders, pairing, slurm

    how = _steering(args, rules)
    if getattr(how.model, "card", {}).get("layout") == "apart":
        tell.trouble(
            f"{args.model} learnt from jobs on processors of their own, and pairs here share them: they will "
            "suffer more; measure a campaign whose two `places` are the same"
        )
    is_advised = False
    known = kinds.Known(args.profiles, getattr(how.model, "machine", None))
    audit = orders.Audit(args.audit, tell.trouble)
    last_trouble, told = "", set[str]()
    while True:
        try:
            if not is_advised:
                now = slurm.snapshot()
                for line in orders.advice(now, how.partitions, slurm.settings()) + pairing.advice(now, how):
                    tell.trouble(line)
                is_advised = True
            for action in pairing.step(known, how, audit, is_dry=args.dry_run):
                _print(action)
            for sort in known.notes.keys() - told:
                tell.trouble(known.notes[sort])
            last_trouble, told = "", told | known.notes.keys()
        except MpicolocError as error:
            if args.once:
                raise
            # Slurm restarts, file systems go and come; told once, and looked at again.
            if str(error) != last_trouble:
                tell.trouble(str(error))
                audit.note(time.time(), "trouble", error=str(error))
            last_trouble = str(error)
        if args.once:
            return 0
        time.sleep(interval_s)


def release(args: argparse.Namespace) -> int:
    """Give back what waits as the service told it."""
    from mpicoloc.network.hostlist import expand
    from mpicoloc.run import orders

    names = expand(args.release, "--release") if args.release else ()
    audit = orders.Audit(args.audit, tell.trouble)
    for action in orders.release(_partitions(args), audit, names):
        _print(action)
    return 0


def _partitions(args: argparse.Namespace) -> Partitions:
    from mpicoloc.model.steering import Partitions

    if args.alone == args.shared:
        raise UsageError(
            f"--alone and --shared are both {args.alone}: jobs must have nodes of their own in one"
        )
    return Partitions(args.alone, args.shared)


def _steering(args: argparse.Namespace, rules: Rules) -> Steering:
    from mpicoloc.run import model_file, pairing

    if args.model is None and rules.prior_slowdown is None:
        raise UsageError("--watch needs --model FILE, or --prior-slowdown X until there is a model")
    if rules.policy == "di":
        raise UsageError("--policy di needs an intensity of each job, and Slurm tells none: take another")
    if rules.n_per_node != 2:
        raise UsageError(f"--watch makes pairs, and --per-node is {rules.n_per_node}: leave it out")
    partitions = _partitions(args)
    model = None if args.model is None else model_file.read(args.model)
    return pairing.Steering(partitions, rules, model)


def _print(action: Action) -> None:
    from mpicoloc.model.steering import Commit

    if isinstance(action, Commit):
        *leader, job = action.share.jobs
        beside = f" beside {leader[0]}" if leader else ""
        after = f" after {', '.join(map(str, action.after))}" if action.after else ""
        print(f"{job}{beside} on {','.join(action.share.nodes)}{after}: {action.why}")
    else:
        print(f"{action.job} alone: {action.why}")
    sys.stdout.flush()
