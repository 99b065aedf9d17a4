"""Which waiting jobs share nodes next, and what of that is already said to the batch system.

A pair is said in two steps, each one change of one job. Its first job, the *leader*, is sent to the queue for
sharing, where it waits for the node that is free next; its partner stays where it is, and joins when the
leader runs: at once, so that it waits for nothing. Everything that was decided stands at the jobs themselves
(`Assignment.text`), so whoever comes next, also after a crash, knows it from the queue alone.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass

from mpicoloc.core.batch_system import PENDING, REASONS_FOR_NODES, RUNNING, BatchJob, BatchNode, Snapshot
from mpicoloc.pairing.policies import Group

LATE = 2.0
"""A job is overdue when it has run so many times as long as it does alone: beside another it has half of the
processors, so it may run twice as long."""


@dataclass(frozen=True)
class Occupancy:
    """Of the nodes at one time.

    Parameters
    ----------
    free_s : mapping of str to float
        When the jobs on each node have ended, as far as it is known, s since 1970.
    owners : mapping of str to frozenset of int
        Jobs on each node that has any.
    overdue : frozenset of str
        Nodes with a job that is overdue: nobody knows when they are free.
    """

    free_s: Mapping[str, float]
    owners: Mapping[str, frozenset[int]]
    overdue: frozenset[str]


def occupancy(now: Snapshot, runtime_s: Mapping[int, float]) -> Occupancy:
    """The nodes of a cluster as they are."""
    free_s = dict.fromkeys((node.name for node in now.nodes), now.now_s)
    owners: dict[str, frozenset[int]] = {}
    overdue: set[str] = set()
    for job in now.jobs:
        if job.is_on_nodes:
            end_s, is_late = _end(job, min(runtime_s.get(job.id, job.limit_s), job.limit_s), now.now_s)
            for name in job.nodes:
                free_s[name] = max(free_s.get(name, now.now_s), end_s)
                owners[name] = owners.get(name, frozenset()) | {job.id}
            if is_late:
                overdue.update(job.nodes)
    return Occupancy(free_s, owners, frozenset(overdue))


def _end(job: BatchJob, alone_s: float, now_s: float) -> tuple[float, bool]:
    """When a job ends, s since 1970, and whether it is overdue."""
    late_s = min(LATE * alone_s, job.limit_s)
    ends_s = [job.start_s + each_s for each_s in (alone_s, late_s, job.limit_s)]
    is_late = late_s < job.limit_s and ends_s[1] <= now_s
    return next((end_s for end_s in ends_s if end_s > now_s), now_s), is_late


_TEXT = re.compile(
    r"mpicoloc share ([0-9]+(?:\+[0-9]+)?) on (\S+) limit ([0-9]+)"
    r"(?: after ([0-9:]+))?(?: since ([0-9]+))?(?: \{.*)?"
)


@dataclass(frozen=True)
class Assignment:
    """A leader that is to have its nodes in the queue for sharing; or a leader, and the job that joins it."""

    jobs: tuple[int, ...]
    nodes: tuple[str, ...]

    @property
    def job(self) -> int:
        """The job that is told."""
        return self.jobs[-1]

    def text(self, limit_s: float, after: Sequence[int] = (), since_s: float | None = None) -> str:
        """The text kept at that job: its own time limit, the jobs that it waits for, and since when."""
        minutes = round(limit_s / 60) if math.isfinite(limit_s) else 0
        said = f"mpicoloc share {'+'.join(map(str, self.jobs))} on {','.join(self.nodes)} limit {minutes}"
        said += f" after {':'.join(map(str, after))}" if after else ""
        return said if since_s is None else f"{said} since {round(since_s)}"


def assignment_of(job: BatchJob) -> tuple[Assignment, float] | None:
    """The assignment of a job and its own time limit, s; None: nothing was decided."""
    found = _TEXT.fullmatch(job.admin_comment)
    if found is None:
        return None
    minutes = int(found[3])
    jobs = tuple(int(word) for word in found[1].split("+"))
    if jobs[-1] != job.id:
        return None
    return Assignment(jobs, tuple(found[2].split(","))), 60.0 * minutes if minutes else math.inf


def assigned_at_s(job: BatchJob) -> float:
    """When it was decided for a job, s since 1970; infinite: nothing tells."""
    found = _TEXT.fullmatch(job.admin_comment)
    return float(found[5]) if found and found[5] else math.inf


def own_limit_s(job: BatchJob) -> float:
    """Its time limit without what it was given for sharing, s; never more than it has."""
    told = assignment_of(job)
    # What stands at a job may be somebody else's doing.
    return job.limit_s if told is None else min(told[1], job.limit_s)


def waits_as_assigned(job: BatchJob) -> bool:
    """Whether it waits for no other jobs than those that it was told to wait for."""
    found = _TEXT.fullmatch(job.admin_comment)
    after = found[4] if found else None
    return not job.is_chained and set(job.waits_for) <= {
        int(word) for word in (after or "").split(":") if word
    }


SAME = 1.1
"""Times that differ by no more are taken for the same: a partner comes a look later than its leader."""


@dataclass(frozen=True)
class NextNodes:
    """Nodes that a group of jobs gets, in queue order; `is_next`: no other group gets them before."""

    group: list[BatchJob]
    nodes: tuple[str, ...]
    is_next: bool


def order(job: BatchJob) -> tuple[float, float, int]:
    """Its place in the queue: the smaller, the sooner."""
    return -job.priority, job.submit_s, job.id


def _alone_s(job: BatchJob, runtime_s: Mapping[int, float]) -> float:
    return runtime_s.get(job.id, job.limit_s)


def fits(job: BatchJob, node: BatchNode) -> bool:
    """Whether a node has all that the job wants of one, if nobody else is there."""
    has_memory = job.memory_bytes <= node.memory_bytes or math.isinf(job.memory_bytes)
    return has_memory and job.n_cpus <= node.n_cpus * max(job.n_nodes, 1)


def _fit(group: Sequence[BatchJob], node: BatchNode) -> bool:
    return all(fits(job, node) for job in group)


def placeable(jobs: Sequence[BatchJob], nodes: Sequence[BatchNode]) -> list[BatchJob]:
    """Jobs that could begin if all of these nodes were idle; others keep none of them from anybody."""
    n_of_size = Counter((node.n_cpus, node.memory_bytes) for node in nodes)
    sizes = {(node.n_cpus, node.memory_bytes): node for node in nodes}
    return [
        job
        for job in jobs
        if job.wanted_nodes
        or sum(n for size, n in n_of_size.items() if fits(job, sizes[size])) >= job.n_nodes
    ]


def _first(
    heap: list[tuple[float, str]], group: Sequence[BatchJob], nodes: Mapping[str, BatchNode]
) -> list[tuple[float, str]]:
    """Takes from the heap the nodes that are free first, of those that fit."""
    found: list[tuple[float, str]] = []
    passed: list[tuple[float, str]] = []
    while heap and len(found) < group[0].n_nodes:
        entry = heapq.heappop(heap)
        (found if _fit(group, nodes[entry[1]]) else passed).append(entry)
    for entry in passed:
        heapq.heappush(heap, entry)
    return found


def next_nodes(
    groups: Sequence[tuple[list[BatchJob], float]],
    free: Sequence[BatchNode],
    nodes: Occupancy,
    runtime_s: Mapping[int, float],
) -> list[NextNodes]:
    """Assign the waiting groups to nodes in queue order, each to the nodes that become free first.

    Ends when each node has a next group. A group that fits none of these nodes takes none from others.
    """
    heap = [(nodes.free_s[node.name], node.name) for node in free]
    heapq.heapify(heap)
    by_name, has_next = {node.name: node for node in free}, set[str]()
    sizes = {(node.n_cpus, node.memory_bytes): node for node in free}.values()
    found = []
    for group, duration_s in sorted(groups, key=lambda each: min(map(order, each[0]))):
        if has_next >= by_name.keys():
            break
        longest_s = max(duration_s, *(_alone_s(job, runtime_s) for job in group))
        names = group[0].wanted_nodes
        if names:
            heap = [(free_s + longest_s if name in names else free_s, name) for free_s, name in heap]
            heapq.heapify(heap)
        else:
            if not any(_fit(group, node) for node in sizes):
                continue
            first = _first(heap, group, by_name)
            if len(first) < group[0].n_nodes:
                break
            names = tuple(sorted(name for _, name in first))
            for _, name in first:
                heapq.heappush(heap, (max(first)[0] + longest_s, name))
        found.append(NextNodes(group, names, not has_next & set(names)))
        has_next.update(names)
    return found


def leader_groups(found: Sequence[NextNodes], nodes: Occupancy) -> list[tuple[Assignment, list[BatchJob]]]:
    """Groups of several jobs that are next on all of their nodes."""
    return [
        (Assignment((turn.group[0].id,), turn.nodes), turn.group)
        for turn in found
        if len(turn.group) > 1 and turn.is_next
        # Nodes that are not free together would stand still, one for the other.
        and len({nodes.owners.get(name) for name in turn.nodes}) == 1
        # Nobody knows when such a node is free: who would wait for it is given back at the next look.
        and not nodes.overdue & set(turn.nodes)
    ]  # fmt: skip


def split_joins(
    wishes: Sequence[list[BatchJob]],
    found: Sequence[NextNodes],
    nodes: Occupancy,
    runtime_s: Mapping[int, float],
    now_s: float,
) -> tuple[list[list[BatchJob]], list[BatchJob]]:
    """Split the wishes: pairs that delay no job before the partner in the queue; partners of the others."""
    next_on: dict[str, NextNodes] = {}
    for turn in found:
        for name in turn.nodes:
            next_on.setdefault(name, turn)
    kept, put_off = [], []
    for leader, partner in wishes:
        left_s = max(nodes.free_s[name] for name in leader.nodes) - now_s
        before = [next_on[name].group for name in leader.nodes if name in next_on]
        before = [group for group in before if min(map(order, group)) < order(partner)]
        # A group that shares may itself take that much longer, so it waits that much longer for others.
        bounds_s = (left_s * (LATE if len(group) > 1 else SAME) for group in before)
        if _alone_s(partner, runtime_s) > min(bounds_s, default=math.inf):
            put_off.append(partner)
        else:
            kept.append([leader, partner])
    return kept, put_off


WINDOW = 200
"""Waiting jobs that are looked at: what is behind them has time."""
PATIENCE_S = 120.0
"""A partner whose leader runs starts at once; one that has not in this time never will: it lacks memory, or
something else that Slurm wants."""
REFUSED = "the batch system does not start it there"
_WAITS = (*REASONS_FOR_NODES, "Dependency")
"""Reasons for which jobs wait that were told to; who waits for anything else may do so for ever."""
_PRICE = '{"mpicoloc":'
"""So begins what the plugin writes when a job ends; it stays with a job that is queued again."""


@dataclass(frozen=True)
class Partitions:
    """The queue for a node alone, where users submit, and the one for sharing, which only this uses."""

    alone: str
    shared: str


@dataclass(frozen=True)
class Commit:
    """Put the job of `share` into the shared queue, to begin once the jobs `after` have ended; why, in words.

    `slowdowns` are the factors by which the time limit of each job of `share` must have grown.
    """

    share: Assignment
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
Planned = Callable[[Sequence[BatchJob], Sequence[BatchJob]], Sequence[Group]]
"""Groups of leaders and waiting jobs on as many nodes, by their indices in the former with the latter behind
them."""

Timed = tuple[list[BatchJob], float]
"""Jobs that begin together, the leader first, and how long they take, s."""
LeaderGroup = tuple[Assignment, list[BatchJob]]
"""The assignment of a leader, and the jobs of its group."""

Growth = Callable[[BatchJob, Sequence[BatchJob]], float]
"""Factor by which the time limit of a job must grow beside others."""


def is_free(job: BatchJob) -> bool:
    """Whether nobody has written at a job what this service does not know."""
    return not job.admin_comment or job.admin_comment.startswith(_PRICE)


def candidates(now: Snapshot, partitions: Partitions) -> list[BatchJob]:
    """Waiting jobs that may share, the next first: not held, without conditions or notes of others."""
    found = [
        job
        for job in now.jobs
        if job.state == PENDING and job.partition == partitions.alone
        and job.priority > 0 and not job.is_bound
        and is_free(job)
    ]  # fmt: skip
    return sorted(found, key=order)[:WINDOW]


def _queued(now: Snapshot, partitions: Partitions) -> list[BatchJob]:
    """All that wait for nodes alone, whatever conditions they have."""
    return [
        job
        for job in now.jobs
        if job.state == PENDING and job.partition == partitions.alone
        and job.priority > 0 and job.reason in REASONS_FOR_NODES
    ]  # fmt: skip


def decide(
    now: Snapshot,
    partitions: Partitions,
    plan: Planned,
    runtime_s: Mapping[int, float],
    growth: Growth,
) -> list[Action]:
    """Decide on the actions for the batch system.

    Only what is next on a node is decided; the rest may yet get a better partner. Jobs that run alone are
    left to the batch system. A leader waits for all that share its nodes now, and has one partner as long as
    the batch system tells of it, so no third one comes in when one of two has just ended (as with the pairs
    of a matching in Zacarias et al. 2021, section 4.4.1).

    Result: releases, then partners, then leaders.
    """
    state = _read_state(now, partitions, runtime_s)
    joins, leads = _next(state, _planned(state, plan))
    return [*state.broken, *_commits(state, joins, leads, growth)]


@dataclass(frozen=True)
class _State:
    """One look at the batch system, and what of that is already said.

    What is `broken` is taken back, what is `kept` stands, and leaders that are `moved` get other nodes.
    `hosts` run and may have a partner, `waiting` jobs may share, all `queued` want nodes alone, and who is
    next may have nodes that are `free`.
    """

    now: Snapshot
    partitions: Partitions
    runtime_s: Mapping[int, float]
    nodes: Occupancy
    broken: list[Release]
    kept: list[Assignment]
    moved: list[Assignment]
    hosts: list[BatchJob]
    waiting: list[BatchJob]
    queued: list[BatchJob]
    free: list[BatchNode]


def _read_state(now: Snapshot, partitions: Partitions, runtime_s: Mapping[int, float]) -> _State:
    said = {job.id: told[0] for job in now.jobs if job.state == PENDING and (told := assignment_of(job))}
    nodes = occupancy(now, runtime_s)
    broken = _broken(now, partitions, said)
    broken += _late(now, partitions, _unbroken(said, broken), nodes)
    kept = _unbroken(said, broken)
    moved = _moved(now, partitions, kept, broken, nodes)
    gone = {name for share in moved for name in share.nodes}
    up = usable(now, partitions)
    return _State(
        now,
        partitions,
        runtime_s,
        nodes,
        broken,
        kept,
        moved,
        hosts=_hosts(now, partitions, kept),
        waiting=placeable(candidates(now, partitions), up),
        queued=placeable(_queued(now, partitions), up),
        free=[node for node in _free(now, partitions, kept) if node.name not in gone],
    )


def _planned(state: _State, plan: Planned) -> list[Timed]:
    """The groups of a plan of all that may share."""
    leaders = [*state.hosts, *(state.now.by_id[share.job] for share in state.kept if len(share.jobs) == 1)]
    both = [*leaders, *state.waiting]
    return [([both[i] for i in group.jobs], group.duration_s) for group in plan(leaders, state.waiting)]


def _next(state: _State, planned: Sequence[Timed]) -> tuple[list[list[BatchJob]], list[LeaderGroup]]:
    """Pairs whose partner begins now, and the groups that are next on nodes, with their leaders."""
    able = {job.id for job in state.waiting}
    wishes = _wishes(state, planned, able)
    begun = {job.id for group in wishes for job in group}
    # Leaders come before all others, so a job that cannot share takes its place among them.
    others: list[Timed] = [([job], 0.0) for job in state.queued if job.id not in able]
    others += [each for each in planned if each[0][0].id in able and not begun & {job.id for job in each[0]}]
    found = next_nodes(others, state.free, state.nodes, state.runtime_s)
    joins, put_off = split_joins(wishes, found, state.nodes, state.runtime_s, state.now.now_s)
    others += [([job], 0.0) for job in put_off]
    found = next_nodes(others, state.free, state.nodes, state.runtime_s)
    moved = [(share, [state.now.by_id[share.job]]) for share in state.moved]
    return joins, [*moved, *leader_groups(found, state.nodes)]


def _wishes(state: _State, planned: Sequence[Timed], able: Container[int]) -> list[list[BatchJob]]:
    """Leaders that run, each with the partner that the plan gives it."""
    by_name = {node.name: node for node in state.now.nodes}
    hosting = {job.id for job in state.hosts}
    n_idle = sum(node.name not in state.nodes.owners for node in state.free)
    return [
        group
        for group, _ in planned
        if len(group) == 2 and group[0].id in hosting and group[1].id in able
        # What nobody has the batch system itself gives to the next job, alone.
        and n_idle < group[1].n_nodes
        and all(fits(group[1], by_name[name]) for name in group[0].nodes)
    ]  # fmt: skip


def _commits(
    state: _State, joins: Sequence[Sequence[BatchJob]], leads: Sequence[LeaderGroup], growth: Growth
) -> list[Commit]:
    joined = [_joined(leader, partner, growth) for leader, partner in joins]
    told = [*state.kept, *(action.share for action in joined)]
    shared = {job.id for job in state.now.jobs if job.partition == state.partitions.shared}
    led = (_led(share, group, told, state.nodes, shared, growth) for share, group in leads)
    return [*joined, *led]


def _joined(leader: BatchJob, partner: BatchJob, growth: Growth) -> Commit:
    factors = (growth(leader, [partner]), growth(partner, [leader]))
    return Commit(Assignment((leader.id, partner.id), leader.nodes), (), factors, "its partner runs there")


def _led(
    share: Assignment,
    group: Sequence[BatchJob],
    told: Sequence[Assignment],
    nodes: Occupancy,
    shared: Container[int],
    growth: Growth,
) -> Commit:
    """The leader waits for jobs that share its nodes, or join one there; others let nobody in."""
    names = set(share.nodes)
    there = {number for name in names for number in nodes.owners.get(name, ()) if number in shared}
    joining = {each.job for each in told if len(each.jobs) == 2 and names & set(each.nodes)}
    why = f"to share with {group[1].id}" if group[1:] else "another node is free"
    return Commit(share, tuple(sorted(there | joining)), (growth(group[0], group[1:]),), why)


def usable(now: Snapshot, partitions: Partitions) -> list[BatchNode]:
    """Nodes of both queues that take jobs, by name."""
    both = {partitions.alone, partitions.shared}
    return sorted(
        (node for node in now.nodes if node.is_up and both <= set(node.partitions)),
        key=lambda node: node.name,
    )


def _free(now: Snapshot, partitions: Partitions, kept: Sequence[Assignment]) -> list[BatchNode]:
    """Nodes that no leader waits for."""
    taken = {name for share in kept if len(share.jobs) == 1 for name in share.nodes}
    return [node for node in usable(now, partitions) if node.name not in taken]


def released(now: Snapshot, names: Collection[str] = ()) -> list[Release]:
    """Give back waiting jobs that have an assignment; with `names`, only those of these nodes."""
    told = [(job, said[0]) for job in now.jobs if job.state == PENDING and (said := assignment_of(job))]
    return [_release(job, "asked for") for job, share in told if not names or set(names) & set(share.nodes)]


def _release(job: BatchJob, why: str) -> Release:
    return Release(job.id, own_limit_s(job), why)


def _broken(now: Snapshot, partitions: Partitions, said: Mapping[int, Assignment]) -> list[Release]:
    """Assignments to withdraw: a node or the leader is gone, or it never begins."""
    up = {node.name for node in now.nodes if node.is_up}
    found = []
    for number, share in said.items():
        job, leader = now.by_id[number], now.by_id.get(share.jobs[0])
        why = ""
        if down := set(share.nodes) - up:
            why = f"node {min(down)} takes no jobs"
        elif job.partition != partitions.shared or set(job.wanted_nodes) != set(share.nodes):
            why = "it was changed by hand"
        elif not waits_as_assigned(job):
            why = "its dependencies were changed by hand"
        elif job.priority == 0 or job.reason not in _WAITS:
            why = f"{REFUSED} ({job.reason or 'held'})"
        elif len(share.jobs) == 2 and (
            leader is None or not leader.is_on_nodes or set(leader.nodes) != set(share.nodes)
        ):
            why = "its partner is gone"
        elif len(share.jobs) == 2 and now.now_s - assigned_at_s(job) > PATIENCE_S:
            why = f"{REFUSED} ({job.reason or 'it did not start'})"
        elif any(_is_elsewhere(now.by_id[i], share.nodes) for i in job.waits_for if i in now.by_id):
            why = "what it waits for has left"
        if why:
            found.append(_release(job, why))
    return found


def _unbroken(said: Mapping[int, Assignment], broken: Sequence[Release]) -> list[Assignment]:
    gone = {action.job for action in broken}
    return [share for number, share in said.items() if number not in gone]


def _late(
    now: Snapshot, partitions: Partitions, kept: Sequence[Assignment], nodes: Occupancy
) -> list[Release]:
    """Leaders that wait for jobs that are overdue, while other nodes will be free before."""
    others = [node for node in _free(now, partitions, kept) if node.name not in nodes.overdue]
    others.sort(key=lambda node: nodes.free_s[node.name])
    found = []
    for share in _leaders(now, kept):
        n, job = len(share.nodes), now.by_id[share.job]
        own_s = max(nodes.free_s[name] for name in share.nodes)
        fit = [node for node in others if fits(job, node)][:n]
        if nodes.overdue & set(share.nodes) and n == len(fit) and nodes.free_s[fit[-1].name] < own_s:
            found.append(_release(job, "what it waits for is overdue"))
            others = [node for node in others if node not in fit]
    return found


def _is_elsewhere(job: BatchJob, nodes: tuple[str, ...]) -> bool:
    """Whether a job that has not ended neither is on one of the nodes nor is to begin there."""
    told = assignment_of(job)
    here = job.nodes if job.is_on_nodes else told[0].nodes if told else ()
    return (job.is_on_nodes or job.state == PENDING) and not set(nodes) & set(here)


def _hosts(now: Snapshot, partitions: Partitions, kept: Sequence[Assignment]) -> list[BatchJob]:
    """Leaders that run and have had no partner, where nobody else waits to be the next."""
    paired = {told[0].jobs[0] for job in now.jobs if (told := assignment_of(job)) and len(told[0].jobs) == 2}
    next_there = {name for share in kept for name in share.nodes}
    on_node = Counter(name for job in now.jobs if job.is_on_nodes for name in job.nodes)
    up = {node.name for node in usable(now, partitions)}
    return [
        job
        for job in now.jobs
        if job.state == RUNNING and job.partition == partitions.shared
        and (told := assignment_of(job)) and told[0].jobs == (job.id,) and job.id not in paired
        and not next_there & set(job.nodes)
        and all(on_node[name] == 1 and name in up for name in job.nodes)
    ]  # fmt: skip


def _leaders(now: Snapshot, kept: Sequence[Assignment]) -> list[Assignment]:
    """The assignments of leaders, the first in the queue first."""
    return sorted((each for each in kept if len(each.jobs) == 1), key=lambda each: order(now.by_id[each.job]))


def _moved(
    now: Snapshot,
    partitions: Partitions,
    kept: Sequence[Assignment],
    broken: Sequence[Release],
    nodes: Occupancy,
) -> list[Assignment]:
    """Leaders that wait for nodes while others are idle, and nobody before them in the queue wants those."""
    waiting = [
        *candidates(now, partitions),
        *_queued(now, partitions),
        *(now.by_id[each.job] for each in broken),
    ]
    waiting = placeable(waiting, usable(now, partitions))
    first = min(map(order, waiting), default=(math.inf, 0.0, 0))
    idle = [node for node in _free(now, partitions, kept) if node.name not in nodes.owners]
    found = []
    for share in _leaders(now, kept):
        job, n = now.by_id[share.job], len(share.nodes)
        fit = [node for node in idle if fits(job, node)][:n]
        if order(job) > first:
            break
        if n == len(fit) and any(name in nodes.owners for name in share.nodes):
            found.append(Assignment(share.jobs, tuple(node.name for node in fit)))
            idle = [node for node in idle if node not in fit]
    return found
