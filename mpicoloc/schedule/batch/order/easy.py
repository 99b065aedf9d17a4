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


def _first_harmless(view: View, first: int, places: NDArray[np.int64]) -> int | None:
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
