"""Algorithms of reductions: recursive halving and doubling, Rabenseifner's, butterflies, rings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.network.traffic import rooted, trees
from mpicoloc.network.traffic.collective import (
    Collective,
    Library,
    Messages,
    block_sizes,
    power_of_two_within,
    powers_of_two_below,
    ranks_of,
)

Array = NDArray[Any]
Rounds = list[tuple[int, Array]]
"""Of every round the distance, and the items that each folded rank keeps."""


class Folded:
    """A power of two of ranks that remain after the first 2r ranks were folded in pairs, of which r leave.

    Parameters
    ----------
    p : int
        Ranks.
    odd_stays : bool
        Whether the odd rank of a pair stays; otherwise the even one.
    """

    def __init__(self, p: int, odd_stays: bool) -> None:
        self.n = power_of_two_within(p)
        self.n_pairs = p - self.n
        self.v = np.arange(self.n, dtype=np.int64)
        self.odd_stays = odd_stays
        self.rank = self.real(self.v)
        self.stays = self.rank[: self.n_pairs]
        self.leaves = self.stays - 1 if odd_stays else self.stays + 1

    def real(self, v: Array) -> Array:
        """Ranks of the call with these numbers among those that stay."""
        return np.where(v < self.n_pairs, 2 * v + self.odd_stays, v + self.n_pairs)

    def sums(self, parts: Array, first: Array, n: int) -> Array:
        """Items of `n` folded ranks from `first` on, including those of the ranks that left."""
        ends = np.concatenate([[0], np.cumsum(parts)])
        edge = np.minimum(np.arange(self.n + 1), self.n_pairs) + np.arange(self.n + 1)
        return ends[edge[first + n]] - ends[edge[first]]


def allreduce_doubling(call: Collective, library: Library) -> Messages:
    """Recursive doubling with the whole buffer; the even rank of a folded pair waits for the result."""
    messages = Messages.of(call)
    folded = Folded(call.n_ranks, odd_stays=True)
    messages.add(folded.leaves, folded.stays, call.n_items)
    for distance in powers_of_two_below(folded.n):
        messages.add(folded.rank, folded.real(folded.v ^ distance), call.n_items)
    messages.add(folded.stays, folded.leaves, call.n_items)
    return messages


def allreduce_ring(call: Collective, library: Library) -> Messages:
    """Reduce-scatter and allgather on a ring; recursive doubling if there are fewer items than ranks."""
    if call.n_items < call.n_ranks:
        return allreduce_doubling(call, library)
    messages = Messages.of(call)
    v, p = ranks_of(call), call.n_ranks
    part = block_sizes(call.n_items, p)
    n_items = 2 * call.n_items - part[(v + 1) % p] - part[(v + 2) % p]
    messages.add(v, (v + 1) % p, n_items, 2 * (p - 1))
    return messages


def allreduce_reduce_bcast(call: Collective, library: Library) -> Messages:
    """Reduction to rank 0, and broadcast from there."""
    messages = library.messages(call.with_("reduce", root=0))
    return messages.include(library.messages(call.with_("bcast", root=0)))


def allreduce_linear(call: Collective, library: Library) -> Messages:
    """Every rank sends to rank 0, which sends the result to every rank."""
    messages = rooted.up(trees.flat)(call.with_("reduce", root=0), library)
    return messages.include(rooted.down(trees.flat)(call.with_("bcast", root=0), library))


def _fold_halves(messages: Messages, folded: Folded, n_items: int) -> None:
    """Each rank of a pair reduces one half of the buffer, then the odd rank leaves."""
    messages.add(folded.stays, folded.leaves, n_items - n_items // 2)
    messages.add(folded.leaves, folded.stays, n_items // 2)
    messages.add(folded.leaves, folded.stays, n_items - n_items // 2)


def _halve(messages: Messages, folded: Folded, n_items: int) -> Rounds:
    """Recursive vector halving with distance doubling."""
    rounds = []
    window = np.full(folded.n, n_items, dtype=np.int64)
    for distance in powers_of_two_below(folded.n):
        is_lower = folded.v & distance == 0
        kept = np.where(is_lower, window // 2, window - window // 2)
        messages.add(folded.rank, folded.real(folded.v ^ distance), window - kept)
        rounds.append((distance, kept))
        window = kept
    return rounds


def allreduce_rabenseifner(call: Collective, library: Library) -> Messages:
    """Reduce-scatter by recursive halving and allgather by recursive doubling (Thakur et al. 2005)."""
    folded = Folded(call.n_ranks, odd_stays=False)
    if call.n_items < folded.n or not call.commutes:
        return allreduce_linear(call, library)
    messages = Messages.of(call)
    _fold_halves(messages, folded, call.n_items)
    for distance, kept in reversed(_halve(messages, folded, call.n_items)):
        messages.add(folded.rank, folded.real(folded.v ^ distance), kept)
    messages.add(folded.stays, folded.leaves, call.n_items)
    return messages


def reduce_rabenseifner(call: Collective, library: Library) -> Messages:
    """Reduce-scatter by recursive halving and gather to the root."""
    folded = Folded(call.n_ranks, odd_stays=False)
    if folded.n < 2 or call.n_items < folded.n or not call.commutes:
        return rooted.up(trees.flat)(call, library)
    messages = Messages.of(call)
    _fold_halves(messages, folded, call.n_items)
    rounds = _halve(messages, folded, call.n_items)
    _gather_to_root(messages, folded, rounds, call.root)
    return messages


def _gather_to_root(messages: Messages, folded: Folded, rounds: Rounds, root: int) -> None:
    """Undo the rounds from the last on: ranks not in the root's half send all that they have to a partner."""
    real, v_root = folded.rank.copy(), root - folded.n_pairs
    if root < 2 * folded.n_pairs:
        v_root = root // 2
        if root % 2:  # the root had left: it takes the place of the first rank
            messages.add(0, root, rounds[-1][1][0])
            real[0], v_root = root, 0
    waiting = np.ones(folded.n, dtype=bool)
    for step in range(len(rounds) - 1, -1, -1):
        distance, kept = rounds[step]
        other = folded.v ^ distance
        sends = waiting & (other >> step == v_root >> step)
        messages.add(real[sends], real[other[sends]], kept[sends])
        waiting &= ~sends


def _halvings(folded: Folded) -> Iterator[tuple[int, int, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield for each round of a halving: distance, blocks sent, first block sent, first block kept."""
    n_blocks, first = folded.n, np.zeros(folded.n, dtype=np.int64)
    for distance in powers_of_two_below(folded.n):
        n_blocks //= 2
        is_lower = folded.v & distance == 0
        sent = first + np.where(is_lower, n_blocks, 0)
        first = first + np.where(is_lower, 0, n_blocks)
        yield distance, n_blocks, sent, first


def _halve_blocks(messages: Messages, folded: Folded, call: Collective) -> Rounds:
    """As `_halve`, for a buffer that is cut into a block for each folded rank beforehand."""
    sizes = block_sizes(call.n_items, folded.n)
    if not call.is_blocking:  # the last one takes what is left over
        sizes = np.append(np.full(folded.n - 1, sizes[-1]), call.n_items - sizes[-1] * (folded.n - 1))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    rounds: Rounds = []
    for distance, n_blocks, sent, first in _halvings(folded):
        messages.add(folded.rank, folded.real(folded.v ^ distance), ends[sent + n_blocks] - ends[sent])
        rounds.append((distance, ends[first + n_blocks] - ends[first]))
    return rounds


def allreduce_halving_blocks(call: Collective, library: Library) -> Messages:
    """Rabenseifner's algorithm as in MPICH: pairs fold the whole buffer, and blocks are cut beforehand."""
    messages = Messages.of(call)
    folded = Folded(call.n_ranks, odd_stays=True)
    messages.add(folded.leaves, folded.stays, call.n_items)
    for distance, kept in reversed(_halve_blocks(messages, folded, call)):
        messages.add(folded.rank, folded.real(folded.v ^ distance), kept)
    messages.add(folded.stays, folded.leaves, call.n_items)
    return messages


def reduce_halving_blocks(call: Collective, library: Library) -> Messages:
    """`allreduce_halving_blocks` with a gather to the root in place of the allgather."""
    messages = Messages.of(call)
    folded = Folded(call.n_ranks, odd_stays=False)
    messages.add(folded.leaves, folded.stays, call.n_items)
    rounds = _halve_blocks(messages, folded, call)
    _gather_to_root(messages, folded, rounds, call.root)
    return messages


def reduce_scatter_pairs(call: Collective, library: Library) -> Messages:
    """Each rank sends to each other rank its part."""
    messages, v, p = Messages.of(call), ranks_of(call), call.n_ranks
    for step in range(1, p):
        messages.add(v, (v + step) % p, call.parts[(v + step) % p])
    return messages


def reduce_scatter_ring(call: Collective, library: Library) -> Messages:
    """A ring on which each rank sends all parts but its own."""
    messages = Messages.of(call)
    v, parts, p = ranks_of(call), call.parts, call.n_ranks
    messages.add(v, (v + 1) % p, parts.sum() - parts, p - 1)
    return messages


def _fold_whole(messages: Messages, folded: Folded, parts: Array) -> None:
    messages.add(folded.leaves, folded.stays, parts.sum())


def reduce_scatter_halving(call: Collective, library: Library) -> Messages:
    """Recursive halving with distance halving; nothing is sent where a part is empty."""
    messages, parts = Messages.of(call), call.parts
    folded = Folded(call.n_ranks, odd_stays=True)
    if parts.sum() == 0:
        return messages
    _fold_whole(messages, folded, parts)
    for distance in reversed(powers_of_two_below(folded.n)):
        other = folded.v ^ distance
        n_items = folded.sums(parts, other & ~(distance - 1), distance)
        nonempty = n_items > 0
        messages.add(folded.rank[nonempty], folded.real(other)[nonempty], n_items[nonempty])
    has_part = parts[folded.leaves] > 0
    messages.add(folded.stays[has_part], folded.leaves[has_part], parts[folded.leaves][has_part])
    return messages


def reduce_scatter_butterfly(call: Collective, library: Library) -> Messages:
    """Recursive halving with distance doubling, which leaves parts at ranks with reversed bits."""
    messages, parts = Messages.of(call), call.parts
    folded = Folded(call.n_ranks, odd_stays=True)
    _fold_whole(messages, folded, parts)
    for distance, n_blocks, sent, _ in _halvings(folded):
        messages.add(folded.rank, folded.real(folded.v ^ distance), folded.sums(parts, sent, n_blocks))
    _send_parts_home(messages, folded, parts)
    return messages


def _send_parts_home(messages: Messages, folded: Folded, parts: Array) -> None:
    """Each folded rank sends the parts that it has to the rank with reversed bits, and to that one's pair."""
    n_bits = folded.n.bit_length() - 1
    home = np.zeros(folded.n, dtype=np.int64)
    for bit in range(n_bits):
        home |= ((folded.v >> bit) & 1) << (n_bits - 1 - bit)
    paired = home < folded.n_pairs
    leaves = folded.real(home[paired]) - 1
    messages.add(folded.rank[paired], leaves, parts[leaves])
    away = home != folded.v
    messages.add(folded.rank[away], folded.real(home[away]), parts[folded.real(home[away])])


def reduce_scatter_block_butterfly(call: Collective, library: Library) -> Messages:
    """A butterfly; a power of two of ranks permutes its parts first, so that each ends at its rank."""
    if call.n_ranks != power_of_two_within(call.n_ranks):
        return reduce_scatter_butterfly(call, library)
    messages = Messages.of(call)
    v, n_items = ranks_of(call), call.n_items * call.n_ranks
    for distance in powers_of_two_below(call.n_ranks):
        n_items //= 2
        messages.add(v, v ^ distance, n_items)
    return messages


def reduce_scatter_block_doubling(call: Collective, library: Library) -> Messages:
    """Recursive doubling; a rank sends all parts that its half of the ranks does not need."""
    messages = Messages.of(call)
    v, p, n = ranks_of(call), call.n_ranks, call.n_items
    for mask in powers_of_two_below(p):
        own, other_tree, other = v & ~(mask - 1), (v ^ mask) & ~(mask - 1), v ^ mask
        has_partner = other < p
        messages.add(
            v[has_partner], other[has_partner], n * (own + np.maximum(p - own - mask, 0))[has_partner]
        )
        got = n * (other_tree + np.maximum(p - other_tree - mask, 0))
        n_complete = p - own - mask
        step = mask >> 1
        while step:
            near, limit = v ^ step, (v & ~(2 * step - 1)) + n_complete
            sends = (other_tree + mask > p) & (near > v) & (v < limit) & (near >= limit) & (near < p)
            messages.add(v[sends], near[sends], got[sends])
            step >>= 1
    return messages


def reduce_scatter_by_reduce(call: Collective, library: Library) -> Messages:
    """Reduction to rank 0, and scatter from there."""
    parts = call.parts
    messages = library.messages(call.with_("reduce", n_items=int(parts.sum()), root=0))
    if call.counts is None:
        return messages.include(library.messages(call.with_("scatter", root=0)))
    return messages.include(library.messages(call.with_("scatterv", counts=parts, root=0)))
