"""The event loop with up to two jobs on a node: a job slows down while another job shares its nodes.

As without sharing, the order and the allocation choose the jobs that begin on free nodes. When no more jobs
can begin there, a sharing policy chooses waiting jobs to join running ones. A job runs at the speed of its
slowest node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mpicoloc.batch.engine import Observer, Simulation
from mpicoloc.batch.inputs import Machine, Workload
from mpicoloc.batch.order import FREE, Allocation, Nodes, Order
from mpicoloc.core.profile import Floats, Ints
from mpicoloc.core.slowdown import PairSlowdowns
from mpicoloc.errors import DataError

_Z = 1.959963984540054
BLIND_SLOWDOWN = 2.0
"""Slowdown of two jobs on a node that is assumed without a model: each job has half of the processors."""


@dataclass(frozen=True)
class Slowdowns:
    """Slowdowns of p programs beside each other.

    Parameters
    ----------
    believed, true : ndarray, shape (p, p)
        Element [i, j] is T_co / T_solo of program i beside program j. Decisions use the `believed` values;
        the jobs run with the `true` ones.

    Raises
    ------
    DataError
        If a slowdown is below 1 or not finite, or the shapes differ.
    """

    believed: Floats
    true: Floats

    def __post_init__(self) -> None:
        n = len(self.true)
        for name in ("believed", "true"):
            array = getattr(self, name)
            if array.shape != (n, n) or not ((array >= 1) & (array < np.inf)).all():
                raise DataError(f"{name} slowdowns must be finite, >= 1 and of shape {(n, n)}, got {array}")


def drawn(pairs: PairSlowdowns, rng: np.random.Generator | None = None) -> Slowdowns:
    """Take a model's slowdowns as `believed`, and draw the true ones from its 95 % intervals.

    The logarithm of a slowdown is assumed to be normal. The upper end of the interval gives the spread,
    because the lower end is cut off at 1. Draws below 1 count as 1.
    """
    value = np.array(pairs.value)
    if rng is None:
        return Slowdowns(value, value)
    sd = np.log(pairs.high / pairs.value) / _Z
    return Slowdowns(value, np.maximum(value * np.exp(rng.normal(0.0, 1.0, value.shape) * sd), 1.0))


def blind(slowdowns: Slowdowns) -> Slowdowns:
    """Slowdowns for a batch system without a model: `true` is kept, `believed` is the same for all pairs."""
    return Slowdowns(np.full_like(slowdowns.true, BLIND_SLOWDOWN), slowdowns.true)


NO_JOB = -1


@dataclass(frozen=True)
class Join:
    """A job that begins on nodes, some of which already have a job.

    Parameters
    ----------
    job : int
        A job in the queue, or one that the policy has removed from it.
    nodes : ndarray of int
        Nodes in ascending order, each with at most one job.
    """

    job: int
    nodes: Ints


class Sharing(Protocol):
    """A sharing policy, which lets waiting jobs join running ones."""

    @property
    def packs(self) -> bool:
        """Whether jobs join others even while there are free nodes for them."""

    def next_join(self, simulation: SharedSimulation) -> Join | None:
        """The next job that joins others, or None. Called again after each job that begins."""

    def next_look_s(self) -> float:
        """Time of the next decision if no event comes first, s; infinite if the policy waits for an event."""


class SharedSimulation(Simulation):
    """A simulation in which nodes have up to two jobs.

    Parameters
    ----------
    workload, machine, order, allocation, observers
        As for `Simulation`.
    programs : ndarray of int, shape (n_jobs,)
        Program of each job, an index of the slowdowns.
    slowdowns : Slowdowns
    sharing : Sharing

    Attributes
    ----------
    jobs_on : ndarray of int, shape (2, n_nodes)
        The jobs of each node; `NO_JOB`: none.
    beside : dict of int to dict of int to int
        For each running job its co-runners, with the number of nodes that they share.
    believed : dict of int to float
        Slowdown that the batch system expects for each running job.
    expected_end_s : ndarray, shape (n_jobs + 1,)
        Expected end of each running job, s; the last entry stands for `NO_JOB` and is always -inf.
    busy_node_s : float
        Node seconds with at least one job.
    shared_node_s : float
        Node seconds with two jobs.
    """

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        order: Order,
        allocation: Allocation,
        observers: Sequence[Observer],
        programs: Ints,
        slowdowns: Slowdowns,
        sharing: Sharing,
    ) -> None:
        super().__init__(workload, machine, order, allocation, observers)
        self.programs, self.slowdowns, self.sharing = programs, slowdowns, sharing
        self._true, self._believed = slowdowns.true.tolist(), slowdowns.believed.tolist()
        self.jobs_on = np.full((2, machine.n_nodes), NO_JOB)
        self.beside: dict[int, dict[int, int]] = {}
        self.believed: dict[int, float] = {}
        self.expected_end_s = np.full(len(workload) + 1, -np.inf)
        self._n_shared = 0
        self._n_last: dict[int, int] = {}

    def pair_slowdown(self, job: int, other: int) -> float:
        """The slowdown that the batch system expects for a job beside another one."""
        return float(self.slowdowns.believed[self.programs[job], self.programs[other]])

    def _next_s(self) -> float:
        return min(super()._next_s(), max(self.sharing.next_look_s(), self.now_s))

    def _begin_jobs(self) -> None:
        """Begin all jobs that can: first those on free nodes or, if the policy packs, those beside others."""
        steps = self._join_next, self._begin_next
        first, then = steps if self.sharing.packs else steps[::-1]
        while first() or then():
            pass

    def _join_next(self) -> bool:
        join = self.sharing.next_join(self)
        if join is None:
            return False
        for place in np.flatnonzero(self.waiting["job"] == join.job).tolist():
            self.waiting.remove(place)
        self._join(join.job, join.nodes)
        return True

    @property
    def n_shared_nodes(self) -> int:
        """Number of nodes with two jobs."""
        return self._n_shared

    def _begin(self, job: int, chosen: Nodes) -> None:
        nodes = chosen[0]
        self.jobs_on[0, nodes] = job
        self.beside[job], self.believed[job] = {}, 1.0
        self.expected_end_s[job] = self.now_s + float(self.workload.estimate_s[job])
        self._n_last[job] = len(nodes)
        super()._begin(job, chosen)

    def _join(self, job: int, nodes: Ints) -> None:
        """Begin a job on nodes that are free or have one job."""
        self._count_time()
        assert len(nodes) == self.workload.n_nodes[job], "not as many nodes as it needs"
        assert (self.jobs_on[1, nodes] == NO_JOB).all(), "a third job on a node"
        free = nodes[self.view.uses[nodes] == FREE]
        hosted = np.setdiff1d(nodes, free, assume_unique=True)
        self.view.uses[free] = 1
        self.view.n_free -= len(free)
        self.jobs_on[0, free] = job
        self.jobs_on[1, hosted] = job
        self._n_shared += len(hosted)
        hosts, counts = np.unique(self.jobs_on[0, hosted], return_counts=True)
        self.beside[job] = dict(zip(hosts.tolist(), counts.tolist(), strict=True))
        for host, n in self.beside[job].items():
            self.beside[host][job] = n
        self.believed[job] = 1.0
        self.expected_end_s[job] = self.now_s + float(self.workload.estimate_s[job])
        self._n_last[job] = 0
        self.releases.begin(float(self.expected_end_s[job]), job, 0)
        self._start_work(job, nodes)
        self._set_pace([job, *self.beside[job]])
        self.view.changed(is_release=True)
        for observer in self.observers:
            observer.began(self, job, nodes)

    def _leave(self, job: int, nodes: Ints) -> None:
        """Remove a job that ends; nodes with another job stay in use."""
        self.releases.end(float(self.expected_end_s[job]), job)
        self.expected_end_s[job] = -np.inf
        del self._n_last[job], self.believed[job]
        is_second = self.jobs_on[1, nodes] == job
        others = self.beside.pop(job)
        seconds = nodes[is_second]
        firsts = nodes[~is_second]
        self._n_shared -= len(seconds) + int((self.jobs_on[1, firsts] != NO_JOB).sum())
        # The second job on a node moves to the first row.
        self.jobs_on[0, firsts] = self.jobs_on[1, firsts]
        self.jobs_on[1, nodes] = NO_JOB
        free = firsts[self.jobs_on[0, firsts] == NO_JOB]
        self.view.uses[free] = FREE
        self.view.expected_end_s[free] = -np.inf
        self.view.n_free += len(free)
        for other in others:
            del self.beside[other][job]
        self._set_pace(list(others))
        self.view.changed(is_release=True)

    def _set_pace(self, jobs: Sequence[int]) -> None:
        """Update the speeds and expected ends of running jobs whose co-runners have changed."""
        refreshed = set(jobs)
        for job in jobs:
            others = [self.programs[other] for other in self.beside[job]]
            true, believed = (
                max((rows[self.programs[job]][other] for other in others), default=1.0)
                for rows in (self._true, self._believed)
            )
            # If the pace has not changed, the expected end has not either.
            if self.node_slowdown[job] == true and self.believed[job] == believed:
                continue
            self.believed[job] = believed
            if self.node_slowdown[job] != true:
                self.set_node_slowdown(job, true)
            self._expect(job, self.now_s + self.work_left_s(job) * self._expected_pace(job))
            refreshed.update(self.beside[job])
        for job in refreshed:
            self._expect_nodes(job)

    def _looks_ahead(self) -> bool:
        return len(self.waiting) > 0

    def _expected_pace(self, job: int) -> float:
        return self.believed[job] + self.link_delay[job]

    def _expect_pace(self, job: int) -> None:
        self._expect(job, self.now_s + self.work_left_s(job) * self._expected_pace(job))
        for one in (job, *self.beside[job]):
            self._expect_nodes(one)
        self.view.changed(is_release=True)

    def _expect(self, job: int, end_s: float) -> None:
        """Move the expected end of a job."""
        self.releases.end(float(self.expected_end_s[job]), job)
        self.expected_end_s[job] = end_s
        self.releases.begin(end_s, job, self._n_last[job])

    def _expect_nodes(self, job: int) -> None:
        """Update the expected release times of the job's nodes, and how many of them its end frees."""
        nodes, end_s = self.nodes[job], float(self.expected_end_s[job])
        first, second = self.jobs_on[:, nodes]
        other = np.where(first == job, second, first)
        other_end_s = self.expected_end_s[other]
        self.view.expected_end_s[nodes] = np.maximum(other_end_s, end_s)
        is_last = (other_end_s < end_s) | ((other_end_s == end_s) & (other < job))
        n = int(np.count_nonzero(is_last))
        if n != self._n_last[job]:
            self.releases.end(end_s, job)
            self._n_last[job] = n
            self.releases.begin(end_s, job, n)
