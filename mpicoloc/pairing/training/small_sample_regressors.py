"""Regressors of few parameters, for training sets of few programs, in the manner of scikit-learn.

Rows of x are the features of the target and, after them, those of the co-runner.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from sklearn.linear_model import PoissonRegressor

from mpicoloc.pairing.array_regressors import MOST_EXPONENT, squares
from mpicoloc.pairing.scores import cheapest

Array = NDArray[np.float64]


class Mean:
    """What says the same of all pairs."""

    def fit(self, x: Array, y: Array, sample_weight: Array) -> Mean:
        """Learn the mean; returns itself."""
        self.coef_ = np.zeros(x.shape[1])
        self.intercept_ = float(np.average(y, weights=sample_weight))
        return self

    def predict(self, x: Array) -> Array:
        """Slowdowns for rows."""
        return np.full(len(x), self.intercept_)


class Quantile(Mean):
    """What says the same of all pairs, and costs least of all that do on the rows it learnt."""

    def fit(self, x: Array, y: Array, sample_weight: Array) -> Quantile:
        """Learn the quantile; returns itself."""
        self.coef_ = np.zeros(x.shape[1])
        self.intercept_ = cheapest(y, sample_weight)
        return self


class Intensity:
    """One feature, added up over target and co-runner: the best one, and a straight line.

    What Distributed Intensity (Zacarias et al. 2021, section 2.2) knows of a pair: misses of the last cache.
    Where they were not counted, the data choose among the few features that tell most of a job.
    """

    def fit(self, x: Array, y: Array, sample_weight: Array) -> Intensity:
        """Choose feature and line; returns itself."""
        n = x.shape[1] // 2
        both = x[:, :n] + x[:, n:]
        both_off = both - np.average(both, axis=0, weights=sample_weight)
        y_off = y - np.average(y, weights=sample_weight)
        covariance = (sample_weight * y_off) @ both_off
        variance = sample_weight @ both_off**2
        gain = np.divide(covariance**2, variance, out=np.zeros(n), where=variance > 0)
        best = int(np.argmax(gain))
        self.coef_ = np.zeros(2 * n)
        self.coef_[[best, n + best]] = covariance[best] / variance[best] if gain[best] > 0 else 0.0
        self.intercept_ = float(np.average(y - x @ self.coef_, weights=sample_weight))
        return self

    def predict(self, x: Array) -> Array:
        """Slowdowns for rows."""
        return np.asarray(x @ self.coef_ + self.intercept_)


class Product:
    """Slowdown - 1 = sensitivity of the target times pressure of the co-runner.

    The logarithm of each is linear in the features of its job: a generalised linear model with logarithmic
    link. `alpha` draws all weights to 0, where every pair has the mean.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def fit(self, x: Array, y: Array, sample_weight: Array) -> Product:
        """Learn weights; returns itself."""
        if not (y > 1).any():  # no logarithm of nothing
            self.coef_, self.intercept_ = np.zeros(x.shape[1]), -MOST_EXPONENT
            return self
        found = PoissonRegressor(alpha=self.alpha, max_iter=400).fit(x, y - 1, sample_weight)
        self.coef_, self.intercept_ = found.coef_, float(found.intercept_)
        return self

    def predict(self, x: Array) -> Array:
        """Slowdowns for rows."""
        return np.asarray(1 + np.exp(np.minimum(x @ self.coef_ + self.intercept_, MOST_EXPONENT)))


class Similar:
    """What pairs of similar programs suffered: effects of target, of co-runner, and of both together.

    Kriging with the covariance a k(t, t') + b k(c, c') + c k(t, t') k(c, c') between pairs (t, c) and
    (t', c'), k(u, v) = exp(-|u - v|^2 / (2 F length^2)). A program that is near none is taken for an average
    one, but what is known of the other program of the pair still counts, which a product alone would lose.

    Parameters
    ----------
    length : float
        How far programs may be apart and still be similar, in standard deviations of a feature.
    noise : float
        Variance of a row of mean weight, over that of the effects.
    joint : float
        Share `c` of the effect of both together, 0 to 1.
    of_target : float
        Share of the target in the rest, 0 to 1: a = (1 - c) of_target, b = (1 - c) (1 - of_target).
    """

    def __init__(self, length: float, noise: float, joint: float, of_target: float) -> None:
        self.length, self.noise, self.joint, self.of_target = length, noise, joint, of_target

    def fit(self, x: Array, y: Array, sample_weight: Array) -> Similar:
        """Learn the weight of each pair; returns itself."""
        # A pair that met often is one point, or its covariance would have no inverse worth the time.
        noise = self.noise * sample_weight.mean()
        x, which = np.unique(x, axis=0, return_inverse=True)
        weight = np.bincount(which.ravel(), sample_weight)
        y = np.bincount(which.ravel(), sample_weight * y) / weight
        self.vectors_ = x
        self.gamma_ = 1 / (x.shape[1] * self.length**2)
        rest = 1 - self.joint
        self.apart_ = np.array([rest * self.of_target, rest * (1 - self.of_target)])
        self.intercept_ = float(np.average(y, weights=weight))
        self.dual_ = solve(self._covariance(x) + np.diag(noise / weight), y - self.intercept_, assume_a="pos")
        return self

    def _covariance(self, x: Array) -> Array:
        n = x.shape[1] // 2
        mine = np.exp(-self.gamma_ * squares(x[:, :n], self.vectors_[:, :n]))
        others = np.exp(-self.gamma_ * squares(x[:, n:], self.vectors_[:, n:]))
        found: Array = self.apart_[0] * mine + self.apart_[1] * others + self.joint * mine * others
        return found

    def predict(self, x: Array) -> Array:
        """Slowdowns for rows."""
        return np.asarray(self._covariance(x) @ self.dual_ + self.intercept_)
