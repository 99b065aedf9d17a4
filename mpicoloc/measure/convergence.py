"""How the slowdown settles as a job takes more and more shutters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import VERDICTS, Table
from mpicoloc.measure import burst, ipc, loop, processor
from mpicoloc.measure import critical_ranks as from_ranks
from mpicoloc.measure.estimate import UNIT_SITE, bursts, of_waited_for, over_job, parts_of_job, windows

MAX_POINTS = 40


def running(profile: Profile, *, rng: np.random.Generator) -> list[Estimate]:
    """Slowdown of the job from more and more of its valid shutters; the last one is the profile's own.

    Parameters
    ----------
    profile : Profile
    rng : numpy.random.Generator
        For the bootstrap.

    Returns
    -------
    list of Estimate
        Empty where the profile has no slowdown, or needed no shutters for it.

    Notes
    -----
    Counts are kept for each shutter, so those of `loop` and `ipc` are added in the order in which they came.
    Cycles are kept for groups: every 16th shutter is of one. So the groups are added one by one, each of
    shutters from the whole run.
    """
    final = profile.interference.slowdown
    if final is None or final.method == processor.ALONE:
        return []
    tables = profile.tables
    suffered = from_ranks.suffered(bursts(tables["cycles"]), *windows(tables["shutters"]))
    split, least_s = parts_of_job(profile.job, tables, suffered)
    measured = of_waited_for(tables, suffered)
    if final.method in (burst.METHOD, "pcontrol"):
        phases = iter(_by_groups(final.method, measured["cycles"], measured["shutters"], suffered))
    else:
        phases = _by_time(final.method, measured["shutters"], rng)
    before = [phase for phase in phases if phase.n < final.n]
    return [*(over_job(phase, split, least_s) for phase in before), final]


def _by_groups(method: str, cycles: Table, shutters: Table, suffered: from_ranks.Suffered) -> list[Estimate]:
    n_windows, window_s = windows(shutters)
    if method == burst.METHOD:
        counting = suffered.that_count(bursts(cycles), window_s)
    else:
        units = cycles[cycles["from_site"] == UNIT_SITE]
        counting = units[np.isin(units["rank"], suffered.waited_for)]
    return burst.growing(counting, n_windows=n_windows, window_s=window_s)


def _by_time(method: str, shutters: Table, rng: np.random.Generator) -> Iterator[Estimate]:
    valid = np.sort(shutters[shutters["verdict"] == VERDICTS.index("valid")], order="t0_ns")
    for n in np.unique(np.linspace(loop.MIN_SHUTTERS, len(valid), MAX_POINTS).astype(int)):
        if method == loop.METHOD:
            found = loop.rates(valid[:n], rng=rng).slowdown
            yield from [found] if found else []
        else:
            yield from (one for one in ipc.estimates(valid[:n], rng=rng) if one.method == method)
