"""First contiguous: one switch, else switches in a row, else the first free nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch.allocation import first_available
from mpicoloc.batch.allocation.runs import first_run, free_at
from mpicoloc.batch.machine import Machine
from mpicoloc.batch.view import FREE, Allocation, Nodes, Uses


def choose(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """Nodes at as few switches as the rule finds.

    A job that fits a switch takes the first with room for it. A larger one takes the first free switches in a
    row that hold it, else the first free nodes in a row. Where there are none, the first free nodes.

    Notes
    -----
    Jokanovic 2014, section 4.3, which leaves open what "as much as possible" means.
    """
    free = uses == FREE
    if n_nodes <= machine.switch_size:
        room = np.flatnonzero(machine.per_switch(free) >= n_nodes)
        if len(room):
            return free_at(machine, uses, int(room[0]), n_nodes), 1
    else:
        start = _first_free_switches(machine, free, n_nodes)
        start = first_run(free, n_nodes) if start is None else start
        if start is not None:
            return np.arange(start, start + n_nodes), 1
    return first_available.choose(machine, uses, n_nodes)


def _first_free_switches(machine: Machine, free: NDArray[np.bool_], n_nodes: int) -> int | None:
    """First node of the first free switches in a row that hold a job."""
    is_free = machine.per_switch(free) == machine.switch_sizes
    switch = first_run(is_free, -(-n_nodes // machine.switch_size))
    if switch is None:
        return None
    start = int(machine.starts[0][switch])
    # Switches may be smaller than the largest, so the last node can be beyond those that were counted.
    return start if start + n_nodes <= machine.n_nodes and free[start : start + n_nodes].all() else None


ALLOCATION = Allocation("first-contiguous", choose, is_bound_by_number=True)
