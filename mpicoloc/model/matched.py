"""The matched estimate: how much longer the same cycles take with co-runners than without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import PHASES, Table

METHOD = "burst-matched"
MIN_SHUTTERS = 8
"""Valid shutters below which there is no estimate."""
MIN_CYCLES = 30
"""Solo completions, all cycles together, below which there is no estimate."""
MIN_STRATUM = 30
"""Co-run durations of solo time that a kind of cycle needs for a slowdown of its own."""
MIN_SEEN = 8
"""And solo completions: a rare long wait of a cycle that is usually short tells nothing of it."""
N_OCTAVES = 64
"""Kinds of fewer completions are pooled by octaves of duration: long cycles must not drown short ones."""
PRIOR_CYCLES = 8.0
"""Completions that the prior of such a pool is worth: slowed like the whole job, give or take 35 %."""
MIN_COVERAGE = 0.6
"""Share of the time that must be measured, not supposed."""
N_GROUPS = 16
N_REPLICATES = 600
MODEL_ERROR = 0.005
"""Relative standard error that no number of shutters removes."""
EDGE_ERROR = 0.25
"""The part of the edge correction that is itself uncertain."""
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
class Cells:
    """Number and time of cycles, co-run and solo, per kind of cycle (row) and group of shutters (column).

    `n_start` counts how many cycles of the kind began in solo windows.
    """

    n_corun: Array
    x_corun: Array
    n_solo: Array
    x_solo: Array
    n_start: Array

    def weighted(self, weights: Array) -> Cells:
        """Sums over groups, each group counted `weights[replicate, group]` times: (replicate, kind)."""
        names = ("n_corun", "x_corun", "n_solo", "x_solo", "n_start")
        return Cells(*(weights @ getattr(self, name).T for name in names))


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
    whole = slowdown_of(cells.weighted(np.ones((1, N_GROUPS))), kinds_of(cells), window_s)
    coverage = 1.0 - float(whole.prior_frac[0])
    if coverage < MIN_COVERAGE:
        why = f"only {coverage:.0%} of its time is in cycles short enough to be seen in shutters"
        return Matched(None, f"{why}, {MIN_COVERAGE:.0%} needed", coverage)
    ends = _interval(cells, window_s, rng)
    return Matched(Estimate(*ends, n_windows, "1", METHOD), "", coverage)


def collect(cycles: Table, n_windows: int) -> Cells:
    """Cells by kind: the same rank, thread, call sites and size class."""
    shared = cycles["phase"] != PHASES.index("alone")
    used = cycles if shared.all() else cycles[shared]
    key = np.zeros(len(used), dtype=np.uint64)
    for name, n_values in _KEY:
        key *= np.uint64(n_values)
        key += used[name].astype(np.uint64)
    _, first, kind = np.unique(key, return_index=True, return_inverse=True)
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
    return Cells(n_corun=n[0], x_corun=x[0], n_solo=n[1], x_solo=x[1], n_start=starts)


def _starts(kinds: Table, n_total: Array, n_solo: Array) -> Array:
    """Cycles begun in solo windows: as many leave a site as arrive there, shared out as in the whole run."""
    thread = kinds["rank"].astype(np.int64) * _LANES + kinds["lane"]
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
    """What is known of each kind from the whole run: stratum, co-run time and mean co-run duration, s.

    A kind of which enough cycles ended in shutters is a stratum of its own; the others share that of their
    octave of duration, the first `N_OCTAVES` strata. Kinds never seen in co-run have none (-1).
    """

    stratum: NDArray[np.int64]
    total_s: Array
    corun_s: Array

    @property
    def known(self) -> NDArray[np.bool_]:
        """Seen in co-run."""
        result: NDArray[np.bool_] = self.stratum >= 0
        return result

    @property
    def members(self) -> Array:
        """1 where a kind (row) belongs to a stratum (column)."""
        n_strata = max(N_OCTAVES, int(self.stratum.max(initial=-1)) + 1)
        result = np.zeros((len(self.stratum), n_strata))
        result[np.flatnonzero(self.known), self.stratum[self.known]] = 1.0
        return result


def kinds_of(cells: Cells) -> Kinds:
    """Strata and co-run durations from the sums over all groups."""
    n, total_s = cells.n_corun.sum(axis=1), cells.x_corun.sum(axis=1)
    known = n > 0
    corun_s = np.where(known, total_s, 0.0) / np.where(known, n, 1.0)
    octave = np.clip(np.log2(np.maximum(corun_s, 1e-9)) + N_OCTAVES // 2, 0, N_OCTAVES - 1)
    # By what its time in shutters would usually hold: choosing by what it did hold would favour luck.
    own = known & (cells.x_solo.sum(axis=1) >= MIN_STRATUM * corun_s) & (cells.n_solo.sum(axis=1) >= MIN_SEEN)
    stratum = np.where(own, N_OCTAVES + np.cumsum(own) - 1, octave.astype(np.int64))
    return Kinds(np.where(known, stratum, -1), np.where(known, total_s, 0.0), corun_s)


@dataclass(frozen=True)
class Combined:
    """T_co/T_solo of each replicate, the share of T_co that rests on the prior, and the prior's spread.

    The spread is relative, one standard deviation: that of the strata with a slowdown of their own.
    """

    slowdown: Array
    prior_frac: Array
    spread: Array


def slowdown_of(cells: Cells, kinds: Kinds, window_s: float) -> Combined:
    """T_co/T_solo of each replicate, from the slowdowns of the strata.

    Pools of few completions are drawn towards the job's mean slowdown, by a Gamma prior worth `PRIOR_CYCLES`
    completions: what could not be measured counts as slowed like the rest, and widens the interval. Co-run
    times and durations are known, not sampled, and so the same for every replicate.
    """
    members, x_corun = kinds.members, kinds.total_s @ kinds.members
    spent = np.where(kinds.known, cells.x_solo, 0.0)
    left = np.maximum(spent - edge_correction(cells, kinds.known, kinds.corun_s, window_s), 0.0)
    # One completion of a stratum stands for so much co-run time; long cycles weigh by the time spent in them.
    # Nothing is known better than its number of completions tells, however short its cycles usually are.
    spent_s = spent @ members
    unit_s = (spent * kinds.corun_s) @ members / np.maximum(spent_s, 1e-300)
    unit_s = np.maximum(unit_s, spent_s / (cells.n_solo @ members + 1))
    seen = unit_s > 0
    unit_s = np.where(seen, unit_s, 1.0)
    n_done = np.where(seen, (cells.n_solo * kinds.corun_s) @ members / unit_s, 0.0)
    n_usual = np.where(seen, left @ members / unit_s, 0.0)
    trust = n_usual / (n_usual + PRIOR_CYCLES) * x_corun
    trusted_solo_s = (trust * (1 + n_usual) / (1 + n_done)).sum(axis=-1)
    mean = np.where(trusted_solo_s > 0, trust.sum(axis=-1) / np.maximum(trusted_solo_s, 1e-300), 1.0)[:, None]
    is_own = (np.arange(len(x_corun)) >= N_OCTAVES) & (n_done > 0) & (n_usual > 0)
    prior = np.where(is_own, 0.0, PRIOR_CYCLES)
    solo_s = x_corun * (prior / mean + n_usual) / (prior + n_done)
    total_s = solo_s.sum(axis=-1)
    # By the ends to be expected, not by those seen: who asks for enough of these favours luck.
    prior_frac = (x_corun * prior / np.maximum(prior + n_usual * mean, 1e-300)).sum(axis=-1) / x_corun.sum()
    ratio = np.where(is_own, x_corun, 1.0) / np.where(is_own, solo_s, 1.0)
    return Combined(x_corun.sum() / total_s, prior_frac, _spread(is_own * x_corun, np.log(ratio)))


def _spread(weights: Array, logarithms: Array) -> Array:
    """Standard deviation along the last axis, at least that of the prior alone."""
    total = np.maximum(weights.sum(axis=-1), 1e-300)
    mean = (weights * logarithms).sum(axis=-1) / total
    variance = (weights * (logarithms - mean[:, None]) ** 2).sum(axis=-1) / total
    result: Array = np.sqrt(np.maximum(variance, 1 / PRIOR_CYCLES))
    return result


def edge_correction(cells: Cells, known: NDArray[np.bool_], corun_s: Array, window_s: float) -> Array:
    """Time to take off x_solo because windows cut more cycles of a kind at one edge than at the other.

    A cycle that only begins or only ends in a window spends min(D, window)/2 there on average, D being its
    solo duration, which solves x_solo - surplus * min(D, window) / 2 = n_solo * D.
    """
    surplus = np.where(known, cells.n_start - cells.n_solo, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        long_s = (cells.x_solo - surplus * window_s / 2) / cells.n_solo
        short_s = cells.x_solo / (cells.n_solo + surplus / 2)
        solo_s = np.where(long_s >= window_s, window_s, np.minimum(short_s, window_s))
    solo_s = np.where(cells.n_solo > 0, solo_s, np.minimum(corun_s, window_s))
    result: Array = surplus * solo_s / 2
    return result


def _interval(cells: Cells, window_s: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """Value and interval: the wider of bootstrap and jackknife over groups, plus model error."""
    kinds, groups = kinds_of(cells), _used_groups(cells)
    n_groups = groups.x_corun.shape[1]

    def logarithms(weights: Array, length_s: float = window_s) -> Array:
        result: Array = np.log(slowdown_of(groups.weighted(weights), kinds, length_s).slowdown)
        return result

    everything = np.ones((1, n_groups))
    value = float(logarithms(everything)[0])
    left_out = logarithms(1.0 - np.eye(n_groups))
    error = float(np.sqrt((n_groups - 1) / n_groups * ((left_out - left_out.mean()) ** 2).sum()))
    below = above = t_quantile(n_groups - 1) * error
    if len(kinds.stratum) * N_REPLICATES <= _MAX_BOOTSTRAP_CELLS:
        picks = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), N_REPLICATES)
        ends = np.quantile(logarithms(picks.astype(float)), [0.025, 0.975])
        below, above = max(below, value - float(ends[0])), max(above, float(ends[1]) - value)
    edge = EDGE_ERROR * abs(value - float(logarithms(everything, 0.0)[0]))
    prior = float(slowdown_of(groups.weighted(everything), kinds, window_s).prior_frac[0]) / np.sqrt(
        PRIOR_CYCLES
    )
    model = 2 * float(np.sqrt(MODEL_ERROR**2 + edge**2 + prior**2))
    low, high = value - np.hypot(below, model), value + np.hypot(above, model)
    return float(np.exp(value)), float(np.exp(low)), float(np.exp(high))


def _used_groups(cells: Cells) -> Cells:
    used = cells.x_solo.sum(axis=0) + cells.x_corun.sum(axis=0) > 0
    return Cells(*(getattr(cells, name)[:, used] for name in vars(cells)))


def t_quantile(n_free: int) -> float:
    """Student's t, 97.5 %, to within 0.5 % from 6 degrees of freedom on."""
    return 1.96 + 2.37 / n_free + 2.8 / n_free**2
