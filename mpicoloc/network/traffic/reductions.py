"""Algorithms of reductions: recursive halving and doubling, Rabenseifner's, butterflies, rings."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicoloc.network.traffic import rooted, trees
from mpicoloc.network.traffic.collective import (
    Collective,
    Library,
    Rounds,
    algorithm,
    block_sizes,
    power_of_two_within,
    powers_of_two_below,
)

Array = NDArray[Any]
Halving = Generator[tuple[ArrayLike, ...], None, list[tuple[int, Array]]]
"""Messages, and at the end of every round the distance and the items that each folded rank keeps."""


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


@algorithm
def allreduce_doubling(call: Collective, library: Library) -> Rounds:
    """Recursive doubling with the whole buffer; the even rank of a folded pair waits for the result."""
    folded = Folded(call.n_ranks, odd_stays=True)
    yield folded.leaves, folded.stays, call.n_items
    for distance in powers_of_two_below(folded.n):
        yield folded.rank, folded.real(folded.v ^ distance), call.n_items
    yield folded.stays, folded.leaves, call.n_items


@algorithm
def allreduce_ring(call: Collective, library: Library) -> Rounds:
    """Reduce-scatter and allgather on a ring; recursive doubling if there are fewer items than ranks."""
    if call.n_items < call.n_ranks:
        yield allreduce_doubling(call, library)
        return
    v, p = call.ranks, call.n_ranks
    part = block_sizes(call.n_items, p)
    n_items = 2 * call.n_items - part[(v + 1) % p] - part[(v + 2) % p]
    yield v, (v + 1) % p, n_items, 2 * (p - 1)


@algorithm
def allreduce_reduce_bcast(call: Collective, library: Library) -> Rounds:
    """Reduction to rank 0, and broadcast from there."""
    yield library.messages(call.with_("reduce", root=0))
    yield library.messages(call.with_("bcast", root=0))


@algorithm
def allreduce_linear(call: Collective, library: Library) -> Rounds:
    """Every rank sends to rank 0, which sends the result to every rank."""
    yield rooted.up(trees.flat)(call.with_("reduce", root=0), library)
    yield rooted.down(trees.flat)(call.with_("bcast", root=0), library)


def _fold_halves(folded: Folded, n_items: int) -> Rounds:
    """Each rank of a pair reduces one half of the buffer, then the odd rank leaves."""
    yield folded.stays, folded.leaves, n_items - n_items // 2
    yield folded.leaves, folded.stays, n_items // 2
    yield folded.leaves, folded.stays, n_items - n_items // 2


def _halve(folded: Folded, n_items: int) -> Halving:
    """Recursive vector halving with distance doubling; returns what each rank keeps in each round."""
    rounds = []
    window = np.full(folded.n, n_items, dtype=np.int64)
    for distance in powers_of_two_below(folded.n):
        is_lower = folded.v & distance == 0
        kept = np.where(is_lower, window // 2, window - window // 2)
        yield folded.rank, folded.real(folded.v ^ distance), window - kept
        rounds.append((distance, kept))
        window = kept
    return rounds


@algorithm
def allreduce_rabenseifner(call: Collective, library: Library) -> Rounds:
    """Reduce-scatter by recursive halving and allgather by recursive doubling (Thakur et al. 2005)."""
    folded = Folded(call.n_ranks, odd_stays=False)
    if call.n_items < folded.n or not call.commutes:
        yield allreduce_linear(call, library)
        return
    yield from _fold_halves(folded, call.n_items)
    for distance, kept in reversed((yield from _halve(folded, call.n_items))):
        yield folded.rank, folded.real(folded.v ^ distance), kept
    yield folded.stays, folded.leaves, call.n_items


@algorithm
def reduce_rabenseifner(call: Collective, library: Library) -> Rounds:
    """Reduce-scatter by recursive halving and gather to the root."""
    folded = Folded(call.n_ranks, odd_stays=False)
    if folded.n < 2 or call.n_items < folded.n or not call.commutes:
        yield rooted.up(trees.flat)(call, library)
        return
    yield from _fold_halves(folded, call.n_items)
    rounds = yield from _halve(folded, call.n_items)
    yield from _gather_to_root(folded, rounds, call.root)


def _gather_to_root(folded: Folded, rounds: list[tuple[int, Array]], root: int) -> Rounds:
    """Undo the rounds from the last on: ranks not in the root's half send all that they have to a partner."""
    real, v_root = folded.rank.copy(), root - folded.n_pairs
    if root < 2 * folded.n_pairs:
        v_root = root // 2
        if root % 2:  # the root had left: it takes the place of the first rank
            yield 0, root, rounds[-1][1][0]
            real[0], v_root = root, 0
    waiting = np.ones(folded.n, dtype=bool)
    for step in range(len(rounds) - 1, -1, -1):
        distance, kept = rounds[step]
        other = folded.v ^ distance
        sends = waiting & (other >> step == v_root >> step)
        yield real[sends], real[other[sends]], kept[sends]
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


def _halve_blocks(folded: Folded, call: Collective) -> Halving:
    """As `_halve`, for a buffer that is cut into a block for each folded rank beforehand."""
    sizes = block_sizes(call.n_items, folded.n)
    if not call.is_blocking:  # the last one takes what is left over
        sizes = np.append(np.full(folded.n - 1, sizes[-1]), call.n_items - sizes[-1] * (folded.n - 1))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    rounds = []
    for distance, n_blocks, sent, first in _halvings(folded):
        yield folded.rank, folded.real(folded.v ^ distance), ends[sent + n_blocks] - ends[sent]
        rounds.append((distance, ends[first + n_blocks] - ends[first]))
    return rounds


@algorithm
def allreduce_halving_blocks(call: Collective, library: Library) -> Rounds:
    """Rabenseifner's algorithm as in MPICH: pairs fold the whole buffer, and blocks are cut beforehand."""
    folded = Folded(call.n_ranks, odd_stays=True)
    yield folded.leaves, folded.stays, call.n_items
    for distance, kept in reversed((yield from _halve_blocks(folded, call))):
        yield folded.rank, folded.real(folded.v ^ distance), kept
    yield folded.stays, folded.leaves, call.n_items


@algorithm
def reduce_halving_blocks(call: Collective, library: Library) -> Rounds:
    """`allreduce_halving_blocks` with a gather to the root in place of the allgather."""
    folded = Folded(call.n_ranks, odd_stays=False)
    yield folded.leaves, folded.stays, call.n_items
    rounds = yield from _halve_blocks(folded, call)
    yield from _gather_to_root(folded, rounds, call.root)


@algorithm
def reduce_scatter_pairs(call: Collective, library: Library) -> Rounds:
    """Each rank sends to each other rank its part."""
    v, p = call.ranks, call.n_ranks
    for step in range(1, p):
        yield v, (v + step) % p, call.parts[(v + step) % p]


@algorithm
def reduce_scatter_ring(call: Collective, library: Library) -> Rounds:
    """A ring on which each rank sends all parts but its own."""
    v, parts, p = call.ranks, call.parts, call.n_ranks
    yield v, (v + 1) % p, parts.sum() - parts, p - 1


@algorithm
def reduce_scatter_halving(call: Collective, library: Library) -> Rounds:
    """Recursive halving with distance halving; nothing is sent where a part is empty."""
    parts = call.parts
    folded = Folded(call.n_ranks, odd_stays=True)
    if parts.sum() == 0:
        return
    yield folded.leaves, folded.stays, parts.sum()
    for distance in reversed(powers_of_two_below(folded.n)):
        other = folded.v ^ distance
        n_items = folded.sums(parts, other & ~(distance - 1), distance)
        nonempty = n_items > 0
        yield folded.rank[nonempty], folded.real(other)[nonempty], n_items[nonempty]
    has_part = parts[folded.leaves] > 0
    yield folded.stays[has_part], folded.leaves[has_part], parts[folded.leaves][has_part]


@algorithm
def reduce_scatter_butterfly(call: Collective, library: Library) -> Rounds:
    """Recursive halving with distance doubling, which leaves parts at ranks with reversed bits."""
    parts = call.parts
    folded = Folded(call.n_ranks, odd_stays=True)
    yield folded.leaves, folded.stays, parts.sum()
    for distance, n_blocks, sent, _ in _halvings(folded):
        yield folded.rank, folded.real(folded.v ^ distance), folded.sums(parts, sent, n_blocks)
    yield from _send_parts_home(folded, parts)


def _send_parts_home(folded: Folded, parts: Array) -> Rounds:
    """Each folded rank sends the parts that it has to the rank with reversed bits, and to that one's pair."""
    n_bits = folded.n.bit_length() - 1
    home = np.zeros(folded.n, dtype=np.int64)
    for bit in range(n_bits):
        home |= ((folded.v >> bit) & 1) << (n_bits - 1 - bit)
    paired = home < folded.n_pairs
    leaves = folded.real(home[paired]) - 1
    yield folded.rank[paired], leaves, parts[leaves]
    away = home != folded.v
    yield folded.rank[away], folded.real(home[away]), parts[folded.real(home[away])]


@algorithm
def reduce_scatter_block_butterfly(call: Collective, library: Library) -> Rounds:
    """A butterfly; a power of two of ranks permutes its parts first, so that each ends at its rank."""
    if call.n_ranks != power_of_two_within(call.n_ranks):
        yield reduce_scatter_butterfly(call, library)
        return
    v, n_items = call.ranks, call.n_items * call.n_ranks
    for distance in powers_of_two_below(call.n_ranks):
        n_items //= 2
        yield v, v ^ distance, n_items


@algorithm
def reduce_scatter_block_doubling(call: Collective, library: Library) -> Rounds:
    """Recursive doubling; a rank sends all parts that its half of the ranks does not need."""
    v, p, n = call.ranks, call.n_ranks, call.n_items
    for mask in powers_of_two_below(p):
        own, other_tree, other = v & ~(mask - 1), (v ^ mask) & ~(mask - 1), v ^ mask
        has_partner = other < p
        yield v[has_partner], other[has_partner], n * (own + np.maximum(p - own - mask, 0))[has_partner]
        got = n * (other_tree + np.maximum(p - other_tree - mask, 0))
        n_complete = p - own - mask
        step = mask >> 1
        while step:
            near, limit = v ^ step, (v & ~(2 * step - 1)) + n_complete
            sends = (other_tree + mask > p) & (near > v) & (v < limit) & (near >= limit) & (near < p)
            yield v[sends], near[sends], got[sends]
            step >>= 1


@algorithm
def reduce_scatter_by_reduce(call: Collective, library: Library) -> Rounds:
    """Reduction to rank 0, and scatter from there."""
    parts = call.parts
    yield library.messages(call.with_("reduce", n_items=int(parts.sum()), root=0))
    name = "scatter" if call.counts is None else "scatterv"
    yield library.messages(call.with_(name, counts=call.counts, root=0))
