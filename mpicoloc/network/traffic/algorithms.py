"""Algorithms of rooted collectives, of reductions and of other collectives, and the trees that they use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np
from numpy.typing import ArrayLike

from mpicoloc.core.profile import Array, Ints
from mpicoloc.network.traffic.collective import (
    Algorithm,
    Collective,
    Library,
    Messages,
    Rounds,
    algorithm,
    block_sizes,
    circular_sums,
    composed,
    low_bit,
    power_of_two_within,
    powers_of_two_below,
    rooted_algorithm,
)

# Trees, as the parent of each rank. Ranks are numbered from the root, whose parent is -1.


def _ranks(p: int) -> Array:
    return np.arange(p, dtype=np.int64)


def _with_root(parent: Array) -> Array:
    parent[0] = -1
    return parent


def flat(p: int) -> Array:
    """All ranks are the root's children."""
    return _with_root(np.zeros(p, dtype=np.int64))


def chain(p: int) -> Array:
    """Each rank has the next one as its child."""
    return _with_root(_ranks(p) - 1)


def binomial(p: int) -> Array:
    """Binomial tree: the parent's number is the child's without its highest bit (Open MPI's ``bmtree``)."""
    v = _ranks(p)
    high = np.int64(1) << (np.frexp(np.maximum(v, 1).astype(np.float64))[1].astype(np.int64) - 1)
    return _with_root(v - high)


def in_order_binomial(p: int) -> Array:
    """Binomial tree of neighbouring ranks: the parent's number is the child's with the lowest bit cleared."""
    v = _ranks(p)
    return _with_root(v - low_bit(v))


def k_nomial(p: int, radix: int) -> Array:
    """The in-order binomial tree with digits of base `radix` in place of bits."""
    v = _ranks(p)
    parent = np.full(p, -1, dtype=np.int64)
    base = radix
    while base <= p * radix:
        todo = (parent < 0) & (v % base != 0)
        parent[todo] = v[todo] // base * base
        base *= radix
    return _with_root(parent)


def binary(p: int) -> Array:
    """Binary tree numbered level by level, with even and odd ranks in different halves."""
    v = _ranks(p)
    level = np.frexp((v + 1).astype(np.float64))[1].astype(np.int64) - 1
    width = np.int64(1) << np.maximum(level - 1, 0)  # of the level above
    near = v - width
    return _with_root(np.where(near <= 2 * width - 2, near, v - 2 * width))


def in_order_binary(p: int) -> Array:
    """Binary tree whose root is the last rank and whose subtrees are ranges of ranks."""
    parent = np.full(p, -1, dtype=np.int64)
    size, first = np.array([p]), np.array([0])
    while len(size):
        top = first + size - 1
        right = np.where(size > 2, size >> 1, 0)
        left = size - right - 1
        for child, exists in ((top - 1, left > 0), (first + right - 1, right > 0)):
            parent[child[exists]] = top[exists]
        first = np.concatenate([first + right, first])
        size = np.concatenate([left, right])
        first, size = first[size > 1], size[size > 1]
    return parent


def subtree_sizes(p: int) -> Array:
    """Ranks in each subtree of the in-order binomial tree."""
    v = _ranks(p)
    sizes = np.minimum(low_bit(v), p - v)
    sizes[0] = p
    return sizes


# With a root: broadcast, reduction, gather, scatter. Ranks are numbered from the root.


def down(tree: Callable[[int], Array]) -> Algorithm:
    """Broadcast: every rank gets the whole buffer from its parent."""
    return rooted_algorithm(lambda call, v, p: [(tree(p)[1:], v[1:], call.n_items)])


def up(tree: Callable[[int], Array]) -> Algorithm:
    """Reduction: every rank sends the whole buffer to its parent."""
    return rooted_algorithm(lambda call, v, p: [(v[1:], tree(p)[1:], call.n_items)])


def bcast_k_nomial(radix: int) -> Algorithm:
    """Broadcast along a k-nomial tree."""
    return down(lambda p: k_nomial(p, radix))


@rooted_algorithm
def bcast_split_binary(call: Collective, v: Array, p: int) -> Rounds:
    """Half of the buffer goes down each branch of a binary tree, then pairs of ranks exchange halves."""
    halves = np.array([call.n_items - call.n_items // 2, call.n_items // 2])
    v = v[1:]
    if halves[1] == 0:
        yield chain(p)[1:], v, call.n_items
        return
    yield binary(p)[1:], v, halves[(v + 1) % 2]
    if p % 2 == 0:
        yield 0, p - 1, halves[1]
        v = v[:-1]
    yield v, np.where(v % 2 == 1, v + 1, v - 1), halves[(v + 1) % 2]


def part_sizes(call: Collective) -> Array:
    """Items of each rank if a buffer is scattered in equal parts; the last parts can be shorter or empty."""
    part = -(-call.n_items // call.n_ranks)
    return np.clip(call.n_items - call.ranks * part, 0, part)


def unless_short(long: Algorithm) -> Algorithm:
    """The same algorithm, but a flat tree if there are fewer items than ranks."""
    return lambda call, library: (long if call.n_items >= call.n_ranks else down(flat))(call, library)


def _scatter_of_bcast(call: Collective) -> Rounds:
    """Binomial scatter of a broadcast's buffer; empty parts are not sent."""
    v = call.ranks[1:]
    span = np.minimum(low_bit(v), call.n_ranks - v)
    parts = part_sizes(call)
    n_items = circular_sums(parts, v, span)
    if not call.is_blocking:  # MPICH's nonblocking bcast: a first child gets all up to the buffer's end
        first = 2 * low_bit(v) == low_bit(v - low_bit(v))
        n_items = np.where(first, np.maximum(call.n_items - v * parts[0], 0), n_items)
    nonempty = n_items > 0
    yield (v - low_bit(v))[nonempty], v[nonempty], n_items[nonempty]


@rooted_algorithm
def bcast_scatter_ring(call: Collective, v: Array, p: int) -> Rounds:
    """Binomial scatter, then allgather on a ring."""
    yield from _scatter_of_bcast(call)
    yield v, (v + 1) % p, call.n_items - part_sizes(call)[(v + 1) % p], p - 1


@rooted_algorithm
def bcast_scatter_doubling(call: Collective, v: Array, p: int) -> Rounds:
    """Binomial scatter, then allgather by recursive doubling, for any number of ranks."""
    yield from _scatter_of_bcast(call)
    held = part_sizes(call)
    got = np.zeros(p, dtype=np.int64)
    for mask in powers_of_two_below(p):
        other = v ^ mask
        has_partner = other < p
        yield v[has_partner], other[has_partner], held[has_partner]
        got[has_partner] = held[other[has_partner]]
        held = held + np.where(has_partner, got, 0)
        for sender, receiver in _relays(p, mask):
            yield sender, receiver, got[sender]
            got[receiver] = got[sender]
            held[receiver] += got[sender]


def _relays(p: int, mask: int) -> Iterator[tuple[Array, Array]]:
    """Senders and receivers of the steps that forward a round's data to ranks without a partner.

    The distance between sender and receiver is halved from step to step.
    """
    v = np.arange(p)
    own_tree, other_tree = v & ~(mask - 1), (v ^ mask) & ~(mask - 1)
    for step in reversed(powers_of_two_below(mask)):
        other = v ^ step
        limit = (v & ~(2 * step - 1)) + p - own_tree - mask
        sends = (other_tree + mask > p) & (other > v) & (v < limit) & (other >= limit) & (other < p)
        yield v[sends], other[sends]


@algorithm
def reduce_in_order_binary(call: Collective, v: Array, p: int) -> Rounds:
    """Reduction in rank order to the last rank, which sends the result to the root."""
    last = p - 1
    parent = in_order_binary(p)
    yield np.arange(last), parent[:last], call.n_items
    if call.root != last:
        yield last, call.root, call.n_items


@rooted_algorithm
def gather_linear(call: Collective, v: Array, p: int) -> Rounds:
    """Every rank sends its part to the root."""
    yield v[1:], 0, np.roll(call.parts, -call.root)[1:]


@rooted_algorithm
def gather_without_empty(call: Collective, v: Array, p: int) -> Rounds:
    """Every rank that has a part sends it to the root."""
    parts = np.roll(call.parts, -call.root)
    v = np.flatnonzero(parts[1:] > 0) + 1
    yield v, 0, parts[v]


@rooted_algorithm
def gather_linear_sync(call: Collective, v: Array, p: int) -> Rounds:
    """The root asks each rank with an empty message; the rank sends its part and an empty message."""
    yield 0, v[1:], 0
    yield v[1:], 0, call.n_items, 2


@rooted_algorithm
def gather_binomial(call: Collective, v: Array, p: int) -> Rounds:
    """Every rank sends the parts of its subtree to its parent."""
    sizes = subtree_sizes(p)
    yield v[1:], in_order_binomial(p)[1:], call.n_items * sizes[1:]


def reversed_messages(gather: Algorithm) -> Algorithm:
    """The same messages in the other direction, which turns a gather into a scatter."""

    def other(call: Collective, library: Library) -> Messages:
        messages = gather(call, library)
        messages.rows = [(dst, src, n_bytes, n) for src, dst, n_bytes, n in messages.rows]
        return messages

    return other


scatter_linear = reversed_messages(gather_linear)
scatter_binomial = reversed_messages(gather_binomial)
scatter_without_empty = reversed_messages(gather_without_empty)


# Reductions: recursive halving and doubling, Rabenseifner's, butterflies, rings.


Halving = Generator[tuple[ArrayLike, ...], None, list[tuple[int, Array]]]
"""Yields messages, and returns for each round its distance and the items that each folded rank keeps."""


class Folded:
    """The ranks (a power of two) that remain after the first 2r ranks are folded into r.

    Parameters
    ----------
    p : int
        Number of ranks.
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
        """Ranks in the call, from numbers among the ranks that stay."""
        return np.where(v < self.n_pairs, 2 * v + self.odd_stays, v + self.n_pairs)

    def sums(self, parts: Array, first: Array, n: int) -> Array:
        """Items of `n` folded ranks from `first` on, including the items of ranks folded into them."""
        ends = np.concatenate([[0], np.cumsum(parts)])
        edge = np.minimum(np.arange(self.n + 1), self.n_pairs) + np.arange(self.n + 1)
        return ends[edge[first + n]] - ends[edge[first]]


@algorithm
def allreduce_doubling(call: Collective, v: Array, p: int) -> Rounds:
    """Recursive doubling with the whole buffer; the even rank of each folded pair only gets the result."""
    folded = Folded(p, odd_stays=True)
    yield folded.leaves, folded.stays, call.n_items
    for distance in powers_of_two_below(folded.n):
        yield folded.rank, folded.real(folded.v ^ distance), call.n_items
    yield folded.stays, folded.leaves, call.n_items


@composed
def allreduce_ring(call: Collective, library: Library) -> Rounds:
    """Reduce-scatter and allgather on a ring; recursive doubling if there are fewer items than ranks."""
    if call.n_items < call.n_ranks:
        yield allreduce_doubling(call, library)
        return
    v, p = call.ranks, call.n_ranks
    part = block_sizes(call.n_items, p)
    n_items = 2 * call.n_items - part[(v + 1) % p] - part[(v + 2) % p]
    yield v, (v + 1) % p, n_items, 2 * (p - 1)


@composed
def allreduce_reduce_bcast(call: Collective, library: Library) -> Rounds:
    """Reduction to rank 0, and broadcast from there."""
    yield library.messages(call.with_("reduce", root=0))
    yield library.messages(call.with_("bcast", root=0))


@composed
def allreduce_linear(call: Collective, library: Library) -> Rounds:
    """Every rank sends to rank 0, which sends the result to every rank."""
    yield up(flat)(call.with_("reduce", root=0), library)
    yield down(flat)(call.with_("bcast", root=0), library)


def _fold_halves(folded: Folded, n_items: int) -> Rounds:
    """Each rank of a pair reduces one half of the buffer, then the odd rank leaves."""
    yield folded.stays, folded.leaves, n_items - n_items // 2
    yield folded.leaves, folded.stays, n_items // 2
    yield folded.leaves, folded.stays, n_items - n_items // 2


def _halve(folded: Folded, n_items: int) -> Halving:
    """Recursive vector halving with distance doubling; returns the items that ranks keep in each round."""
    rounds = []
    window = np.full(folded.n, n_items, dtype=np.int64)
    for distance in powers_of_two_below(folded.n):
        is_lower = folded.v & distance == 0
        kept = np.where(is_lower, window // 2, window - window // 2)
        yield folded.rank, folded.real(folded.v ^ distance), window - kept
        rounds.append((distance, kept))
        window = kept
    return rounds


@composed
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


@composed
def reduce_rabenseifner(call: Collective, library: Library) -> Rounds:
    """Reduce-scatter by recursive halving and gather to the root."""
    folded = Folded(call.n_ranks, odd_stays=False)
    if folded.n < 2 or call.n_items < folded.n or not call.commutes:
        yield up(flat)(call, library)
        return
    yield from _fold_halves(folded, call.n_items)
    rounds = yield from _halve(folded, call.n_items)
    yield from _gather_to_root(folded, rounds, call.root)


def _gather_to_root(folded: Folded, rounds: list[tuple[int, Array]], root: int) -> Rounds:
    """Undo the rounds, last one first: in each, ranks outside the root's half send their data to partners."""
    real, v_root = folded.rank.copy(), root - folded.n_pairs
    if root < 2 * folded.n_pairs:
        v_root = root // 2
        if root % 2:  # the root was folded: it takes the place of the first rank
            yield 0, root, rounds[-1][1][0]
            real[0], v_root = root, 0
    waiting = np.ones(folded.n, dtype=bool)
    for step in range(len(rounds) - 1, -1, -1):
        distance, kept = rounds[step]
        other = folded.v ^ distance
        sends = waiting & (other >> step == v_root >> step)
        yield real[sends], real[other[sends]], kept[sends]
        waiting &= ~sends


def _halvings(folded: Folded) -> Iterator[tuple[int, int, Ints, Ints]]:
    """Yield for each round of a halving: distance, blocks sent, first block sent, first block kept."""
    n_blocks, first = folded.n, np.zeros(folded.n, dtype=np.int64)
    for distance in powers_of_two_below(folded.n):
        n_blocks //= 2
        is_lower = folded.v & distance == 0
        sent = first + np.where(is_lower, n_blocks, 0)
        first = first + np.where(is_lower, 0, n_blocks)
        yield distance, n_blocks, sent, first


def _halve_blocks(folded: Folded, call: Collective) -> Halving:
    """Divide the buffer into one block for each folded rank, then halve it as `_halve` does."""
    sizes = block_sizes(call.n_items, folded.n)
    if not call.is_blocking:  # the last block takes the remainder
        sizes = np.append(np.full(folded.n - 1, sizes[-1]), call.n_items - sizes[-1] * (folded.n - 1))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    rounds = []
    for distance, n_blocks, sent, first in _halvings(folded):
        yield folded.rank, folded.real(folded.v ^ distance), ends[sent + n_blocks] - ends[sent]
        rounds.append((distance, ends[first + n_blocks] - ends[first]))
    return rounds


@algorithm
def allreduce_halving_blocks(call: Collective, v: Array, p: int) -> Rounds:
    """Rabenseifner's algorithm as in MPICH: pairs fold the whole buffer, then the halving works on blocks."""
    folded = Folded(p, odd_stays=True)
    yield folded.leaves, folded.stays, call.n_items
    for distance, kept in reversed((yield from _halve_blocks(folded, call))):
        yield folded.rank, folded.real(folded.v ^ distance), kept
    yield folded.stays, folded.leaves, call.n_items


@algorithm
def reduce_halving_blocks(call: Collective, v: Array, p: int) -> Rounds:
    """`allreduce_halving_blocks` with a gather to the root in place of the allgather."""
    folded = Folded(p, odd_stays=False)
    yield folded.leaves, folded.stays, call.n_items
    rounds = yield from _halve_blocks(folded, call)
    yield from _gather_to_root(folded, rounds, call.root)


@algorithm
def reduce_scatter_pairs(call: Collective, v: Array, p: int) -> Rounds:
    """Each rank sends every other rank that rank's part."""
    for step in range(1, p):
        yield v, (v + step) % p, call.parts[(v + step) % p]


@algorithm
def reduce_scatter_ring(call: Collective, v: Array, p: int) -> Rounds:
    """A ring on which each rank sends all parts but its own."""
    parts = call.parts
    yield v, (v + 1) % p, parts.sum() - parts, p - 1


@algorithm
def reduce_scatter_halving(call: Collective, v: Array, p: int) -> Rounds:
    """Recursive halving with distance halving; empty parts are not sent."""
    parts = call.parts
    folded = Folded(p, odd_stays=True)
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
def reduce_scatter_butterfly(call: Collective, v: Array, p: int) -> Rounds:
    """Recursive halving with distance doubling, which leaves parts at ranks with reversed bits."""
    parts = call.parts
    folded = Folded(p, odd_stays=True)
    yield folded.leaves, folded.stays, parts.sum()
    for distance, n_blocks, sent, _ in _halvings(folded):
        yield folded.rank, folded.real(folded.v ^ distance), folded.sums(parts, sent, n_blocks)
    yield from _send_parts_home(folded, parts)


def _send_parts_home(folded: Folded, parts: Array) -> Rounds:
    """Each folded rank sends its parts to the rank with reversed bits, and to the rank folded into it."""
    n_bits = folded.n.bit_length() - 1
    home = np.zeros(folded.n, dtype=np.int64)
    for bit in range(n_bits):
        home |= ((folded.v >> bit) & 1) << (n_bits - 1 - bit)
    paired = home < folded.n_pairs
    leaves = folded.real(home[paired]) - 1
    yield folded.rank[paired], leaves, parts[leaves]
    away = home != folded.v
    yield folded.rank[away], folded.real(home[away]), parts[folded.real(home[away])]


@composed
def reduce_scatter_block_butterfly(call: Collective, library: Library) -> Rounds:
    """A butterfly. Among a power of two of ranks, parts are permuted first, so that each ends at its rank."""
    if call.n_ranks != power_of_two_within(call.n_ranks):
        yield reduce_scatter_butterfly(call, library)
        return
    v, n_items = call.ranks, call.n_items * call.n_ranks
    for distance in powers_of_two_below(call.n_ranks):
        n_items //= 2
        yield v, v ^ distance, n_items


@algorithm
def reduce_scatter_block_doubling(call: Collective, v: Array, p: int) -> Rounds:
    """Recursive doubling: at distance d, a rank sends all parts except those of its own block of d ranks."""
    n = call.n_items
    for mask in powers_of_two_below(p):
        own, other_tree, other = v & ~(mask - 1), (v ^ mask) & ~(mask - 1), v ^ mask
        has_partner = other < p
        yield v[has_partner], other[has_partner], n * (own + np.maximum(p - own - mask, 0))[has_partner]
        got = n * (other_tree + np.maximum(p - other_tree - mask, 0))
        for sender, receiver in _relays(p, mask):
            yield sender, receiver, got[sender]


@composed
def reduce_scatter_by_reduce(call: Collective, library: Library) -> Rounds:
    """Reduction to rank 0, and scatter from there."""
    parts = call.parts
    yield library.messages(call.with_("reduce", n_items=int(parts.sum()), root=0))
    name = "scatter" if call.counts is None else "scatterv"
    yield library.messages(call.with_(name, counts=call.counts, root=0))


# Collectives without root or reduction (allgather, all-to-all, barrier), and scan.


@algorithm
def allgather_ring(call: Collective, v: Array, p: int) -> Rounds:
    """On a ring, each rank sends all parts except the part of the rank that it sends to."""
    parts = call.parts
    yield v, (v + 1) % p, parts.sum() - parts[(v + 1) % p], p - 1


@algorithm
def allgather_bruck(call: Collective, v: Array, p: int) -> Rounds:
    """In the round of distance d, each rank sends min(d, p-d) parts, starting with its own, to rank - d."""
    for distance in powers_of_two_below(p):
        n_parts = min(distance, p - distance)
        yield v, (v - distance) % p, circular_sums(call.parts, v, n_parts)


@composed
def allgather_doubling(call: Collective, library: Library) -> Rounds:
    """Recursive doubling; Bruck's algorithm if the number of ranks is not a power of two."""
    if call.n_ranks != power_of_two_within(call.n_ranks):
        yield allgather_bruck(call, library)
        return
    v = call.ranks
    for distance in powers_of_two_below(call.n_ranks):
        yield v, v ^ distance, circular_sums(call.parts, v & ~(distance - 1), distance)


@composed
def allgather_neighbours(call: Collective, library: Library) -> Rounds:
    """Neighbour exchange: ranks exchange pairs of parts with their neighbours on either side alternately.

    An odd number of ranks uses a ring instead.

    Notes
    -----
    The parts that a rank sends to one side are consecutive, so their sum is computed directly.
    """
    if call.n_ranks % 2:
        yield allgather_ring(call, library)
        return
    v, p = call.ranks, call.n_ranks
    is_even = v % 2 == 0
    first = np.where(is_even, v + 1, v - 1) % p
    second = np.where(is_even, v - 1, v + 1) % p
    n_second, n_first = p // 2 // 2, (p // 2 - 1) // 2
    yield v, first, call.parts
    to_second = np.where(is_even, v, v + 1 - 2 * n_second)
    yield v, second, circular_sums(call.parts, to_second, 2 * n_second), n_second
    to_first = np.where(is_even, v - 2 * n_first, v + 1)
    yield v, first, circular_sums(call.parts, to_first, 2 * n_first), n_first


@composed
def allgather_gather_bcast(call: Collective, library: Library) -> Rounds:
    """Gather to rank 0, and broadcast from there."""
    yield library.messages(call.with_("gather", root=0))
    yield library.messages(call.with_("bcast", n_items=call.n_items * call.n_ranks, root=0))


@composed
def allgatherv_gather_bcast(call: Collective, library: Library) -> Rounds:
    """Gather to rank 0, and broadcast of the whole result as one item."""
    yield library.messages(call.with_("gatherv", counts=call.parts, root=0))
    total_bytes = int(call.parts.sum()) * call.item_bytes
    yield library.messages(call.with_("bcast", n_items=1, item_bytes=total_bytes, root=0))


@algorithm
def alltoall_pairs(call: Collective, v: Array, p: int) -> Rounds:
    """Each rank sends its part to every other rank; `mpicoloc.core.network.Exchange` is the lazy form."""
    for step in range(1, p):
        yield v, (v + step) % p, call.parts


@algorithm
def alltoall_bruck(call: Collective, v: Array, p: int) -> Rounds:
    """In the round of distance d, each rank sends to rank + d the parts whose distance has the bit d."""
    for distance in powers_of_two_below(p):
        n_parts = np.count_nonzero(v & distance)
        yield v, (v + distance) % p, call.n_items * n_parts


def barrier_along(tree: Callable[[int], Array]) -> Algorithm:
    """Empty messages up a tree, and down again."""

    @algorithm
    def rounds(call: Collective, v: Array, p: int) -> Rounds:
        parent = tree(p)[1:]
        yield v[1:], parent, 0
        yield parent, v[1:], 0

    return rounds


@algorithm
def barrier_doubling(call: Collective, v: Array, p: int) -> Rounds:
    """Recursive doubling among a power of two of ranks; each other rank has one of these as its partner."""
    core = power_of_two_within(p)
    extra = np.arange(core, p)
    yield extra, extra - core, 0
    yield extra - core, extra, 0
    v = np.arange(core)
    for distance in powers_of_two_below(core):
        yield v, v ^ distance, 0


@algorithm
def barrier_dissemination(call: Collective, v: Array, p: int) -> Rounds:
    """Each rank sends to rank + 1, + 2, + 4 ..."""
    for distance in powers_of_two_below(p):
        yield v, (v + distance) % p, 0


@algorithm
def scan_linear(call: Collective, v: Array, p: int) -> Rounds:
    """Each rank adds its part and sends the sum to the next."""
    yield v[:-1], v[1:], call.n_items


@algorithm
def scan_doubling(call: Collective, v: Array, p: int) -> Rounds:
    """Recursive doubling; ranks skip partners that do not exist."""
    for distance in powers_of_two_below(p):
        has_partner = (v ^ distance) < p
        yield v[has_partner], (v ^ distance)[has_partner], call.n_items
