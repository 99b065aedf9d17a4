"""The pairing service of `mpicoloc pair --watch` in simulation: `sharing_plan.decide` runs here unchanged.

It gets a snapshot of the simulated batch system as it gets one of Slurm, and its actions are applied as Slurm
would: a leader waits for its nodes in the queue for sharing, which comes first; a partner joins at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.batch.shared_simulation import BLIND_SLOWDOWN, NO_JOB, Join, SharedSimulation
from mpicoloc.core.arrays import Ints
from mpicoloc.core.batch_system import PENDING, RUNNING, BatchJob, BatchNode, Snapshot
from mpicoloc.pairing import policies, sharing_plan
from mpicoloc.pairing.queue import Queue

QUEUES = sharing_plan.Partitions("alone", "shared")
LOOK_S = 60.0
"""Time between two looks of the service, s."""
_APART = 1e9
"""Slowdown of two leaders: larger than any, because each has nodes of its own."""
_LEAST_LEFT_S = 1.0


@dataclass(frozen=True)
class _Assignment:
    """What was decided of a job: its nodes, the jobs that it waits for, and the text that stands at it."""

    nodes: Ints
    after: tuple[int, ...]
    text: str


class Service:
    """The service as a sharing policy of one simulation.

    Jobs are pairs of as many nodes. A job's estimate counts as its run time alone.

    Parameters
    ----------
    cores_per_node : int
        Of the machine; each job uses all of its nodes.
    rules : policies.Rules
        How pairs are chosen.
    look_s : float
        Least time between two looks, s.

    Attributes
    ----------
    n_looks : int
        How often it has decided.
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
        """Partners that are to join, then leaders whose nodes are free; looks again if it is time."""
        if simulation.now_s >= self._last_s + self.look_s:
            self._look(simulation)
        else:
            self._has_news = True
        join = self._joins.pop(0) if self._joins else self._ready_leader(simulation)
        self._has_news |= join is not None
        return join

    def next_look_s(self) -> float:
        """After something has happened since the last look."""
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
        """Back into the queue for nodes alone, at its place by arrival."""
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
            del self._assignments[job]  # it has ended
        jobs = [self._job(run, job, nodes) for job, nodes in run.nodes.items()]
        jobs += [self._job(run, job, None) for job in self._leaders]
        jobs += [self._job(run, job, None) for job in run.waiting["job"][: sharing_plan.WINDOW].tolist()]
        return Snapshot(run.now_s, tuple(jobs), self._nodes)

    def _job(self, run: SharedSimulation, job: int, nodes: Ints | None) -> BatchJob:
        """A job as Slurm would tell it; it waits if it has no nodes."""
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
    """Pairs of leaders and waiting jobs that have as many nodes."""
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
    """Run time alone that a job still has, s."""
    number = job.id - 1
    left_s = run.work_left_s(number) if number in run.nodes else float(run.workload.estimate_s[number])
    return max(left_s, _LEAST_LEFT_S)


def _name(node: int) -> str:
    return f"n{node}"


def _number(name: str) -> int:
    return int(name[1:])
