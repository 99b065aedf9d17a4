"""Slowdown of something whose co-runner works and rests in turns, by its progress in each turn.

What the machine and its host do meanwhile is in both: a turn beside the co-runner is only compared with the
rests before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.bubbles import SensitivityCurve
from mpicoloc.core.profile import Bools, Estimate, Floats
from mpicoloc.errors import DataError
from mpicoloc.measure.burst import t_quantile

METHOD = "bubble-turns"
MIN_TURNS = 4
"""Turns of a level below which there is no interval."""
MIN_BUSY_FRAC = 0.03
"""Part of a turn for which what is measured must have had its processor."""
TRIM_FRAC = 0.2
QUIET_FRAC = 0.9
"""Likewise, if nobody else may have pressed on it."""


@dataclass(frozen=True)
class Progress:
    """What was done until each time.

    Parameters
    ----------
    time_s : ndarray, shape (n,)
        Increasing, of the clock that the turns have.
    work : ndarray, shape (n,)
        Units of work done by then, none ever taken back.
    busy_s : ndarray, shape (n,)
        Time spent on it by then: of the processor, or `time_s`.
    """

    time_s: Floats
    work: Floats
    busy_s: Floats


@dataclass(frozen=True)
class Turns:
    """Turns in their order; level 0: the co-runner rests.

    Parameters
    ----------
    begin_s, end_s, level : ndarray, shape (n,)
    """

    begin_s: Floats
    end_s: Floats
    level: Floats

    def disturbed(self, co_runner: Progress) -> Bools:
        """Turns in which the co-runner should work but has its processor for less than `QUIET_FRAC`."""
        _, busy_s = paces(co_runner, self)
        return (self.level > 0) & (busy_s < QUIET_FRAC * (self.end_s - self.begin_s))

    def without(self, chosen: Bools) -> Turns:
        """With the level -1 for these turns, which is that of neither rest nor work."""
        return Turns(self.begin_s, self.end_s, np.where(chosen, -1.0, self.level))

    def without_beginnings(self, guard_s: float) -> Turns:
        """Without the begin of each turn, in which caches still have what belongs to the one before."""
        return Turns(np.minimum(self.begin_s + guard_s, self.end_s), self.end_s, self.level)


def paces(progress: Progress, turns: Turns, min_busy_frac: float = MIN_BUSY_FRAC) -> tuple[Floats, Floats]:
    """Work per busy second in each turn, NaN where it was not measured, and the busy seconds."""
    work, busy_s = (
        np.interp(turns.end_s, progress.time_s, done) - np.interp(turns.begin_s, progress.time_s, done)
        for done in (progress.work, progress.busy_s)
    )
    seen = (turns.begin_s >= progress.time_s[0]) & (turns.end_s <= progress.time_s[-1])
    length_s = np.maximum(turns.end_s - turns.begin_s, 1e-9)
    is_measured = seen & (busy_s > min_busy_frac * length_s) & (work > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(is_measured, work / busy_s, np.nan), busy_s


def relative_paces(
    progress: Progress, turns: Turns, min_busy_frac: float = MIN_BUSY_FRAC
) -> tuple[Floats, Floats]:
    """Pace of each turn over that of the rests beside it, and its busy seconds; NaN for rests themselves."""
    pace, busy_s = paces(progress, turns, min_busy_frac)
    around = np.pad(np.where(turns.level == 0, pace, np.nan), 1, constant_values=np.nan)
    before, after = around[:-2], around[2:]
    alone = np.where(np.isnan(before), after, np.where(np.isnan(after), before, (before + after) / 2))
    return np.where(turns.level > 0, pace / alone, np.nan), busy_s


def slowdown_of(relative: Floats, busy_s: Floats) -> Estimate:
    """Slowdown of the time of some turns, with a jackknife interval over the turns.

    Shapes: `relative`, `busy_s` (n,). Result: T_co / T_solo: time over the time that the same work takes
    alone. Raises `DataError` if there are fewer than `MIN_TURNS`.
    """
    n = len(relative)
    if n < MIN_TURNS:
        raise DataError(f"{n} turns were measured, {MIN_TURNS} needed: let it run longer")
    alone_s = relative * busy_s
    value = float(busy_s.sum() / alone_s.sum())
    left = np.log((busy_s.sum() - busy_s) / (alone_s.sum() - alone_s))
    spread = math.sqrt((n - 1) / n * float(np.sum((left - left.mean()) ** 2)))
    half = t_quantile(n - 1) * spread
    return Estimate(value, value * math.exp(-half), value * math.exp(half), n, "1", METHOD)


def steady_slowdown_of(relative: Floats) -> Estimate:
    """Slowdown of turns that are alike but for noise: mean of the logarithms without a fifth at each end.

    Shapes: `relative` (n,). Raises `DataError` if there are fewer than `MIN_TURNS`.

    The interval is that of the trimmed mean, by its Winsorized variance (Tukey and McLaughlin 1963).
    """
    from scipy.stats.mstats import trimmed_mean, trimmed_mean_ci

    n = len(relative)
    if n < MIN_TURNS:
        raise DataError(f"{n} turns were measured, {MIN_TURNS} needed: let it run longer")
    logs, trim = -np.log(relative), (TRIM_FRAC, TRIM_FRAC)
    value = math.exp(float(trimmed_mean(logs, limits=trim)))
    low, high = (math.exp(end) for end in trimmed_mean_ci(logs, limits=trim, alpha=0.05))
    return Estimate(value, min(low, value), max(high, value), n, "1", METHOD)


def slowdowns(
    progress: Progress,
    turns: Turns,
    min_busy_frac: float = MIN_BUSY_FRAC,
    *,
    is_steady: bool = False,
) -> Mapping[float, Estimate]:
    """Slowdown at each level above 0 that has enough turns, in the order of the levels."""
    relative, busy_s = relative_paces(progress, turns, min_busy_frac)
    found = {}
    for level in np.unique(turns.level[turns.level > 0]):
        chosen = (turns.level == level) & ~np.isnan(relative)
        if np.count_nonzero(chosen) >= MIN_TURNS:
            of_level = relative[chosen]
            found[float(level)] = (
                steady_slowdown_of(of_level) if is_steady else slowdown_of(of_level, busy_s[chosen])
            )
    return found


def curve(program: str, found: Mapping[float, Estimate]) -> SensitivityCurve:
    """A program's curve from its slowdown at each level above 0, in their order."""
    rows = [(1.0, 1.0, 1.0), *((one.value, one.low, one.high) for one in found.values())]
    slowdown, low, high = np.array(rows).T
    levels = np.array([0.0, *found])
    return SensitivityCurve(program, levels, slowdown, low, high, sum(one.n for one in found.values()))


def rising(values: Floats) -> Floats:
    """The mean of the closest curves above and below these values that never fall.

    A true curve of pressure does not fall, a measured one does by noise.
    """
    above = np.maximum.accumulate(values)
    below = np.minimum.accumulate(values[::-1])[::-1]
    return (above + below) / 2
