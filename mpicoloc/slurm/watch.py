"""`mpicoloc pair --watch`: the pairing service of a Slurm cluster; `--release` takes back what it said."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mpicoloc import messages
from mpicoloc.cli import numbers
from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    from mpicoloc.pairing.policies import Rules


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
        raise UsageError("--watch needs --profiles FOLDER with the profiles of earlier jobs")
    interval_s = numbers.parse("--interval-s", args.interval_s, numbers.positive)
    from mpicoloc.pairing.terminal import show_action
    from mpicoloc.slurm import apply
    from mpicoloc.slurm import service as service_loop

    how = service_loop.service_settings(
        service_loop.named_partitions(args.alone, args.shared), rules, args.model
    )
    audit = apply.AuditLog(args.audit, messages.trouble)
    service = service_loop.PairingService(
        args.profiles, args.model, how, audit, show_action, is_dry=args.dry_run
    )
    service_loop.watch(service, interval_s, is_once=args.once)
    return 0


def release(args: argparse.Namespace) -> int:
    """Give back the waiting jobs that the service has sent to nodes."""
    from mpicoloc.network.topology.hostlist import expand
    from mpicoloc.pairing.terminal import show_action
    from mpicoloc.slurm import apply
    from mpicoloc.slurm import service as service_loop

    names = expand(args.release, "--release") if args.release else ()
    audit = apply.AuditLog(args.audit, messages.trouble)
    for action in apply.release_jobs(service_loop.named_partitions(args.alone, args.shared), audit, names):
        show_action(action)
    return 0
