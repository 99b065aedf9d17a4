"""Decides which waiting jobs share nodes next, and which changes the batch system must make for this.

A pair takes two steps, and each step changes one job. The pair's first job, the *leader*, is moved to the
queue for sharing, where it waits for the node that becomes free next. Its partner stays in the other queue
until the leader runs, and then joins the leader at once. Each decision is stored in the job's AdminComment
(`Assignment.text`), so a restarted service can read all decisions from the queue.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mpicoloc.core.batch_system import PENDING, REASONS_FOR_NODES, RUNNING, BatchJob, BatchNode, Snapshot
from mpicoloc.pairing.policies import Group

LATE = 2.0
"""A job is overdue after this multiple of its run time alone. A job that shares may have half of the
processors, and may then run twice as long."""


@dataclass(frozen=True)
class Occupancy:
    """Jobs on the nodes at one time.

    Parameters
    ----------
    free_s : mapping of str to float
        Expected end of all jobs on each node, s since 1970.
    owners : mapping of str to frozenset of int
        Jobs on each node that is not idle.
    overdue : frozenset of str
        Nodes with an overdue job. It is not known when these nodes become free.
    """

    free_s: Mapping[str, float]
    owners: Mapping[str, frozenset[int]]
    overdue: frozenset[str]


def occupancy(now: Snapshot, runtime_s: Mapping[int, float]) -> Occupancy:
    """The current occupancy of a cluster's nodes."""
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
    """Expected end of a job, s since 1970, and whether the job is overdue."""
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
    """A leader, or a leader and the job that joins it, with their nodes in the queue for sharing."""

    jobs: tuple[int, ...]
    nodes: tuple[str, ...]

    @property
    def job(self) -> int:
        """The job that carries the assignment."""
        return self.jobs[-1]

    def text(self, limit_s: float, after: Sequence[int] = (), since_s: float | None = None) -> str:
        """The job's AdminComment: assignment, own time limit, jobs that it waits for, time of decision."""
        minutes = round(limit_s / 60) if math.isfinite(limit_s) else 0
        said = f"mpicoloc share {'+'.join(map(str, self.jobs))} on {','.join(self.nodes)} limit {minutes}"
        said += f" after {':'.join(map(str, after))}" if after else ""
        return said if since_s is None else f"{said} since {round(since_s)}"


def assignment_of(job: BatchJob) -> tuple[Assignment, float] | None:
    """The assignment of a job and the job's own time limit, s; None if it has no assignment."""
    found = _TEXT.fullmatch(job.admin_comment)
    if found is None:
        return None
    minutes = int(found[3])
    jobs = tuple(int(word) for word in found[1].split("+"))
    if jobs[-1] != job.id:
        return None
    return Assignment(jobs, tuple(found[2].split(","))), 60.0 * minutes if minutes else math.inf


def assigned_at_s(job: BatchJob) -> float:
    """Time of a job's assignment, s since 1970; infinite if unknown."""
    found = _TEXT.fullmatch(job.admin_comment)
    return float(found[5]) if found and found[5] else math.inf


def own_limit_s(job: BatchJob) -> float:
    """Time limit of a job without the extension for sharing, s; never above the job's current limit."""
    told = assignment_of(job)
    # Somebody else may have edited the comment, so the current limit caps the value.
    return job.limit_s if told is None else min(told[1], job.limit_s)


def waits_as_assigned(job: BatchJob) -> bool:
    """Whether the job depends only on jobs that its assignment names."""
    found = _TEXT.fullmatch(job.admin_comment)
    after = found[4] if found else None
    return not job.is_chained and set(job.waits_for) <= {
        int(word) for word in (after or "").split(":") if word
    }


SAME = 1.1
"""Times within this factor count as equal, because a partner joins one round after its leader starts."""


@dataclass(frozen=True)
class NextNodes:
    """A group of jobs and the nodes that it gets; `is_next`: no other group gets one of them earlier."""

    group: list[BatchJob]
    nodes: tuple[str, ...]
    is_next: bool


def order(job: BatchJob) -> tuple[float, float, int]:
    """Sort key of a job in the queue: jobs with smaller keys come first."""
    return -job.priority, job.submit_s, job.id


def _alone_s(job: BatchJob, runtime_s: Mapping[int, float]) -> float:
    return runtime_s.get(job.id, job.limit_s)


def fits(job: BatchJob, node: BatchNode) -> bool:
    """Whether an idle node has the memory and processors that the job needs on a node."""
    has_memory = job.memory_bytes <= node.memory_bytes or math.isinf(job.memory_bytes)
    return has_memory and job.n_cpus <= node.n_cpus * max(job.n_nodes, 1)


def _fit(group: Sequence[BatchJob], node: BatchNode) -> bool:
    return all(fits(job, node) for job in group)


def placeable(jobs: Sequence[BatchJob], nodes: Sequence[BatchNode]) -> list[BatchJob]:
    """Jobs that could begin if all of these nodes were idle. No other jobs may reserve nodes."""
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
    """Take from the heap the nodes that fit the group and become free first."""
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

    Ends when each node has a next group. A group that fits none of these nodes reserves none.
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
    """Groups of several jobs that are the next to begin on all their nodes."""
    return [
        (Assignment((turn.group[0].id,), turn.nodes), turn.group)
        for turn in found
        if len(turn.group) > 1 and turn.is_next
        # If the nodes became free at different times, the first would be idle until the last is free.
        and len({nodes.owners.get(name) for name in turn.nodes}) == 1
        # A leader that waits for an overdue node would be released in the next round.
        and not nodes.overdue & set(turn.nodes)
    ]  # fmt: skip


def split_joins(
    wishes: Sequence[list[BatchJob]],
    found: Sequence[NextNodes],
    nodes: Occupancy,
    runtime_s: Mapping[int, float],
    now_s: float,
) -> tuple[list[list[BatchJob]], list[list[BatchJob]]]:
    """The pairs that delay no job ahead of the partner in the queue, and the other pairs."""
    next_on: dict[str, NextNodes] = {}
    for turn in found:
        for name in turn.nodes:
            next_on.setdefault(name, turn)
    kept: list[list[BatchJob]] = []
    put_off: list[list[BatchJob]] = []
    for leader, partner in wishes:
        left_s = max(nodes.free_s[name] for name in leader.nodes) - now_s
        before = [next_on[name].group for name in leader.nodes if name in next_on]
        before = [group for group in before if min(map(order, group)) < order(partner)]
        # A group that shares may take up to LATE times as long anyway, so it may also wait longer.
        bounds_s = (left_s * (LATE if len(group) > 1 else SAME) for group in before)
        is_late = _alone_s(partner, runtime_s) > min(bounds_s, default=math.inf)
        (put_off if is_late else kept).append([leader, partner])
    return kept, put_off


WINDOW = 200
"""Number of waiting jobs that are considered, from the head of the queue: later jobs do not start soon."""
PATIENCE_S = 120.0
"""A partner that has not started within this time after its assignment never will, because Slurm lacks the
memory or another resource for it."""
REFUSED = "the batch system does not start it there"
_WAITS = (*REASONS_FOR_NODES, "Dependency")
"""Reasons for which assigned jobs may wait. A job that waits for another reason may wait for ever."""
_PRICE = '{"mpicoloc":'
"""Prefix of the plugin's AdminComment at a job's end, which a requeued job keeps."""


@dataclass(frozen=True)
class Partitions:
    """The two queues: one for jobs alone on nodes, to which users submit, and one for sharing."""

    alone: str
    shared: str


@dataclass(frozen=True)
class Commit:
    """Move the job of `share` into the queue for sharing, where it begins after the jobs `after` have ended.

    The time limits of the jobs of `share` must grow by the factors `slowdowns`. `why` tells users the reason.
    """

    share: Assignment
    after: tuple[int, ...]
    slowdowns: tuple[float, ...]
    why: str


@dataclass(frozen=True)
class Release:
    """Move a job back into the queue for jobs alone, with its former time limit, for the reason `why`."""

    job: int
    limit_s: float
    why: str


Action = Commit | Release
Planned = Callable[[Sequence[BatchJob], Sequence[BatchJob]], Sequence[Group]]
"""A function that groups leaders and waiting jobs. The jobs of a group take the same number of nodes, and are
given by their indices in the list of all leaders followed by all waiting jobs."""

Timed = tuple[list[BatchJob], float]
"""Jobs that begin together, the leader first, and their duration, s."""
LeaderGroup = tuple[Assignment, list[BatchJob]]
"""The assignment of a leader, and the jobs of its group."""

Growth = Callable[[BatchJob, Sequence[BatchJob]], float]
"""Factor by which the time limit of a job must grow beside others."""


def is_free(job: BatchJob) -> bool:
    """Whether the job's AdminComment is empty or only has the plugin's price."""
    return not job.admin_comment or job.admin_comment.startswith(_PRICE)


def candidates(now: Snapshot, partitions: Partitions) -> list[BatchJob]:
    """Waiting jobs that may share, in queue order: those not held, without conditions or foreign comments."""
    found = [
        job
        for job in now.jobs
        if job.state == PENDING and job.partition == partitions.alone
        and job.priority > 0 and not job.is_bound
        and is_free(job)
    ]  # fmt: skip
    return sorted(found, key=order)[:WINDOW]


def _queued(now: Snapshot, partitions: Partitions) -> list[BatchJob]:
    """All jobs that wait for nodes of their own, even with conditions."""
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

    Decisions are made only for the next jobs on each node, because later jobs may still get better partners.
    Jobs that run alone are left to the batch system. A leader waits for all jobs that share its nodes now.
    While the batch system lists a leader's partner, the leader gets no other. No third job therefore joins
    when one of the two has just ended (as with the pairs of a matching in Zacarias et al. 2021, section
    4.4.1).

    Result: releases, then commits of partners, then commits of leaders.
    """
    state = _read_state(now, partitions, runtime_s)
    joins, leads = _next(state, plan)
    return [*state.broken, *_commits(state, joins, leads, growth)]


@dataclass(frozen=True)
class _State:
    """State of the batch system in one round, with the assignments made so far.

    The assignments in `broken` are withdrawn, those in `kept` remain, and the leaders in `moved` get other
    nodes. `hosts` are running leaders that may get a partner, `waiting` are jobs that may share, `queued` are
    all jobs that wait for nodes of their own, and `free` are nodes that no leader waits for.
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

    @cached_property
    def able(self) -> set[int]:
        """Ids of `waiting`."""
        return {job.id for job in self.waiting}

    @cached_property
    def hosting(self) -> set[int]:
        """Ids of `hosts`."""
        return {job.id for job in self.hosts}


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


def _planned(leaders: Sequence[BatchJob], waiting: Sequence[BatchJob], plan: Planned) -> list[Timed]:
    """The groups that `plan` makes of leaders and waiting jobs."""
    both = [*leaders, *waiting]
    return [([both[i] for i in group.jobs], group.duration_s) for group in plan(leaders, waiting)]


def _next(state: _State, plan: Planned) -> tuple[list[list[BatchJob]], list[LeaderGroup]]:
    """Pairs whose partner begins now, and the leaders that get nodes next, with their groups."""
    leaders = [*state.hosts, *(state.now.by_id[share.job] for share in state.kept if len(share.jobs) == 1)]
    planned = _planned(leaders, state.waiting, plan)
    wishes = _wishes(state, planned)
    joins, found = _allowed(state, planned, wishes)
    if lonely := [pair[0] for pair in wishes if pair not in joins]:
        taken = {job.id for pair in joins for job in pair} | _promised(state, planned)
        more = [*joins, *_second_choices(state, lonely, taken, found, plan)]
        allowed, turns = _allowed(state, planned, more)
        if len(allowed) > len(joins):
            joins, found = allowed, turns
    moved = [(share, [state.now.by_id[share.job]]) for share in state.moved]
    return joins, [*moved, *leader_groups(found, state.nodes)]


def _allowed(
    state: _State, planned: Sequence[Timed], wishes: Sequence[list[BatchJob]]
) -> tuple[list[list[BatchJob]], list[NextNodes]]:
    """The pairs that delay no job ahead of the partner, and the groups that get nodes next beside them."""
    kept = list(wishes)
    while True:
        found = next_nodes(_others(state, planned, kept), state.free, state.nodes, state.runtime_s)
        kept, late = split_joins(kept, found, state.nodes, state.runtime_s, state.now.now_s)
        # The partners of late pairs wait for nodes of their own, so other pairs may delay them.
        if not late:
            return kept, found


def _promised(state: _State, planned: Sequence[Timed]) -> set[int]:
    """Leaders that still wait for their nodes, and their partners."""
    others = state.able | state.hosting
    return {job.id for group, _ in planned if group[0].id not in others for job in group}


def _second_choices(
    state: _State,
    lonely: Sequence[BatchJob],
    taken: Container[int],
    found: Sequence[NextNodes],
    plan: Planned,
) -> list[list[BatchJob]]:
    """Other partners for running leaders whose best partner would delay a job ahead of it."""
    pairs = [[leader, job] for leader in lonely for job in state.waiting if job.id not in taken]
    allowed, _ = split_joins(pairs, found, state.nodes, state.runtime_s, state.now.now_s)
    if not allowed:
        return []
    leaders = {leader.id: leader for leader, _ in allowed}
    partners = {job.id: job for _, job in allowed}
    return _wishes(state, _planned([*leaders.values()], [*partners.values()], plan))


def _others(state: _State, planned: Sequence[Timed], joins: Sequence[list[BatchJob]]) -> list[Timed]:
    """Groups of jobs that wait for nodes of their own; a job whose partner joins a leader is alone."""
    joined = {job.id for pair in joins for job in pair}
    # Leaders start before all jobs that run alone, so nodes must be reserved for jobs that cannot share, too.
    found: list[Timed] = [([job], 0.0) for job in state.queued if job.id not in state.able]
    for group, duration_s in planned:
        rest = [job for job in group if job.id in state.able and job.id not in joined]
        if len(rest) == len(group):
            found.append((group, duration_s))
        elif group[0].id in state.able or group[0].id in state.hosting:
            found += [([job], 0.0) for job in rest]
    return found


def _wishes(state: _State, planned: Sequence[Timed]) -> list[list[BatchJob]]:
    """Running leaders, each with the partner that the plan gives it."""
    by_name = {node.name: node for node in state.now.nodes}
    n_idle = sum(node.name not in state.nodes.owners for node in state.free)
    return [
        group
        for group, _ in planned
        if len(group) == 2 and group[0].id in state.hosting and group[1].id in state.able
        # If enough nodes are idle, the batch system starts the job alone on these nodes.
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
    """The commit of a leader.

    The leader waits for the jobs in the queue for sharing that are on its nodes, and for the partners that
    will join them. It need not wait for jobs outside this queue, which do not share nodes.
    """
    names = set(share.nodes)
    there = {number for name in names for number in nodes.owners.get(name, ()) if number in shared}
    joining = {each.job for each in told if len(each.jobs) == 2 and names & set(each.nodes)}
    why = f"to share with {group[1].id}" if group[1:] else "another node is free"
    return Commit(share, tuple(sorted(there | joining)), (growth(group[0], group[1:]),), why)


def usable(now: Snapshot, partitions: Partitions) -> list[BatchNode]:
    """Nodes in both queues that accept jobs, sorted by name."""
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
    """Releases of all waiting jobs that have an assignment; if `names` are given, only on these nodes."""
    told = [(job, said[0]) for job in now.jobs if job.state == PENDING and (said := assignment_of(job))]
    return [_release(job, "asked for") for job, share in told if not names or set(names) & set(share.nodes)]


def _release(job: BatchJob, why: str) -> Release:
    return Release(job.id, own_limit_s(job), why)


def _broken(now: Snapshot, partitions: Partitions, said: Mapping[int, Assignment]) -> list[Release]:
    """Releases of jobs whose node or leader is gone, that a user has changed, or that will not begin."""
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
            why = "the job it waits for has left"
        if why:
            found.append(_release(job, why))
    return found


def _unbroken(said: Mapping[int, Assignment], broken: Sequence[Release]) -> list[Assignment]:
    gone = {action.job for action in broken}
    return [share for number, share in said.items() if number not in gone]


def _late(
    now: Snapshot, partitions: Partitions, kept: Sequence[Assignment], nodes: Occupancy
) -> list[Release]:
    """Releases of leaders that wait for overdue jobs although other nodes become free earlier."""
    others = [node for node in _free(now, partitions, kept) if node.name not in nodes.overdue]
    others.sort(key=lambda node: nodes.free_s[node.name])
    found = []
    for share in _leaders(now, kept):
        n, job = len(share.nodes), now.by_id[share.job]
        own_s = max(nodes.free_s[name] for name in share.nodes)
        fit = [node for node in others if fits(job, node)][:n]
        if nodes.overdue & set(share.nodes) and n == len(fit) and nodes.free_s[fit[-1].name] < own_s:
            found.append(_release(job, "the job it waits for is overdue"))
            others = [node for node in others if node not in fit]
    return found


def _is_elsewhere(job: BatchJob, nodes: tuple[str, ...]) -> bool:
    """Whether a job has not ended, but is neither on one of the nodes nor assigned to one of them."""
    told = assignment_of(job)
    here = job.nodes if job.is_on_nodes else told[0].nodes if told else ()
    return (job.is_on_nodes or job.state == PENDING) and not set(nodes) & set(here)


def _hosts(now: Snapshot, partitions: Partitions, kept: Sequence[Assignment]) -> list[BatchJob]:
    """Running leaders without a partner, on nodes that no other assigned job waits for."""
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
    """The assignments of leaders, in queue order."""
    return sorted((each for each in kept if len(each.jobs) == 1), key=lambda each: order(now.by_id[each.job]))


def _moved(
    now: Snapshot,
    partitions: Partitions,
    kept: Sequence[Assignment],
    broken: Sequence[Release],
    nodes: Occupancy,
) -> list[Assignment]:
    """New assignments of leaders to idle nodes for which no job ahead of them in the queue waits."""
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
