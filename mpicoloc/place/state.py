"""Many placements of the same jobs at once, in which slots can be exchanged and what changes is known.

Replicas stand one after the other: node i of replica r is r n_nodes + i, and so for jobs. An empty slot holds
the job `Replicas.nobody`.
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from mpicoloc.place.problem import Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
PENALTY = 10.0
"""What a broken constraint costs, in costs of the most disturbed job: more than one move gains."""
SAME = 1e-12
"""Relative difference of slowdowns that is rounding."""
WORST_POWER = 16.0
"""The largest slowdown is sought by the sum of this power, to which each job adds by itself."""


def random_placement(problem: Problem, rng: np.random.Generator) -> Ints:
    """Job in each slot, shape (n_nodes, n_slots), -1 where none is: `DistributeWorkloadsRandom`.

    Jobs of many nodes first, each on the nodes with most free slots; ties are broken at random. So whatever
    fits is placed.
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
    """Job in each slot as of `random_placement`, but jobs stand on neighbouring nodes, slot after slot.

    So jobs of one size share all of their nodes with the same others, which suits those that wait for their
    slowest node.
    """
    sizes = problem.sizes
    order = sorted(rng.permutation(len(sizes)).tolist(), key=lambda job: -sizes[job])
    flat = np.full(problem.n_nodes * problem.n_slots, -1, np.int64)
    row = np.repeat(order, sizes[order])
    flat[: len(row)] = row
    return np.ascontiguousarray(flat.reshape(problem.n_slots, problem.n_nodes).T)


class Replicas:
    """Placements with the pressure in each slot and the cost of each job.

    Parameters
    ----------
    problem : Problem
    placements : ndarray of int, shape (n_replicas, n_nodes, n_slots)
        Job in each slot, -1 where none is.
    objective : str
        One of `problem.OBJECTIVES`.
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
        """Slots of each job, -1 in what a job has not, and the place of each slot in its job's row."""
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
        """Whether jobs, by their numbers in the problem, are slowed more than they may be."""
        return np.asarray(slowdown > self.problem.limit[local] * (1 + SAME))

    def n_violations(self) -> Floats:
        """Constraints that each replica breaks."""
        shape = self.n_replicas, self.n_jobs
        apart = self.n_broken.reshape(self.n_replicas, -1).sum(axis=1) / 2
        over = self.is_over(self.slowdown[:-1].reshape(shape), np.arange(self.n_jobs)).sum(axis=1)
        return np.asarray(apart + over)

    def cost_of(self, slowdown: Floats) -> Floats:
        """What jobs with these slowdowns add to the objective, which is made small."""
        if self.objective == "speedup":
            return np.asarray(-1.0 / slowdown)
        return slowdown if self.objective == "sum" else np.asarray(slowdown**WORST_POWER)

    def exchange(self, one: Ints, other: Ints) -> None:
        """Swap what is in slots `one` and `other`; no slot may be there twice."""
        job_one, job_other = self.job[one], self.job[other]
        place_one, place_other = self.place[one], self.place[other]
        # The row of nobody has no slots: what is written there is not read.
        self.slots[job_one, place_one], self.slots[job_other, place_other] = other, one
        self.job[one], self.job[other] = job_other, job_one
        self.place[one], self.place[other] = place_other, place_one

    def totals(self) -> Floats:
        """Cost of each replica."""
        return np.asarray(self.cost[:-1].reshape(self.n_replicas, self.n_jobs).sum(axis=1))

    def slowdowns(self, replica: int) -> Floats:
        """Slowdown of each job of a replica."""
        return self.slowdown[:-1].reshape(self.n_replicas, self.n_jobs)[replica].copy()

    def placement(self, replica: int) -> Ints:
        """Job in each slot of a replica, shape (n_nodes, n_slots), -1 where none is."""
        shape = (self.n_replicas, self.problem.n_nodes, self.problem.n_slots)
        jobs = self.job.reshape(shape)[replica]
        return np.where(jobs == self.nobody, -1, jobs - replica * self.n_jobs)
