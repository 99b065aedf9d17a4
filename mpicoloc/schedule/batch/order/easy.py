"""EASY backfilling: jobs may overtake, unless they delay the first one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.schedule.batch.view import View


def next_job(view: View) -> int | None:
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
    n_nodes = view.queue["n_nodes"]
    fits = n_nodes <= view.n_free
    if not fits.any():
        return None
    reserved = view.reservation(first)
    is_short = view.now_s + view.queue["estimate_s"] <= reserved.start_s
    if view.allocation.is_bound_by_number:
        fits &= is_short | (n_nodes <= reserved.n_spare)
        fits[first] = False
        place = int(fits.argmax())
        return place if fits[place] else None
    return _examined(view, first, fits, is_short)


def _examined(view: View, first: int, fits: NDArray[np.bool_], is_short: NDArray[np.bool_]) -> int | None:
    """Ask the allocation, once for each size."""
    reserved = view.reservation(first)
    places = np.flatnonzero(fits)
    places = places[places != first]
    places = places[view.can_start_which(places)]
    short = places[is_short[places]]
    end = int(short[0]) if len(short) else len(fits)
    sizes = view.queue["n_nodes"][places]
    # Of those before the first short one, the first of each size.
    _, firsts = np.unique(sizes, return_index=True)
    for place in places[np.sort(firsts)].tolist():
        if place >= end:
            break
        if not is_short[place] and view.leaves_room(place, first, reserved):
            return int(place)
    return end if end < len(fits) else None
