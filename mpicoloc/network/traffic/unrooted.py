"""Algorithms without root that do not reduce: allgather, all-to-all, barrier; and scan."""

from __future__ import annotations

import numpy as np

from mpicoloc.network.traffic.collective import (
    Collective,
    Library,
    Rounds,
    algorithm,
    circular_sums,
    power_of_two_within,
    powers_of_two_below,
)


@algorithm
def allgather_ring(call: Collective, library: Library) -> Rounds:
    """On a ring each rank sends all parts but that of the rank to which it sends."""
    v, parts, p = call.ranks, call.parts, call.n_ranks
    yield v, (v + 1) % p, parts.sum() - parts[(v + 1) % p], p - 1


@algorithm
def allgather_bruck(call: Collective, library: Library) -> Rounds:
    """In a round of distance d each rank sends the min(d, p-d) parts from its own on to rank - d."""
    v, p = call.ranks, call.n_ranks
    for distance in powers_of_two_below(p):
        n_parts = min(distance, p - distance)
        yield v, (v - distance) % p, circular_sums(call.parts, v, n_parts)


@algorithm
def allgather_doubling(call: Collective, library: Library) -> Rounds:
    """Recursive doubling; Bruck's algorithm if the number of ranks is no power of two."""
    if call.n_ranks != power_of_two_within(call.n_ranks):
        yield allgather_bruck(call, library)
        return
    v = call.ranks
    for distance in powers_of_two_below(call.n_ranks):
        yield v, v ^ distance, circular_sums(call.parts, v & ~(distance - 1), distance)


@algorithm
def allgather_neighbours(call: Collective, library: Library) -> Rounds:
    """Neighbour exchange: pairs of parts alternately from either side; a ring for an odd number of ranks.

    Notes
    -----
    All parts that a rank sends to one side are one range, whose sum is computed at once.
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


@algorithm
def allgather_gather_bcast(call: Collective, library: Library) -> Rounds:
    """Gather to rank 0, and broadcast from there."""
    yield library.messages(call.with_("gather", root=0))
    yield library.messages(call.with_("bcast", n_items=call.n_items * call.n_ranks, root=0))


@algorithm
def allgatherv_gather_bcast(call: Collective, library: Library) -> Rounds:
    """Gather to rank 0, and broadcast of everything as one item."""
    yield library.messages(call.with_("gatherv", counts=call.parts, root=0))
    total_bytes = int(call.parts.sum()) * call.item_bytes
    yield library.messages(call.with_("bcast", n_items=1, item_bytes=total_bytes, root=0))


@algorithm
def alltoall_pairs(call: Collective, library: Library) -> Rounds:
    """A message of each rank to each other rank; `mpicoloc.core.traffic.Exchange` is the lazy form."""
    v, p = call.ranks, call.n_ranks
    for step in range(1, p):
        yield v, (v + step) % p, call.n_items


@algorithm
def alltoall_bruck(call: Collective, library: Library) -> Rounds:
    """In a round of distance d each rank sends the parts whose distance has that bit to rank + d."""
    v, p = call.ranks, call.n_ranks
    for distance in powers_of_two_below(p):
        n_parts = np.count_nonzero(v & distance)
        yield v, (v + distance) % p, call.n_items * n_parts


@algorithm
def barrier_linear(call: Collective, library: Library) -> Rounds:
    """Every rank sends an empty message to rank 0, which answers each."""
    v = call.ranks[1:]
    yield v, 0, 0
    yield 0, v, 0


@algorithm
def barrier_doubling(call: Collective, library: Library) -> Rounds:
    """Recursive doubling among a power of two of ranks; each other rank has one of them as its partner."""
    core = power_of_two_within(call.n_ranks)
    extra = np.arange(core, call.n_ranks)
    yield extra, extra - core, 0
    yield extra - core, extra, 0
    v = np.arange(core)
    for distance in powers_of_two_below(core):
        yield v, v ^ distance, 0


@algorithm
def barrier_dissemination(call: Collective, library: Library) -> Rounds:
    """Each rank sends to rank + 1, + 2, + 4 ..."""
    v = call.ranks
    for distance in powers_of_two_below(call.n_ranks):
        yield v, (v + distance) % call.n_ranks, 0


@algorithm
def barrier_tree(call: Collective, library: Library) -> Rounds:
    """Up and down a binomial tree."""
    v = call.ranks[1:]
    parent = v - (v & -v)
    yield v, parent, 0
    yield parent, v, 0


@algorithm
def scan_linear(call: Collective, library: Library) -> Rounds:
    """Each rank adds its part and sends the sum to the next."""
    v = call.ranks
    yield v[:-1], v[1:], call.n_items


@algorithm
def scan_doubling(call: Collective, library: Library) -> Rounds:
    """Recursive doubling, without partners that do not exist."""
    v = call.ranks
    for distance in powers_of_two_below(call.n_ranks):
        has_partner = (v ^ distance) < call.n_ranks
        yield v[has_partner], (v ^ distance)[has_partner], call.n_items
