"""Flag of `mpicoloc batch` that writes a plan for Slurm."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from mpicoloc import messages
from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    from mpicoloc.batch.engine import Schedule
    from mpicoloc.batch.logs.job_log import Workload
    from mpicoloc.batch.machine import Machine
    from mpicoloc.batch.partition import Partition


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flag."""
    parser.add_argument(
        "--slurm",
        metavar="FOLDER",
        help="write what tells Slurm to do the same: topology.conf, nodes, partitions, scheduler",
    )


def check(args: argparse.Namespace) -> None:
    """Refuse a folder that cannot be written before minutes of simulation.

    Raises `UsageError` if it cannot be made, or is no folder.
    """
    if args.slurm is None:
        return
    try:
        os.makedirs(args.slurm, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--slurm {args.slurm} cannot be made: {error.strerror}: give a folder") from None
    if not os.access(args.slurm, os.W_OK):
        raise UsageError(f"--slurm {args.slurm} cannot be written: give a folder that is yours")


def write(
    args: argparse.Namespace,
    work: Workload,
    machine: Machine,
    schedule: Schedule,
    partitions: tuple[Partition, ...],
) -> None:
    """Write the files; of several sharing policies the last counts.

    Raises `UsageError` if a file cannot be written.
    """
    from mpicoloc.batch.slurm_plan import demand, plan

    sharing = args.sharing.split(",")[-1].strip()
    policies = plan.Policies(args.order, args.allocation, sharing)
    asked = demand.of_schedule(work, machine, schedule)
    texts, _ = plan.files(machine, work.cores_per_node, policies, asked, partitions)
    try:
        for name, text in texts.items():
            with open(os.path.join(args.slurm, name), "w", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"--slurm {args.slurm} cannot be written: {error.strerror}") from None
    messages.note(
        f"{' and '.join(sorted(texts))} in {args.slurm}; the head of {plan.SETTINGS} says what Slurm does "
        "otherwise than simulated"
    )
