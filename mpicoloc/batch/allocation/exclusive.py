"""Exclusive: no job shares a link with another."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch.allocation.runs import free_at
from mpicoloc.batch.machine import Machine
from mpicoloc.batch.view import FREE, Allocation, Nodes, Uses

SMALL, BIG = 1, 2
_N_USES = 3


def choose(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """One switch for a small job; for a big one, whole subtrees without another big job.

    A small job takes the first switch with room. A big job takes the first subtree with enough free nodes,
    else as few as possible, those with most free nodes first.

    Notes
    -----
    Jokanovic 2014, section 4.3. Small jobs use no link above their switch, so they may be in such a subtree.
    """
    if n_nodes <= machine.switch_size:
        room = np.flatnonzero(_free_for_small(machine, uses.tobytes()) >= n_nodes)
        return (free_at(machine, uses, int(room[0]), n_nodes), SMALL) if len(room) else None
    n_free = _free_for_big(machine, uses.tobytes())
    trees = _subtrees(n_free, n_nodes)
    if trees is None:
        return None
    is_ours = np.zeros(len(n_free), bool)
    is_ours[trees] = True
    nodes = np.flatnonzero(is_ours[machine.subtree[machine.top_level - 1]] & (uses == FREE))[:n_nodes]
    return nodes, BIG


@functools.lru_cache(maxsize=64)
def _trees_of(machine: Machine) -> tuple[NDArray[np.int64], int]:
    """For each node the first of the numbers of uses of its subtree below the roots; such subtrees."""
    level = machine.top_level - 1
    return machine.subtree[level] * _N_USES, len(machine.starts[level])


@functools.lru_cache(maxsize=128)
def _free_for_small(machine: Machine, uses: bytes) -> NDArray[np.int64]:
    """Nodes of each first-level switch that a small job can have.

    Uses that were looked at a short time ago come again, as many of the expected ones do.
    """
    return machine.per_switch(np.frombuffer(uses, np.uint8) == FREE)


@functools.lru_cache(maxsize=128)
def _free_for_big(machine: Machine, uses: bytes) -> NDArray[np.int64]:
    """Nodes of each subtree below the roots that a big job can have: none beside another big job."""
    first_use, n_trees = _trees_of(machine)
    numbers = first_use + np.frombuffer(uses, np.uint8)
    counts = np.bincount(numbers, minlength=n_trees * _N_USES).reshape(n_trees, _N_USES)
    return counts[:, FREE] * (counts[:, BIG] == 0)


def _subtrees(n_free: NDArray[np.int64], n_nodes: int) -> NDArray[np.int64] | None:
    if n_free.sum() < n_nodes:
        return None
    enough = np.flatnonzero(n_free >= n_nodes)
    if len(enough):
        return enough[:1]
    fullest = np.argsort(-n_free, kind="stable")
    return fullest[: int(np.searchsorted(np.cumsum(n_free[fullest]), n_nodes)) + 1]


def can(machine: Machine, uses: Uses, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For which sizes `choose` finds nodes."""
    is_small = sizes <= machine.switch_size
    n_small = np.count_nonzero(is_small)
    key = uses.tobytes()
    most_small = _free_for_small(machine, key).max() if n_small else 0
    most_big = _free_for_big(machine, key).sum() if n_small < len(sizes) else 0
    if n_small in (0, len(sizes)):
        return np.asarray(sizes <= max(most_small, most_big))
    return np.asarray(sizes <= np.where(is_small, most_small, most_big))


ALLOCATION = Allocation("exclusive", choose, is_bound_by_number=False, can=can)
