"""The count estimate: how fast many places of the program are passed, with co-runners and without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Estimate, Table
from mpicoloc.measure.burst import PhaseSlowdown, t_quantile
from mpicoloc.measure.count_paces import Paces, paces

# The pace in co-run from all of the time between shutters, where MPI calls tell it.
#
# Places are counted in windows only. Where jobs take turns on processors, how far the program comes in a
# window
# varies by factors. What MPI calls move varies with it, and is known for all the time.


MIN_CORUN_SHUTTERS = 8
"""Shutters of a stratum with known bytes, below which nothing is changed."""
MIN_T = 3.0
"""Slope of the paces over the bytes per second, in standard errors, below which nothing is changed."""
_WINDOW, _SINCE = 0, 1


def steadied(found: Paces) -> Paces:
    """Paces before shutters as if calls had moved as much per second there as in all of the co-run time.

    In each stratum of each node `before - r during`, with r the ratio of their means, is fitted by a line
    over the bytes per second (least squares, weighted by the windows). Its slope corrects `before`: a control
    variate. The time since the shutter before counts if that one has the same stratum.
    """
    before = found.before.copy()
    for node in np.unique(found.node):
        own = np.flatnonzero(found.node == node)
        own = own[np.argsort(found.instant[own], kind="stable")]
        here = found.select(own)
        follows = np.diff(here.stratum, prepend=-1) == 0
        since_s = np.where(follows, here.moved_s[:, _SINCE], 0.0)
        here = replace(here, moved_s=np.stack([here.moved_s[:, _WINDOW], since_s], axis=1))
        for stratum in np.unique(here.stratum[here.stratum > 0]):
            same = here.stratum == stratum
            before[own[same]] = _steadied(here.select(same))
    return replace(found, before=before)


def _steadied(found: Paces) -> Array:
    is_known = found.moved_s[:, _SINCE] > 0
    is_used = found.is_good.all(axis=1) & ~found.crowded
    n = int(is_used.sum())
    weight = np.where(is_used, found.near_s[:, _WINDOW], 0.0)
    if is_known.sum() < MIN_CORUN_SHUTTERS or n < MIN_CORUN_SHUTTERS or weight @ found.during <= 0:
        return found.before
    weight /= weight.sum()
    usual = float(found.moved_bytes[is_known].sum() / found.moved_s[is_known].sum())
    rate = found.moved_bytes[:, _WINDOW] / found.moved_s[:, _WINDOW]
    # What goes with the rate may be in the shutter as well; then it is no error of the slowdown.
    differs = found.before - float((weight @ found.before) / (weight @ found.during)) * found.during
    off_rate = rate - weight @ rate
    variance, covariance = float(weight @ off_rate**2), float(weight @ (off_rate * differs))
    left = float(weight @ differs**2) - covariance**2 / variance if variance > 0 else np.inf
    if covariance <= 0 or covariance**2 * (n - 2) < MIN_T**2 * left * variance:
        return found.before
    slope = covariance / variance
    # The line took a degree of freedom from what is left of the spread.
    more_spread = (np.sqrt((n - 1) / (n - 2)) - 1) * (differs - slope * off_rate)
    return found.before + slope * (usual - rate) + np.where(is_used, more_spread, 0.0)


METHOD = "count"
MIN_SHUTTERS = 6
"""Shutters with counts below which there is no estimate."""
MAX_HALF_WIDTH = 0.5
"""Half width of an interval, in the logarithm, above which there is no estimate."""
MIN_COVERAGE = 0.6
"""Part of the job's time in which the counted places must be passed; the rest counts as slowed alike."""
MIN_PACE = 0.02
"""Pace, over the mean one, below which nothing is passed."""
REST_ERROR, REST_ERROR_FRAC = 0.15, 0.5
"""The logarithm of the slowdown of time far from all counted places differs from that of the near time by
so much, and by this part of the latter: standard error before anything is measured."""
MAX_STRATUM_ERROR = 0.25
"""Standard error of a stratum's slowdown, in the logarithm, above which its time counts as not measured."""
MIN_CERTAIN = 0.4
"""Part of the job's time that is left at least if such strata are left out."""
MODEL_ERROR = 0.005
"""Relative standard error that no number of shutters removes."""
Array = NDArray[np.float64]


def slowdown(shutters: Table, counts: Table, *, cost_ns: float = 0.0) -> PhaseSlowdown:
    """Slowdown of the co-run phase, T_co/T_solo, from counts of places in shutters and before them.

    Result: with a 95 % interval, or with the reason why there is none.

    Eq. 6-8 of Breslow et al. 2013 with passes per second of many places in place of IPC.
    """
    return _estimate(steadied(_without_beginning(paces(shutters, counts, cost_ns=cost_ns))))


def half_width(found: Estimate | None) -> float:
    """Half the interval in the logarithm, by which estimators are compared; infinite if there is none."""
    return float(np.log(found.high / found.low)) / 2 if found is not None and found.low > 0 else np.inf


def _without_beginning(found: Paces) -> Paces:
    """Without shutters before the first at which a frequent set of places was counted, if enough are left.

    The first sets are of a program's beginning. Weights from so few windows are uncertain.
    """
    is_frequent = found.stratum > 0
    if not is_frequent.any():
        return found
    chosen = found.instant >= found.instant[is_frequent].min()
    return found.select(chosen) if chosen.sum() >= MIN_SHUTTERS else found


def _estimate(found: Paces) -> PhaseSlowdown:
    """Slowdown with interval."""
    is_seen = (found.during > MIN_PACE) | (found.before > MIN_PACE)
    n_shutters = len(np.unique(found.instant[is_seen & ~found.crowded]))
    if n_shutters < MIN_SHUTTERS:
        return PhaseSlowdown(None, f"places were passed at {n_shutters} shutters, {MIN_SHUTTERS} needed")
    near_frac = found.near_s[:, 0] / (found.near_s + found.far_s)[:, 0]
    coverage = float((found.share_s * near_frac)[is_seen].sum() / found.share_s.sum())
    if coverage < MIN_COVERAGE:
        why = f"the counted places are passed in only {coverage:.0%} of its time, {MIN_COVERAGE:.0%} needed"
        return PhaseSlowdown(None, why, coverage)
    value, deviation, measured_frac = _mean_slowdown(found, is_seen, MIN_CERTAIN / coverage)
    coverage *= measured_frac
    if not (np.isfinite(value) and value > 0):
        return PhaseSlowdown(
            None, "the counted places were passed inside shutters only, or outside them", coverage
        )
    n_free = 2 * (n_shutters - 1) / 3  # of differences between neighbours
    ratio, ratio_error = _rest_over_near(found, REST_ERROR + REST_ERROR_FRAC * abs(np.log(value)))
    far = (1 - coverage) / np.exp(ratio)
    value /= coverage + far
    model = 1.96 * float(np.hypot(MODEL_ERROR, ratio_error * far / (coverage + far)))
    half = float(np.hypot(t_quantile(n_free) * deviation, model))
    if half > MAX_HALF_WIDTH:
        wide = f"the interval's ends differ by a factor of {np.exp(2 * half):.1f}"
        return PhaseSlowdown(None, f"the counted places are passed too unevenly: {wide}", coverage)
    low, high = value * np.exp(-half), value * np.exp(half)
    return PhaseSlowdown(Estimate(value, low, high, n_shutters, "1", METHOD), "", coverage)


def _rest_over_near(found: Paces, prior: float) -> tuple[float, float]:
    """Slowdown of the time far from counted places over that near them: logarithm, standard error.

    If the far time is slowed more, its part is smaller in shutters. A window that lies within one visit tells
    nothing of that: `within` is 0 if all do, 1 if all windows have the same parts of both. What is seen so is
    weighed against `prior`, the standard error of taking both for slowed alike.
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


def _by_instant(values: Array, instant: NDArray[np.intp]) -> Array:
    """Sums of the rows of shutters that nodes have in common."""
    number = np.unique(instant, return_inverse=True)[1].ravel()
    sums = np.zeros((int(number.max()) + 1, *values.shape[1:]))
    np.add.at(sums, number, values)
    return sums


def _mean_slowdown(found: Paces, used: NDArray[np.bool_], least_frac: float) -> tuple[float, float, float]:
    """Slowdown, its standard error in the logarithm, and the part of the time in strata that tell it.

    T_solo/T_co of each stratum is the work done before its shutters over that in them; strata and nodes are
    weighted by the job's time in them. Strata that tell too little are left out if so much of the time is
    then left.
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
    speed = np.where(is_certain, usual, 0.0) / np.where(is_certain, done, 1.0)  # in co-run, over that alone
    part = share_s @ member / share_s.sum()
    mean = float(part @ speed)
    # What each shutter adds to the error of the mean.
    own = member @ speed
    error = (usual_error - own * done_error) * (member @ (part / np.where(is_certain, done, 1.0)))
    error += share_s / share_s.sum() * (own - mean)
    return 1 / mean, _standard_error(error, found.instant[used]) / mean, measured_frac


def _work(found: Paces, used: NDArray[np.bool_], member: Array) -> tuple[Array, Array, Array, Array]:
    """Work before the shutters and in them, by stratum, and what each shutter adds to the error of both."""
    weight = 1 / (1 / found.near_s[used]).sum(axis=1)
    is_good = found.is_good[used]
    is_free = is_good[:, 1] & ~found.crowded[used]
    usual, usual_error = _means(found.before[used], _weights(weight, is_good[:, 0], member), member)
    done, done_error = _means(found.during[used], _weights(weight, is_free, member), member)
    return usual, usual_error, done, done_error


def _stratum_errors(error: Array, member: Array) -> Array:
    """Standard error of each stratum from what each shutter adds, larger where it has few."""
    n = np.maximum(member.sum(axis=0), 2.0)
    few = np.array([t_quantile(one - 1) for one in n]) / t_quantile(1e6)
    return np.sqrt(error**2 @ member * n / (n - 1)) * few


def _weights(weight: Array, is_good: NDArray[np.bool_], member: Array) -> Array:
    """Weights of good windows only; of all windows in strata without a good one."""
    good = np.where(is_good, weight, 0.0)
    return np.where(member @ (good @ member) > 0, good, weight)


def _means(values: Array, weight: Array, member: Array) -> tuple[Array, Array]:
    """Weighted mean of each stratum (column of `member`); what each value adds to the error of that mean."""
    total = np.maximum(weight @ member, np.finfo(float).tiny)
    mean: Array = (values * weight) @ member / total
    return mean, (values - member @ mean) * weight / (member @ total)


def _standard_error(error: Array, instant: NDArray[np.intp]) -> float:
    """Of the sum of the errors, from the differences between shutters that follow each other.

    Shutters are taken at even distances. So a slow change of the program makes no error of the mean, but it
    would look like one in the spread of all shutters.
    """
    total = _by_instant(error, instant)
    n = len(total)
    return float(np.sqrt(n / (2 * (n - 1)) * (np.diff(total) ** 2).sum()))
