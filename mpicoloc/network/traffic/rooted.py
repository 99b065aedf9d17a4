"""Algorithms with a root: broadcast, reduction, gather, scatter. Ranks are numbered from the root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.network.traffic import trees
from mpicoloc.network.traffic.collective import (
    Algorithm,
    Collective,
    Library,
    Messages,
    Rounds,
    algorithm,
    circular_sums,
    low_bit,
    powers_of_two_below,
    rooted_algorithm,
)

Array = NDArray[Any]


def down(tree: Callable[[int], Array]) -> Algorithm:
    """Broadcast: every rank gets the whole buffer from its parent."""
    return rooted_algorithm(lambda call, library: [(tree(call.n_ranks)[1:], call.ranks[1:], call.n_items)])


def up(tree: Callable[[int], Array]) -> Algorithm:
    """Reduction: every rank sends the whole buffer to its parent."""
    return rooted_algorithm(lambda call, library: [(call.ranks[1:], tree(call.n_ranks)[1:], call.n_items)])


def bcast_k_nomial(radix: int) -> Algorithm:
    """Broadcast along a k-nomial tree."""
    return down(lambda p: trees.k_nomial(p, radix))


@rooted_algorithm
def bcast_split_binary(call: Collective, library: Library) -> Rounds:
    """Half of the buffer goes down each branch of a binary tree, then pairs of ranks exchange halves."""
    p, halves = call.n_ranks, np.array([call.n_items - call.n_items // 2, call.n_items // 2])
    if halves[1] == 0:
        yield down(trees.chain)(call, library)
        return
    v = call.ranks[1:]
    yield trees.binary(p)[1:], v, halves[(v + 1) % 2]
    if p % 2 == 0:
        yield 0, p - 1, halves[1]
        v = v[:-1]
    yield v, np.where(v % 2 == 1, v + 1, v - 1), halves[(v + 1) % 2]


def part_sizes(call: Collective) -> Array:
    """Items of each rank if a buffer is scattered in equal parts, of which the last may be shorter."""
    part = -(-call.n_items // call.n_ranks)
    return np.clip(call.n_items - call.ranks * part, 0, part)


def unless_short(long: Algorithm) -> Algorithm:
    """The same algorithm, but a flat tree if there are fewer items than ranks."""
    return lambda call, library: (long if call.n_items >= call.n_ranks else down(trees.flat))(call, library)


def _scatter_of_bcast(call: Collective) -> Rounds:
    """Binomial scatter of a broadcast's buffer; empty parts are not sent."""
    v = call.ranks[1:]
    span = np.minimum(low_bit(v), call.n_ranks - v)
    parts = part_sizes(call)
    n_items = circular_sums(parts, v, span)
    if not call.is_blocking:  # in MPICH a rank's first child then gets all up to the buffer's end
        first = 2 * low_bit(v) == low_bit(v - low_bit(v))
        n_items = np.where(first, np.maximum(call.n_items - v * parts[0], 0), n_items)
    nonempty = n_items > 0
    yield (v - low_bit(v))[nonempty], v[nonempty], n_items[nonempty]


@rooted_algorithm
def bcast_scatter_ring(call: Collective, library: Library) -> Rounds:
    """Binomial scatter, then allgather on a ring."""
    yield from _scatter_of_bcast(call)
    v, p = call.ranks, call.n_ranks
    yield v, (v + 1) % p, call.n_items - part_sizes(call)[(v + 1) % p], p - 1


@rooted_algorithm
def bcast_scatter_doubling(call: Collective, library: Library) -> Rounds:
    """Binomial scatter, then allgather by recursive doubling, for any number of ranks."""
    yield from _scatter_of_bcast(call)
    v, p = call.ranks, call.n_ranks
    held = part_sizes(call)
    got = np.zeros(p, dtype=np.int64)
    for mask in powers_of_two_below(p):
        other = v ^ mask
        has_partner = other < p
        yield v[has_partner], other[has_partner], held[has_partner]
        got[has_partner] = held[other[has_partner]]
        held = held + np.where(has_partner, got, 0)
        yield from _send_to_ranks_without_partner(mask, got, held)


def _send_to_ranks_without_partner(mask: int, got: Array, held: Array) -> Rounds:
    """Send what was received in this round to ranks without a partner, by halving the distance."""
    p = len(got)
    v = np.arange(p)
    own_tree, other_tree = v & ~(mask - 1), (v ^ mask) & ~(mask - 1)
    n_complete = p - own_tree - mask
    step = mask >> 1
    while step:
        other, tree = v ^ step, v & ~(2 * step - 1)
        limit = tree + n_complete
        sends = (other_tree + mask > p) & (other > v) & (v < limit) & (other >= limit) & (other < p)
        yield v[sends], other[sends], got[sends]
        got[other[sends]] = got[sends]
        held[other[sends]] += got[sends]
        step >>= 1


@algorithm
def reduce_in_order_binary(call: Collective, library: Library) -> Rounds:
    """Reduction in rank order to the last rank, which sends the result to the root."""
    last = call.n_ranks - 1
    parent = trees.in_order_binary(call.n_ranks)
    yield np.arange(last), parent[:last], call.n_items
    if call.root != last:
        yield last, call.root, call.n_items


@rooted_algorithm
def gather_linear(call: Collective, library: Library) -> Rounds:
    """Every rank sends its part to the root."""
    v = call.ranks[1:]
    yield v, 0, np.roll(call.parts, -call.root)[1:]


@rooted_algorithm
def gather_without_empty(call: Collective, library: Library) -> Rounds:
    """Every rank that has a part sends it to the root."""
    parts = np.roll(call.parts, -call.root)
    v = np.flatnonzero(parts[1:] > 0) + 1
    yield v, 0, parts[v]


@rooted_algorithm
def gather_linear_sync(call: Collective, library: Library) -> Rounds:
    """The root asks each rank with an empty message; the rank sends its part and an empty message."""
    v = call.ranks[1:]
    yield 0, v, 0
    yield v, 0, call.n_items, 2


@rooted_algorithm
def gather_binomial(call: Collective, library: Library) -> Rounds:
    """Every rank sends the parts of its subtree to its parent."""
    sizes = trees.subtree_sizes(call.n_ranks)
    yield call.ranks[1:], trees.in_order_binomial(call.n_ranks)[1:], call.n_items * sizes[1:]


def reversed_messages(gather: Algorithm) -> Algorithm:
    """The same messages in the other direction, which makes a scatter of a gather."""

    def other(call: Collective, library: Library) -> Messages:
        messages = gather(call, library)
        messages.rows = [(dst, src, n_bytes, n) for src, dst, n_bytes, n in messages.rows]
        return messages

    return other


scatter_linear = reversed_messages(gather_linear)
scatter_binomial = reversed_messages(gather_binomial)
scatter_without_empty = reversed_messages(gather_without_empty)
