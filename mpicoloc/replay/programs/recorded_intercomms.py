"""Collectives of a trace between two groups of ranks, as operations of both groups' ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.tables import Table, text
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import intercommunicator
from mpicoloc.network.traffic.collective import Collective, Library, Messages
from mpicoloc.network.traffic.intercommunicator import IntercommSide
from mpicoloc.network.traffic.openmpi import OpenMPI
from mpicoloc.replay.programs.alignment import Instance
from mpicoloc.replay.programs.builder import Program
from mpicoloc.replay.programs.collectives import blocks

Array = NDArray[Any]
Pair = tuple[int, int]
_ROOTED = ("bcast", "reduce", "gather", "scatter")
_UNEVEN = ("allgatherv", "reduce_scatter")


def pairs_of(rows: Table, members: Mapping[int, Array]) -> dict[int, Pair]:
    """Pairs of groups that had collectives with each other, each under a number that no group has."""
    told = {(int(row["group"]), int(row["to_group"])) for row in rows if int(row["to_group"])}
    found = {(min(pair), max(pair)) for pair in told if members.keys() >= set(pair)}
    first = max(members, default=0) + 1
    return {first + i: pair for i, pair in enumerate(sorted(found))}


class IntercommBlocks:
    """Operations of collectives between two groups.

    Parameters
    ----------
    rows : Table
        The profile's ``collectives``: each group's half.
    pairs : mapping of int to (int, int)
        See `pairs_of`.
    members : mapping of int to ndarray of int
        Ranks of each group.
    library : Library
        Of the recorded run.
    hosts : ndarray of int, shape (n_ranks,)
        Host of each rank.
    """

    def __init__(
        self,
        rows: Table,
        pairs: Mapping[int, Pair],
        members: Mapping[int, Array],
        library: Library,
        hosts: Array,
    ) -> None:
        self.pairs, self._members, self._library, self._hosts = pairs, members, library, hosts
        is_open_mpi = isinstance(library, OpenMPI)
        self._algorithms = intercommunicator.OPEN_MPI if is_open_mpi else intercommunicator.MPICH
        self._halves: dict[tuple[str, int, int], list[Any]] = {}
        for row in rows:
            if int(row["to_group"]):
                key = (text(row["call"]), int(row["group"]), int(row["to_group"]))
                self._halves.setdefault(key, []).append(row)
        self._moved: defaultdict[tuple[str, Pair], list[int]] = defaultdict(list)

    def add(self, instance: Instance, name: str) -> None:
        """Add every call before the first is made into operations: sizes are known of all calls together."""
        way = self._directions(instance, name)[0]
        self._moved[instance.function, way].append(int(instance.n_bytes.sum()))

    def of(self, instance: Instance, name: str, comm: int) -> Sequence[Program]:
        """Operations of each member, those of the pair's first group first.

        Raises `DataError` if the messages of such a collective are not known.
        """
        if name not in self._algorithms:
            raise DataError(
                f"call {int(instance.i_call[0])} of rank {int(self._both(instance)[0])}, {instance.function} "
                "between two groups of ranks, cannot be replayed, as its messages are not known: record a "
                "run without it"
            )
        halves = [self._half(instance, name, pair) for pair in self._directions(instance, name)]
        n_ranks = len(self._hosts)
        merged = Messages(n_ranks)
        # What both groups do at the same time stays side by side.
        for phase in zip_longest(*halves):
            for messages in phase:
                if messages is not None:
                    merged.include(messages)
        made = blocks(merged, np.arange(n_ranks), comm)
        return [made[rank] for rank in self._both(instance).tolist()]

    def _both(self, instance: Instance) -> Array:
        return self._members[instance.group]

    def _directions(self, instance: Instance, name: str) -> list[Pair]:
        """Local and remote group of each half that has messages; the root is in the remote group."""
        first, second = self.pairs[instance.group]
        if name not in _ROOTED:
            return [(first, second), (second, first)]
        moved = np.split(instance.n_bytes, [len(self._members[first])])
        n_moved = [int((side > 0).sum()) for side in moved]
        is_first_local = n_moved[0] > n_moved[1] or (
            n_moved[0] == n_moved[1] and (instance.function, first, second) in self._halves
        )
        return [(first, second) if is_first_local else (second, first)]

    def _half(self, instance: Instance, name: str, pair: Pair) -> list[Messages]:
        local, remote = (self._members[group] for group in pair)
        rows = self._halves.get((instance.function, *pair), [])
        n = sum(int(row["n"]) for row in rows if int(row["own_rank"]) == 0)
        if name != "barrier" and not n:
            return []
        item_bytes = max((int(row["item_bytes"]) for row in rows), default=1) or 1
        part = self._relative_size(instance, name) / max(n, 1)
        counts = None
        if name in _UNEVEN:
            own = np.zeros(len(local))
            for row in rows:
                own[int(row["own_rank"])] += int(row["own_bytes"])
            counts = np.rint(own * part / item_bytes).astype(np.int64)
        whole = sum(int(row["bytes"]) for row in rows if int(row["own_rank"]) == 0)
        n_items = round(whole * part / item_bytes)
        call = Collective(name, len(local), n_items, item_bytes, self._root(instance, pair), counts)
        side = IntercommSide(call, local, remote, len(self._hosts), np.asarray(self._hosts))
        if name != "barrier" and not call.parts.sum():
            return []
        return self._algorithms[name](side, self._library)

    def _relative_size(self, instance: Instance, name: str) -> float:
        """Size of this call in that of the mean call, by the bytes that all of its ranks moved."""
        moved = self._moved[instance.function, self._directions(instance, name)[0]]
        mean = sum(moved) / len(moved)
        return float(instance.n_bytes.sum() / mean) if mean else 1.0

    def _root(self, instance: Instance, pair: Pair) -> int:
        """The only rank of the remote group that moved anything."""
        n_first = len(self._members[self.pairs[instance.group][0]])
        is_second = pair[1] == self.pairs[instance.group][1]
        remote = instance.n_bytes[n_first:] if is_second else instance.n_bytes[:n_first]
        return int(remote.argmax())
