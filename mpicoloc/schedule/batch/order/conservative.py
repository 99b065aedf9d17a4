"""Conservative backfilling: jobs may overtake, unless they delay any job that came before them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.schedule.batch.view import View

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def next_job(view: View) -> int | None:
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
