"""Which algorithm MPICH 4 takes, and how the ranks of a node act as one: device ch4, default settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import DataError
from mpicoloc.network.traffic import reductions, rooted, trees, unrooted
from mpicoloc.network.traffic.rooted import Algorithm, down, up
from mpicoloc.network.traffic.schedule import MANY, Collective, Messages, power_within

Array = NDArray[Any]
SHORT, LONG = 12288, 524288
"""Bytes up to which a broadcast is short, and from which one is long; the latter of others too."""

_ALGORITHMS: Mapping[str, Algorithm] = {
    "bcast binomial": down(trees.in_order_binomial),
    "bcast scatter, doubling": rooted.bcast_scatter_doubling,
    "bcast scatter, ring": rooted.bcast_scatter_ring,
    "reduce binomial": up(trees.in_order_binomial),
    "reduce halving": reductions.reduce_halving_blocks,
    "allreduce doubling": reductions.allreduce_doubling,
    "allreduce halving": reductions.allreduce_halving_blocks,
    "allgather doubling": unrooted.allgather_doubling,
    "allgather bruck": unrooted.allgather_bruck,
    "allgather ring": unrooted.allgather_ring,
    "alltoall bruck": unrooted.alltoall_bruck,
    "alltoall pairs": unrooted.alltoall_pairs,
    "reduce_scatter halving": reductions.reduce_scatter_halving,
    "reduce_scatter pairs": reductions.reduce_scatter_pairs,
    "gather": rooted.gather_binomial,
    "scatter": rooted.scatter_binomial,
    "gatherv": rooted.gather_without_empty,
    "scatterv": rooted.scatter_without_empty,
    "scan": unrooted.scan_doubling,
    "exscan": unrooted.scan_doubling,
    "barrier": unrooted.barrier_dissemination,
}


def _of_bcast(call: Collective) -> str:
    size_bytes = call.n_bytes if call.blocks else call.n_bytes + 1
    if call.n_ranks < 8 or size_bytes <= SHORT:
        return "bcast binomial"
    is_power = call.n_ranks == power_within(call.n_ranks)
    return "bcast scatter, doubling" if is_power and size_bytes <= LONG else "bcast scatter, ring"


def _of_reduction(call: Collective) -> str:
    is_short = call.n_bytes <= (8 if call.name == "allreduce" and call.blocks else 2048)
    if is_short or call.n_items < power_within(call.n_ranks):
        return "reduce binomial" if call.name == "reduce" else "allreduce doubling"
    return f"{call.name} halving"


def _of_allgather(call: Collective) -> str:
    whole_bytes = int(call.parts.sum()) * call.item_bytes
    if call.n_ranks == power_within(call.n_ranks):
        return "allgather doubling" if whole_bytes < LONG else "allgather ring"
    return "allgather bruck" if whole_bytes < 81920 else "allgather ring"


def _of_alltoall(call: Collective) -> str:
    """The rule says "fewer than 8", but release 4.0 compares wrongly where it depends on buffers as well."""
    is_short = call.n_bytes <= (256 if call.blocks else 2048)
    return "alltoall bruck" if call.n_ranks > 8 and is_short else "alltoall pairs"


class MPICH:
    """Messages of MPICH 4.

    Notes
    -----
    In ``bcast``, ``reduce`` and ``scan``, and in ``allreduce`` and ``barrier`` that block, the first rank of
    a node acts for all of it. What the ranks of a node tell each other in shared memory is here told as
    messages with that rank.
    """

    def algorithm(self, call: Collective) -> str:
        """Name of the algorithm that the library takes among ranks on different nodes.

        Raises
        ------
        DataError
            If the collective is not known.
        """
        if call.name == "bcast":
            return _of_bcast(call)
        if call.name in ("reduce", "allreduce"):
            return _of_reduction(call)
        if call.name in ("allgather", "allgatherv"):
            return _of_allgather(call)
        if call.name == "alltoall":
            return _of_alltoall(call)
        if call.name in ("reduce_scatter", "reduce_scatter_block"):
            is_long = call.parts.sum() * call.item_bytes >= LONG
            return "reduce_scatter pairs" if is_long else "reduce_scatter halving"
        if call.name not in _ALGORITHMS:
            raise DataError(f"no algorithms of {call.name!r} in MPICH are known")
        return call.name

    def is_exchange(self, call: Collective) -> bool:
        """Whether each rank sends each other one a message, and all as many bytes."""
        has_equal_parts = call.counts is None or call.n_ranks > MANY
        return has_equal_parts and self.algorithm(call).endswith("pairs")

    def messages(self, call: Collective) -> Messages:
        """Messages of the call; none if there is nothing to move."""
        if call.n_ranks < 2 or (call.name != "barrier" and call.parts.sum() * call.item_bytes == 0):
            return Messages.of(call)
        by_node = _BY_NODE[call.blocks].get(call.name)
        if by_node and call.nodes is not None and len(set(call.nodes.tolist())) < call.n_ranks:
            messages = by_node(self, call, _Nodes(call.nodes))
            if messages is not None:
                return messages
        algorithm = self.algorithm(call)
        if "scatter," in algorithm:  # cuts bytes, not items
            call = call.but(call.name, n_items=call.n_bytes, item_bytes=1)
        return _ALGORITHMS[algorithm](call, self)


class _Nodes:
    """Ranks by node, nodes numbered as their first ranks come."""

    def __init__(self, nodes: Array) -> None:
        _, first, number = np.unique(nodes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self.leaders = first[order]
        self.node = place[number]
        self.others = np.setdiff1d(np.arange(len(nodes)), self.leaders)

    @property
    def is_consecutive(self) -> bool:
        """Whether the ranks of each node follow each other."""
        return bool(np.all(np.diff(self.node) >= 0))

    def up(self, messages: Messages, n_items: int) -> None:
        """Every rank tells the first of its node."""
        messages.add(self.others, self.leaders[self.node[self.others]], n_items)

    def down(self, messages: Messages, n_items: int) -> None:
        """The first of each node tells the others."""
        messages.add(self.leaders[self.node[self.others]], self.others, n_items)

    def between(self, library: MPICH, call: Collective, name: str, root: int = 0) -> Messages:
        """The collective among the first ranks of all nodes."""
        inner = call.but(name, n_ranks=len(self.leaders), root=root, nodes=None)
        return library.messages(inner).among(self.leaders, call.n_ranks)


def _bcast(library: MPICH, call: Collective, nodes: _Nodes) -> Messages | None:
    p = call.n_ranks
    limit = LONG if p == power_within(p) else SHORT
    if call.blocks and p >= 8 and call.n_bytes >= limit:
        return None
    i_node = int(nodes.node[call.root])
    messages = Messages.of(call)
    messages.add(call.root, nodes.leaders[i_node], call.n_items)
    messages.include(nodes.between(library, call, "bcast", i_node))
    nodes.down(messages, call.n_items)
    return messages


def _allreduce(library: MPICH, call: Collective, nodes: _Nodes) -> Messages | None:
    if not call.commutes:
        return None
    messages = Messages.of(call)
    nodes.up(messages, call.n_items)
    messages.include(nodes.between(library, call, "allreduce"))
    nodes.down(messages, call.n_items)
    return messages


def _reduce(library: MPICH, call: Collective, nodes: _Nodes) -> Messages | None:
    """To the first rank of the root's node; of a long buffer, if it blocks, to that of the first node."""
    if not call.commutes:
        return None
    i_node = int(nodes.node[call.root]) if call.n_bytes <= 2048 or not call.blocks else 0
    messages = Messages.of(call)
    nodes.up(messages, call.n_items)
    messages.include(nodes.between(library, call, "reduce", i_node))
    messages.add(nodes.leaders[i_node], call.root, call.n_items)
    return messages


def _barrier(library: MPICH, call: Collective, nodes: _Nodes) -> Messages | None:
    messages = Messages.of(call)
    nodes.up(messages, 0)
    messages.include(nodes.between(library, call, "barrier"))
    nodes.down(messages, 0)
    return messages


def _scan(library: MPICH, call: Collective, nodes: _Nodes) -> Messages | None:
    """Within nodes, among them, and each node's sum to the next."""
    if not nodes.is_consecutive:
        return None
    messages = Messages.of(call)
    nodes.up(messages, call.n_items)
    messages.include(nodes.between(library, call, "scan"))
    messages.add(nodes.leaders[:-1], nodes.leaders[1:], call.n_items)
    nodes.down(messages, call.n_items)
    return messages


_BY_NODE_TOO = {"bcast": _bcast, "reduce": _reduce, "scan": _scan}
_BY_NODE = {
    True: {**_BY_NODE_TOO, "allreduce": _allreduce, "barrier": _barrier},
    False: _BY_NODE_TOO,
}
"""By whether the call blocks."""
