"""Slowdown of a program whose co-runner is stopped and continued in turn, from when its steps ended.

Let S be the slowdown. In solo time (the program's own, were it alone) a second without co-runner is a second,
one beside it 1/S. A step that straddles a switch is divided over both states by solo time, not by time: that
would pull the result towards 1. So S has to be known to divide the steps, and the steps to find S: it is
iterated until both agree. This finds S without bias if the steps' work does not depend on when the co-runner
was switched, also with steps longer than a state lasts (then with a wider interval).

Rates are compared within strata, which are combined so as to give the slowdown of the whole run: stretches of
neighbouring states for steps of one kind, because the work of a step and the speed of the host drift; for
steps of several kinds (the parts of HPCC) all steps of a kind. The interval is a jackknife over pairs of
neighbouring states.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import t as students_t

GUARD_S = 0.06
"""After a switch: caches and memory still have the other state's contents."""
STEPS_PER_STRATUM, RATIO_VARIANCE = 10, 0.002
"""In each state of a stratum there are so many steps, and as many more as bring the ratio's relative
variance, by the spread of single steps, below this: a noisy ratio is too large on average."""
MIN_PAIRS, MIN_STEPS = 5, 20
MAX_RATE = 1000.0
"""Steps per s that are kept; of more every nth will do."""


@dataclass(frozen=True)
class Run:
    """One toggled run: times in s on one clock.

    `events`: ends of steps; `kinds`: of the step that ends at each, as small integers; `windows`: rows of
    begin, end and whether the co-runner ran, in order and without its guard time. `solo`: rows of begin and
    end of times in which the co-runner stood still in any case (shutters of the program), in order; they are
    left out.
    """

    events: np.ndarray
    kinds: np.ndarray
    windows: np.ndarray
    solo: np.ndarray = field(default_factory=lambda: np.empty((0, 2)))


@dataclass(frozen=True)
class Pieces:
    """The time of all runs, cut at the ends of steps and of windows.

    `pair` is -1 in the guard time, and where a window has no neighbour of the other state.
    """

    length_s: np.ndarray
    beside: np.ndarray
    step: np.ndarray
    kind: np.ndarray
    pair: np.ndarray


def thinned(events, kinds):
    """Every nth step, if there are more than needed: work of n steps is then a step."""
    every = math.ceil(len(events) / max(1e-9, MAX_RATE * np.ptp(events))) if len(events) > 1 else 1
    return events[::every], kinds[::every]


def pieces_of(runs):
    """All runs cut into pieces, steps and pairs numbered through."""
    parts, n_steps, n_pairs = [], 0, 0
    for run in runs:
        part, n_steps, n_pairs = _pieces(run, n_steps, n_pairs)
        parts.append(part)
    return Pieces(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _pieces(run, first_step, first_pair):
    begin, end, beside = run.windows[:, 0], run.windows[:, 1], run.windows[:, 2] > 0
    inside = (begin >= run.events[0]) & (end <= run.events[-1])
    pair_of, n_pairs = _pairs(beside, inside)
    edges = np.unique(np.concatenate([run.events, begin, end, run.solo.ravel()]))
    edges = edges[(edges >= max(run.events[0], begin[0])) & (edges <= run.events[-1])]
    middle = (edges[1:] + edges[:-1]) / 2
    # Guard time has the state of the window behind it.
    window = np.minimum(np.searchsorted(end, middle), len(end) - 1)
    in_window = (middle > begin[window]) & (middle < end[window])
    step, is_solo = np.searchsorted(run.events, middle), _is_in(run.solo, middle)
    is_used = in_window & (pair_of[window] >= 0) & ~is_solo
    pair = np.where(is_used, pair_of[window] + first_pair, -1)
    part = (np.diff(edges), beside[window] & ~is_solo, step + first_step, run.kinds[step], pair)
    return part, first_step + len(run.events), first_pair + n_pairs


def _is_in(intervals, times):
    """Whether each time lies in one of the intervals, which are in order and do not overlap."""
    if not len(intervals):
        return np.zeros(len(times), bool)
    i = np.searchsorted(intervals[:, 0], times) - 1
    return (i >= 0) & (times < intervals[np.maximum(i, 0), 1])


def _pairs(beside, inside):
    """Number of the pair of each window, -1 for none.

    The state that comes first in a pair changes in the middle: a drift over the run cancels.
    """
    pair_of, n, i, turned = np.full(len(beside), -1), 0, 0, False
    while i + 1 < len(beside):
        if not turned and i >= len(beside) // 2:
            i, turned = i + 1, True
            continue
        if inside[i] and inside[i + 1] and beside[i] != beside[i + 1]:
            pair_of[i : i + 2], n, i = n, n + 1, i + 2
        else:
            i += 1
    return pair_of, n


def counts(pieces, slowdowns):
    """Steps done in each piece, a step divided by solo time; `slowdowns` by kind."""
    solo_s = np.where(pieces.beside, pieces.length_s / slowdowns[pieces.kind], pieces.length_s)
    total_s = np.bincount(pieces.step, solo_s)
    return solo_s / total_s[pieces.step]


def _slowdown_of(time_s, done):
    """Of strata; rows are without and beside the co-runner."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return (done[0] / time_s[0]) / (done[1] / time_s[1])


def _sums(pieces, stratum, chosen, weights):
    """Row 0: without, row 1: beside the co-runner, a column for each stratum."""
    n = int(stratum.max()) + 1
    return np.stack([np.bincount(stratum[rows], weights[rows], n)
                     for rows in (chosen & ~pieces.beside, chosen & pieces.beside)])  # fmt: skip


def _by_kind(pieces, chosen, start):
    """Slowdown of each kind of step, and what each piece has done at it."""
    slowdowns = start.copy()
    for _ in range(200):
        done = counts(pieces, slowdowns)
        found = _slowdown_of(_sums(pieces, pieces.kind, chosen, pieces.length_s),
                             _sums(pieces, pieces.kind, chosen, done))  # fmt: skip
        found = np.where(np.isfinite(found) & (found > 0), found, slowdowns)
        near = np.allclose(found, slowdowns, rtol=1e-5)
        slowdowns = found
        if near:
            break
    return slowdowns, counts(pieces, slowdowns)


def _relative_variance(pieces, by_kind):
    """Of the steps' work."""
    solo_s = np.where(pieces.beside, pieces.length_s / by_kind[pieces.kind], pieces.length_s)
    works = np.bincount(pieces.step, solo_s)
    works = works[works > 0]
    return float(works.var() / works.mean() ** 2)


def _strata(pieces, chosen, by_kind):
    """Kinds, or if there is one only, stretches of neighbouring pairs with enough steps."""
    if len(np.unique(pieces.kind[chosen])) > 1:
        return pieces.kind
    n_pairs = len(np.unique(pieces.pair[chosen]))
    steps_per_pair = len(np.unique(pieces.step[chosen])) / n_pairs / 2
    steps = max(STEPS_PER_STRATUM, 2 * _relative_variance(pieces, by_kind) / RATIO_VARIANCE)
    per_stratum = max(1, math.ceil(steps / max(steps_per_pair, 1e-9)))
    n_strata = max(1, n_pairs // per_stratum)
    return np.maximum(pieces.pair, 0) * n_strata // (int(pieces.pair.max()) + 1)


def _combined(time_s, slowdowns):
    """T_co over T_solo of the work done in all strata, in both states."""
    known = np.isfinite(slowdowns) & (slowdowns > 0)
    alone_s, beside_s = time_s[:, known]
    each = slowdowns[known]
    return float(np.sum(alone_s * each + beside_s) / np.sum(alone_s + beside_s / each))


def _value(pieces, chosen, start):
    by_kind, done = _by_kind(pieces, chosen, start)
    stratum = _strata(pieces, chosen, by_kind)
    time_s = _sums(pieces, stratum, chosen, pieces.length_s)
    slowdowns = _slowdown_of(time_s, _sums(pieces, stratum, chosen, done))
    if stratum is not pieces.kind and not np.all(np.isfinite(slowdowns) & (slowdowns > 0)):
        return float(by_kind[pieces.kind[chosen][0]]), by_kind
    return _combined(time_s, slowdowns), by_kind


def slowdown(runs):
    """Value, low and high (95 %), pairs and steps, by kind of step too.

    Raises
    ------
    ValueError
        If too few pairs of states have steps around them, or there are too few steps.
    """
    pieces = pieces_of(runs)
    chosen = pieces.pair >= 0
    pairs = np.unique(pieces.pair[chosen])
    if len(pairs) < MIN_PAIRS:
        raise ValueError(f"{len(pairs)} pairs of states lie within the program's steps, {MIN_PAIRS} needed")
    n_steps = len(np.unique(pieces.step[chosen]))
    if n_steps < MIN_STEPS:
        raise ValueError(f"{n_steps} steps were seen, {MIN_STEPS} needed")
    value, by_kind = _value(pieces, chosen, np.ones(int(pieces.kind.max()) + 1))
    left = np.log([_value(pieces, chosen & (pieces.pair != pair), by_kind)[0] for pair in pairs])
    n = len(pairs)
    spread = math.sqrt((n - 1) / n * np.sum((left - left.mean()) ** 2))
    half = float(students_t.ppf(0.975, n - 1)) * spread
    return {"value": value, "low": value * math.exp(-half), "high": value * math.exp(half), "n_pairs": n,
            "n_steps": n_steps, "kinds": by_kind.tolist()}  # fmt: skip


def window_counts(runs, result):
    """For each run a row for each of its windows: begin and end (s since its first), beside, steps done."""
    return [_window_counts(run, np.asarray(result["kinds"])) for run in runs]


def _window_counts(run, by_kind):
    clock_s = np.unique(np.concatenate([run.windows[:, :2].ravel(), run.events]))
    middle = (clock_s[1:] + clock_s[:-1]) / 2
    window = np.minimum(np.searchsorted(run.windows[:, 1], middle), len(run.windows) - 1)
    kind = run.kinds[np.minimum(np.searchsorted(run.events, middle), len(run.events) - 1)]
    pace = np.where(run.windows[window, 2] > 0, 1 / by_kind[kind], 1.0)
    solo_s = np.concatenate([[0.0], np.cumsum(np.diff(clock_s) * pace)])
    at_event_s = np.interp(run.events, clock_s, solo_s)
    done = np.interp(np.interp(run.windows[:, :2], clock_s, solo_s), at_event_s, np.arange(len(at_event_s)))
    first_s = run.windows[0, 0]
    rows = zip(run.windows, done[:, 1] - done[:, 0], strict=True)
    return [[*(round(float(x), 4) for x in (begin - first_s, end - first_s)), int(beside), round(float(n), 4)]
            for (begin, end, beside), n in rows]  # fmt: skip
