"""The event loop: jobs arrive, begin and end; an order chooses the next job, an allocation its nodes.

A job has work (its run time alone, s) and a speed, 1 unless something slows it down. Its end moves whenever
its speed changes, so jobs that share nodes or links with it can slow it down while it runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from mpicoloc.batch.inputs import Machine, Workload
from mpicoloc.batch.order import Allocation, Columns, Nodes, Order, View
from mpicoloc.core import progress
from mpicoloc.core.profile import Floats, Ints

_ADVANCE_JOBS = 1000
"""Jobs between two reports of progress."""


class Observer(Protocol):
    """Receives each start and end of a job."""

    def began(self, simulation: Simulation, job: int, nodes: Ints) -> None:
        """A job has begun on these nodes, in ascending order."""

    def ended(self, simulation: Simulation, job: int, nodes: Ints) -> None:
        """A job has ended and left its nodes."""


@runtime_checkable
class Settler(Protocol):
    """An observer that changes the speeds of jobs after all events of an instant."""

    def settle(self, simulation: Simulation) -> None:
        """All jobs of this instant have begun and ended; the clock has not moved on yet."""


@runtime_checkable
class Picker(Protocol):
    """An observer that may give a job other free nodes than the allocation."""

    def pick(self, simulation: Simulation, job: int, nodes: Ints) -> Ints:
        """Return as many free nodes for a job as the allocation chose, in ascending order."""


@dataclass(frozen=True)
class Schedule:
    """The outcome of each job of a workload.

    Parameters
    ----------
    arrival_s, start_s, end_s : ndarray, shape (n,)
        Times at which the job arrived, began and ended, s. A job that waits for the end of another arrives
        when that job ends in the simulation, plus its think time.
    """

    arrival_s: Floats
    start_s: Floats
    end_s: Floats

    @property
    def completion_s(self) -> float:
        """From the first arrival to the last end, s."""
        return float(self.end_s.max() - self.arrival_s.min())


Simulate = Callable[[Workload, Machine, Order, Allocation, Sequence[Observer]], Schedule]
"""A function that runs all jobs of a workload, as `simulate` does."""


def simulate(
    workload: Workload,
    machine: Machine,
    order: Order,
    allocation: Allocation,
    observers: Sequence[Observer] = (),
) -> Schedule:
    """Simulate all jobs of a workload, each on nodes of its own."""
    return Simulation(workload, machine, order, allocation, observers).run()


class Simulation:
    """The state of one simulation; observers can read it, and change speeds with `set_link_delay`.

    A job alone takes 1 s for each second of its work. Jobs on its nodes multiply this time by a slowdown, and
    jobs on its links add a delay, s for each second of work. Only this class combines the two.
    """

    def __init__(
        self,
        workload: Workload,
        machine: Machine,
        order: Order,
        allocation: Allocation,
        observers: Sequence[Observer] = (),
    ) -> None:
        n = len(workload)
        self.workload, self.observers, self._order = workload, observers, order
        self.view = View(machine, allocation)
        self.waiting, self.releases = self.view.queue, self.view.releases
        self.nodes: dict[int, Ints] = {}
        self.schedule = Schedule(*(np.full(n, np.nan) for _ in range(3)))
        self._work_s: dict[int, float] = {}
        self._speed: dict[int, float] = {}
        self._since_s: dict[int, float] = {}
        self._n_changes: dict[int, int] = {}
        self.node_slowdown: dict[int, float] = {}
        self.link_delay: dict[int, float] = {}
        self.link_lost_s = np.zeros(n)
        self.repaced: set[int] = set()
        self._stale: set[int] = set()
        self._settlers = [one for one in observers if isinstance(one, Settler)]
        self._pickers = [one for one in observers if isinstance(one, Picker)]
        self.busy_node_s, self.shared_node_s, self._counted_s = 0.0, 0.0, 0.0
        self._ends: list[tuple[float, int, int]] = []
        self._later: list[tuple[float, int]] = []
        self._followers = _followers(workload)
        self._arrivals = np.flatnonzero(workload.log.previous < 0)
        self._n_arrived = 0

    @property
    def now_s(self) -> float:
        """Time of the current event."""
        return self.view.now_s

    @property
    def n_busy_nodes(self) -> int:
        """Number of nodes with a job."""
        return self.view.machine.n_nodes - self.view.n_free

    @property
    def n_shared_nodes(self) -> int:
        """Number of nodes with several jobs."""
        return 0

    def nodes_of(self, taken: Ints) -> Ints:
        """The nodes of which a job has taken these units; here the units are nodes."""
        return taken

    def run(self) -> Schedule:
        """Handle all events; at each instant first ends, then arrivals, then the queue."""
        n_over, n_told = 0, 0
        with progress.stage("simulating", len(self.workload), "jobs") as advance:
            while (now_s := self._next_s()) < np.inf:
                self.view.now_s = now_s
                n_over += self._end_jobs()
                self._admit()
                if self._stale and self._looks_ahead():
                    self._expect_again()
                self._begin_jobs()
                for settler in self._settlers:
                    settler.settle(self)
                if n_over - n_told >= _ADVANCE_JOBS:
                    advance(n_over - n_told)
                    n_told = n_over
            advance(n_over - n_told)
        assert n_over == len(self.workload), "jobs wait that no event will start"
        return self.schedule

    def work_left_s(self, job: int) -> float:
        """Remaining work of a running job, by its estimate, as run time alone, s."""
        gone_s = (self.now_s - self._since_s[job]) * self._speed[job]
        done_s = float(self.workload.log.run_s[job]) - (self._work_s[job] - gone_s)
        return max(float(self.workload.estimate_s[job]) - done_s, 0.0)

    def set_node_slowdown(self, job: int, slowdown: float) -> None:
        """Set the slowdown that jobs on its nodes cause a job from now on; settlers read `repaced`."""
        self.node_slowdown[job] = slowdown
        self.repaced.add(job)
        self.set_speed(job, 1.0 / (slowdown + self.link_delay[job]))

    def set_link_delay(self, job: int, delay: float) -> None:
        """Set the delay that jobs on its links cause a running job from now on."""
        self.set_speed(job, 1.0 / (self.node_slowdown[job] + delay))
        self.link_delay[job] = delay
        self._stale.add(job)

    def set_speed(self, job: int, speed: float) -> None:
        """Set the speed of a running job from now on: seconds of work per second."""
        self._work_until_now(job)
        self._speed[job] = speed
        self._n_changes[job] += 1
        self._push_end(job)

    def _work_until_now(self, job: int) -> None:
        """Account for a job's work since its last change of speed, and for the time that links added."""
        done_s = (self.now_s - self._since_s[job]) * self._speed[job]
        self._work_s[job] -= done_s
        self._since_s[job] = self.now_s
        if delay := self.link_delay[job]:
            self.link_lost_s[job] += done_s * delay

    def _push_end(self, job: int) -> None:
        end_s = self.now_s + max(self._work_s[job], 0.0) / self._speed[job]
        heapq.heappush(self._ends, (end_s, job, self._n_changes[job]))

    def _next_s(self) -> float:
        while self._ends and self._ends[0][2] != self._n_changes.get(self._ends[0][1]):
            heapq.heappop(self._ends)  # outdated: the job's speed has changed
        times_s = [rows[0][0] for rows in (self._ends, self._later) if rows]
        if self._n_arrived < len(self._arrivals):
            times_s.append(float(self.workload.log.submit_s[self._arrivals[self._n_arrived]]))
        return min(times_s, default=np.inf)

    def _end_jobs(self) -> int:
        n = 0
        while self._ends and self._ends[0][0] <= self.now_s:
            _, job, change = heapq.heappop(self._ends)
            if change == self._n_changes.get(job):
                self._end(job)
                n += 1
        return n

    def _end(self, job: int) -> None:
        nodes = self.nodes.pop(job)
        self._count_time()
        self._leave(job, nodes)
        self.schedule.end_s[job] = self.now_s
        self._work_until_now(job)
        for column in (self._work_s, self._speed, self._since_s, self._n_changes):
            del column[job]  # type: ignore[attr-defined]
        del self.node_slowdown[job], self.link_delay[job]
        self.repaced.discard(job)
        self._stale.discard(job)
        for observer in self.observers:
            observer.ended(self, job, self.nodes_of(nodes))
        for other in self._followers.get(job, ()):
            heapq.heappush(self._later, (self.now_s + float(self.workload.log.think_s[other]), other))

    def _leave(self, job: int, nodes: Ints) -> None:
        """Free the nodes of a job that ends."""
        self.view.free(job, nodes)

    def _looks_ahead(self) -> bool:
        """Whether an order can ask when running jobs will end: not if all waiting jobs can begin at once."""
        all_fit = self.waiting["n_nodes"].sum() <= self.view.n_free
        return len(self.waiting) > 0 and not (all_fit and self.view.allocation.is_bound_by_number)

    def _expect_again(self) -> None:
        """Move the expected ends of jobs that links have made slower or faster.

        Called only before an order can read them: while no job waits, most changes of pace need no update.
        """
        for job in sorted(self._stale):
            self._expect_pace(job)
        self._stale.clear()

    def _expected_pace(self, job: int) -> float:
        """Time that the batch system expects each further second of a job's work to take."""
        return 1.0 + self.link_delay[job]

    def _expect_pace(self, job: int) -> None:
        """Update the expected end of a job, assuming that its present pace continues."""
        view, nodes = self.view, self.nodes[job]
        end_s = self.now_s + self.work_left_s(job) * self._expected_pace(job)
        self.releases.end(float(view.expected_end_s[nodes[0]]), job)
        view.expected_end_s[nodes] = end_s
        self.releases.begin(end_s, job, len(nodes))
        view.changed(is_release=True)

    def _admit(self) -> None:
        submit_s, now_s = self.workload.log.submit_s, self.now_s
        while self._later and self._later[0][0] <= now_s:
            self._arrive(heapq.heappop(self._later)[1])
        while self._n_arrived < len(self._arrivals) and submit_s[self._arrivals[self._n_arrived]] <= now_s:
            self._arrive(int(self._arrivals[self._n_arrived]))
            self._n_arrived += 1

    def _arrive(self, job: int) -> None:
        work = self.workload
        self.schedule.arrival_s[job] = self.now_s
        self._queue_of(job).append(
            job=job,
            n_nodes=int(work.n_nodes[job]),
            estimate_s=float(work.estimate_s[job]),
            arrival_s=self.now_s,
        )

    def _queue_of(self, job: int) -> Columns:
        """The queue in which a job waits."""
        return self.waiting

    def _begin_jobs(self) -> None:
        while self._begin_next():
            pass

    def _begin_next(self) -> bool:
        """Begin the next job on free nodes. Returns False if no waiting job can begin."""
        place = self._order(self.view) if len(self.waiting) and self.view.n_free else None
        if place is None:
            return False
        job = int(self.waiting["job"][place])
        chosen = self._choose(job, int(self.waiting["n_nodes"][place]))
        assert chosen is not None, "an order chose a job that finds no nodes"
        self.waiting.remove(place)
        self._count_time()
        self._begin(job, chosen)
        return True

    def _count_time(self) -> None:
        """Add the node seconds since the last job began or ended to the totals."""
        passed_s = self.now_s - self._counted_s
        self.busy_node_s += self.n_busy_nodes * passed_s
        self.shared_node_s += self.n_shared_nodes * passed_s
        self._counted_s = self.now_s

    def _choose(self, job: int, n_nodes: int) -> Nodes | None:
        chosen = self.view.nodes_for(n_nodes)
        if chosen is None:
            return None
        nodes, use = chosen
        for picker in self._pickers:
            nodes = picker.pick(self, job, nodes)
        return nodes, use

    def _begin(self, job: int, chosen: Nodes) -> None:
        view, (nodes, use) = self.view, chosen
        assert len(nodes) == self.workload.n_nodes[job] and not view.uses[nodes].any(), "a node twice"
        view.take(job, nodes, use, self.now_s + float(self.workload.estimate_s[job]))
        self._start_work(job, nodes)
        for observer in self.observers:
            observer.began(self, job, self.nodes_of(nodes))

    def _start_work(self, job: int, nodes: Ints) -> None:
        self.nodes[job] = nodes
        self.schedule.start_s[job] = self.now_s
        self._work_s[job] = float(self.workload.log.run_s[job])
        self._speed[job], self._since_s[job], self._n_changes[job] = 1.0, self.now_s, 0
        self.node_slowdown[job], self.link_delay[job] = 1.0, 0.0
        self._push_end(job)


def _followers(workload: Workload) -> dict[int, list[int]]:
    """For each job, the jobs that wait for its end."""
    followers: dict[int, list[int]] = {}
    for job in np.flatnonzero(workload.log.previous >= 0).tolist():
        followers.setdefault(int(workload.log.previous[job]), []).append(job)
    return followers
