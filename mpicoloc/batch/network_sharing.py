"""Which jobs use the same links of the tree, counted while they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch.machine import Machine

Ints = NDArray[np.int64]


def links_of(machine: Machine, nodes: Ints) -> Iterator[tuple[int, list[int], list[int]]]:
    """The links above subtrees that a job uses.

    Result: for each level up to the last on which the job is in several subtrees: the level, from 1; these
    subtrees; and the job's nodes in each.
    """
    for level in range(1, machine.height):
        tree_of = machine.subtree[level - 1]
        if tree_of[nodes[0]] == tree_of[nodes[-1]]:
            return  # nodes ascend, so it is in one subtree on this level and above
        trees = tree_of[nodes]
        ends = np.append(np.flatnonzero(trees[1:] != trees[:-1]), len(trees) - 1)
        yield level, trees[ends].tolist(), np.diff(ends, prepend=-1).tolist()


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
        for level, trees, _ in links_of(self.machine, nodes):
            self.n_subtrees[job, level - 1] = len(trees)
            own = [(level, tree) for tree in trees]
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
