"""What a placement is chosen by: jobs, nodes with slots, and what jobs do to each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mpicoloc.bubble.model import BubbleModel, Rule, rule
from mpicoloc.bubble.propagation import DEFAULT_POLICY, POLICY_NUMBERS, even_pressures
from mpicoloc.core.bubbles import MAX_LEVEL, JobRequest, PropagationMatrix
from mpicoloc.core.profile import Bools, Floats, Ints
from mpicoloc.core.slowdown import JobFeatures, SlowdownModel, pair_slowdowns
from mpicoloc.errors import DataError, UsageError


@dataclass(frozen=True)
class Constraints:
    """What a placement must keep.

    Parameters
    ----------
    apart : tuple of (str, str)
        Pairs of jobs that may not share a node, by their ids.
    at_most : mapping of str to float
        Largest slowdown that a job may suffer, by its id.
    whole : tuple of str
        Ids of jobs that have their nodes to themselves.
    """

    apart: tuple[tuple[str, str], ...] = ()
    at_most: Mapping[str, float] = field(default_factory=dict)
    whole: tuple[str, ...] = ()


def check(jobs: Sequence[JobRequest], n_nodes: int, n_slots: int, constraints: Constraints) -> None:
    """Refuse what no placement can keep.

    Raises `DataError` if the jobs do not fit. Raises `UsageError` if nodes or slots are none, or constraints
    contradict each other or the jobs.
    """
    if n_nodes < 1 or n_slots < 1:
        raise UsageError(f"placing needs nodes and slots >= 1, got {n_nodes} and {n_slots}")
    if not jobs:
        raise UsageError("no job to place: give at least one")
    _check_room(jobs, n_nodes, n_slots)
    sizes = {job.id: job.n_nodes for job in jobs}
    _check_names(sizes, constraints)
    _check_apart(sizes, n_nodes, constraints)
    whole = set(constraints.whole)
    n_whole = sum(sizes[name] for name in whole)
    n_shared = math.ceil(sum(size for name, size in sizes.items() if name not in whole) / n_slots)
    largest = max((size for name, size in sizes.items() if name not in whole), default=0)
    if n_whole + max(n_shared, largest) > n_nodes:
        raise UsageError(
            f"whole nodes: jobs that have their nodes to themselves take {n_whole}, the others at least "
            f"{max(n_shared, largest)} more, and there are {n_nodes}: give more nodes, or share them"
        )


def _check_room(jobs: Sequence[JobRequest], n_nodes: int, n_slots: int) -> None:
    large = next((job for job in jobs if job.n_nodes > n_nodes), None)
    if large is not None:
        raise DataError(f"job {large.id!r} needs {large.n_nodes} nodes, there are {n_nodes}: give more nodes")
    n_needed = sum(job.n_nodes for job in jobs)
    if n_needed > n_nodes * n_slots:
        raise DataError(
            f"the jobs need {n_needed} slots, and {n_nodes} nodes with {n_slots} each have "
            f"{n_nodes * n_slots}: give more nodes or slots, or fewer jobs"
        )


def _check_names(sizes: dict[str, int], constraints: Constraints) -> None:
    named = [name for pair in constraints.apart for name in pair]
    named += [*constraints.at_most, *constraints.whole]
    unknown = next((name for name in named if name not in sizes), None)
    if unknown is not None:
        raise UsageError(f"constraints name job {unknown!r}, which is not among the jobs")
    for name, most in constraints.at_most.items():
        if not 1 <= most < math.inf:
            raise UsageError(f"job {name!r} may be slowed down by a factor from 1, got {most}")


def _check_apart(sizes: dict[str, int], n_nodes: int, constraints: Constraints) -> None:
    for one, other in constraints.apart:
        if one == other:
            raise UsageError(f"job {one!r} cannot be kept apart from itself")
        if sizes[one] + sizes[other] > n_nodes:
            raise UsageError(
                f"jobs {one!r} and {other!r} cannot be kept apart: they need {sizes[one]} and {sizes[other]} "
                f"nodes, and there are {n_nodes}"
            )


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

        Shapes: `jobs` (n,), `pressures` (n, max_nodes).
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

    Raises `DataError` if a program has no curve, or the jobs cannot be placed. Raises `UsageError` if nodes,
    slots or constraints are none.
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
    constraints: Constraints | None = None,
    end: str = "value",
) -> Problem:
    """A problem by any slowdown model, from what each program suffers beside each other one.

    Raises `DataError` if the model does not know a program, or the jobs cannot be placed. Raises `UsageError`
    if nodes, slots or constraints are none.

    A pressure is here the time lost, slowdown - 1, and times lost to several co-runners are added, as
    `slowdown.together` does.
    """
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
    responses = Responses(lost, lambda pressures: np.asarray(pressures.sum(axis=-1)), grid, table)
    policies = dict.fromkeys(names, "all-max")
    return _problem(jobs, n_nodes, n_slots, names, kinds, policies, responses, constraints)


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
    check(jobs, n_nodes, n_slots, constraints)
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
