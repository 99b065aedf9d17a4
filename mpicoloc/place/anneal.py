"""Placement by simulated annealing, Algorithm 5 of Han et al. 2016, with many exchanges at a time.

The inputs are jobs, nodes with slots, and the slowdowns that jobs cause each other. Exchanges without a
common job are accepted or rejected independently, so one step of NumPy calls handles many. Only jobs on the
nodes of an exchange are evaluated again. Several replicas, each from its own random placement, go through
the same temperatures together: they are the restarts of the algorithm.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mpicoloc.bubble.model import BubbleModel, Rule, rule
from mpicoloc.bubble.propagation import DEFAULT_POLICY, POLICY_NUMBERS, even_pressures
from mpicoloc.core.bubbles import MAX_LEVEL, JobRequest, PropagationMatrix
from mpicoloc.core.profile import Bools, Floats, Ints
from mpicoloc.core.progress import steps
from mpicoloc.core.slowdown import JobFeatures, SlowdownModel, pair_slowdowns
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError


@dataclass(frozen=True)
class Constraints:
    """The constraints of a placement.

    Parameters
    ----------
    apart : tuple of (str, str)
        Ids of pairs of jobs that must not share a node.
    at_most : mapping of str to float
        Largest slowdown allowed for each job, by its id.
    whole : tuple of str
        Ids of jobs that have their nodes to themselves.
    """

    apart: tuple[tuple[str, str], ...] = ()
    at_most: Mapping[str, float] = field(default_factory=dict)
    whole: tuple[str, ...] = ()


def check(jobs: Sequence[JobRequest], n_nodes: int, n_slots: int, constraints: Constraints) -> None:
    """Refuse constraints that no placement can meet.

    Raises `DataError` if the jobs do not fit. Raises `UsageError` if there are no nodes or slots, or if
    constraints contradict each other or the jobs.
    """
    if n_nodes < 1 or n_slots < 1:
        raise UsageError(f"the numbers of nodes and slots must be at least 1, got {n_nodes} and {n_slots}")
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
            f"jobs with whole nodes take {n_whole} nodes, and the others at least "
            f"{max(n_shared, largest)} more, but there are {n_nodes}: give more nodes, or let more jobs share"
        )


def _check_room(jobs: Sequence[JobRequest], n_nodes: int, n_slots: int) -> None:
    large = next((job for job in jobs if job.n_nodes > n_nodes), None)
    if large is not None:
        raise DataError(
            f"job {large.id!r} needs {counted(large.n_nodes, 'node')}, but there are {n_nodes}: "
            "give more nodes"
        )
    n_needed = sum(job.n_nodes for job in jobs)
    if n_needed > n_nodes * n_slots:
        raise DataError(
            f"the jobs need {n_needed} slots, but {n_nodes} nodes with {n_slots} slots each have "
            f"{n_nodes * n_slots}: give more nodes or slots, or fewer jobs"
        )


def _check_names(sizes: dict[str, int], constraints: Constraints) -> None:
    named = [name for pair in constraints.apart for name in pair]
    named += [*constraints.at_most, *constraints.whole]
    unknown = next((name for name in named if name not in sizes), None)
    if unknown is not None:
        raise UsageError(f"a constraint names job {unknown!r}, which is not among the jobs")
    for name, most in constraints.at_most.items():
        if not 1 <= most < math.inf:
            raise UsageError(f"the largest slowdown of job {name!r} must be at least 1, got {most}")


def _check_apart(sizes: dict[str, int], n_nodes: int, constraints: Constraints) -> None:
    for one, other in constraints.apart:
        if one == other:
            raise UsageError(f"job {one!r} cannot be kept apart from itself")
        if sizes[one] + sizes[other] > n_nodes:
            raise UsageError(
                f"jobs {one!r} and {other!r} cannot be kept apart: they need {sizes[one]} and {sizes[other]} "
                f"nodes, but there are {n_nodes}"
            )


OBJECTIVES = {
    "sum": "sum of the jobs' slowdowns (Han et al. 2016, Algorithm 5)",
    "speedup": "weighted speed-up: sum of 1 / slowdown, as large as possible",
    "worst": "the largest slowdown",
}


@dataclass(frozen=True)
class Responses:
    """The jobs' responses to the pressures on their nodes.

    Parameters
    ----------
    push : ndarray, shape (n_programs, n_programs)
        At [p, q] the pressure on a job of program p from a job of program q on the same node.
    rule : callable
        Combines the pressures of several co-runners into one; see `bubble.model.Rule`.
    levels : ndarray, shape (n_levels,)
        Increasing pressures, from 0.
    slowdown : ndarray, shape (n_kinds, n_levels, max_nodes + 1)
        Slowdown of each kind of job (program and number of nodes) by pressure and number of disturbed nodes.
    """

    push: Floats
    rule: Rule
    levels: Floats
    slowdown: Floats


@dataclass(frozen=True)
class Problem:
    """Jobs to be placed on identical nodes.

    Parameters
    ----------
    jobs : tuple of JobRequest
    n_nodes, n_slots : int
        Nodes, and jobs that each node can hold.
    program, kind, policy : ndarray of int, shape (n_jobs,)
        Index into `responses.push`, index into `responses.slowdown`, and value of `POLICY_NUMBERS`.
    responses : Responses
    limit : ndarray, shape (n_jobs,)
        Largest slowdown allowed; infinite: any.
    is_apart : ndarray of bool, shape (n_jobs, n_jobs), or None
        True for pairs of jobs that must not share a node; None: all jobs can share.
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
    """A problem from sensitivity curves, scores and policies, as in Han et al. 2016, section 5.1.

    Raises `DataError` if a program has no curve, or the jobs do not fit. Raises `UsageError` if there are no
    nodes or slots, or if constraints contradict each other.
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
    """Interpolate a matrix to other levels and another number of nodes, by the disturbed fraction."""
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
    """A problem from any slowdown model, which gives the slowdown of each program beside each other program.

    Raises `DataError` if the model does not know a program, or the jobs cannot be placed. Raises `UsageError`
    if there are no nodes or slots, or if constraints contradict each other.

    Here a pressure is the time lost, slowdown - 1, and the times lost to several co-runners are added, as in
    `slowdown.together`.
    """
    names = list(dict.fromkeys(job.program for job in jobs))
    unknown = next((name for name in names if name not in features), None)
    if unknown is not None:
        raise DataError(
            f"the model does not know program {unknown!r}: give a profile of it, or leave its jobs out"
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


def of_spread(spread: Problem, packed: Problem) -> Problem:
    """The problem with slowdowns relative to packed runs, in which a job's own processes share its nodes."""
    beside, itself = spread.responses, packed.responses
    table = beside.slowdown.copy()
    jobs = zip(spread.kind.tolist(), spread.program.tolist(), spread.sizes.tolist(), strict=True)
    for kind, program, size in set(jobs):
        own = itself.push[program, program]
        table[kind] /= np.interp(own, itself.levels, itself.slowdown[kind, :, size])
    return replace(spread, responses=replace(beside, slowdown=table))


PENALTY = 10.0
"""Cost of a broken constraint, as a multiple of the most disturbed job's cost: no move gains as much."""
SAME = 1e-12
"""Smaller relative differences between slowdowns are rounding errors."""
WORST_POWER = 16.0
"""Instead of the largest slowdown, the sum of slowdowns to this power is minimised: it has a term per job."""


def random_placement(problem: Problem, rng: np.random.Generator) -> Ints:
    """Job in each slot, shape (n_nodes, n_slots), -1 if empty: `DistributeWorkloadsRandom`.

    Places the largest jobs first, each on the nodes with most free slots; ties are broken at random. This
    order places every set of jobs that fits.
    """
    found = np.full((problem.n_nodes, problem.n_slots), -1, np.int64)
    sizes = problem.sizes
    order = sorted(rng.permutation(len(sizes)).tolist(), key=lambda job: -sizes[job])
    nodes = [(0, float(key), node) for node, key in enumerate(rng.random(problem.n_nodes))]
    heapq.heapify(nodes)
    for job in order:
        taken = [heapq.heappop(nodes) for _ in range(sizes[job])]
        keys = rng.random(len(taken)).tolist()
        for (n_used, _, node), key in zip(taken, keys, strict=True):
            found[node, n_used] = job
            heapq.heappush(nodes, (n_used + 1, key, node))
    return found


def aligned_placement(problem: Problem, rng: np.random.Generator) -> Ints:
    """Like `random_placement`, but each job is on neighbouring nodes, and slots are filled one after another.

    Jobs of one size then share all of their nodes with the same other jobs, which suits jobs that wait for
    their slowest node. For 250 such jobs the objective is 0.5 % above the bound after 20 exchanges per slot;
    without exchanges of whole jobs, it is 6 % above the bound after 100.
    """
    sizes = problem.sizes
    order = sorted(rng.permutation(len(sizes)).tolist(), key=lambda job: -sizes[job])
    flat = np.full(problem.n_nodes * problem.n_slots, -1, np.int64)
    row = np.repeat(order, sizes[order])
    flat[: len(row)] = row
    return np.ascontiguousarray(flat.reshape(problem.n_slots, problem.n_nodes).T)


class Replicas:
    """Several placements of the same jobs, with the pressure in each slot and the cost of each job.

    Replicas are stored one after the other: node i of replica r has number r n_nodes + i, and job j has
    r n_jobs + j. An empty slot holds the job `nobody`.

    Parameters
    ----------
    problem : Problem
    placements : ndarray of int, shape (n_replicas, n_nodes, n_slots)
        Job in each slot, -1 if empty.
    objective : str
        One of `OBJECTIVES`.
    """

    def __init__(self, problem: Problem, placements: Ints, objective: str) -> None:
        self.problem, self.objective = problem, objective
        self.n_replicas, n_jobs = len(placements), len(problem.jobs)
        self.n_jobs, self.nobody = n_jobs, self.n_replicas * n_jobs
        shift = (np.arange(self.n_replicas) * n_jobs)[:, None, None]
        self.job = np.where(placements < 0, self.nobody, placements + shift).reshape(-1)
        self._local = np.concatenate([np.tile(np.arange(n_jobs), self.n_replicas), [n_jobs]])
        n_programs = len(problem.responses.push)
        self._push = np.pad(problem.responses.push, ((0, 1), (0, 1)))
        self._program = np.concatenate([problem.program, [n_programs]])[self._local]
        largest = max(float(problem.responses.slowdown.max()), 1.0)
        self._penalty = PENALTY * (largest**WORST_POWER if objective == "worst" else largest)
        self._apart = None if problem.is_apart is None else np.pad(problem.is_apart, ((0, 1), (0, 1)))
        self._fill_slots_of_jobs()
        self.pressure = np.zeros(len(self.job))
        self.n_broken = np.zeros(len(self.job))
        self.refresh(np.arange(self.n_replicas * problem.n_nodes))
        self.slowdown, self.cost = np.ones(self.nobody + 1), np.zeros(self.nobody + 1)
        everyone = np.arange(self.nobody)
        self.slowdown[everyone], self.cost[everyone] = self.evaluate(everyone)

    def _fill_slots_of_jobs(self) -> None:
        """Set `slots` (each job's slots, padded with -1) and `place` (each slot's index in its job's row)."""
        sizes = np.tile(self.problem.sizes, self.n_replicas)
        self.slots = np.full((self.nobody + 1, int(sizes.max())), -1, np.int64)
        self.has_slot = np.arange(self.slots.shape[1]) < np.append(sizes, 0)[:, None]
        self.place = np.zeros(len(self.job), np.int64)
        taken = np.flatnonzero(self.job != self.nobody)
        order = taken[np.argsort(self.job[taken], kind="stable")]
        starts = np.cumsum(sizes) - sizes
        self.place[order] = np.arange(len(order)) - np.repeat(starts, sizes)
        self.slots[self.job[order], self.place[order]] = order

    def slots_of(self, nodes: Ints) -> Ints:
        """Slots of nodes, shape (n, n_slots)."""
        return np.asarray(nodes[:, None] * self.problem.n_slots + np.arange(self.problem.n_slots))

    def refresh(self, nodes: Ints) -> None:
        """Compute pressures and broken constraints on these nodes."""
        slots = self.slots_of(nodes)
        jobs = self.job[slots]
        program = self._program[jobs]
        push = self._push[program[:, :, None], program[:, None, :]]
        n = self.problem.n_slots
        push[:, np.arange(n), np.arange(n)] = 0.0
        self.pressure[slots] = self.problem.responses.rule(push)
        if self._apart is not None:
            local = self._local[jobs]
            self.n_broken[slots] = self._apart[local[:, :, None], local[:, None, :]].sum(axis=2)

    def evaluate(self, jobs: Ints) -> tuple[Floats, Floats]:
        """Slowdown and cost of these jobs, from the pressures in their slots."""
        slots, has = self.slots[jobs], self.has_slot[jobs]
        local = self._local[jobs]
        slowdown = self.problem.slowdowns(local, self.pressure[slots], has)
        cost = self.cost_of(slowdown)
        is_over = self.is_over(slowdown, local)
        if is_over.any():
            excess = np.where(is_over, slowdown - self.problem.limit[local], 0.0)
            cost = cost + self._penalty * (excess + is_over)
        if self._apart is not None:
            cost = cost + self._penalty * np.where(has, self.n_broken[slots], 0.0).sum(axis=1)
        return slowdown, cost

    def is_over(self, slowdown: Floats, local: Ints) -> Bools:
        """Whether jobs, by their numbers in the problem, exceed their largest slowdowns."""
        return np.asarray(slowdown > self.problem.limit[local] * (1 + SAME))

    def n_violations(self) -> Floats:
        """Number of constraints that each replica breaks."""
        shape = self.n_replicas, self.n_jobs
        apart = self.n_broken.reshape(self.n_replicas, -1).sum(axis=1) / 2
        over = self.is_over(self.slowdown[:-1].reshape(shape), np.arange(self.n_jobs)).sum(axis=1)
        return np.asarray(apart + over)

    def cost_of(self, slowdown: Floats) -> Floats:
        """Terms that jobs with these slowdowns add to the objective, which is to be minimised."""
        if self.objective == "speedup":
            return np.asarray(-1.0 / slowdown)
        return slowdown if self.objective == "sum" else np.asarray(slowdown**WORST_POWER)

    def exchange(self, one: Ints, other: Ints) -> None:
        """Swap the contents of slots `one` and `other`, in which all slots must differ."""
        job_one, job_other = self.job[one], self.job[other]
        place_one, place_other = self.place[one], self.place[other]
        # `nobody` has no slots, so the values written to its row are never read.
        self.slots[job_one, place_one], self.slots[job_other, place_other] = other, one
        self.job[one], self.job[other] = job_other, job_one
        self.place[one], self.place[other] = place_other, place_one

    def totals(self) -> Floats:
        """Cost of each replica."""
        return np.asarray(self.cost[:-1].reshape(self.n_replicas, self.n_jobs).sum(axis=1))

    def slowdowns(self, replica: int) -> Floats:
        """Slowdown of each job of a replica."""
        return self.slowdown[:-1].reshape(self.n_replicas, self.n_jobs)[replica].copy()

    def placements(self, job: Ints) -> Ints:
        """Convert an array like `job` to the job per slot, (n_replicas, n_nodes, n_slots), -1 if empty."""
        shape = (self.n_replicas, self.problem.n_nodes, self.problem.n_slots)
        return np.where(job == self.nobody, -1, job % self.n_jobs).reshape(shape)


N_SWEEPS, LEAST_SWEEPS = 120.0, 2.0
"""Exchanges for each slot, divided among the replicas, and the least number that a replica gets."""
COLD_FRAC = 1e-3
"""The last temperature as a fraction of the first, which is a random exchange's mean change of cost."""
DESCENT_FRAC = 0.2
"""Fraction of the steps, at the end, in which no exchange that raises the cost is accepted."""
MAX_REPLICAS = 64
LEAST_TEMPERATURE = 1e-6
LEAST_WIDTH = 4
"""Fewest exchanges drawn at a time per replica; in a small problem most are impossible or share jobs."""
SHOWN_STEPS = 2000
"""Stages with more steps than this show their progress."""


@dataclass(frozen=True)
class _Stage:
    """A stage: part of all steps, relative initial temperature, and how many of 2 steps move whole jobs."""

    part: float
    heat: float
    n_whole: int


_SCATTERED = (_Stage(0.4, 1.0, 0),)
_ALIGNED = (_Stage(0.3, 1.0, 2), _Stage(0.3, 0.05, 1))


@dataclass(frozen=True)
class Annealing:
    """The length and pace of the cooling.

    Parameters
    ----------
    n_restarts : int or None
        Number of replicas; None: the smaller the problem, the more replicas.
    n_sweeps : float or None
        Exchanges proposed for each occupied slot of a replica; None: `N_SWEEPS` divided among the replicas,
        but at least `LEAST_SWEEPS` for each.
    """

    n_restarts: int | None = None
    n_sweeps: float | None = None


@dataclass(frozen=True)
class SlotPlacement:
    """A placement: job in each slot (n_nodes, n_slots), -1 if empty, and slowdown of each job."""

    slots: Ints
    slowdown: Floats
    n_broken: int = 0


def anneal(
    problem: Problem,
    rng: np.random.Generator,
    objective: str = "sum",
    settings: Annealing | None = None,
) -> SlotPlacement:
    """The best placement that annealing finds."""
    settings = settings or Annealing()
    n_occupied = int(problem.sizes.sum())
    n_replicas = settings.n_restarts or int(np.clip(1000 // n_occupied, 1, MAX_REPLICAS))
    width = max(len(problem.jobs) // (2 * problem.n_slots), 1)
    n_sweeps = settings.n_sweeps or max(N_SWEEPS / n_replicas, LEAST_SWEEPS)
    n_steps = max(int(n_sweeps * n_occupied / width), 1)
    found = []
    for start, stages in ((random_placement, _SCATTERED), (aligned_placement, _ALIGNED)):
        replicas = Replicas(problem, np.array([start(problem, rng) for _ in range(n_replicas)]), objective)
        found.append(_cooled(replicas, stages, n_steps, max(width, LEAST_WIDTH), rng))
    return best(Replicas(problem, np.concatenate(found), objective))


def _cooled(
    replicas: Replicas,
    stages: Sequence[_Stage],
    n_steps: int,
    width: int,
    rng: np.random.Generator,
) -> Ints:
    """The best placement of each replica, (n_replicas, n_nodes, n_slots), after all stages."""
    kept = _Best(replicas)
    for stage in stages:
        n = max(int(stage.part * n_steps), 1)
        n_hot = max(int((1 - DESCENT_FRAC) * n), 1)
        temperature = stage.heat * _first_temperature(replicas, width, rng)
        cooling = (COLD_FRAC / stage.heat) ** (1 / n_hot)
        for i in steps(range(n), "placing", unit="steps") if n > SHOWN_STEPS else range(n):
            draw = job_proposals if i % 2 < stage.n_whole else proposals
            step(replicas, *draw(replicas, width, rng), temperature if i < n_hot else 0.0, rng)
            temperature *= cooling
            kept.look(replicas)
    return replicas.placements(kept.job)


class _Best:
    """The best placement so far of each replica, because the last placement can be worse."""

    def __init__(self, replicas: Replicas) -> None:
        self._n_violations, self._totals = replicas.n_violations(), replicas.totals()
        self.job = replicas.job.reshape(replicas.n_replicas, -1).copy()

    def look(self, replicas: Replicas) -> None:
        """Keep the placements of replicas that have improved."""
        n_violations, totals = replicas.n_violations(), replicas.totals()
        is_better = n_violations < self._n_violations
        is_better |= (n_violations == self._n_violations) & (totals < self._totals)
        if is_better.any():
            self._totals[is_better], self._n_violations[is_better] = (
                totals[is_better],
                n_violations[is_better],
            )
            self.job[is_better] = replicas.job.reshape(self.job.shape)[is_better]


def best(replicas: Replicas) -> SlotPlacement:
    """The replica that breaks the fewest constraints and, among equals, has the best objective."""
    found = [replicas.slowdowns(i) for i in range(replicas.n_replicas)]
    n_violations = replicas.n_violations()
    values = np.array([cost_of(slowdown, replicas.objective) for slowdown in found])
    i = int(np.lexsort((values, n_violations))[0])
    return SlotPlacement(replicas.placements(replicas.job)[i], found[i], int(n_violations[i]))


def cost_of(slowdown: Floats, objective: str) -> float:
    """The objective of a placement as a number to minimise."""
    if objective == "worst":
        return float(slowdown.max(initial=0.0))
    return float(slowdown.sum() if objective == "sum" else -(1 / slowdown).sum())


def _first_temperature(replicas: Replicas, width: int, rng: np.random.Generator) -> float:
    """Mean change of the cost, without penalties, by random exchanges, which are then undone."""
    one, other = proposals(replicas, max(width, 64 // replicas.n_replicas), rng)
    if not len(one):
        return LEAST_TEMPERATURE
    _, jobs, slowdown, _ = _changes(replicas, one, other)
    _exchange(replicas, one, other)
    change = (replicas.cost_of(slowdown) - replicas.cost_of(replicas.slowdown[jobs])).sum(axis=1)
    return max(float(np.abs(change).mean()), LEAST_TEMPERATURE)


def step(replicas: Replicas, one: Ints, other: Ints, temperature: float, rng: np.random.Generator) -> None:
    """Exchange slots `one` and `other` (n, n_each), then undo the exchanges that Algorithm 5 rejects."""
    if not len(one):
        return
    change, jobs, slowdown, cost = _changes(replicas, one, other)
    is_kept: Bools
    if temperature > 0:
        is_kept = rng.random(len(change)) < np.exp(np.minimum(-change / temperature, 0.0))
    else:
        is_kept = change <= 0
    kept = np.broadcast_to(is_kept[:, None], jobs.shape) & (jobs != replicas.nobody)
    replicas.slowdown[jobs[kept]], replicas.cost[jobs[kept]] = slowdown[kept], cost[kept]
    back = ~is_kept
    if back.any():
        _exchange(replicas, one[back], other[back])


def _exchange(replicas: Replicas, one: Ints, other: Ints) -> None:
    """Swap the contents of slots, and compute the pressures on their nodes again."""
    replicas.exchange(one.reshape(-1), other.reshape(-1))
    replicas.refresh(np.concatenate([one, other], axis=1).reshape(-1) // replicas.problem.n_slots)


def proposals(replicas: Replicas, width: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Pairs of slots to exchange, each (n, 1): two jobs, or a job and an empty slot.

    No job ends up twice on a node, and no two exchanges share a job or a node.
    """
    problem = replicas.problem
    n_all = problem.n_nodes * problem.n_slots
    drawn = rng.integers(0, n_all, (2, replicas.n_replicas, width))
    one, other = (drawn + (np.arange(replicas.n_replicas) * n_all)[:, None]).reshape(2, -1, 1)
    return _possible(replicas, one, other)


def job_proposals(replicas: Replicas, width: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Slots of pairs of whole jobs to exchange, all jobs of one size, each (n, size); see `proposals`."""
    sizes, counts = np.unique(replicas.problem.sizes, return_counts=True)
    weights = np.where(counts > 1, counts, 0)
    if not weights.any():
        return proposals(replicas, width, rng)
    size = int(rng.choice(sizes, p=weights / weights.sum()))
    jobs = np.flatnonzero(replicas.problem.sizes == size)
    drawn = jobs[rng.integers(0, len(jobs), (2, replicas.n_replicas, width))]
    drawn = (drawn + (np.arange(replicas.n_replicas) * replicas.n_jobs)[:, None]).reshape(2, -1)
    one, other = replicas.slots[drawn[0], :size], replicas.slots[drawn[1], :size]
    return _possible(replicas, one, other)


def _possible(replicas: Replicas, one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """The exchanges that put no job on a node twice and share no job or node with an earlier exchange."""
    problem, each = replicas.problem, one.shape[1]
    nodes = np.concatenate([one, other], axis=1) // problem.n_slots
    job_one, job_other = replicas.job[one[:, 0]], replicas.job[other[:, 0]]
    there = replicas.job[replicas.slots_of(nodes.reshape(-1))].reshape(len(one), 2, each * problem.n_slots)
    is_free = ~(there[:, 1] == job_one[:, None]).any(axis=1) | (job_one == replicas.nobody)
    is_free &= ~(there[:, 0] == job_other[:, None]).any(axis=1) | (job_other == replicas.nobody)
    # Only slots on different nodes: an exchange within a node changes nothing.
    useful = np.flatnonzero(is_free & (job_one != job_other) & (nodes[:, 0] != nodes[:, each]))
    jobs = there[useful].reshape(len(useful), 2 * each * problem.n_slots)
    alone = _first_come(jobs, nodes[useful], replicas.nobody, problem.n_nodes * replicas.n_replicas)
    return one[useful][alone], other[useful][alone]


def _first_come(jobs: Ints, nodes: Ints, nobody: int, n_nodes: int) -> Bools:
    """Whether each exchange is the first to use each of its jobs and nodes."""
    order = np.arange(len(jobs))[::-1]
    owner_of_job, owner_of_node = np.empty(nobody + 1, np.int64), np.empty(n_nodes, np.int64)
    # The last of several writes to an entry wins, so write from the last exchange to the first.
    owner_of_job[jobs[::-1]] = order[:, None]
    owner_of_node[nodes[::-1]] = order[:, None]
    mine = np.arange(len(jobs))[:, None]
    return np.asarray(
        ((owner_of_job[jobs] == mine) | (jobs == nobody)).all(axis=1)
        & (owner_of_node[nodes] == mine).all(axis=1)
    )


def _changes(replicas: Replicas, one: Ints, other: Ints) -> tuple[Floats, Ints, Floats, Floats]:
    """Make exchanges. Returns each one's change of cost, jobs (padded with nobody), slowdowns and costs."""
    nodes = np.concatenate([one, other], axis=1) // replicas.problem.n_slots
    _exchange(replicas, one, other)
    jobs = np.sort(replicas.job[replicas.slots_of(nodes.reshape(-1))].reshape(len(one), -1), axis=1)
    # A job on both nodes counts once.
    jobs[:, 1:][jobs[:, 1:] == jobs[:, :-1]] = replicas.nobody
    flat = jobs.reshape(-1)
    slowdown, cost = np.ones(len(flat)), np.zeros(len(flat))
    there = np.flatnonzero(flat != replicas.nobody)
    slowdown[there], cost[there] = replicas.evaluate(flat[there])
    shape = jobs.shape
    change = (cost - replicas.cost[flat]).reshape(shape).sum(axis=1)
    return change, jobs, slowdown.reshape(shape), cost.reshape(shape)
