"""Partitions of a machine as in Slurm's ``slurm.conf``, the jobs that each accepts, and their simulation.

Orders and allocations need no code for partitions: to them, each partition is a machine of its own, whose
nodes are also in use while jobs of other partitions run there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.batch import inputs
from mpicoloc.batch.engine import Observer, Schedule, Simulation
from mpicoloc.batch.inputs import Machine, Workload
from mpicoloc.batch.order import Allocation, Columns, Nodes, Order, Uses, View
from mpicoloc.core.profile import Bools, Ints
from mpicoloc.core.units import counted, slurm_seconds
from mpicoloc.errors import DataError
from mpicoloc.network.topology.hostlist import expand
from mpicoloc.network.topology.readers import slurm_lines

_PAIR = re.compile(r'(\w+)=("[^"]*"|\S*)')
_INCLUDE = re.compile(r"include\s", re.IGNORECASE)
_EXAMPLE = "PartitionName=batch Nodes=n[0-63] MaxNodes=32 MaxTime=1-00:00:00"


@dataclass(frozen=True)
class Partition:
    """A partition: some nodes of the machine, and the limits on the jobs that run there.

    Parameters
    ----------
    name : str
    nodes : ndarray of int
        Nodes of the machine, in ascending order.
    max_nodes : int
        Most nodes of a job.
    max_s : float
        Longest time limit of a job, s; infinite if there is no maximum.
    priority : int
        Jobs of partitions with higher priority get nodes first.
    is_default : bool
        Whether the partition takes the jobs for which the log names no partition.
    """

    name: str
    nodes: Ints
    max_nodes: int
    max_s: float = np.inf
    priority: int = 1
    is_default: bool = False


def parse(text: str, source: str, machine: Machine) -> tuple[Partition, ...]:
    """Partitions in lines such as ``PartitionName=batch Nodes=n[0-63] MaxTime=1-00:00:00``.

    The input is ``slurm.conf``, or the output of ``scontrol --oneliner show partitions``. Nodes, MaxNodes,
    MaxTime, PriorityTier, Default, and NodeSet lines that Nodes refers to are read; the rest is ignored.

    Raises `DataError`, with the line, if a line is malformed or includes a file; also if there is no
    partition.
    """
    place = {name: i for i, name in enumerate(machine.node_names())}
    found: dict[str, Partition] = {}
    defaults: dict[str, str] = {}
    lines = [
        (
            f"{source}, line {number}",
            line,
            {key.lower(): word.strip('"') for key, word in _PAIR.findall(line)},
        )
        for number, line in slurm_lines(text)
    ]
    sets = {words["nodeset"]: words.get("nodes", "") for _, _, words in lines if "nodeset" in words}
    for where, line, words in lines:
        if _INCLUDE.match(line):
            raise DataError(
                f"{where}: {line}: included files are not read; insert the lines of that file here"
            )
        name = words.get("partitionname", "")
        if name == "DEFAULT":
            defaults |= words
        elif name:
            if name in found:
                raise DataError(f"{where}: partition {name} appears twice: join the two lines")
            found[name] = _partition(name, defaults | words, where, place, sets)
    if not found:
        raise DataError(f"{source}: no partition in it: write lines like {_EXAMPLE}")
    return tuple(found.values())


def _partition(
    name: str, words: Mapping[str, str], where: str, place: Mapping[str, int], sets: Mapping[str, str]
) -> Partition:
    node_list = ",".join(sets.get(word, word) for word in words.get("nodes", "").split(","))
    if node_list.upper() == "ALL":
        nodes = np.arange(len(place))
    else:
        names = expand(node_list, where) if node_list not in ("", "(null)") else []
        unknown = [one for one in names if one not in place]
        if unknown or not names:
            first, *_, last = (*place, *place)
            what = f"node {unknown[0]!r} is not in the topology" if unknown else "it has no Nodes="
            raise DataError(f"{where}: partition {name}: {what}: choose from {first} to {last}")
        nodes = np.unique(np.array([place[one] for one in names], np.int64))
    most = _whole(words, "MaxNodes", where, len(nodes))
    limit = words.get("maxtime", "UNLIMITED")
    max_s = _limit_s(limit)
    if max_s is None:
        raise DataError(f"{where}: MaxTime={limit} is not a time: write it like 1-12:00:00, or UNLIMITED")
    tier = _whole(words, "PriorityTier", where, 1)
    is_default = words.get("default", "").upper() == "YES"
    return Partition(name, nodes, min(most, len(nodes)), max_s, tier, is_default)


def _whole(words: Mapping[str, str], key: str, where: str, otherwise: int) -> int:
    word = words.get(key.lower(), "")
    if word in ("", "UNLIMITED"):
        return otherwise
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise DataError(f"{where}: {key}={word} must be a whole number or UNLIMITED")
    return int(word)


def _limit_s(word: str) -> float | None:
    if word.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return float(np.inf)
    return slurm_seconds(word)


def of_jobs(workload: Workload, partitions: Sequence[Partition]) -> Ints:
    """Index of each job's partition, found by the name in the log or, if there is none, by the number.

    Raises `DataError` if the machine has no such partition.
    """
    log = workload.log
    place = {partition.name: i for i, partition in enumerate(partitions)}
    default = next((i for i, partition in enumerate(partitions) if partition.is_default), None)
    numbers, which, n_jobs = np.unique(log.partition, return_inverse=True, return_counts=True)
    found = []
    for number, n in zip(numbers.tolist(), n_jobs.tolist(), strict=True):
        name = log.name("partition", number)
        own = place.get(str(name), place.get(str(number)))
        if own is None and number == inputs.NO_JOB:
            own = default
        if own is None:
            what = f"partition {name}" if number != inputs.NO_JOB else "no partition"
            raise DataError(
                f"{counted(n, 'job')} of {what} cannot run, as the only partitions are {', '.join(place)}: "
                f"add a line PartitionName={name}, or Default=YES to one line for jobs without a partition"
            )
        found.append(own)
    return np.array(found, np.int64)[which.ravel()]


def takes(workload: Workload, partitions: Sequence[Partition], of_job: Ints) -> Bools:
    """Whether each job is within its partition's limits on nodes and time."""
    max_nodes = np.array([partition.max_nodes for partition in partitions])[of_job]
    max_s = np.array([partition.max_s for partition in partitions])[of_job]
    # A job without a limit takes its partition's limit, so only its run time can exceed that.
    asked_s = np.maximum(workload.log.limit_s, workload.log.run_s)
    return np.asarray((workload.n_nodes <= max_nodes) & (asked_s <= max_s))


def check(workload: Workload, partitions: Sequence[Partition], of_job: Ints) -> None:
    """Raise DataError if a job exceeds a limit of its partition."""
    wrong = np.flatnonzero(~takes(workload, partitions, of_job))
    if len(wrong):
        i = int(wrong[0])
        own, log = partitions[of_job[i]], workload.log
        is_wide = workload.n_nodes[i] > own.max_nodes
        asked_s = max(log.limit_s[i], log.run_s[i])
        what = (
            f"needs {workload.n_nodes[i]:,} nodes, but partition {own.name} allows {own.max_nodes:,}"
            if is_wide
            else f"asked for or ran {asked_s:,.0f} s, but partition {own.name} allows {own.max_s:,.0f} s"
        )
        raise DataError(
            f"job {log.number[i]} {what}; {len(wrong):,} of {len(log):,} jobs do not fit: change the "
            "partition, or leave such jobs out with --skip-larger"
        )


def select(workload: Workload, keep: Bools) -> Workload:
    """The selected jobs."""
    return replace(
        workload,
        log=inputs.select(workload.log, keep),
        n_nodes=workload.n_nodes[keep],
        estimate_s=workload.estimate_s[keep],
    )


def with_limits(workload: Workload, partitions: Sequence[Partition], of_job: Ints) -> Workload:
    """Set the estimates of jobs without a time limit to their partition's limit, as in Slurm."""
    max_s = np.array([partition.max_s for partition in partitions])[of_job]
    has_none = (workload.log.limit_s <= 0) & np.isfinite(max_s)
    return replace(workload, estimate_s=np.where(has_none, max_s, workload.estimate_s))


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
    """Simulate all jobs of a workload, each in its partition.

    Shapes: `of_job` (n_jobs,).
    """
    return PartitionedSimulation(workload, machine, order, allocation, observers, partitions, of_job).run()


class PartitionedSimulation(Simulation):
    """A simulation with a queue for each partition; parameters as for `simulate`."""

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

    def _queue_of(self, job: int) -> Columns:
        return self.queues[self.of_job[job]].waiting

    def _begin_jobs(self) -> None:
        self._proposed.clear()
        for own in self.queues:
            own.view.now_s = self.now_s
        super()._begin_jobs()

    def _begin_next(self) -> bool:
        """Begin the most urgent job that the partitions' orders propose. Returns False if there is none."""
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
    """The waiting jobs of a partition, and its nodes as the order and the allocation see them."""

    def __init__(self, machine: Machine, partition: Partition, allocation: Allocation) -> None:
        self.partition = partition
        self.view = View(inputs.part_of(machine, partition.nodes, partition.name), allocation)
        self.waiting = self.view.queue
        self._place = np.full(machine.n_nodes, -1)
        self._place[partition.nodes] = np.arange(len(partition.nodes))

    def take(self, job: int, nodes: Ints, use: int | Uses, expected_end_s: float) -> bool:
        """Mark nodes that a job of any partition takes. Returns whether this partition has any of them."""
        place = self._place[nodes]
        is_ours = place >= 0
        if is_ours.any():
            own_use = use[is_ours] if isinstance(use, np.ndarray) else use
            self.view.take(job, place[is_ours], own_use, expected_end_s)
        return bool(is_ours.any())

    def free(self, job: int, nodes: Ints) -> None:
        """Mark nodes that a job has left."""
        place = self._place[nodes]
        if (place >= 0).any():
            self.view.free(job, place[place >= 0])
