"""A collective operation within a group of ranks or between two groups, and messages of its algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from mpicoloc.core.network import Traffic, total
from mpicoloc.core.profile import Array

DENSE_PAIRS_MAX = 4096
"""Largest number of ranks for which the messages between all pairs are stored pair by pair. Between more
ranks, the messages are taken to be equally large."""


@dataclass(frozen=True)
class Collective:
    """One collective operation on an intracommunicator.

    Parameters
    ----------
    name : str
        The MPI function in lower case without ``MPI_``, for example ``bcast``.
    n_ranks : int
        Size of the communicator.
    n_items : int
        Items of the buffer in ``bcast``, ``reduce``, ``allreduce``, ``scan`` and ``exscan``; items of one
        rank's part in ``gather``, ``scatter``, ``allgather``, ``alltoall`` and ``reduce_scatter_block``.
    item_bytes : int
        Size of an item of the datatype; algorithms split buffers only between items.
    root : int
        Rank of the root in the communicator.
    counts : ndarray of int64, shape (n_ranks,)
        Items of each rank's part in ``gatherv``, ``scatterv``, ``allgatherv`` and ``reduce_scatter``.
    commutes : bool
        Whether the reduction commutes, as all predefined MPI operations do.
    is_blocking : bool
        False for the nonblocking function, for which libraries can use other algorithms.
    nodes : ndarray of int, shape (n_ranks,)
        Node of each rank, for algorithms that depend on nodes; None: each rank has a node of its own.
    """

    name: str
    n_ranks: int
    n_items: int = 0
    item_bytes: int = 1
    root: int = 0
    counts: Array | None = None
    commutes: bool = True
    is_blocking: bool = True
    nodes: Array | None = None

    @property
    def ranks(self) -> Array:
        """Ranks of the communicator, 0 to p-1."""
        return np.arange(self.n_ranks, dtype=np.int64)

    @property
    def parts(self) -> Array:
        """Items of each rank's part, even if all are equal."""
        return self.counts if self.counts is not None else np.full(self.n_ranks, self.n_items, dtype=np.int64)

    @property
    def n_bytes(self) -> int:
        """Bytes of the buffer, or of one rank's part of it."""
        return self.n_items * self.item_bytes

    def with_(self, name: str, **changes: Any) -> Collective:
        """Another operation on the same communicator, with these changes and without `counts`."""
        return replace(self, name=name, **{"counts": None, **changes})


class Library(Protocol):
    """An MPI library: the messages that it sends for a collective."""

    def messages(self, call: Collective) -> Messages:
        """Messages of the call."""

    def is_exchange(self, call: Collective) -> bool:
        """Whether each rank sends a message of the same size to each other rank."""


@dataclass
class Messages:
    """Messages of one operation, collected round by round.

    Parameters
    ----------
    n_ranks, item_bytes : int
        As in the operation.
    root : int
        Added to the ranks of each message, modulo `n_ranks`, because algorithms number ranks from the root.
    """

    n_ranks: int
    item_bytes: int = 1
    root: int = 0
    rows: list[tuple[Array, Array, Array, Array]] = field(default_factory=list)

    @classmethod
    def of(cls, call: Collective, from_root: bool = False) -> Messages:
        """An empty collection for this operation; `from_root`: ranks are numbered from its root."""
        return cls(call.n_ranks, call.item_bytes, call.root if from_root else 0)

    def add(self, src: ArrayLike, dst: ArrayLike, n_items: ArrayLike, n_messages: ArrayLike = 1) -> None:
        """Add `n_messages` messages with `n_items` in total for each pair. Broadcasts arrays like NumPy."""
        rows = np.broadcast_arrays(*(np.asarray(x, dtype=np.int64) for x in (src, dst, n_items, n_messages)))
        ranks = [np.atleast_1d(rows[i] + self.root) % self.n_ranks for i in (0, 1)]
        self.rows.append(
            (ranks[0], ranks[1], np.atleast_1d(rows[2] * self.item_bytes), np.atleast_1d(rows[3]))
        )

    def include(self, other: Messages) -> Messages:
        """Add another operation's messages on the same ranks."""
        self.rows += other.rows
        return self

    def renumbered(self, ranks: Array, n_ranks: int) -> Messages:
        """The same messages with rank i as rank `ranks[i]` of a communicator of `n_ranks`."""
        rows = [(ranks[src], ranks[dst], n_bytes, n) for src, dst, n_bytes, n in self.rows]
        return Messages(n_ranks, self.item_bytes, rows=rows)

    def traffic(self) -> Traffic:
        """The sum of all messages, by pair of ranks."""
        if not self.rows:
            return Traffic.empty(self.n_ranks)
        src, dst, n_bytes, n_messages = (np.concatenate(column) for column in zip(*self.rows, strict=True))
        return Traffic.of(self.n_ranks, src, dst, n_bytes, n_messages)


def pairwise(n_bytes: Array) -> Messages:
    """A message of `n_bytes[i, j]` from each rank i to each rank j, in rounds, without empty messages."""
    p = len(n_bytes)
    messages, v = Messages(p), np.arange(p)
    for step in range(1, p):
        to = (v + step) % p
        senders = v[n_bytes[v, to] > 0]
        messages.add(senders, to[senders], n_bytes[senders, to[senders]])
    return messages


Algorithm = Callable[[Collective, Library], Messages]
Rounds = Iterable[Messages | tuple[ArrayLike, ...]]
"""Arguments of `Messages.add` for each round, or all messages of another collective."""


def collected(call: Collective, rounds: Rounds, from_root: bool = False) -> Messages:
    """Messages of all rounds of a call."""
    messages = Messages.of(call, from_root)
    for part in rounds:
        if isinstance(part, Messages):
            messages.include(part)
        else:
            messages.add(*part)
    return messages


RoundsOfRanks = Callable[[Collective, Array, int], Rounds]
"""A function that returns the rounds of a call. Its arguments are the call, the ranks 0 to p-1, and p."""


def algorithm(rounds: RoundsOfRanks) -> Algorithm:
    """The algorithm with these rounds."""
    return wraps(rounds)(lambda call, library: collected(call, rounds(call, call.ranks, call.n_ranks)))


def rooted_algorithm(rounds: RoundsOfRanks) -> Algorithm:
    """The algorithm with these rounds, in which ranks are numbered from the root."""
    return wraps(rounds)(
        lambda call, library: collected(call, rounds(call, call.ranks, call.n_ranks), from_root=True)
    )


def composed(rounds: Callable[[Collective, Library], Rounds]) -> Algorithm:
    """The algorithm with these rounds, which can include the messages of other collectives."""
    return wraps(rounds)(lambda call, library: collected(call, rounds(call, library)))


def powers_of_two_below(n: int) -> list[int]:
    """1, 2, 4 ... below n."""
    return [1 << i for i in range(max(n - 1, 0).bit_length())]


def power_of_two_within(n: int) -> int:
    """The largest power of two up to n."""
    return 1 << (n.bit_length() - 1)


def low_bit(v: Array) -> Array:
    """The lowest bit of each number."""
    return v & -v


def block_sizes(n_items: int, n_blocks: int) -> Array:
    """Sizes of blocks that differ by one item at most; larger blocks come first."""
    sizes = np.full(n_blocks, n_items // n_blocks, dtype=np.int64)
    sizes[: n_items % n_blocks] += 1
    return sizes


def circular_sums(counts: Array, first: Array, n: ArrayLike) -> Array:
    """Sum of `n` (at most all) consecutive counts from index `first` on, wrapping around the end."""
    p = len(counts)
    sums = np.concatenate([[0], np.cumsum(np.concatenate([counts, counts]))])
    start = np.asarray(first) % p
    return sums[start + np.asarray(n)] - sums[start]


# Blocking collectives of Open MPI and MPICH on intercommunicators, between two groups of ranks.
#
# A profile records each group's side of a call. If the call has a root, only the side of the group without
# the root is recorded. The first rank of a group is its leader: it collects the group's data and sends them
# to the other group, whose leader distributes them.

_DIRECT_MIN_BYTES = 2048
"""From this size on, MPICH gathers directly to the root, and scatters directly from it."""


@dataclass(frozen=True)
class IntercommSide:
    """One group's side of a collective between two groups.

    Parameters
    ----------
    call : Collective
        The call on the local group; its root is a rank of the remote group.
    local, remote : ndarray of int64
        Ranks of both groups, as numbered in the job.
    n_ranks : int
        Number of ranks of the job.
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
        """Messages of a collective within one group, with the group's first rank as root."""
        nodes = self.node_of[ranks]
        inner = self.call.with_(
            name, n_ranks=len(ranks), n_items=n_items, root=0, is_blocking=True, nodes=nodes, **changes
        )
        return library.messages(inner).renumbered(ranks, self.n_ranks)

    def direct(self, src: Any, dst: Any, n_items: Any, item_bytes: int | None = None) -> Messages:
        """Messages of `n_items` each between ranks of the job, without a collective algorithm."""
        messages = Messages(self.n_ranks, self.call.item_bytes if item_bytes is None else item_bytes)
        src, dst, n_items = np.broadcast_arrays(src, dst, n_items)
        messages.add(src.ravel(), dst.ravel(), n_items.ravel())
        return messages


IntercommAlgorithm = Callable[[IntercommSide, Library], list[Messages]]


def _barrier(name: str, n_items: int, item_bytes: int) -> IntercommAlgorithm:
    """A collective within the local group; its leader then sends the other leader an item to broadcast."""

    def phases(side: IntercommSide, library: Library) -> list[Messages]:
        return [
            side.within(library, side.local, name, n_items, item_bytes=item_bytes),
            side.direct(side.local[0], side.remote[0], 1, item_bytes=item_bytes),
            side.within(library, side.remote, "bcast", 1, item_bytes=item_bytes),
        ]

    return phases


def _allgatherv_open_mpi(side: IntercommSide, library: Library) -> list[Messages]:
    """The leader of a group gathers the number of items of each rank, and then the items."""
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


_COMMON_ALGORITHMS: Mapping[str, IntercommAlgorithm] = {
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
OPEN_MPI: Mapping[str, IntercommAlgorithm] = {
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
    # remote ranks send all data to the first local rank, which scatters the parts
    **dict.fromkeys(
        ("reduce_scatter", "reduce_scatter_block"),
        lambda side, library: [
            side.direct(side.remote, side.local[0], side.n_all),
            side.within(library, side.local, "scatterv", 0, counts=side.call.parts),
        ],
    ),
}
MPICH: Mapping[str, IntercommAlgorithm] = {
    **_COMMON_ALGORITHMS,
    "gather": lambda side, library: (
        [side.direct(side.local, side.root, side.n)] if side.is_long else OPEN_MPI["gather"](side, library)
    ),
    "scatter": lambda side, library: (
        [side.direct(side.root, side.local, side.n)] if side.is_long else OPEN_MPI["scatter"](side, library)
    ),
    "allgatherv": _allgatherv_mpich,
    # a barrier within each group, then a broadcast of one byte to the other group
    "barrier": _barrier("barrier", 0, item_bytes=1),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_block"), _reduce_scatter_mpich),
}


def traffic(side: IntercommSide, library: Library, algorithms: Mapping[str, IntercommAlgorithm]) -> Traffic:
    """Traffic of one group's side of a call; `algorithms` has the library's algorithms, by collective."""
    call = side.call
    if call.name != "barrier" and call.parts.sum() * call.item_bytes == 0:
        return Traffic.empty(side.n_ranks)
    parts = [messages.traffic() for messages in algorithms[call.name](side, library)]
    return total(side.n_ranks, parts)
