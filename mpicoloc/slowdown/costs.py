"""What a wrong prediction of a slowdown costs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
UNDER_COST = 2.0
"""An underestimate costs so many times an overestimate: it brings jobs together that should be apart."""


def cost(predicted: Array, measured: Array, weights: Array) -> float:
    """Weighted mean error, underestimates counted `UNDER_COST` times."""
    error = predicted - measured
    return float(np.average(np.where(error < 0, -UNDER_COST * error, error), weights=weights))


def cheapest(measured: Array, weights: Array) -> float:
    """The one prediction for all that costs least.

    Notes
    -----
    The weighted quantile at UNDER_COST / (UNDER_COST + 1): Koenker and Bassett 1978, Regression quantiles.
    """
    order = np.argsort(measured)
    below = np.cumsum(weights[order])
    found = np.searchsorted(below, UNDER_COST / (UNDER_COST + 1) * below[-1])
    return float(measured[order][min(int(found), len(order) - 1)])
