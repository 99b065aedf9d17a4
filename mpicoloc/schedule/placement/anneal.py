"""Placement by simulated annealing: Han et al. 2016, Algorithm 5, many exchanges at a time.

Exchanges that touch no common job are judged one by one, so a step of NumPy calls does as many as there are.
Only jobs on the nodes of an exchange are evaluated again. Several replicas, each from a random placement of
its own, go through the same temperatures: restarts that take turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.progress import steps
from mpicoloc.schedule.placement.problem import Problem
from mpicoloc.schedule.placement.state import Replicas, random_placement

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
N_SWEEPS, LEAST_SWEEPS = 120.0, 2.0
"""Exchanges for each slot, which replicas share, and how many each of them makes at least."""
MAX_REPLICAS = 64
LEAST_WIDTH = 4
"""Exchanges drawn at a time for a replica: of a small problem most are impossible, or touch the same jobs."""


@dataclass(frozen=True)
class Annealing:
    """How long and how fast it cools.

    Parameters
    ----------
    n_restarts : int or None
        Replicas; None: more of them the smaller the problem is.
    n_sweeps : float or None
        Exchanges proposed for each occupied slot of a replica; None: `N_SWEEPS` of all replicas together,
        `LEAST_SWEEPS` or more of each.
    cold_frac : float
        The last temperature, as a part of the first one, which is the mean change of random exchanges.
    descent_frac : float
        Part of the exchanges at the end that must not make anything worse.
    """

    n_restarts: int | None = None
    n_sweeps: float | None = None
    cold_frac: float = 1e-3
    descent_frac: float = 0.2


@dataclass(frozen=True)
class Found:
    """A placement: job in each slot (n_nodes, n_slots), -1 for none, and slowdown of each job."""

    slots: Ints
    slowdown: Floats
    n_broken: int = 0


def anneal(
    problem: Problem,
    rng: np.random.Generator,
    objective: str = "sum",
    settings: Annealing | None = None,
) -> Found:
    """The best placement that annealing finds.

    Parameters
    ----------
    problem : Problem
    rng : Generator
        Of everything that is drawn: the same state gives the same placement.
    objective : str
        One of `problem.OBJECTIVES`.
    settings : Annealing, optional

    Returns
    -------
    Found
    """
    settings = settings or Annealing()
    n_occupied = int(problem.sizes.sum())
    n_replicas = settings.n_restarts or int(np.clip(1000 // n_occupied, 1, MAX_REPLICAS))
    starts = np.array([random_placement(problem, rng) for _ in range(n_replicas)])
    replicas = Replicas(problem, starts, objective)
    width = max(len(problem.jobs) // (2 * problem.n_slots), 1)
    n_sweeps = settings.n_sweeps or max(N_SWEEPS / n_replicas, LEAST_SWEEPS)
    n_steps = max(int(n_sweeps * n_occupied / width), 1)
    n_hot = max(int((1 - settings.descent_frac) * n_steps), 1)
    first = _first_temperature(replicas, width, rng)
    cooling = settings.cold_frac ** (1 / n_hot)
    temperature = first
    kept = _Best(replicas)
    for i in steps(range(n_steps), "placing", unit="steps") if n_steps > 2000 else range(n_steps):
        step(replicas, max(width, LEAST_WIDTH), temperature if i < n_hot else 0.0, rng)
        temperature *= cooling
        kept.look(replicas)
    return best(Replicas(problem, kept.placements(), objective))


class _Best:
    """The best placement that each replica has had, which need not be its last one."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._totals = replicas.totals()
        self._jobs = replicas.job.reshape(replicas.n_replicas, -1).copy()

    def look(self, replicas: Replicas) -> None:
        """Keep what is better now."""
        totals = replicas.totals()
        is_better = totals < self._totals
        if is_better.any():
            self._totals[is_better] = totals[is_better]
            self._jobs[is_better] = replicas.job.reshape(self._jobs.shape)[is_better]

    def placements(self) -> Ints:
        """Job in each slot, shape (n_replicas, n_nodes, n_slots), -1 where none is."""
        replicas, problem = self._replicas, self._replicas.problem
        shift = np.arange(replicas.n_replicas)[:, None] * replicas.n_jobs
        local = np.where(self._jobs == replicas.nobody, -1, self._jobs - shift)
        return np.asarray(local.reshape(-1, problem.n_nodes, problem.n_slots))


def best(replicas: Replicas) -> Found:
    """The replica of the least objective, those that break constraints last."""
    problem = replicas.problem
    found = [replicas.slowdowns(i) for i in range(replicas.n_replicas)]
    broken = replicas.n_broken.reshape(replicas.n_replicas, -1).sum(axis=1) / 2
    over = np.array([(slowdown > problem.limit * (1 + 1e-12)).sum() for slowdown in found])
    values = [cost_of(slowdown, replicas.objective) for slowdown in found]
    i = int(np.lexsort([values, broken + over])[0])
    return Found(replicas.placement(i), found[i], int(broken[i] + over[i]))


def cost_of(slowdown: Floats, objective: str) -> float:
    """The objective of a placement as a number to be made small."""
    if objective == "worst":
        return float(slowdown.max(initial=1.0))
    return float(slowdown.sum() if objective == "sum" else -(1 / slowdown).sum())


def _first_temperature(replicas: Replicas, width: int, rng: np.random.Generator) -> float:
    """Mean change of the cost by random exchanges, none of which is kept."""
    one, other = proposals(replicas, max(width, 64 // replicas.n_replicas), rng)
    changes = _changes(replicas, one, other)
    replicas.exchange(one, other)
    replicas.refresh(np.concatenate([one, other]) // replicas.problem.n_slots)
    mean = float(np.abs(changes[0]).mean()) if len(one) else 0.0
    return mean if mean > 0 else 1e-6


def step(replicas: Replicas, width: int, temperature: float, rng: np.random.Generator) -> None:
    """Propose `width` exchanges in each replica, and keep those that Algorithm 5 keeps."""
    one, other = proposals(replicas, width, rng)
    if not len(one):
        return
    change, jobs, slowdown, cost = _changes(replicas, one, other)
    if temperature > 0:
        is_kept = rng.random(len(change)) < np.exp(np.minimum(-change / temperature, 0.0))
    else:
        is_kept = change <= 0
    kept = np.broadcast_to(is_kept[:, None], jobs.shape) & (jobs != replicas.nobody)
    replicas.slowdown[jobs[kept]], replicas.cost[jobs[kept]] = slowdown[kept], cost[kept]
    back = ~is_kept
    if back.any():
        replicas.exchange(one[back], other[back])
        replicas.refresh(np.concatenate([one[back], other[back]]) // replicas.problem.n_slots)


def proposals(replicas: Replicas, width: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Slots to be exchanged: two jobs, or a job and nobody, such that no exchange touches another's jobs."""
    problem = replicas.problem
    n_all = problem.n_nodes * problem.n_slots
    drawn = rng.integers(0, n_all, (2, replicas.n_replicas, width))
    one, other = (drawn + (np.arange(replicas.n_replicas) * n_all)[:, None]).reshape(2, -1)
    nodes = np.stack([one, other], axis=1) // problem.n_slots
    job_one, job_other = replicas.job[one], replicas.job[other]
    there = replicas.job[replicas.slots_of(nodes.reshape(-1))].reshape(len(one), 2, problem.n_slots)
    is_free = ~(there[:, 1] == job_one[:, None]).any(axis=1) | (job_one == replicas.nobody)
    is_free &= ~(there[:, 0] == job_other[:, None]).any(axis=1) | (job_other == replicas.nobody)
    useful = np.flatnonzero(is_free & (job_one != job_other) & (nodes[:, 0] != nodes[:, 1]))
    one, other, nodes, there = (
        one[useful],
        other[useful],
        nodes[useful],
        there[useful].reshape(len(useful), 2 * problem.n_slots),
    )
    alone = _first_come(there, nodes, replicas.nobody, problem.n_nodes * replicas.n_replicas)
    return one[alone], other[alone]


def _first_come(jobs: Ints, nodes: Ints, nobody: int, n_nodes: int) -> Bools:
    """Which exchanges come first for all of their jobs and nodes."""
    order = np.arange(len(jobs))[::-1]
    owner_of_job, owner_of_node = np.empty(nobody + 1, np.int64), np.empty(n_nodes, np.int64)
    # Of several writes to one entry the last stays: from the last exchange to the first one.
    owner_of_job[jobs[::-1]] = order[:, None]
    owner_of_node[nodes[::-1]] = order[:, None]
    mine = np.arange(len(jobs))[:, None]
    return np.asarray(
        ((owner_of_job[jobs] == mine) | (jobs == nobody)).all(axis=1)
        & (owner_of_node[nodes] == mine).all(axis=1)
    )


def _changes(replicas: Replicas, one: Ints, other: Ints) -> tuple[Floats, Ints, Floats, Floats]:
    """Exchange, and tell the change of cost by each, its jobs (nobody: none), their slowdowns and costs."""
    nodes = np.stack([one, other], axis=1) // replicas.problem.n_slots
    replicas.exchange(one, other)
    replicas.refresh(nodes.reshape(-1))
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
