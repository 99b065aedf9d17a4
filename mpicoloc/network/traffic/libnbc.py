"""Nonblocking collectives of Open MPI: its component ``coll/libnbc``, releases 4.1 and 5.0."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpicoloc.network.traffic import algorithms
from mpicoloc.network.traffic.algorithms import down, up
from mpicoloc.network.traffic.collective import (
    Algorithm,
    Collective,
    Library,
    Messages,
    Rounds,
    composed,
    power_of_two_within,
)

LONG_BYTES = 65536
_SEGMENT_BYTES = 8192


def _with_swapped_root(of_root_0: Algorithm) -> Algorithm:
    """The algorithm for root 0 with the root and rank 0 exchanged."""

    def other(call: Collective, library: Library) -> Messages:
        ranks = call.ranks
        ranks[[0, call.root]] = call.root, 0
        return of_root_0(call.with_(call.name, root=0), library).renumbered(ranks, call.n_ranks)

    return other


def _bcast(call: Collective, library: Library) -> Messages:
    return (down(algorithms.flat) if call.n_ranks <= 4 else _with_swapped_root(down(algorithms.binomial)))(
        call, library
    )


def _reduce(call: Collective, library: Library) -> Messages:
    p = call.n_ranks
    if call.commutes and p > 2 and call.n_items >= power_of_two_within(p):
        return algorithms.reduce_rabenseifner(call, library)
    if p > 4 or call.n_bytes < LONG_BYTES or not call.commutes:
        return _with_swapped_root(up(algorithms.in_order_binomial))(call, library)
    messages = _with_swapped_root(up(algorithms.chain))(call, library)
    n_segments = -(-call.n_bytes // _SEGMENT_BYTES)
    messages.rows = [(src, dst, n_bytes, n * n_segments) for src, dst, n_bytes, n in messages.rows]
    return messages


def _allreduce(call: Collective, library: Library) -> Messages:
    if call.n_ranks < 4 or call.n_bytes < LONG_BYTES or not call.commutes:
        messages = up(algorithms.in_order_binomial)(call.with_("reduce", root=0), library)
        return messages.include(down(algorithms.binomial)(call.with_("bcast", root=0), library))
    if call.n_items >= power_of_two_within(call.n_ranks):
        return algorithms.allreduce_rabenseifner(call, library)
    return algorithms.allreduce_ring(call, library)


@composed
def _reduce_scatter(call: Collective, library: Library) -> Rounds:
    """Binomial reduction to rank 0, which sends each rank its part."""
    whole = call.with_("reduce", n_items=int(call.parts.sum()), root=0)
    yield up(algorithms.in_order_binomial)(whole, library)
    v = np.arange(1, call.n_ranks)
    yield 0, v, call.parts[v]


ALGORITHMS: Mapping[str, Algorithm] = {
    "bcast": _bcast,
    "reduce": _reduce,
    "allreduce": _allreduce,
    "gather": algorithms.gather_linear,
    "scatter": algorithms.scatter_linear,
    "gatherv": algorithms.gather_linear,
    "scatterv": algorithms.scatter_linear,
    "allgather": algorithms.alltoall_pairs,
    "allgatherv": algorithms.alltoall_pairs,
    "alltoall": algorithms.alltoall_pairs,
    "barrier": algorithms.barrier_dissemination,
    "scan": algorithms.scan_linear,
    "exscan": algorithms.scan_linear,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_block": _reduce_scatter,
}
