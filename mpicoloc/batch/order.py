"""Orders of the queue: which job begins next. One a file."""

from __future__ import annotations

import numpy as np

from mpicoloc.batch.view import Order, View
from mpicoloc.core.profile import Floats, Ints
from mpicoloc.errors import UsageError

MAX_AGE_S = 7 * 86400.0
"""A job that has waited as long has age 1."""


def conservative(view: View) -> int | None:
    """The first job in order of the queue whose reservation begins now, and that finds nodes.

    Notes
    -----
    Mu'alem and Feitelson 2001, section 2.2. All reservations are made anew at each event, in order of the
    queue and by the number of nodes alone.
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
    """Times from now on, and the nodes that are free from each time on."""
    end_s = np.maximum(view.releases["end_s"], view.now_s)
    times_s = np.concatenate(([view.now_s], end_s))
    free = view.n_free + np.concatenate(([0], np.cumsum(view.releases["n_nodes"])))
    is_last = np.append(np.diff(times_s) > 0, True)
    return times_s[is_last], free[is_last].astype(np.int64)


def _earliest_s(times_s: Floats, free: Ints, n_nodes: int, duration_s: float) -> float:
    """First time from which so many nodes stay free for so long."""
    ok = free >= n_nodes
    short = np.append(np.flatnonzero(~ok), len(ok))
    until_s = np.append(times_s, np.inf)[short[np.searchsorted(short, np.arange(len(ok)))]]
    return float(times_s[np.argmax(ok & (until_s - times_s >= duration_s))])


def _reserved(times_s: Floats, free: Ints, n_nodes: int, start_s: float, end_s: float) -> tuple[Floats, Ints]:
    """The profile without some nodes from one time to another."""
    for time_s in (start_s, end_s):
        i = int(np.searchsorted(times_s, time_s))
        if i == len(times_s) or times_s[i] != time_s:
            times_s, free = np.insert(times_s, i, time_s), np.insert(free, i, free[i - 1])
    free = free.copy()
    free[np.searchsorted(times_s, start_s) : np.searchsorted(times_s, end_s)] -= n_nodes
    return times_s, free


def easy(view: View) -> int | None:
    """The first job, or the next that ends before the first one's reservation, or leaves its nodes alone.

    Notes
    -----
    Lifka 1995; Mu'alem and Feitelson 2001, section 2.1. Where the allocation has rules of its own, the
    reservation is the first expected end after which it finds nodes, and a job that outlasts that may begin
    if the first one would find nodes with it there, too.
    """
    return 0 if view.can_start(0) else backfilled(view, 0)


def backfilled(view: View, first: int) -> int | None:
    """Place of a job that may begin before the one at `first`, which must wait; in order of the queue."""
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
    """Ask the allocation, once for each size."""
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
    """The first of some places that find nodes whose job does not delay the first one."""
    reserved = view.reservation(first)
    short = np.flatnonzero(view.now_s + view.queue["estimate_s"][places] <= reserved.start_s)
    n_long = int(short[0]) if len(short) else len(places)
    long = places[:n_long][::-1]
    # The first of each size; a later one would fare as it does.
    first_of_size = dict(zip(view.queue["n_nodes"][long].tolist(), long.tolist(), strict=True))
    for place in sorted(first_of_size.values()):
        if view.leaves_room(place, first, reserved):
            return place
    return int(places[n_long]) if len(short) else None


def fcfs(view: View) -> int | None:
    """The first job of the queue, if it finds nodes; nobody overtakes."""
    return 0 if view.can_start(0) else None


def priority(view: View) -> int | None:
    """The job of highest priority, age + size, both in [0, 1], or one that does not delay it."""
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
    """The order of a name.

    Raises `UsageError` if there is none.
    """
    if name not in ORDERS:
        raise UsageError(f"order {name!r} is unknown: give one of {', '.join(ORDERS)}")
    return ORDERS[name]
