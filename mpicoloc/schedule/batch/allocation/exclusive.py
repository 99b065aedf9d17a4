"""Exclusive: no job shares a link with another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.schedule.batch.allocation.runs import free_at
from mpicoloc.schedule.batch.machine import Machine
from mpicoloc.schedule.batch.view import FREE, Allocation, Nodes, Uses

SMALL, BIG = 1, 2


def choose(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """One switch for a small job; for a big one, whole subtrees without another big job.

    A small job takes the first switch with room. A big job takes the first subtree with enough free nodes,
    else as few as possible, those with most free nodes first.

    Notes
    -----
    Jokanovic 2014, section 4.3. Small jobs use no link above their switch, so they may be in such a subtree.
    """
    if n_nodes <= machine.switch_size:
        room = np.flatnonzero(machine.per_switch(uses == FREE) >= n_nodes)
        return (free_at(machine, uses, int(room[0]), n_nodes), SMALL) if len(room) else None
    tree, starts = machine.subtree[machine.top_level - 1], machine.starts[machine.top_level - 1]
    has_big = np.maximum.reduceat(uses, starts) == BIG
    n_free = np.where(has_big, 0, np.add.reduceat(uses == FREE, starts, dtype=np.int64))
    trees = _subtrees(n_free, n_nodes)
    if trees is None:
        return None
    is_ours = np.isin(np.arange(len(starts)), trees)
    nodes = np.flatnonzero(is_ours[tree] & (uses == FREE))[:n_nodes]
    return nodes, BIG


def _subtrees(n_free: NDArray[np.int64], n_nodes: int) -> NDArray[np.int64] | None:
    enough = np.flatnonzero(n_free >= n_nodes)
    if len(enough):
        return enough[:1]
    fullest = np.argsort(-n_free, kind="stable")
    n = int(np.searchsorted(np.cumsum(n_free[fullest]), n_nodes)) + 1
    return fullest[:n] if n <= len(fullest) else None


def can(machine: Machine, uses: Uses, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For which sizes `choose` finds nodes."""
    is_free = uses == FREE
    starts = machine.starts[machine.top_level - 1]
    has_big = np.maximum.reduceat(uses, starts) == BIG
    n_free = np.where(has_big, 0, np.add.reduceat(is_free, starts, dtype=np.int64))
    most = np.where(sizes <= machine.switch_size, machine.per_switch(is_free).max(), n_free.sum())
    return np.asarray(sizes <= most)


def size_class(machine: Machine, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Small jobs and big ones."""
    return np.asarray(sizes > machine.switch_size, np.int64)


ALLOCATION = Allocation("exclusive", choose, is_bound_by_number=False, can=can, size_class=size_class)
