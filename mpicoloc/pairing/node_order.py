"""Which group of jobs gets which nodes next, in queue order: who leads there, and who may join."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpicoloc.core.batch_system import BatchJob, BatchNode
from mpicoloc.pairing.assignment import Assignment
from mpicoloc.pairing.occupancy import LATE, Occupancy

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
