"""Orders, which choose the next job of the queue, and the state that they can read.

This state is the present use of the machine's nodes, and the expected ends of the running jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mpicoloc.batch.inputs import Machine
from mpicoloc.core.profile import Bools, Floats, Ints
from mpicoloc.errors import UsageError


class Columns:
    """A table of several columns whose rows are inserted and removed one by one.

    Parameters
    ----------
    dtypes : mapping of str to dtype
        Type of each column.

    Attributes
    ----------
    n_removed : int
        Number of rows removed so far.
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
        """Insert a row before the one at `place`."""
        n = self._n
        for name, column in self._columns.items():
            if n == len(column):
                column = self._columns[name] = np.concatenate((column, np.empty_like(column)))
            column[place + 1 : n + 1] = column[place:n]
            column[place] = row[name]
        self._n += 1

    def append(self, **row: float) -> None:
        """Add a row after all others."""
        self.insert(self._n, **row)

    def remove(self, place: int) -> None:
        """Remove a row."""
        n = self._n
        for column in self._columns.values():
            column[place : n - 1] = column[place + 1 : n]
        self._n -= 1
        self.n_removed += 1


class Releases(Columns):
    """Running jobs in order of their expected ends; columns: end in s, job, number of nodes it will free."""

    def __init__(self) -> None:
        super().__init__({"end_s": np.float64, "job": np.int64, "n_nodes": np.int64})

    def begin(self, end_s: float, job: int, n_nodes: int) -> None:
        """Add a job that begins, after jobs with the same expected end."""
        place = int(np.searchsorted(self["end_s"], end_s, side="right"))
        self.insert(place, end_s=end_s, job=job, n_nodes=n_nodes)

    def end(self, end_s: float, job: int) -> None:
        """Remove a job that has ended."""
        low, high = (int(np.searchsorted(self["end_s"], end_s, side=side)) for side in ("left", "right"))
        self.remove(low + int(np.flatnonzero(self["job"][low:high] == job)[0]))


Uses = NDArray[np.uint8]
FREE = 0
"""Use of a node without a job; each allocation defines the meaning of other numbers."""

Nodes = tuple[Ints, int | Uses]
"""Nodes of a job in ascending order, and their use: one number for all nodes, or one for each node."""


@dataclass(frozen=True)
class Allocation:
    """A rule that chooses the nodes of a job.

    Parameters
    ----------
    name : str
    choose : callable
        ``choose(machine, uses, n_nodes)`` returns nodes for a job of that size, given the uses of the
        machine's nodes, or None if the job must wait. It has no side effects.
    is_bound_by_number : bool
        Whether any `n_nodes` free nodes will do, so that a job can begin as soon as that many are free.
    can : callable, optional
        ``can(machine, uses, sizes)`` tells for each size whether `choose` would find nodes, without choosing
        any.
    """

    name: str
    choose: Callable[[Machine, Uses, int], Nodes | None]
    is_bound_by_number: bool
    can: Callable[[Machine, Uses, Ints], Bools] | None = None

    def finds(self, machine: Machine, uses: Uses, sizes: Ints) -> Bools:
        """Whether `choose` finds nodes for each size."""
        if self.can is not None:
            return self.can(machine, uses, sizes)
        different, number = np.unique(sizes, return_inverse=True)
        found = np.array([self.choose(machine, uses, size) is not None for size in different.tolist()], bool)
        return np.asarray(found[number.ravel()])


@dataclass(frozen=True)
class Reservation:
    """Latest start of the queue's first job if the estimates of the running jobs hold.

    Parameters
    ----------
    start_s : float
    n_spare : int
        Number of nodes that are free at that time in addition to the nodes of the job.
    """

    start_s: float
    n_spare: int


class View:
    """The state of a simulated batch system. Orders and allocations must not change it.

    Parameters
    ----------
    machine : Machine
    allocation : Allocation

    Attributes
    ----------
    queue : Columns
        Waiting jobs in order of arrival; times in s.
    releases : Releases
        Running jobs.
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
        """Clear caches that depend on the nodes in use; called by the engine."""
        self._chosen.clear()
        self._leaving_room.clear()
        self._refused = None
        if is_release:
            self._reserved = None

    def nodes_for(self, n_nodes: int) -> Nodes | None:
        """Nodes on which a job of this size can begin now, or None."""
        if n_nodes > self.n_free:
            return None
        if n_nodes not in self._chosen:
            chosen = self.allocation.choose(self.machine, self.uses, n_nodes)
            if chosen is None and self.n_free == self.machine.n_nodes:
                # A job that the allocation cannot place even on an empty machine would wait for ever.
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
        """`can_start` for many places of the queue, for allocations that are not bound by number."""
        sizes = self.queue["n_nodes"][places]
        if self.n_free == self.machine.n_nodes:
            return np.asarray(sizes <= self.n_free)
        return self.allocation.finds(self.machine, self.uses, sizes) & (sizes <= self.n_free)

    def reservation(self, place: int) -> Reservation:
        """Reservation of a job that cannot begin now, by the expected ends of running jobs."""
        n_nodes, job = int(self.queue["n_nodes"][place]), int(self.queue["job"][place])
        if self.allocation.is_bound_by_number:
            return self._by_number(n_nodes)
        if self._reserved is None or self._reserved[0] != job:
            self._reserved = job, self._by_choice(n_nodes)
            self._leaving_room.clear()
        return self._reserved[1]

    def refuse(self, first: int) -> None:
        """Record that no queued job can begin before the job at `first` until the nodes in use change.

        The mere passing of time changes nothing about this: a job that would end after the reservation if it
        began now would end even later if it began later.
        """
        self._refused = int(self.queue["job"][first]), self.queue.n_removed, len(self.queue)

    def n_refused(self, first: int) -> int:
        """Number of jobs at the head of the queue that `refuse` has excluded."""
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
        """Reservation by bisection: if a job finds nodes, it also does after more jobs have ended."""
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
        """Whether the job at `place` can outlast the reservation of the job at `first` without delaying it.

        Only for allocations that are not bound by the number of nodes.
        """
        sizes = self.queue["n_nodes"]
        size = int(sizes[place])
        if size not in self._leaving_room:
            nodes = self.nodes_for(size)
            self._leaving_room[size] = self._can_start_at(int(sizes[first]), reservation.start_s, nodes)
        return self._leaving_room[size]


Order = Callable[[View], int | None]
"""Returns the place in the queue of the job to begin now, or None if no job can begin.

The engine begins the job and calls the order again, until the order returns None.
"""


MAX_AGE_S = 7 * 86400.0
"""Wait after which the age of a job reaches its maximum, 1."""


def conservative(view: View) -> int | None:
    """Conservative backfilling: the queue's first job whose reservation begins now and that finds nodes.

    Notes
    -----
    Mu'alem and Feitelson 2001, section 2.2. All reservations are computed again at each event, in the order
    of the queue. They consider only the number of nodes.
    """
    times_s, free = _profile(view)
    sizes, estimates_s = view.queue["n_nodes"], view.queue["estimate_s"]
    smallest_behind = np.minimum.accumulate(sizes[::-1])[::-1]
    for place in range(len(sizes)):
        if free[0] < smallest_behind[place]:
            return None
        n_nodes, estimate_s = int(sizes[place]), float(estimates_s[place])
        start_s = _earliest_s(times_s, free, n_nodes, estimate_s)
        if start_s <= view.now_s and view.can_start(place):
            return place
        times_s, free = _reserved(times_s, free, n_nodes, start_s, start_s + estimate_s)
    return None


def _profile(view: View) -> tuple[Floats, Ints]:
    """The expected profile: times from now on, and the number of nodes that are free from each time on."""
    end_s = np.maximum(view.releases["end_s"], view.now_s)
    times_s = np.concatenate(([view.now_s], end_s))
    free = view.n_free + np.concatenate(([0], np.cumsum(view.releases["n_nodes"])))
    is_last = np.append(np.diff(times_s) > 0, True)
    return times_s[is_last], free[is_last].astype(np.int64)


def _earliest_s(times_s: Floats, free: Ints, n_nodes: int, duration_s: float) -> float:
    """First time from which `n_nodes` nodes stay free for `duration_s`."""
    ok = free >= n_nodes
    short = np.append(np.flatnonzero(~ok), len(ok))
    until_s = np.append(times_s, np.inf)[short[np.searchsorted(short, np.arange(len(ok)))]]
    return float(times_s[np.argmax(ok & (until_s - times_s >= duration_s))])


def _reserved(times_s: Floats, free: Ints, n_nodes: int, start_s: float, end_s: float) -> tuple[Floats, Ints]:
    """The profile after reserving `n_nodes` nodes between two times."""
    for time_s in (start_s, end_s):
        i = int(np.searchsorted(times_s, time_s))
        if i == len(times_s) or times_s[i] != time_s:
            times_s, free = np.insert(times_s, i, time_s), np.insert(free, i, free[i - 1])
    free = free.copy()
    free[np.searchsorted(times_s, start_s) : np.searchsorted(times_s, end_s)] -= n_nodes
    return times_s, free


def easy(view: View) -> int | None:
    """EASY backfilling: the first job, else the next job that does not delay the first one's reservation.

    Notes
    -----
    Lifka 1995; Mu'alem and Feitelson 2001, section 2.1. If the allocation is not bound by number, the
    reservation begins at the first expected end after which the allocation finds nodes for the first job. A
    job that runs beyond that time can begin if the first job would still find nodes beside it.
    """
    return 0 if view.can_start(0) else backfilled(view, 0)


def backfilled(view: View, first: int) -> int | None:
    """Place of the first queued job that can begin before the job at `first`, which must wait."""
    if not view.allocation.is_bound_by_number:
        return _examined(view, first)
    n_nodes = view.queue["n_nodes"]
    fits = n_nodes <= view.n_free
    if not fits.any():
        return None
    reserved = view.reservation(first)
    fits &= (view.now_s + view.queue["estimate_s"] <= reserved.start_s) | (n_nodes <= reserved.n_spare)
    fits[first] = False
    place = int(fits.argmax())
    return place if fits[place] else None


def _examined(view: View, first: int) -> int | None:
    """The same job as `backfilled` chooses, but the allocation is asked only once for each job size."""
    n_before = view.n_refused(first)
    places = n_before + np.flatnonzero(view.queue["n_nodes"][n_before:] <= view.n_free)
    places = places[places != first]
    if len(places):
        places = places[view.can_start_which(places)]
    place = _first_harmless(view, first, places) if len(places) else None
    if place is None:
        view.refuse(first)
    return place


def _first_harmless(view: View, first: int, places: Ints) -> int | None:
    """The first of these places whose job does not delay the first job. Every job there would find nodes."""
    reserved = view.reservation(first)
    short = np.flatnonzero(view.now_s + view.queue["estimate_s"][places] <= reserved.start_s)
    n_long = int(short[0]) if len(short) else len(places)
    long = places[:n_long][::-1]
    # Test only the first job of each size: later ones of that size get the same answer.
    first_of_size = dict(zip(view.queue["n_nodes"][long].tolist(), long.tolist(), strict=True))
    for place in sorted(first_of_size.values()):
        if view.leaves_room(place, first, reserved):
            return place
    return int(places[n_long]) if len(short) else None


def fcfs(view: View) -> int | None:
    """First come, first served: the first job of the queue, if it finds nodes; no job overtakes another."""
    return 0 if view.can_start(0) else None


def priority(view: View) -> int | None:
    """The job of highest priority (age + size, both in [0, 1]), else a job that does not delay it."""
    age = np.minimum((view.now_s - view.queue["arrival_s"]) / MAX_AGE_S, 1)
    first = int(np.argmax(age + view.queue["n_nodes"] / view.machine.n_nodes))
    return first if view.can_start(first) else backfilled(view, first)


ORDERS: dict[str, Order] = {
    "fcfs": fcfs,
    "easy": easy,
    "conservative": conservative,
    "priority": priority,
}
"""Orders by name."""


def named(name: str) -> Order:
    """The order with this name.

    Raises `UsageError` if there is no such order.
    """
    if name not in ORDERS:
        raise UsageError(f"order {name!r} is unknown: give one of {', '.join(ORDERS)}")
    return ORDERS[name]
