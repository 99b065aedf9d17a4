"""The best placement with its objective, a bound, and every job's slowdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, count, pairwise
from math import comb
from typing import Any

import numpy as np

from mpicoloc.bubble.propagation import POLICY_NUMBERS
from mpicoloc.core.profile import Bools, Estimate, Floats, Ints
from mpicoloc.errors import DataError, UsageError
from mpicoloc.place.anneal import (
    OBJECTIVES,
    Annealing,
    Problem,
    Replicas,
    SlotPlacement,
    anneal,
    best,
    cost_of,
)

MAX_PLACEMENTS = 3_000
MAX_GROUPS = 2_000
"""Largest number of possible sets of jobs on one node."""
MAX_STEPS = 100_000
"""Limit on the steps of the search: for some sets of jobs most branches lead to no placement."""


class _TooMany(Exception):
    """The search takes more than `MAX_STEPS` steps."""


def search(problem: Problem, objective: str = "sum", most: int = MAX_PLACEMENTS) -> SlotPlacement | None:
    """The best of all placements; None if there are more than `most`, or the search takes too many steps."""
    n_jobs = len(problem.jobs)
    n_groups = sum(comb(n_jobs, n) for n in range(problem.n_slots + 1))
    if n_jobs > 32 or problem.n_nodes > 64 or n_groups > MAX_GROUPS:
        return None
    found = all_placements(tuple(problem.sizes.tolist()), problem.n_nodes, problem.n_slots, most)
    return None if found is None else best(Replicas(problem, found, objective))


@lru_cache(maxsize=8)
def all_placements(sizes: tuple[int, ...], n_nodes: int, n_slots: int, most: int) -> Ints | None:
    """Jobs in the slots of every placement; placements that differ only in the order of nodes count once.

    Shapes: result (n_placements, n_nodes, n_slots). An empty slot has -1. The result is None if there are
    more than `most` placements, or the search takes too many steps.
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
    """Every choice of `n_nodes` groups, in order from `first`, that gives each job its `left` nodes."""
    if next(steps) > MAX_STEPS:
        raise _TooMany
    if n_nodes == 0:
        yield []
        return
    if max(left, default=0) > n_nodes or sum(left) > n_nodes * n_slots:
        return
    for i in range(first, len(groups)):
        group = groups[i]
        # Groups are sorted from large to small, so the remaining groups cannot hold the jobs that are left.
        if sum(left) > n_nodes * len(group):
            return
        if all(left[job] for job in group):
            for job in group:
                left[job] -= 1
            for rest in _placements(groups, i, left, n_nodes - 1, n_slots, steps):
                yield [group, *rest]
            for job in group:
                left[job] += 1


# A bound on the objective of any placement, from a linear program over kinds of jobs.


@dataclass(frozen=True)
class _JobClasses:
    """Classes of jobs with the same program, number of nodes and policy.

    `cost` (n_kinds, n_levels) is the least that a job can add to the objective at each pressure.
    """

    first: Ints
    n_jobs: Ints
    n_nodes: Ints
    program: Ints
    is_mean: Bools
    cost: Floats


def lower_bound(problem: Problem, objective: str = "sum") -> float:
    """A bound for all placements: at most their sum or worst slowdown, or at least their speed-up.

    For each pair of kinds, an unknown counts the pairs of slots on one node that hold jobs of these kinds.
    Each occupied slot has n_slots - 1 neighbours on its node; the number of empty slots limits how many of
    these neighbours are empty. A job's cost is at least (1) the largest convex function below its curve,
    at the mean pressure on its nodes (Jensen), and (2), if it waits for its slowest node and a node has two
    slots, the mean of its curve over its nodes. Both are linear in the unknowns. The linear program allows
    fractions of slots, and any mix of co-runners, so its solution need not be a placement.
    """
    program = _Program(problem, _job_classes(problem, objective), is_worst=objective == "worst")
    found = program.solve()
    return -found if objective == "speedup" else found


def _job_classes(problem: Problem, objective: str) -> _JobClasses:
    keys = np.stack([problem.kind, problem.policy], axis=1)
    _, first, count = np.unique(keys, axis=0, return_index=True, return_counts=True)
    sizes = problem.sizes[first]
    is_mean = problem.policy[first] == POLICY_NUMBERS["interpolate"]
    tables = problem.responses.slowdown[problem.kind[first]]
    least = [
        table[:, size] if policy in _ALL_NODES else table[:, 1 : size + 1].min(axis=1)
        for table, size, policy in zip(tables, sizes, problem.policy[first], strict=True)
    ]
    # Noise can make a measured matrix decrease; the largest non-decreasing curve below it is still a bound.
    cost = np.minimum.accumulate(np.array(least)[:, ::-1], axis=1)[:, ::-1]
    cost = -1 / cost if objective == "speedup" else cost
    return _JobClasses(first, count, sizes, problem.program[first], is_mean, cost)


_ALL_NODES = {POLICY_NUMBERS["interpolate"], POLICY_NUMBERS["all-max"]}


class _Program:
    """The linear program.

    The unknowns are meetings of each pair of kinds, and empty neighbours, pressure and cost of each kind.
    """

    def __init__(self, problem: Problem, kinds: _JobClasses, is_worst: bool) -> None:
        self.problem, self.kinds, self.is_worst = problem, kinds, is_worst
        self.n = len(kinds.first)
        self.one, self.other = np.triu_indices(self.n)
        self.empty, self.pressure, self.cost = (len(self.one) + i * self.n for i in range(3))
        self.worst = self.cost + self.n
        self.below: list[_Row] = []
        self.equal: list[_Row] = []

    def solve(self) -> float:
        """The least objective."""
        from scipy.optimize import linprog  # imported here because only planning needs it

        self._neighbours()
        for kind in range(self.n):
            self._convex(kind)
            if self.problem.n_slots == 2 and not self.kinds.is_mean[kind]:
                self._slowest_node(kind)
            if self.is_worst:
                self.below.append(([self.cost + kind, self.worst], [1.0, -1.0], 0.0))
        aim = np.zeros(self.worst + 1)
        if self.is_worst:
            aim[-1] = 1.0
        else:
            aim[self.cost : self.worst] = self.kinds.n_jobs
        limits = np.full((self.worst + 1, 2), [0.0, np.inf])
        limits[: self.empty, 1] = self._most_meetings()
        limits[self.cost :, 0] = -np.inf
        below, most = _matrix(self.below, self.worst + 1)
        equal, totals = _matrix(self.equal, self.worst + 1)
        found = linprog(aim, below, most, equal, totals, bounds=limits, method="highs")
        return self._of_undisturbed_jobs() if found.fun is None else float(found.fun)

    def _of_undisturbed_jobs(self) -> float:
        """The objective if no job had a co-runner. It is always a bound, and is used if the solver fails."""
        least = self.kinds.cost.min(axis=1)
        return float(least.max() if self.is_worst else self.kinds.n_jobs @ least)

    def _most_meetings(self) -> Floats:
        """Most meetings of each pair of kinds: each pair of jobs meets on all nodes of the smaller job.

        Within a kind, a meeting counts for both jobs.
        """
        count, size = self.kinds.n_jobs, self.kinds.n_nodes
        others = count[self.other] - (self.one == self.other)
        return np.asarray(count[self.one] * others * np.minimum(size[self.one], size[self.other]), float)

    def _meetings_of(self, kind: int) -> tuple[Ints, Ints]:
        """Indexes of the unknowns for a kind's meetings, and the other kind of each."""
        x = np.flatnonzero((self.one == kind) | (self.other == kind))
        return x, np.where(self.one[x] == kind, self.other[x], self.one[x])

    def _neighbours(self) -> None:
        """Every occupied slot has n_slots - 1 neighbours; free slots limit how many of these are empty."""
        n_others = self.problem.n_slots - 1
        for kind in range(self.n):
            x, _ = self._meetings_of(kind)
            total = float(n_others * self.kinds.n_jobs[kind] * self.kinds.n_nodes[kind])
            self.equal.append(([*x, self.empty + kind], [1.0] * (len(x) + 1), total))
        empties = range(self.empty, self.empty + self.n)
        self.below.append((empties, [1.0] * self.n, float(n_others * self.problem.n_free)))

    def _convex(self, kind: int) -> None:
        """(1): at the mean pressure, the cost is at or above every edge of the curve's lower convex hull."""
        x, met = self._meetings_of(kind)
        push = self.problem.responses.push[self.kinds.program[kind]][self.kinds.program]
        n_slots_taken = self.kinds.n_jobs[kind] * self.kinds.n_nodes[kind]
        part = push[met] * self._least_combined_frac(push) / n_slots_taken
        self.equal.append(([*x, self.pressure + kind], [*part, -1.0], 0.0))
        levels, cost = self.problem.responses.levels, self.kinds.cost[kind]
        for a, b in pairwise(convex_hull(levels, cost)):
            slope = (cost[b] - cost[a]) / (levels[b] - levels[a])
            unknowns = [self.pressure + kind, self.cost + kind]
            self.below.append((unknowns, [slope, -1.0], slope * levels[a] - cost[a]))

    def _slowest_node(self, kind: int) -> None:
        """(2): the slowest node is at least as slow as the nodes on average."""
        x, met = self._meetings_of(kind)
        levels, cost = self.problem.responses.levels, self.kinds.cost[kind]
        push = self.problem.responses.push[self.kinds.program[kind]][self.kinds.program[met]]
        n_slots_taken = self.kinds.n_jobs[kind] * self.kinds.n_nodes[kind]
        beside = np.interp(push, levels, cost) / n_slots_taken
        columns = [*x, self.empty + kind, self.cost + kind]
        self.below.append((columns, [*beside, cost[0] / n_slots_taken, -1.0], 0.0))

    def _least_combined_frac(self, push: Floats) -> float:
        """Least ratio of the combined pressure to the sum of pressures on a node.

        Every rule gives at least the largest pressure. The ratio is 1 for a plain sum, and for at most one
        neighbour.
        """
        n = self.problem.n_slots - 1
        if n <= 1:
            return 1.0
        worst = np.full(n, push.max())
        together = float(self.problem.responses.rule(worst))
        return max(together / worst.sum(), 1.0 / n) if worst.sum() > 0 else 1.0


_Row = tuple[Sequence[int], Sequence[float], float]
"""A row of the linear program: columns, their coefficients, and the right-hand side."""


def _matrix(rows: Sequence[_Row], n_columns: int) -> tuple[Any, Floats]:
    """The sparse matrix of these rows, and their right-hand sides."""
    from scipy.sparse import csr_matrix

    columns, values, limits = zip(*rows, strict=True)
    starts = np.cumsum([0, *map(len, columns)])
    parts = np.concatenate(values), np.concatenate(columns), starts
    return csr_matrix(parts, shape=(len(rows), n_columns)), np.array(limits)


def convex_hull(x: Floats, y: Floats) -> list[int]:
    """Indexes of the points on the lower convex hull of a curve, in order."""
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        hull.append(i)
    return hull


ROUNDING_FRAC = 1e-9
"""Relative accuracy of the solution of the linear program."""


@dataclass(frozen=True)
class Placed:
    """Jobs on nodes.

    Parameters
    ----------
    problem : Problem
    objective : str
        One of `problem.OBJECTIVES`.
    slots : ndarray of int, shape (n_nodes, n_slots)
        Job in each slot, -1 if empty.
    slowdowns : tuple of Estimate
        Slowdown of each job.
    value : float
        The objective.
    bound : float
        Value that no placement beats; the objective itself if the search was exhaustive.
    method : str
        "exhaustive" or "annealing".
    n_link_pairs : int or None
        Number of pairs of jobs that share links; None: no topology is given.
    """

    problem: Problem
    objective: str
    slots: Ints
    slowdowns: tuple[Estimate, ...]
    value: float
    bound: float
    method: str
    n_link_pairs: int | None = None

    @property
    def gap_frac(self) -> float:
        """The largest possible relative gap between the objective and the best objective."""
        of = self.bound / self.value if self.objective == "speedup" else self.value / self.bound
        return max(of - 1, 0.0)

    def nodes_of(self, job: int) -> list[int]:
        """Nodes of a job, in order."""
        return [int(node) for node in np.flatnonzero((self.slots == job).any(axis=1))]

    def slot_of(self, job: int, node: int) -> int:
        """The slot that a job has on a node."""
        return int(np.flatnonzero(self.slots[node] == job)[0])


def place(
    problem_of: Callable[[str], Problem],
    rng: np.random.Generator,
    objective: str = "sum",
    settings: Annealing | None = None,
) -> Placed:
    """The best placement, by exhaustive search if placements are few, else by annealing.

    Parameters
    ----------
    problem_of : callable
        Returns the problem for an end of the intervals: "value", "low" or "high".
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
        If the search found no placement that meets all constraints.
    """
    if objective not in OBJECTIVES:
        raise UsageError(f"unknown objective {objective!r}: choose one of {', '.join(OBJECTIVES)}")
    problem = problem_of("value")
    exact = search(problem, objective)
    found = exact if exact is not None else anneal(problem, rng, objective, settings)
    if found.n_broken:
        raise DataError(
            f"no placement meets all constraints: the best {'one' if exact else 'one found'} breaks "
            f"{found.n_broken}; relax them, or give more nodes or slots"
        )
    value = abs(cost_of(found.slowdown, objective))
    # The bound ignores constraints, so if there are constraints, the gap to the bound can be large.
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
    """Slowdown of each job of a placement: job in each slot (n_nodes, n_slots), -1 if empty."""
    return Replicas(problem, slots[None], "sum").slowdowns(0)
