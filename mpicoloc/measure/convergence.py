"""Convergence of the slowdown with the number of shutters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from mpicoloc.core.profile import UNIT_SITE, Estimate, Profile, Table, valid_shutters
from mpicoloc.measure import burst, count, ipc, processor
from mpicoloc.measure.job_scaling import RankSlowdowns, job_scale, of_critical_ranks, rank_slowdowns
from mpicoloc.measure.meter_choice import pass_ns

MAX_POINTS = 40


def running_slowdowns(profile: Profile, *, rng: np.random.Generator) -> list[Estimate]:
    """Slowdowns of the job from more and more of its valid shutters; the last is that of the profile.

    Result: empty if the profile has no slowdown, or a slowdown that needed no shutters.

    A profile has counts of each shutter, so the meters `count` and `ipc` add shutters in order of time. It
    has cycles only by groups of shutters (every 16th shutter of the run), so the other meters add one group
    after the other.
    """
    final = profile.interference.slowdown
    if final is None or final.method == processor.ALONE:
        return []
    tables = profile.tables
    slowdowns = rank_slowdowns(tables)
    measured = of_critical_ranks(tables, slowdowns)
    if final.method in (burst.METHOD, "pcontrol"):
        phases = iter(_by_groups(final.method, measured["cycles"], measured["shutters"], slowdowns))
    else:
        phases = _by_time(final.method, measured, rng)
    before = [phase for phase in phases if phase.n < final.n]
    return [*map(job_scale(profile.job, tables, slowdowns), before), final]


def _by_groups(method: str, cycles: Table, shutters: Table, slowdowns: RankSlowdowns) -> list[Estimate]:
    n_windows, window_s = burst.valid_windows(shutters)
    if method == burst.METHOD:
        cycles = slowdowns.critical_cycles(burst.burst_cycles(cycles), window_s)
    else:
        units = cycles[cycles["from_site"] == UNIT_SITE]
        cycles = units[np.isin(units["rank"], slowdowns.critical_ranks)]
    return burst.running_slowdowns(cycles, n_windows=n_windows, window_s=window_s)


def _by_time(method: str, tables: Mapping[str, Table], rng: np.random.Generator) -> Iterator[Estimate]:
    valid = np.sort(valid_shutters(tables["shutters"]), order="t0_ns")
    for n in np.unique(np.linspace(count.MIN_SHUTTERS, len(valid), MAX_POINTS).astype(int)):
        if method == count.METHOD:
            slowdown = count.slowdown(valid[:n], tables["counts"], cost_ns=pass_ns(tables)).slowdown
            yield from [slowdown] if slowdown else []
        else:
            estimates = ipc.estimates(valid[:n], rng=rng)
            yield from (estimate for estimate in estimates if estimate.method == method)
