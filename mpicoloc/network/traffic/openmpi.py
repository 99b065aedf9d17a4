"""Algorithms that Open MPI chooses: the fixed decisions of ``coll/tuned``, releases 4.1 and 5.0.

Each line of a table begins with a number of ranks, and applies to fewer ranks than this number. The line that
begins with ``-`` applies to all larger numbers. Pairs ``bytes:algorithm`` follow, each for sizes below its
number of bytes, and then the algorithm for all larger sizes. Algorithms have the numbers of the parameters
``coll_tuned_<collective>_algorithm``. By default, messages are not segmented. For ``bcast``, ``reduce``,
``allreduce`` and ``reduce_scatter``, the size is that of the whole buffer. For other collectives, it is that
of one part, and for ``allgatherv`` that of the mean part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from mpicoloc.core.profile import Array
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import algorithms
from mpicoloc.network.traffic.algorithms import down, up
from mpicoloc.network.traffic.collective import (
    DENSE_PAIRS_MAX,
    Algorithm,
    Collective,
    Library,
    Messages,
    Rounds,
    composed,
    power_of_two_within,
)

# Nonblocking collectives: the component ``coll/libnbc``, releases 4.1 and 5.0.

LONG_BYTES = 65536
_NONBLOCKING_SEGMENT_BYTES = 8192


def _with_swapped_root(of_root_0: Algorithm) -> Algorithm:
    """The algorithm for root 0, with the root and rank 0 swapped."""

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
    n_segments = -(-call.n_bytes // _NONBLOCKING_SEGMENT_BYTES)
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
    """Binomial reduction to rank 0, which then sends each rank its part."""
    whole = call.with_("reduce", n_items=int(call.parts.sum()), root=0)
    yield up(algorithms.in_order_binomial)(whole, library)
    v = np.arange(1, call.n_ranks)
    yield 0, v, call.parts[v]


NONBLOCKING: Mapping[str, Algorithm] = {
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


# Collectives of Open MPI 5 on several nodes: its component ``coll/han`` over ``tuned`` and ``libnbc``.
#
# Each of them consists of collectives on two levels: *low*, among all ranks of a node, and *up*, among the
# ranks of different nodes that have the same local number. Long buffers are sent in segments; the first
# segment can use another algorithm.


_SEGMENT_BYTES = 65536


_ROOTED = ("bcast", "reduce", "gather", "scatter")
_SEGMENTED = ("bcast", "reduce", "allreduce")
_PHASES: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "bcast": (("up", "bcast", "part"), ("low", "bcast", "part")),
    "reduce": (("low", "reduce", "part"), ("up", "reduce", "part")),
    "allreduce": (
        ("low", "reduce", "part"),
        ("up", "reduce", "part"),
        ("up", "bcast", "part"),
        ("low", "bcast", "part"),
    ),
    "allgather": (("low", "gather", "part"), ("up", "allgather", "node"), ("low", "bcast", "all")),
    "gather": (("low", "gather", "part"), ("up", "gather", "node")),
    "scatter": (("up", "scatter", "node"), ("low", "scatter", "part")),
    "barrier": (("low", "barrier", "part"), ("up", "barrier", "part"), ("low", "barrier", "part")),
}
"""Steps of each collective: the level, the collective on that level, and the data that it moves: the part of
one rank, the parts of one node, or all parts."""
_ON_UNEVEN_NODES = ("allreduce", "barrier")


class Levels:
    """The ranks of a communicator by node and local number.

    Parameters
    ----------
    call : Collective
        The call, with the node of each rank.
    library : Library
        Library that determines the messages of the collectives on each level.
    """

    def __init__(self, call: Collective, library: Library) -> None:
        nodes = np.asarray(call.nodes)
        _, first, number = np.unique(nodes, return_index=True, return_inverse=True)
        self.call, self.library = call, library
        self.nodes = [np.flatnonzero(number == i) for i in np.argsort(first)]
        self.sizes = np.array([len(node) for node in self.nodes])
        root = call.root if call.name in _ROOTED else 0
        self.up_root = next(i for i, node in enumerate(self.nodes) if root in node)
        self.low_root = int(np.flatnonzero(self.nodes[self.up_root] == root)[0])

    def messages(self) -> Messages:
        """Messages of all phases; in phases among nodes, one rank of each node takes part."""
        call, merged = self.call, Messages.of(self.call)
        n_parts = {"part": 1, "node": len(self.nodes[0]), "all": call.n_ranks}
        among_nodes = np.array([node[self.low_root] for node in self.nodes])
        is_segmented = call.name in _SEGMENTED
        for i, n_items in enumerate(self.segments() if is_segmented else [call.n_items]):
            is_blocking = not is_segmented or (call.name == "bcast" and i == 0)
            for level, name, size in _PHASES[call.name]:
                part = call.with_(name, n_items=n_items * n_parts[size], nodes=None)
                if level == "up":
                    merged.include(self._of(among_nodes, part, self.up_root, is_blocking))
                else:
                    for node in self.nodes:
                        merged.include(self._of(node, part, self.low_root))
        return merged

    def _of(self, ranks: Array, part: Collective, root: int, is_blocking: bool = True) -> Messages:
        call = part.with_(part.name, n_ranks=len(ranks), root=root, is_blocking=is_blocking)
        return self.library.messages(call).renumbered(ranks, self.call.n_ranks)

    def segments(self) -> list[int]:
        """Items of each segment of the buffer."""
        item, n_items = self.call.item_bytes, self.call.n_items
        size = n_items
        if item <= _SEGMENT_BYTES < item * n_items:
            size = _SEGMENT_BYTES // item + (_SEGMENT_BYTES % item > item // 2)
        return [min(size, n_items - i) for i in range(0, n_items, size)]


def messages(call: Collective, library: Library) -> Messages | None:
    """Messages of a call; None if ``coll/han`` does not handle it."""
    if call.nodes is None or not call.is_blocking or call.name not in _PHASES or not call.commutes:
        return None
    levels = Levels(call, library)
    if len(levels.nodes) < 2 or levels.sizes.max() < 2:
        return None
    if np.any(levels.sizes != levels.sizes[0]) and call.name not in _ON_UNEVEN_NODES:
        return None
    return levels.messages()


_TABLES = {
    "allreduce/ordered": """
        4 131072:3 1
        8 3
        16 1048576:3 2
        128 3
        256 131072:2 524288:3 2
        512 4096:2 524288:3 2
        - 2048:2 3
    """,
    "allreduce": """
        4 8:4 4096:3 8192:4 16384:3 65536:4 262144:5 6
        8 16:4 8192:3 6
        16 8192:3 6
        32 64:5 4096:3 6
        64 128:5 6
        128 262144:3 6
        256 131072:2 262144:3 6
        512 4096:2 6
        2048 2048:2 16384:3 6
        4096 2048:2 4096:5 16384:3 6
        - 2048:2 16384:5 32768:3 6
    """,
    "alltoall": """
        3 2:2 4:5 16:2 64:5 256:2 4096:5 32768:2 262144:4 1048576:5 2
        8 8192:4 16384:1 65536:4 524288:1 1048576:2 1
        16 262144:4 1
        32 4:4 512:3 8192:4 32768:1 262144:4 524288:1 4
        64 512:3 524288:1 4
        128 1024:3 2048:1 4096:4 262144:1 2
        256 1024:3 2048:4 262144:1 2
        512 1024:3 8192:4 32768:1 2
        1024 512:3 8192:4 16384:1 131072:4 262144:1 2
        2048 512:3 1024:4 2048:1 16384:4 262144:1 4
        4096 1024:3 4096:4 8192:1 131072:4 1
        - 2048:3 8192:4 16384:1 32768:4 65536:1 4
    """,
    "alltoallv": """
        4 2
        64 1
        128 2
        256 1
        1024 2
        - 1
    """,
    "barrier": """
        4 3
        8 1
        64 3
        256 4
        512 6
        1024 4
        4096 6
        - 4
    """,
    "bcast": """
        4 32:3 256:5 512:3 1024:7 32768:1 131072:5 262144:2 524288:1 1048576:6 5
        8 64:5 128:6 2048:5 8192:6 1048576:1 2
        16 8:7 64:5 4096:7 16384:5 32768:6 1
        32 4096:7 1048576:6 8
        64 2048:6 7
        128 7
        256 2:6 16384:5 32768:1 65536:5 7
        1024 16384:7 32768:4 7
        2048 524288:7 8
        4096 262144:7 8
        - 8192:7 16384:5 262144:7 8
    """,
    "reduce/ordered": """
        4 8:6 1
        8 1
        16 1024:6 8192:1 16384:6 262144:1 6
        128 6
        256 512:6 1024:1 6
        - 6
    """,
    "reduce": """
        4 8:7 16:4 32:3 262144:1 524288:3 1048576:2 3
        8 4096:4 65536:2 262144:5 524288:1 1048576:5 1
        16 8192:4 5
        32 4096:4 5
        256 5
        512 8192:5 16384:6 5
        2048 5
        4096 512:5 1024:6 8192:5 16384:6 5
        - 16:5 32:6 1024:5 2048:6 8192:5 16384:6 5
    """,
    "reduce_scatter/ordered": """
        - 1
    """,
    "reduce_scatter": """
        4 65536:3 131072:4 3
        8 8:1 262144:2 3
        32 262144:2 3
        64 64:1 2048:2 524288:4 3
        128 256:1 512:2 2048:4 4096:2 4
        256 256:1 512:2 4
        512 256:1 1024:2 4
        1024 512:1 2048:2 8192:4 16384:2 4
        2048 512:1 4096:2 16384:4 32768:2 4
        4096 512:1 4096:2 4
        - 1024:1 8192:2 4
    """,
    "reduce_scatter_block/ordered": """
        - 1
    """,
    "reduce_scatter_block": """
        4 4:2 8:4 16:3 128:4 256:3 4096:4 8192:3 131072:4 1
        8 8:3 32:2 256:4 8192:3 16384:4 1048576:3 1
        16 4:1 32:3 128:4 524288:3 4194304:1 4
        32 32:1 524288:3 2097152:1 4194304:3 4
        - 4:3 16:1 65536:4 262144:1 4
    """,
    "allgather": """
        3 6
        32 3
        64 1024:3 65536:5 4
        128 512:3 65536:5 4
        256 512:3 131072:5 524288:4 1048576:5 4
        512 32:3 128:2 1024:3 131072:5 524288:4 1048576:5 4
        1024 64:3 256:2 2048:3 5
        2048 4:3 8:2 16:3 32:2 256:3 512:2 4096:3 5
        4096 32:2 128:3 512:2 4096:3 5
        - 2:3 8:2 16:3 512:2 4096:3 5
    """,
    "allgatherv": """
        3 2048:3 4096:5 8192:3 5
        8 256:1 4096:4 8192:3 16384:4 262144:2 4
        16 1024:1 2
        32 128:1 262144:2 3
        64 256:1 8192:2 3
        128 256:1 4096:2 3
        256 1024:2 65536:4 3
        512 1024:2 3
        1024 512:2 1024:1 4096:2 1048576:4 3
        - 4096:2 4
    """,
    "gather": """
        4 2:3 4:1 32768:2 65536:1 131072:2 3
        8 1024:2 8192:1 32768:2 262144:1 3
        256 2
        512 2048:2 8192:1 2
        - 2
    """,
    "scatter": """
        4 2:3 131072:1 262144:3 1
        8 2048:2 4096:1 8192:2 32768:1 1048576:3 1
        16 16384:2 1048576:3 1
        32 16384:2 32768:1 3
        64 512:2 8192:3 16384:2 3
        - 512:2 3
    """,
}

ALGORITHMS: Mapping[str, Mapping[int, Algorithm]] = {
    "bcast": {
        1: down(algorithms.flat),
        2: down(algorithms.chain),
        3: down(algorithms.chain),
        4: algorithms.bcast_split_binary,
        5: down(algorithms.binary),
        6: down(algorithms.binomial),
        7: algorithms.bcast_k_nomial(4),
        8: algorithms.unless_short(algorithms.bcast_scatter_doubling),
        9: algorithms.unless_short(algorithms.bcast_scatter_ring),
    },
    "reduce": {
        1: up(algorithms.flat),
        2: up(algorithms.chain),
        3: up(algorithms.chain),
        4: up(algorithms.binary),
        5: up(algorithms.in_order_binomial),
        6: algorithms.reduce_in_order_binary,
        7: algorithms.reduce_rabenseifner,
    },
    "gather": {1: algorithms.gather_linear, 2: algorithms.gather_binomial, 3: algorithms.gather_linear_sync},
    "scatter": {1: algorithms.scatter_linear, 2: algorithms.scatter_binomial, 3: algorithms.scatter_linear},
    "allreduce": {
        1: algorithms.allreduce_linear,
        2: algorithms.allreduce_reduce_bcast,
        3: algorithms.allreduce_doubling,
        4: algorithms.allreduce_ring,
        5: algorithms.allreduce_ring,
        6: algorithms.allreduce_rabenseifner,
    },
    "reduce_scatter": {
        1: algorithms.reduce_scatter_by_reduce,
        2: algorithms.reduce_scatter_halving,
        3: algorithms.reduce_scatter_ring,
        4: algorithms.reduce_scatter_butterfly,
    },
    "reduce_scatter_block": {
        1: algorithms.reduce_scatter_by_reduce,
        2: algorithms.reduce_scatter_block_doubling,
        3: algorithms.reduce_scatter_halving,
        4: algorithms.reduce_scatter_block_butterfly,
    },
    "allgather": {
        1: algorithms.allgather_gather_bcast,
        2: algorithms.allgather_bruck,
        3: algorithms.allgather_doubling,
        4: algorithms.allgather_ring,
        5: algorithms.allgather_neighbours,
        6: algorithms.allgather_ring,
    },
    "allgatherv": {
        1: algorithms.allgatherv_gather_bcast,
        2: algorithms.allgather_bruck,
        3: algorithms.allgather_ring,
        4: algorithms.allgather_neighbours,
        5: algorithms.allgather_ring,
    },
    "alltoall": {
        1: algorithms.alltoall_pairs,
        2: algorithms.alltoall_pairs,
        3: algorithms.alltoall_bruck,
        4: algorithms.alltoall_pairs,
        5: algorithms.alltoall_pairs,
    },
    "barrier": {
        1: algorithms.barrier_along(algorithms.flat),
        3: algorithms.barrier_doubling,
        4: algorithms.barrier_dissemination,
        6: algorithms.barrier_along(algorithms.in_order_binomial),
    },
    # not in `coll/tuned`: these come from `coll/basic`
    "gatherv": {1: algorithms.gather_without_empty},
    "scatterv": {1: algorithms.scatter_without_empty},
    "scan": {1: algorithms.scan_linear},
    "exscan": {1: algorithms.scan_linear},
}


@cache
def _lines(table: str) -> tuple[tuple[float, tuple[tuple[float, int], ...]], ...]:
    lines = []
    for words in map(str.split, _TABLES[table].strip().splitlines()):
        pairs = [word.split(":") if ":" in word else ("inf", word) for word in words[1:]]
        limit = float("inf") if words[0] == "-" else float(words[0])
        lines.append((limit, tuple((float(size), int(number)) for size, number in pairs)))
    return tuple(lines)


def _size_bytes(call: Collective) -> int:
    """The size that determines the algorithm."""
    whole = int(call.parts.sum()) * call.item_bytes
    if call.name == "reduce_scatter":
        return whole
    return whole // call.n_ranks if call.name == "allgatherv" else call.n_bytes


class OpenMPI:
    """Messages of Open MPI 4.1, and of 5.0 on one node or with one rank on each node."""

    def algorithm(self, call: Collective) -> int:
        """Number of the algorithm that the library chooses.

        Raises `DataError` if the collective is unknown.
        """
        if call.name not in ALGORITHMS:
            raise DataError(
                f"no algorithms of {call.name!r} are known; the known collectives are "
                f"{', '.join(sorted(ALGORITHMS))}"
            )
        table = call.name if call.commutes else f"{call.name}/ordered"
        table = table if table in _TABLES else call.name
        if table not in _TABLES:
            return 1
        sizes = next(sizes for limit, sizes in _lines(table) if call.n_ranks < limit)
        return next(number for limit, number in sizes if _size_bytes(call) < limit)

    def is_exchange(self, call: Collective) -> bool:
        """Whether each rank sends a message of the same size to each other rank."""
        if not call.is_blocking:
            return call.name in ("alltoall", "allgather") or (
                call.name == "allgatherv" and call.n_ranks > DENSE_PAIRS_MAX
            )
        return call.name == "alltoall" and self.algorithm(call) != 3

    def messages(self, call: Collective) -> Messages:
        """Messages of the call; empty if there are no bytes to send."""
        if call.n_ranks < 2 or (call.name != "barrier" and call.parts.sum() * call.item_bytes == 0):
            return Messages.of(call)
        number = self.algorithm(call)
        if not call.is_blocking:
            return NONBLOCKING[call.name](call, self)
        return ALGORITHMS[call.name][number](call, self)


class OpenMPI5(OpenMPI):
    """Messages of Open MPI 5.0."""

    def messages(self, call: Collective) -> Messages:
        """Messages of the call, by ``coll/han`` if it applies; empty if there are no bytes to send."""
        has_bytes = call.name == "barrier" or call.parts.sum() * call.item_bytes > 0
        by_node = messages(call, self) if call.n_ranks > 1 and has_bytes else None
        return super().messages(call) if by_node is None else by_node
