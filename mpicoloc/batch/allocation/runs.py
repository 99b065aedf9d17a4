"""Runs of neighbours in a row of flags, and free nodes of some switches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch.machine import Machine
from mpicoloc.batch.view import FREE, Uses

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def first_run(flags: Bools, n: int) -> int | None:
    """Place of the first n flags in a row that are set; None: there are none."""
    padded = np.zeros(len(flags) + 2, bool)
    padded[1:-1] = flags
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    starts, ends = edges[::2], edges[1::2]
    long = np.flatnonzero(ends - starts >= n)
    return int(starts[long[0]]) if len(long) else None


def nodes_of(machine: Machine, switches: Ints) -> Ints:
    """All nodes of some first-level switches, in the order of these."""
    starts, sizes = machine.starts[0][switches], machine.switch_sizes[switches]
    before = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)


def free_at(machine: Machine, uses: Uses, switch: int, n: int) -> Ints:
    """The first n free nodes of a switch."""
    start = int(machine.starts[0][switch])
    row = uses[start : start + int(machine.switch_sizes[switch])]
    return start + np.flatnonzero(row == FREE)[:n]
