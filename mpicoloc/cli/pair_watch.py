"""`mpicoloc pair --watch`: the pairing service of a Slurm cluster; `--release` takes back what it said."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
import time
from typing import TYPE_CHECKING

from mpicoloc import config
from mpicoloc.core import messages
from mpicoloc.errors import MpicolocError, UsageError

if TYPE_CHECKING:
    from mpicoloc.schedule.policies import Rules
    from mpicoloc.schedule.sharing_plan import Action, Partitions
    from mpicoloc.slurm.apply import AuditLog
    from mpicoloc.slurm.service import ServiceSettings


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
    interval_s = config.parse_positive("--interval-s", args.interval_s)
    from mpicoloc.slurm import apply, service_lock

    how = _steering(args, rules)
    _tell_layout(args, how)
    service = _Service(args, how, apply.AuditLog(args.audit, messages.trouble))
    with contextlib.nullcontext() if args.dry_run else service_lock.hold_lock(how.partitions):
        while True:
            try:
                service.look()
            except MpicolocError as error:
                if args.once:
                    raise
                service.tell_trouble(error)
            if args.once:
                return 0
            time.sleep(interval_s)


class _Service:
    """The pairing service between two looks at the queue: what it knows, and what it has already said."""

    def __init__(self, args: argparse.Namespace, how: ServiceSettings, audit: AuditLog) -> None:
        from mpicoloc.slurm import job_history
        from mpicoloc.slurm import service as pairing

        self.args, self.how, self.audit = args, how, audit
        self.known = job_history.ProfileHistory(args.profiles, getattr(how.model, "machine", None))
        self.state = pairing.LoopState()
        self.told: set[str] = set()
        self.is_advised = False
        self.trouble = ""
        self.model_stamp = _stamp(args.model)

    def look(self) -> None:
        """Once."""
        from mpicoloc.slurm import apply, client
        from mpicoloc.slurm import service as pairing

        if not self.is_advised:
            now = client.snapshot()
            found = apply.configuration_advice(now, self.how.partitions, client.settings())
            for line in found + pairing.machine_advice(now, self.how):
                messages.trouble(line)
            self.is_advised = True
        self.renew_model()
        is_dry = self.args.dry_run
        for action in pairing.run_once(self.known, self.how, self.audit, is_dry=is_dry, state=self.state):
            _print(action)
        for sort in self.known.notes.keys() - self.told:
            messages.trouble(self.known.notes[sort])
        self.trouble = ""
        self.told |= self.known.notes.keys()

    def renew_model(self) -> None:
        """Take the model that has been fitted since, if it is one."""
        from mpicoloc.campaign import model_file

        stamp = _stamp(self.args.model)
        if stamp == self.model_stamp:
            return
        self.model_stamp = stamp
        try:
            model = model_file.read(self.args.model)
        except MpicolocError as error:
            messages.trouble(f"{error}; the model that was read before is kept")
            return
        self.how = dataclasses.replace(self.how, model=model)
        self.known.set_machine(model.machine)
        _tell_layout(self.args, self.how)

    def tell_trouble(self, error: MpicolocError) -> None:
        """Once: Slurm restarts, file systems go and come."""
        if str(error) != self.trouble:
            messages.trouble(str(error))
            self.audit.add(time.time(), "trouble", error=str(error))
        self.trouble = str(error)


def _stamp(path: str | None) -> tuple[int, ...]:
    """What changes when a file is written anew; the same for none."""
    try:
        found = os.stat(path) if path else None
    except OSError:
        return (-1,)
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


def _tell_layout(args: argparse.Namespace, how: ServiceSettings) -> None:
    if getattr(how.model, "card", {}).get("layout") == "apart":
        messages.trouble(
            f"{args.model} learnt from jobs on processors of their own, and pairs here share them: they will "
            "suffer more; measure a campaign whose two `places` are the same"
        )


def release(args: argparse.Namespace) -> int:
    """Give back what waits as the service told it."""
    from mpicoloc.network.topology.hostlist import expand
    from mpicoloc.slurm import apply

    names = expand(args.release, "--release") if args.release else ()
    audit = apply.AuditLog(args.audit, messages.trouble)
    for action in apply.release_jobs(_partitions(args), audit, names):
        _print(action)
    return 0


def _partitions(args: argparse.Namespace) -> Partitions:
    from mpicoloc.schedule.sharing_plan import Partitions

    if args.alone == args.shared:
        raise UsageError(
            f"--alone and --shared are both {args.alone}: jobs must have nodes of their own in one"
        )
    return Partitions(args.alone, args.shared)


def _steering(args: argparse.Namespace, rules: Rules) -> ServiceSettings:
    from mpicoloc.campaign import model_file
    from mpicoloc.schedule import blossom
    from mpicoloc.slurm import service as pairing

    if args.model is None and rules.prior_slowdown is None:
        raise UsageError("--watch needs --model FILE, or --prior-slowdown X until there is a model")
    if rules.policy == "blossom":
        blossom.library()  # what is missing is said now, not when two jobs wait
    if rules.policy == "di":
        raise UsageError("--policy di needs an intensity of each job, which Slurm lacks: take another")
    if rules.n_per_node != 2:
        raise UsageError(f"--watch makes pairs, and --per-node is {rules.n_per_node}: leave it out")
    partitions = _partitions(args)
    model = None if args.model is None else model_file.read(args.model)
    return pairing.ServiceSettings(partitions, rules, model)


def _print(action: Action) -> None:
    from mpicoloc.schedule.sharing_plan import Commit

    if isinstance(action, Commit):
        *leader, job = action.share.jobs
        beside = f" beside {leader[0]}" if leader else ""
        after = f" after {', '.join(map(str, action.after))}" if action.after else ""
        print(f"{job}{beside} on {','.join(action.share.nodes)}{after}: {action.why}")
    else:
        print(f"{action.job} alone: {action.why}")
    sys.stdout.flush()
