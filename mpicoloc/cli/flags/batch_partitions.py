"""Flags of `mpicoloc batch` for a machine with several partitions."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

from mpicoloc.core import messages
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.schedule.batch.engine import Simulate
    from mpicoloc.schedule.batch.logs.job_log import Workload
    from mpicoloc.schedule.batch.machine import Machine
    from mpicoloc.schedule.batch.partitions.partition import Partition


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for partitions."""
    parser.add_argument(
        "--partitions",
        metavar="FILE",
        help="lines PartitionName=P Nodes=LIST of slurm.conf: jobs stay in the partition that the log tells",
    )


def read(args: argparse.Namespace, machine: Machine) -> tuple[Partition, ...]:
    """The partitions that the file tells; none without one.

    Raises
    ------
    UsageError
        If the file cannot be read, or jobs are to share nodes or links.
    DataError
        If it is wrong.
    """
    from mpicoloc.schedule.batch.partitions import partition

    if args.partitions is None:
        return ()
    if args.sharing != "none":
        raise UsageError(
            f"--partitions with --sharing {args.sharing}: jobs share nodes of a whole machine only"
        )
    if args.utilisation is not None:
        raise UsageError("--partitions with --utilisation: jobs of a whole machine only are delayed by links")
    try:
        with open(args.partitions, encoding="utf-8-sig", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"--partitions {args.partitions} cannot be read: {error.strerror}") from None
    return partition.parse(text, args.partitions, machine)


def restrict(
    args: argparse.Namespace, work: Workload, partitions: tuple[Partition, ...]
) -> tuple[Workload, Simulate]:
    """The jobs that their partitions take, and what simulates them.

    Raises
    ------
    DataError
        If a job is of no partition, or larger or longer than its own allows and not to be left out; if none
        is left.
    """
    from mpicoloc.schedule.batch import engine
    from mpicoloc.schedule.batch.partitions import partition, partitioned_simulation

    if not partitions:
        return work, engine.simulate
    of_job = partition.of_jobs(work, partitions)
    if args.skip_larger:
        keep = partition.takes(work, partitions, of_job)
        if not keep.any():
            raise DataError(
                f"{args.partitions}: its partitions allow none of the jobs: change MaxNodes or MaxTime"
            )
        if not keep.all():
            left_out = counted(int((~keep).sum()), "job")
            messages.note(f"{args.log}: {left_out} that their partition does not allow left out")
        work, of_job = partition.select(work, keep), of_job[keep]
    partition.check(work, partitions, of_job)
    if args.estimates == "user":
        work = partition.with_limits(work, partitions, of_job)
    return work, functools.partial(partitioned_simulation.simulate, partitions=partitions, of_job=of_job)
