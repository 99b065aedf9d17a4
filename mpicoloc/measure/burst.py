"""The matched estimate: compares cycles (a burst and the call after it) with co-runners and without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import (
    N_SHUTTER_GROUPS,
    PHASES,
    UNIT_SITE,
    Estimate,
    Floats,
    MeterResult,
    Table,
    valid_shutters,
)
from mpicoloc.core.units import counted

MIN_STRATUM = 30
"""Solo time that a kind of cycle needs to be a stratum of its own, in units of its mean co-run duration."""
MIN_SEEN = 8
"""Solo completions that such a kind also needs: one long wait of a short cycle is not enough evidence."""
MIN_UNCUT = 0.1
"""If shutters leave less than this part of a kind's cycles uncut, the uncut cycles are not typical."""
N_OCTAVES = 64
"""Number of octaves of duration by which other kinds are pooled: long cycles must not outweigh short ones."""

_SITES = 1 << 12
_LANES = 1 << 5
_KEY = (("rank", 1), ("lane", _LANES), ("from_site", _SITES), ("to_site", _SITES), ("size_class", 1 << 8))
"""Columns that identify a kind of cycle, and the number of values that each can have."""


@dataclass(frozen=True)
class Cells:
    """Number and time (s) of cycles, co-run and solo, per kind of cycle (row) and group of shutters (column).

    `n_start` cycles of the kind began in solo windows. The cycles that ended in solo windows took `before_s`
    until the pause of the co-runners began, and `done_s` after that. `n_uncut` cycles met no shutter; they
    took `uncut_s`.
    `thread` has the thread of each kind.
    """

    n_corun: Floats
    corun_s: Floats
    n_solo: Floats
    solo_s: Floats
    n_start: Floats
    done_s: Floats
    before_s: Floats
    n_uncut: Floats
    uncut_s: Floats
    thread: NDArray[np.int64]

    def transform(self, change: Callable[[Floats], Floats]) -> Cells:
        """The cells with `change` applied to each array of numbers or times."""
        names = [field.name for field in fields(self) if field.name != "thread"]
        return Cells(**{name: change(getattr(self, name)) for name in names}, thread=self.thread)

    def weighted_sums(self, weights: Floats) -> Cells:
        """Sums over groups, weighted by `weights[replicate, group]`; shape (replicate, kind)."""
        return self.transform(lambda values: weights @ values.T)

    @property
    def n_groups(self) -> int:
        """Groups of shutters."""
        return self.n_corun.shape[1]


def kind_keys(cycles: Table) -> NDArray[np.uint64]:
    """A number for each row that is the same for cycles of one kind."""
    key = np.zeros(len(cycles), dtype=np.uint64)
    for name, n_values in _KEY:
        key *= np.uint64(n_values)
        key += cycles[name].astype(np.uint64)
    return key


def threads_of(rows: Table) -> NDArray[np.int64]:
    """The thread of each row, as a number."""
    return rows["rank"].astype(np.int64) * _LANES + rows["lane"]


def cells_of(cycles: Table, n_windows: int) -> Cells:
    """The cells of a profile's table "cycles".

    Cycles of one kind have the same rank, thread, call sites and size class. The solo cycles are those of
    `n_windows` valid shutters.
    """
    shared = cycles["phase"] != PHASES.index("alone")
    used = cycles if shared.all() else cycles[shared]
    _, first, kind = np.unique(kind_keys(used), return_index=True, return_inverse=True)
    shape = (2, len(first), N_SHUTTER_GROUPS)
    # PHASES begins with co-run and solo, so the phase is the first index.
    cell = (used["phase"].astype(np.int64) * len(first) + kind) * N_SHUTTER_GROUPS + used[
        "group"
    ] % N_SHUTTER_GROUPS
    spent_ns = np.zeros(len(used))
    spent_ns += used["comp_ns"]
    spent_ns += used["mpi_ns"]
    n = np.bincount(cell, used["n"], minlength=int(np.prod(shape))).reshape(shape)
    x = np.bincount(cell, spent_ns, minlength=int(np.prod(shape))).reshape(shape) * 1e-9
    starts = _starts(used[first], n.sum(axis=(0, 2)), n[1])
    # A window cuts one cycle at each edge, so starts and ends of a kind differ by one per window at most.
    n_most = -(-n_windows // N_SHUTTER_GROUPS)
    starts = n[1] + np.clip(starts - n[1], -n_most, n_most)
    n_cut, cut_ns, done_ns = (
        np.bincount(cell, used[name], minlength=n.size).reshape(shape)
        for name in ("n_cut", "cut_ns", "done_ns")
    )
    uncut = np.maximum(n[0] - n_cut[0], 0.0), np.maximum(x[0] - cut_ns[0] * 1e-9, 0.0)
    ended = done_ns[1] * 1e-9, cut_ns[1] * 1e-9
    return Cells(n[0], x[0], n[1], x[1], starts, *ended, *uncut, threads_of(used[first]))


def _starts(kinds: Table, n_total: Floats, n_solo: Floats) -> Floats:
    """Cycles begun in solo windows, by kind and group.

    As many cycles begin at a call site as end there; they are divided among kinds as in the whole run.
    """
    thread = threads_of(kinds)
    sites = np.concatenate([thread * _SITES + kinds["from_site"], thread * _SITES + kinds["to_site"]])
    unique, site = np.unique(sites, return_inverse=True)
    from_site, to_site = site[: len(kinds)], site[len(kinds) :]
    leaving = np.bincount(from_site, n_total, minlength=len(unique))
    share = n_total / np.maximum(leaving[from_site], 1)
    arrived = np.zeros((len(unique), N_SHUTTER_GROUPS))
    np.add.at(arrived, to_site, n_solo)
    return arrived[from_site] * share[:, None]


@dataclass(frozen=True)
class Strata:
    """Strata of kinds of cycles, in the scope of each estimate: a thread, or the whole job.

    A kind with enough solo cycles is a stratum of its own (`is_own`). Each scope pools its other kinds by
    octaves of duration. `order` sorts the kinds seen in co-run by scope and stratum; in that order a stratum
    begins at each of `starts`, and a scope at the strata `scope_starts`. For each
    kind, `total_corun_s` and `mean_corun_s` are the total and mean duration of all co-run cycles, and
    `mean_uncut_s` is the mean duration of the cycles that met no shutter (NaN if there are too few of them).
    """

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    scope_starts: NDArray[np.intp]
    scopes: NDArray[np.int64]
    is_own: NDArray[np.bool_]
    total_corun_s: Floats
    mean_corun_s: Floats
    mean_uncut_s: Floats

    def by_stratum(self, values: Floats) -> Floats:
        """Sums over the kinds of each stratum, along the last axis."""
        return np.add.reduceat(values[..., self.order], self.starts, axis=-1)

    def by_scope(self, values: Floats) -> Floats:
        """Sums over the strata of each scope, along the last axis."""
        return np.add.reduceat(values, self.scope_starts, axis=-1)

    @property
    def scope_of(self) -> NDArray[np.intp]:
        """The scope of each stratum, as an index into `scopes`."""
        n_strata = np.diff(np.append(self.scope_starts, len(self.starts)))
        return np.repeat(np.arange(len(self.scopes)), n_strata)


def strata_of(cells: Cells, scope: NDArray[np.int64] | None = None) -> Strata:
    """Strata of kinds, from sums over all groups; `scope` has each kind's scope, by default one for all."""
    n, total_corun_s = cells.n_corun.sum(axis=1), cells.corun_s.sum(axis=1)
    known = n > 0
    total_corun_s = np.where(known, total_corun_s, 0.0)
    mean_corun_s = total_corun_s / np.where(known, n, 1.0)
    n_uncut, mean_uncut_s = cells.n_uncut.sum(axis=1), cells.uncut_s.sum(axis=1)
    # If shutters cut nearly all cycles, only the short ones are uncut.
    mean_uncut_s = np.where(n_uncut > MIN_UNCUT * n, mean_uncut_s / np.maximum(n_uncut, 1.0), np.nan)
    octave = np.clip(np.log2(np.maximum(mean_corun_s, 1e-9)) + N_OCTAVES // 2, 0, N_OCTAVES - 1)
    # Select by the completions expected in the solo time, because a threshold on the completions seen would
    # favour lucky samples.
    own = (
        known
        & (cells.solo_s.sum(axis=1) >= MIN_STRATUM * mean_corun_s)
        & (cells.n_solo.sum(axis=1) >= MIN_SEEN)
    )
    stratum = np.where(own, N_OCTAVES + np.arange(len(n)), octave.astype(np.int64))
    scope = np.zeros(len(n), np.int64) if scope is None else scope
    order = np.lexsort((stratum, scope))
    order = order[known[order]]
    steps = (np.diff(scope[order], prepend=-1) != 0) | (np.diff(stratum[order], prepend=-1) != 0)
    starts = np.flatnonzero(steps)
    firsts = scope[order][starts]
    scope_starts = np.flatnonzero(np.diff(firsts, prepend=-1) != 0)
    return Strata(
        order,
        starts,
        scope_starts,
        firsts[scope_starts],
        own[order][starts],
        total_corun_s,
        mean_corun_s,
        mean_uncut_s,
    )


METHOD = "burst-matched"
MIN_SHUTTERS = 8
"""Least number of valid shutters for an estimate."""
MIN_CYCLES = 12
"""Least number of solo completions, of all cycles together, for an estimate."""
PRIOR_CYCLES = 8.0
"""Weight, in completions, of the prior that a pool of cycles is slowed like the whole job, within 35 %."""
PRIOR_OF_CUT_CYCLES = 1.0
"""The same weight for cycles that shutters cut. It is smaller, because the data tell more: each of these
cycles is compared with its own beginning."""
MIN_COVERAGE = 0.6
"""Least part of the time that must be measured; the slowdown of the rest follows from the prior."""
N_REPLICATES = 600
MAX_HALF_WIDTH = 0.5
"""Half width of an interval, in the logarithm, above which there is no estimate."""
BURST_MODEL_ERROR = 0.0075
"""Relative standard error that no number of shutters removes."""
EDGE_ERROR = 0.25
"""Relative standard error of the edge correction."""
CUT_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights tried for the time that cut cycles took before their shutter."""
MIN_GAIN, CLEAR_GAIN = 0.8, 0.6
"""Bounds on the ratio of the spread with a weight to the spread with weight 0: below the first bound, the
weight is used; below the second, the gain is significant."""
MIN_GROUPS = 8
"""Least number of groups of shutters for which spreads can be compared."""
SETTLE_S, SETTLE_ERROR = 0.015, 0.05
"""Longest time from the start of a pause to its window, s, and standard error of the speed in that time."""
SHARE_LONGER = "let the jobs share their nodes for longer"
MARK_UNITS = "mark its units of work by MPI_Pcontrol"
"""Remedies if there is no estimate."""
_MAX_BOOTSTRAP_CELLS = 12_000_000
_MANY_KINDS = 2000


@dataclass(frozen=True)
class PhaseSlowdown:
    """Slowdown of the co-run phase, T_co/T_solo; if there is none, `reason` says why.

    `alternatives` are the results of other estimators, `meters` those of all meters that were tried.
    """

    slowdown: Estimate | None
    reason: str = ""
    coverage_frac: float | None = None
    alternatives: tuple[Estimate, ...] = ()
    meters: tuple[MeterResult, ...] = ()


@dataclass(frozen=True)
class ThreadSlowdowns:
    """Slowdown of the co-run phase of each thread, with its 95 % interval; NaN for unmeasured threads."""

    thread: NDArray[np.int64]
    value: Floats
    low: Floats
    high: Floats


def matched(cycles: Table, *, n_windows: int, window_s: float, rng: np.random.Generator) -> PhaseSlowdown:
    """Slowdown of the co-run phase, T_co/T_solo, from the cycles seen in both phases.

    Parameters
    ----------
    cycles : Table
        Table "cycles" of a profile.
    n_windows : int
        Number of valid shutters from which the solo cycles come.
    window_s : float
        Mean length of these shutters, s.
    rng : numpy.random.Generator
        For the bootstrap.

    Returns
    -------
    PhaseSlowdown
        With a 95 % interval, or with the reason why there is no estimate.
    """
    if n_windows < MIN_SHUTTERS:
        return PhaseSlowdown(None, too_few(n_windows))
    cells = cells_of(cycles, n_windows)
    n_solo = cells.n_solo.sum(axis=1)
    n_cycles = int(n_solo[cells.n_corun.sum(axis=1) > 0].sum())
    if n_cycles < MIN_CYCLES:
        why = f"{n_cycles} cycles ended in shutters, {MIN_CYCLES} needed"
        return PhaseSlowdown(None, f"{why}; {SHARE_LONGER}")
    strata, groups = strata_of(cells), _used_groups(cells)
    if groups.n_groups < 2:
        return PhaseSlowdown(None, f"all cycles ended in one shutter in sixteen; {SHARE_LONGER}")
    cut_weight, min_half = _best_cut_weight(groups, strata, window_s)
    all_once = groups.weighted_sums(np.ones((1, groups.n_groups)))
    estimate = pooled_slowdowns(all_once, strata, window_s, cut_weight)
    coverage = 1.0 - float(estimate.prior_frac[0, 0])
    if coverage < MIN_COVERAGE:
        why = f"only {coverage:.0%} of its time is in cycles short enough to be seen in shutters"
        return PhaseSlowdown(None, f"{why}, {MIN_COVERAGE:.0%} needed; {MARK_UNITS}", coverage)
    value, low, high = _interval(groups, strata, window_s, cut_weight, min_half, rng)
    if np.log(high / low) > 2 * MAX_HALF_WIDTH:
        why = f"cycles are too uneven or rare: the interval's ends differ by a factor of {high / low:.1f}"
        return PhaseSlowdown(None, f"{why}; {SHARE_LONGER}, or {MARK_UNITS}", coverage)
    return PhaseSlowdown(Estimate(value, low, high, n_windows, "1", METHOD), "", coverage)


def too_few(n_windows: int, others: str = "") -> str:
    """Reason and remedy if too few shutters are valid; `others` counts the invalid shutters by verdict."""
    why = f"{counted(n_windows, 'valid shutter')}, {MIN_SHUTTERS} needed"
    refused = f" (not valid: {others})" if others else ""
    return f"{why}{refused}; {SHARE_LONGER}, or raise the co-runners' --shutter-duty-frac"


def by_thread(cycles: Table, *, n_windows: int, window_s: float) -> ThreadSlowdowns:
    """T_co/T_solo of each thread.

    The parameters are those of `matched`; the intervals come from the jackknife alone.
    """
    cells = cells_of(cycles, n_windows)
    strata, groups = strata_of(cells, cells.thread), _used_groups(cells)
    if not len(strata.scopes) or groups.n_groups < 2 or n_windows < MIN_SHUTTERS:
        return ThreadSlowdowns(strata.scopes, *np.full((3, len(strata.scopes)), np.nan))
    cut_weight, _ = _best_cut_weight(groups, strata_of(cells), window_s)
    all_once, each_left_out = np.ones((1, groups.n_groups)), 1.0 - np.eye(groups.n_groups)
    estimate = pooled_slowdowns(groups.weighted_sums(all_once), strata, window_s, cut_weight)
    replicates = pooled_slowdowns(groups.weighted_sums(each_left_out), strata, window_s, cut_weight)
    model = 2 * np.hypot(BURST_MODEL_ERROR, estimate.prior_frac[0] / np.sqrt(PRIOR_CYCLES))
    half = np.hypot(_jackknife(np.log(replicates.slowdown)), model)
    n_seen = strata.by_scope(strata.by_stratum(cells.n_solo.sum(axis=1)))
    usable = (1.0 - estimate.prior_frac[0] >= MIN_COVERAGE) & (n_seen >= MIN_CYCLES)
    value = np.where(usable, estimate.slowdown[0], np.nan)
    return ThreadSlowdowns(strata.scopes, value, value * np.exp(-half), value * np.exp(half))


def running_slowdowns(cycles: Table, *, n_windows: int, window_s: float) -> list[Estimate]:
    """The matched estimate from the first two groups of shutters, from three, and so on to all.

    With many kinds of cycles, every second step is left out to save time. The intervals come
    from the jackknife alone.
    """
    cells = cells_of(cycles, n_windows)
    strata, groups = strata_of(cells), _used_groups(cells)
    if groups.n_groups < 2:
        return []
    cut_weight, _ = _best_cut_weight(groups, strata, window_s)
    estimates = []
    step = 1 if len(strata.total_corun_s) <= _MANY_KINDS else 2
    for k in (*range(2, groups.n_groups, step), groups.n_groups):
        weights = np.zeros((1 + k, groups.n_groups))
        weights[:, :k] = np.concatenate([np.ones((1, k)), 1.0 - np.eye(k)])
        running = pooled_slowdowns(groups.weighted_sums(weights), strata, window_s, cut_weight)
        logs = np.log(running.slowdown[:, 0])
        model = 2 * np.hypot(BURST_MODEL_ERROR, running.prior_frac[0, 0] / np.sqrt(PRIOR_CYCLES))
        half = float(np.hypot(_jackknife(logs[1:]), model))
        n_used = round(n_windows * k / groups.n_groups)
        value, low, high = (float(np.exp(logs[0] + sign * half)) for sign in (0, -1, 1))
        estimates.append(Estimate(value, low, high, n_used, "1", METHOD))
    return estimates


@dataclass(frozen=True)
class PooledSlowdowns:
    """T_co/T_solo of each replicate and scope.

    `prior_frac` is the part of T_co for which `slowdown` rests on the prior.
    """

    slowdown: Floats
    prior_frac: Floats


def pooled_slowdowns(
    cells: Cells, strata: Strata, window_s: float, cut_weight: float = 0.0
) -> PooledSlowdowns:
    """T_co/T_solo of each replicate, from the slowdowns of the strata.

    A Gamma prior worth `PRIOR_CYCLES` completions shrinks strata with few completions towards the mean
    slowdown of their scope. So time that could not be measured is assumed to be slowed like the rest, and
    widens the interval. Co-run times and durations are known, not sampled, and therefore the same in every
    replicate. `_progress` explains `cut_weight`.
    """
    x_corun = strata.by_stratum(strata.total_corun_s)
    left, work = _progress(cells, strata, window_s, cut_weight)
    # Co-run time per completion of a stratum, weighted by the time spent in its cycles. It is at least the
    # time per completion seen, so that a stratum with few completions does not outweigh the prior.
    spent_s = strata.by_stratum(cells.solo_s)
    unit_s = strata.by_stratum(cells.solo_s * strata.mean_corun_s) / np.maximum(spent_s, 1e-300)
    unit_s = np.maximum(unit_s, spent_s / (strata.by_stratum(cells.n_solo) + 1))
    seen = unit_s > 0
    unit_s = np.where(seen, unit_s, 1.0)
    n_done = np.where(seen, np.maximum(strata.by_stratum(work), 0.0) / unit_s, 0.0)
    n_usual = np.where(seen, strata.by_stratum(left) / unit_s, 0.0)
    worth = (1.0 - cut_weight) * PRIOR_CYCLES + cut_weight * PRIOR_OF_CUT_CYCLES
    measured_s = n_usual / (n_usual + worth) * x_corun
    scope_corun_s = strata.by_scope(measured_s)
    scope_solo_s = strata.by_scope(measured_s * (1 + n_usual) / (1 + n_done))
    usable = scope_solo_s > 0
    scope_mean = np.where(usable, scope_corun_s, 1.0) / np.where(usable, scope_solo_s, 1.0)
    mean = scope_mean[..., strata.scope_of]
    prior = np.where(strata.is_own & (n_done > 0) & (n_usual > 0), 0.0, worth)
    solo_s = strata.by_scope(x_corun * (prior / mean + n_usual) / (prior + n_done))
    whole_s = strata.by_scope(x_corun)
    # Select by the completions expected: a threshold on the completions seen would favour lucky samples.
    assumed_s = strata.by_scope(x_corun * prior / np.maximum(prior + n_usual * mean, 1e-300))
    return PooledSlowdowns(whole_s / solo_s, assumed_s / whole_s)


def _progress(cells: Cells, strata: Strata, window_s: float, cut_weight: float) -> tuple[Floats, Floats]:
    """Solo time of each replicate and kind, and the work done in it, in seconds of co-run time.

    With `cut_weight` 0, the time is all time in windows, and the work is that of all cycles that ended there.
    With 1, only the end of each cycle that ended in a shutter counts: the time since the pause began, and the
    work that was left at that instant. Weights between 0 and 1 mix both.
    """
    all_s = np.maximum(cells.solo_s - edge_correction(cells, strata.mean_corun_s, window_s), 0.0)
    of_kind = np.where(np.isnan(strata.mean_uncut_s), 0.0, cut_weight)
    typical_s = (1.0 - of_kind) * strata.mean_corun_s + of_kind * np.nan_to_num(strata.mean_uncut_s)
    left = (1.0 - of_kind) * all_s + of_kind * cells.done_s
    return left, cells.n_solo * typical_s - of_kind * cells.before_s


def edge_correction(cells: Cells, mean_corun_s: Floats, window_s: float) -> Floats:
    """Time to subtract from `solo_s` if windows cut more cycles of a kind at one edge than at the other.

    A cycle that only begins or only ends in a window spends min(D, window)/2 there on average, where D
    is the solo duration of the kind. D solves ``solo_s - surplus * min(D, window) / 2 = n_solo * D``.
    """
    surplus = cells.n_start - cells.n_solo
    with np.errstate(divide="ignore", invalid="ignore"):
        long_s = (cells.solo_s - surplus * window_s / 2) / cells.n_solo
        short_s = cells.solo_s / (cells.n_solo + surplus / 2)
        solo_s = np.where(long_s >= window_s, window_s, np.minimum(short_s, window_s))
    solo_s = np.where(cells.n_solo > 0, solo_s, np.minimum(mean_corun_s, window_s))
    return surplus * solo_s / 2


def _interval(
    groups: Cells,
    strata: Strata,
    window_s: float,
    cut_weight: float,
    min_half: float,
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """Value and interval: the wider interval of bootstrap and jackknife over groups, plus model error.

    `min_half` is the least half width, in the logarithm.
    """
    n_groups = groups.n_groups

    def logarithms(weights: Floats, length_s: float = window_s) -> Floats:
        cells = groups.weighted_sums(weights)
        return np.log(pooled_slowdowns(cells, strata, length_s, cut_weight).slowdown[:, 0])

    all_once = np.ones((1, n_groups))
    value = float(logarithms(all_once)[0])
    below = above = max(min_half, float(_jackknife(logarithms(1.0 - np.eye(n_groups)))))
    if len(strata.total_corun_s) * N_REPLICATES <= _MAX_BOOTSTRAP_CELLS:
        picks = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), N_REPLICATES)
        ends = np.quantile(logarithms(picks.astype(float)), [0.025, 0.975])
        below, above = max(below, value - float(ends[0])), max(above, float(ends[1]) - value)
    edge = EDGE_ERROR * abs(value - float(logarithms(all_once, 0.0)[0]))
    estimate = pooled_slowdowns(groups.weighted_sums(all_once), strata, window_s, cut_weight)
    prior = float(estimate.prior_frac[0, 0]) / np.sqrt(PRIOR_CYCLES)
    settled = cut_weight * SETTLE_ERROR * _settle_frac(groups, window_s)
    model = 2 * float(np.sqrt(BURST_MODEL_ERROR**2 + edge**2 + prior**2 + settled**2))
    low, high = value - np.hypot(below, model), value + np.hypot(above, model)
    return float(np.exp(value)), float(np.exp(low)), float(np.exp(high))


def _settle_frac(groups: Cells, window_s: float) -> float:
    """Upper bound of the part of the cut cycles' solo time that lies between the pause and the window."""
    done_s, n_done = float(groups.done_s.sum()), float(groups.n_solo.sum())
    if done_s <= 0 or window_s <= 0:
        return 0.0
    return min(SETTLE_S, window_s / 3, done_s / n_done) / window_s


def _best_cut_weight(groups: Cells, strata: Strata, window_s: float) -> tuple[float, float]:
    """The weight for the time that cut cycles took before their shutter, and the least half width.

    If the cycles of a kind are alike, that time shows exactly how much work is left; if the cycles differ,
    that time is noise. So the weight with the smallest spread is used if its gain is large enough. The
    smallest of several spreads is biased downwards, so unless the gain is significant, the interval gets a
    least width.
    """
    left_out = groups.weighted_sums(1.0 - np.eye(groups.n_groups))
    slowdowns = [pooled_slowdowns(left_out, strata, window_s, weight).slowdown for weight in CUT_WEIGHTS]
    spreads = [float(_jackknife(np.log(slowdown))[0]) for slowdown in slowdowns]
    best = int(np.argmin(spreads))
    if groups.n_groups < MIN_GROUPS or spreads[best] >= MIN_GAIN * spreads[0]:
        return 0.0, 0.0
    return CUT_WEIGHTS[best], MIN_GAIN * spreads[0] if spreads[best] > CLEAR_GAIN * spreads[0] else 0.0


def _jackknife(left_out: Floats) -> Floats:
    """Half width of the 95 % interval, from estimates that each leave out one group (first axis)."""
    n_groups = len(left_out)
    variance = (n_groups - 1) / n_groups * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    return t_quantile(n_groups - 1) * np.sqrt(variance)


def _used_groups(cells: Cells) -> Cells:
    """The cells of the groups of shutters that have solo time; co-run times are taken from all groups."""
    used = cells.solo_s.sum(axis=0) > 0
    return cells.transform(lambda values: values[:, used])


def t_quantile(n_free: float) -> float:
    """The 97.5 % quantile of Student's t, accurate to 0.5 % from 6 degrees of freedom on."""
    return 1.96 + 2.37 / n_free + 2.8 / n_free**2


def burst_cycles(cycles: Table) -> Table:
    """The cycles that are bursts, not units of work that the application marks."""
    return cycles[cycles["from_site"] != UNIT_SITE]


def valid_windows(shutters: Table) -> tuple[int, float]:
    """Largest number of valid shutters on one node, and the mean length of all valid shutters, s."""
    valid = valid_shutters(shutters)
    if not len(valid):
        return 0, 0.0
    return int(np.bincount(valid["i_node"]).max()), float((valid["t1_ns"] - valid["t0_ns"]).mean()) * 1e-9
