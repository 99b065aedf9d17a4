"""First available: the first free nodes, whatever switches they are at."""

from __future__ import annotations

import numpy as np

from mpicoloc.batch.machine import Machine
from mpicoloc.batch.view import FREE, Allocation, Nodes, Uses


def choose(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """The first `n_nodes` free nodes (Jokanovic 2014, section 4.3)."""
    nodes = np.flatnonzero(uses == FREE)[:n_nodes]
    return (nodes, 1) if len(nodes) == n_nodes else None


ALLOCATION = Allocation("first-available", choose, is_bound_by_number=True)
