"""A placement with what it is worth: objective, bound, and every job's slowdown."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.errors import DataError, UsageError
from mpicoloc.place.anneal import Annealing, SlotPlacement, anneal, cost_of
from mpicoloc.place.bound import lower_bound
from mpicoloc.place.exhaustive import search
from mpicoloc.place.problem import OBJECTIVES, Problem
from mpicoloc.place.state import Replicas

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
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
    bound = value if exact is not None else _rounded(lower_bound(problem, objective), value)
    return Placed(
        problem,
        objective,
        found.slots,
        _estimates(problem_of, found),
        value,
        bound,
        "annealing" if exact is None else "exhaustive",
    )


def _rounded(bound: float, value: float) -> float:
    """The bound, or the value that it equals within what a linear program can tell."""
    return value if math.isclose(bound, value, rel_tol=ROUNDING_FRAC) else bound


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
