"""Sharing policies: jobs share nodes regardless of slowdown, or only if a slowdown model predicts a gain.

A policy preserves the reservation of the queue's first job, so it never delays that job if the slowdowns are
as expected. The service of `mpicoloc pair --watch` runs here unchanged: `sharing_plan.decide` gets a snapshot
of the simulated batch system instead of one of Slurm, and its actions have the same effects as in Slurm. A
leader waits for its nodes in the queue for sharing, which has precedence; a partner joins its leader at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.batch.order import FREE
from mpicoloc.batch.shared_simulation import BLIND_SLOWDOWN, NO_JOB, Join, SharedSimulation
from mpicoloc.core.batch_system import PENDING, RUNNING, BatchJob, BatchNode, Snapshot
from mpicoloc.core.profile import Floats, Ints
from mpicoloc.pairing import policies, sharing_plan
from mpicoloc.pairing.policies import Queue

QUEUES = sharing_plan.Partitions("alone", "shared")
LOOK_S = 60.0
"""Time between two decisions of the service, s."""
_APART = 1e9
"""Slowdown of two leaders: so large that they are never paired, because each must have nodes of its own."""
_LEAST_LEFT_S = 1.0


@dataclass(frozen=True)
class _Assignment:
    """The decision on a job: its nodes, the jobs that it waits for, and its admin comment."""

    nodes: Ints
    after: tuple[int, ...]
    text: str


class Service:
    """The service of `mpicoloc pair --watch` as a sharing policy of one simulation.

    It pairs jobs with the same number of nodes. It takes the estimate of a job as its run time alone.

    Parameters
    ----------
    cores_per_node : int
        Cores of each node; a job uses all cores of its nodes.
    rules : policies.Rules
        Rules that choose the pairs.
    look_s : float
        Least time between two decisions, s.

    Attributes
    ----------
    n_looks : int
        Number of decisions so far.
    """

    packs = True

    def __init__(self, cores_per_node: int, rules: policies.Rules, look_s: float = LOOK_S) -> None:
        self.rules, self.look_s, self.n_looks = rules, look_s, 0
        self._cores = cores_per_node
        self._assignments: dict[int, _Assignment] = {}
        self._leaders: dict[int, tuple[int, float, float]] = {}
        self._joins: list[Join] = []
        self._last_s, self._has_news = -np.inf, False
        self._nodes: tuple[BatchNode, ...] = ()

    def next_join(self, simulation: SharedSimulation) -> Join | None:
        """The next partner to join, else a leader whose nodes are free. Decides anew if it is time to."""
        if simulation.now_s >= self._last_s + self.look_s:
            self._look(simulation)
        else:
            self._has_news = True
        join = self._joins.pop(0) if self._joins else self._ready_leader(simulation)
        self._has_news |= join is not None
        return join

    def next_look_s(self) -> float:
        """Time of the next decision, s; infinite if nothing has happened since the last one."""
        return self._last_s + self.look_s if self._has_news else np.inf

    def _ready_leader(self, run: SharedSimulation) -> Join | None:
        for job in list(self._leaders):
            assignment = self._assignments[job]
            first, second = run.jobs_on[:, assignment.nodes]
            here = set(first.tolist()) - {NO_JOB}
            is_held = any(other in run.nodes for other in assignment.after)
            if not is_held and (second == NO_JOB).all() and here <= self._assignments.keys():
                del self._leaders[job]
                return Join(job, assignment.nodes)
        return None

    def _look(self, run: SharedSimulation) -> None:
        self._last_s, self._has_news = run.now_s, False
        if not len(run.waiting):
            return
        self.n_looks += 1
        now = self._snapshot(run)
        estimate_s = {job.id: float(run.workload.estimate_s[job.id - 1]) for job in now.jobs}

        def plan(leaders: Sequence[BatchJob], waiting: Sequence[BatchJob]) -> Sequence[policies.Group]:
            return _groups(run, leaders, waiting, self.rules)

        def growth(job: BatchJob, others: Sequence[BatchJob]) -> float:
            pairs = [run.pair_slowdown(job.id - 1, other.id - 1) for other in others]
            return max([BLIND_SLOWDOWN, *pairs])

        for action in sharing_plan.decide(now, QUEUES, plan, estimate_s, growth):
            self._apply(run, action)
            self._has_news = True

    def _apply(self, run: SharedSimulation, action: sharing_plan.Action) -> None:
        if isinstance(action, sharing_plan.Release):
            self._release(run, action.job - 1)
            return
        share, job = action.share, action.share.job - 1
        nodes = np.array(sorted(map(_number, share.nodes)))
        after = tuple(other - 1 for other in action.after)
        limit_s = float(run.workload.estimate_s[job])
        text = share.text(limit_s, [other + 1 for other in after], run.now_s)
        self._assignments[job] = _Assignment(nodes, after, text)
        if len(share.jobs) == 2:
            self._joins.append(Join(job, nodes))
        elif job not in self._leaders:
            place = int(np.flatnonzero(run.waiting["job"] == job)[0])
            arrival_s = float(run.waiting["arrival_s"][place])
            run.waiting.remove(place)
            self._leaders[job] = int(run.workload.n_nodes[job]), limit_s, arrival_s

    def _release(self, run: SharedSimulation, job: int) -> None:
        """Return a leader to the queue for unshared nodes, to the place that its arrival gives it."""
        n_nodes, estimate_s, arrival_s = self._leaders.pop(job)
        del self._assignments[job]
        place = int(np.searchsorted(run.waiting["arrival_s"], arrival_s, side="left"))
        run.waiting.insert(place, job=job, n_nodes=n_nodes, estimate_s=estimate_s, arrival_s=arrival_s)

    def _snapshot(self, run: SharedSimulation) -> Snapshot:
        if not self._nodes:
            partitions = (QUEUES.alone, QUEUES.shared)
            self._nodes = tuple(
                BatchNode(_name(node), self._cores, np.inf, True, partitions)
                for node in range(run.view.machine.n_nodes)
            )
        for job in [job for job in self._assignments if job not in run.nodes and job not in self._leaders]:
            del self._assignments[job]  # the job has ended
        jobs = [self._job(run, job, nodes) for job, nodes in run.nodes.items()]
        jobs += [self._job(run, job, None) for job in self._leaders]
        jobs += [self._job(run, job, None) for job in run.waiting["job"][: sharing_plan.WINDOW].tolist()]
        return Snapshot(run.now_s, tuple(jobs), self._nodes)

    def _job(self, run: SharedSimulation, job: int, nodes: Ints | None) -> BatchJob:
        """A job as Slurm would report it; pending if it has no nodes."""
        assignment, work = self._assignments.get(job), run.workload
        n_nodes = int(work.n_nodes[job])
        after = tuple(other + 1 for other in assignment.after if other in run.nodes) if assignment else ()
        return BatchJob(
            id=job + 1,
            user=str(work.log.user[job]),
            name=str(run.programs[job]),
            state=PENDING if nodes is None else RUNNING,
            partition=QUEUES.shared if assignment else QUEUES.alone,
            n_nodes=n_nodes,
            n_tasks=n_nodes * self._cores,
            n_cpus=n_nodes * self._cores,
            nodes=() if nodes is None else tuple(map(_name, nodes.tolist())),
            wanted_nodes=tuple(map(_name, assignment.nodes.tolist())) if assignment else (),
            waits_for=after,
            submit_s=float(run.schedule.arrival_s[job]),
            start_s=0.0 if nodes is None else float(run.schedule.start_s[job]),
            limit_s=float(work.estimate_s[job]) * (BLIND_SLOWDOWN if assignment else 1.0),
            reason="Dependency" if after else "Resources",
            admin_comment=assignment.text if assignment else "",
            is_bound=assignment is not None,
        )


def _groups(
    run: SharedSimulation,
    leaders: Sequence[BatchJob],
    waiting: Sequence[BatchJob],
    rules: policies.Rules,
) -> list[policies.Group]:
    """Groups to run together, formed from leaders and waiting jobs with the same number of nodes."""
    both = [*leaders, *waiting]
    groups = []
    for n_nodes in sorted({job.n_nodes for job in both}):
        here = [i for i, job in enumerate(both) if job.n_nodes == n_nodes]
        kinds = run.programs[[both[i].id - 1 for i in here]]
        leads = np.array(here) < len(leaders)
        slowdown = np.where(leads[:, None] & leads, _APART, run.slowdowns.believed[np.ix_(kinds, kinds)])
        found = policies.plan(Queue(np.array([_left_s(run, both[i]) for i in here]), slowdown), rules)
        groups += [
            policies.Group(tuple(sorted(here[i] for i in group.jobs)), group.duration_s, group.why)
            for group in found.groups
        ]
    return groups


def _left_s(run: SharedSimulation, job: BatchJob) -> float:
    """Remaining run time alone of a job, s."""
    number = job.id - 1
    left_s = run.work_left_s(number) if number in run.nodes else float(run.workload.estimate_s[number])
    return max(left_s, _LEAST_LEFT_S)


def _name(node: int) -> str:
    return f"n{node}"


def _number(name: str) -> int:
    return int(name[1:])


WINDOW = 200
"""Number of waiting jobs that a policy considers, as in `sharing_plan`."""


@dataclass(frozen=True)
class Joining:
    """A policy that lets waiting jobs join running ones.

    Parameters
    ----------
    is_blind : bool
        Whether jobs join others, in order of the queue, on any nodes with one job. Otherwise a job joins
        others only if the machine, by the model, then does more work per second.
    overtakes : bool
        Whether jobs behind the queue's first job can join others, if that does not delay the first job.
    packs : bool
        Whether jobs join others even if there are free nodes for them, so that these nodes stay free.
    """

    is_blind: bool
    overtakes: bool = True
    packs: bool = False

    def next_join(self, simulation: SharedSimulation) -> Join | None:
        """The first job of the queue that can join others; see `shared_simulation.Sharing`."""
        if not len(simulation.waiting):
            return None
        half = _Half(simulation)
        tried: set[tuple[int, int]] = set()
        n_looked_at = WINDOW if self.overtakes else 1
        sizes = simulation.workload.n_nodes[simulation.waiting["job"][:n_looked_at].astype(np.int64)]
        for place in np.flatnonzero(sizes <= half.n_room).tolist():
            job, n_nodes = int(simulation.waiting["job"][place]), int(sizes[place])
            key = int(simulation.programs[job]), n_nodes
            # A job of the same program and size would get the same answer.
            if key in tried:
                continue
            nodes = half.first_nodes(n_nodes) if self.is_blind else half.best_nodes(job, n_nodes)
            if nodes is None:
                tried.add(key)
            elif not place or not _delays_first(simulation, place, nodes):
                return Join(job, nodes)
        return None

    def next_look_s(self) -> float:
        """Infinite, because the policy decides only when jobs arrive or end."""
        return np.inf


class _Half:
    """Nodes with room for a job: nodes with one job, and free nodes if the allocation accepts any."""

    def __init__(self, simulation: SharedSimulation) -> None:
        self.simulation = simulation
        first, second = simulation.jobs_on
        self.has_one = (first != NO_JOB) & (second == NO_JOB)
        # Allocations that are not bound by number choose among free nodes by rules of their own.
        takes_free = simulation.view.allocation.is_bound_by_number and not simulation.sharing.packs
        self.free = np.flatnonzero(simulation.view.uses == FREE) if takes_free else np.empty(0, np.int64)
        self.n_room = len(self.free) + int(np.count_nonzero(self.has_one))
        counts = np.bincount(first[self.has_one], minlength=1)
        self.hosts = np.flatnonzero(counts)
        self.counts = counts[self.hosts]
        self._ranked: dict[int, tuple[Ints, Floats]] = {}

    def first_nodes(self, n_nodes: int) -> Ints | None:
        """Free nodes, then the first nodes with one job."""
        taken = np.concatenate((self.free, np.flatnonzero(self.has_one)))[:n_nodes]
        return np.sort(taken) if len(taken) == n_nodes and n_nodes > len(self.free) else None

    def best_nodes(self, job: int, n_nodes: int) -> Ints | None:
        """Free nodes, then nodes of the jobs that lose least; None if this would not raise the throughput."""
        order, loss = self._rank(int(self.simulation.programs[job]))
        n_shared = n_nodes - len(self.free)
        if n_shared < 1 or not len(order):
            return None
        # The alternative is the best single job with enough nodes, so that only this job is slowed.
        room = np.cumsum(self.counts[order])
        whole = np.flatnonzero(self.counts[order] >= n_shared)
        choices = [order[: int(np.searchsorted(room, n_shared)) + 1]] if room[-1] >= n_shared else []
        choices += [order[whole[:1]]] if len(whole) else []
        gains = [self._gain(job, n_nodes, chosen, loss) for chosen in choices]
        if not gains or max(gains) <= 0:
            return None
        chosen = self.hosts[choices[int(np.argmax(gains))]]
        first = self.simulation.jobs_on[0]
        own = [np.flatnonzero(self.has_one & (first == host)) for host in chosen.tolist()]
        return np.sort(np.concatenate((self.free, *own))[:n_nodes])

    def _rank(self, program: int) -> tuple[Ints, Floats]:
        """Hosts (running jobs) by the cost per node of a job of this program beside them, and their losses.

        Notes
        -----
        A host on m nodes whose slowdown rises from s to s' loses the work of m (1/s - 1/s') nodes. The job
        that joins it works at the speed 1 / (its own slowdown). The cost per node is the host's loss per node
        less that speed.
        """
        if program not in self._ranked:
            run = self.simulation
            hosts = self.hosts
            beside = run.slowdowns.believed[run.programs[hosts], program]
            now = np.array([run.believed[host] for host in hosts.tolist()])
            sizes = run.workload.n_nodes[hosts]
            loss = sizes * (1.0 / now - 1.0 / np.maximum(now, beside))
            own = 1.0 / run.slowdowns.believed[program, run.programs[hosts]]
            self._ranked[program] = np.argsort(loss / np.maximum(self.counts, 1) - own, kind="stable"), loss
        return self._ranked[program]

    def _gain(self, job: int, n_nodes: int, chosen: Ints, loss: Floats) -> float:
        """Work per second that the job adds, less what its hosts lose, in units of a node's work."""
        run = self.simulation
        slowest = run.slowdowns.believed[run.programs[job], run.programs[self.hosts[chosen]]].max()
        return float(n_nodes / slowest - loss[chosen].sum())


def _delays_first(simulation: SharedSimulation, place: int, nodes: Ints) -> bool:
    """Whether a join would delay the first job's reservation, by the expected slowdowns.

    Notes
    -----
    EASY's condition (Mu'alem and Feitelson 2001, section 2.1), which here also considers that slowed jobs end
    later.
    """
    view, run = simulation.view, simulation
    if int(run.waiting["n_nodes"][0]) <= view.n_free and view.allocation.is_bound_by_number:
        return True
    reserved = view.reservation(0)
    job = int(run.waiting["job"][place])
    hosts = np.unique(run.jobs_on[0, nodes][run.jobs_on[0, nodes] != NO_JOB]).tolist()
    own = max((run.pair_slowdown(job, host) for host in hosts), default=1.0)
    ends_s = {job: run.now_s + float(run.workload.estimate_s[job]) * own}
    for host in hosts:
        slowdown = max(run.believed[host], run.pair_slowdown(host, job))
        ends_s[host] = run.now_s + run.work_left_s(host) * (slowdown + run.link_delay[host])
    later_s = view.expected_end_s.copy()
    for host in hosts:
        theirs = run.nodes[host]
        later_s[theirs] = np.maximum(later_s[theirs], ends_s[host])
    later_s[nodes] = np.maximum(later_s[nodes], ends_s[job])
    n_lost = np.count_nonzero((view.expected_end_s <= reserved.start_s) & (later_s > reserved.start_s))
    return bool(n_lost > reserved.n_spare)
