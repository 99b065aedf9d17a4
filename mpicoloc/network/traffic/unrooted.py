"""Algorithms without root that do not reduce: allgather, all-to-all, barrier; and scan."""

from __future__ import annotations

import numpy as np

from mpicoloc.network.traffic.collective import (
    Collective,
    Library,
    Messages,
    circular_sums,
    power_of_two_within,
    powers_of_two_below,
    ranks_of,
)


def allgather_ring(call: Collective, library: Library) -> Messages:
    """On a ring each rank sends all parts but that of the rank to which it sends."""
    messages = Messages.of(call)
    v, parts, p = ranks_of(call), call.parts, call.n_ranks
    messages.add(v, (v + 1) % p, parts.sum() - parts[(v + 1) % p], p - 1)
    return messages


def allgather_bruck(call: Collective, library: Library) -> Messages:
    """In a round of distance d each rank sends the min(d, p-d) parts from its own on to rank - d."""
    messages = Messages.of(call)
    v, p = ranks_of(call), call.n_ranks
    for distance in powers_of_two_below(p):
        n_parts = min(distance, p - distance)
        messages.add(v, (v - distance) % p, circular_sums(call.parts, v, n_parts))
    return messages


def allgather_doubling(call: Collective, library: Library) -> Messages:
    """Recursive doubling; Bruck's algorithm if the number of ranks is no power of two."""
    if call.n_ranks != power_of_two_within(call.n_ranks):
        return allgather_bruck(call, library)
    messages = Messages.of(call)
    v = ranks_of(call)
    for distance in powers_of_two_below(call.n_ranks):
        messages.add(v, v ^ distance, circular_sums(call.parts, v & ~(distance - 1), distance))
    return messages


def allgather_neighbours(call: Collective, library: Library) -> Messages:
    """Neighbour exchange: pairs of parts alternately from either side; a ring for an odd number of ranks.

    Notes
    -----
    All parts that a rank sends to one side are one range, whose sum is computed at once.
    """
    if call.n_ranks % 2:
        return allgather_ring(call, library)
    messages = Messages.of(call)
    v, p = ranks_of(call), call.n_ranks
    is_even = v % 2 == 0
    first = np.where(is_even, v + 1, v - 1) % p
    second = np.where(is_even, v - 1, v + 1) % p
    n_second, n_first = p // 2 // 2, (p // 2 - 1) // 2
    messages.add(v, first, call.parts)
    to_second = np.where(is_even, v, v + 1 - 2 * n_second)
    messages.add(v, second, circular_sums(call.parts, to_second, 2 * n_second), n_second)
    to_first = np.where(is_even, v - 2 * n_first, v + 1)
    messages.add(v, first, circular_sums(call.parts, to_first, 2 * n_first), n_first)
    return messages


def allgather_gather_bcast(call: Collective, library: Library) -> Messages:
    """Gather to rank 0, and broadcast from there."""
    messages = library.messages(call.with_("gather", n_items=call.n_items, root=0))
    whole = call.with_("bcast", n_items=call.n_items * call.n_ranks, root=0)
    return messages.include(library.messages(whole))


def allgatherv_gather_bcast(call: Collective, library: Library) -> Messages:
    """Gather to rank 0, and broadcast of everything as one item."""
    messages = library.messages(call.with_("gatherv", counts=call.parts, root=0))
    total_bytes = int(call.parts.sum()) * call.item_bytes
    whole = call.with_("bcast", n_items=1, item_bytes=total_bytes, root=0)
    return messages.include(library.messages(whole))


def alltoall_pairs(call: Collective, library: Library) -> Messages:
    """A message of each rank to each other rank; `mpicoloc.core.traffic.Exchange` is the lazy form."""
    messages = Messages.of(call)
    v, p = ranks_of(call), call.n_ranks
    for step in range(1, p):
        messages.add(v, (v + step) % p, call.n_items)
    return messages


def alltoall_bruck(call: Collective, library: Library) -> Messages:
    """In a round of distance d each rank sends the parts whose distance has that bit to rank + d."""
    messages = Messages.of(call)
    v, p = ranks_of(call), call.n_ranks
    for distance in powers_of_two_below(p):
        n_parts = np.count_nonzero(v & distance)
        messages.add(v, (v + distance) % p, call.n_items * n_parts)
    return messages


def barrier_linear(call: Collective, library: Library) -> Messages:
    """Every rank sends an empty message to rank 0, which answers each."""
    messages = Messages.of(call)
    v = ranks_of(call)[1:]
    messages.add(v, 0, 0)
    messages.add(0, v, 0)
    return messages


def barrier_doubling(call: Collective, library: Library) -> Messages:
    """Recursive doubling among a power of two of ranks; each other rank has one of them as its partner."""
    messages = Messages.of(call)
    core = power_of_two_within(call.n_ranks)
    extra = np.arange(core, call.n_ranks)
    messages.add(extra, extra - core, 0)
    messages.add(extra - core, extra, 0)
    v = np.arange(core)
    for distance in powers_of_two_below(core):
        messages.add(v, v ^ distance, 0)
    return messages


def barrier_dissemination(call: Collective, library: Library) -> Messages:
    """Each rank sends to rank + 1, + 2, + 4 ..."""
    messages = Messages.of(call)
    v = ranks_of(call)
    for distance in powers_of_two_below(call.n_ranks):
        messages.add(v, (v + distance) % call.n_ranks, 0)
    return messages


def barrier_tree(call: Collective, library: Library) -> Messages:
    """Up and down a binomial tree."""
    messages = Messages.of(call)
    v = ranks_of(call)[1:]
    parent = v - (v & -v)
    messages.add(v, parent, 0)
    messages.add(parent, v, 0)
    return messages


def scan_linear(call: Collective, library: Library) -> Messages:
    """Each rank adds its part and sends the sum to the next."""
    messages = Messages.of(call)
    v = ranks_of(call)
    messages.add(v[:-1], v[1:], call.n_items)
    return messages


def scan_doubling(call: Collective, library: Library) -> Messages:
    """Recursive doubling, without partners that do not exist."""
    messages = Messages.of(call)
    v = ranks_of(call)
    for distance in powers_of_two_below(call.n_ranks):
        has_partner = (v ^ distance) < call.n_ranks
        messages.add(v[has_partner], (v ^ distance)[has_partner], call.n_items)
    return messages
