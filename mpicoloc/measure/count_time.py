"""How much of each window goes with the counted places: by samples near them, and by their passes.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.tables import COUNT_WINDOWS, Table

MAX_PLACES = 8
"""Places, at most, with whose passes far time may go."""
MIN_T = 3.0
"""Factor of a place, in standard errors, below which far time does not go with its passes."""
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


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
    return np.where(is_known, (n_near + 0.5) / (n_all + 1.0), mean)


def far_with_passes(
    passes: Array, far_ns: Array, length_ns: Array, weight: Array, n_free: int
) -> tuple[Array, float]:
    """Time far from all places that goes with passes: of each place per pass, ns; and the rest of it.

    A loop may call functions that are not counted, or the kernel gives it memory: then far time rises and
    falls with its passes. Least squares with a constant part of the time, which is the second result; places
    are added one after the other, each if it takes enough of the variance away.

    Result: by place, ns; and the constant part, a fraction of all time.
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


def _fitted(columns: Array, values: Array, weight: Array, n_free: int) -> tuple[list[int], Array]:
    """The columns that go with the values, and their factors, all above 0."""
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


def _least_squares(columns: Array, values: Array, weight: Array) -> tuple[Array, Array]:
    """Factors of the columns, and what is left of the values."""
    root = np.sqrt(weight)
    found = np.asarray(np.linalg.lstsq(root[:, None] * columns, root * values, rcond=None)[0], float)
    return found, values - columns @ found


def over(a: Array, b: Array | float) -> Array:
    """A / b, and 0 where b is 0."""
    b = np.asarray(b, float)
    return np.where(b != 0, a, 0.0) / np.where(b != 0, b, 1.0)
