"""Which calls of a trace are one collective: the trace does not tell the communicator.

All members of a communicator call its collectives in the same order. So a collective is found where the next
call of every member of a group, which is known to have called this function, is this function. Where several
groups fit, that is taken first which is known to have called it with as many bytes, then one that has called
it less often yet than it is known to have, and of these the one whose members were in the call at the same
time for longest.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import DataError

Array = NDArray[Any]


@dataclass(frozen=True)
class CollectiveCalls:
    """The collective calls of one rank, in order.

    Parameters
    ----------
    i_call : ndarray of int, shape (n,)
        Number of the call among all of the rank's.
    function : sequence of str
        As in a trace: ``MPI_Allreduce``.
    begin_ns, end_ns, n_bytes : ndarray of int, shape (n,)
    """

    i_call: Array
    function: Sequence[str]
    begin_ns: Array
    end_ns: Array
    n_bytes: Array


@dataclass(frozen=True)
class Instance:
    """One collective: its group, and which of each member's calls it is; arrays are in the group's order."""

    function: str
    group: int
    i_call: Array
    begin_ns: Array
    end_ns: Array
    n_bytes: Array


def align(
    calls: Sequence[CollectiveCalls],
    members: Mapping[int, Array],
    groups_of: Mapping[str, Sequence[int]],
    is_known_size: Callable[[Instance], bool] = lambda instance: True,
    n_known: Mapping[tuple[str, int], int] = MappingProxyType({}),
) -> list[Instance]:
    """All collectives of a job, each in the order of its members' calls.

    Raises `DataError` if some calls belong to no collective: with the first of them.
    """
    aligner = _Aligner(calls, members, groups_of, is_known_size, n_known)
    instances = aligner.run()
    for rank, own in enumerate(calls):
        if aligner.next[rank] < len(own.function):
            i = aligner.next[rank]
            raise DataError(
                f"call {int(own.i_call[i])} of rank {rank}, {own.function[i]}, is no collective of any group "
                "of ranks that the profile knows, whose other members call it too: the trace lacks calls, or "
                "was cut; run the job with --trace all"
            )
    return instances


class _Aligner:
    def __init__(
        self,
        calls: Sequence[CollectiveCalls],
        members: Mapping[int, Array],
        groups_of: Mapping[str, Sequence[int]],
        is_known_size: Callable[[Instance], bool],
        n_known: Mapping[tuple[str, int], int],
    ) -> None:
        self._is_known_size, self._n_left = is_known_size, dict(n_known)
        self.calls, self.members = calls, {group: ranks.tolist() for group, ranks in members.items()}
        self.next = [0] * len(calls)
        self._of_rank: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for function, groups in groups_of.items():
            for group in groups:
                for rank in self.members[group]:
                    self._of_rank[rank, function].append(group)
        self._ready: list[tuple[bool, bool, int, int, str]] = []

    def run(self) -> list[Instance]:
        """Take one collective after the other until none is whole."""
        for rank in range(len(self.calls)):
            self._look(rank)
        instances = []
        while self._ready:
            *key, group, function = heapq.heappop(self._ready)
            # Members may have gone on since it was noted.
            if not self._is_complete(group, function) or tuple(key) != self._key(group, function):
                continue
            instances.append(self._instance(group, function))
            if (function, group) in self._n_left:
                self._n_left[function, group] -= 1
            for rank in self.members[group]:
                self.next[rank] += 1
            for rank in self.members[group]:
                self._look(rank)
        return instances

    def _look(self, rank: int) -> None:
        """Note the collectives that the next call of a rank completes."""
        own, i = self.calls[rank], self.next[rank]
        if i >= len(own.function):
            return
        function = own.function[i]
        for group in self._of_rank[rank, function]:
            if self._is_complete(group, function):
                heapq.heappush(self._ready, (*self._key(group, function), group, function))

    def _is_complete(self, group: int, function: str) -> bool:
        for rank in self.members[group]:
            own, i = self.calls[rank], self.next[rank]
            if i >= len(own.function) or own.function[i] != function:
                return False
        return True

    def _key(self, group: int, function: str) -> tuple[bool, bool, int]:
        """What is least is taken first: of unknown size, too often, from the first end to the last begin."""
        instance = self._instance(group, function)
        apart_ns = int(instance.begin_ns.max()) - int(instance.end_ns.min())
        is_too_often = self._n_left.get((function, group), 1) < 1
        return not self._is_known_size(instance), is_too_often, apart_ns

    def _instance(self, group: int, function: str) -> Instance:
        """The collective that the next calls of a group's members are."""
        at = [(self.calls[rank], self.next[rank]) for rank in self.members[group]]
        columns = [
            np.array([getattr(own, name)[i] for own, i in at], np.int64)
            for name in ("i_call", "begin_ns", "end_ns", "n_bytes")
        ]
        return Instance(function, group, *columns)
