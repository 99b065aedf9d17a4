"""Neighbourhood collectives of a trace as operations of its ranks.

A trace has the bytes of each call, and the profile those between each two ranks, of all calls together. So
which ranks are neighbours is known, and a call's part of their bytes follows from the function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.arrays import Array
from mpicoloc.core.profile import Table
from mpicoloc.errors import DataError
from mpicoloc.replay.programs.builder import Program, ProgramBuilder
from mpicoloc.replay.programs.recorded import PlacedCollective
from mpicoloc.replay.programs.recorded_collectives import CollectiveCalls

NAME = re.compile(r"MPI_(I?)neighbor_(allgatherv?|alltoall[vw]?)(?:_c)?", re.IGNORECASE)
SHARES_PARTS = re.compile(
    r"MPI_I?(alltoall[vw]|gatherv|scatterv)(_init)?(_c)?|MPI_neighbor_.*_init(_c)?", re.IGNORECASE
)
"""Functions whose bytes between two ranks the profile adds to those of neighbours."""
_COMM = -2
_NONE = np.zeros(0, np.int64)
_NO_CALLS = CollectiveCalls(_NONE, (), _NONE, _NONE, _NONE)


@dataclass(frozen=True)
class _Edges:
    """Who sends to whom: `n_messages` in each call, `n_bytes` in all calls together."""

    src: Array
    dst: Array
    n_messages: Array
    n_bytes: Array

    def degree(self, end: str, n_ranks: int) -> Array:
        """Messages that each rank sends (``src``), or takes (``dst``), in one call."""
        return np.bincount(getattr(self, end), self.n_messages, n_ranks).astype(np.int64)


def placed(calls: Sequence[CollectiveCalls], parts: Table) -> list[PlacedCollective]:
    """Every neighbourhood collective of a job, with what its ranks do in it.

    Ranks that no edges join, as those of two communicators without a common rank, may call other functions.

    Raises `DataError` if ranks do not call the same functions in the same order, or had several sets of
    neighbours.
    """
    src, dst = parts["src"].astype(np.int64), parts["dst"].astype(np.int64)
    is_known = (np.minimum(src, dst) >= 0) & (np.maximum(src, dst) < len(calls))
    parts, src, dst = parts[is_known], src[is_known], dst[is_known]
    component = _components(src, dst, len(calls))
    found = []
    for i in np.unique(component):
        own = [each if component[rank] == i else _NO_CALLS for rank, each in enumerate(calls)]
        found += _placed_of_component(own, parts[component[src] == i])
    return found


def _components(src: Array, dst: Array, n_ranks: int) -> Array:
    """The lowest rank that edges join with each rank, directly or over others.

    By hand, since a replay needs no scipy otherwise.
    """
    lowest = np.arange(n_ranks)
    while True:
        of_edge = np.minimum(lowest[src], lowest[dst])
        lower = lowest.copy()
        np.minimum.at(lower, src, of_edge)
        np.minimum.at(lower, dst, of_edge)
        lower = lower[lower]
        if np.array_equal(lower, lowest):
            return lowest
        lowest = lower


def _placed_of_component(calls: Sequence[CollectiveCalls], parts: Table) -> list[PlacedCollective]:
    """As `placed`, of ranks that are neighbours, or neighbours of neighbours, and on."""
    callers = np.array([rank for rank, own in enumerate(calls) if len(own.function)], np.int64)
    if not len(callers):
        return []
    _check_alike(calls, callers)
    edges = _edges(calls, parts)
    sizes = _sizes(calls, edges)
    found = []
    for k, function in enumerate(calls[callers[0]].function):
        match = NAME.fullmatch(function)
        found.append(
            PlacedCollective(
                callers,
                np.array([calls[rank].i_call[k] for rank in callers]),
                np.array([calls[rank].begin_ns[k] for rank in callers]),
                match is None or not match[1],
                [_block(edges, sizes[k], rank) for rank in callers.tolist()],
            )
        )
    return found


def _check_alike(calls: Sequence[CollectiveCalls], callers: Array) -> None:
    first = list(calls[callers[0]].function)
    for rank in callers.tolist():
        own = list(calls[rank].function)
        if own == first:
            continue
        shorter = min(len(own), len(first))
        k = next((k for k in range(shorter) if own[k] != first[k]), shorter)
        one, other = (rank, int(callers[0])) if k < len(own) else (int(callers[0]), rank)
        call = list(calls[one].function)[k]
        raise DataError(
            f"call {int(calls[one].i_call[k])} of rank {one}, {call}, is no collective of rank {other}, too: "
            "only collectives of neighbours that all of them make can be replayed; "
            "record a run with one such communicator"
        )


def _edges(calls: Sequence[CollectiveCalls], parts: Table) -> _Edges:
    n_calls = np.array([len(own.function) for own in calls])
    src, dst = parts["src"].astype(np.int64), parts["dst"].astype(np.int64)
    pairs, row_of = np.unique(src * len(calls) + dst, return_inverse=True)
    n, n_bytes = (
        np.bincount(row_of, parts[name].astype(np.float64), len(pairs)).astype(np.int64)
        for name in ("n", "bytes")
    )
    src, dst = np.divmod(pairs, len(calls))
    n_messages, rest = np.divmod(n, np.maximum(n_calls[src], 1))
    if rest.any():
        rank = int(src[np.flatnonzero(rest)[0]])
        raise DataError(
            f"call {int(calls[rank].i_call[0])} of rank {rank}, {calls[rank].function[0]}: the rank has "
            "other neighbours in other calls, and the profile tells only those of all together; record a run "
            "with one such communicator"
        )
    return _Edges(src, dst, n_messages, n_bytes)


def _sizes(calls: Sequence[CollectiveCalls], edges: _Edges) -> Array:
    """Bytes of a message on each edge in each call, shape (n_calls, n_edges).

    A call of equal parts has as many as its bytes say. Calls with sizes of their own share the other bytes of
    the edge by what the rank moved in each.
    """
    n_out, n_in = (edges.degree(end, len(calls)) for end in ("src", "dst"))
    n_calls = max(len(own.function) for own in calls)
    sizes = np.zeros((n_calls, len(edges.src)))
    has_own_sizes = np.zeros(n_calls, bool)
    moved = np.array([own.n_bytes if len(own.n_bytes) else np.zeros(n_calls) for own in calls], np.float64).T
    for k, function in enumerate(next(own.function for own in calls if len(own.function))):
        match = NAME.fullmatch(function)
        what = match[2].lower() if match else ""
        n_blocks = {"alltoall": n_out + n_in, "allgather": 1 + n_in}.get(what)
        if n_blocks is None:
            has_own_sizes[k] = True
        else:
            sizes[k] = (moved[k] / np.maximum(n_blocks, 1))[edges.src]
    rest = np.maximum(edges.n_bytes / np.maximum(edges.n_messages, 1) - sizes.sum(axis=0), 0)
    weights = np.where(has_own_sizes[:, None], moved, 0.0)
    shares = weights / np.maximum(weights.sum(axis=0), 1)
    return np.rint(sizes + rest * shares[:, edges.src]).astype(np.int64)


def _block(edges: _Edges, sizes: Array, rank: int) -> Program:
    """What a rank does in one call: all at the same time."""
    builder = ProgramBuilder()
    requests = []
    for end, other, begin in (("dst", "src", builder.irecv), ("src", "dst", builder.isend)):
        for row in np.flatnonzero(getattr(edges, end) == rank).tolist():
            peer = int(getattr(edges, other)[row])
            for _ in range(int(edges.n_messages[row]) if peer != rank else 0):
                requests.append(begin(peer, int(sizes[row]), comm=_COMM))
    builder.wait_all(requests)
    return builder.build()
