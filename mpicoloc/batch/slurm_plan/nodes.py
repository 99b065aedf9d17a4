"""Weights of nodes and partitions of Slurm that come nearest to each allocation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch.machine import Machine
from mpicoloc.batch.slurm_plan.demand import Demand

Ints = NDArray[np.int64]
MAX_WEIGHTS = 1024
"""Slurm goes through nodes weight by weight, so it is slow with many."""


@dataclass(frozen=True)
class Queue:
    """A partition to be written.

    Parameters
    ----------
    name : str
    nodes : ndarray of int
    words : str
        What limits its jobs, such as ``MaxNodes=18``.
    """

    name: str
    nodes: Ints
    words: str = ""


@dataclass(frozen=True)
class Layout:
    """How Slurm is to choose nodes.

    Parameters
    ----------
    weights : ndarray of int, shape (n_nodes,)
        Of each node; lower ones are taken first.
    has_tree : bool
        Slurm knows the switches.
    is_cut : bool
        They are those of virtual network blocks.
    queues : tuple of Queue
    differences : tuple of str
        What Slurm does otherwise than the simulated allocation, whatever the queues are.
    queue_differences : tuple of str
        What it does otherwise because of the queues.
    """

    weights: Ints
    has_tree: bool
    is_cut: bool
    queues: tuple[Queue, ...]
    differences: tuple[str, ...] = ()
    queue_differences: tuple[str, ...] = ()


def layout(allocation: str, machine: Machine, demand: Demand) -> Layout:
    """The layout that comes nearest to an allocation of `batch.allocation.registry.ALLOCATIONS`."""
    alike, every = np.ones(machine.n_nodes, np.int64), np.arange(machine.n_nodes)
    whole = (Queue("batch", every),)
    if allocation == "first-available":
        return _first_available(machine, whole)
    if allocation == "virtual-blocks":
        return _virtual_blocks(machine, demand)
    if allocation == "exclusive":
        return Layout(alike, True, False, _by_size(machine, every, every), _EXCLUSIVE, (_BY_SIZE,))
    return Layout(alike, True, False, whole, _CONTIGUOUS if allocation == "first-contiguous" else ())


def _first_available(machine: Machine, queues: tuple[Queue, ...]) -> Layout:
    if machine.n_nodes <= MAX_WEIGHTS:
        return Layout(np.arange(1, machine.n_nodes + 1), False, False, queues)
    difference = (
        f"Nodes of one switch have one weight, since there are more than {MAX_WEIGHTS:,} nodes: of a switch "
        "Slurm takes any of them."
    )
    return Layout(machine.subtree[0] + 1, False, False, queues, (difference,))


def _virtual_blocks(machine: Machine, demand: Demand) -> Layout:
    """Switches for big jobs first, for small ones last, and those between for both, which fill up last.

    Each kind has the switches that it used on average over time for itself. The others must hold the largest
    job, and the largest small one.
    """
    size, n = machine.switch_size, machine.n_switches
    last_whole = int(np.flatnonzero(machine.switch_sizes == size)[-1])
    n_big = min(int(demand.big_nodes // size), last_whole)
    room = max((machine.n_nodes - max(demand.largest_nodes, size)) // size, 0)
    n_small = min(int(demand.small_nodes // size), n - n_big, room)
    switch = machine.subtree[0]
    big, small = np.flatnonzero(switch < n - n_small), np.flatnonzero(switch >= n_big)
    is_between = (switch >= n_big) & (switch < n - n_small)
    queues = _by_size(machine, big, small)
    return Layout(1 + is_between, True, True, queues, _BLOCKS, (_BY_SIZE, _FIXED_LIMIT))


def _by_size(machine: Machine, big: Ints, small: Ints) -> tuple[Queue, ...]:
    size = machine.switch_size
    return Queue("big", big, f"MinNodes={size + 1}"), Queue("small", small, f"MaxNodes={size}")


_BY_SIZE = (
    "Jobs come to both partitions, and run in the one that takes their size: SBATCH_PARTITION=big,small in "
    "the environment of users."
)
_CONTIGUOUS = (
    "A job that fits a switch gets the one with the fewest free nodes that suffice, not the first one.",
    "Larger jobs get the lowest switch with room, not switches or nodes in a row.",
)
_EXCLUSIVE = (
    "Nothing keeps two big jobs out of one subtree. Slurm 24.05 and later can keep a block of nodes for one "
    "job (topology/block, with ExclusiveTopo=YES of their partition), and then for no small one either.",
    "A small job waits for a single switch if it says --switches=1, for max_switch_wait at most.",
)
_FIXED_LIMIT = (
    "The limit between big and small jobs does not move: each kind has the switches that it used on average, "
    "and both share those between, in the same order, since a node has one weight for all partitions."
)
_BLOCKS = (
    "The rest of a big job goes to any switch with room: Slurm knows no rem switches.",
    "Small jobs may be put across switches; with --switches=1 they wait for one, up to max_switch_wait.",
)
