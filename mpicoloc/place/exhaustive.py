"""All placements of a small problem: nodes are alike, so only which jobs meet on how many of them counts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, count
from math import comb

import numpy as np
from numpy.typing import NDArray

from mpicoloc.place.anneal import SlotPlacement, best
from mpicoloc.place.problem import Problem
from mpicoloc.place.state import Replicas

Ints = NDArray[np.int64]
MAX_PLACEMENTS = 3_000
MAX_GROUPS = 2_000
"""Sets of jobs that may meet on a node."""
MAX_STEPS = 100_000
"""Of the search: some jobs leave many ways that lead to no placement."""


class _TooMany(Exception):
    """The search has no end in sight."""


def search(problem: Problem, objective: str = "sum", most: int = MAX_PLACEMENTS) -> SlotPlacement | None:
    """The best of all placements; None if there are more than `most`, or too many ways to look through."""
    n_jobs = len(problem.jobs)
    n_groups = sum(comb(n_jobs, n) for n in range(problem.n_slots + 1))
    if n_jobs > 32 or problem.n_nodes > 64 or n_groups > MAX_GROUPS:
        return None
    found = all_placements(tuple(problem.sizes.tolist()), problem.n_nodes, problem.n_slots, most)
    return None if found is None else best(Replicas(problem, found, objective))


@lru_cache(maxsize=8)
def all_placements(sizes: tuple[int, ...], n_nodes: int, n_slots: int, most: int) -> Ints | None:
    """Jobs in the slots of every placement that is not another one with its nodes in another order.

    Shapes: result (n_placements, n_nodes, n_slots). Result: -1 where no job is; None: there are more than
    `most`, or too many steps to find them.
    """
    groups = [group for n in range(n_slots, -1, -1) for group in combinations(range(len(sizes)), n)]
    found: list[list[tuple[int, ...]]] = []
    try:
        for placement in _placements(groups, 0, list(sizes), n_nodes, n_slots, count()):
            found.append(placement)
            if len(found) > most:
                return None
    except _TooMany:
        return None
    rows = [[group + (-1,) * (n_slots - len(group)) for group in one] for one in found]
    return np.array(rows, np.int64).reshape(len(found), n_nodes, n_slots)


def _placements(
    groups: list[tuple[int, ...]],
    first: int,
    left: list[int],
    n_nodes: int,
    n_slots: int,
    steps: Iterator[int],
) -> Iterator[list[tuple[int, ...]]]:
    """Every choice of groups, in their order from `first`, for so many nodes and what is left of each job."""
    if next(steps) > MAX_STEPS:
        raise _TooMany
    if n_nodes == 0:
        yield []
        return
    if max(left, default=0) > n_nodes or sum(left) > n_nodes * n_slots:
        return
    for i in range(first, len(groups)):
        group = groups[i]
        # Groups come in falling size: those that follow cannot hold what is left.
        if sum(left) > n_nodes * len(group):
            return
        if all(left[job] for job in group):
            for job in group:
                left[job] -= 1
            for rest in _placements(groups, i, left, n_nodes - 1, n_slots, steps):
                yield [group, *rest]
            for job in group:
                left[job] += 1
