"""Virtual network blocks: small and big jobs apart, and switches cut for sizes that are powers of two.

Jokanovic 2014, section 4.2. Big jobs, larger than a switch, fill the machine from its first switch on; small
ones from its last switch back. The limit between the two moves: each block ends before the outermost switch
that the other one uses. In the big jobs' block a switch of 18 nodes has two parts, of 16 (the largest power
of two) and 2 nodes, other sizes in the same way. The parts of a switch, and its use as a *rem* switch, follow
from the uses of its nodes, so that nothing else has to be remembered.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch.allocation.runs import first_run, free_at, nodes_of
from mpicoloc.batch.machine import Machine
from mpicoloc.batch.view import FREE, Allocation, Nodes, Uses

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
    blocks = _blocks_of(machine, uses.tobytes())
    if n_nodes <= machine.switch_size:
        return _small(blocks, n_nodes)
    part = virtual_switch_size(machine.switch_size)
    if n_nodes % part == 0 and n_nodes // part <= blocks.n_with_part:
        return _virtual_switches(blocks, n_nodes // part)
    return _physical_switches(blocks, n_nodes)


class _Layout:
    """What of the switches never changes."""

    def __init__(self, machine: Machine) -> None:
        self.n = machine.n_switches
        self.part = virtual_switch_size(machine.switch_size)
        # For each node the first of the numbers of uses of its part of its switch.
        self.first_use = (2 * machine.subtree[0] + (machine.place >= self.part)) * _N_USES
        self.n_with_part = int(np.count_nonzero(machine.switch_sizes >= self.part))
        self.tree = machine.switch_subtree()
        starts = np.flatnonzero(np.diff(self.tree, prepend=-1))
        self.tree_starts, self.tree_ends = starts, np.append(starts[1:], self.n)


_layout = functools.lru_cache(maxsize=64)(_Layout)


class _Blocks:
    """The switches as the rules see them; what only some rules ask for is found when they do."""

    def __init__(self, machine: Machine, uses: Uses) -> None:
        layout = _layout(machine)
        self.machine, self.uses, self.layout = machine, uses, layout
        self.n, self.part, self.n_with_part = layout.n, layout.part, layout.n_with_part
        # Nodes of each part of each switch, by their use.
        counts = np.bincount(layout.first_use + uses, minlength=2 * self.n * _N_USES)
        self._of_part = counts.reshape(self.n, 2, _N_USES)
        self._of_switch = self._of_part[:, 0] + self._of_part[:, 1]
        self.n_free = self._of_switch[:, FREE]
        self.is_rem = self._of_switch[:, REM] > 0
        is_small = self._of_switch[:, SMALL] > 0
        first = int(is_small.argmax())
        # The big jobs' block ends before the first switch of the small jobs' block.
        self.end_big = first if is_small[first] else self.n

    @functools.cached_property
    def has_big(self) -> Bools:
        """Switches with nodes of big jobs."""
        return self.is_rem | (self._of_switch[:, BIG] > 0)

    @functools.cached_property
    def begin_small(self) -> int:
        """The switch behind the last one of the big jobs' block."""
        last = self.n - 1 - int(self.has_big[::-1].argmax())
        return last + 1 if self.has_big[last] else 0

    @functools.cached_property
    def is_empty(self) -> Bools:
        """Whole switches of the big jobs' block without a job."""
        flags = self.n_free == self.machine.switch_size
        flags[self.end_big :] = False
        return flags

    @functools.cached_property
    def has_free_part(self) -> Bools:
        """Switches of the big jobs' block of which the larger part, their first nodes, has no job."""
        flags = (self._of_part[:, 0, FREE] == self.part) & ~self.is_rem
        flags[self.end_big :] = False
        return flags

    @functools.cached_property
    def most_in_rem(self) -> int:
        """Most free nodes of a rem switch."""
        return int((self.n_free * self.is_rem).max())

    @functools.cached_property
    def largest_small(self) -> int:
        """Nodes of the largest small job that finds some."""
        own = int(self.n_free[self.begin_small :].max(initial=0))
        guests = int((self._of_part[:, 1, FREE] * (self.has_big & ~self.is_rem)).max())
        return max(own, self.most_in_rem, min(guests, self.machine.switch_size - self.part))

    def can(self, n_nodes: int) -> bool:
        """Whether a job of this size finds nodes."""
        if n_nodes <= self.machine.switch_size:
            return n_nodes <= self.largest_small
        n_parts, n_over = divmod(n_nodes, self.part)
        if not n_over and n_parts <= self.n_with_part:
            return n_parts <= int(np.count_nonzero(self.has_free_part))
        n_whole, n_rest = divmod(n_nodes, self.machine.switch_size)
        n_empty = int(np.count_nonzero(self.is_empty))
        return n_whole + (n_rest > self.most_in_rem) <= n_empty


@functools.lru_cache(maxsize=128)
def _blocks_of(machine: Machine, uses: bytes) -> _Blocks:
    """The switches under uses that were looked at a short time ago, as many of the expected ones were."""
    return _Blocks(machine, np.frombuffer(uses, np.uint8))


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
    tree = blocks.layout.tree
    is_ours = np.zeros(blocks.n, bool)
    is_ours[tree[switches]] = True
    is_near = is_ours[tree]
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
    if np.count_nonzero(flags) < n:
        return None
    layout = _layout(machine)
    starts, ends = layout.tree_starts, layout.tree_ends
    n_in_tree = np.add.reduceat(flags, starts, dtype=np.int64)
    trees = np.flatnonzero(n_in_tree >= n)
    if len(trees):
        for one in trees.tolist():
            place = first_run(flags[starts[one] : ends[one]], n)
            if place is not None:
                return np.arange(n) + starts[one] + place
        return np.flatnonzero(flags & (layout.tree == trees[0]))[:n]
    place = first_run(flags, n)
    return np.flatnonzero(flags)[:n] if place is None else np.arange(place, place + n)


def can(machine: Machine, uses: Uses, sizes: Ints) -> Bools:
    """For which sizes `choose` finds nodes."""
    blocks = _blocks_of(machine, uses.tobytes())
    wanted = sizes.tolist()
    found = {size: blocks.can(size) for size in set(wanted)}
    return np.array([found[size] for size in wanted], bool)


ALLOCATION = Allocation("virtual-blocks", choose, is_bound_by_number=False, can=can)
