"""The pace in co-run from all of the time between shutters, where MPI calls tell it.

Places are counted in windows only. Where jobs take turns on processors, how far the program comes in a window
varies by factors. What MPI calls move varies with it, and is known for all the time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.measure.count_paces import Paces

MIN_SHUTTERS = 8
"""Shutters of a stratum with known bytes, below which nothing is changed."""
MIN_T = 3.0
"""Slope of the paces over the bytes per second, in standard errors, below which nothing is changed."""
Array = NDArray[np.float64]
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
    if is_known.sum() < MIN_SHUTTERS or n < MIN_SHUTTERS or weight @ found.during <= 0:
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
    result: Array = found.before + slope * (usual - rate) + np.where(is_used, more_spread, 0.0)
    return result
