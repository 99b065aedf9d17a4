"""A slowdown model fitted to measured pairs: predicts with NumPy alone, and gives its errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from mpicoloc.core.profile import Bools, Estimate, Floats, Ints
from mpicoloc.core.slowdown import JobFeatures, Machine, PairSlowdowns, together

COVERAGE = 0.95
_WIDER = np.linspace(1.0, 4.0, 31)
LEAST = 1e-3
"""Smallest spread of a prediction's error."""


@dataclass(frozen=True)
class Band:
    """Interval around a prediction p, whose errors have the spread `fixed` + `per_excess` (p - 1).

    The ends of the 95 % interval are `below` (<= 0) and `above` (>= 0) spreads away from p, and at least
    `least` away from p. In model files without `least`, it is 0.
    """

    fixed: float
    per_excess: float
    below: float
    above: float
    least: float = 0.0

    def ends(self, predicted: Floats) -> tuple[Floats, Floats]:
        """Lower and upper ends for predicted slowdowns >= 1, of any shape."""
        spread = self.fixed + self.per_excess * (predicted - 1)
        low: Floats = np.maximum(1.0, predicted + np.minimum(self.below * spread, -self.least))
        high: Floats = predicted + np.maximum(self.above * spread, self.least)
        return np.minimum(low, predicted), high


def band(predicted: Floats, measured: Floats, least: float) -> Band:
    """Interval from slowdowns predicted and measured for rows that the model was not fitted to.

    Notes
    -----
    Split conformal prediction with residuals scaled by their expected size; the quantiles allow for the
    number of rows, (n + 1)/n. If all rows were clipped at 1, their errors would be 0, and so would the
    interval's width. The interval is therefore always at least as wide as the interval of the weighted mean
    of all rows: p -+ `least`.
    """
    from scipy.optimize import nnls  # imported here because only fitting needs SciPy

    error = measured - predicted
    design = np.stack([np.ones_like(predicted), predicted - 1], axis=1)
    fixed, per_excess = nnls(design, np.abs(error))[0]
    fixed = max(float(fixed), LEAST)
    scaled = np.sort(error / (fixed + per_excess * (predicted - 1)))
    n, tail = len(scaled), (1 - COVERAGE) / 2
    # Indices of the quantiles among n + 1 errors in ascending order.
    i_low = int(np.floor((n + 1) * tail)) - 1
    i_high = int(np.ceil((n + 1) * (1 - tail))) - 1
    below, above = scaled[max(i_low, 0)], scaled[min(i_high, n - 1)]
    return Band(fixed, float(per_excess), float(min(below, 0.0)), float(max(above, 0.0)), least)


def covering(
    predicted: Floats, measured: Floats, rows: Ints, left_out: Ints, least: float
) -> tuple[Band, float]:
    """Interval wide enough for programs that its computation did not see; `least` as in `band`.

    Also returns the fraction of rows inside intervals that were computed without their program.

    Shapes: `predicted`, `measured` (n,), `rows` (n,), `left_out` (n,).
    """
    held = np.zeros((len(_WIDER), len(predicted)), bool)
    for fold in np.unique(left_out):
        place = left_out == fold
        # A row appears twice, because each of its two programs is left out once: drop both copies.
        clean = ~np.isin(rows, rows[place])
        if clean.any():
            other = band(predicted[clean], measured[clean], least)
            for i, factor in enumerate(_WIDER):
                low, high = _wider(other, factor).ends(predicted[place])
                held[i, place] = (low <= measured[place]) & (measured[place] <= high)
    shares = held.mean(axis=1)
    enough = np.flatnonzero(shares >= COVERAGE)
    i = int(enough[0]) if len(enough) else len(_WIDER) - 1
    return _wider(band(predicted, measured, least), _WIDER[i]), float(shares[i])


def _wider(found: Band, factor: float) -> Band:
    return replace(found, below=found.below * factor, above=found.above * factor)


UNDER_COST = 2.0
"""Cost of an underestimate relative to an overestimate: underestimates pair jobs that should not share."""


def cost(predicted: Floats, measured: Floats, weights: Floats) -> float:
    """Weighted mean absolute error, with underestimates multiplied by `UNDER_COST`."""
    error = predicted - measured
    return float(np.average(np.where(error < 0, -UNDER_COST * error, error), weights=weights))


UNDER = 0.05
"""A slowdown that exceeds its prediction by more than this counts as underestimated."""


@dataclass(frozen=True)
class Scores:
    """Scores of n predictions for rows that a model was not fitted to.

    `r2`: 1 - the sum of squared errors divided by that of the mean as prediction (Zacarias et al. 2021,
    Eq. 2); None if the latter is 0. `mae`: mean absolute error of the slowdown. `cost`: mean error with
    underestimates multiplied by `pairing.fitted.UNDER_COST`. `under_frac`: fraction of rows underestimated by
    more than `UNDER`.
    `worst_under`: largest underestimate, or 0. `coverage`: fraction of rows inside the 95 % interval.
    `width`: mean width of that interval.
    """

    r2: float | None
    mae: float
    cost: float
    under_frac: float
    worst_under: float
    coverage: float
    width: float


@dataclass(frozen=True)
class Predictions:
    """Measured slowdowns (n,), and their predictions with intervals.

    `usual` is the prediction without any knowledge of the pair, and `weight` the weight of the row.
    """

    measured: Floats
    weight: Floats
    usual: Floats
    value: Floats
    low: Floats
    high: Floats


def with_intervals(
    measured: Floats, weight: Floats, usual: float | Floats, value: Floats, width: Band
) -> Predictions:
    """Predictions with the intervals of this band."""
    return Predictions(measured, weight, np.broadcast_to(usual, value.shape), value, *width.ends(value))


def concatenated(parts: list[Predictions]) -> Predictions:
    """Concatenate predictions."""
    fields = ("measured", "weight", "usual", "value", "low", "high")
    return Predictions(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def scores_of(of: Predictions) -> Scores:
    """Scores of predictions."""
    error = of.measured - of.value
    total = float(((of.measured - of.usual) ** 2).sum())
    return Scores(
        r2=1 - float((error**2).sum()) / total if total > 0 else None,
        mae=float(np.abs(error).mean()),
        cost=cost(of.value, of.measured, of.weight),
        under_frac=float((error > UNDER).mean()),
        worst_under=float(max(error.max(), 0.0)),
        coverage=float(((of.low <= of.measured) & (of.measured <= of.high)).mean()),
        width=float((of.high - of.low).mean()),
    )


@dataclass(frozen=True)
class Preparation:
    """Scales and fill values of F features, learnt from the jobs of a training set.

    `scale` (F,) has the values at which asinh turns from linear to logarithmic, and `fill` (F,) the values
    that replace missing ones. `flagged` (K,) are the features whose absence becomes a feature of its own.
    `mean` and `sd` (F + K,) standardise all features.
    """

    scale: Floats
    fill: Floats
    flagged: Ints
    mean: Floats
    sd: Floats

    def apply(self, features: Floats) -> Floats:
        """Features of jobs (n, F), NaN where missing, as (n, F + K)."""
        return (_filled(features, self.scale, self.fill, self.flagged) - self.mean) / self.sd


def prepare(features: Floats) -> Preparation:
    """Preparation for the features (n, F) of a training set's jobs, NaN where missing."""
    missing = np.isnan(features)
    sizes = np.where(missing | (features == 0), np.nan, np.abs(features))
    scale = _median(sizes, 1.0)
    fill = _median(np.arcsinh(features / scale), 0.0)
    flagged = np.flatnonzero(missing.any(axis=0) & ~missing.all(axis=0))
    full = _filled(features, scale, fill, flagged)
    sd = full.std(axis=0)
    return Preparation(scale, fill, flagged, full.mean(axis=0), np.where(sd > 1e-12, sd, 1.0))


def _filled(features: Floats, scale: Floats, fill: Floats, flagged: Ints) -> Floats:
    values = np.arcsinh(features / scale)
    return np.hstack([np.where(np.isnan(values), fill, values), np.isnan(features[:, flagged])])


def _median(values: Floats, otherwise: float) -> Floats:
    known = ~np.isnan(values).all(axis=0)
    result = np.full(values.shape[1], otherwise)
    result[known] = np.nanmedian(values[:, known], axis=0)
    return result


class Regressor(Protocol):
    """A regressor whose parameters are arrays."""

    def pairs(self, targets: Floats, co_runners: Floats) -> Floats:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are not a valid model of `n_inputs` = 2 F features; empty if they are."""


# Regressors as arrays, for all pairs of many jobs at once.
#
# All regressors except trees use sums over the features of target and co-runner, so the two halves are
# computed separately. Trees become a product of two matrices. Each node splits on one feature, of the target
# or of the co-runner, so the leaves that a job can reach do not depend on the other job of the pair. A
# pair ends in the one leaf of each tree that both can reach: prediction [i, j] = sum over leaves of (target i
# can reach it) * (value of the leaf) * (co-runner j can reach it).


LEAF = -1
_BLOCK_BYTES = 1 << 26
"""Largest size of a matrix of reachable leaves; larger ones are computed in blocks of jobs."""


@dataclass(frozen=True)
class Trees:
    """Binary trees with their nodes in common arrays, where a child comes after its parent.

    Parameters
    ----------
    roots : ndarray, shape (n_trees,)
        Root node of each tree.
    feature : ndarray, shape (n_nodes,)
        Index into the F features of the target, followed by those of the co-runner; `LEAF` for leaves.
    threshold : ndarray, shape (n_nodes,)
        Values up to the threshold go to `left`.
    left, right : ndarray, shape (n_nodes,)
        Children; 0 for leaves.
    missing_left : ndarray of bool, shape (n_nodes,)
        Whether a missing value goes to `left`.
    value : ndarray, shape (n_nodes,)
        Summand of each leaf.
    base : ndarray, shape ()
        Initial value of the sum.
    """

    roots: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    missing_left: Bools
    value: Floats
    base: Floats

    def pairs(self, targets: Floats, co_runners: Floats) -> Floats:
        """Predictions, shape (n, m), for all pairs of targets (n, F) and co-runners (m, F).

        NaN marks a missing feature. Single precision halves the time; errors are 1e-6 of the leaves' spread.
        """
        n_features = targets.shape[1]
        is_leaf = self.feature == LEAF
        # A pair ends in one leaf of each tree, so take out the leaves' mean before rounding to float32.
        common = self.value[is_leaf].mean()
        values = (self.value[is_leaf] - common).astype(np.float32)
        of_target = ~is_leaf & (self.feature < n_features)
        of_other = ~is_leaf & (self.feature >= n_features)
        column = np.where(of_other, self.feature - n_features, self.feature)
        result = np.empty((len(targets), len(co_runners)))
        for those in self._blocks(len(co_runners)):
            others = self._reach(co_runners[those], column, of_other)[is_leaf].astype(np.float32)
            for these in self._blocks(len(targets)):
                mine = self._reach(targets[these], column, of_target)[is_leaf]
                result[these, those] = (mine * values[:, None]).T @ others
        return result + (self.base + len(self.roots) * common)

    def _blocks(self, n: int) -> Iterator[slice]:
        step = max(1, _BLOCK_BYTES // (4 * max(len(self.feature), 1)))
        return (slice(i, i + step) for i in range(0, n, step))

    def _reach(self, features: Floats, column: Ints, decides: Bools) -> Bools:
        """Nodes (rows) that jobs (columns) can reach: both branches of a node that tests the other job."""
        # Trees were grown in single precision, and thresholds lie between single-precision numbers.
        values = np.ascontiguousarray(features.astype(np.float32).astype(float).T)
        reach = np.zeros((len(self.feature), len(features)), bool)
        reach[self.roots] = True
        nodes = self.roots
        while len(nodes := nodes[self.feature[nodes] != LEAF]):
            left, right, free = self.left[nodes], self.right[nodes], ~decides[nodes, None]
            value = values[column[nodes]]
            is_left = value <= self.threshold[nodes, None]
            is_left |= np.isnan(value) & self.missing_left[nodes, None]
            reach[left] = reach[nodes] & (is_left | free)
            reach[right] = reach[nodes] & (~is_left | free)
            nodes = np.concatenate([left, right])
        return reach

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are not valid trees of `n_inputs` features; empty if they are."""
        n = len(self.feature)
        if any(
            getattr(self, name).shape != (n,)
            for name in ("threshold", "left", "right", "missing_left", "value")
        ):
            return "its arrays differ in length"
        inner = np.flatnonzero(self.feature != LEAF)
        # A threshold may be infinite: such a node separates missing values from the others.
        if self.base.shape or np.isnan(self.threshold).any():
            return "a number that is invalid"
        if not (np.isfinite(self.value).all() and np.isfinite(self.base)):
            return "a number that is invalid"
        if not len(self.roots) or self.roots.ndim != 1 or self.roots.min() < 0 or self.roots.max() >= n:
            return "a tree without nodes"
        if len(inner) and not (self.feature[inner].min() >= 0 and self.feature[inner].max() < n_inputs):
            return "a node on a feature that does not exist"
        children = np.concatenate([self.left[inner], self.right[inner]])
        parents = np.concatenate([inner, inner])
        starts = np.concatenate([children, self.roots])
        # Each node must have one parent and come after this parent, so that every walk down a tree ends.
        if (
            len(starts) != n
            or len(np.unique(starts)) != n
            or not ((parents < children) & (children < n)).all()
        ):
            return "nodes that are not trees"
        return ""


_BLOCK_NUMBERS = 1 << 22
"""Largest number of values of an inner layer computed at once."""
MOST_EXPONENT = 50.0
"""Largest exponent. Larger exponents are clipped to it to avoid overflow; such predictions mean nothing."""


@dataclass(frozen=True)
class Linear:
    """`base` () + `weights` (2 F,) times the features of target and co-runner."""

    weights: Floats
    base: Floats

    def pairs(self, targets: Floats, co_runners: Floats) -> Floats:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        n = targets.shape[1]
        return np.add.outer(targets @ self.weights[:n], co_runners @ self.weights[n:]) + self.base

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are not a valid model of this kind; empty if they are."""
        return _trouble(n_inputs, self.weights, self.base) or ("" if self.weights.ndim == 1 else "its shape")


@dataclass(frozen=True)
class Product(Linear):
    """1 + exp(`base` () + `weights` (2 F,) times the features of target and co-runner)."""

    def pairs(self, targets: Floats, co_runners: Floats) -> Floats:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        return np.asarray(1 + np.exp(np.minimum(super().pairs(targets, co_runners), MOST_EXPONENT)))


@dataclass(frozen=True)
class Similar:
    """Kernel model over similar programs: see `pairing.training.fitting.SimilarRegressor`.

    `base` () + the sum over the pairs r of the training set of `dual` (R,) times (`of_target` () k_t +
    `of_other` () k_c + `joint` () k_t k_c). Here k = exp(-`gamma` () |x - v|^2), between the features x of a
    job and its half v of `vectors` (R, 2 F).
    """

    vectors: Floats
    dual: Floats
    gamma: Floats
    of_target: Floats
    of_other: Floats
    joint: Floats
    base: Floats

    def pairs(self, targets: Floats, co_runners: Floats) -> Floats:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        n, gamma = targets.shape[1], float(self.gamma)
        left = np.exp(-gamma * squares(targets, self.vectors[:, :n])) * self.dual
        right = np.exp(-gamma * squares(co_runners, self.vectors[:, n:]))
        apart = np.add.outer(self.of_target * left.sum(axis=1), self.of_other * right @ self.dual)
        return np.asarray(self.joint * left @ right.T + apart + self.base)

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are not a valid model of this kind; empty if they are."""
        scalars = (self.gamma, self.of_target, self.of_other, self.joint)
        found = _vectors_trouble(self, scalars, n_inputs)
        return found or ("" if self.gamma >= 0 else "a number that is invalid")


@dataclass(frozen=True)
class Kernel:
    """`base` () + `dual` (S,) times the kernel of the support vectors `vectors` (S, 2 F) and the features.

    The kernel is exp(-gamma |x - v|^2) if `degree` () is 0, else (gamma x.v + coef0)^degree.
    """

    vectors: Floats
    dual: Floats
    gamma: Floats
    coef0: Floats
    degree: Floats
    base: Floats

    def pairs(self, targets: Floats, co_runners: Floats) -> Floats:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        n = targets.shape[1]
        mine, others = self.vectors[:, :n], self.vectors[:, n:]
        gamma, degree = float(self.gamma), int(self.degree)
        if degree == 0:
            # The exponential of a sum is a product, so the two halves are computed separately.
            left = np.exp(-gamma * squares(targets, mine)) * self.dual
            return np.asarray(left @ np.exp(-gamma * squares(co_runners, others)).T + self.base)
        left, right = gamma * targets @ mine.T + self.coef0, gamma * co_runners @ others.T
        result = np.zeros((len(targets), len(co_runners)))
        for k in range(degree + 1):  # binomial theorem
            result += math.comb(degree, k) * (left ** (degree - k) * self.dual) @ (right**k).T
        return result + self.base

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are not a valid model of this kind; empty if they are."""
        found = _vectors_trouble(self, (self.gamma, self.coef0, self.degree), n_inputs)
        return found or ("" if 0 <= self.degree <= 9 else "a number that is invalid")


def squares(one: Floats, other: Floats) -> Floats:
    """Squared distances of all rows of `one` from all rows of `other`."""
    result: Floats = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    return np.maximum(result, 0)


ACTIVATIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "identity": lambda layer: layer,
    "relu": lambda layer: np.maximum(layer, 0),
    "tanh": np.tanh,
    "logistic": lambda layer: np.asarray(0.5 * (1 + np.tanh(layer / 2))),
}


@dataclass(frozen=True)
class Layers:
    """A network: layer k is `activation` of `weights[k]` (in, out) times layer k - 1, plus `biases[k]`.

    `activation` () is an index into `ACTIVATIONS`. The last layer has one output and no activation. `sizes`
    has the sizes of all layers, and `numbers` their weights and biases in sequence.
    """

    sizes: Ints
    numbers: Floats
    activation: Ints

    def _layers(self) -> list[tuple[Floats, Floats]]:
        layers, start = [], 0
        for n_in, n_out in zip(self.sizes[:-1].tolist(), self.sizes[1:].tolist(), strict=True):
            weights = self.numbers[start : start + n_in * n_out].reshape(n_in, n_out)
            start += n_in * n_out
            layers.append((weights, self.numbers[start : start + n_out]))
            start += n_out
        return layers

    def pairs(self, targets: Floats, co_runners: Floats) -> Floats:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""
        (weights, bias), *rest = self._layers()
        n, active = targets.shape[1], list(ACTIVATIONS.values())[int(self.activation)]
        left, right = targets @ weights[:n] + bias, co_runners @ weights[n:]
        result = np.empty((len(targets), len(co_runners)))
        step = max(1, _BLOCK_NUMBERS // max(int(self.sizes[1:].max()) * max(len(co_runners), 1), 1))
        for i in range(0, len(targets), step):
            layer = left[i : i + step, None, :] + right
            for weights, bias in rest:
                layer = active(layer) @ weights + bias
            result[i : i + step] = layer[..., 0]
        return result

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are not a valid model of this kind; empty if they are."""
        sizes = self.sizes
        if sizes.ndim != 1 or not 2 <= len(sizes) <= 16 or sizes.min() < 1 or sizes.max() > 1 << 16:
            return "its sizes"
        n = int(((sizes[:-1] + 1) * sizes[1:]).sum())
        if sizes[0] != n_inputs or sizes[-1] != 1 or self.numbers.shape != (n,):
            return "its shape"
        if self.activation.shape or not 0 <= self.activation < len(ACTIVATIONS):
            return "its activation"
        return "" if np.isfinite(self.numbers).all() else "a number that is invalid"


def _trouble(n_inputs: int, weights: Floats, base: Floats) -> str:
    if weights.shape[-1:] != (n_inputs,) or base.shape:
        return "its shape"
    return "" if np.isfinite(weights).all() and np.isfinite(base) else "a number that is invalid"


def _vectors_trouble(found: Similar | Kernel, scalars: Sequence[Floats], n_inputs: int) -> str:
    has_rows = found.vectors.ndim == 2 and found.dual.shape == found.vectors.shape[:1]
    if not has_rows or any(scalar.shape for scalar in scalars):
        return "its shape"
    if not (np.isfinite(found.dual).all() and all(map(np.isfinite, scalars))):
        return "a number that is invalid"
    return _trouble(n_inputs, found.vectors, found.base)


@dataclass(frozen=True)
class FittedModel:
    """A `SlowdownModel` fitted to measured pairs.

    Parameters
    ----------
    kind : str
        Name of the regressor.
    features : tuple of str
        Features that the model uses, in the order of its arrays.
    regressor : Regressor
    preparation : Preparation or None
        Preparation of the features; None: they are used as they are, NaN where missing.
    band : Band
        Width of the interval.
    usual : tuple of float
        Mean, 2.5 % and 97.5 % quantile of the measured slowdowns: the prediction for a job that has none of
        the features. The interval is at least as wide as that of the rows' weighted mean.
    most : float
        Largest measured slowdown. Larger predictions are clipped to it.
    n_rows : int
        Number of measured pairs in the training set.
    machine : Machine or None
        Machine of the measurements.
    card : mapping
        Description for people, as plain data: scores, training set, versions.
    """

    kind: str
    features: tuple[str, ...]
    regressor: Regressor
    preparation: Preparation | None
    band: Band
    usual: tuple[float, float, float]
    most: float
    n_rows: int
    machine: Machine | None = None
    card: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Slowdown of `target`; see `SlowdownModel`. Combines several co-runners by `together`."""
        found = self._ends([target], co_runners)[:, 0, :]
        parts = [Estimate(v, low, high, self.n_rows, "1", self.kind) for v, low, high in found.T]
        return parts[0] if len(parts) == 1 else together(parts, self.kind)

    def predict_pairs(self, jobs: Sequence[JobFeatures]) -> PairSlowdowns:
        """All ordered pairs of `jobs`; see `core.slowdown.pair_slowdowns`."""
        return PairSlowdowns(*self._ends(jobs, jobs))

    def _ends(self, targets: Sequence[JobFeatures], co_runners: Sequence[JobFeatures]) -> Floats:
        """Value, low and high (3, n, m) for all pairs."""
        mine, others = matrix(targets, self.features), matrix(co_runners, self.features)
        if self.preparation is None:
            value = self.regressor.pairs(mine, others)
        else:
            value = self.regressor.pairs(self.preparation.apply(mine), self.preparation.apply(others))
        value = np.clip(value, 1.0, max(self.most, 1.0))
        result = np.stack([value, *self.band.ends(value)])
        result[:, np.isnan(mine).all(axis=1), :] = np.reshape(self.usual, (3, 1, 1))
        result[:, :, np.isnan(others).all(axis=1)] = np.reshape(self.usual, (3, 1, 1))
        return result


def matrix(jobs: Sequence[JobFeatures], names: Sequence[str]) -> Floats:
    """Features of jobs, shape (n_jobs, n_names); NaN where a job lacks a feature."""
    rows = [[job.values.get(name, np.nan) for name in names] for job in jobs]
    return np.array(rows, float).reshape(len(jobs), len(names))
