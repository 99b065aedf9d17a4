"""Linear models, support vectors and networks as arrays, for all pairs of many jobs at once.

What they take from target and co-runner are sums, so the two halves are computed apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_BLOCK = 1 << 22
"""Most numbers of an inner layer at once."""
MOST_EXPONENT = 50.0
"""Of what is beyond it nothing is believed, and nothing overflows."""


@dataclass(frozen=True)
class Linear:
    """`base` () + `weights` (2 F,) times the features of target and co-runner."""

    weights: Array
    base: Array

    def pairs(self, targets: Array, co_runners: Array) -> Array:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        n = targets.shape[1]
        result: Array = np.add.outer(targets @ self.weights[:n], co_runners @ self.weights[n:]) + self.base
        return result

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are no such model; empty: they are."""
        return _trouble(n_inputs, self.weights, self.base) or ("" if self.weights.ndim == 1 else "its shape")


@dataclass(frozen=True)
class Product:
    """1 + exp(`base` () + `weights` (2 F,) times the features of target and co-runner)."""

    weights: Array
    base: Array

    def pairs(self, targets: Array, co_runners: Array) -> Array:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        found = Linear(self.weights, self.base).pairs(targets, co_runners)
        return np.asarray(1 + np.exp(np.minimum(found, MOST_EXPONENT)))

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are no such model; empty: they are."""
        return Linear(self.weights, self.base).trouble(n_inputs)


@dataclass(frozen=True)
class Similar:
    """Effects of similar programs: see `pairing.training.small_sample_regressors.Similar`.

    `base` () + the sum over pairs r of the training set of `dual` (R,) times `of_target` () k_t + `of_other`
    () k_c + `joint` () k_t k_c, k = exp(-`gamma` () |x - v|^2) between a job and its half of `vectors`
    (R, 2 F).
    """

    vectors: Array
    dual: Array
    gamma: Array
    of_target: Array
    of_other: Array
    joint: Array
    base: Array

    def pairs(self, targets: Array, co_runners: Array) -> Array:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        n, gamma = targets.shape[1], float(self.gamma)
        left = np.exp(-gamma * squares(targets, self.vectors[:, :n])) * self.dual
        right = np.exp(-gamma * squares(co_runners, self.vectors[:, n:]))
        apart = np.add.outer(self.of_target * left.sum(axis=1), self.of_other * right @ self.dual)
        return np.asarray(self.joint * left @ right.T + apart + self.base)

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are no such model; empty: they are."""
        scalars = (self.gamma, self.of_target, self.of_other, self.joint)
        if (
            self.vectors.ndim != 2
            or self.dual.shape != self.vectors.shape[:1]
            or any(s.shape for s in scalars)
        ):
            return "its shape"
        if not (np.isfinite(self.dual).all() and all(map(np.isfinite, scalars)) and self.gamma >= 0):
            return "a number that is none"
        return _trouble(n_inputs, self.vectors, self.base)


@dataclass(frozen=True)
class Kernel:
    """Support vectors: `base` () + `dual` (S,) times kernel of `vectors` (S, 2 F) and features.

    `degree` () is 0 for the kernel exp(-gamma |x - v|^2), else it is (gamma x.v + coef0)^degree.
    """

    vectors: Array
    dual: Array
    gamma: Array
    coef0: Array
    degree: Array
    base: Array

    def pairs(self, targets: Array, co_runners: Array) -> Array:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        n = targets.shape[1]
        mine, others = self.vectors[:, :n], self.vectors[:, n:]
        gamma, degree = float(self.gamma), int(self.degree)
        if degree == 0:
            # exp of a sum is a product.
            left = np.exp(-gamma * squares(targets, mine)) * self.dual
            return np.asarray(left @ np.exp(-gamma * squares(co_runners, others)).T + self.base)
        left, right = gamma * targets @ mine.T + self.coef0, gamma * co_runners @ others.T
        result = np.zeros((len(targets), len(co_runners)))
        for k in range(degree + 1):  # binomial theorem
            result += math.comb(degree, k) * (left ** (degree - k) * self.dual) @ (right**k).T
        return result + self.base

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are no such model; empty: they are."""
        scalars = (self.gamma, self.coef0, self.degree)
        if (
            self.vectors.ndim != 2
            or self.dual.shape != self.vectors.shape[:1]
            or any(s.shape for s in scalars)
        ):
            return "its shape"
        if not (np.isfinite(self.dual).all() and all(map(np.isfinite, scalars)) and 0 <= self.degree <= 9):
            return "a number that is none"
        return _trouble(n_inputs, self.vectors, self.base)


def squares(one: Array, other: Array) -> Array:
    """Squared distances of all rows of `one` from all rows of `other`."""
    result: Array = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    return np.maximum(result, 0)


ACTIVATIONS = ("identity", "relu", "tanh", "logistic")


@dataclass(frozen=True)
class Layers:
    """A network: layer k is `activation` of `weights[k]` (in, out) times the one before, plus `biases[k]`.

    `activation` () is a row of `ACTIVATIONS`; the last layer has one output and none. `sizes` are those of
    all layers, and `numbers` their weights and biases one after the other.
    """

    sizes: NDArray[np.int64]
    numbers: Array
    activation: NDArray[np.int64]

    def _layers(self) -> list[tuple[Array, Array]]:
        layers, start = [], 0
        for n_in, n_out in zip(self.sizes[:-1].tolist(), self.sizes[1:].tolist(), strict=True):
            weights = self.numbers[start : start + n_in * n_out].reshape(n_in, n_out)
            start += n_in * n_out
            layers.append((weights, self.numbers[start : start + n_out]))
            start += n_out
        return layers

    def pairs(self, targets: Array, co_runners: Array) -> Array:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        (weights, bias), *rest = self._layers()
        n = targets.shape[1]
        left, right = targets @ weights[:n] + bias, co_runners @ weights[n:]
        result = np.empty((len(targets), len(co_runners)))
        step = max(1, _BLOCK // max(int(self.sizes[1:].max()) * max(len(co_runners), 1), 1))
        for i in range(0, len(targets), step):
            layer = left[i : i + step, None, :] + right
            for weights, bias in rest:
                layer = _active(layer, ACTIVATIONS[int(self.activation)]) @ weights + bias
            result[i : i + step] = layer[..., 0]
        return result

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are no such model; empty: they are."""
        sizes = self.sizes
        if sizes.ndim != 1 or not 2 <= len(sizes) <= 16 or sizes.min() < 1 or sizes.max() > 1 << 16:
            return "its sizes"
        n = int(((sizes[:-1] + 1) * sizes[1:]).sum())
        if sizes[0] != n_inputs or sizes[-1] != 1 or self.numbers.shape != (n,):
            return "its shape"
        if self.activation.shape or not 0 <= self.activation < len(ACTIVATIONS):
            return "its activation"
        return "" if np.isfinite(self.numbers).all() else "a number that is none"


def _active(layer: Array, name: str) -> Array:
    if name == "relu":
        return np.maximum(layer, 0)
    if name == "tanh":
        return np.tanh(layer)
    if name == "logistic":
        return np.asarray(0.5 * (1 + np.tanh(layer / 2)))
    return layer


def _trouble(n_inputs: int, weights: Array, base: Array) -> str:
    if weights.shape[-1:] != (n_inputs,) or base.shape:
        return "its shape"
    return "" if np.isfinite(weights).all() and np.isfinite(base) else "a number that is none"
