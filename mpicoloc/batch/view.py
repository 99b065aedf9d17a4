"""What an order of the queue may know when it chooses the next job: the machine now, and as expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mpicoloc.batch.machine import Machine
from mpicoloc.core.profile import Bools, Ints


class Columns:
    """Rows of several columns which are inserted and removed one by one.

    Parameters
    ----------
    dtypes : mapping of str to dtype
        Of each column.

    Attributes
    ----------
    n_removed : int
        Rows that were taken out so far.
    """

    def __init__(self, dtypes: Mapping[str, DTypeLike]) -> None:
        self._columns = {name: np.empty(1024, dtype) for name, dtype in dtypes.items()}
        self._n = 0
        self.n_removed = 0

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, name: str) -> NDArray[Any]:
        """One column; valid until the next change."""
        return self._columns[name][: self._n]

    def insert(self, place: int, **row: float) -> None:
        """A row before that at `place`."""
        n = self._n
        for name, column in self._columns.items():
            if n == len(column):
                column = self._columns[name] = np.concatenate((column, np.empty_like(column)))
            column[place + 1 : n + 1] = column[place:n]
            column[place] = row[name]
        self._n += 1

    def append(self, **row: float) -> None:
        """A row behind all others."""
        self.insert(self._n, **row)

    def remove(self, place: int) -> None:
        """Take a row out."""
        n = self._n
        for column in self._columns.values():
            column[place : n - 1] = column[place + 1 : n]
        self._n -= 1
        self.n_removed += 1


class Releases(Columns):
    """Jobs that run, in order of the ends that the batch system expects: s, job, nodes that become free."""

    def __init__(self) -> None:
        super().__init__({"end_s": np.float64, "job": np.int64, "n_nodes": np.int64})

    def begin(self, end_s: float, job: int, n_nodes: int) -> None:
        """A job that begins, behind those with the same expected end."""
        place = int(np.searchsorted(self["end_s"], end_s, side="right"))
        self.insert(place, end_s=end_s, job=job, n_nodes=n_nodes)

    def end(self, end_s: float, job: int) -> None:
        """A job that ended."""
        low, high = (int(np.searchsorted(self["end_s"], end_s, side=side)) for side in ("left", "right"))
        self.remove(low + int(np.flatnonzero(self["job"][low:high] == job)[0]))


Uses = NDArray[np.uint8]
FREE = 0
"""Use of a node without a job; an allocation gives its own meaning to every other number."""

Nodes = tuple[Ints, int | Uses]
"""Nodes of a job in ascending order, and the use of all or each of them."""


@dataclass(frozen=True)
class Allocation:
    """How nodes are chosen.

    Parameters
    ----------
    name : str
    choose : callable
        ``choose(machine, uses, n_nodes)``: nodes for a job of that size while the machine's nodes have these
        uses, or None: the job must wait. It changes nothing.
    is_bound_by_number : bool
        Any `n_nodes` free nodes are good enough, so only their number decides whether a job can begin.
    can : callable, optional
        ``can(machine, uses, sizes)``: for which of many sizes `choose` finds nodes, without choosing them.
    """

    name: str
    choose: Callable[[Machine, Uses, int], Nodes | None]
    is_bound_by_number: bool
    can: Callable[[Machine, Uses, Ints], Bools] | None = None

    def finds(self, machine: Machine, uses: Uses, sizes: Ints) -> Bools:
        """For which sizes there are nodes."""
        if self.can is not None:
            return self.can(machine, uses, sizes)
        different, number = np.unique(sizes, return_inverse=True)
        found = np.array([self.choose(machine, uses, size) is not None for size in different.tolist()], bool)
        return np.asarray(found[number.ravel()])


@dataclass(frozen=True)
class Reservation:
    """When the first job of the queue can begin at the latest, if estimates hold.

    Parameters
    ----------
    start_s : float
    n_spare : int
        Nodes that are free then beside those of the job.
    """

    start_s: float
    n_spare: int


class View:
    """The state of a simulated batch system, which orders and allocations only read.

    Parameters
    ----------
    machine : Machine
    allocation : Allocation

    Attributes
    ----------
    queue : Columns
        Jobs that wait, in order of arrival; times in s.
    releases : Releases
        Jobs that run.
    """

    def __init__(self, machine: Machine, allocation: Allocation) -> None:
        self.machine, self.allocation = machine, allocation
        self.queue = Columns(
            {"job": np.int64, "n_nodes": np.int64, "estimate_s": np.float64, "arrival_s": np.float64}
        )
        self.releases = Releases()
        self.now_s = 0.0
        self.uses: Uses = np.zeros(machine.n_nodes, np.uint8)
        self.expected_end_s = np.full(machine.n_nodes, -np.inf)
        self.n_free = machine.n_nodes
        self._chosen: dict[int, Nodes | None] = {}
        self._leaving_room: dict[int, bool] = {}
        self._reserved: tuple[int, Reservation] | None = None
        self._refused: tuple[int, int, int] | None = None

    def take(self, job: int, nodes: Ints, use: int | Uses, expected_end_s: float) -> None:
        """Give free nodes to a job."""
        self.uses[nodes] = use
        self.expected_end_s[nodes] = expected_end_s
        self.n_free -= len(nodes)
        self.changed(is_release=False)
        self.releases.begin(expected_end_s, job, len(nodes))

    def free(self, job: int, nodes: Ints) -> None:
        """Free the nodes of a job that ends."""
        self.releases.end(float(self.expected_end_s[nodes[0]]), job)
        self.uses[nodes] = FREE
        self.expected_end_s[nodes] = -np.inf
        self.n_free += len(nodes)
        self.changed(is_release=True)

    def changed(self, *, is_release: bool) -> None:
        """Forget what depends on the nodes in use; the engine calls it."""
        self._chosen.clear()
        self._leaving_room.clear()
        self._refused = None
        if is_release:
            self._reserved = None

    def nodes_for(self, n_nodes: int) -> Nodes | None:
        """Nodes for a job of this size now, or None."""
        if n_nodes > self.n_free:
            return None
        if n_nodes not in self._chosen:
            chosen = self.allocation.choose(self.machine, self.uses, n_nodes)
            if chosen is None and self.n_free == self.machine.n_nodes:
                # A job that a policy cannot place on an empty machine would wait for ever.
                chosen = np.arange(n_nodes), 1
            self._chosen[n_nodes] = chosen
        return self._chosen[n_nodes]

    def can_start(self, place: int) -> bool:
        """Whether the job at a place of the queue finds nodes now."""
        n_nodes = int(self.queue["n_nodes"][place])
        if self.allocation.is_bound_by_number:
            return n_nodes <= self.n_free
        return self.nodes_for(n_nodes) is not None

    def can_start_which(self, places: Ints) -> Bools:
        """For which places of the queue `can_start` holds, where not only the number of nodes counts."""
        sizes = self.queue["n_nodes"][places]
        if self.n_free == self.machine.n_nodes:
            return np.asarray(sizes <= self.n_free)
        return self.allocation.finds(self.machine, self.uses, sizes) & (sizes <= self.n_free)

    def reservation(self, place: int) -> Reservation:
        """The earliest begin of a job that cannot begin now, by the expected ends of those that run."""
        n_nodes, job = int(self.queue["n_nodes"][place]), int(self.queue["job"][place])
        if self.allocation.is_bound_by_number:
            return self._by_number(n_nodes)
        if self._reserved is None or self._reserved[0] != job:
            self._reserved = job, self._by_choice(n_nodes)
            self._leaving_room.clear()
        return self._reserved[1]

    def refuse(self, first: int) -> None:
        """Note that no job of the queue may begin before the one at `first`, until nodes change hands.

        A job that would end too late for the reservation now would end even later if it began later.
        """
        self._refused = int(self.queue["job"][first]), self.queue.n_removed, len(self.queue)

    def n_refused(self, first: int) -> int:
        """Jobs at the begin of the queue of which `refuse` has noted that."""
        if self._refused is None or not len(self.queue):
            return 0
        job, n_removed, n = self._refused
        is_same = job == self.queue["job"][first] and n_removed == self.queue.n_removed
        return n if is_same else 0

    def _by_number(self, n_nodes: int) -> Reservation:
        end_s = self.releases["end_s"]
        free = self.n_free + np.cumsum(self.releases["n_nodes"])
        start_s = end_s[np.searchsorted(free, n_nodes)]
        n_then = int(free[np.searchsorted(end_s, start_s, side="right") - 1])
        return Reservation(max(float(start_s), self.now_s), n_then - n_nodes)

    def _by_choice(self, n_nodes: int) -> Reservation:
        """Bisection: a job that finds nodes keeps finding them as more jobs end."""
        end_s = self.releases["end_s"]
        free = self.n_free + np.cumsum(self.releases["n_nodes"])
        low, high = int(np.searchsorted(free, n_nodes)), len(end_s) - 1
        while low < high:
            middle = (low + high) // 2
            if self._can_start_at(n_nodes, float(end_s[middle])):
                high = middle
            else:
                low = middle + 1
        return Reservation(max(float(end_s[low]), self.now_s), 0)

    def _can_start_at(self, n_nodes: int, time_s: float, beside: Nodes | None = None) -> bool:
        uses = self.uses * (self.expected_end_s > time_s)
        if beside is not None:
            uses[beside[0]] = beside[1]
        found = self.allocation.finds(self.machine, uses, np.array([n_nodes]))
        return bool(found[0]) or not np.count_nonzero(uses)

    def leaves_room(self, place: int, first: int, reservation: Reservation) -> bool:
        """Whether the job at `place` may outlast the reservation of that at `first` without delaying it.

        Of allocations that are not bound by the number of nodes.
        """
        sizes = self.queue["n_nodes"]
        size = int(sizes[place])
        if size not in self._leaving_room:
            nodes = self.nodes_for(size)
            self._leaving_room[size] = self._can_start_at(int(sizes[first]), reservation.start_s, nodes)
        return self._leaving_room[size]


Order = Callable[[View], int | None]
"""Chooses the place in the queue of a job to begin now, or None: all others wait.

It is called again after each job that begins, until it returns None.
"""
