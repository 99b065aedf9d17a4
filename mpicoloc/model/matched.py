"""The matched estimate: how much longer the same cycles take with co-runners than without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import PHASES, Table

METHOD = "burst-matched"
MIN_SHUTTERS = 8
"""Valid shutters below which there is no estimate."""
MIN_CYCLES = 12
"""Solo completions, all cycles together, below which there is no estimate."""
MIN_STRATUM = 30
"""Co-run durations of solo time that a kind of cycle needs for a slowdown of its own."""
MIN_SEEN = 8
"""And solo completions: a rare long wait of a cycle that is usually short tells nothing of it."""
N_OCTAVES = 64
"""Kinds of fewer completions are pooled by octaves of duration: long cycles must not drown short ones."""
PRIOR_CYCLES = 8.0
"""Completions that the prior of such a pool is worth: slowed like the whole job, give or take 35 %."""
PRIOR_TRUSTED = 1.0
"""The same where each completion tells by itself."""
MIN_COVERAGE = 0.6
"""Share of the time that must be measured, not supposed."""
N_GROUPS = 16
N_REPLICATES = 600
WIDEST = 0.5
"""Half of an interval, in the logarithm, above which an estimate is none."""
MODEL_ERROR = 0.0075
"""Relative standard error that no number of shutters removes."""
EDGE_ERROR = 0.25
"""The part of the edge correction that is itself uncertain."""
TRUSTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Weights tried of what cut cycles had taken before their shutter."""
WORTH = 0.8
"""A spread so much smaller is no luck."""
_MAX_BOOTSTRAP_CELLS = 12_000_000

_SITES = 1 << 12
_LANES = 1 << 5
_KEY = (("rank", 1), ("lane", _LANES), ("from_site", _SITES), ("to_site", _SITES), ("size_class", 1 << 8))
"""Columns that tell kinds of cycles apart, with room for their values."""

Array = NDArray[np.float64]


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


@dataclass(frozen=True)
class Cells:
    """Number and time of cycles, co-run and solo, per kind of cycle (row) and group of shutters (column).

    `n_start` cycles of the kind began in solo windows. Those that ended there took `done` from the begin of
    the pause on, and `before` until then. `n_whole` cycles, of time `whole`, met no shutter; `thread` tells
    whose they are.
    """

    n_corun: Array
    x_corun: Array
    n_solo: Array
    x_solo: Array
    n_start: Array
    done: Array
    before: Array
    n_whole: Array
    whole: Array
    thread: NDArray[np.int64]

    def each(self, change: Callable[[Array], Array]) -> Cells:
        """The same change made to all numbers and times."""
        names = ("n_corun", "x_corun", "n_solo", "x_solo", "n_start", "done", "before", "n_whole", "whole")
        return Cells(**{name: change(getattr(self, name)) for name in names}, thread=self.thread)

    def weighted(self, weights: Array) -> Cells:
        """Sums over groups, each group counted `weights[replicate, group]` times: (replicate, kind)."""
        return self.each(lambda values: weights @ values.T)

    @property
    def n_groups(self) -> int:
        """Groups of shutters."""
        return self.n_corun.shape[1]


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
    matched_kinds = (n_solo > 0) & (cells.n_corun.sum(axis=1) > 0)
    n_cycles = int(n_solo[matched_kinds].sum())
    if n_cycles < MIN_CYCLES:
        return Matched(None, f"{n_cycles} cycles ended in shutters, {MIN_CYCLES} needed")
    kinds, groups = kinds_of(cells), _used_groups(cells)
    if groups.n_groups < 2:
        return Matched(None, "all cycles ended in one shutter in sixteen")
    trust = _trust(groups, kinds, window_s)
    whole = slowdown_of(groups.weighted(np.ones((1, groups.n_groups))), kinds, window_s, trust)
    coverage = 1.0 - float(whole.prior_frac[0, 0])
    if coverage < MIN_COVERAGE:
        why = f"only {coverage:.0%} of its time is in cycles short enough to be seen in shutters"
        return Matched(None, f"{why}, {MIN_COVERAGE:.0%} needed", coverage)
    value, low, high = _interval(groups, kinds, window_s, trust, rng)
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
    trust = _trust(groups, kinds_of(cells), window_s)
    whole = slowdown_of(groups.weighted(np.ones((1, groups.n_groups))), kinds, window_s, trust)
    left_out = slowdown_of(groups.weighted(1.0 - np.eye(groups.n_groups)), kinds, window_s, trust)
    model = 2 * np.hypot(MODEL_ERROR, whole.prior_frac[0] / np.sqrt(PRIOR_CYCLES))
    half = np.hypot(_jackknife(np.log(left_out.slowdown)), model)
    n_seen = kinds.by_part(kinds.by_stratum(cells.n_solo.sum(axis=1)))
    usable = (1.0 - whole.prior_frac[0] >= MIN_COVERAGE) & (n_seen >= MIN_CYCLES)
    value = np.where(usable, whole.slowdown[0], np.nan)
    return Parts(kinds.parts, value, value * np.exp(-half), value * np.exp(half))


def kind_keys(cycles: Table) -> NDArray[np.uint64]:
    """A number for each row, the same for cycles of one kind."""
    key = np.zeros(len(cycles), dtype=np.uint64)
    for name, n_values in _KEY:
        key *= np.uint64(n_values)
        key += cycles[name].astype(np.uint64)
    return key


def threads_of(rows: Table) -> NDArray[np.int64]:
    """The thread of each row, as a number."""
    result: NDArray[np.int64] = rows["rank"].astype(np.int64) * _LANES + rows["lane"]
    return result


def collect(cycles: Table, n_windows: int) -> Cells:
    """Cells by kind: the same rank, thread, call sites and size class."""
    shared = cycles["phase"] != PHASES.index("alone")
    used = cycles if shared.all() else cycles[shared]
    _, first, kind = np.unique(kind_keys(used), return_index=True, return_inverse=True)
    shape = (2, len(first), N_GROUPS)
    # PHASES begins with co-run and solo, so the phase is the first index.
    cell = (used["phase"].astype(np.int64) * len(first) + kind) * N_GROUPS + used["group"] % N_GROUPS
    spent_ns = np.zeros(len(used))
    spent_ns += used["comp_ns"]
    spent_ns += used["mpi_ns"]
    n = np.bincount(cell, used["n"], minlength=int(np.prod(shape))).reshape(shape)
    x = np.bincount(cell, spent_ns, minlength=int(np.prod(shape))).reshape(shape) * 1e-9
    starts = _starts(used[first], n.sum(axis=(0, 2)), n[1])
    # A window cuts one cycle at each edge, so starts and ends of a kind differ by no more than the windows.
    n_most = -(-n_windows // N_GROUPS)
    starts = n[1] + np.clip(starts - n[1], -n_most, n_most)
    n_cut, cut, done = (
        np.bincount(cell, used[name], minlength=n.size).reshape(shape)
        for name in ("n_cut", "cut_ns", "done_ns")
    )
    whole = np.maximum(n[0] - n_cut[0], 0.0), np.maximum(x[0] - cut[0] * 1e-9, 0.0)
    return Cells(n[0], x[0], n[1], x[1], starts, done[1] * 1e-9, cut[1] * 1e-9, *whole, threads_of(used[first]))


def _starts(kinds: Table, n_total: Array, n_solo: Array) -> Array:
    """Cycles begun in solo windows: as many leave a site as arrive there, shared out as in the whole run."""
    thread = threads_of(kinds)
    sites = np.concatenate([thread * _SITES + kinds["from_site"], thread * _SITES + kinds["to_site"]])
    unique, site = np.unique(sites, return_inverse=True)
    from_site, to_site = site[: len(kinds)], site[len(kinds) :]
    leaving = np.bincount(from_site, n_total, minlength=len(unique))
    share = n_total / np.maximum(leaving[from_site], 1)
    arrived = np.zeros((len(unique), N_GROUPS))
    np.add.at(arrived, to_site, n_solo)
    return arrived[from_site] * share[:, None]


@dataclass(frozen=True)
class Kinds:
    """What is known of each kind from the whole run: its stratum, co-run time and mean co-run duration, s.

    `whole_s` is the mean duration of those that met no shutter.

    A kind of which enough cycles ended in shutters is a stratum of its own; the others share that of their
    octave of duration, which each part of the job has for itself. `order` sorts the kinds seen in co-run by
    part and stratum; a stratum begins at each of `starts` there, and a part at the strata `part_starts`.
    """

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    part_starts: NDArray[np.intp]
    parts: NDArray[np.int64]
    is_own: NDArray[np.bool_]
    total_s: Array
    corun_s: Array
    whole_s: Array

    def by_stratum(self, values: Array) -> Array:
        """Sums over the kinds of each stratum: the last axis."""
        result: Array = np.add.reduceat(values[..., self.order], self.starts, axis=-1)
        return result

    def by_part(self, values: Array) -> Array:
        """Sums over the strata of each part: the last axis."""
        result: Array = np.add.reduceat(values, self.part_starts, axis=-1)
        return result

    @property
    def part_of(self) -> NDArray[np.intp]:
        """The part of each stratum, as an index into `parts`."""
        n_strata = np.diff(np.append(self.part_starts, len(self.starts)))
        result: NDArray[np.intp] = np.repeat(np.arange(len(self.parts)), n_strata)
        return result


def kinds_of(cells: Cells, part: NDArray[np.int64] | None = None) -> Kinds:
    """Strata and co-run durations from the sums over all groups; `part` of each kind: none, all in one."""
    n, total_s = cells.n_corun.sum(axis=1), cells.x_corun.sum(axis=1)
    known = n > 0
    total_s = np.where(known, total_s, 0.0)
    corun_s = total_s / np.where(known, n, 1.0)
    n_whole, whole_s = cells.n_whole.sum(axis=1), cells.whole.sum(axis=1)
    whole_s = np.where(n_whole > 0, whole_s / np.maximum(n_whole, 1.0), corun_s)
    octave = np.clip(np.log2(np.maximum(corun_s, 1e-9)) + N_OCTAVES // 2, 0, N_OCTAVES - 1)
    # By what its time in shutters would usually hold: choosing by what it did hold would favour luck.
    own = known & (cells.x_solo.sum(axis=1) >= MIN_STRATUM * corun_s) & (cells.n_solo.sum(axis=1) >= MIN_SEEN)
    stratum = np.where(own, N_OCTAVES + np.arange(len(n)), octave.astype(np.int64))
    part = np.zeros(len(n), np.int64) if part is None else part
    order = np.lexsort((stratum, part))
    order = order[known[order]]
    steps = (np.diff(part[order], prepend=-1) != 0) | (np.diff(stratum[order], prepend=-1) != 0)
    starts = np.flatnonzero(steps)
    firsts = part[order][starts]
    part_starts = np.flatnonzero(np.diff(firsts, prepend=-1) != 0)
    return Kinds(
        order, starts, part_starts, firsts[part_starts], own[order][starts], total_s, corun_s, whole_s
    )


@dataclass(frozen=True)
class Combined:
    """T_co/T_solo of each replicate and part, and the share of T_co that rests on the prior."""

    slowdown: Array
    prior_frac: Array


def slowdown_of(cells: Cells, kinds: Kinds, window_s: float, trust: float = 0.0) -> Combined:
    """T_co/T_solo of each replicate, from the slowdowns of the strata.

    Pools of few completions are drawn towards their part's mean slowdown, by a Gamma prior worth
    `PRIOR_CYCLES` completions: what could not be measured counts as slowed like the rest, and widens the
    interval. Co-run times and durations are known, not sampled, and so the same for every replicate.
    """
    x_corun = kinds.by_stratum(kinds.total_s)
    all_s = np.maximum(cells.x_solo - edge_correction(cells, kinds.corun_s, window_s), 0.0)
    left = (1.0 - trust) * all_s + trust * cells.done
    typical_s = (1.0 - trust) * kinds.corun_s + trust * kinds.whole_s
    work = cells.n_solo * typical_s - trust * cells.before
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
    groups: Cells, kinds: Kinds, window_s: float, trust: float, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Value and interval: the wider of bootstrap and jackknife over groups, plus model error."""
    n_groups = groups.n_groups

    def logarithms(weights: Array, length_s: float = window_s) -> Array:
        result: Array = np.log(slowdown_of(groups.weighted(weights), kinds, length_s, trust).slowdown[:, 0])
        return result

    everything = np.ones((1, n_groups))
    value = float(logarithms(everything)[0])
    below = above = float(_jackknife(logarithms(1.0 - np.eye(n_groups))))
    if len(kinds.total_s) * N_REPLICATES <= _MAX_BOOTSTRAP_CELLS:
        picks = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), N_REPLICATES)
        ends = np.quantile(logarithms(picks.astype(float)), [0.025, 0.975])
        below, above = max(below, value - float(ends[0])), max(above, float(ends[1]) - value)
    edge = EDGE_ERROR * abs(value - float(logarithms(everything, 0.0)[0]))
    supposed = float(slowdown_of(groups.weighted(everything), kinds, window_s, trust).prior_frac[0, 0])
    prior = supposed / np.sqrt(PRIOR_CYCLES)
    model = 2 * float(np.sqrt(MODEL_ERROR**2 + edge**2 + prior**2))
    low, high = value - np.hypot(below, model), value + np.hypot(above, model)
    return float(np.exp(value)), float(np.exp(low)), float(np.exp(high))


def _trust(groups: Cells, kinds: Kinds, window_s: float) -> float:
    """How far to reckon with what cut cycles had taken before their shutter.

    That is exact where cycles of a kind are alike, and noise where they are not, or others take turns with
    them.
    """
    left_out = groups.weighted(1.0 - np.eye(groups.n_groups))
    spreads = [
        float(_jackknife(np.log(slowdown_of(left_out, kinds, window_s, trust).slowdown))[0])
        for trust in TRUSTS
    ]
    best = int(np.argmin(spreads))
    return TRUSTS[best] if spreads[best] < WORTH * spreads[0] else 0.0


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
