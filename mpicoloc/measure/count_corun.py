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
MIN_EXPLAINED_FRAC = 0.3
"""Part of the spread of the paces that the bytes must explain."""
Array = NDArray[np.float64]


def steadied(found: Paces) -> Paces:
    """Paces before shutters as if calls had moved as much per second there as in all of the co-run time.

    In each stratum of each node a line through the paces over the bytes per second (least squares, weighted
    by the windows) tells how one goes with the other: a control variate.
    """
    before = found.before.copy()
    keys = np.stack([found.node, found.stratum], axis=1)
    for key in np.unique(keys, axis=0):
        here = (keys == key).all(axis=1)
        before[here] = _steadied(found.select(here))
    return replace(found, before=before)


def _steadied(found: Paces) -> Array:
    is_known = found.since_s > 0
    if is_known.sum() < MIN_SHUTTERS:
        return found.before
    usual = float((found.moved[:, 1] * found.since_s)[is_known].sum() / found.since_s[is_known].sum())
    weight = found.near_s[:, 0] / found.near_s[:, 0].sum()
    off = [values - weight @ values for values in (found.moved[:, 0], found.before)]
    spread, common, all_spread = (float(weight @ (a * b)) for a, b in (off[:1] * 2, off, off[1:] * 2))
    if common <= 0 or common**2 < MIN_EXPLAINED_FRAC * spread * all_spread:
        return found.before
    result: Array = found.before - common / spread * (found.moved[:, 0] - usual)
    return result
