"""Algorithms that MPICH 4 chooses, and its node-aware collectives: device ch4, default settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mpicoloc.core.profile import Array
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import algorithms
from mpicoloc.network.traffic.algorithms import down, up
from mpicoloc.network.traffic.collective import (
    DENSE_PAIRS_MAX,
    Algorithm,
    Collective,
    Messages,
    Rounds,
    collected,
    power_of_two_within,
)

SHORT_BCAST_BYTES, LONG_BYTES = 12288, 524288
"""A broadcast of at most the first size is short. A broadcast above the second size is long, and so is
another collective of at least that size."""

ALGORITHMS: Mapping[str, Algorithm] = {
    "bcast binomial": down(algorithms.in_order_binomial),
    "bcast scatter, doubling": algorithms.bcast_scatter_doubling,
    "bcast scatter, ring": algorithms.bcast_scatter_ring,
    "reduce binomial": up(algorithms.in_order_binomial),
    "reduce halving": algorithms.reduce_halving_blocks,
    "allreduce doubling": algorithms.allreduce_doubling,
    "allreduce halving": algorithms.allreduce_halving_blocks,
    "allgather doubling": algorithms.allgather_doubling,
    "allgather bruck": algorithms.allgather_bruck,
    "allgather ring": algorithms.allgather_ring,
    "alltoall bruck": algorithms.alltoall_bruck,
    "alltoall pairs": algorithms.alltoall_pairs,
    "reduce_scatter halving": algorithms.reduce_scatter_halving,
    "reduce_scatter pairs": algorithms.reduce_scatter_pairs,
    "gather": algorithms.gather_binomial,
    "scatter": algorithms.scatter_binomial,
    "gatherv": algorithms.gather_without_empty,
    "scatterv": algorithms.scatter_without_empty,
    "scan": algorithms.scan_doubling,
    "exscan": algorithms.scan_doubling,
    "barrier": algorithms.barrier_dissemination,
}


def _bcast_algorithm(call: Collective) -> str:
    size_bytes = call.n_bytes if call.is_blocking else call.n_bytes + 1
    if call.n_ranks < 8 or size_bytes <= SHORT_BCAST_BYTES:
        return "bcast binomial"
    is_power = call.n_ranks == power_of_two_within(call.n_ranks)
    return "bcast scatter, doubling" if is_power and size_bytes <= LONG_BYTES else "bcast scatter, ring"


def _reduction_algorithm(call: Collective) -> str:
    is_short = call.n_bytes <= (8 if call.name == "allreduce" and call.is_blocking else 2048)
    if is_short or call.n_items < power_of_two_within(call.n_ranks):
        return "reduce binomial" if call.name == "reduce" else "allreduce doubling"
    return f"{call.name} halving"


def _allgather_algorithm(call: Collective) -> str:
    whole_bytes = int(call.parts.sum()) * call.item_bytes
    if call.n_ranks == power_of_two_within(call.n_ranks):
        return "allgather doubling" if whole_bytes < LONG_BYTES else "allgather ring"
    return "allgather bruck" if whole_bytes < 81920 else "allgather ring"


def _alltoall_algorithm(call: Collective) -> str:
    """The documented limit is 8 ranks, but MPICH 4.0 compares wrongly in rules that also test the size."""
    is_short = call.n_bytes <= (256 if call.is_blocking else 2048)
    return "alltoall bruck" if call.n_ranks > 8 and is_short else "alltoall pairs"


def _reduce_scatter_algorithm(call: Collective) -> str:
    is_long = call.parts.sum() * call.item_bytes >= LONG_BYTES
    return "reduce_scatter pairs" if is_long else "reduce_scatter halving"


_CHOICES: Mapping[str, Callable[[Collective], str]] = {
    "bcast": _bcast_algorithm,
    "alltoall": _alltoall_algorithm,
    **dict.fromkeys(("reduce", "allreduce"), _reduction_algorithm),
    **dict.fromkeys(("allgather", "allgatherv"), _allgather_algorithm),
    **dict.fromkeys(("reduce_scatter", "reduce_scatter_block"), _reduce_scatter_algorithm),
}


class MPICH:
    """Messages of MPICH 4.

    Notes
    -----
    In ``bcast``, ``reduce`` and ``scan``, and in blocking ``allreduce`` and ``barrier``, the first rank of a
    node acts for the node. The ranks of a node use shared memory, which is represented as messages to and
    from the first rank.
    """

    def algorithm(self, call: Collective) -> str:
        """Name of the algorithm that the library chooses among ranks on different nodes.

        Raises `DataError` if the collective is unknown.
        """
        if call.name in _CHOICES:
            return _CHOICES[call.name](call)
        if call.name not in ALGORITHMS:
            raise DataError(f"no algorithms of {call.name!r} are known for MPICH")
        return call.name

    def is_exchange(self, call: Collective) -> bool:
        """Whether each rank sends a message of the same size to each other rank."""
        has_equal_parts = call.counts is None or call.n_ranks > DENSE_PAIRS_MAX
        return has_equal_parts and self.algorithm(call).endswith("pairs")

    def messages(self, call: Collective) -> Messages:
        """Messages of the call; empty if there are no bytes to send."""
        if call.n_ranks < 2 or (call.name != "barrier" and call.parts.sum() * call.item_bytes == 0):
            return Messages.of(call)
        by_node = _BY_NODE[call.is_blocking].get(call.name)
        if by_node and call.nodes is not None and len(set(call.nodes.tolist())) < call.n_ranks:
            nodes = _Nodes(call.nodes)
            if nodes.act_for_ranks(call):
                return collected(call, by_node(self, call, nodes))
        algorithm = self.algorithm(call)
        if "scatter," in algorithm:  # these algorithms split the buffer at any byte, not only between items
            call = call.with_(call.name, n_items=call.n_bytes, item_bytes=1)
        return ALGORITHMS[algorithm](call, self)


class _Nodes:
    """Ranks by node; nodes are numbered in the order of their first ranks."""

    def __init__(self, nodes: Array) -> None:
        _, first, number = np.unique(nodes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self.leaders = first[order]
        self.node = place[number]
        self.others = np.setdiff1d(np.arange(len(nodes)), self.leaders)

    def up(self, n_items: int) -> tuple[Array, Array, int]:
        """Messages of every other rank to the first rank of its node."""
        return self.others, self.leaders[self.node[self.others]], n_items

    def down(self, n_items: int) -> tuple[Array, Array, int]:
        """Messages of the first rank of each node to its other ranks."""
        return self.leaders[self.node[self.others]], self.others, n_items

    def between(self, library: MPICH, call: Collective, name: str, root: int = 0) -> Messages:
        """Messages of a collective among the first ranks of all nodes."""
        inner = call.with_(name, n_ranks=len(self.leaders), root=root, nodes=None)
        return library.messages(inner).renumbered(self.leaders, call.n_ranks)

    def act_for_ranks(self, call: Collective) -> bool:
        """Whether the first ranks of the nodes act for the others in this call."""
        if call.name == "bcast":
            p = call.n_ranks
            limit = LONG_BYTES if p == power_of_two_within(p) else SHORT_BCAST_BYTES
            return not (call.is_blocking and p >= 8 and call.n_bytes >= limit)
        if call.name in ("reduce", "allreduce"):
            return call.commutes
        # in a scan, ranks of each node must be consecutive
        return call.name != "scan" or bool(np.all(np.diff(self.node) >= 0))


def _bcast(library: MPICH, call: Collective, nodes: _Nodes) -> Rounds:
    i_node = int(nodes.node[call.root])
    yield call.root, nodes.leaders[i_node], call.n_items
    yield nodes.between(library, call, "bcast", i_node)
    yield nodes.down(call.n_items)


def _allreduce(library: MPICH, call: Collective, nodes: _Nodes) -> Rounds:
    yield nodes.up(call.n_items)
    yield nodes.between(library, call, "allreduce")
    yield nodes.down(call.n_items)


def _barrier(library: MPICH, call: Collective, nodes: _Nodes) -> Rounds:
    yield nodes.up(0)
    yield nodes.between(library, call, "barrier")
    yield nodes.down(0)


def _reduce(library: MPICH, call: Collective, nodes: _Nodes) -> Rounds:
    """Reduce to the first rank of the root's node, or of node 0 in a blocking call with a long buffer."""
    i_node = int(nodes.node[call.root]) if call.n_bytes <= 2048 or not call.is_blocking else 0
    yield nodes.up(call.n_items)
    yield nodes.between(library, call, "reduce", i_node)
    yield nodes.leaders[i_node], call.root, call.n_items


def _scan(library: MPICH, call: Collective, nodes: _Nodes) -> Rounds:
    """Scan within nodes, then among nodes; the sum of each node goes to the next."""
    yield nodes.up(call.n_items)
    yield nodes.between(library, call, "scan")
    yield nodes.leaders[:-1], nodes.leaders[1:], call.n_items
    yield nodes.down(call.n_items)


_ALWAYS_BY_NODE = {"bcast": _bcast, "reduce": _reduce, "scan": _scan}
_BY_NODE = {
    True: {**_ALWAYS_BY_NODE, "allreduce": _allreduce, "barrier": _barrier},
    False: _ALWAYS_BY_NODE,
}
"""Collectives in which the first rank of a node acts for the node, by whether the call blocks."""
