"""The count estimate: compares passes per second of many places of the program with and without co-runners.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import (
    BEFORE_WINDOWS,
    COUNT_WINDOWS,
    N_SHUTTER_GROUPS,
    Estimate,
    Floats,
    Table,
    valid_shutters,
)
from mpicoloc.core.units import counted
from mpicoloc.measure.burst import MARK_UNITS, SHARE_LONGER, PhaseSlowdown, t_quantile

# Work done in each window, from the number of passes through many places and the samples near them.

MAX_PLACES = 8
"""Largest number of places to whose passes the fit ascribes far time, the time far from all places."""


def near_frac(rows: Table) -> Floats:
    """Part of the job's time outside MPI that is near counted places, by shutter and window.

    Each window gets one more sample, half of it near the places: a window may have no samples. A shutter
    without samples gets the mean of the others, or 1 if no shutter has samples.
    """
    n_all, n_near = (
        np.stack([rows[f"{when}_{what}"] for when in COUNT_WINDOWS], axis=1).astype(float)
        for what in ("samples", "near")
    )
    is_known = n_all.sum(axis=1, keepdims=True) > 0
    mean = n_near.sum() / n_all.sum() if is_known.any() else 1.0
    return np.where(is_known, (n_near + 0.5) / (n_all + 1.0), mean)


def far_with_passes(
    passes: Floats, far_ns: Floats, length_ns: Floats, weight: Floats, n_free: int
) -> tuple[Floats, float]:
    """Time far from all places, split into a part proportional to passes and a constant part.

    If a loop calls functions that are not counted, or spends time in the kernel for memory, far time rises
    and falls with the loop's passes. The split is by least squares: places are added one by one, as long as
    the next place explains enough of the variance.

    Result: far time per pass of each place, ns, and the constant part as a fraction of all time.
    """
    slopes = np.zeros(passes.shape[1])
    if weight.sum() <= 0:
        return slopes, 0.0
    weight = weight / weight.sum()
    mean = over(weight @ passes, weight @ length_ns)
    pace, far_frac = over(passes, length_ns[:, None] * mean), over(far_ns, length_ns)
    mean_far = float(weight @ far_frac)
    chosen, factors = _fitted(pace - weight @ pace, far_frac - mean_far, weight, n_free)
    slopes[chosen] = factors
    constant = mean_far - float(slopes @ (weight @ pace))
    return over(slopes, mean), max(constant, 0.0)


def _fitted(columns: Floats, values: Floats, weight: Floats, n_free: int) -> tuple[list[int], Floats]:
    """Indexes of the columns that explain the values, and the factors of these columns, all above 0."""
    chosen: list[int] = []
    factors, left = np.empty(0), values
    spread = np.sqrt(weight @ columns**2)
    while len(chosen) < min(MAX_PLACES, n_free - 2):
        gain = over(columns.T @ (weight * left), spread)
        gain[chosen] = 0.0
        if gain.max() <= 0:
            break
        trial = [*chosen, int(np.argmax(gain))]
        found, rest = _least_squares(columns[:, trial], values, weight)
        n_left = n_free - len(trial) - 1
        if (found <= 0).any() or weight @ (left**2 - rest**2) * n_left <= MIN_T**2 * (weight @ rest**2):
            break
        chosen, factors, left = trial, found, rest
    return chosen, factors


def _least_squares(columns: Floats, values: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Factors of the columns, and the residuals."""
    root = np.sqrt(weight)
    found = np.asarray(np.linalg.lstsq(root[:, None] * columns, root * values, rcond=None)[0], float)
    return found, values - columns @ found


def over(a: Floats, b: Floats | float) -> Floats:
    """A / b, and 0 where b is 0."""
    b = np.asarray(b, float)
    return np.where(b != 0, a, 0.0) / np.where(b != 0, b, 1.0)


DURING_WEIGHT = 24.0
"""Weight of time in shutters relative to time in the windows before them, in the fit of place weights."""
RIDGE = 3e-3
"""Added to the variance of each place's pace, whose mean is 1, so that a fit to few windows does not give
all weight to one place."""
N_ROUNDS = 5
"""Number of iterations, because the speed in shutters and the weights depend on each other."""
N_FAR_ROUNDS = 3
"""Number of iterations, because the speed in shutters and the far time per pass depend on each other."""
MAX_SPEED = 10.0
"""Bound on the ratio of the speed in shutters to that before them, and on its inverse, in far-time fits."""
MIN_WATCHED_FRAC = 0.3
"""A shutter is left out if the places counted there have less than this total weight."""
MIN_TIME_FRAC = 0.1
"""At least this part of a window is kept when the time that counting took is subtracted."""
MIN_NEAR_FRAC = 0.25
"""The pace of a window is ignored if a smaller part of the window is near counted places: the rest of the
code may pass them unseen by samples."""
DURING = len(BEFORE_WINDOWS)
"""Index of the window inside the shutter in `COUNT_WINDOWS`."""
IS_DURING = np.arange(len(COUNT_WINDOWS)) == DURING


@dataclass(frozen=True)
class Counts:
    """Shutters (rows of `shutters`) at which the same places were counted, by window and place.

    `passes` has shape (shutter, window, place), `is_watched` (shutter, place), `is_crowded` (shutter);
    `length_ns`, `near_ns` and `lost_ns` (shutter, window) are the lengths of the window, of its part near
    counted places, and of the time that counting took. Windows are those of `COUNT_WINDOWS`.
    """

    rows: Indices
    passes: Floats
    is_watched: Flags
    is_crowded: Flags
    length_ns: Floats
    near_ns: Floats
    lost_ns: Floats

    @property
    def time_ns(self) -> Floats:
        """Time near counted places minus the time that counting took, by shutter and window."""
        return self.near_ns - np.minimum(self.lost_ns, (1 - MIN_TIME_FRAC) * self.near_ns)

    @property
    def is_near(self) -> Flags:
        """Whether enough of each window is near counted places."""
        return self.near_ns >= MIN_NEAR_FRAC * self.length_ns

    @property
    def is_free(self) -> Flags:
        """Whether each window is not inside a crowded shutter."""
        return ~(self.is_crowded[:, None] & IS_DURING)

    def select(self, chosen: Flags) -> Counts:
        """Some of the shutters."""
        return Counts(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


def paces_of_windows(counts: Counts, fitted_on: Counts) -> Floats:
    """Work per time of each window, with place weights fitted on the windows of `fitted_on`.

    Shape (shutter, window). The mean is about 1; windows in which too few places were counted have NaN.
    """
    unit, weights = _place_weights(fitted_on)
    weighed = np.where(counts.is_watched, weights, 0.0)
    known = weighed.sum(axis=1)
    work = (counts.passes * (unit * weighed)[:, None, :]).sum(axis=2)
    return over(work, np.where(known >= MIN_WATCHED_FRAC, known, np.nan)[:, None]) / counts.time_ns


def with_far_time(counts: Counts) -> Counts:
    """The same counts, with the far time that the fit ascribes to passes added to `near_ns`.

    The job is faster in shutters, so passes there are divided by the speed-up that `_speed` finds.
    """
    far_ns, speed, result = counts.length_ns - counts.near_ns, 1.0, counts
    # A shutter has the same weight as all windows before it together.
    before_ns = counts.length_ns[:, ~IS_DURING].sum(axis=1)[:, None]
    share_ns = np.where(counts.is_free, np.where(IS_DURING, before_ns, counts.length_ns), 0.0)
    for _ in range(N_FAR_ROUNDS):
        passes = counts.passes / np.where(IS_DURING, speed, 1.0)[:, None]
        each = passes.reshape(far_ns.size, -1), far_ns.ravel(), counts.length_ns.ravel(), share_ns.ravel()
        per_pass, constant = far_with_passes(*each, n_free=len(counts.rows))
        if not per_pass.any():
            return counts
        with_passes = passes @ per_pass
        share = over(with_passes, with_passes + constant * counts.length_ns)
        result = replace(counts, near_ns=counts.near_ns + share * far_ns)
        speed = _speed(result)
    return result


def _speed(counts: Counts) -> float:
    """Ratio of the work per time in shutters to the work per time before them."""
    found = paces_of_windows(counts, counts)
    good_ns = np.where(counts.is_near & counts.is_free & np.isfinite(found), counts.time_ns, 0.0)
    before, during = (
        float(over((np.nan_to_num(found) * good_ns)[:, of].sum(), good_ns[:, of].sum()))
        for of in (~IS_DURING, IS_DURING)
    )
    return min(max(during / before, 1 / MAX_SPEED), MAX_SPEED) if before > 0 and during > 0 else 1.0


def _place_weights(counts: Counts) -> tuple[Floats, Floats]:
    """Mean time per pass of each place, which is the place's unit of work, and the weight of each place."""
    watched_ns = counts.time_ns.sum(axis=1) @ counts.is_watched
    rate = over(counts.passes.sum(axis=(0, 1)), watched_ns)
    seen = rate > 0
    weights = np.zeros(len(rate))
    if seen.any():
        is_good = counts.is_near & counts.is_free
        good_ns = np.where(is_good, counts.time_ns, 0.0) if is_good.any() else counts.time_ns
        weights[seen] = _even_weights(_unit_paces(counts, rate)[:, seen], good_ns.ravel())
    return over(seen.astype(float), rate), weights


def _even_weights(paces: Floats, time_ns: Floats) -> Floats:
    """Weights that make work per time the same in all windows, apart from one common factor in shutters.

    All places have the same factor. With a factor for each place, a phase in few shutters would not count.
    """
    is_during = np.tile(IS_DURING, len(time_ns) // len(COUNT_WINDOWS))
    share = np.where(is_during, DURING_WEIGHT, 1.0) * time_ns
    weights = np.full(paces.shape[1], 1.0 / paces.shape[1])
    if not share.any():
        return weights
    share /= share.sum()
    for _ in range(N_ROUNDS):
        work = paces @ weights
        means = [over((work * time_ns)[of].sum(), time_ns[of].sum()) for of in (~is_during, is_during)]
        off = over(paces, np.where(is_during, means[1], means[0])[:, None]) - 1
        weights = steadiest(off.T @ (share[:, None] * off) + RIDGE * np.eye(len(weights)))
    return weights


def _unit_paces(counts: Counts, rate: Floats) -> Floats:
    """Passes per time of each place (column) in each window, over the place's mean rate.

    Places that were not watched get the mean of the others.
    """
    time_ns = counts.time_ns.ravel()
    passes = counts.passes.reshape(len(time_ns), -1)
    is_watched = np.repeat(counts.is_watched, len(COUNT_WINDOWS), axis=0)
    pace = over(passes, time_ns[:, None] * rate)
    mean = over(pace.sum(axis=1), (is_watched & (rate > 0)).sum(axis=1))
    return np.where(is_watched, pace, mean[:, None])


def steadiest(covariance: Floats) -> Floats:
    """Non-negative weights, with sum 1, for which the linear combination has the smallest variance.

    An active-set method: negative weights become 0, and a place with weight 0 is used again if this lowers
    the variance.
    """
    n = len(covariance)
    used, weights = np.ones(n, bool), np.full(n, 1.0 / n)
    for _ in range(2 * n):
        found = np.zeros(n)
        found[used] = np.linalg.solve(covariance[np.ix_(used, used)], np.ones(used.sum()))
        if (found[used] <= 0).any():
            used &= found > 0
            continue
        weights = found / found.sum()
        gradient = covariance @ weights
        best = int(np.argmin(np.where(used, np.inf, gradient)))
        if used[best] or gradient[best] >= (1 - 1e-6) * float(weights @ gradient):
            break
        used[best] = True
    return weights


MIN_COMMON_FRAC = 0.5
"""Shutters are compared with each other if they share at least this part of their places."""
MIN_STRATUM = 6
"""Least number of shutters in a stratum."""
MAX_PACE = 2.5
"""A window is ignored if its pace is larger by this factor than the median pace in shutters, and also larger
by this factor than the pace on the other side of the beginning of its shutter."""
MAX_WAITED_FRAC = 0.1
"""A shutter is crowded if threads waited for a processor for more than this part of the shutter."""

Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Paces:
    """Work per time around each shutter with counts (rows); the unit of work is arbitrary.

    `during` and `before` are the paces in the shutter and in the windows before it. Three arrays have a
    column for the time before the shutter and a column for the time in it: `near_s` is the time near counted
    places, with the far time ascribed to passes of these places; `far_s` is the other time; `is_good` tells
    whether the pace counts. `share_s` is the part of the job's time that the shutter represents.

    `waited_s` is the mean time for which the ranks waited for a processor: the first column is for the
    windows before the shutter, the second for the co-run time `since_s` between the previous shutter and
    these windows. Unknown values are 0.

    In a `crowded` shutter threads of the job waited for each other's processors, a bubble ran, or co-runners
    were spared, so `during` is not the pace of the job alone. `bubble_level` is 0 if no bubble ran. `present`
    and `spared` have a bit for each co-runner. `n_corunners` counts the node's co-runners; `alone` tells
    whether no node had a co-runner.

    `stratum` numbers the sets of shutters with the same places; shutters of rare sets have 0. `group` numbers
    the groups of shutters that are left out together when weights are fitted. `instant` numbers the shutters
    in order of time; a shutter common to several nodes has one number.
    """

    during: Floats
    before: Floats
    near_s: Floats
    far_s: Floats
    share_s: Floats
    waited_s: Floats
    since_s: Floats
    is_good: Flags
    crowded: Flags
    bubble_level: Floats
    present: NDArray[np.uint64]
    spared: NDArray[np.uint64]
    n_corunners: Indices
    alone: Flags
    node: Indices
    stratum: Indices
    group: Indices
    instant: Indices

    def __len__(self) -> int:
        return len(self.during)

    def select(self, chosen: Flags | Indices) -> Paces:
        """Some of the shutters."""
        return Paces(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


def paces(shutters: Table, counts: Table, *, cost_ns: float = 0.0) -> Paces:
    """Paces of all shutters with counts; `cost_ns` is the job's time for counting one pass."""
    rows = _with_windows(shutters)
    instant, alone = instants(rows), _alone(rows, shutters)
    group = instant % N_SHUTTER_GROUPS
    during, before = (np.full(len(rows), np.nan) for _ in range(2))
    is_bubbled = (rows["bubble_level"] > 0) | (rows["probe_slowdown"] > 0)
    is_crowded = crowded(rows) | is_bubbled | (rows["spared"] > 0)
    stratum = np.zeros(len(rows), np.intp)
    n_strata = 1  # stratum 0 holds shutters with rare sets of places
    window_s = np.stack([rows["before_window_ns"], rows["during_window_ns"]], axis=1) * 1e-9
    near_s, is_good = np.zeros_like(window_s), np.zeros(window_s.shape, bool)
    for sampled in _sets(rows, counts, cost_ns, is_crowded):
        same_places = with_far_time(sampled)
        chosen = same_places.rows
        near_s[chosen] = np.add.reduceat(same_places.near_ns, [0, DURING], axis=1) * 1e-9
        during[chosen], before[chosen], is_good[chosen] = _crossfitted(same_places, group[chosen])
        if len(chosen) >= MIN_STRATUM:
            stratum[chosen] = n_strata
            n_strata += 1
    known = np.isfinite(during) & np.isfinite(before)
    node = rows["i_node"].astype(np.intp)
    near_s, window_s = near_s[known], window_s[known]
    waited_s = np.stack([rows["before_waited_ns"], rows["since_waited_ns"]], axis=1)[known] * 1e-9
    return Paces(
        during[known], before[known], near_s, window_s - near_s, _shares_s(rows)[known], waited_s,
        rows["since_ns"][known] * 1e-9, is_good[known], is_crowded[known], rows["bubble_level"][known],
        rows["present"][known], rows["spared"][known],
        rows["n_corunners"][known].astype(np.intp), alone[known],
        node[known], stratum[known], group[known], instant[known],
    )  # fmt: skip


def crowded(rows: Table) -> Flags:
    """For each shutter: whether threads of the job waited for processors on any node of the shutter.

    Two ranks that happen to share a processor when the co-runner is paused keep sharing it for tens of
    milliseconds. The threads of a job with more threads than processors always wait for each other, so if
    threads waited in most shutters of a node, none of that node's shutters counts as crowded.
    """
    waited: Flags = rows["waited_frac"] > MAX_WAITED_FRAC
    for node in np.unique(rows["i_node"]):
        here = rows["i_node"] == node
        waited[here] &= 2 * waited[here].sum() < here.sum()
    instant = instants(rows)
    return np.isin(instant, instant[waited])


def _with_windows(shutters: Table) -> Table:
    valid = np.sort(valid_shutters(shutters), order=("t0_ns", "i_node"))
    return valid[(valid["during_window_ns"] > 0) & (valid["before_window_ns"] > 0)]


def instants(rows: Table) -> Indices:
    """A number for each shutter, in order of time; a shutter common to several nodes has one number."""
    names = np.where(rows["common"] > 0, rows["common"].astype(np.int64), -1 - np.arange(len(rows)))
    _, first, number = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number.ravel()]


def _alone(rows: Table, shutters: Table) -> Flags:
    """For each shutter in `rows`: whether the job had no co-runner on any node, by the rows of `shutters`."""
    common = shutters["common"][(shutters["common"] > 0) & (shutters["n_corunners"] > 0)]
    return (rows["n_corunners"] == 0) & ~np.isin(rows["common"], common)


def _shares_s(rows: Table) -> Floats:
    """Time around each shutter, half-way to its neighbours; a gap counts as at most twice the median gap."""
    shares = np.ones(len(rows))
    for node in np.unique(rows["i_node"]):
        here = rows["i_node"] == node
        gaps = np.diff(rows["t0_ns"][here].astype(np.int64)) * 1e-9
        if len(gaps):
            gaps = np.minimum(gaps, 2 * np.median(gaps))
            shares[here] = (np.append(gaps[0], gaps) + np.append(gaps, gaps[-1])) / 2
    return shares


def _sets(rows: Table, counts: Table, cost_ns: float, is_crowded: Flags) -> Iterator[Counts]:
    """Counts of each set of shutters; all share at least half of their places with the first of the set."""
    shutter = _row_of(rows, counts)
    counts, shutter = counts[shutter >= 0], shutter[shutter >= 0]
    order = np.lexsort((counts["place"], shutter))
    counts, shutter = counts[order], shutter[order]
    numbers, starts = np.unique(shutter, return_index=True)
    watched = np.split(counts["place"], starts[1:]) if len(numbers) else []
    leaders: list[frozenset[int]] = []
    leader_of: dict[bytes, int] = {}
    chosen = np.zeros(len(rows), np.intp)
    for number, places in zip(numbers, watched, strict=True):
        key = places.tobytes()
        if key not in leader_of:
            leader_of[key] = _leader(leaders, frozenset(places.tolist()))
        chosen[number] = leader_of[key]
    for leader in range(len(leaders)):
        yield _dense(rows, counts, shutter, chosen[shutter] == leader, cost_ns, is_crowded)


def _row_of(rows: Table, counts: Table) -> Indices:
    """Index in `rows` of the shutter of each row of `counts`, -1 if the shutter is not in `rows`."""
    if not len(rows):
        return np.full(len(counts), -1)
    found = np.full(len(counts), -1)
    for node in np.unique(rows["i_node"]):
        here, mine = np.flatnonzero(rows["i_node"] == node), np.flatnonzero(counts["i_node"] == node)
        t0 = rows["t0_ns"][here]
        at = np.minimum(np.searchsorted(t0, counts["t0_ns"][mine]), len(t0) - 1)
        found[mine] = np.where(t0[at] == counts["t0_ns"][mine], here[at], -1)
    return found


def _leader(leaders: list[frozenset[int]], places: frozenset[int]) -> int:
    """Index of the set with most of these places in common; adds a new set if no set has half of them."""
    common = [len(places & leader) / max(len(places), len(leader), 1) for leader in leaders]
    best = int(np.argmax(common)) if common else 0
    if common and common[best] >= MIN_COMMON_FRAC:
        return best
    leaders.append(places)
    return len(leaders) - 1


def _dense(
    rows: Table, counts: Table, shutter: Indices, chosen: Flags, cost_ns: float, is_crowded: Flags
) -> Counts:
    counts, shutter = counts[chosen], shutter[chosen]
    used, i_row = np.unique(shutter, return_inverse=True)
    places, i_place = np.unique(counts["place"], return_inverse=True)
    passes, is_watched = (
        np.zeros((len(used), len(COUNT_WINDOWS), len(places))),
        np.zeros((len(used), len(places)), bool),
    )
    is_watched[i_row, i_place] = True
    for i, when in enumerate(COUNT_WINDOWS):
        passes[i_row, i, i_place] = counts[f"n_{when}"]
    length_ns = np.repeat(rows["before_window_ns"][used, None] / DURING, len(COUNT_WINDOWS), axis=1)
    length_ns[:, DURING] = rows["during_window_ns"][used]
    return Counts(
        used, passes, is_watched, is_crowded[used], length_ns, length_ns * near_frac(rows[used]),
        cost_ns * passes.sum(axis=2),
    )  # fmt: skip


def _crossfitted(counts: Counts, group: Indices) -> tuple[Floats, Floats, Flags]:
    """Paces in and before each shutter, with place weights fitted to the shutters of all other groups.

    Result: paces in shutters, paces before them, and whether each is used (columns: before, in the shutter).
    """
    found = np.full(counts.length_ns.shape, np.nan)
    for held_out in np.unique(group):
        mine = group == held_out
        others = counts.select(~mine) if not mine.all() else counts
        found[mine] = paces_of_windows(counts.select(mine), others)
    is_good = counts.is_near & _is_credible(found, counts)
    is_usable = is_good[:, ~IS_DURING]
    has_before: Flags = np.any(is_usable, axis=1)
    used_ns = np.where(is_usable | ~has_before[:, None], counts.time_ns[:, ~IS_DURING], 0.0)
    before = (found[:, ~IS_DURING] * used_ns).sum(axis=1) / used_ns.sum(axis=1)
    return found[:, DURING], before, np.stack([has_before, is_good[:, DURING]], axis=1)


def _is_credible(found: Floats, counts: Counts) -> Flags:
    """For each window, whether it is not much faster than both most shutters and its shutter's other side.

    If code passes the places although no sample finds it near them, the pace seems too high. The program can
    hardly be so much faster than when it is alone, except in a fast phase, which shows on both sides. The
    reference is the median of shutters, not of windows before them: jobs that take turns on processors run at
    full speed in some of these windows and stand still in others.
    """
    found = np.nan_to_num(found)
    alone = found[:, DURING][counts.is_near[:, DURING] & ~counts.is_crowded]
    alone = alone[alone > 0]
    if len(alone) < MIN_STRATUM:
        return np.ones(found.shape, bool)
    other_side = np.where(IS_DURING, np.median(found[:, ~IS_DURING], axis=1)[:, None], found[:, [DURING]])
    return found <= MAX_PACE * np.maximum(other_side, np.median(alone))


# The pace in co-run, corrected by the waits for processors in all of the time between shutters.
#
# Places are counted in windows only. If jobs take turns on processors, the work done in a window varies
# greatly. The time for which the ranks wait for a processor varies with this work, and is known at all times.

MIN_CORUN_SHUTTERS = 8
"""Least number of shutters with known waits for which the paces of a stratum are corrected."""
MIN_T = 3.0
"""Least slope, in standard errors, that is used: of paces over waits, and of far time over passes."""
_WINDOW = 0


def steadied(found: Paces) -> Paces:
    """Correct the paces before shutters for windows in which ranks waited more or less than usual.

    The fraction of time waited is a control variate. In each stratum of each node, a line is fitted to
    `before - r during` over this fraction, by least squares weighted by the windows; r is the ratio of the
    means of `before` and `during`. The line's slope corrects `before`. The usual fraction includes the time
    since the previous shutter if that shutter is of the same stratum.
    """
    before = found.before.copy()
    for node in np.unique(found.node):
        own = np.flatnonzero(found.node == node)
        own = own[np.argsort(found.instant[own], kind="stable")]
        here = found.select(own)
        follows = np.diff(here.stratum, prepend=-1) == 0
        here = replace(here, since_s=np.where(follows, here.since_s, 0.0))
        for stratum in np.unique(here.stratum[here.stratum > 0]):
            same = here.stratum == stratum
            before[own[same]] = _steadied(here.select(same))
    return replace(found, before=before)


def _steadied(found: Paces) -> Floats:
    is_known = found.since_s > 0
    is_used = found.is_good.all(axis=1) & ~found.crowded
    n = int(is_used.sum())
    weight = np.where(is_used, found.near_s[:, _WINDOW], 0.0)
    if is_known.sum() < MIN_CORUN_SHUTTERS or n < MIN_CORUN_SHUTTERS or weight @ found.during <= 0:
        return found.before
    weight /= weight.sum()
    window_s = (found.near_s + found.far_s)[:, _WINDOW]
    usual = float(found.waited_s[is_known].sum() / (window_s + found.since_s)[is_known].sum())
    waited = found.waited_s[:, _WINDOW] / window_s
    # Subtract `during`: a change that the shutter shows as well causes no error of the slowdown.
    differs = found.before - float((weight @ found.before) / (weight @ found.during)) * found.during
    off = waited - weight @ waited
    variance, covariance = float(weight @ off**2), float(weight @ (off * differs))
    left = float(weight @ differs**2) - covariance**2 / variance if variance > 0 else np.inf
    if covariance >= 0 or covariance**2 * (n - 2) < MIN_T**2 * left * variance:
        return found.before
    slope = covariance / variance
    # The fitted line uses up a degree of freedom: widen the residuals accordingly.
    more_spread = (np.sqrt((n - 1) / (n - 2)) - 1) * (differs - slope * off)
    return found.before + slope * (usual - waited) + np.where(is_used, more_spread, 0.0)


METHOD = "count"
MIN_SHUTTERS = 6
"""Least number of shutters with counts for an estimate."""
MAX_HALF_WIDTH = 0.5
"""Half width of an interval, in the logarithm, above which there is no estimate."""
MIN_COVERAGE = 0.6
"""Least part of the job's time in which counted places must be passed; the rest is taken as slowed alike."""
MIN_PACE = 0.02
"""Pace, relative to the mean pace, below which the counted places count as not passed."""
REST_ERROR, REST_ERROR_FRAC = 0.15, 0.5
"""Prior standard error of the logarithm of (slowdown far from counted places / slowdown near them): a
constant, plus this part of the logarithm of the slowdown near them."""
MAX_STRATUM_ERROR = 0.25
"""If the standard error of a stratum's slowdown, in the logarithm, is larger, its time is not measured."""
MIN_CERTAIN = 0.4
"""Uncertain strata are left out only if the others have at least this part of the job's time."""
COUNT_MODEL_ERROR = 0.005
"""Relative standard error that no number of shutters removes."""


def slowdown(shutters: Table, counts: Table, *, cost_ns: float = 0.0) -> PhaseSlowdown:
    """Slowdown of the co-run phase, T_co/T_solo, from counts of places in shutters and before them.

    `cost_ns` is the job's time for counting one pass. The result has a 95 % interval, or the reason why there
    is no estimate.

    The equations are Eq. 6-8 of Breslow et al. 2013 with passes per second of many places instead of IPC.
    """
    return _estimate(steadied(_without_beginning(paces(shutters, counts, cost_ns=cost_ns))))


def half_width(found: Estimate | None) -> float:
    """Half width of the interval in the logarithm, to compare estimators; infinite without an estimate."""
    return float(np.log(found.high / found.low)) / 2 if found is not None and found.low > 0 else np.inf


def _without_beginning(found: Paces) -> Paces:
    """Leave out the shutters before the first that has a frequent set of places, if enough shutters remain.

    Earlier sets of places belong to the program's start, and place weights from few windows are uncertain.
    """
    is_frequent = found.stratum > 0
    if not is_frequent.any():
        return found
    chosen = found.instant >= found.instant[is_frequent].min()
    return found.select(chosen) if chosen.sum() >= MIN_SHUTTERS else found


def _estimate(found: Paces) -> PhaseSlowdown:
    """The slowdown with its interval, or the reason why there is no slowdown."""
    is_seen = (found.during > MIN_PACE) | (found.before > MIN_PACE)
    n_shutters = len(np.unique(found.instant[is_seen & ~found.crowded]))
    if n_shutters < MIN_SHUTTERS:
        why = f"places were passed at {counted(n_shutters, 'shutter')}, {MIN_SHUTTERS} needed"
        return PhaseSlowdown(None, f"{why}; {SHARE_LONGER}")
    near_frac = found.near_s[:, 0] / (found.near_s + found.far_s)[:, 0]
    coverage = float((found.share_s * near_frac)[is_seen].sum() / found.share_s.sum())
    if coverage < MIN_COVERAGE:
        why = f"the counted places are passed in only {coverage:.0%} of its time, {MIN_COVERAGE:.0%} needed"
        return PhaseSlowdown(None, f"{why}; {MARK_UNITS}", coverage)
    value, deviation, measured_frac = _mean_slowdown(found, is_seen, MIN_CERTAIN / coverage)
    coverage *= measured_frac
    if not (np.isfinite(value) and value > 0):
        why = "the counted places were passed only inside shutters, or only outside them"
        return PhaseSlowdown(None, f"{why}; {SHARE_LONGER}", coverage)
    n_free = 2 * (n_shutters - 1) / 3  # degrees of freedom of differences between neighbours
    ratio, ratio_error = _rest_over_near(found, REST_ERROR + REST_ERROR_FRAC * abs(np.log(value)))
    far = (1 - coverage) / np.exp(ratio)
    value /= coverage + far
    model = 1.96 * float(np.hypot(COUNT_MODEL_ERROR, ratio_error * far / (coverage + far)))
    half = float(np.hypot(t_quantile(n_free) * deviation, model))
    if half > MAX_HALF_WIDTH:
        why = "the counted places are passed too unevenly: the interval's ends differ by a factor of "
        remedy = f"{SHARE_LONGER}, or {MARK_UNITS}"
        return PhaseSlowdown(None, f"{why}{np.exp(2 * half):.1f}; {remedy}", coverage)
    low, high = value * np.exp(-half), value * np.exp(half)
    return PhaseSlowdown(Estimate(value, low, high, n_shutters, "1", METHOD), "", coverage)


def _rest_over_near(found: Paces, prior: float) -> tuple[float, float]:
    """Logarithm of (slowdown far from counted places / slowdown near them), and its standard error.

    If co-runners slow the far time more, its share is smaller in shutters. A window that is entirely near or
    entirely far does not show this: `within` is 0 if all windows are of this kind, and 1 if all windows have
    the same shares. The result is a compromise with the assumption that both are slowed alike; `prior` is the
    standard error of that assumption.
    """
    near_s, far_s = (_by_instant(times, found.instant) for times in (found.near_s, found.far_s))
    n = len(near_s)
    if (far_s.sum(axis=0) <= 0).any():
        return 0.0, prior
    left_out = [sums.sum(axis=0) - sums + 1e-3 * sums.sum(axis=0) for sums in (near_s, far_s)]
    logs = np.log(left_out[1] / left_out[0]) @ [1.0, -1.0]
    variance = (n - 1) / n * float(((logs - logs.mean()) ** 2).sum())
    far_frac = far_s[:, 1] / (near_s + far_s)[:, 1]
    mean = float(far_frac.mean())
    within = max(1.0 - float(far_frac.var()) / (mean * (1 - mean)), 1e-3)
    weight = prior**2 / (prior**2 + variance / within**2)
    return weight * float(logs.mean()) / within, float(np.sqrt(1 - weight)) * prior


def _by_instant(values: Floats, instant: NDArray[np.intp]) -> Floats:
    """Sums over the rows of each instant, which has a row for each node that shares the shutter."""
    number = np.unique(instant, return_inverse=True)[1].ravel()
    sums = np.zeros((int(number.max()) + 1, *values.shape[1:]))
    np.add.at(sums, number, values)
    return sums


def _mean_slowdown(found: Paces, used: NDArray[np.bool_], least_frac: float) -> tuple[float, float, float]:
    """Slowdown, its standard error in the logarithm, and the part of the time in the strata that are used.

    T_solo/T_co of each stratum is the pace before its shutters over the pace in them; strata and nodes are
    weighted by the job's time in them. Uncertain strata are left out, unless less than `least_frac` of the
    time would remain.
    """
    keys = np.stack([found.node, found.stratum], axis=1)[used]
    strata, column = np.unique(keys, axis=0, return_inverse=True)
    member = np.eye(len(strata))[column.ravel()]
    usual, usual_error, done, done_error = _work(found, used, member)
    usable = (done > 0) & (usual > 0)
    if not usable.any():
        return np.nan, np.nan, 1.0
    share_s = np.where(member @ usable > 0, found.share_s[used], 0.0)
    relative = [error / (member @ np.where(usable, mean, 1.0))
                for error, mean in ((usual_error, usual), (done_error, done))]  # fmt: skip
    is_certain = usable & (_stratum_errors(relative[0] - relative[1], member) <= MAX_STRATUM_ERROR)
    measured_frac = float((share_s @ member)[is_certain].sum() / share_s.sum())
    if measured_frac < least_frac:
        is_certain, measured_frac = usable, 1.0
    share_s = np.where(member @ is_certain > 0, share_s, 0.0)
    speed = np.where(is_certain, usual, 0.0) / np.where(is_certain, done, 1.0)  # in co-run relative to alone
    part = share_s @ member / share_s.sum()
    mean = float(part @ speed)
    # Contribution of each shutter to the error of the mean.
    own = member @ speed
    error = (usual_error - own * done_error) * (member @ (part / np.where(is_certain, done, 1.0)))
    error += share_s / share_s.sum() * (own - mean)
    return 1 / mean, _standard_error(error, found.instant[used]) / mean, measured_frac


def _work(found: Paces, used: NDArray[np.bool_], member: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean pace of each stratum, before and in shutters, and the error that each shutter adds to a mean."""
    weight = 1 / (1 / found.near_s[used]).sum(axis=1)
    is_good = found.is_good[used]
    is_free = is_good[:, 1] & ~found.crowded[used]
    usual, usual_error = _means(found.before[used], _weights(weight, is_good[:, 0], member), member)
    done, done_error = _means(found.during[used], _weights(weight, is_free, member), member)
    return usual, usual_error, done, done_error


def _stratum_errors(error: Floats, member: Floats) -> Floats:
    """Standard error of each stratum from the errors of its shutters, larger for few shutters."""
    n = np.maximum(member.sum(axis=0), 2.0)
    few = np.array([t_quantile(one - 1) for one in n]) / t_quantile(1e6)
    return np.sqrt(error**2 @ member * n / (n - 1)) * few


def _weights(weight: Floats, is_good: NDArray[np.bool_], member: Floats) -> Floats:
    """Weights with those of bad windows set to 0; unchanged in strata without a good window."""
    good = np.where(is_good, weight, 0.0)
    return np.where(member @ (good @ member) > 0, good, weight)


def _means(values: Floats, weight: Floats, member: Floats) -> tuple[Floats, Floats]:
    """Weighted mean of each stratum (column of `member`), and each value's contribution to its error."""
    total = np.maximum(weight @ member, np.finfo(float).tiny)
    mean: Floats = (values * weight) @ member / total
    return mean, (values - member @ mean) * weight / (member @ total)


def _standard_error(error: Floats, instant: NDArray[np.intp]) -> float:
    """Standard error of the sum of the errors, from the differences between consecutive shutters.

    Shutters are evenly spaced in time, so a slow change of the program does not bias the mean, but it would
    inflate a standard error from the spread of all shutters.
    """
    total = _by_instant(error, instant)
    n = len(total)
    return float(np.sqrt(n / (2 * (n - 1)) * (np.diff(total) ** 2).sum()))
