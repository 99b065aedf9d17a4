"""Virtual network blocks: small and big jobs apart, and switches cut for sizes that are powers of two.

Jokanovic 2014, section 4.2. Big jobs, larger than a switch, fill the machine from its first switch on; small
ones from its last switch back. The limit between the two moves: each block ends before the outermost switch
that the other one uses. In the big jobs' block a switch of 18 nodes has two parts, of 16 (the largest power
of two) and 2 nodes, other sizes in the same way. The parts of a switch, and its use as a *rem* switch, follow
from the uses of its nodes, so that nothing else has to be remembered.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.schedule.batch.allocation.runs import first_run, free_at, nodes_of
from mpicoloc.schedule.batch.machine import Machine
from mpicoloc.schedule.batch.view import FREE, Allocation, Nodes, Uses

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
SMALL, BIG, REM, GUEST = 1, 2, 3, 4
"""A small job in its block; a big job's virtual or whole switch; the rest of a big job; a small job for
which its block had no room, and which is in the big jobs' one."""
_N_USES = 5


def virtual_switch_size(switch_size: int) -> int:
    """Nodes of the larger part of a switch: the largest power of two in it."""
    return 1 << (switch_size.bit_length() - 1)


def choose(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """Nodes by the rules of section 4.2, or None: none of its rules finds any."""
    blocks = _Blocks(machine, uses)
    if n_nodes <= machine.switch_size:
        return _small(blocks, n_nodes)
    part = virtual_switch_size(machine.switch_size)
    if n_nodes % part == 0 and n_nodes // part <= blocks.n_with_part:
        return _virtual_switches(blocks, n_nodes // part)
    return _physical_switches(blocks, n_nodes)


class _Blocks:
    """The switches as the rules see them."""

    def __init__(self, machine: Machine, uses: Uses) -> None:
        self.machine, self.uses = machine, uses
        self.part = virtual_switch_size(machine.switch_size)
        n = machine.n_switches
        # Nodes of each switch, by their use.
        counts = np.bincount(machine.subtree[0] * _N_USES + uses, minlength=n * _N_USES).reshape(n, _N_USES)
        self.n_free = counts[:, FREE]
        self.is_rem = counts[:, REM] > 0
        is_small = counts[:, SMALL] > 0
        has_big = self.is_rem | (counts[:, BIG] > 0)
        self.end_big = int(is_small.argmax()) if is_small.any() else n
        self.begin_small = n - int(has_big[::-1].argmax()) if has_big.any() else 0
        self.has_big = has_big
        in_big = np.arange(n) < self.end_big
        self.is_empty = in_big & (self.n_free == machine.switch_size)
        self.has_free_part = in_big & ~self.is_rem & self._is_virtual_switch_free()
        self.n_with_part = int((machine.switch_sizes >= self.part).sum())

    def _is_virtual_switch_free(self) -> Bools:
        """Whether the larger part of each switch has no job: its first nodes are that part."""
        machine = self.machine
        n_free = machine.per_switch((self.uses == FREE) & (machine.place < self.part))
        return n_free == self.part


def _small(blocks: _Blocks, n_nodes: int) -> Nodes | None:
    """A whole small job at one switch: its block, then the parts of 2 nodes (rule 3), then rem switches."""
    machine, uses = blocks.machine, blocks.uses
    room = blocks.n_free >= n_nodes
    own = np.flatnonzero(room[blocks.begin_small :])
    if len(own):
        return free_at(machine, uses, blocks.begin_small + int(own[-1]), n_nodes), SMALL
    if n_nodes <= machine.switch_size - blocks.part:
        for switch in np.flatnonzero(room & blocks.has_big & ~blocks.is_rem).tolist():
            end = int(machine.starts[0][switch] + machine.switch_sizes[switch])
            start = int(machine.starts[0][switch]) + blocks.part
            nodes = start + np.flatnonzero(uses[start:end] == FREE)[:n_nodes]
            if len(nodes) == n_nodes:
                return nodes, GUEST
    # Section 4.2.4: while the limit is locked, rem switches, which are fragmented anyway.
    rem = np.flatnonzero(room & blocks.is_rem)
    return (free_at(machine, uses, int(rem[0]), n_nodes), GUEST) if len(rem) else None


def _virtual_switches(blocks: _Blocks, n_parts: int) -> Nodes | None:
    """Rule 1: a multiple of 16 nodes takes parts of 16 nodes, each of them whole."""
    switches = contiguous(blocks.machine, blocks.has_free_part, n_parts)
    if switches is None:
        return None
    nodes = blocks.machine.starts[0][switches][:, None] + np.arange(blocks.part)
    return nodes.ravel(), BIG


def _physical_switches(blocks: _Blocks, n_nodes: int) -> Nodes | None:
    """Rule 2: whole switches, and the rest of the job at one rem switch, of its subtree if there is one."""
    machine = blocks.machine
    n_whole, n_rest = divmod(n_nodes, machine.switch_size)
    switches = contiguous(machine, blocks.is_empty, n_whole)
    if switches is None:
        return None
    nodes = nodes_of(machine, switches)
    if not n_rest:
        return nodes, BIG
    rem = _rem_switch(blocks, switches, n_rest)
    if rem is None:
        return None
    rest = free_at(machine, blocks.uses, rem, n_rest)
    both = np.concatenate((nodes, rest))
    use = np.repeat(np.array([BIG, REM], np.uint8), (len(nodes), n_rest))
    order = np.argsort(both)
    return both[order], use[order]


def _rem_switch(blocks: _Blocks, switches: Ints, n_rest: int) -> int | None:
    """A rem switch with room, else an empty one that becomes one: their number follows demand.

    A switch without the rest of a job is no rem switch any more. The nearest to the job in its subtree.
    """
    n_free = blocks.n_free.copy()
    n_free[switches] = 0
    room = n_free >= n_rest
    tree = blocks.machine.switch_subtree()
    is_near = np.isin(tree, tree[switches])
    is_open = blocks.is_empty & room
    for candidates in (room & blocks.is_rem & is_near, is_open & is_near, room & blocks.is_rem, is_open):
        found = np.flatnonzero(candidates)
        if len(found):
            return int(found[np.argmin(np.abs(found - switches[-1]))])
    return None


def contiguous(machine: Machine, flags: Bools, n: int) -> Ints | None:
    """N switches among those with a flag: in a row in one subtree, in one, in a row, or the first.

    Notes
    -----
    Section 4.2.5: a job of two switches is not put into two subtrees while one has two.
    """
    if int(flags.sum()) < n:
        return None
    tree = machine.switch_subtree()
    starts = np.flatnonzero(np.diff(tree, prepend=-1))
    n_in_tree = np.add.reduceat(flags, starts, dtype=np.int64)
    trees = np.flatnonzero(n_in_tree >= n)
    if len(trees):
        ends = np.append(starts[1:], len(flags))
        for one in trees.tolist():
            place = first_run(flags[starts[one] : ends[one]], n)
            if place is not None:
                return np.arange(n) + starts[one] + place
        return np.flatnonzero(flags & (tree == trees[0]))[:n]
    place = first_run(flags, n)
    return np.flatnonzero(flags)[:n] if place is None else np.arange(place, place + n)


def can(machine: Machine, uses: Uses, sizes: Ints) -> Bools:
    """For which sizes `choose` finds nodes."""
    blocks = _Blocks(machine, uses)
    of_rem = int(blocks.n_free[blocks.is_rem].max(initial=0))
    n_whole, n_rest = np.divmod(sizes, machine.switch_size)
    n_parts = sizes // blocks.part
    is_parts = (sizes % blocks.part == 0) & (n_parts <= blocks.n_with_part)
    needs_empty = n_whole + ((n_rest > 0) & (n_rest > of_rem))
    big = np.where(is_parts, n_parts <= blocks.has_free_part.sum(), needs_empty <= blocks.is_empty.sum())
    return np.where(sizes <= machine.switch_size, sizes <= _largest_small(blocks, of_rem), big)


def _largest_small(blocks: _Blocks, of_rem: int) -> int:
    """Nodes of the largest small job that finds some."""
    machine = blocks.machine
    own = int(blocks.n_free[blocks.begin_small :].max(initial=0))
    behind = machine.per_switch((blocks.uses == FREE) & (machine.place >= blocks.part))
    guests = int(behind[blocks.has_big & ~blocks.is_rem].max(initial=0))
    return max(own, of_rem, min(guests, machine.switch_size - blocks.part))


def size_class(machine: Machine, sizes: Ints) -> Ints:
    """Small jobs, those of whole parts, and others."""
    part = virtual_switch_size(machine.switch_size)
    return np.where(sizes <= machine.switch_size, 0, np.where(sizes % part == 0, 1, 2))


ALLOCATION = Allocation("virtual-blocks", choose, is_bound_by_number=False, can=can, size_class=size_class)
