"""A smooth sensitivity curve through noisy slowdowns beside single levels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.bubbles import SensitivityCurve

BENDS = (0.01, 0.03, 0.06, 0.12, 0.25)
"""How much the slope of log(slowdown) may change along a level, in a random walk: from a line to anything."""
SLOPE = 0.15
"""Standard deviation of log(slowdown) per level before anything is measured: 8 levels may be 3.3, or more."""
_TO_95 = 1.96
Array = NDArray[np.float64]


def smoothed(measured: SensitivityCurve, common: float = 0.0) -> SensitivityCurve:
    """The curve that the slowdowns beside single levels belong to.

    Parameters
    ----------
    measured : SensitivityCurve
        The ends of its intervals tell how well each level is known.
    common : float
        Standard deviation of log(slowdown) that all levels share, as part of these.

    Returns
    -------
    SensitivityCurve
        At the same levels. It may fall, and be below 1, as the measured one.

    Notes
    -----
    A cubic smoothing spline through 1 at level 0, as the mean of a Gaussian process (Wahba 1978):
    log(slowdown) is the integral of a random walk. How much it bends is not fitted but averaged over `BENDS`,
    each weighted by how likely it makes what was measured; intervals include what these differ by.
    """
    level = measured.levels[1:]
    value, low, high = (np.log(ends[1:]) for ends in (measured.slowdown, measured.low, measured.high))
    variance = ((high - low) / (2 * _TO_95)) ** 2
    noise = np.diag(np.maximum(variance - common**2, 1e-12)) + common**2
    fits = [_posterior(_prior(level, bend), noise, value) for bend in BENDS]
    means, variances = (np.array([fit[i] for fit in fits]) for i in (0, 1))
    evidence = np.array([fit[2] for fit in fits])
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    mean = weight @ means
    half = _TO_95 * np.sqrt(weight @ (variances + (means - mean) ** 2))
    value, low, high = (np.append(1.0, np.exp(one)) for one in (mean, mean - half, mean + half))
    return replace(measured, slowdown=value, low=low, high=high)


def _prior(level: Array, bend: float) -> Array:
    """Covariance of log(slowdown) at these levels: a slope, and the integral of a random walk."""
    least, most = np.minimum.outer(level, level), np.maximum.outer(level, level)
    result: Array = SLOPE**2 * np.outer(level, level) + bend**2 * least**2 * (3 * most - least) / 6
    return result


def _posterior(prior: Array, noise: Array, value: Array) -> tuple[Array, Array, float]:
    """Mean and variances of what was measured as `value`, and the logarithm of how likely that is."""
    solved = np.linalg.solve(prior + noise, np.column_stack([value, prior]))
    evidence = -(float(value @ solved[:, 0]) + np.linalg.slogdet(prior + noise)[1]) / 2
    return prior @ solved[:, 0], np.diag(prior - prior @ solved[:, 1:]), evidence
