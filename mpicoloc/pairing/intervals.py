"""The interval of a prediction, from how far predictions were off for programs that a model did not know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
COVERAGE = 0.95
_WIDER = np.linspace(1.0, 4.0, 31)
_LEAST = 1e-3
"""No prediction is more certain than a slowdown of this."""


@dataclass(frozen=True)
class Band:
    """Errors of a prediction p have the spread `fixed` + `per_excess` (p - 1).

    So many spreads (`below` <= 0 <= `above`) away from it lie the ends of the 95 % interval.
    """

    fixed: float
    per_excess: float
    below: float
    above: float

    def ends(self, predicted: Array) -> tuple[Array, Array]:
        """Lower and upper ends for slowdowns `predicted` of any shape, which are >= 1."""
        spread = self.fixed + self.per_excess * (predicted - 1)
        low: Array = np.maximum(1.0, predicted + self.below * spread)
        high: Array = predicted + self.above * spread
        return np.minimum(low, predicted), high


def band(predicted: Array, measured: Array) -> Band:
    """Interval from slowdowns predicted for rows that were left out, and what was measured there.

    Notes
    -----
    Split conformal prediction with residuals scaled by their expected size; the quantiles allow for the
    number of rows, (n + 1)/n.
    """
    from scipy.optimize import nnls  # imported here because only fitting needs SciPy

    error = measured - predicted
    design = np.stack([np.ones_like(predicted), predicted - 1], axis=1)
    fixed, per_excess = nnls(design, np.abs(error))[0]
    fixed = max(float(fixed), _LEAST)
    scaled = np.sort(error / (fixed + per_excess * (predicted - 1)))
    n, tail = len(scaled), (1 - COVERAGE) / 2
    # Of n + 1 errors in order, so many are below the end.
    i_low = int(np.floor((n + 1) * tail)) - 1
    i_high = int(np.ceil((n + 1) * (1 - tail))) - 1
    below, above = scaled[max(i_low, 0)], scaled[min(i_high, n - 1)]
    return Band(fixed, float(per_excess), float(min(below, 0.0)), float(max(above, 0.0)))


def covering(
    predicted: Array, measured: Array, rows: NDArray[np.int64], left_out: NDArray[np.int64]
) -> tuple[Band, float]:
    """Interval that holds for programs which it was not made from.

    Shapes: `predicted`, `measured` (n,), `rows` (n,), `left_out` (n,).
    """
    held = np.zeros((len(_WIDER), len(predicted)), bool)
    for fold in np.unique(left_out):
        place = left_out == fold
        # With a program at the other end of a row, the row itself is there a second time.
        clean = ~np.isin(rows, rows[place])
        if clean.any():
            other = band(predicted[clean], measured[clean])
            for i, factor in enumerate(_WIDER):
                low, high = _wider(other, factor).ends(predicted[place])
                held[i, place] = (low <= measured[place]) & (measured[place] <= high)
    shares = held.mean(axis=1)
    enough = np.flatnonzero(shares >= COVERAGE)
    i = int(enough[0]) if len(enough) else len(_WIDER) - 1
    return _wider(band(predicted, measured), _WIDER[i]), float(shares[i])


def _wider(found: Band, factor: float) -> Band:
    return Band(found.fixed, found.per_excess, found.below * factor, found.above * factor)
