"""The event loop with several queues, each of which puts jobs on the nodes of its own partition.

A partition is a machine of its own to the order and the allocation, and sees nodes that jobs of other
partitions have as taken. So neither knows of partitions.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpicoloc import messages
from mpicoloc.batch import machine as machines
from mpicoloc.batch import queue
from mpicoloc.batch.engine import Observer, Schedule, Simulation
from mpicoloc.batch.logs.job_log import Workload
from mpicoloc.batch.machine import Machine
from mpicoloc.batch.partition import Partition
from mpicoloc.batch.view import FREE, Allocation, Nodes, Order, Uses, View
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.batch.engine import Simulate
    from mpicoloc.batch.logs.job_log import Workload
    from mpicoloc.batch.machine import Machine
    from mpicoloc.batch.partition import Partition


Ints = NDArray[np.int64]


def simulate(
    workload: Workload,
    machine: Machine,
    order: Order,
    allocation: Allocation,
    observers: Sequence[Observer] = (),
    *,
    partitions: Sequence[Partition],
    of_job: Ints,
) -> Schedule:
    """Run all jobs of a workload, each in its partition.

    Shapes: `of_job` (n_jobs,).
    """
    run = PartitionedSimulation(workload, machine, order, allocation, observers, partitions, of_job)
    return run.run()


class PartitionedSimulation(Simulation):
    """A simulation with a queue for each partition; parameters are those of `simulate`."""

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        order: Order,
        allocation: Allocation,
        observers: Sequence[Observer],
        partitions: Sequence[Partition],
        of_job: Ints,
    ) -> None:
        super().__init__(workload, machine, order, allocation, observers)
        self.queues = tuple(_PartitionQueue(machine, one, allocation) for one in partitions)
        self.of_job = of_job
        self._proposed: dict[int, int | None] = {}

    def _queue_of(self, job: int) -> queue.Columns:
        return self.queues[self.of_job[job]].waiting

    def _begin_jobs(self) -> None:
        self._proposed.clear()
        for own in self.queues:
            own.view.now_s = self.now_s
        super()._begin_jobs()

    def _begin_next(self) -> bool:
        """Begin the first of the jobs that the partitions' orders propose; False: all others wait."""
        for i, own in enumerate(self.queues):
            if i not in self._proposed:
                self._proposed[i] = self._order(own.view) if len(own.waiting) and own.view.n_free else None
        ready = [
            (-own.partition.priority, float(own.waiting["arrival_s"][place]), i, place)
            for i, own in enumerate(self.queues)
            if (place := self._proposed[i]) is not None
        ]
        if not ready:
            return False
        _, _, i, place = min(ready)
        own = self.queues[i]
        chosen = own.view.nodes_for(int(own.waiting["n_nodes"][place]))
        assert chosen is not None, "an order chose a job that finds no nodes"
        job = int(own.waiting["job"][place])
        own.waiting.remove(place)
        self._begin(job, (own.partition.nodes[chosen[0]], chosen[1]))
        return True

    def _begin(self, job: int, chosen: Nodes) -> None:
        expected_end_s = self.now_s + float(self.workload.estimate_s[job])
        for i, own in enumerate(self.queues):
            if own.take(job, *chosen, expected_end_s):
                self._proposed.pop(i, None)
        super()._begin(job, chosen)

    def _leave(self, job: int, nodes: Ints) -> None:
        for own in self.queues:
            own.free(job, nodes)
        super()._leave(job, nodes)


class _PartitionQueue:
    """The jobs that wait in a partition, and its nodes as the order and the allocation see them."""

    def __init__(self, machine: Machine, partition: Partition, allocation: Allocation) -> None:
        self.partition = partition
        self.waiting, self.releases = queue.waiting(), queue.releases()
        own = machines.part_of(machine, partition.nodes, partition.name)
        self.view = View(own, allocation, self.waiting, self.releases)
        self._place = np.full(machine.n_nodes, -1)
        self._place[partition.nodes] = np.arange(len(partition.nodes))

    def take(self, job: int, nodes: Ints, use: int | Uses, expected_end_s: float) -> bool:
        """Mark nodes that a job of any partition has got; False: none of them is of this one."""
        place = self._place[nodes]
        is_ours = place >= 0
        here, view = place[is_ours], self.view
        if not len(here):
            return False
        view.uses[here] = use[is_ours] if isinstance(use, np.ndarray) else use
        view.expected_end_s[here] = expected_end_s
        view.n_free -= len(here)
        view.changed(is_release=False)
        queue.insert_release(self.releases, expected_end_s, job, len(here))
        return True

    def free(self, job: int, nodes: Ints) -> None:
        """Mark nodes that a job has left."""
        place = self._place[nodes]
        here, view = place[place >= 0], self.view
        if len(here):
            queue.remove_release(self.releases, float(view.expected_end_s[here[0]]), job)
            view.uses[here] = FREE
            view.expected_end_s[here] = -np.inf
            view.n_free += len(here)
            view.changed(is_release=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for partitions."""
    parser.add_argument(
        "--partitions",
        metavar="FILE",
        help="lines PartitionName=P Nodes=LIST of slurm.conf: jobs stay in the partition that the log tells",
    )


def read(args: argparse.Namespace, machine: Machine) -> tuple[Partition, ...]:
    """The partitions that the file tells; none without one.

    Raises `UsageError` if the file cannot be read, or jobs are to share nodes or links. Raises `DataError` if
    it is wrong.
    """
    from mpicoloc.batch import partition

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

    Raises `DataError` if a job is of no partition, or larger or longer than its own allows and not to be left
    out; if none is left.
    """
    from mpicoloc.batch import engine, partition

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
    return work, functools.partial(simulate, partitions=partitions, of_job=of_job)
