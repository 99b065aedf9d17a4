"""Curves as models use them: rising from 1, whatever noise the measurement had."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.bubbles import SensitivityCurve

Floats = NDArray[np.float64]
LEAST_WIDTH = 1e-3
"""No slowdown is more certain than this, so no level outweighs all others."""


def monotone(curve: SensitivityCurve) -> tuple[SensitivityCurve, str]:
    """The nearest curve that never falls and never is below 1, and what there is to tell of the change.

    Isotonic regression. Value and both ends have the same weights, so the interval still holds the value.
    """
    from scipy.optimize import isotonic_regression  # imported here because most commands need no curve

    ends = [np.maximum(part, 1.0) for part in (curve.slowdown, curve.low, curve.high)]
    weights = 1 / np.maximum(curve.high - curve.low, LEAST_WIDTH) ** 2
    risen = [np.maximum(isotonic_regression(part, weights=weights).x, 1.0) for part in ends]
    value, low, high = risen
    low, high = np.minimum(low, value), np.maximum(high, value)
    # Level 0 is 1 by definition: the regression may have moved it with its neighbours by a rounding error.
    value[0] = low[0] = high[0] = 1.0
    changed = SensitivityCurve(curve.program, curve.levels, value, low, high, curve.n, curve.source)
    return changed, _fall(curve)


def _fall(curve: SensitivityCurve) -> str:
    """Where a curve falls most, in words; empty: it does not."""
    before = np.maximum.accumulate(np.maximum(curve.slowdown, 1.0))
    fall = before - np.maximum(curve.slowdown, 1.0)
    i = int(fall.argmax())
    if fall[i] <= 0:
        return ""
    is_noise = curve.high[i] >= before[i] - (before[i] - 1) * 1e-9
    why = (
        "within its interval, so taken as noise"
        if is_noise
        else "more than its interval: measure it again by `mpicoloc bubble sensitivity`"
    )
    return (
        f"curve of {curve.program} falls by {fall[i]:.3f} up to level {curve.levels[i]:g}, {why}; "
        "made even where it falls"
    )
