"""What a placement is chosen by: jobs, nodes with slots, and what jobs do to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.bubbles import MAX_LEVEL, JobRequest, PropagationMatrix
from mpicoloc.core.features import JobFeatures
from mpicoloc.errors import DataError, UsageError
from mpicoloc.schedule.placement import feasible
from mpicoloc.schedule.placement.constraints import Constraints
from mpicoloc.slowdown.bubbles.combining import Rule, rule
from mpicoloc.slowdown.bubbles.model import BubbleModel
from mpicoloc.slowdown.bubbles.uneven import DEFAULT_POLICY, POLICY_NUMBERS, even_pressures
from mpicoloc.slowdown.slowdown import SlowdownModel, pair_slowdowns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
OBJECTIVES = {
    "sum": "sum of the jobs' slowdowns (Han et al. 2016, Algorithm 5)",
    "speedup": "weighted speed-up: sum of 1 / slowdown, as large as possible",
    "worst": "the largest slowdown",
}


@dataclass(frozen=True)
class Responses:
    """What jobs make of the pressures on their nodes.

    Parameters
    ----------
    push : ndarray, shape (n_programs, n_programs)
        At [p, q] the pressure on a job of program p from one of q on the same node.
    rule : callable
        Pressure of several co-runners from that of each; see `combining.Rule`.
    levels : ndarray, shape (n_levels,)
        Increasing pressures, from 0.
    slowdown : ndarray, shape (n_kinds, n_levels, max_nodes + 1)
        Of each kind of job (program and number of nodes) at each of `levels` on so many of its nodes.
    """

    push: Floats
    rule: Rule
    levels: Floats
    slowdown: Floats


@dataclass(frozen=True)
class Problem:
    """Jobs to be placed on nodes that are all alike.

    Parameters
    ----------
    jobs : tuple of JobRequest
    n_nodes, n_slots : int
        Nodes, and jobs that one may hold.
    program, kind, policy : ndarray of int, shape (n_jobs,)
        Index into `responses.push`, into `responses.slowdown`, and number of `POLICY_NUMBERS`.
    responses : Responses
    limit : ndarray, shape (n_jobs,)
        Largest slowdown allowed; infinite: any.
    is_apart : ndarray of bool, shape (n_jobs, n_jobs), or None
        Which jobs may not share a node; None: all may.
    constraints : Constraints
    """

    jobs: tuple[JobRequest, ...]
    n_nodes: int
    n_slots: int
    program: Ints
    kind: Ints
    policy: Ints
    responses: Responses
    limit: Floats
    is_apart: Bools | None
    constraints: Constraints

    @property
    def sizes(self) -> Ints:
        """Nodes of each job."""
        return np.array([job.n_nodes for job in self.jobs], np.int64)

    @property
    def n_free(self) -> int:
        """Slots that stay empty."""
        return self.n_nodes * self.n_slots - int(self.sizes.sum())

    def slowdowns(self, jobs: Ints, pressures: Floats, has_node: Bools) -> Floats:
        """Slowdown of these jobs.

        Parameters
        ----------
        jobs : ndarray of int, shape (n,)
        pressures : ndarray, shape (n, max_nodes)
            On each node of each job.
        has_node : ndarray of bool, same shape
        """
        level, n_disturbed = even_pressures(pressures, has_node, self.policy[jobs])
        grid, table = self.responses.levels, self.responses.slowdown
        above = np.clip(np.searchsorted(grid, level, "right"), 1, len(grid) - 1)
        part = np.minimum((level - grid[above - 1]) / (grid[above] - grid[above - 1]), 1.0)
        kind = self.kind[jobs]
        lower, upper = table[kind, above - 1, n_disturbed], table[kind, above, n_disturbed]
        return np.asarray(lower + part * (upper - lower))


def of_bubbles(
    jobs: Sequence[JobRequest],
    n_nodes: int,
    n_slots: int,
    model: BubbleModel,
    matrices: Mapping[str, PropagationMatrix] | None = None,
    constraints: Constraints | None = None,
    end: str = "value",
) -> Problem:
    """A problem by curves, scores and policies, as in Han et al. 2016, section 5.1.

    Parameters
    ----------
    jobs : sequence of JobRequest
    n_nodes, n_slots : int
    model : BubbleModel
    matrices : mapping of str to PropagationMatrix, optional
        Of programs, by name. One that is not there is taken to wait for its slowest node:
        one disturbed node counts as much as all, the upper end of what is possible.
    constraints : Constraints, optional
    end : str
        "value", or "low" or "high" for that end of the intervals of scores and curves.

    Raises
    ------
    DataError
        If a program has no curve, or the jobs cannot be placed.
    UsageError
        If nodes, slots or constraints are none.
    """
    names = list(dict.fromkeys(job.program for job in jobs))
    curves = {name: model.curve(name) for name in names}
    of_curve = "slowdown" if end == "value" else end
    scores = np.clip([getattr(model.programs[name].score, end) for name in names], 0, MAX_LEVEL)
    matrices = matrices or {}
    kinds = list(dict.fromkeys((job.program, job.n_nodes) for job in jobs))
    grid = np.unique(np.concatenate([np.arange(9.0), *(curve.levels for curve in curves.values())]))
    table = np.ones((len(kinds), len(grid), max((size for _, size in kinds), default=0) + 1))
    for row, (name, size) in zip(table, kinds, strict=True):
        if name in matrices:
            row[:, : size + 1] = np.maximum(_stretched(matrices[name], grid, size), 1.0)
        else:
            curve = np.interp(grid, curves[name].levels, getattr(curves[name], of_curve))
            row[:, 1 : size + 1] = curve[:, None]
    policies = {name: model.programs[name].policy or DEFAULT_POLICY for name in names}
    responses = Responses(np.tile(scores, (len(names), 1)), rule(model.combine), grid, table)
    return _problem(jobs, n_nodes, n_slots, names, kinds, policies, responses, constraints)


def _stretched(matrix: PropagationMatrix, grid: Floats, n_nodes: int) -> Floats:
    """A matrix at other levels, and for a job of another number of nodes: the same part of them disturbed."""
    rows = np.vstack([np.ones(matrix.n_nodes + 1), matrix.times])
    at_levels = np.array([np.interp(grid, np.arange(len(rows)), column) for column in rows.T])
    places = np.arange(n_nodes + 1) / n_nodes * matrix.n_nodes
    return np.array([np.interp(places, np.arange(matrix.n_nodes + 1), level) for level in at_levels.T])


def of_model(
    jobs: Sequence[JobRequest],
    n_nodes: int,
    n_slots: int,
    model: SlowdownModel,
    features: Mapping[str, JobFeatures],
    policy: str = "all-max",
    constraints: Constraints | None = None,
    end: str = "value",
) -> Problem:
    """A problem by any slowdown model, from what each program suffers beside each other one.

    Parameters
    ----------
    jobs : sequence of JobRequest
    n_nodes, n_slots : int
    model : SlowdownModel
    features : mapping of str to JobFeatures
        Of each program of the jobs.
    policy : str
        What a job makes of different slowdowns on its nodes: "all-max", the worst one, or "interpolate",
        their mean.
    constraints : Constraints, optional
    end : str
        "value", or "low" or "high" for that end of the predictions' intervals.

    Raises
    ------
    DataError
        If the model does not know a program, or the jobs cannot be placed.
    UsageError
        If nodes, slots, policy or constraints are none.

    Notes
    -----
    A pressure is here the time lost, slowdown - 1, and times lost to several co-runners are added, as
    `slowdown.together` does.
    """
    if policy not in ("all-max", "interpolate"):
        raise UsageError(f"a model of pairs needs the policy all-max or interpolate, got {policy!r}")
    names = list(dict.fromkeys(job.program for job in jobs))
    unknown = next((name for name in names if name not in features), None)
    if unknown is not None:
        raise DataError(
            f"nothing is known of program {unknown!r}: give a profile of it, or leave its jobs out"
        )
    lost = getattr(pair_slowdowns(model, [features[name] for name in names]), end) - 1
    kinds = list(dict.fromkeys((job.program, job.n_nodes) for job in jobs))
    grid = np.array([0.0, max(float(lost.max(initial=0.0)), 1e-9) * max(n_slots - 1, 1)])
    table = np.ones((len(kinds), 2, max((size for _, size in kinds), default=0) + 1))
    table[:, 1, 1:] += grid[1]
    responses = Responses(lost, _plain_sum, grid, table)
    policies = dict.fromkeys(names, policy)
    return _problem(jobs, n_nodes, n_slots, names, kinds, policies, responses, constraints)


def _plain_sum(pressures: Floats) -> Floats:
    return np.asarray(pressures.sum(axis=-1))


def _problem(
    jobs: Sequence[JobRequest],
    n_nodes: int,
    n_slots: int,
    names: Sequence[str],
    kinds: Sequence[tuple[str, int]],
    policies: Mapping[str, str],
    responses: Responses,
    constraints: Constraints | None,
) -> Problem:
    constraints = constraints or Constraints()
    feasible.check(jobs, n_nodes, n_slots, constraints)
    index = {job.id: i for i, job in enumerate(jobs)}
    limit = np.full(len(jobs), np.inf)
    for name, most in constraints.at_most.items():
        limit[index[name]] = most
    return Problem(
        tuple(jobs),
        n_nodes,
        n_slots,
        np.array([names.index(job.program) for job in jobs], np.int64),
        np.array([kinds.index((job.program, job.n_nodes)) for job in jobs], np.int64),
        np.array([POLICY_NUMBERS[policies[job.program]] for job in jobs], np.int64),
        responses,
        limit,
        _apart(index, constraints),
        constraints,
    )


def _apart(index: Mapping[str, int], constraints: Constraints) -> Bools | None:
    if not (constraints.apart or constraints.whole):
        return None
    found = np.zeros((len(index), len(index)), bool)
    for one, other in constraints.apart:
        found[index[one], index[other]] = found[index[other], index[one]] = True
    for name in constraints.whole:
        found[index[name]] = found[:, index[name]] = True
    np.fill_diagonal(found, False)
    return found
