"""A number that no placement's objective can beat, from a linear program over kinds of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mpicoloc.bubble.propagation import POLICY_NUMBERS
from mpicoloc.core.arrays import Bools, Floats, Ints
from mpicoloc.place.problem import Problem


@dataclass(frozen=True)
class _JobClasses:
    """Jobs that are alike: program, number of nodes and policy.

    `cost` (n_kinds, n_levels) is the least that a job can add to the objective at each pressure.
    """

    first: Ints
    n_jobs: Ints
    n_nodes: Ints
    program: Ints
    is_mean: Bools
    cost: Floats


def lower_bound(problem: Problem, objective: str = "sum") -> float:
    """What no placement beats: the least sum or worst slowdown, or the largest speed-up.

    Unknown are how many slots next to jobs of one kind hold jobs of another kind. Each occupied slot has
    n_slots - 1 others on its node, of which only as many are empty as there are empty slots. A job's cost is
    at least (1) the largest convex function below its curve, at the mean pressure on its nodes (Jensen), and
    (2), if it waits for its slowest node and two jobs share a node, the mean of its curve over its nodes.
    Both are linear in the unknowns. Fractions of slots are allowed, and a job may meet many others, so the
    bound is no placement.
    """
    kinds = _job_classes(problem, objective)
    program = _Program(problem, kinds, is_worst=objective == "worst")
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
    # A measured matrix may fall by noise; what is below the curve everywhere still bounds it.
    cost = np.minimum.accumulate(np.array(least)[:, ::-1], axis=1)[:, ::-1]
    cost = -1 / cost if objective == "speedup" else cost
    return _JobClasses(first, count, sizes, problem.program[first], is_mean, cost)


_ALL_NODES = {POLICY_NUMBERS["interpolate"], POLICY_NUMBERS["all-max"]}


class _Program:
    """The linear program: meetings of kinds, and of each kind empty neighbours, pressure and cost."""

    def __init__(self, problem: Problem, kinds: _JobClasses, is_worst: bool) -> None:
        self.problem, self.kinds, self.is_worst = problem, kinds, is_worst
        self.n = len(kinds.first)
        self.one, self.other = np.triu_indices(self.n)
        self.empty, self.pressure, self.cost = (len(self.one) + i * self.n for i in range(3))
        self.worst = self.cost + self.n
        self.below, self.equal = _Rows(), _Rows()

    def solve(self) -> float:
        """The least objective."""
        from scipy.optimize import linprog  # imported here because only planning needs it

        self._neighbours()
        for kind in range(self.n):
            self._convex(kind)
            if self.problem.n_slots == 2 and not self.kinds.is_mean[kind]:
                self._slowest_node(kind)
            if self.is_worst:
                self.below.add([self.cost + kind, self.worst], [1.0, -1.0], 0.0)
        aim = np.zeros(self.worst + 1)
        if self.is_worst:
            aim[-1] = 1.0
        else:
            aim[self.cost : self.worst] = self.kinds.n_jobs
        limits = np.full((self.worst + 1, 2), [0.0, np.inf])
        limits[: self.empty, 1] = self._most_meetings()
        limits[self.cost :, 0] = -np.inf
        below, most = self.below.matrix(self.worst + 1)
        equal, totals = self.equal.matrix(self.worst + 1)
        found = linprog(aim, below, most, equal, totals, bounds=limits, method="highs")
        return self._of_undisturbed_jobs() if found.fun is None else float(found.fun)

    def _of_undisturbed_jobs(self) -> float:
        """The objective if no job met another: a bound in any case, for when the solver gives up."""
        least = self.kinds.cost.min(axis=1)
        return float(least.max() if self.is_worst else self.kinds.n_jobs @ least)

    def _most_meetings(self) -> Floats:
        """Two jobs meet on as many nodes as the smaller one has, at most; within a kind both ends count."""
        count, size = self.kinds.n_jobs, self.kinds.n_nodes
        others = count[self.other] - (self.one == self.other)
        return np.asarray(count[self.one] * others * np.minimum(size[self.one], size[self.other]), float)

    def _meetings_of(self, kind: int) -> tuple[Ints, Ints]:
        """Unknowns of a kind's meetings, and the kind that is met."""
        x = np.flatnonzero((self.one == kind) | (self.other == kind))
        return x, np.where(self.one[x] == kind, self.other[x], self.one[x])

    def _neighbours(self) -> None:
        """Every occupied slot has n_slots - 1 neighbours; only so many of them can be empty."""
        n_others = self.problem.n_slots - 1
        for kind in range(self.n):
            x, _ = self._meetings_of(kind)
            total = float(n_others * self.kinds.n_jobs[kind] * self.kinds.n_nodes[kind])
            self.equal.add([*x, self.empty + kind], np.ones(len(x) + 1), total)
        empties = range(self.empty, self.empty + self.n)
        self.below.add(empties, np.ones(self.n), float(n_others * self.problem.n_free))

    def _convex(self, kind: int) -> None:
        """(1): the cost is above every line under the curve, at the mean pressure."""
        x, met = self._meetings_of(kind)
        push = self.problem.responses.push[self.kinds.program[kind]][self.kinds.program]
        n_slots_taken = self.kinds.n_jobs[kind] * self.kinds.n_nodes[kind]
        part = push[met] * self._least_combined_frac(push) / n_slots_taken
        self.equal.add([*x, self.pressure + kind], [*part, -1.0], 0.0)
        levels, cost = self.problem.responses.levels, self.kinds.cost[kind]
        for a, b in pairwise(convex_hull(levels, cost)):
            slope = (cost[b] - cost[a]) / (levels[b] - levels[a])
            self.below.add(
                [self.pressure + kind, self.cost + kind], [slope, -1.0], slope * levels[a] - cost[a]
            )

    def _slowest_node(self, kind: int) -> None:
        """(2): the slowest node is at least as slow as the mean one."""
        x, met = self._meetings_of(kind)
        levels, cost = self.problem.responses.levels, self.kinds.cost[kind]
        push = self.problem.responses.push[self.kinds.program[kind]][self.kinds.program[met]]
        n_slots_taken = self.kinds.n_jobs[kind] * self.kinds.n_nodes[kind]
        beside = np.interp(push, levels, cost) / n_slots_taken
        columns = [*x, self.empty + kind, self.cost + kind]
        self.below.add(columns, [*beside, cost[0] / n_slots_taken, -1.0], 0.0)

    def _least_combined_frac(self, push: Floats) -> float:
        """Of the sum of pressures on a node, the part that the rule keeps at least.

        Every rule gives at least the largest pressure; the whole sum where it is a plain one, or where one
        neighbour is all there can be.
        """
        n = self.problem.n_slots - 1
        if n <= 1:
            return 1.0
        worst = np.full(n, push.max())
        together = float(self.problem.responses.rule(worst))
        return max(together / worst.sum(), 1.0 / n) if worst.sum() > 0 else 1.0


class _Rows:
    """Rows of a sparse matrix, each with its limit."""

    def __init__(self) -> None:
        self._columns: list[Ints] = []
        self._values: list[Floats] = []
        self._limits: list[float] = []

    def add(self, columns: Iterable[int], values: Iterable[float], limit: float) -> None:
        """One more row."""
        self._columns.append(np.array(list(columns), np.int64))
        self._values.append(np.array(list(values), np.float64))
        self._limits.append(limit)

    def matrix(self, n_columns: int) -> tuple[Any, Floats]:
        """The rows, and their limits."""
        from scipy.sparse import csr_matrix

        starts = np.concatenate([[0], np.cumsum([len(row) for row in self._columns])])
        parts = np.concatenate(self._values), np.concatenate(self._columns), starts
        return csr_matrix(parts, shape=(len(self._columns), n_columns)), np.array(self._limits)


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
