"""A placement with what it is worth: objective, bound, and every job's slowdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, count
from math import comb

import numpy as np

from mpicoloc.core.arrays import Floats, Ints
from mpicoloc.core.estimate import Estimate
from mpicoloc.errors import DataError, UsageError
from mpicoloc.place.anneal import Annealing, Replicas, SlotPlacement, anneal, best, cost_of
from mpicoloc.place.bound import lower_bound
from mpicoloc.place.problem import OBJECTIVES, Problem

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


ROUNDING_FRAC = 1e-9
"""The linear program's solution is as exact as this."""


@dataclass(frozen=True)
class Placed:
    """Jobs on nodes.

    Parameters
    ----------
    problem : Problem
    objective : str
        One of `problem.OBJECTIVES`.
    slots : ndarray of int, shape (n_nodes, n_slots)
        Job in each slot, -1 where none is.
    slowdowns : tuple of Estimate
        Of each job.
    value : float
        The objective.
    bound : float
        What no placement beats; the objective itself if all were looked at.
    method : str
        "exhaustive" or "annealing".
    """

    problem: Problem
    objective: str
    slots: Ints
    slowdowns: tuple[Estimate, ...]
    value: float
    bound: float
    method: str

    @property
    def gap_frac(self) -> float:
        """How far the objective can be from the best one, at most."""
        of = self.bound / self.value if self.objective == "speedup" else self.value / self.bound
        return max(of - 1, 0.0)

    def nodes_of(self, job: int) -> list[int]:
        """Nodes of a job, in order."""
        return [int(node) for node in np.flatnonzero((self.slots == job).any(axis=1))]

    def slot_of(self, job: int, node: int) -> int:
        """Which slot of a node a job has."""
        return int(np.flatnonzero(self.slots[node] == job)[0])


def place(
    problem_of: Callable[[str], Problem],
    rng: np.random.Generator,
    objective: str = "sum",
    settings: Annealing | None = None,
) -> Placed:
    """The best placement: of all of them where they are few, else by annealing.

    Parameters
    ----------
    problem_of : callable
        The problem for an end of the intervals: "value", "low", "high".
    rng : Generator
    objective : str
        One of `problem.OBJECTIVES`.
    settings : Annealing, optional

    Returns
    -------
    Placed

    Raises
    ------
    UsageError
        If there is no such objective.
    DataError
        If no placement was found that keeps all constraints.
    """
    if objective not in OBJECTIVES:
        raise UsageError(f"no objective {objective!r}; there are {', '.join(OBJECTIVES)}")
    problem = problem_of("value")
    exact = search(problem, objective)
    found = exact if exact is not None else anneal(problem, rng, objective, settings)
    if found.n_broken:
        raise DataError(
            f"no placement keeps all constraints: the best {'one' if exact else 'one found'} breaks "
            f"{found.n_broken}; loosen them, or give more nodes or slots"
        )
    value = abs(cost_of(found.slowdown, objective))
    # Constraints make the best placement worse than the bound, which knows none of them.
    bound = value if exact is not None else lower_bound(problem, objective)
    if math.isclose(bound, value, rel_tol=ROUNDING_FRAC):
        bound = value
    return Placed(
        problem,
        objective,
        found.slots,
        _estimates(problem_of, found),
        value,
        bound,
        "annealing" if exact is None else "exhaustive",
    )


def _estimates(problem_of: Callable[[str], Problem], found: SlotPlacement) -> tuple[Estimate, ...]:
    """Slowdown of each job with the ends of its interval."""
    low, high = (slowdowns_of(problem_of(end), found.slots) for end in ("low", "high"))
    return tuple(
        Estimate(value, min(value, lower), max(value, upper), 0, "1", "placement")
        for value, lower, upper in zip(found.slowdown, low, high, strict=True)
    )


def slowdowns_of(problem: Problem, slots: Ints) -> Floats:
    """Slowdown of each job of a placement: job in each slot (n_nodes, n_slots), -1 where none is."""
    return Replicas(problem, slots[None], "sum").slowdowns(0)
