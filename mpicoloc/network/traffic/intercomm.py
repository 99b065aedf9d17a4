"""Collectives between two groups of ranks, as blocking ones of Open MPI and MPICH make them.

A call is told in two halves, one by each group; with a root, by the group that the root is not of. The first
rank of a group speaks for it: what the group gives is brought together there, sent, and spread on the other
side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.traffic import Traffic, total
from mpicoloc.network.traffic.schedule import Collective, Library, Messages

Array = NDArray[Any]
_SHORT = 2048
"""Bytes from which MPICH gathers to, and scatters from, the root directly."""


@dataclass(frozen=True)
class Half:
    """What one group tells of a collective between two.

    Parameters
    ----------
    call : Collective
        On its own group; its root is a rank of the other one.
    own, other : ndarray of int64
        Ranks of both groups, in the job.
    n_ranks : int
        Ranks of the job.
    node_of : ndarray of int, shape (n_ranks,)
        Node of each rank of the job.
    """

    call: Collective
    own: Array
    other: Array
    n_ranks: int
    node_of: Array

    @property
    def root(self) -> int:
        """The root, in the job."""
        return int(self.other[min(self.call.root, len(self.other) - 1)])

    def within(self, library: Library, ranks: Array, name: str, n_items: int, **changes: Any) -> Messages:
        """A collective among one of the groups, its first rank the root."""
        nodes = self.node_of[ranks]
        inner = self.call.but(
            name, n_ranks=len(ranks), n_items=n_items, root=0, blocks=True, nodes=nodes, **changes
        )
        return library.messages(inner).among(ranks, self.n_ranks)

    def direct(self, src: Any, dst: Any, n_items: Any, item_bytes: int | None = None) -> Messages:
        """Messages of `n_items` each."""
        messages = Messages(self.n_ranks, self.call.item_bytes if item_bytes is None else item_bytes)
        src, dst, n_items = np.broadcast_arrays(src, dst, n_items)
        messages.add(src.ravel(), dst.ravel(), n_items.ravel())
        return messages


Algorithm = Callable[[Half, Library], list[Messages]]


def _bcast(half: Half, library: Library) -> list[Messages]:
    n_items = half.call.n_items
    return [half.direct(half.root, half.own[0], n_items), half.within(library, half.own, "bcast", n_items)]


def _reduce(half: Half, library: Library) -> list[Messages]:
    n_items = half.call.n_items
    return [half.within(library, half.own, "reduce", n_items), half.direct(half.own[0], half.root, n_items)]


def _allreduce(half: Half, library: Library) -> list[Messages]:
    n_items = half.call.n_items
    return [
        half.within(library, half.own, "reduce", n_items),
        half.direct(half.own[0], half.other[0], n_items),
        half.within(library, half.other, "bcast", n_items),
    ]


def _gather(half: Half, library: Library) -> list[Messages]:
    n_items = half.call.n_items
    return [
        half.within(library, half.own, "gather", n_items),
        half.direct(half.own[0], half.root, n_items * len(half.own)),
    ]


def _scatter(half: Half, library: Library) -> list[Messages]:
    n_items = half.call.n_items
    return [
        half.direct(half.root, half.own[0], n_items * len(half.own)),
        half.within(library, half.own, "scatter", n_items),
    ]


def _allgather(half: Half, library: Library) -> list[Messages]:
    n_items = half.call.n_items
    return [
        half.within(library, half.own, "gather", n_items),
        half.direct(half.own[0], half.other[0], n_items * len(half.own)),
        half.within(library, half.other, "bcast", n_items * len(half.own)),
    ]


def _alltoall(half: Half, library: Library) -> list[Messages]:
    return [half.direct(half.own[:, None], half.other, half.call.n_items)]


def _counts(half: Half, library: Library) -> Messages:
    """Open MPI's first ranks ask how much each one gives."""
    return half.within(library, half.own, "gather", 1, item_bytes=4)


def _allgatherv_open_mpi(half: Half, library: Library) -> list[Messages]:
    n_items = int(half.call.parts.sum())
    return [
        _counts(half, library),
        half.within(library, half.own, "gatherv", 0, counts=half.call.parts),
        half.direct(half.own[0], half.other[0], n_items),
        half.within(library, half.other, "bcast", n_items),
    ]


def _allgatherv_mpich(half: Half, library: Library) -> list[Messages]:
    parts = half.call.parts
    return [
        half.direct(half.own[parts > 0], half.other[0], parts[parts > 0]),
        half.within(library, half.other, "bcast", int(parts.sum())),
    ]


def _barrier_open_mpi(half: Half, library: Library) -> list[Messages]:
    """An allreduce of one number."""
    return [
        half.within(library, half.own, "reduce", 1, item_bytes=4),
        half.direct(half.own[0], half.other[0], 1, item_bytes=4),
        half.within(library, half.other, "bcast", 1, item_bytes=4),
    ]


def _barrier_mpich(half: Half, library: Library) -> list[Messages]:
    """Each group among itself, then a broadcast of a byte to the other."""
    return [
        half.within(library, half.own, "barrier", 0),
        half.direct(half.own[0], half.other[0], 1, item_bytes=1),
        half.within(library, half.other, "bcast", 1, item_bytes=1),
    ]


def _reduce_scatter_open_mpi(half: Half, library: Library) -> list[Messages]:
    """What the other group's ranks give goes to the first one of the own, whose ranks get their parts."""
    parts = half.call.parts
    return [
        half.direct(half.other, half.own[0], int(parts.sum())),
        half.within(library, half.own, "scatterv", 0, counts=parts),
    ]


def _reduce_scatter_mpich(half: Half, library: Library) -> list[Messages]:
    parts, n_items = half.call.counts, int(half.call.parts.sum())
    name = "scatter" if parts is None else "scatterv"
    return [
        half.within(library, half.other, "reduce", n_items),
        half.direct(half.other[0], half.own[0], n_items),
        half.within(library, half.own, name, half.call.n_items, counts=parts),
    ]


def _is_long(half: Half) -> bool:
    return half.call.n_bytes * len(half.own) >= _SHORT


def _gather_mpich(half: Half, library: Library) -> list[Messages]:
    if not _is_long(half):
        return _gather(half, library)
    return [half.direct(half.own, half.root, half.call.n_items)]


def _scatter_mpich(half: Half, library: Library) -> list[Messages]:
    if not _is_long(half):
        return _scatter(half, library)
    return [half.direct(half.root, half.own, half.call.n_items)]


_BOTH: Mapping[str, Algorithm] = {
    "bcast": _bcast,
    "reduce": _reduce,
    "allreduce": _allreduce,
    "allgather": _allgather,
    "alltoall": _alltoall,
}
OPEN_MPI: Mapping[str, Algorithm] = {
    **_BOTH,
    "gather": _gather,
    "scatter": _scatter,
    "allgatherv": _allgatherv_open_mpi,
    "barrier": _barrier_open_mpi,
    "reduce_scatter": _reduce_scatter_open_mpi,
    "reduce_scatter_block": _reduce_scatter_open_mpi,
}
MPICH: Mapping[str, Algorithm] = {
    **_BOTH,
    "gather": _gather_mpich,
    "scatter": _scatter_mpich,
    "allgatherv": _allgatherv_mpich,
    "barrier": _barrier_mpich,
    "reduce_scatter": _reduce_scatter_mpich,
    "reduce_scatter_block": _reduce_scatter_mpich,
}


def traffic(half: Half, library: Library, algorithms: Mapping[str, Algorithm]) -> Traffic:
    """Messages of what one group tells; `algorithms`: those of the library, by name."""
    call = half.call
    if call.name != "barrier" and call.parts.sum() * call.item_bytes == 0:
        return Traffic.empty(half.n_ranks)
    parts = [messages.traffic() for messages in algorithms[call.name](half, library)]
    return total(half.n_ranks, parts)
