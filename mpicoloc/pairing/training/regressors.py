"""The regressors that compete: what is searched over, how one is made, and its arrays.

Most are those of scikit-learn; those of few parameters, for training sets of few programs, are made here in
its manner. Rows of x are the features of the target and, after them, those of the co-runner.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import solve
from scipy.stats import loguniform, randint, uniform
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import ElasticNet, PoissonRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.svm import SVR

from mpicoloc.core.profile import Floats
from mpicoloc.pairing.fitted import (
    ACTIVATIONS,
    LEAF,
    MOST_EXPONENT,
    Kernel,
    Layers,
    Linear,
    Product,
    Regressor,
    Similar,
    Trees,
    squares,
)
from mpicoloc.pairing.scores import UNDER_COST


class IntensityRegressor:
    """One feature, added up over target and co-runner: the best one, and a straight line.

    What Distributed Intensity (Zacarias et al. 2021, section 2.2) knows of a pair: misses of the last cache.
    Where they were not counted, the data choose among the few features that tell most of a job.
    """

    def fit(self, x: Floats, y: Floats, sample_weight: Floats) -> IntensityRegressor:
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

    def predict(self, x: Floats) -> Floats:
        """Slowdowns for rows."""
        return np.asarray(x @ self.coef_ + self.intercept_)


class ProductRegressor:
    """Slowdown - 1 = sensitivity of the target times pressure of the co-runner.

    The logarithm of each is linear in the features of its job: a generalised linear model with logarithmic
    link. `alpha` draws all weights to 0, where every pair has the mean.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def fit(self, x: Floats, y: Floats, sample_weight: Floats) -> ProductRegressor:
        """Learn weights; returns itself."""
        if not (y > 1).any():  # no logarithm of nothing
            self.coef_, self.intercept_ = np.zeros(x.shape[1]), -MOST_EXPONENT
            return self
        found = PoissonRegressor(alpha=self.alpha, max_iter=400).fit(x, y - 1, sample_weight)
        self.coef_, self.intercept_ = found.coef_, float(found.intercept_)
        return self

    def predict(self, x: Floats) -> Floats:
        """Slowdowns for rows."""
        return np.asarray(1 + np.exp(np.minimum(x @ self.coef_ + self.intercept_, MOST_EXPONENT)))


class SimilarRegressor:
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

    def fit(self, x: Floats, y: Floats, sample_weight: Floats) -> SimilarRegressor:
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

    def _covariance(self, x: Floats) -> Floats:
        n = x.shape[1] // 2
        mine = np.exp(-self.gamma_ * squares(x[:, :n], self.vectors_[:, :n]))
        others = np.exp(-self.gamma_ * squares(x[:, n:], self.vectors_[:, n:]))
        return self.apart_[0] * mine + self.apart_[1] * others + self.joint * mine * others

    def predict(self, x: Floats) -> Floats:
        """Slowdowns for rows."""
        return np.asarray(self._covariance(x) @ self.dual_ + self.intercept_)


Parameters = Mapping[str, Any]
MAX_LEAVES = 256
"""Of a tree: as many as 400 rows have use for. The time of a prediction grows with them."""
MAX_ITERATIONS = 400
"""Of the optimisers that go on until nothing gets better."""


@dataclass(frozen=True)
class Kind:
    """One kind of regressor.

    `space` has a list or a distribution of each parameter that is searched (Zacarias et al. 2021, Table 2);
    `make` builds the estimator of scikit-learn from parameters and a seed, `arrays` makes arrays of it when
    it is fitted. `usual` is the point that is tried first. `is_prepared`: its features go through a
    `Preparation` first.
    """

    space: Mapping[str, Any]
    usual: Parameters
    make: Callable[[Parameters, int], Any]
    arrays: Callable[[Any], Regressor]
    is_prepared: bool


def fit(kind: Kind, parameters: Parameters, seed: int, x: Floats, y: Floats, weights: Floats) -> Any:
    """A fitted estimator of scikit-learn.

    Shapes: `x` (n, 2 F), `y`, `weights` (n,).
    """
    estimator = kind.make(parameters, seed)
    with warnings.catch_warnings():
        # A search tries points at which optimisers do not settle; their scores tell.
        warnings.simplefilter("ignore")
        return estimator.fit(x, y, sample_weight=weights)


def _network(parameters: Parameters, seed: int) -> Any:
    rest = {name: value for name, value in parameters.items() if name != "hidden_layer_sizes"}
    hidden = tuple(map(int, parameters["hidden_layer_sizes"].split(",")))
    return MLPRegressor(
        hidden_layer_sizes=hidden, **rest, random_state=seed, max_iter=MAX_ITERATIONS, batch_size=64
    )


def _linear_arrays(estimator: Any) -> Linear:
    return Linear(np.asarray(estimator.coef_, float), np.asarray(float(estimator.intercept_)))


def _constant_arrays(estimator: Any) -> Linear:
    return Linear(np.zeros(estimator.n_features_in_), np.asarray(float(estimator.constant_[0, 0])))


def _product_arrays(estimator: Any) -> Product:
    return Product(np.asarray(estimator.coef_, float), np.asarray(estimator.intercept_))


def _similar_arrays(estimator: Any) -> Similar:
    numbers = (estimator.gamma_, *estimator.apart_, estimator.joint, estimator.intercept_)
    scalars = [np.asarray(float(number)) for number in numbers]
    return Similar(np.asarray(estimator.vectors_, float), estimator.dual_, *scalars)


def _kernel_arrays(estimator: Any) -> Kernel:
    numbers = {
        "gamma": 1.0 if estimator.kernel == "linear" else estimator._gamma,
        "coef0": 0.0 if estimator.kernel == "linear" else estimator.coef0,
        "degree": {"rbf": 0, "linear": 1}.get(estimator.kernel, estimator.degree),
        "base": estimator.intercept_[0],
    }
    scalars = {name: np.asarray(float(value)) for name, value in numbers.items()}
    vectors, dual = np.asarray(estimator.support_vectors_, float), np.asarray(estimator.dual_coef_[0], float)
    return Kernel(vectors, dual, **scalars)


def _layers_arrays(estimator: Any) -> Layers:
    sizes = [len(estimator.coefs_[0]), *(weights.shape[1] for weights in estimator.coefs_)]
    pairs = zip(estimator.coefs_, estimator.intercepts_, strict=True)
    numbers = np.concatenate([np.concatenate([weights.ravel(), bias]) for weights, bias in pairs])
    activation = list(ACTIVATIONS).index(estimator.activation)
    return Layers(np.array(sizes), np.asarray(numbers, float), np.asarray(activation))


def _forest_arrays(estimator: Any) -> Trees:
    trees = [tree.tree_ for tree in estimator.estimators_]
    parts = [
        {
            "feature": np.where(tree.children_left < 0, LEAF, tree.feature),
            "threshold": tree.threshold,
            "left": tree.children_left,
            "right": tree.children_right,
            "missing_left": tree.missing_go_to_left,
            "value": tree.value[:, 0, 0] / len(trees),
        }
        for tree in trees
    ]
    return _trees(parts, 0.0)


def _boosting_arrays(estimator: Any) -> Trees:
    nodes = [predictors[0].nodes for predictors in estimator._predictors]
    parts = [
        {
            "feature": np.where(node["is_leaf"], LEAF, node["feature_idx"]),
            "threshold": node["num_threshold"],
            "left": node["left"],
            "right": node["right"],
            "missing_left": node["missing_go_to_left"],
            "value": node["value"],
        }
        for node in nodes
    ]
    return _trees(parts, float(np.ravel(estimator._baseline_prediction)[0]))


def _trees(parts: list[dict[str, Any]], base: float) -> Trees:
    """The trees one after the other; what leaves do not have is 0."""
    sizes = [len(part["feature"]) for part in parts]
    roots = np.cumsum([0, *sizes[:-1]])
    whole: dict[str, Any] = {}
    for name in ("feature", "threshold", "left", "right", "missing_left", "value"):
        whole[name] = np.concatenate([np.asarray(part[name]) for part in parts])
    is_leaf = whole["feature"] == LEAF
    first = np.repeat(roots, sizes)
    for name in ("left", "right"):
        whole[name] = np.where(is_leaf, 0, whole[name].astype(np.int64) + first)
    return Trees(
        roots=roots.astype(np.int64),
        feature=whole["feature"].astype(np.int64),
        threshold=np.where(is_leaf, 0.0, whole["threshold"]),
        left=whole["left"],
        right=whole["right"],
        missing_left=whole["missing_left"].astype(bool),
        value=np.where(is_leaf, whole["value"], 0.0),
        base=np.asarray(base),
    )


_TREE_SPACE = {
    "n_estimators": randint(10, 51),
    "min_samples_split": randint(2, 11),
    "max_features": [0.2, 0.4, 0.7, 1.0],
    "bootstrap": [True, False],
}
_TREES = {"max_leaf_nodes": MAX_LEAVES, "n_jobs": 1}
_USUAL_TREES = {"n_estimators": 40, "min_samples_split": 2, "max_features": 0.7, "bootstrap": True}
KINDS: Mapping[str, Kind] = {
    "two factors": Kind(
        {"alpha": loguniform(1e-3, 10.0)},
        {"alpha": 0.1},
        lambda parameters, seed: ProductRegressor(**parameters),
        _product_arrays,
        True,
    ),
    "similar programs": Kind(
        {
            "length": loguniform(0.2, 4.0),
            "noise": loguniform(1e-2, 10.0),
            "joint": uniform(),
            "of_target": uniform(),
        },
        {"length": 0.7, "noise": 0.1, "joint": 0.3, "of_target": 0.5},
        lambda parameters, seed: SimilarRegressor(**parameters),
        _similar_arrays,
        True,
    ),
    "elastic net": Kind(
        {
            "alpha": loguniform(1e-4, 1.0),
            "l1_ratio": uniform(),
            "tol": loguniform(1e-5, 1e-3),
            "max_iter": randint(1000, 10001),
        },
        {"alpha": 0.01, "l1_ratio": 0.5, "tol": 1e-4, "max_iter": 5000},
        lambda parameters, seed: ElasticNet(**parameters, random_state=seed),
        _linear_arrays,
        True,
    ),
    "support vectors": Kind(
        {
            "kernel": ["rbf", "poly", "linear"],
            "C": loguniform(1e-2, 1e2),
            "tol": loguniform(1e-5, 1e-2),
            "coef0": uniform(),
            "degree": randint(2, 5),
            "gamma": ["scale", "auto"],
            "epsilon": loguniform(1e-3, 1e-1),
        },
        {
            "kernel": "rbf",
            "C": 1.0,
            "tol": 1e-3,
            "coef0": 0.0,
            "degree": 3,
            "gamma": "scale",
            "epsilon": 0.01,
        },
        lambda parameters, seed: SVR(**parameters, max_iter=50 * MAX_ITERATIONS),
        _kernel_arrays,
        True,
    ),
    "random forest": Kind(
        _TREE_SPACE,
        _USUAL_TREES,
        lambda parameters, seed: RandomForestRegressor(**parameters, **_TREES, random_state=seed),
        _forest_arrays,
        False,
    ),
    "extra trees": Kind(
        _TREE_SPACE,
        _USUAL_TREES,
        lambda parameters, seed: ExtraTreesRegressor(**parameters, **_TREES, random_state=seed),
        _forest_arrays,
        False,
    ),
    "gradient boosting": Kind(
        {
            "learning_rate": loguniform(0.03, 0.3),
            "max_iter": randint(30, 151),
            "max_leaf_nodes": randint(4, 32),
            "min_samples_leaf": randint(2, 21),
            "l2_regularization": loguniform(1e-3, 10.0),
        },
        {
            "learning_rate": 0.1,
            "max_iter": 80,
            "max_leaf_nodes": 15,
            "min_samples_leaf": 5,
            "l2_regularization": 0.1,
        },
        lambda parameters, seed: HistGradientBoostingRegressor(
            **parameters, random_state=seed, early_stopping=False
        ),
        _boosting_arrays,
        False,
    ),
    "network": Kind(
        {
            "hidden_layer_sizes": ["16", "32", "64", "32,8", "32,32"],
            "alpha": loguniform(1e-4, 1.0),
            "activation": list(ACTIVATIONS)[1:],
            "learning_rate_init": loguniform(1e-3, 1e-1),
            "tol": loguniform(1e-5, 1e-3),
        },
        {
            "hidden_layer_sizes": "32",
            "alpha": 0.01,
            "activation": "tanh",
            "learning_rate_init": 0.01,
            "tol": 1e-4,
        },
        _network,
        _layers_arrays,
        True,
    ),
}
"""Those of the paper, two more kinds of trees, and two of few parameters. The network is fitted by Adam,
which has no schedule for its learning rate, so Table 2's `learning_rate` is not searched."""
BASELINES: Mapping[str, Kind] = {
    "mean": Kind({}, {}, lambda parameters, seed: DummyRegressor(), _constant_arrays, True),
    # The one number for all that costs least.
    "quantile": Kind(
        {},
        {},
        lambda parameters, seed: DummyRegressor(strategy="quantile", quantile=UNDER_COST / (UNDER_COST + 1)),
        _constant_arrays,
        True,
    ),
    "intensity (DI)": Kind(
        {},
        {"features": "misses"},
        lambda parameters, seed: IntensityRegressor(),
        _linear_arrays,
        True,
    ),
}
"""What a model must be better than."""
