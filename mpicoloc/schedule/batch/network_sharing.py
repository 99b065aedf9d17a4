"""Which jobs use the same links of the tree, counted while they run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.schedule.batch.machine import Machine

Ints = NDArray[np.int64]


class SharedLinks:
    """Observer of a simulation that counts pairs of jobs on the same links.

    Two jobs share the links of level l above a subtree of that level if both have nodes in it, and both have
    nodes outside it, too, at the same time (Jokanovic 2014, section 4.3 and Figure 4.10). Level 1 are the
    up-links of first-level switches, which the thesis calls the second level.

    Parameters
    ----------
    machine : Machine
    n_jobs : int

    Attributes
    ----------
    n_sharers : ndarray of int, shape (n_jobs,)
        Other jobs with which each shared a link of any level at any time.
    n_subtrees : ndarray of int, shape (n_jobs, height)
        Subtrees of level 1, 2, ... that each job was in; of level 1: first-level switches.
    n_pairs : dict of int to int
        Pairs of jobs that shared links of each level.
    """

    def __init__(self, machine: Machine, n_jobs: int) -> None:
        self.machine = machine
        self.n_sharers = np.zeros(n_jobs, np.int64)
        self.n_subtrees = np.ones((n_jobs, machine.height), np.int32)
        self.n_pairs = dict.fromkeys(range(1, machine.height), 0)
        self._users: dict[tuple[int, int], set[int]] = {}
        self._links: dict[int, list[tuple[int, int]]] = {}

    def began(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Count the jobs that use links which this one uses now, too; nodes are in ascending order."""
        others: set[int] = set()
        links: list[tuple[int, int]] = []
        for level, n in enumerate(self._count_subtrees(job, nodes), 1):
            if n == 1:
                break  # it climbs no higher
            trees = self.machine.subtree[level - 1][nodes]
            own = [(level, tree) for tree in dict.fromkeys(trees.tolist())]
            here = set().union(*(self._users.get(link, ()) for link in own))
            self.n_pairs[level] += len(here)
            others |= here
            links += own
        for link in links:
            self._users.setdefault(link, set()).add(job)
        if links:
            self._links[job] = links
        if others:
            self.n_sharers[job] += len(others)
            self.n_sharers[list(others)] += 1

    def ended(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Forget a job's links."""
        for link in self._links.pop(job, ()):
            self._users[link].discard(job)

    def _count_subtrees(self, job: int, nodes: Ints) -> list[int]:
        """Subtrees of each level below the roots that a job is in."""
        counts = []
        for level in range(1, self.machine.height):
            trees = self.machine.subtree[level - 1]
            if trees[nodes[0]] == trees[nodes[-1]]:
                break  # nodes ascend, so it is in one subtree on this level and above
            own = trees[nodes]
            n = 1 + int(np.count_nonzero(own[1:] != own[:-1]))
            self.n_subtrees[job, level - 1] = n
            counts.append(n)
        return counts
