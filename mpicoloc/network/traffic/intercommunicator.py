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

from mpicoloc.core.arrays import Array
from mpicoloc.core.traffic import Traffic, total
from mpicoloc.network.traffic.collective import Collective, Library, Messages

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

    @property
    def n(self) -> int:
        """Items of the buffer, or of one rank's part."""
        return self.call.n_items

    @property
    def n_all(self) -> int:
        """Items of all local ranks' parts."""
        return int(self.call.parts.sum())

    @property
    def is_long(self) -> bool:
        """Whether MPICH gathers and scatters without leaders."""
        return self.call.n_bytes * len(self.local) >= _DIRECT_MIN_BYTES

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


def _barrier(name: str, n_items: int, item_bytes: int) -> Algorithm:
    """A collective within the local group, an item to the other leader, and a broadcast of it there."""

    def phases(side: IntercommSide, library: Library) -> list[Messages]:
        return [
            side.within(library, side.local, name, n_items, item_bytes=item_bytes),
            side.direct(side.local[0], side.remote[0], 1, item_bytes=item_bytes),
            side.within(library, side.remote, "bcast", 1, item_bytes=item_bytes),
        ]

    return phases


def _allgatherv_open_mpi(side: IntercommSide, library: Library) -> list[Messages]:
    """The first rank of a group gathers how much each rank of it sends, and then that."""
    n_items = side.n_all
    return [
        side.within(library, side.local, "gather", 1, item_bytes=4),
        side.within(library, side.local, "gatherv", 0, counts=side.call.parts),
        side.direct(side.local[0], side.remote[0], n_items),
        side.within(library, side.remote, "bcast", n_items),
    ]


def _allgatherv_mpich(side: IntercommSide, library: Library) -> list[Messages]:
    parts = side.call.parts
    return [
        side.direct(side.local[parts > 0], side.remote[0], parts[parts > 0]),
        side.within(library, side.remote, "bcast", side.n_all),
    ]


def _reduce_scatter_mpich(side: IntercommSide, library: Library) -> list[Messages]:
    parts = side.call.counts
    name = "scatter" if parts is None else "scatterv"
    return [
        side.within(library, side.remote, "reduce", side.n_all),
        side.direct(side.remote[0], side.local[0], side.n_all),
        side.within(library, side.local, name, side.n, counts=parts),
    ]


_COMMON_ALGORITHMS: Mapping[str, Algorithm] = {
    "bcast": lambda side, library: [
        side.direct(side.root, side.local[0], side.n),
        side.within(library, side.local, "bcast", side.n),
    ],
    "reduce": lambda side, library: [
        side.within(library, side.local, "reduce", side.n),
        side.direct(side.local[0], side.root, side.n),
    ],
    "allreduce": lambda side, library: [
        side.within(library, side.local, "reduce", side.n),
        side.direct(side.local[0], side.remote[0], side.n),
        side.within(library, side.remote, "bcast", side.n),
    ],
    "allgather": lambda side, library: [
        side.within(library, side.local, "gather", side.n),
        side.direct(side.local[0], side.remote[0], side.n_all),
        side.within(library, side.remote, "bcast", side.n_all),
    ],
    "alltoall": lambda side, library: [side.direct(side.local[:, None], side.remote, side.n)],
}
OPEN_MPI: Mapping[str, Algorithm] = {
    **_COMMON_ALGORITHMS,
    "gather": lambda side, library: [
        side.within(library, side.local, "gather", side.n),
        side.direct(side.local[0], side.root, side.n_all),
    ],
    "scatter": lambda side, library: [
        side.direct(side.root, side.local[0], side.n_all),
        side.within(library, side.local, "scatter", side.n),
    ],
    "allgatherv": _allgatherv_open_mpi,
    # an allreduce of one number
    "barrier": _barrier("reduce", 1, item_bytes=4),
    # remote ranks send all to the first local rank, which scatters the parts
    **dict.fromkeys(
        ("reduce_scatter", "reduce_scatter_block"),
        lambda side, library: [
            side.direct(side.remote, side.local[0], side.n_all),
            side.within(library, side.local, "scatterv", 0, counts=side.call.parts),
        ],
    ),
}
MPICH: Mapping[str, Algorithm] = {
    **_COMMON_ALGORITHMS,
    "gather": lambda side, library: (
        [side.direct(side.local, side.root, side.n)] if side.is_long else OPEN_MPI["gather"](side, library)
    ),
    "scatter": lambda side, library: (
        [side.direct(side.root, side.local, side.n)] if side.is_long else OPEN_MPI["scatter"](side, library)
    ),
    "allgatherv": _allgatherv_mpich,
    # within each group, then a broadcast of a byte to the other group
    "barrier": _barrier("barrier", 0, item_bytes=1),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_block"), _reduce_scatter_mpich),
}


def traffic(side: IntercommSide, library: Library, algorithms: Mapping[str, Algorithm]) -> Traffic:
    """Traffic of one group's side of a call; `algorithms` are those of the library, by name."""
    call = side.call
    if call.name != "barrier" and call.parts.sum() * call.item_bytes == 0:
        return Traffic.empty(side.n_ranks)
    parts = [messages.traffic() for messages in algorithms[call.name](side, library)]
    return total(side.n_ranks, parts)
