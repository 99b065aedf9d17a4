"""Collectives of Open MPI 5 on several nodes: its component ``coll/han`` over ``tuned`` and ``libnbc``.

Each consists of collectives within nodes (*low*: all ranks of a node) and among nodes (*up*: the ranks with
the same local number). Long buffers are sent in segments, of which the first may use another algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.network.traffic.collective import Collective, Library, Messages

Array = NDArray[Any]
_SEGMENT_BYTES = 65536


class Levels:
    """The ranks of a communicator by node and local number, and the messages of a call so far.

    Parameters
    ----------
    call : Collective
        With the node of each rank.
    library : Library
        Determines the messages of the collectives on each level.
    """

    def __init__(self, call: Collective, library: Library) -> None:
        nodes = np.asarray(call.nodes)
        _, first, number = np.unique(nodes, return_index=True, return_inverse=True)
        self.call, self.library = call, library
        self.nodes = [np.flatnonzero(number == i) for i in np.argsort(first)]
        self.sizes = np.array([len(node) for node in self.nodes])
        self.up_root = next(i for i, node in enumerate(self.nodes) if call.root in node)
        self.low_root = int(np.flatnonzero(self.nodes[self.up_root] == call.root)[0])
        self.messages = Messages.of(call)

    @property
    def is_even(self) -> bool:
        """Whether all nodes have the same number of ranks."""
        return bool(np.all(self.sizes == self.sizes[0]))

    def low(self, name: str, n_items: int, i_local: int = 0) -> None:
        """Add a collective in each node, whose root has this local number."""
        for node in self.nodes:
            self._add(node, name, n_items, i_local, True)

    def up(self, name: str, n_items: int, i_local: int = 0, root: int = 0, is_blocking: bool = True) -> None:
        """Add a collective among the ranks with this local number."""
        self._add(np.array([node[i_local] for node in self.nodes]), name, n_items, root, is_blocking)

    def _add(self, ranks: Array, name: str, n_items: int, root: int, is_blocking: bool) -> None:
        call = self.call.with_(
            name, n_ranks=len(ranks), n_items=n_items, root=root, is_blocking=is_blocking, nodes=None
        )
        self.messages.include(self.library.messages(call).renumbered(ranks, self.call.n_ranks))

    def segments(self) -> list[int]:
        """Items of each segment of the buffer."""
        item, n_items = self.call.item_bytes, self.call.n_items
        size = n_items
        if item <= _SEGMENT_BYTES < item * n_items:
            size = _SEGMENT_BYTES // item + (_SEGMENT_BYTES % item > item // 2)
        return [min(size, n_items - i) for i in range(0, n_items, size)]


def _bcast(levels: Levels) -> None:
    for i, n_items in enumerate(levels.segments()):
        levels.up("bcast", n_items, levels.low_root, levels.up_root, is_blocking=i == 0)
        levels.low("bcast", n_items, levels.low_root)


def _reduce(levels: Levels) -> None:
    for n_items in levels.segments():
        levels.low("reduce", n_items, levels.low_root)
        levels.up("reduce", n_items, levels.low_root, levels.up_root, is_blocking=False)


def _allreduce(levels: Levels) -> None:
    for n_items in levels.segments():
        levels.low("reduce", n_items)
        levels.up("reduce", n_items, is_blocking=False)
        levels.up("bcast", n_items, is_blocking=False)
        levels.low("bcast", n_items)


def _allgather(levels: Levels) -> None:
    n_items = levels.call.n_items
    levels.low("gather", n_items)
    levels.up("allgather", n_items * len(levels.nodes[0]))
    levels.low("bcast", n_items * levels.call.n_ranks)


def _gather(levels: Levels) -> None:
    n_items = levels.call.n_items
    levels.low("gather", n_items, levels.low_root)
    levels.up("gather", n_items * len(levels.nodes[0]), levels.low_root, levels.up_root)


def _scatter(levels: Levels) -> None:
    n_items = levels.call.n_items
    levels.up("scatter", n_items * len(levels.nodes[0]), levels.low_root, levels.up_root)
    levels.low("scatter", n_items, levels.low_root)


def _barrier(levels: Levels) -> None:
    levels.low("barrier", 0)
    levels.up("barrier", 0)
    levels.low("barrier", 0)


_ALGORITHMS: Mapping[str, Callable[[Levels], None]] = {
    "bcast": _bcast,
    "reduce": _reduce,
    "allreduce": _allreduce,
    "allgather": _allgather,
    "gather": _gather,
    "scatter": _scatter,
    "barrier": _barrier,
}
_ON_UNEVEN_NODES = ("allreduce", "barrier")


def messages(call: Collective, library: Library) -> Messages | None:
    """Messages of a call; None if the component leaves it to others."""
    if call.nodes is None or not call.is_blocking or call.name not in _ALGORITHMS or not call.commutes:
        return None
    levels = Levels(call, library)
    if len(levels.nodes) < 2 or levels.sizes.max() < 2:
        return None
    if not levels.is_even and call.name not in _ON_UNEVEN_NODES:
        return None
    _ALGORITHMS[call.name](levels)
    return levels.messages
