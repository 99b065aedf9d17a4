"""Which waiting jobs go together onto which node next, and what of that is already said to the batch system.

Everything that was decided stands at the jobs themselves (`Share.text`), so whoever comes next, also after a
crash, knows it from the queue alone.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mpicoloc.core.batch import PENDING, BatchJob, BatchNode, Snapshot
from mpicoloc.model.pairs import Group

WINDOW = 200
"""Waiting jobs that are looked at: what is behind them has time."""
NEVER = {
    *("PartitionTimeLimit", "PartitionNodeLimit", "PartitionDown", "PartitionInactive", "BadConstraints"),
    *("InvalidAccount", "InvalidQOS", "DependencyNeverSatisfied", "AccountNotAllowed"),
}
"""Reasons for which a job would wait in the queue for sharing until somebody changes something."""
REFUSED = "the batch system never starts it there"
_TEXT = re.compile(r"mpicoloc share ([0-9]+(?:\+[0-9]+)+) on (\S+) limit ([0-9]+)(?: \{.*)?")
Planned = Callable[[Sequence[BatchJob]], Sequence[Group]]


@dataclass(frozen=True)
class Partitions:
    """The queue for a node alone, where users submit, and the one for sharing, which only this uses."""

    alone: str
    shared: str


@dataclass(frozen=True)
class Share:
    """Jobs that are to share one node."""

    jobs: tuple[int, ...]
    node: str

    def text(self, limit_s: float) -> str:
        """What stands at each of the jobs, with its own time limit."""
        minutes = round(limit_s / 60) if math.isfinite(limit_s) else 0
        return f"mpicoloc share {'+'.join(map(str, self.jobs))} on {self.node} limit {minutes}"


@dataclass(frozen=True)
class Commit:
    """Put `share` into the shared queue, once the jobs `after` have ended; why, in words.

    `slowdowns` are the factors by which each job's time limit grows.
    """

    share: Share
    after: tuple[int, ...]
    slowdowns: tuple[float, ...]
    why: str


@dataclass(frozen=True)
class Release:
    """Put a job back into the queue for a node alone, with the time limit that it had; why, in words."""

    job: int
    limit_s: float
    why: str


Action = Commit | Release


def share_of(job: BatchJob) -> tuple[Share, float] | None:
    """What was decided for a job, and its own time limit, s; None: nothing."""
    found = _TEXT.fullmatch(job.admin_comment)
    if found is None:
        return None
    minutes = int(found[3])
    jobs = tuple(int(word) for word in found[1].split("+"))
    return Share(jobs, found[2]), 60.0 * minutes if minutes else math.inf


def candidates(now: Snapshot, partitions: Partitions) -> list[BatchJob]:
    """Waiting jobs that may share, the next first: of one node, not held, without conditions of their own."""
    found = [
        job
        for job in now.jobs
        if job.state == PENDING and job.partition == partitions.alone and job.n_nodes == 1
        and job.priority > 0 and not job.is_bound
    ]  # fmt: skip
    return sorted(found, key=_order)[:WINDOW]


def _order(job: BatchJob) -> tuple[float, float, int]:
    return -job.priority, job.submit_s, job.id


def decide(
    now: Snapshot,
    partitions: Partitions,
    plan: Planned,
    runtime_s: Mapping[int, float],
    growth: Callable[[BatchJob, Sequence[BatchJob]], float],
) -> list[Action]:
    """What to tell the batch system.

    Only what is next on a node is decided; the rest may yet get a better partner. Jobs that run alone are
    left to the batch system. A node's next jobs wait for all that run there now, so no third one comes in
    when one of two has ended (as with the pairs of a matching in Zacarias et al. 2021, section 4.4.1).

    Parameters
    ----------
    now : Snapshot
        Jobs and nodes.
    partitions : Partitions
        Names of the two queues.
    plan : callable
        Groups the jobs that it is given, by their indices.
    runtime_s : mapping of int to float
        How long jobs take alone, s, by number, where it is known; else their time limit counts.
    growth : callable
        Factor by which the time limit of a job must grow beside the others of its group.

    Returns
    -------
    list of Action
        Releases first.
    """
    said = _committed(now)
    broken = [action for share in said for action in _broken(now, partitions, share)]
    gone = {action.job for action in broken}
    kept = [share for share in said if not gone & set(share.jobs)]
    waiting = candidates(now, partitions)
    groups = plan(waiting)
    next_there = _next_on_nodes(now, partitions, waiting, groups, kept, runtime_s)
    shares = [
        (
            Share(tuple(sorted(waiting[i].id for i in group.jobs)), node.name),
            f"{group.duration_s:.0f} s together",
        )
        for node, group in next_there
    ]
    if not waiting:
        shares = [(share, "another node is free") for share in _moved(now, partitions, kept)]
    return [*broken, *(_commit(now, share, growth, why) for share, why in shares)]


def _commit(
    now: Snapshot, share: Share, growth: Callable[[BatchJob, Sequence[BatchJob]], float], why: str
) -> Commit:
    jobs = [next(job for job in now.jobs if job.id == number) for number in share.jobs]
    factors = tuple(growth(job, [other for other in jobs if other is not job]) for job in jobs)
    after = tuple(sorted(j.id for j in now.jobs if j.is_on_nodes and share.node in j.nodes))
    return Commit(share, after, factors, why)


def _moved(now: Snapshot, partitions: Partitions, kept: Sequence[Share]) -> list[Share]:
    """Decisions that wait for a node while another one is idle and nobody else wants it."""
    busy = {name for job in now.jobs if job.is_on_nodes for name in job.nodes}
    taken = busy | {share.node for share in kept}
    idle = [node.name for node in usable(now, partitions) if node.name not in taken]
    begun = {job.id for job in now.jobs if job.is_on_nodes}
    late = [share for share in kept if share.node in busy and not begun & set(share.jobs)]
    return [Share(share.jobs, name) for share, name in zip(late, idle, strict=False)]


def usable(now: Snapshot, partitions: Partitions) -> list[BatchNode]:
    """Nodes of both queues that take jobs, by name."""
    both = {partitions.alone, partitions.shared}
    return sorted(
        (node for node in now.nodes if node.is_up and both <= set(node.partitions)),
        key=lambda node: node.name,
    )


def _committed(now: Snapshot) -> list[Share]:
    """What was decided and has jobs that still wait."""
    found: dict[Share, None] = {}
    for job in now.jobs:
        told = share_of(job) if job.state == PENDING else None
        if told is not None:
            found[told[0]] = None
    return list(found)


def _broken(now: Snapshot, partitions: Partitions, share: Share) -> list[Release]:
    """What of a decision must be taken back: a partner or the node is gone before they began."""
    members = [job for job in now.jobs if job.id in share.jobs and (job.state == PENDING or job.is_on_nodes)]
    told = [(job, said[1]) for job in members if (said := share_of(job)) and said[0] == share]
    # Never more than it has now: what stands at a job may be somebody else's doing.
    waiting = [(job, min(limit_s, job.limit_s)) for job, limit_s in told if job.state == PENDING]
    node = next((node for node in now.nodes if node.name == share.node), None)
    why = ""
    if node is None or not node.is_up:
        why = f"node {share.node} is down"
    elif len(members) < len(share.jobs):
        why = "its partner is gone"
    elif len(told) < len(members) or any(not _is_placed(job, partitions, share) for job, _ in waiting):
        # Somebody was interrupted, or changed it: as if nothing had been said.
        why = "only part of it was said"
    elif any(job.is_on_nodes and share.node not in job.nodes for job in members):
        why = "its partner runs elsewhere"
    elif reasons := {job.reason for job, _ in waiting} & NEVER:
        why = f"{REFUSED} ({min(reasons)})"
    return [Release(job.id, limit_s, why) for job, limit_s in waiting] if why else []


def _is_placed(job: BatchJob, partitions: Partitions, share: Share) -> bool:
    return job.partition == partitions.shared and job.wanted_nodes == (share.node,)


def _next_on_nodes(
    now: Snapshot,
    partitions: Partitions,
    waiting: Sequence[BatchJob],
    groups: Sequence[Group],
    kept: Sequence[Share],
    runtime_s: Mapping[int, float],
) -> list[tuple[BatchNode, Group]]:
    """Groups of several jobs that are the next on a node, if each group takes the node that is free first."""
    taken = {share.node for share in kept}
    free_s = _free_s(now, runtime_s)
    free = {node.name: node for node in usable(now, partitions) if node.name not in taken}
    heap = [(free_s.get(name, now.now_s), name) for name in free]
    heapq.heapify(heap)
    has_next: set[str] = set()
    found = []
    for group in sorted(groups, key=lambda group: min(group.jobs, default=0)):
        if len(has_next) == len(free):
            break
        start_s, name = heapq.heappop(heap)
        if name not in has_next and len(group.jobs) > 1:
            found.append((free[name], group))
        has_next.add(name)
        longest_s = max(runtime_s.get(waiting[i].id, waiting[i].limit_s) for i in group.jobs)
        heapq.heappush(heap, (start_s + max(group.duration_s, longest_s), name))
    return found


def _free_s(now: Snapshot, runtime_s: Mapping[int, float]) -> dict[str, float]:
    """When each node that has jobs will be free, as far as one knows, s since 1970."""
    ends: dict[str, float] = {}
    for job in now.jobs:
        if job.is_on_nodes:
            end_s = max(job.start_s + runtime_s.get(job.id, job.limit_s), now.now_s)
            for name in job.nodes:
                ends[name] = max(ends.get(name, 0.0), end_s)
    return ends
