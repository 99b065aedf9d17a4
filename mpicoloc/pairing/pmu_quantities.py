"""Quantities of a job from what the processor counted for its ranks, from MPI_Init to MPI_Finalize.

Counts of a run alone only: beside others a job takes more cycles and misses more, and the same instructions
too if it polls. An event is taken if it was counted on every rank, for all of its threads, for long enough.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.counters import EVENTS, LEAST_THREADS_FRAC, Event
from mpicoloc.core.tables import Table

Array = NDArray[np.float64]
LEAST_RUNNING_FRAC = 0.05
"""Part of its time that an event must have been on the processor: below, scaling up is guessing."""
PER_INSTRUCTIONS = 1000
_BASES = ("instructions", "cycles")
RATED = tuple(event for event in EVENTS if event.is_hardware and event.name not in _BASES)
"""Events that have rates of their own, per second and per 1,000 instructions."""


def word(event: Event) -> str:
    """The event in the name of a quantity."""
    return event.name.lower().replace("-", "_")


def of_ranks(counters: Table, n_ranks: int, core_s: float) -> dict[str, Array | float]:
    """Rates of every event that was counted.

    Result: by quantity: a number, or an array with one for each rank.
    """
    values = {event.name: _values(counters, event, n_ranks) for event in EVENTS if event.is_hardware}
    known = {name: found for name, found in values.items() if found is not None}
    found = _of_job(known, n_ranks * core_s)
    instructions = known.get("instructions", np.zeros(1))
    for event in RATED:
        if event.name in known:
            found[f"{word(event)}_per_s"] = known[event.name] / core_s
            if instructions.all():
                found[f"{word(event)}_per_ki"] = PER_INSTRUCTIONS * known[event.name] / instructions
    references = known.get("cache-references", np.zeros(1))
    if "cache-misses" in known and references.all():
        found["cache_miss_frac"] = known["cache-misses"] / references
    return found


def _values(counters: Table, event: Event, n_ranks: int) -> Array | None:
    """The event's value on each rank; None where that of one is not known well."""
    rows = counters[counters["event"] == event.name.encode()]
    rows = rows[np.argsort(rows["rank"], kind="stable")]
    is_whole = rows["enabled_s"] >= LEAST_THREADS_FRAC * rows["cpu_s"]
    is_enough = rows["running_s"] >= LEAST_RUNNING_FRAC * rows["enabled_s"]
    well = is_whole & is_enough & (rows["running_s"] > 0) & np.isfinite(rows["value"])
    if not well.all() or len(np.unique(rows["rank"])) != n_ranks:
        return None
    values: Array = rows["value"].astype(float)
    return values


def _of_job(known: Mapping[str, Array], core_s: float) -> dict[str, Array | float]:
    """The quantities that windows tell too, of the job as a whole as these do."""
    totals = {name: float(known[name].sum()) for name in _BASES if name in known and known[name].all()}
    rates = {"instructions": "instructions_per_s", "cycles": "clock_hz"}
    found: dict[str, Array | float] = {rates[name]: total / core_s for name, total in totals.items()}
    if len(totals) == len(_BASES):
        found["ipc"] = totals["instructions"] / totals["cycles"]
    return found
