"""Best fit: the lowest switch that has room, as Slurm's ``topology/tree`` chooses it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch.machine import Machine
from mpicoloc.batch.view import FREE, Allocation, Nodes, Uses


def choose(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """Nodes below the lowest switch with room for the job; of several, the one with the fewest free nodes.

    Below it first-level switches are filled: the one with the fewest free nodes that holds what is left, else
    the one with most.

    Notes
    -----
    Slurm, ``topology.conf`` (topology/tree): "best-fit" on the leaf switches of the lowest switch in the
    hierarchy that can satisfy a job. Ties go to the switch that comes first.
    """
    free = uses == FREE
    for level in range(machine.height):
        starts = machine.starts[level]
        n_free = np.add.reduceat(free, starts, dtype=np.int64)
        room = np.flatnonzero(n_free >= n_nodes)
        if len(room):
            tree = int(room[np.argmin(n_free[room])])
            end = int(starts[tree + 1]) if tree + 1 < len(starts) else machine.n_nodes
            return _filled(machine, free, int(starts[tree]), end, n_nodes), 1
    return None


def _filled(
    machine: Machine, free: NDArray[np.bool_], start: int, end: int, n_nodes: int
) -> NDArray[np.int64]:
    """Free nodes between two nodes, filled switch by switch."""
    first, last = np.searchsorted(machine.starts[0], (start, end))
    n_free = machine.per_switch(free)[first:last]
    by_room = np.argsort(-n_free, kind="stable")
    filled, left = [], n_nodes
    while left > 0:
        holds = n_free[by_room] >= left
        # by_room descends, so the last that holds what is left is the best fit; of equals the first switch.
        n_holds = int(holds.sum())
        best = int(np.searchsorted(-n_free[by_room], -n_free[by_room[n_holds - 1]])) if n_holds else 0
        switch = int(by_room[best]) + int(first)
        begin = int(machine.starts[0][switch])
        row = free[begin : begin + int(machine.switch_sizes[switch])]
        filled.append(begin + np.flatnonzero(row)[:left])
        left -= len(filled[-1])
        by_room = np.delete(by_room, best)
    return np.sort(np.concatenate(filled))


ALLOCATION = Allocation("best-fit", choose, is_bound_by_number=True)
