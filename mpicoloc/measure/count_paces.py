"""How much work was done in each window, from the passes of many places.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.tables import BEFORE_WINDOWS, COUNT_WINDOWS, N_SHUTTER_GROUPS, Table, valid_shutters

MIN_COMMON_FRAC = 0.5
"""Part of their places that shutters have in common at least, if they are compared with each other."""
MIN_STRATUM = 6
"""Shutters that a stratum has at least."""
DURING_WEIGHT = 48.0
"""Weight of the windows in shutters, over that of the co-run windows, where weights are fitted."""
RIDGE = 3e-3
"""Added to the variance of each place's pace, of mean 1: so few windows do not choose a single place."""
N_ROUNDS = 5
"""The speed in shutters and the weights depend on each other."""
MIN_WATCHED_FRAC = 0.3
"""Weight of the places that were counted at a shutter, below which it is left out."""
MIN_TIME_FRAC = 0.1
"""Part of a window that is left at least when the time that counting took is subtracted."""
MIN_NEAR_FRAC = 0.25
"""Part of a window near counted places, below which its pace does not count: places may be passed by code
that samples do not find near them."""
MAX_WAITED_FRAC = 0.1
"""Part of a shutter above which a thread has waited too long for a processor."""
_DURING = len(BEFORE_WINDOWS)

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Paces:
    """One row for each shutter with counts: the work done in its windows per time, in units of one's own.

    `before` is of the window before it. `near_s` is the time before and in the shutter (columns) that the job
    is near counted places, `far_s` the rest of both windows. `share_s` is the job's time that the shutter
    stands for. `moved_bytes` is what MPI calls of one rank moved in `moved_s` seconds of co-run: in the
    window before it, and (second column) since the shutter before; 0: not known. In a `crowded` shutter
    threads of the job waited for each other's processors, or a bubble ran, so `during` is not of the job
    alone; `bubble_level` is 0 where none ran. `alone` is a shutter without co-runners. `stratum` numbers the
    shutters with the same places, 0 for rare ones, `group` those that were left out together when weights
    were fitted, `instant` the shutters that nodes have in common, in order of time.
    """

    during: Array
    before: Array
    near_s: Array
    far_s: Array
    share_s: Array
    moved_bytes: Array
    moved_s: Array
    crowded: Flags
    bubble_level: Array
    alone: Flags
    node: Indices
    stratum: Indices
    group: Indices
    instant: Indices

    def __len__(self) -> int:
        return len(self.during)

    @property
    def is_near(self) -> Flags:
        """Whether enough of the windows before and in each shutter (columns) is near counted places."""
        result: Flags = self.near_s / (self.near_s + self.far_s) >= MIN_NEAR_FRAC
        return result

    def select(self, chosen: Flags | Indices) -> Paces:
        """Some of the shutters."""
        return Paces(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


@dataclass(frozen=True)
class Counts:
    """Shutters (rows of `shutters`) at which the same places were counted, by window and place.

    `passes` has shape (shutter, window, place), `is_watched` (shutter, place), `time_ns` (shutter, window),
    and `lost_ns` likewise: the part of the window that counting took. `fit_weight_ns` is the time that counts
    where weights are fitted.
    """

    rows: Indices
    passes: Array
    is_watched: Flags
    time_ns: Array
    lost_ns: Array
    fit_weight_ns: Array

    def select(self, chosen: Flags) -> Counts:
        """Some of the shutters."""
        return Counts(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


def paces(shutters: Table, counts: Table, *, cost_ns: float = 0.0) -> Paces:
    """Paces of all shutters with counts; `cost_ns` is that of `count.slowdown`."""
    rows = _with_windows(shutters)
    instant = instants(rows)
    group = instant % N_SHUTTER_GROUPS
    during, before, lost_s = (np.full(len(rows), np.nan) for _ in range(3))
    is_crowded = crowded(rows) | (rows["bubble_level"] > 0) | (rows["probe_slowdown"] > 0)
    stratum = np.zeros(len(rows), np.intp)
    n_strata = 1  # stratum 0 holds the sets of places that were counted at few shutters
    for same_places in _sets(rows, counts, cost_ns, is_crowded):
        chosen = same_places.rows
        during[chosen], before[chosen] = _crossfitted(same_places, group[chosen])
        lost_s[chosen] = same_places.lost_ns[:, :_DURING].sum(axis=1) * 1e-9
        if len(chosen) >= MIN_STRATUM:
            stratum[chosen] = n_strata
            n_strata += 1
    known = np.isfinite(during) & np.isfinite(before)
    node = rows["i_node"].astype(np.intp)
    near = near_frac(rows)[known]
    window_s = np.stack([rows["before_window_ns"], rows["during_window_ns"]], axis=1)[known] * 1e-9
    near_s = window_s * np.stack([near[:, :_DURING].mean(axis=1), near[:, _DURING]], axis=1)
    moved_s = np.stack([window_s[:, 0] - lost_s[known], rows["since_ns"][known] * 1e-9], axis=1)
    moved_bytes = np.stack([rows["before_bytes"], rows["since_bytes"]], axis=1)[known].astype(float)
    return Paces(
        during[known], before[known], near_s, window_s - near_s, _shares_s(rows)[known], moved_bytes, moved_s,
        is_crowded[known], rows["bubble_level"][known], rows["n_corunners"][known] == 0, node[known],
        stratum[known], group[known], instant[known],
    )  # fmt: skip


def crowded(rows: Table) -> Flags:
    """Shutters in which threads of the job waited for processors, on any of its nodes.

    Two ranks that happen to be on one processor when the co-runner is paused stay there for tens of
    milliseconds. A job with more threads than processors always waits for itself: on a node where that is so
    in most shutters, none is crowded.
    """
    waited: Flags = rows["waited_frac"] > MAX_WAITED_FRAC
    for node in np.unique(rows["i_node"]):
        here = rows["i_node"] == node
        waited[here] &= 2 * waited[here].sum() < here.sum()
    instant = instants(rows)
    return np.isin(instant, instant[waited])


def near_frac(rows: Table) -> Array:
    """Part of its time outside MPI that the job is near counted places, by shutter and window.

    One sample is added, half of it near them, so that no window has none. A shutter without samples gets the
    mean of the others; 1 if no shutter has any.
    """
    n_all, n_near = (
        np.stack([rows[f"{when}_{what}"] for when in COUNT_WINDOWS], axis=1).astype(float)
        for what in ("samples", "near")
    )
    is_known = n_all.sum(axis=1, keepdims=True) > 0
    mean = n_near.sum() / n_all.sum() if is_known.any() else 1.0
    result: Array = np.where(is_known, (n_near + 0.5) / (n_all + 1.0), mean)
    return result


def _with_windows(shutters: Table) -> Table:
    valid = np.sort(valid_shutters(shutters), order=("t0_ns", "i_node"))
    return valid[(valid["during_window_ns"] > 0) & (valid["before_window_ns"] > 0)]


def instants(rows: Table) -> Indices:
    """A number for each shutter, in the order of time; those that several nodes have in common share it."""
    names = np.where(rows["common"] > 0, rows["common"].astype(np.int64), -1 - np.arange(len(rows)))
    _, first, number = np.unique(names, return_index=True, return_inverse=True)
    result: Indices = np.argsort(np.argsort(first))[number.ravel()]
    return result


def _shares_s(rows: Table) -> Array:
    """The time around each shutter, up to half-way to its neighbours, at most twice the median."""
    shares = np.ones(len(rows))
    for node in np.unique(rows["i_node"]):
        here = rows["i_node"] == node
        gaps = np.diff(rows["t0_ns"][here].astype(np.int64)) * 1e-9
        if len(gaps):
            gaps = np.minimum(gaps, 2 * np.median(gaps))
            shares[here] = (np.append(gaps[0], gaps) + np.append(gaps, gaps[-1])) / 2
    return shares


def _sets(rows: Table, counts: Table, cost_ns: float, is_crowded: Flags) -> Iterator[Counts]:
    """Shutters of which each shares half its places with the first one, and their counts."""
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
    """The shutter that each row of `counts` belongs to, -1 for one that is not among `rows`."""
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
    """The first set that has most places in common with these; a new one if none has half."""
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
    length_ns = np.repeat(rows["before_window_ns"][used, None] / _DURING, len(COUNT_WINDOWS), axis=1)
    length_ns[:, _DURING] = rows["during_window_ns"][used]
    near = near_frac(rows[used])
    near_ns = length_ns * near
    lost_ns = np.minimum(cost_ns * passes.sum(axis=2), (1 - MIN_TIME_FRAC) * near_ns)
    fit_weight_ns = np.where(near >= MIN_NEAR_FRAC, near_ns - lost_ns, 0.0)
    fit_weight_ns[is_crowded[used], _DURING] = 0.0
    if not fit_weight_ns.any():
        fit_weight_ns = near_ns - lost_ns
    return Counts(used, passes, is_watched, near_ns - lost_ns, lost_ns, fit_weight_ns)


def _crossfitted(part: Counts, group: Indices) -> tuple[Array, Array]:
    """Paces in and before each shutter, by weights from the shutters of all other groups."""
    during, before = np.full(len(part.rows), np.nan), np.full(len(part.rows), np.nan)
    for held_out in np.unique(group):
        mine = group == held_out
        others = part.select(~mine) if not mine.all() else part
        unit, weights = _weights(others)
        chosen = part.select(mine)
        weighed = np.where(chosen.is_watched, weights, 0.0)
        known = weighed.sum(axis=1)
        work = (chosen.passes * (unit * weighed)[:, None, :]).sum(axis=2)
        work = _over(work, np.where(known >= MIN_WATCHED_FRAC, known, np.nan)[:, None])
        during[mine] = work[:, _DURING] / chosen.time_ns[:, _DURING]
        before[mine] = work[:, :_DURING].sum(axis=1) / chosen.time_ns[:, :_DURING].sum(axis=1)
    return during, before


def _weights(part: Counts) -> tuple[Array, Array]:
    """Time for which one pass of each place stands, ns, and the place's part in the result."""
    watched_ns = part.time_ns.sum(axis=1) @ part.is_watched
    rate = _over(part.passes.sum(axis=(0, 1)), watched_ns)
    seen = rate > 0
    weights = np.zeros(len(rate))
    if seen.any():
        weights[seen] = _evening(_unit_paces(part, rate)[:, seen], part.fit_weight_ns.ravel())
    return _over(seen.astype(float), rate), weights


def _evening(paces: Array, time_ns: Array) -> Array:
    """Weights that make the work per time of all windows the same, but for one factor of those in shutters.

    With a mean of its own for each place in shutters, a phase that few shutters met would not count.
    """
    is_during = np.arange(len(time_ns)) % len(COUNT_WINDOWS) == _DURING
    share = np.where(is_during, DURING_WEIGHT, 1.0) * time_ns
    weights = np.full(paces.shape[1], 1.0 / paces.shape[1])
    if not share.any():
        return weights
    share /= share.sum()
    for _ in range(N_ROUNDS):
        work = paces @ weights
        means = [_over((work * time_ns)[of].sum(), time_ns[of].sum()) for of in (~is_during, is_during)]
        off = _over(paces, np.where(is_during, means[1], means[0])[:, None]) - 1
        weights = steadiest(off.T @ (share[:, None] * off) + RIDGE * np.eye(len(weights)))
    return weights


def _unit_paces(part: Counts, rate: Array) -> Array:
    """Passes of each place (column) in each window, over its mean; the mean of the others if not watched."""
    time_ns = part.time_ns.ravel()
    passes = part.passes.reshape(len(time_ns), -1)
    is_watched = np.repeat(part.is_watched, len(COUNT_WINDOWS), axis=0)
    pace = _over(passes, time_ns[:, None] * rate)
    mean = _over(pace.sum(axis=1), (is_watched & (rate > 0)).sum(axis=1))
    result: Array = np.where(is_watched, pace, mean[:, None])
    return result


def steadiest(covariance: Array) -> Array:
    """Weights, none below 0 and with sum 1, of the combination with the smallest variance.

    By an active set: weights below 0 are set to 0, and come back if the variance falls with them.
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


def _over(a: Array, b: Array) -> Array:
    """A / b, and 0 where b is 0."""
    b = np.asarray(b, float)
    result: Array = np.where(b != 0, a, 0.0) / np.where(b != 0, b, 1.0)
    return result
