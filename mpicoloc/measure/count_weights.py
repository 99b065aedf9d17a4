"""Weights of places whose passes, together, go with the work of all windows.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.tables import BEFORE_WINDOWS, COUNT_WINDOWS
from mpicoloc.measure.count_time import far_with_passes, over

DURING_WEIGHT = 24.0
"""Weight of time in shutters, over that of the windows before them, where weights are fitted."""
RIDGE = 3e-3
"""Added to the variance of each place's pace, of mean 1: so few windows do not choose a single place."""
N_ROUNDS = 5
"""The speed in shutters and the weights depend on each other."""
N_FAR_ROUNDS = 3
"""The speed in shutters and the far time that goes with passes depend on each other."""
MAX_SPEED = 10.0
"""Bound on the speed in shutters over that before them, and on its inverse, where far time is fitted."""
MIN_WATCHED_FRAC = 0.3
"""Weight of the places that were counted at a shutter, below which it is left out."""
MIN_TIME_FRAC = 0.1
"""Part of a window that is left at least when the time that counting took is subtracted."""
MIN_NEAR_FRAC = 0.25
"""Part of a window near counted places, below which its pace does not count: places may be passed by code
that samples do not find near them."""
DURING = len(BEFORE_WINDOWS)
"""The window in the shutter, among all of them."""
IS_DURING = np.arange(len(COUNT_WINDOWS)) == DURING

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Counts:
    """Shutters (rows of `shutters`) at which the same places were counted, by window and place.

    `passes` has shape (shutter, window, place), `is_watched` (shutter, place), `is_crowded` (shutter);
    `length_ns`, `near_ns` and `lost_ns` (shutter, window): of the window, of its part near counted places,
    and of what counting took. Windows are those before the shutter, and the one in it.
    """

    rows: Indices
    passes: Array
    is_watched: Flags
    is_crowded: Flags
    length_ns: Array
    near_ns: Array
    lost_ns: Array

    @property
    def time_ns(self) -> Array:
        """What is left of the time near counted places, by shutter and window."""
        return self.near_ns - np.minimum(self.lost_ns, (1 - MIN_TIME_FRAC) * self.near_ns)

    @property
    def is_near(self) -> Flags:
        """Whether enough of each window is near counted places."""
        result: Flags = self.near_ns >= MIN_NEAR_FRAC * self.length_ns
        return result

    @property
    def is_free(self) -> Flags:
        """All windows but those inside crowded shutters."""
        result: Flags = ~(self.is_crowded[:, None] & IS_DURING)
        return result

    def select(self, chosen: Flags) -> Counts:
        """Some of the shutters."""
        return Counts(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


def paces_of_windows(counts: Counts, fitted_on: Counts) -> Array:
    """Work per time of each window, of shape (shutter, window), by weights from the windows of `fitted_on`.

    1 is about the mean; NaN where too few places were counted.
    """
    unit, weights = _weights(fitted_on)
    weighed = np.where(counts.is_watched, weights, 0.0)
    known = weighed.sum(axis=1)
    work = (counts.passes * (unit * weighed)[:, None, :]).sum(axis=2)
    return over(work, np.where(known >= MIN_WATCHED_FRAC, known, np.nan)[:, None]) / counts.time_ns


def with_far_time(counts: Counts) -> Counts:
    """The same, with the far time that goes with passes added to `near_ns`.

    It is the part of each window's far time that the fit ascribes to passes, and not to the constant. In
    shutters passes are divided by the speed-up there, which the weights find.
    """
    far_ns, speed, result = counts.length_ns - counts.near_ns, 1.0, counts
    # A shutter tells as much as all the windows before it.
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
    """Work per time in shutters over that before them."""
    found = paces_of_windows(counts, counts)
    good_ns = np.where(counts.is_near & counts.is_free & np.isfinite(found), counts.time_ns, 0.0)
    before, during = (
        float(over((np.nan_to_num(found) * good_ns)[:, of].sum(), good_ns[:, of].sum()))
        for of in (~IS_DURING, IS_DURING)
    )
    return min(max(during / before, 1 / MAX_SPEED), MAX_SPEED) if before > 0 and during > 0 else 1.0


def _weights(counts: Counts) -> tuple[Array, Array]:
    """Time for which one pass of each place stands, ns, and the place's part in the result."""
    watched_ns = counts.time_ns.sum(axis=1) @ counts.is_watched
    rate = over(counts.passes.sum(axis=(0, 1)), watched_ns)
    seen = rate > 0
    weights = np.zeros(len(rate))
    if seen.any():
        is_good = counts.is_near & counts.is_free
        good_ns = np.where(is_good, counts.time_ns, 0.0) if is_good.any() else counts.time_ns
        weights[seen] = _even_weights(_unit_paces(counts, rate)[:, seen], good_ns.ravel())
    return over(seen.astype(float), rate), weights


def _even_weights(paces: Array, time_ns: Array) -> Array:
    """Weights that make the work per time of all windows the same, but for one factor of those in shutters.

    With a mean of its own for each place in shutters, a phase that few shutters met would not count.
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


def _unit_paces(counts: Counts, rate: Array) -> Array:
    """Passes of each place (column) in each window, over its mean; the mean of the others if not watched."""
    time_ns = counts.time_ns.ravel()
    passes = counts.passes.reshape(len(time_ns), -1)
    is_watched = np.repeat(counts.is_watched, len(COUNT_WINDOWS), axis=0)
    pace = over(passes, time_ns[:, None] * rate)
    mean = over(pace.sum(axis=1), (is_watched & (rate > 0)).sum(axis=1))
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
