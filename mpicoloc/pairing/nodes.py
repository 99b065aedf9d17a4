"""On which of several nodes the groups of a plan run, and when they begin."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from mpicoloc.errors import UsageError


@dataclass(frozen=True)
class Slot:
    """Where and when a group runs."""

    node: int
    start_s: float


def spread(durations_s: Sequence[float], n_nodes: int) -> list[Slot]:
    """The longest first, each on the node that is free first.

    Result: in the order of `durations_s`. Raises `UsageError` if there is no node.

    Graham 1969: the makespan is at most 4/3 - 1/(3 n_nodes) of the least possible one.
    """
    if n_nodes < 1:
        raise UsageError(f"nodes must be >= 1, got {n_nodes}")
    free = [(0.0, node) for node in range(n_nodes)]
    slots = [Slot(0, 0.0)] * len(durations_s)
    for i in sorted(range(len(durations_s)), key=lambda i: (-durations_s[i], i)):
        start_s, node = heapq.heappop(free)
        slots[i] = Slot(node, start_s)
        heapq.heappush(free, (start_s + durations_s[i], node))
    return slots


def makespan_s(durations_s: Sequence[float], slots: Sequence[Slot]) -> float:
    """When the last group is over, s."""
    ends = (slot.start_s + length for slot, length in zip(slots, durations_s, strict=True))
    return max(ends, default=0.0)
