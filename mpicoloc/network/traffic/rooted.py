"""Algorithms with a root: broadcast, reduction, gather, scatter. Ranks are numbered from the root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.network.traffic import trees
from mpicoloc.network.traffic.collective import (
    Collective,
    Library,
    Messages,
    circular_sums,
    low_bit,
    powers_of_two_below,
    ranks_of,
)

Array = NDArray[Any]
Algorithm = Callable[[Collective, Library], Messages]


def down(tree: Callable[[int], Array]) -> Algorithm:
    """Broadcast: every rank gets the whole buffer from its parent."""

    def algorithm(call: Collective, library: Library) -> Messages:
        messages = Messages.of(call, from_root=True)
        messages.add(tree(call.n_ranks)[1:], ranks_of(call)[1:], call.n_items)
        return messages

    return algorithm


def up(tree: Callable[[int], Array]) -> Algorithm:
    """Reduction: every rank sends the whole buffer to its parent."""

    def algorithm(call: Collective, library: Library) -> Messages:
        messages = Messages.of(call, from_root=True)
        messages.add(ranks_of(call)[1:], tree(call.n_ranks)[1:], call.n_items)
        return messages

    return algorithm


def bcast_k_nomial(radix: int) -> Algorithm:
    """Broadcast along a k-nomial tree."""
    return down(lambda p: trees.k_nomial(p, radix))


def bcast_split_binary(call: Collective, library: Library) -> Messages:
    """Half of the buffer goes down each branch of a binary tree, then pairs of ranks exchange halves."""
    p, halves = call.n_ranks, np.array([call.n_items - call.n_items // 2, call.n_items // 2])
    if halves[1] == 0:
        return down(trees.chain)(call, library)
    messages = Messages.of(call, from_root=True)
    v = ranks_of(call)[1:]
    messages.add(trees.binary(p)[1:], v, halves[(v + 1) % 2])
    if p % 2 == 0:
        messages.add(0, p - 1, halves[1])
        v = v[:-1]
    messages.add(v, np.where(v % 2 == 1, v + 1, v - 1), halves[(v + 1) % 2])
    return messages


def part_sizes(call: Collective) -> Array:
    """Items of each rank if a buffer is scattered in equal parts, of which the last may be shorter."""
    part = -(-call.n_items // call.n_ranks)
    return np.clip(call.n_items - ranks_of(call) * part, 0, part)


def unless_short(algorithm: Algorithm) -> Algorithm:
    """The same algorithm, but a flat tree if there are fewer items than ranks."""

    def other(call: Collective, library: Library) -> Messages:
        return (algorithm if call.n_items >= call.n_ranks else down(trees.flat))(call, library)

    return other


def scatter_of_bcast(call: Collective) -> Messages:
    """Binomial scatter of a broadcast's buffer; empty parts are not sent."""
    messages = Messages.of(call, from_root=True)
    v = ranks_of(call)[1:]
    span = np.minimum(low_bit(v), call.n_ranks - v)
    parts = part_sizes(call)
    n_items = circular_sums(parts, v, span)
    if not call.is_blocking:  # in MPICH a rank's first child then gets all up to the buffer's end
        first = 2 * low_bit(v) == low_bit(v - low_bit(v))
        n_items = np.where(first, np.maximum(call.n_items - v * parts[0], 0), n_items)
    nonempty = n_items > 0
    messages.add((v - low_bit(v))[nonempty], v[nonempty], n_items[nonempty])
    return messages


def bcast_scatter_ring(call: Collective, library: Library) -> Messages:
    """Binomial scatter, then allgather on a ring."""
    messages = scatter_of_bcast(call)
    v, p = ranks_of(call), call.n_ranks
    messages.add(v, (v + 1) % p, call.n_items - part_sizes(call)[(v + 1) % p], p - 1)
    return messages


def bcast_scatter_doubling(call: Collective, library: Library) -> Messages:
    """Binomial scatter, then allgather by recursive doubling, for any number of ranks."""
    messages = scatter_of_bcast(call)
    v, p = ranks_of(call), call.n_ranks
    held = part_sizes(call)
    got = np.zeros(p, dtype=np.int64)
    for mask in powers_of_two_below(p):
        other = v ^ mask
        has_partner = other < p
        messages.add(v[has_partner], other[has_partner], held[has_partner])
        got[has_partner] = held[other[has_partner]]
        held = held + np.where(has_partner, got, 0)
        _send_to_ranks_without_partner(messages, mask, got, held)
    return messages


def _send_to_ranks_without_partner(messages: Messages, mask: int, got: Array, held: Array) -> None:
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
        messages.add(v[sends], other[sends], got[sends])
        got[other[sends]] = got[sends]
        held[other[sends]] += got[sends]
        step >>= 1


def reduce_in_order_binary(call: Collective, library: Library) -> Messages:
    """Reduction in rank order to the last rank, which sends the result to the root."""
    messages = Messages.of(call)
    last = call.n_ranks - 1
    parent = trees.in_order_binary(call.n_ranks)
    messages.add(np.arange(last), parent[:last], call.n_items)
    if call.root != last:
        messages.add(last, call.root, call.n_items)
    return messages


def gather_linear(call: Collective, library: Library) -> Messages:
    """Every rank sends its part to the root."""
    messages = Messages.of(call, from_root=True)
    v = ranks_of(call)[1:]
    messages.add(v, 0, np.roll(call.parts, -call.root)[1:])
    return messages


def gather_without_empty(call: Collective, library: Library) -> Messages:
    """Every rank that has a part sends it to the root."""
    messages = Messages.of(call, from_root=True)
    parts = np.roll(call.parts, -call.root)
    v = np.flatnonzero(parts[1:] > 0) + 1
    messages.add(v, 0, parts[v])
    return messages


def gather_linear_sync(call: Collective, library: Library) -> Messages:
    """The root asks each rank with an empty message; the rank sends its part and an empty message."""
    messages = Messages.of(call, from_root=True)
    v = ranks_of(call)[1:]
    messages.add(0, v, 0)
    messages.add(v, 0, call.n_items, 2)
    return messages


def gather_binomial(call: Collective, library: Library) -> Messages:
    """Every rank sends the parts of its subtree to its parent."""
    messages = Messages.of(call, from_root=True)
    sizes = trees.subtree_sizes(call.n_ranks)
    messages.add(ranks_of(call)[1:], trees.in_order_binomial(call.n_ranks)[1:], call.n_items * sizes[1:])
    return messages


def reversed_messages(algorithm: Algorithm) -> Algorithm:
    """The same messages in the other direction, which makes a scatter of a gather."""

    def other(call: Collective, library: Library) -> Messages:
        messages = algorithm(call, library)
        messages.rows = [(dst, src, n_bytes, n) for src, dst, n_bytes, n in messages.rows]
        return messages

    return other


scatter_linear = reversed_messages(gather_linear)
scatter_binomial = reversed_messages(gather_binomial)
scatter_without_empty = reversed_messages(gather_without_empty)
