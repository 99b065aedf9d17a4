"""Exchange of equal nodes in a fat-tree, so that jobs contend least for links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpicoloc.core.network import Levelled
from mpicoloc.core.profile import Floats, Ints

MAX_STEPS, STEPS_PER_NODE = 20_000, 200
"""Largest number of exchanges that are tried, also for each node."""
MAX_CELLS = 500_000_000
"""Limit of exchanges times jobs times subtrees: a second or two."""


class Contention:
    """Contention of jobs on the links above switches and subtrees.

    Two jobs contend on the links above a subtree if both have nodes inside and outside it. Each such pair
    costs the product of the fractions of time that they keep these links busy: to first order, their delay
    (Jokanovic 2014, section 3.4: few sharers, and high demands beside low ones).

    Parameters
    ----------
    topology : Levelled
    hosts : ndarray of int, shape (n_nodes,)
        Host of each node in the topology.
    sizes : sequence of int
        Number of nodes of each job.
    busy : ndarray, shape (n_jobs, height)
        Fraction of its time for which each job keeps the links of each level busy.
    """

    def __init__(self, topology: Levelled, hosts: Ints, sizes: Sequence[int], busy: Floats) -> None:
        self.sizes, self.busy, self.n_nodes = np.array(sizes), busy, len(hosts)
        self.subtree = [
            np.unique(topology.subtree(level, hosts), return_inverse=True)[1].ravel()
            for level in range(1, topology.height)
        ]

    @property
    def n_cells(self) -> int:
        """Number of jobs times number of subtrees, of all levels."""
        return len(self.sizes) * sum(int(level.max()) + 1 for level in self.subtree)

    def by_tree(self) -> Ints:
        """The nodes in the order of the tree."""
        return np.lexsort([np.arange(self.n_nodes), *self.subtree])

    def users(self, slots: Ints, level: int) -> Floats:
        """Busy fraction of each job on the links above each subtree, 0 if it does not use them.

        Shapes: `slots` (n_nodes, n_slots), with the job in each slot; result (n_jobs, n_subtrees).
        """
        subtree, n_jobs = self.subtree[level - 1], len(self.sizes)
        n = int(subtree.max()) + 1
        node, slot = np.nonzero(slots >= 0)
        cells = np.bincount(slots[node, slot] * n + subtree[node], minlength=n_jobs * n).reshape(n_jobs, n)
        return np.asarray(self.busy[:, level, None] * ((cells > 0) & (cells < self.sizes[:, None])))

    def cost(self, slots: Ints) -> float:
        """Sum over all links and pairs of jobs."""
        total = 0.0
        for level in range(1, len(self.subtree) + 1):
            used = self.users(slots, level)
            total += float((used.sum(axis=0) ** 2 - (used**2).sum(axis=0)).sum()) / 2
        return total

    def n_pairs(self, slots: Ints) -> int:
        """Number of pairs of jobs that share links."""
        shared = np.zeros((len(self.sizes),) * 2, bool)
        for level in range(1, len(self.subtree) + 1):
            used = (self.users(slots, level) > 0).astype(np.int64)
            shared |= used @ used.T > 0
        return int(np.triu(shared, 1).sum())


def arrange(slots: Ints, contention: Contention, rng: np.random.Generator) -> Ints:
    """The same groups of jobs in another order of nodes: the best that annealing found.

    Shapes: `slots` and result (n_nodes, n_slots).
    """
    together = np.empty_like(slots)
    together[contention.by_tree()] = slots[np.lexsort(slots.T[::-1])[::-1]]
    now = min((slots, together), key=contention.cost).copy()
    best, least, cost, n_nodes = now.copy(), contention.cost(now), contention.cost(now), len(slots)
    n_steps = min(MAX_STEPS, STEPS_PER_NODE * n_nodes, MAX_CELLS // max(contention.n_cells, 1))
    heat = np.linspace(0.5 * float(contention.busy.max()) ** 2, 0.0, n_steps) * rng.exponential(size=n_steps)
    for step, (one, other) in enumerate(rng.integers(0, n_nodes, (n_steps, 2)).tolist()):
        if least == 0:
            break
        if np.array_equal(now[one], now[other]):
            continue
        now[[one, other]] = now[[other, one]]
        changed = contention.cost(now)
        if changed > cost + heat[step]:
            now[[one, other]] = now[[other, one]]
            continue
        cost = changed
        if cost < least:
            best, least = now.copy(), cost
    return best
