"""The count estimate: how fast many places of the program are passed, with co-runners and without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import Table, valid_shutters
from mpicoloc.measure.burst import t_quantile
from mpicoloc.measure.count_paces import Paces, paces

METHOD = "count"
MIN_SHUTTERS = 6
"""Shutters with counts below which there is no estimate."""
MAX_HALF_WIDTH = 0.5
"""Half width of an interval, in the logarithm, above which there is no estimate."""
MIN_COVERAGE = 0.6
"""Part of the job's time in which the counted places must be passed; the rest counts as slowed alike."""
MIN_PACE = 0.02
"""Pace, over the mean one, below which nothing is passed."""
REST_ERROR = 0.35
"""Standard error of the slowdown of time in which no place was passed."""
MODEL_ERROR = 0.005
"""Relative standard error that no number of shutters removes."""
AFTER_ERROR = 0.02
"""Standard error of paces that include the time after shutters, if threads take turns on a processor."""
MIN_BUSY = 0.97
"""Part of the time that threads have their processors, below which they take turns."""
N_REPLICATES = 600

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Counted:
    """Result of `slowdown`; `slowdown` is None when `reason` says why."""

    slowdown: Estimate | None
    reason: str = ""
    coverage_frac: float | None = None


def slowdown(shutters: Table, counts: Table, *, rng: np.random.Generator, cost_ns: float = 0.0) -> Counted:
    """Slowdown of the co-run phase, T_co/T_solo, from counts of places in and around shutters.

    Parameters
    ----------
    shutters, counts : Table
        Tables "shutters" and "counts" of a profile.
    rng : numpy.random.Generator
        For the bootstrap over groups of shutters.
    cost_ns : float
        Time that counting one pass takes from the node, ns: that of a thread, over the threads that count.

    Returns
    -------
    Counted
        With a 95 % interval, or with the reason why there is none.

    Notes
    -----
    Eq. 6-8 of Breslow et al. 2013 with passes per second of many places in place of IPC.
    """
    both_sides = paces(shutters, counts, cost_ns=cost_ns)
    busy = valid_shutters(shutters)["busy_frac"]
    if not (busy > 0).any() or busy[busy > 0].mean() >= MIN_BUSY:
        return _estimate(both_sides, 0.0, rng)
    # A thread that shares its processor with a co-runner loses it just after the shutter.
    before_only = paces(shutters, counts, cost_ns=cost_ns, only_before=True)
    found = [_estimate(before_only, 0.0, rng), _estimate(both_sides, AFTER_ERROR, rng)]
    return min(found, key=lambda counted: half_width(counted.slowdown))


def half_width(found: Estimate | None) -> float:
    """Half the interval in the logarithm, by which estimators are compared; infinite if there is none."""
    return float(np.log(found.high / found.low)) / 2 if found is not None and found.low > 0 else np.inf


def promised_half_width(found: Estimate, n_shutters: int) -> float:
    """Half-width that `n_shutters` shutters will give, in the logarithm, after those of `found`."""
    model = 1.96 * MODEL_ERROR
    spread = max(half_width(found) ** 2 - model**2, 0.0)
    return float(np.sqrt(model**2 + spread * found.n / max(n_shutters, 1)))


def _estimate(found: Paces, error: float, rng: np.random.Generator) -> Counted:
    """Slowdown with interval, to which `error` adds a relative standard error."""
    is_seen = (found.during > MIN_PACE) | (found.around > MIN_PACE)
    n_shutters = len(np.unique(found.instant[is_seen]))
    if n_shutters < MIN_SHUTTERS:
        return Counted(None, f"places were passed around {n_shutters} shutters, {MIN_SHUTTERS} needed")
    coverage = float(found.share_s[is_seen].sum() / found.share_s.sum())
    if coverage < MIN_COVERAGE:
        why = f"the counted places are passed in only {coverage:.0%} of its time, {MIN_COVERAGE:.0%} needed"
        return Counted(None, why, coverage)
    sums = _sums(found, is_seen)
    n_groups = len(sums.done)
    value = float(_slowdowns(sums, np.ones((1, n_groups)))[0])
    if not (np.isfinite(value) and value > 0):
        return Counted(None, "the counted places were passed inside shutters only, or outside them", coverage)
    below, above = _spread(sums, value, rng)
    model = 1.96 * float(np.sqrt(MODEL_ERROR**2 + error**2 + (REST_ERROR * (1 - coverage)) ** 2))
    low, high = value * np.exp(-np.hypot(below, model)), value * np.exp(np.hypot(above, model))
    if np.log(high / low) > 2 * MAX_HALF_WIDTH:
        wide = f"the interval's ends differ by a factor of {high / low:.1f}"
        return Counted(None, f"the counted places are passed too unevenly: {wide}", coverage)
    return Counted(Estimate(value, low, high, n_shutters, "1", METHOD), "", coverage)


@dataclass(frozen=True)
class _Sums:
    """Sums by group (row) and stratum: work done in shutters, work usual in their time, and the job's time.

    `node` has the node of each stratum, in the order of the columns.
    """

    done: Array
    usual: Array
    share_s: Array
    node: NDArray[np.intp]


def _sums(found: Paces, used: NDArray[np.bool_]) -> _Sums:
    keys = np.stack([found.node, found.stratum], axis=1)[used]
    strata, column = np.unique(keys, axis=0, return_inverse=True)
    groups, row = np.unique(found.group[used], return_inverse=True)
    cell = row.ravel() * len(strata) + column.ravel()

    def summed(values: Array) -> Array:
        total = np.zeros(len(groups) * len(strata))
        np.add.at(total, cell, values[used])
        return total.reshape(len(groups), -1)

    return _Sums(
        summed(found.during * found.time_s),
        summed(found.around * found.time_s),
        summed(found.share_s),
        strata[:, 0],
    )


def _slowdowns(sums: _Sums, weights: Array) -> Array:
    """Slowdown for each row of weights of the groups: harmonic over strata, mean over nodes."""
    done, usual, share_s = (weights @ part for part in (sums.done, sums.usual, sums.share_s))
    usable = (done > 0) & (usual > 0)
    corun_s: Array = np.where(usable, share_s, 0.0)
    solo_s: Array = corun_s * np.where(usable, usual, 0.0) / np.where(usable, done, 1.0)
    of_node = (sums.node[:, None] == np.unique(sums.node)).astype(float)
    corun_s, solo_s = corun_s @ of_node, solo_s @ of_node
    with np.errstate(divide="ignore", invalid="ignore"):
        by_node = np.where(solo_s > 0, corun_s / solo_s, 0.0)
        result: Array = (by_node * corun_s).sum(axis=1) / corun_s.sum(axis=1)
    return result


def _spread(sums: _Sums, value: float, rng: np.random.Generator) -> tuple[float, float]:
    """Ends of the interval below and above, in the logarithm: the wider of jackknife and bootstrap."""
    n_groups = len(sums.done)
    left_out = np.log(_slowdowns(sums, 1.0 - np.eye(n_groups)))
    deviation = np.sqrt((n_groups - 1) / n_groups * ((left_out - left_out.mean()) ** 2).sum())
    half = t_quantile(n_groups - 1) * float(deviation)
    picks = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), N_REPLICATES).astype(float)
    logs = np.log(_slowdowns(sums, picks)) - np.log(value)
    low, high = np.quantile(logs[np.isfinite(logs)], [0.025, 0.975])
    return max(half, -float(low)), max(half, float(high))
