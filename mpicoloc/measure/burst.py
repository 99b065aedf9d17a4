"""The matched estimate: how much longer the same cycles take with co-runners than without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import Table
from mpicoloc.measure.cycles import Array, Cells, Kinds, collect, kinds_of

METHOD = "burst-matched"
MIN_SHUTTERS = 8
"""Valid shutters below which there is no estimate."""
MIN_CYCLES = 12
"""Solo completions, all cycles together, below which there is no estimate."""
PRIOR_CYCLES = 8.0
"""Completions that the prior of such a pool is worth: slowed like the whole job, give or take 35 %."""
PRIOR_TRUSTED = 1.0
"""The same where each completion tells by itself."""
MIN_COVERAGE = 0.6
"""Share of the time that must be measured, not supposed."""
N_REPLICATES = 600
WIDEST = 0.5
"""Half of an interval, in the logarithm, above which an estimate is none."""
MODEL_ERROR = 0.0075
"""Relative standard error that no number of shutters removes."""
EDGE_ERROR = 0.25
"""The part of the edge correction that is itself uncertain."""
TRUSTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights tried of what cut cycles had taken before their shutter."""
WORTH, SURE = 0.8, 0.6
"""A spread so much smaller than with weight 0 is worth it; one that is, surely no luck."""
MIN_GROUPS = 8
"""Groups of shutters below which spreads cannot be compared."""
SETTLE_S, SETTLE_ERROR = 0.01, 0.05
"""What a shutter has before its window at most, s, and standard error of the speed there."""
_MAX_BOOTSTRAP_CELLS = 12_000_000
_MANY_KINDS = 2000


@dataclass(frozen=True)
class Matched:
    """Result of `matched`; `slowdown` is None when `reason` says why."""

    slowdown: Estimate | None
    reason: str = ""
    coverage_frac: float | None = None


@dataclass(frozen=True)
class Parts:
    """Slowdown of the co-run phase of each thread, with its 95 % interval; NaN where it was not measured."""

    thread: NDArray[np.int64]
    value: Array
    low: Array
    high: Array


def matched(cycles: Table, *, n_windows: int, window_s: float, rng: np.random.Generator) -> Matched:
    """Slowdown of the co-run phase, T_co/T_solo, from the cycles seen in both phases.

    Parameters
    ----------
    cycles : Table
        Table "cycles" of a profile.
    n_windows : int
        Valid shutters behind the solo cells.
    window_s : float
        Their mean length, s.
    rng : numpy.random.Generator
        For the bootstrap.

    Returns
    -------
    Matched
        With a 95 % interval, or with the reason why there is none.
    """
    if n_windows < MIN_SHUTTERS:
        return Matched(None, f"{n_windows} valid shutters, {MIN_SHUTTERS} needed")
    cells = collect(cycles, n_windows)
    n_solo = cells.n_solo.sum(axis=1)
    n_cycles = int(n_solo[cells.n_corun.sum(axis=1) > 0].sum())
    if n_cycles < MIN_CYCLES:
        return Matched(None, f"{n_cycles} cycles ended in shutters, {MIN_CYCLES} needed")
    kinds, groups = kinds_of(cells), _used_groups(cells)
    if groups.n_groups < 2:
        return Matched(None, "all cycles ended in one shutter in sixteen")
    trust, least = _trust(groups, kinds, window_s)
    whole = slowdown_of(groups.weighted(np.ones((1, groups.n_groups))), kinds, window_s, trust)
    coverage = 1.0 - float(whole.prior_frac[0, 0])
    if coverage < MIN_COVERAGE:
        why = f"only {coverage:.0%} of its time is in cycles short enough to be seen in shutters"
        return Matched(None, f"{why}, {MIN_COVERAGE:.0%} needed", coverage)
    value, low, high = _interval(groups, kinds, window_s, trust, least, rng)
    if np.log(high / low) > 2 * WIDEST:
        why = f"cycles are too uneven or rare: the interval's ends differ by a factor of {high / low:.1f}"
        return Matched(None, why, coverage)
    return Matched(Estimate(value, low, high, n_windows, "1", METHOD), "", coverage)


def by_thread(cycles: Table, *, n_windows: int, window_s: float) -> Parts:
    """T_co/T_solo of each thread by itself; parameters as of `matched`, intervals by jackknife alone."""
    cells = collect(cycles, n_windows)
    kinds, groups = kinds_of(cells, cells.thread), _used_groups(cells)
    if not len(kinds.parts) or groups.n_groups < 2 or n_windows < MIN_SHUTTERS:
        return Parts(kinds.parts, *np.full((3, len(kinds.parts)), np.nan))
    trust, _ = _trust(groups, kinds_of(cells), window_s)
    whole = slowdown_of(groups.weighted(np.ones((1, groups.n_groups))), kinds, window_s, trust)
    left_out = slowdown_of(groups.weighted(1.0 - np.eye(groups.n_groups)), kinds, window_s, trust)
    model = 2 * np.hypot(MODEL_ERROR, whole.prior_frac[0] / np.sqrt(PRIOR_CYCLES))
    half = np.hypot(_jackknife(np.log(left_out.slowdown)), model)
    n_seen = kinds.by_part(kinds.by_stratum(cells.n_solo.sum(axis=1)))
    usable = (1.0 - whole.prior_frac[0] >= MIN_COVERAGE) & (n_seen >= MIN_CYCLES)
    value = np.where(usable, whole.slowdown[0], np.nan)
    return Parts(kinds.parts, value, value * np.exp(-half), value * np.exp(half))


def growing(cycles: Table, *, n_windows: int, window_s: float) -> list[Estimate]:
    """`matched` from two groups of shutters, from three, and so on to all; intervals by jackknife alone.

    With many kinds of cycles from every other number of groups.
    """
    cells = collect(cycles, n_windows)
    kinds, groups = kinds_of(cells), _used_groups(cells)
    if groups.n_groups < 2:
        return []
    trust, _ = _trust(groups, kinds, window_s)
    found = []
    step = 1 if len(kinds.total_s) <= _MANY_KINDS else 2
    for k in (*range(2, groups.n_groups, step), groups.n_groups):
        weights = np.zeros((1 + k, groups.n_groups))
        weights[:, :k] = np.concatenate([np.ones((1, k)), 1.0 - np.eye(k)])
        part = slowdown_of(groups.weighted(weights), kinds, window_s, trust)
        logs = np.log(part.slowdown[:, 0])
        model = 2 * np.hypot(MODEL_ERROR, part.prior_frac[0, 0] / np.sqrt(PRIOR_CYCLES))
        half = float(np.hypot(_jackknife(logs[1:]), model))
        n_used = round(n_windows * k / groups.n_groups)
        value, low, high = (float(np.exp(logs[0] + sign * half)) for sign in (0, -1, 1))
        found.append(Estimate(value, low, high, n_used, "1", METHOD))
    return found


@dataclass(frozen=True)
class Combined:
    """T_co/T_solo of each replicate and part, and the share of T_co that rests on the prior."""

    slowdown: Array
    prior_frac: Array


def slowdown_of(cells: Cells, kinds: Kinds, window_s: float, trust: float = 0.0) -> Combined:
    """T_co/T_solo of each replicate, from the slowdowns of the strata.

    Pools of few completions are drawn towards their part's mean slowdown, by a Gamma prior worth
    `PRIOR_CYCLES` completions: what could not be measured counts as slowed like the rest, and widens the
    interval. Co-run times and durations are known, not sampled, and so the same for every replicate. `trust`
    is as of `_progress`.
    """
    x_corun = kinds.by_stratum(kinds.total_s)
    left, work = _progress(cells, kinds, window_s, trust)
    # One completion of a stratum stands for so much co-run time; long cycles weigh by the time spent in them.
    # Nothing is known better than its number of completions tells, however short its cycles usually are.
    spent_s = kinds.by_stratum(cells.x_solo)
    unit_s = kinds.by_stratum(cells.x_solo * kinds.corun_s) / np.maximum(spent_s, 1e-300)
    unit_s = np.maximum(unit_s, spent_s / (kinds.by_stratum(cells.n_solo) + 1))
    seen = unit_s > 0
    unit_s = np.where(seen, unit_s, 1.0)
    n_done = np.where(seen, np.maximum(kinds.by_stratum(work), 0.0) / unit_s, 0.0)
    n_usual = np.where(seen, kinds.by_stratum(left) / unit_s, 0.0)
    worth = (1.0 - trust) * PRIOR_CYCLES + trust * PRIOR_TRUSTED
    known = n_usual / (n_usual + worth) * x_corun
    trusted_s = kinds.by_part(known)
    trusted_solo_s = kinds.by_part(known * (1 + n_usual) / (1 + n_done))
    usable = trusted_solo_s > 0
    part_mean = np.where(usable, trusted_s, 1.0) / np.where(usable, trusted_solo_s, 1.0)
    mean = part_mean[..., kinds.part_of]
    prior = np.where(kinds.is_own & (n_done > 0) & (n_usual > 0), 0.0, worth)
    solo_s = kinds.by_part(x_corun * (prior / mean + n_usual) / (prior + n_done))
    whole_s = kinds.by_part(x_corun)
    # By the ends to be expected, not by those seen: who asks for enough of these favours luck.
    supposed_s = kinds.by_part(x_corun * prior / np.maximum(prior + n_usual * mean, 1e-300))
    return Combined(whole_s / solo_s, supposed_s / whole_s)


def _progress(cells: Cells, kinds: Kinds, window_s: float, trust: float) -> tuple[Array, Array]:
    """Solo time of each replicate and kind, and the co-run time's worth of work done in it.

    With `trust` 1 of the cycles that ended in shutters: what was left of them at the pause, and the time that
    took; with 0 all time in windows, and how many cycles ended there; between them, both.
    """
    all_s = np.maximum(cells.x_solo - edge_correction(cells, kinds.corun_s, window_s), 0.0)
    of_kind = np.where(np.isnan(kinds.whole_s), 0.0, trust)
    typical_s = (1.0 - of_kind) * kinds.corun_s + of_kind * np.nan_to_num(kinds.whole_s)
    left = (1.0 - of_kind) * all_s + of_kind * cells.done
    return left, cells.n_solo * typical_s - of_kind * cells.before


def edge_correction(cells: Cells, corun_s: Array, window_s: float) -> Array:
    """Time to take off x_solo because windows cut more cycles of a kind at one edge than at the other.

    A cycle that only begins or only ends in a window spends min(D, window)/2 there on average, D being its
    solo duration, which solves x_solo - surplus * min(D, window) / 2 = n_solo * D.
    """
    surplus = cells.n_start - cells.n_solo
    with np.errstate(divide="ignore", invalid="ignore"):
        long_s = (cells.x_solo - surplus * window_s / 2) / cells.n_solo
        short_s = cells.x_solo / (cells.n_solo + surplus / 2)
        solo_s = np.where(long_s >= window_s, window_s, np.minimum(short_s, window_s))
    solo_s = np.where(cells.n_solo > 0, solo_s, np.minimum(corun_s, window_s))
    result: Array = surplus * solo_s / 2
    return result


def _interval(
    groups: Cells, kinds: Kinds, window_s: float, trust: float, least: float, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Value and interval: the wider of bootstrap and jackknife over groups, plus model error."""
    n_groups = groups.n_groups

    def logarithms(weights: Array, length_s: float = window_s) -> Array:
        result: Array = np.log(slowdown_of(groups.weighted(weights), kinds, length_s, trust).slowdown[:, 0])
        return result

    everything = np.ones((1, n_groups))
    value = float(logarithms(everything)[0])
    below = above = max(least, float(_jackknife(logarithms(1.0 - np.eye(n_groups)))))
    if len(kinds.total_s) * N_REPLICATES <= _MAX_BOOTSTRAP_CELLS:
        picks = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), N_REPLICATES)
        ends = np.quantile(logarithms(picks.astype(float)), [0.025, 0.975])
        below, above = max(below, value - float(ends[0])), max(above, float(ends[1]) - value)
    edge = EDGE_ERROR * abs(value - float(logarithms(everything, 0.0)[0]))
    supposed = float(slowdown_of(groups.weighted(everything), kinds, window_s, trust).prior_frac[0, 0])
    prior = supposed / np.sqrt(PRIOR_CYCLES)
    settled = trust * SETTLE_ERROR * _settle_frac(groups, window_s)
    model = 2 * float(np.sqrt(MODEL_ERROR**2 + edge**2 + prior**2 + settled**2))
    low, high = value - np.hypot(below, model), value + np.hypot(above, model)
    return float(np.exp(value)), float(np.exp(low)), float(np.exp(high))


def _settle_frac(groups: Cells, window_s: float) -> float:
    """Part of the solo time of cut cycles that lies before the window, at most."""
    done_s, n_done = float(groups.done.sum()), float(groups.n_solo.sum())
    if done_s <= 0 or window_s <= 0:
        return 0.0
    return min(SETTLE_S, window_s / 3, done_s / n_done) / window_s


def _trust(groups: Cells, kinds: Kinds, window_s: float) -> tuple[float, float]:
    """How far to reckon with what cut cycles had taken before their shutter, and the least half interval.

    That is exact where cycles of a kind are alike, and noise where they are not, or others take turns with
    them.
    """
    left_out = groups.weighted(1.0 - np.eye(groups.n_groups))
    slowdowns = [slowdown_of(left_out, kinds, window_s, trust).slowdown for trust in TRUSTS]
    spreads = [float(_jackknife(np.log(slowdown))[0]) for slowdown in slowdowns]
    best = int(np.argmin(spreads))
    if groups.n_groups < MIN_GROUPS or spreads[best] >= WORTH * spreads[0]:
        return 0.0, 0.0
    return TRUSTS[best], WORTH * spreads[0] if spreads[best] > SURE * spreads[0] else 0.0


def _jackknife(left_out: Array) -> Array:
    """Half the 95 % interval from estimates that leave out one group each: the first axis."""
    n_groups = len(left_out)
    variance = (n_groups - 1) / n_groups * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    result: Array = t_quantile(n_groups - 1) * np.sqrt(variance)
    return result


def _used_groups(cells: Cells) -> Cells:
    used = cells.x_solo.sum(axis=0) > 0  # co-run time is known from all of them
    return cells.each(lambda values: values[:, used])


def t_quantile(n_free: int) -> float:
    """Student's t, 97.5 %, to within 0.5 % from 6 degrees of freedom on."""
    return 1.96 + 2.37 / n_free + 2.8 / n_free**2
