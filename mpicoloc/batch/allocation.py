"""Allocations: rules that choose the nodes of a job."""

from __future__ import annotations

import functools

import numpy as np

from mpicoloc.batch.inputs import Machine
from mpicoloc.batch.order import FREE, Allocation, Nodes, Uses
from mpicoloc.core.profile import Bools, Ints
from mpicoloc.errors import UsageError


def first_available(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """The first `n_nodes` free nodes (Jokanovic 2014, section 4.3)."""
    nodes = np.flatnonzero(uses == FREE)[:n_nodes]
    return (nodes, 1) if len(nodes) == n_nodes else None


def first_run(flags: Bools, n: int) -> int | None:
    """Index of the first run of n set flags; None if there is no such run."""
    padded = np.zeros(len(flags) + 2, bool)
    padded[1:-1] = flags
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    starts, ends = edges[::2], edges[1::2]
    long = np.flatnonzero(ends - starts >= n)
    return int(starts[long[0]]) if len(long) else None


def nodes_of(machine: Machine, switches: Ints) -> Ints:
    """All nodes of the given first-level switches, in the order of the switches."""
    starts, sizes = machine.starts[0][switches], machine.switch_sizes[switches]
    before = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)


def free_at(machine: Machine, uses: Uses, switch: int, n: int) -> Ints:
    """The first n free nodes of a switch."""
    start = int(machine.starts[0][switch])
    return start + np.flatnonzero(uses[start : start + int(machine.switch_sizes[switch])] == FREE)[:n]


def first_contiguous(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """Contiguous nodes, at few switches.

    A job that fits a switch takes nodes of the first switch with room for it. A larger job takes the first
    run of free switches that holds it, else the first run of free nodes that holds it. If there is no such
    switch or run, the job takes the first free nodes.

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
    return first_available(machine, uses, n_nodes)


def _first_free_switches(machine: Machine, free: Bools, n_nodes: int) -> int | None:
    """First node of the first run of free switches that can hold a job of `n_nodes`; None if none can."""
    is_free = machine.per_switch(free) == machine.switch_sizes
    switch = first_run(is_free, -(-n_nodes // machine.switch_size))
    if switch is None:
        return None
    start = int(machine.starts[0][switch])
    # A switch can be smaller than the largest one, so the run may need nodes of the switch after it.
    return start if start + n_nodes <= machine.n_nodes and free[start : start + n_nodes].all() else None


def best_fit(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """Nodes below the lowest switch with room for the job; of several, the switch with the fewest free nodes.

    Below that switch, first-level switches are filled one by one. If some of them can hold the rest of the
    job, the next one filled is the one of these with the fewest free nodes; if none can, it is the one with
    the most free nodes.

    Notes
    -----
    Slurm, ``topology.conf`` (topology/tree): "best-fit" on the leaf switches of the lowest switch in the
    hierarchy that can satisfy a job. Among equal switches the first one is chosen.
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


def _filled(machine: Machine, free: Bools, start: int, end: int, n_nodes: int) -> Ints:
    """Free nodes for the job in a range of nodes, taken switch by switch."""
    first, last = np.searchsorted(machine.starts[0], (start, end))
    n_free = machine.per_switch(free)[first:last]
    by_room = np.argsort(-n_free, kind="stable")
    filled, left = [], n_nodes
    while left > 0:
        holds = n_free[by_room] >= left
        # by_room descends, so the last switch that holds the rest fits best. Among equal ones take the first.
        n_holds = int(holds.sum())
        best = int(np.searchsorted(-n_free[by_room], -n_free[by_room[n_holds - 1]])) if n_holds else 0
        switch = int(by_room[best]) + int(first)
        begin = int(machine.starts[0][switch])
        row = free[begin : begin + int(machine.switch_sizes[switch])]
        filled.append(begin + np.flatnonzero(row)[:left])
        left -= len(filled[-1])
        by_room = np.delete(by_room, best)
    return np.sort(np.concatenate(filled))


SMALL, BIG, REM, GUEST = 1, 2, 3, 4
"""Uses of a node: by a small job; by a big job; and, with virtual blocks only, by the rest of a big job that
does not fill a whole switch; by a small job that is in the big jobs' block because its own had no room."""
_N_USES_EXCLUSIVE = 3


def exclusive(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """One switch for a small job; for a big job, subtrees without another big job.

    A small job takes the first switch with room. A big job takes the first such subtree with enough free
    nodes; if there is none, it takes as few subtrees as possible, beginning with those with most free nodes.

    Notes
    -----
    Jokanovic 2014, section 4.3. Small jobs use no link above their switch, so they can share a subtree with a
    big job.
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
def _trees_of(machine: Machine) -> tuple[Ints, int]:
    """For counts of nodes by subtree and use: first bin of each node's subtree; number of subtrees."""
    level = machine.top_level - 1
    return machine.subtree[level] * _N_USES_EXCLUSIVE, len(machine.starts[level])


@functools.lru_cache(maxsize=128)
def _free_for_small(machine: Machine, uses: bytes) -> Ints:
    """Number of nodes that a small job can take at each first-level switch.

    Cached because the simulation asks for the same uses again when it computes expected starts.
    """
    return machine.per_switch(np.frombuffer(uses, np.uint8) == FREE)


@functools.lru_cache(maxsize=128)
def _free_for_big(machine: Machine, uses: bytes) -> Ints:
    """Number of nodes that a big job can take in each subtree below the roots; 0 beside another big job."""
    first_use, n_trees = _trees_of(machine)
    numbers = first_use + np.frombuffer(uses, np.uint8)
    counts = np.bincount(numbers, minlength=n_trees * _N_USES_EXCLUSIVE).reshape(n_trees, _N_USES_EXCLUSIVE)
    return counts[:, FREE] * (counts[:, BIG] == 0)


def _subtrees(n_free: Ints, n_nodes: int) -> Ints | None:
    if n_free.sum() < n_nodes:
        return None
    enough = np.flatnonzero(n_free >= n_nodes)
    if len(enough):
        return enough[:1]
    fullest = np.argsort(-n_free, kind="stable")
    return fullest[: int(np.searchsorted(np.cumsum(n_free[fullest]), n_nodes)) + 1]


def can_exclusive(machine: Machine, uses: Uses, sizes: Ints) -> Bools:
    """Whether `choose` finds nodes for each size."""
    is_small = sizes <= machine.switch_size
    n_small = np.count_nonzero(is_small)
    key = uses.tobytes()
    most_small = _free_for_small(machine, key).max() if n_small else 0
    most_big = _free_for_big(machine, key).sum() if n_small < len(sizes) else 0
    if n_small in (0, len(sizes)):
        return np.asarray(sizes <= max(most_small, most_big))
    return np.asarray(sizes <= np.where(is_small, most_small, most_big))


# Virtual network blocks (Jokanovic 2014, section 4.2): small and big jobs are kept apart, and switches are
# split in two parts to suit jobs whose sizes are powers of two.
#
# Big jobs, which are larger than a switch, fill the machine from its first switch on; small jobs fill it from
# its last switch back. The limit between the two blocks moves: each block ends before the outermost switch
# that the other uses. In the big jobs' block, a switch of 18 nodes has a part of 16 nodes (the largest power
# of two) and a part of 2; switches of other sizes are split in the same way. The parts of a switch, and its
# use as a *rem* switch, follow from the uses of its nodes, so there is no other state.


_N_USES = 5


def virtual_blocks(machine: Machine, uses: Uses, n_nodes: int) -> Nodes | None:
    """Nodes by the rules of section 4.2, or None if no rule finds any."""
    blocks = _blocks_of(machine, uses.tobytes())
    if n_nodes <= machine.switch_size:
        return _small(blocks, n_nodes)
    n_parts, n_over = divmod(n_nodes, blocks.part)
    if not n_over and n_parts <= blocks.n_with_part:
        return _virtual_switches(blocks, n_parts)
    return _physical_switches(blocks, n_nodes)


class _Layout:
    """Properties of the switches that never change."""

    def __init__(self, machine: Machine) -> None:
        self.n = machine.n_switches
        # Nodes of the larger part of a switch: the largest power of two in it.
        self.part = 1 << (machine.switch_size.bit_length() - 1)
        # For counts of nodes by part of a switch and use: the first bin of each node's part.
        self.first_use = (2 * machine.subtree[0] + (machine.place >= self.part)) * _N_USES
        self.n_with_part = int(np.count_nonzero(machine.switch_sizes >= self.part))
        self.tree = machine.switch_subtree()
        starts = np.flatnonzero(np.diff(self.tree, prepend=-1))
        self.tree_starts, self.tree_ends = starts, np.append(starts[1:], self.n)


_layout = functools.lru_cache(maxsize=64)(_Layout)


class _Blocks:
    """State of the switches, as the rules read it. What only some rules need is computed on demand."""

    def __init__(self, machine: Machine, uses: Uses) -> None:
        layout = _layout(machine)
        self.machine, self.uses, self.layout = machine, uses, layout
        self.n, self.part, self.n_with_part = layout.n, layout.part, layout.n_with_part
        # Number of nodes in each part of each switch, by use.
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
        """The switch after the last switch of the big jobs' block."""
        last = self.n - 1 - int(self.has_big[::-1].argmax())
        return last + 1 if self.has_big[last] else 0

    @functools.cached_property
    def is_empty(self) -> Bools:
        """Full-size switches in the big jobs' block that have no job."""
        flags = self.n_free == self.machine.switch_size
        flags[self.end_big :] = False
        return flags

    @functools.cached_property
    def has_free_part(self) -> Bools:
        """Switches of the big jobs' block whose larger part, their first nodes, has no job."""
        flags = (self._of_part[:, 0, FREE] == self.part) & ~self.is_rem
        flags[self.end_big :] = False
        return flags

    @functools.cached_property
    def most_in_rem(self) -> int:
        """Largest number of free nodes at a rem switch."""
        return int((self.n_free * self.is_rem).max())

    @functools.cached_property
    def largest_small(self) -> int:
        """Size of the largest small job that would find nodes."""
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
    """The state of the switches, cached because expected starts are computed from the same uses again."""
    return _Blocks(machine, np.frombuffer(uses, np.uint8))


def _small(blocks: _Blocks, n_nodes: int) -> Nodes | None:
    """Nodes at one switch for a small job: in its block, else a part of 2 (rule 3), else at a rem switch."""
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
    # Section 4.2.4: while the limit is locked, use rem switches, which are fragmented anyway.
    rem = np.flatnonzero(room & blocks.is_rem)
    return (free_at(machine, uses, int(rem[0]), n_nodes), GUEST) if len(rem) else None


def _virtual_switches(blocks: _Blocks, n_parts: int) -> Nodes | None:
    """Rule 1: a job of a multiple of 16 nodes takes whole parts of 16 nodes."""
    switches = contiguous(blocks.machine, blocks.has_free_part, n_parts)
    if switches is None:
        return None
    return (blocks.machine.starts[0][switches][:, None] + np.arange(blocks.part)).ravel(), BIG


def _physical_switches(blocks: _Blocks, n_nodes: int) -> Nodes | None:
    """Rule 2: whole switches, and the rest of the job at one rem switch, preferably in the same subtree."""
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
    """A rem switch with room or, if there is none, an empty switch, which becomes a rem switch.

    A switch in the job's subtree is preferred; among candidates, the nearest to the job.
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
    """N flagged switches, in one subtree and consecutive if possible.

    The order of preference is: consecutive switches in one subtree, any switches in one subtree, consecutive
    switches, the first switches.

    Notes
    -----
    Section 4.2.5: a job that needs two switches is not spread over two subtrees if one subtree has both.
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


def can_virtual_blocks(machine: Machine, uses: Uses, sizes: Ints) -> Bools:
    """Whether `choose` finds nodes for each size."""
    blocks = _blocks_of(machine, uses.tobytes())
    wanted = sizes.tolist()
    found = {size: blocks.can(size) for size in set(wanted)}
    return np.array([found[size] for size in wanted], bool)


FEWEST_SHARERS, LEAST_DELAY = "fewest-sharers", "least-delay"
"""Allocations that choose by the running jobs, by observers in `link_allocation`; by themselves best-fit."""

ALLOCATIONS = {
    one.name: one
    for one in (
        Allocation("first-available", first_available, is_bound_by_number=True),
        Allocation("first-contiguous", first_contiguous, is_bound_by_number=True),
        Allocation("exclusive", exclusive, is_bound_by_number=False, can=can_exclusive),
        Allocation("virtual-blocks", virtual_blocks, is_bound_by_number=False, can=can_virtual_blocks),
        Allocation("best-fit", best_fit, is_bound_by_number=True),
        Allocation(FEWEST_SHARERS, best_fit, is_bound_by_number=True),
        Allocation(LEAST_DELAY, best_fit, is_bound_by_number=True),
    )
}
"""Allocations by name."""


def named(name: str) -> Allocation:
    """The allocation with this name.

    Raises `UsageError` if there is none.
    """
    if name not in ALLOCATIONS:
        raise UsageError(f"allocation {name!r} is unknown: give one of {', '.join(ALLOCATIONS)}")
    return ALLOCATIONS[name]
