"""Collectives on intercommunicators, between two groups of ranks: the blocking ones of Open MPI and MPICH.

A profile records each group's side of a call; if the call has a root, only that of the group without root.
The first rank of a group is its leader: it collects the group's data and sends them to the other group, whose
leader distributes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.traffic import Traffic, total
from mpicoloc.network.traffic.collective import Collective, Library, Messages

Array = NDArray[Any]
_DIRECT_MIN_BYTES = 2048
"""Bytes from which MPICH gathers directly to the root, and scatters directly from it."""


@dataclass(frozen=True)
class IntercommSide:
    """One group's side of a collective between two groups.

    Parameters
    ----------
    call : Collective
        On the local group; its root is a rank of the remote one.
    local, remote : ndarray of int64
        Ranks of both groups, in the job.
    n_ranks : int
        Ranks of the job.
    node_of : ndarray of int, shape (n_ranks,)
        Node of each rank of the job.
    """

    call: Collective
    local: Array
    remote: Array
    n_ranks: int
    node_of: Array

    @property
    def root(self) -> int:
        """Rank of the root in the job."""
        return int(self.remote[min(self.call.root, len(self.remote) - 1)])

    def within(self, library: Library, ranks: Array, name: str, n_items: int, **changes: Any) -> Messages:
        """Messages of a collective within one of the groups, with its first rank as root."""
        nodes = self.node_of[ranks]
        inner = self.call.with_(
            name, n_ranks=len(ranks), n_items=n_items, root=0, is_blocking=True, nodes=nodes, **changes
        )
        return library.messages(inner).renumbered(ranks, self.n_ranks)

    def direct(self, src: Any, dst: Any, n_items: Any, item_bytes: int | None = None) -> Messages:
        """Messages of `n_items` each."""
        messages = Messages(self.n_ranks, self.call.item_bytes if item_bytes is None else item_bytes)
        src, dst, n_items = np.broadcast_arrays(src, dst, n_items)
        messages.add(src.ravel(), dst.ravel(), n_items.ravel())
        return messages


Algorithm = Callable[[IntercommSide, Library], list[Messages]]


def _bcast(side: IntercommSide, library: Library) -> list[Messages]:
    n_items = side.call.n_items
    return [
        side.direct(side.root, side.local[0], n_items),
        side.within(library, side.local, "bcast", n_items),
    ]


def _reduce(side: IntercommSide, library: Library) -> list[Messages]:
    n_items = side.call.n_items
    return [
        side.within(library, side.local, "reduce", n_items),
        side.direct(side.local[0], side.root, n_items),
    ]


def _allreduce(side: IntercommSide, library: Library) -> list[Messages]:
    n_items = side.call.n_items
    return [
        side.within(library, side.local, "reduce", n_items),
        side.direct(side.local[0], side.remote[0], n_items),
        side.within(library, side.remote, "bcast", n_items),
    ]


def _gather(side: IntercommSide, library: Library) -> list[Messages]:
    n_items = side.call.n_items
    return [
        side.within(library, side.local, "gather", n_items),
        side.direct(side.local[0], side.root, n_items * len(side.local)),
    ]


def _scatter(side: IntercommSide, library: Library) -> list[Messages]:
    n_items = side.call.n_items
    return [
        side.direct(side.root, side.local[0], n_items * len(side.local)),
        side.within(library, side.local, "scatter", n_items),
    ]


def _allgather(side: IntercommSide, library: Library) -> list[Messages]:
    n_items = side.call.n_items
    return [
        side.within(library, side.local, "gather", n_items),
        side.direct(side.local[0], side.remote[0], n_items * len(side.local)),
        side.within(library, side.remote, "bcast", n_items * len(side.local)),
    ]


def _alltoall(side: IntercommSide, library: Library) -> list[Messages]:
    return [side.direct(side.local[:, None], side.remote, side.call.n_items)]


def _gather_counts(side: IntercommSide, library: Library) -> Messages:
    """In Open MPI the first rank of a group gathers how much each rank of it sends."""
    return side.within(library, side.local, "gather", 1, item_bytes=4)


def _allgatherv_open_mpi(side: IntercommSide, library: Library) -> list[Messages]:
    n_items = int(side.call.parts.sum())
    return [
        _gather_counts(side, library),
        side.within(library, side.local, "gatherv", 0, counts=side.call.parts),
        side.direct(side.local[0], side.remote[0], n_items),
        side.within(library, side.remote, "bcast", n_items),
    ]


def _allgatherv_mpich(side: IntercommSide, library: Library) -> list[Messages]:
    parts = side.call.parts
    return [
        side.direct(side.local[parts > 0], side.remote[0], parts[parts > 0]),
        side.within(library, side.remote, "bcast", int(parts.sum())),
    ]


def _barrier_open_mpi(side: IntercommSide, library: Library) -> list[Messages]:
    """An allreduce of one number."""
    return [
        side.within(library, side.local, "reduce", 1, item_bytes=4),
        side.direct(side.local[0], side.remote[0], 1, item_bytes=4),
        side.within(library, side.remote, "bcast", 1, item_bytes=4),
    ]


def _barrier_mpich(side: IntercommSide, library: Library) -> list[Messages]:
    """A barrier within each group, then a broadcast of a byte to the other group."""
    return [
        side.within(library, side.local, "barrier", 0),
        side.direct(side.local[0], side.remote[0], 1, item_bytes=1),
        side.within(library, side.remote, "bcast", 1, item_bytes=1),
    ]


def _reduce_scatter_open_mpi(side: IntercommSide, library: Library) -> list[Messages]:
    """Remote ranks send all to the first local rank, which scatters the parts."""
    parts = side.call.parts
    return [
        side.direct(side.remote, side.local[0], int(parts.sum())),
        side.within(library, side.local, "scatterv", 0, counts=parts),
    ]


def _reduce_scatter_mpich(side: IntercommSide, library: Library) -> list[Messages]:
    parts, n_items = side.call.counts, int(side.call.parts.sum())
    name = "scatter" if parts is None else "scatterv"
    return [
        side.within(library, side.remote, "reduce", n_items),
        side.direct(side.remote[0], side.local[0], n_items),
        side.within(library, side.local, name, side.call.n_items, counts=parts),
    ]


def _is_long(side: IntercommSide) -> bool:
    return side.call.n_bytes * len(side.local) >= _DIRECT_MIN_BYTES


def _gather_mpich(side: IntercommSide, library: Library) -> list[Messages]:
    if not _is_long(side):
        return _gather(side, library)
    return [side.direct(side.local, side.root, side.call.n_items)]


def _scatter_mpich(side: IntercommSide, library: Library) -> list[Messages]:
    if not _is_long(side):
        return _scatter(side, library)
    return [side.direct(side.root, side.local, side.call.n_items)]


_COMMON_ALGORITHMS: Mapping[str, Algorithm] = {
    "bcast": _bcast,
    "reduce": _reduce,
    "allreduce": _allreduce,
    "allgather": _allgather,
    "alltoall": _alltoall,
}
OPEN_MPI: Mapping[str, Algorithm] = {
    **_COMMON_ALGORITHMS,
    "gather": _gather,
    "scatter": _scatter,
    "allgatherv": _allgatherv_open_mpi,
    "barrier": _barrier_open_mpi,
    "reduce_scatter": _reduce_scatter_open_mpi,
    "reduce_scatter_block": _reduce_scatter_open_mpi,
}
MPICH: Mapping[str, Algorithm] = {
    **_COMMON_ALGORITHMS,
    "gather": _gather_mpich,
    "scatter": _scatter_mpich,
    "allgatherv": _allgatherv_mpich,
    "barrier": _barrier_mpich,
    "reduce_scatter": _reduce_scatter_mpich,
    "reduce_scatter_block": _reduce_scatter_mpich,
}


def traffic(side: IntercommSide, library: Library, algorithms: Mapping[str, Algorithm]) -> Traffic:
    """Traffic of one group's side of a call; `algorithms` are those of the library, by name."""
    call = side.call
    if call.name != "barrier" and call.parts.sum() * call.item_bytes == 0:
        return Traffic.empty(side.n_ranks)
    parts = [messages.traffic() for messages in algorithms[call.name](side, library)]
    return total(side.n_ranks, parts)
