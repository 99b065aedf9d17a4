"""Features as numbers that linear models, kernels and networks can use: no gaps, no tails, one scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Preparation:
    """What was learnt of F features from the jobs of a training set.

    `scale` (F,) is the size at which asinh turns from linear to logarithmic, `fill` (F,) stands in for what
    is missing, `flagged` (K,) are the features whose absence becomes a feature of its own. `mean` and `sd`
    (F + K,) make all of one scale.
    """

    scale: Array
    fill: Array
    flagged: NDArray[np.int64]
    mean: Array
    sd: Array

    def apply(self, features: Array) -> Array:
        """Features of jobs (n, F), NaN where missing, as (n, F + K)."""
        result: Array = (_filled(features, self.scale, self.fill, self.flagged) - self.mean) / self.sd
        return result


def prepare(features: Array) -> Preparation:
    """Learn from the features (n, F) of the jobs of a training set, NaN where missing."""
    missing = np.isnan(features)
    sizes = np.where(missing | (features == 0), np.nan, np.abs(features))
    scale = _median(sizes, 1.0)
    fill = _median(np.arcsinh(features / scale), 0.0)
    flagged = np.flatnonzero(missing.any(axis=0) & ~missing.all(axis=0))
    full = _filled(features, scale, fill, flagged)
    sd = full.std(axis=0)
    return Preparation(scale, fill, flagged, full.mean(axis=0), np.where(sd > 1e-12, sd, 1.0))


def _filled(features: Array, scale: Array, fill: Array, flagged: NDArray[np.int64]) -> Array:
    values = np.arcsinh(features / scale)
    return np.hstack([np.where(np.isnan(values), fill, values), np.isnan(features[:, flagged])])


def _median(values: Array, otherwise: float) -> Array:
    known = ~np.isnan(values).all(axis=0)
    result = np.full(values.shape[1], otherwise)
    result[known] = np.nanmedian(values[:, known], axis=0)
    return result
