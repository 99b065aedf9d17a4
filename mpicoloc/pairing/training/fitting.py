"""Fit slowdown models to measured pairs, compare them on programs they do not know, and keep the best.

As in Zacarias et al. 2021, section 3.3.1, 30 % of the rows are held back, and parameters are searched by
five-fold cross-validation on the other rows. The score that decides is another one, because a scheduler needs
predictions for programs that nobody has paired yet. For this score, each program in turn is left out of the
search, the choice, the fit and the interval's width, both as target and as co-runner.

Most regressors come from scikit-learn. Regressors with few parameters, for training sets of few programs, are
defined here with the same interface. A row of x has the features of the target, and then the features of the
co-runner.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn
from scipy.linalg import solve
from scipy.stats import loguniform, randint, uniform
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import ElasticNet, PoissonRegressor
from sklearn.model_selection import ParameterSampler
from sklearn.neural_network import MLPRegressor
from sklearn.svm import SVR
from threadpoolctl import threadpool_limits

from mpicoloc.core.profile import Bools, Floats, Ints
from mpicoloc.core.progress import steps
from mpicoloc.core.slowdown import TrainingSet
from mpicoloc.errors import DataError
from mpicoloc.pairing.features import FEATURES
from mpicoloc.pairing.fitted import (
    ACTIVATIONS,
    LEAF,
    LEAST,
    MOST_EXPONENT,
    UNDER_COST,
    Band,
    FittedModel,
    Kernel,
    Layers,
    Linear,
    Predictions,
    Preparation,
    Product,
    Regressor,
    Scores,
    Similar,
    Trees,
    band,
    concatenated,
    cost,
    covering,
    matrix,
    prepare,
    scores_of,
    squares,
    with_intervals,
)


class IntensityRegressor:
    """A straight line in the sum of one feature of the target and the same feature of the co-runner.

    Distributed Intensity (Zacarias et al. 2021, section 2.2) uses last-level cache misses. If these were not
    counted, the feature in `FEW` that fits the data best is used.
    """

    def fit(self, x: Floats, y: Floats, sample_weight: Floats) -> IntensityRegressor:
        """Choose the feature and the line. Returns this regressor."""
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

    The logarithm of each factor is linear in the features of its job: a generalised linear model with a log
    link. `alpha` shrinks all weights towards 0, at which every pair has the mean slowdown.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def fit(self, x: Floats, y: Floats, sample_weight: Floats) -> ProductRegressor:
        """Learn the weights. Returns this regressor."""
        if not (y > 1).any():  # the logarithm of 0 is undefined
            self.coef_, self.intercept_ = np.zeros(x.shape[1]), -MOST_EXPONENT
            return self
        found = PoissonRegressor(alpha=self.alpha, max_iter=400).fit(x, y - 1, sample_weight)
        self.coef_, self.intercept_ = found.coef_, float(found.intercept_)
        return self

    def predict(self, x: Floats) -> Floats:
        """Slowdowns for rows."""
        return np.asarray(1 + np.exp(np.minimum(x @ self.coef_ + self.intercept_, MOST_EXPONENT)))


class SimilarRegressor:
    """Predicts from similar programs, by effects of the target, of the co-runner, and of both together.

    Kriging with the covariance a k(t, t') + b k(c, c') + c k(t, t') k(c, c') between pairs (t, c) and
    (t', c'), where k(u, v) = exp(-|u - v|^2 / (2 F length^2)). A program that resembles no other counts as
    average. The effect of its partner then still counts; with only the product, it would be lost.

    Parameters
    ----------
    length : float
        Distance up to which programs count as similar, in standard deviations of a feature.
    noise : float
        Variance of a row of mean weight, divided by the variance of the effects.
    joint : float
        Share `c` of the effect of target and co-runner together, 0 to 1.
    of_target : float
        Share of the target in the rest, 0 to 1: a = (1 - c) of_target, b = (1 - c) (1 - of_target).
    """

    def __init__(self, length: float, noise: float, joint: float, of_target: float) -> None:
        self.length, self.noise, self.joint, self.of_target = length, noise, joint, of_target

    def fit(self, x: Floats, y: Floats, sample_weight: Floats) -> SimilarRegressor:
        """Learn the weight of each pair. Returns this regressor."""
        # The rows of a pair are merged into one point, so that the covariance matrix is not nearly singular.
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
"""Largest number of leaves of a tree. It is enough for 400 rows; the time of predictions grows with it."""
MAX_ITERATIONS = 400
"""Iteration limit of optimisers that run until convergence."""


@dataclass(frozen=True)
class Kind:
    """One kind of regressor.

    `space` has a list or a distribution for each searched parameter (Zacarias et al. 2021, Table 2). `make`
    builds the estimator from parameters and a seed, and `arrays` converts the fitted estimator to arrays. The
    search tries the parameters `usual` first. `is_prepared`: features pass through a `Preparation` first.
    """

    space: Mapping[str, Any]
    usual: Parameters
    make: Callable[[Parameters, int], Any]
    arrays: Callable[[Any], Regressor]
    is_prepared: bool


def fit(kind: Kind, parameters: Parameters, seed: int, x: Floats, y: Floats, weights: Floats) -> Any:
    """A fitted estimator.

    Shapes: `x` (n, 2 F), `y`, `weights` (n,).
    """
    estimator = kind.make(parameters, seed)
    with warnings.catch_warnings():
        # A search also tries parameters for which optimisers do not converge. Their bad scores rule them out.
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
    """The trees in common arrays. Fields that leaves lack are 0."""
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
"""The regressors of the paper, two more kinds of trees, and two regressors of few parameters. The network is
fitted by Adam, which has no schedule for its learning rate, so Table 2's `learning_rate` is not searched."""
BASELINES: Mapping[str, Kind] = {
    "mean": Kind({}, {}, lambda parameters, seed: DummyRegressor(), _constant_arrays, True),
    # The constant prediction of least cost.
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
"""Simple models that a model must beat."""


MIN_ROWS, MIN_PROGRAMS = 8, 4
"""Smallest numbers of rows and programs from which a model is fitted. With so few rows, the mean is kept
unless another kind is clearly better; even the mean is better than an assumed slowdown. With fewer programs,
nothing to learn from would remain when one is left out."""
LOOKED_AT = "features"
"""The parameter of every kind that selects its set of features."""
FEATURE_SETS = ("few", "mean", "all")
FEW = (
    "mpi_frac_mean",
    "cpu_frac_mean",
    "rss_bytes_mean",
    "minor_faults_per_s_mean",
    "sent_bps_mean",
    "burst_p50_s_mean",
    "ipc_mean",
    "cache_misses_per_s_mean",
)
"""Features that describe a program by few numbers. Among a hundred features, there would always be two that
fit ten programs by chance."""
MISSES = "cache_misses_per_s_mean"
"""The feature that Distributed Intensity uses."""
_NO_MEAN = ("_min", "_max", "_sd")


@dataclass(frozen=True)
class Problem:
    """Rows of a training set as numbers; `features` (n_jobs, F) has NaN where a job lacks a feature.

    `half` has the half widths of the rows' own intervals.
    """

    names: tuple[str, ...]
    features: Floats
    target: Ints
    co_runner: Ints
    slowdown: Floats
    half: Floats
    weight: Floats
    program: Ints

    def columns(self, wanted: str, jobs: Ints) -> Ints:
        """Columns of one of `FEATURE_SETS`, or ``misses``, without features that are equal for all `jobs`."""
        keep = {
            "few": lambda name: name in FEW,
            "misses": lambda name: name == MISSES,
            "mean": lambda name: not name.endswith(_NO_MEAN),
            "all": lambda name: True,
        }[wanted]
        named = np.array([i for i, name in enumerate(self.names) if keep(name)], np.int64)
        told = _differ(self.features[np.ix_(jobs, named)]) if len(named) else np.zeros(0, bool)
        return named[told]

    def mean(self, rows: Ints) -> float:
        """Weighted mean slowdown of rows."""
        return float(np.average(self.slowdown[rows], weights=self.weight[rows]))

    def least_half(self, rows: Ints) -> float:
        """Half width of the narrowest interval that a prediction can have.

        This is the interval of the rows' inverse-variance weighted mean: (sum 1 / h^2)^(-1/2) of the half
        widths h of the rows' own intervals, and at least `LEAST`.
        """
        return max(LEAST, float((np.maximum(self.half[rows], LEAST) ** -2.0).sum() ** -0.5))


def problem(training: TrainingSet) -> Problem:
    """The problem of a training set. Slowdowns below 1 count as 1 (Zacarias et al. 2021, section 3.2).

    Raises `DataError` if there are too few rows or programs, or the jobs have no features.
    """
    rows = training.rows
    used = np.unique(np.concatenate([rows["target"], rows["co_runner"]]))
    programs = np.array([job.program for job in training.jobs])
    n_programs = len(np.unique(programs[used]))
    if len(rows) < MIN_ROWS or n_programs < MIN_PROGRAMS:
        raise DataError(
            f"{len(rows)} slowdowns of {n_programs} programs are too few for a model: need {MIN_ROWS} of "
            f"{MIN_PROGRAMS} programs; run `mpicoloc campaign`, or wait for more jobs that shared nodes"
        )
    names = sorted({name for job in training.jobs for name in job.values})
    features = matrix(training.jobs, names)
    if not _differ(features[used]).any():
        raise DataError("all jobs of the training set have the same features; give profiles of their runs")
    return Problem(
        names=tuple(names),
        features=features,
        target=rows["target"].astype(np.int64),
        co_runner=rows["co_runner"].astype(np.int64),
        slowdown=np.maximum(rows["slowdown"], 1.0),
        half=(rows["high"] - rows["low"]) / 2,
        weight=rows["weight"].astype(float),
        program=np.unique(programs, return_inverse=True)[1],
    )


def _differ(features: Floats) -> Bools:
    """Columns with more than one value, not counting missing values."""
    return np.array([len(np.unique(column[~np.isnan(column)])) > 1 for column in features.T], bool)


def leave_program_out(given: Problem, rows: Ints, n_folds: int, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Split rows into training and test rows, where each test row has a program that training rows lack.

    Shapes: `rows` (n,). Result: a program that was left out is neither target nor co-runner in `train`. Folds
    without training or test rows are skipped.
    """
    mine, others = given.program[given.target[rows]], given.program[given.co_runner[rows]]
    programs = np.random.default_rng(seed).permutation(np.unique(np.concatenate([mine, others])))
    for part in np.array_split(programs, min(n_folds, len(programs))):
        is_out = np.isin(mine, part) | np.isin(others, part)
        if is_out.any() and not is_out.all():
            yield rows[~is_out], rows[is_out]


def fitted(
    given: Problem, kind: Kind, parameters: Parameters, rows: Ints, seed: int
) -> tuple[Any, Ints, Preparation | None]:
    """An estimator fitted to `rows`, the columns of its features, and their preparation."""
    jobs = np.unique(np.concatenate([given.target[rows], given.co_runner[rows]]))
    for wanted in (parameters.get(LOOKED_AT, "mean"), *FEATURE_SETS):
        columns = given.columns(wanted, jobs)
        if len(columns):
            break
    else:
        # No feature distinguishes the jobs, so use the mean.
        kind, parameters, columns = BASELINES["mean"], {}, np.arange(len(given.names))
    preparation = prepare(given.features[np.ix_(jobs, columns)]) if kind.is_prepared else None
    rest = {name: value for name, value in parameters.items() if name != LOOKED_AT}
    x = _inputs(given, columns, preparation, rows)
    return fit(kind, rest, seed, x, given.slowdown[rows], given.weight[rows]), columns, preparation


def predicted(
    given: Problem, kind: Kind, parameters: Parameters, train: Ints, test: Ints, seed: int
) -> Floats:
    """Slowdowns of rows `test`, predicted by an estimator fitted to the rows `train`."""
    estimator, columns, preparation = fitted(given, kind, parameters, train, seed)
    found = estimator.predict(_inputs(given, columns, preparation, test))
    return np.clip(found, 1.0, given.slowdown[train].max())


def _inputs(given: Problem, columns: Ints, preparation: Preparation | None, rows: Ints) -> Floats:
    """Features of target and co-runner of `rows`, (n, 2 F)."""
    features = given.features[:, columns]
    features = features.astype(np.float32) if preparation is None else preparation.apply(features)
    return np.hstack([features[given.target[rows]], features[given.co_runner[rows]]])


Parts = Sequence[tuple[Ints, Ints]]
N_FOLDS = 5


@dataclass(frozen=True)
class Tuned:
    """Parameters for some rows, their `cost` for programs left out of these rows, and the interval's width.

    Everything that is learnt from rows is in this object, so a program that is left out of the rows affects
    nothing in it.

    `held` is the fraction of rows inside intervals that were computed without the row's program; None if
    there are too few programs.
    """

    parameters: Parameters
    cost: float
    band: Band
    held: float | None


@dataclass(frozen=True)
class _LeftOut:
    """Rows (n,), the fold in which each was a test row, and the predictions there."""

    rows: Ints
    part: Ints
    predicted: Floats


def tuned(given: Problem, kind: Kind, rows: Ints, n_trials: int, seed: int) -> Tuned:
    """Search the parameters of a kind by cross-validation that leaves out whole programs.

    Shapes: `rows` (n,).

    The search follows Zacarias et al. 2021, section 3.3.1, with five folds. It is random here, because a
    dozen trials are too few to model the costs. The interval comes from the best trial's predictions for the
    programs that were left out.
    """
    parts = list(leave_program_out(given, rows, N_FOLDS, seed))
    usual = {LOOKED_AT: "mean", **kind.usual} if kind.space else dict(kind.usual)
    if not parts:
        # There are too few programs to leave one out, so use the interval of the mean.
        mean, measured = np.full(len(rows), given.mean(rows)), given.slowdown[rows]
        width = band(mean, measured, given.least_half(rows))
        return Tuned(usual, cost(mean, measured, given.weight[rows]), width, None)
    if kind.space and n_trials > 1:
        parameters, found = _best(given, kind, usual, parts, n_trials, seed)
    else:
        parameters, found = usual, _answers(given, kind, usual, parts, seed)
    measured = given.slowdown[found.rows]
    least = given.least_half(rows)
    width, held = covering(found.predicted, measured, found.rows, found.part, least)
    return Tuned(parameters, cost(found.predicted, measured, given.weight[found.rows]), width, held)


def _best(
    given: Problem, kind: Kind, usual: Parameters, parts: Parts, n_trials: int, seed: int
) -> tuple[Parameters, _LeftOut]:
    """The parameters of least cost, among the usual and the randomly drawn ones, and their predictions."""
    drawn = ParameterSampler({LOOKED_AT: FEATURE_SETS, **kind.space}, n_trials - 1, random_state=seed)
    trials = [usual, *({name: _plain(value) for name, value in trial.items()} for trial in drawn)]
    answers = [_answers(given, kind, trial, parts, seed) for trial in trials]
    costs = [cost(found.predicted, given.slowdown[found.rows], given.weight[found.rows]) for found in answers]
    best = int(np.argmin(costs))
    return trials[best], answers[best]


def _plain(value: Any) -> Any:
    """A parameter as a type that JSON supports."""
    return value.item() if isinstance(value, np.generic) else value


def _answers(given: Problem, kind: Kind, parameters: Parameters, parts: Parts, seed: int) -> _LeftOut:
    """Predictions for each fold by an estimator fitted to the rest."""
    number = [np.full(len(test), i) for i, (_, test) in enumerate(parts)]
    answers = [predicted(given, kind, parameters, train, test, seed) for train, test in parts]
    return _LeftOut(
        np.concatenate([test for _, test in parts]), np.concatenate(number), np.concatenate(answers)
    )


HELD_BACK_FRAC = 0.3
MAX_PROGRAM_FOLDS = 10
"""Largest number of folds. With more programs, several are left out together."""
TRIALS = 12
SAME_FOR_ALL = ("mean", "quantile")
"""The kinds that use no features."""
NESTED_FRAC = 1 / 3
"""Fraction of the trials in a search with a program left out: there is one such search for each program."""


@dataclass(frozen=True)
class _Rival:
    """One kind: its tuning on all rows, and predictions for rows held back and for programs left out."""

    name: str
    whole: Tuned
    known: Predictions
    new: list[tuple[float, Predictions]]
    """For each fold: the cost of the search on the other folds, and the predictions."""

    @property
    def score(self) -> dict[str, Any]:
        """Scores for the model's card."""
        new = scores_of(concatenated([part for _, part in self.new]))
        told = {"known": dataclasses.asdict(scores_of(self.known)), "new": dataclasses.asdict(new)}
        found = {"cost": self.whole.cost, "parameters": dict(self.whole.parameters)}
        return {"kind": self.name, **found, **told}


def fit_model(
    training: TrainingSet, *, seed: int = 0, n_trials: int = TRIALS, kinds: Sequence[str] = tuple(KINDS)
) -> FittedModel:
    """The best model of several kinds for a training set.

    Raises `DataError` if there are too few rows or programs, or the jobs have no features.
    """
    given = problem(training)
    # Baselines come first, because the first of equally good kinds wins, and a simple model is better.
    rivals = dict(BASELINES) | {name: KINDS[name] for name in kinds}
    # More threads slow small problems down, and the results would depend on their number.
    with threadpool_limits(1):
        found = [
            _contest(given, name, kind, n_trials, seed)
            for name, kind in steps(rivals.items(), "fitting", unit="models")
        ]
        choice = _choice(found)
        found.sort(key=lambda rival: rival.whole.cost)
        scores = {rival.name: rival.score for rival in found}
        best = found[0]
        least = min(SAME_FOR_ALL, key=lambda name: scores[name]["new"]["cost"])
        if choice.cost >= scores[least]["new"]["cost"]:  # the best kind was best only by chance
            best = next(rival for rival in found if rival.name == least)
        model = _final(training, given, best.name, best.whole, seed)
    card = {
        "scores": [*scores.values()],
        "choice": dataclasses.asdict(choice),
        "n_trials": n_trials,
    }
    return dataclasses.replace(model, card={**card, **model.card})


def fit_kind(training: TrainingSet, name: str, *, seed: int = 0) -> FittedModel:
    """A model of one kind or baseline with its usual parameters, without search, rivals or scores.

    Raises `DataError` like `fit_model`.
    """
    given = problem(training)
    with threadpool_limits(1):
        whole = tuned(given, {**KINDS, **BASELINES}[name], _all(given), 0, seed)
        return _final(training, given, name, whole, seed)


def _contest(given: Problem, name: str, kind: Kind, n_trials: int, seed: int) -> _Rival:
    """Fit one kind to all rows, to 70 % of the rows, and, for each program, to the rows without it."""
    order = np.random.default_rng(seed).permutation(len(given.slowdown))
    n_held = max(1, round(HELD_BACK_FRAC * len(order)))
    held, rest = np.sort(order[:n_held]), np.sort(order[n_held:])
    usual = float(given.slowdown[held].mean())  # as in Eq. 2
    _, known = _evaluate(given, kind, rest, held, n_trials, seed, usual)
    nested = max(1, round(NESTED_FRAC * n_trials))
    parts = list(leave_program_out(given, _all(given), MAX_PROGRAM_FOLDS, seed))
    if not parts:
        raise DataError("leaving out any program leaves no slowdowns to fit; measure more pairs")
    new = [_evaluate(given, kind, train, test, nested, seed, given.mean(train)) for train, test in parts]
    return _Rival(name, tuned(given, kind, _all(given), n_trials, seed), known, new)


def _evaluate(
    given: Problem, kind: Kind, train: Ints, test: Ints, n_trials: int, seed: int, usual: float
) -> tuple[float, Predictions]:
    """Cost within `train`, and predictions for `test` by a model fitted to `train` alone."""
    found = tuned(given, kind, train, n_trials, seed)
    value = predicted(given, kind, found.parameters, train, test, seed)
    return found.cost, with_intervals(given.slowdown[test], given.weight[test], usual, value, found.band)


def _choice(rivals: Sequence[_Rival]) -> Scores:
    """Scores if the kind, too, is chosen without the program left out; the first of equal kinds wins."""
    parts = zip(*(rival.new for rival in rivals), strict=True)
    return scores_of(concatenated([min(part, key=lambda found: found[0])[1] for part in parts]))


def _all(given: Problem) -> Ints:
    return np.arange(len(given.slowdown))


def _final(training: TrainingSet, given: Problem, name: str, whole: Tuned, seed: int) -> FittedModel:
    """One kind, fitted to all rows."""
    kind = {**KINDS, **BASELINES}[name]
    estimator, columns, preparation = fitted(given, kind, whole.parameters, _all(given), seed)
    names = tuple(given.names[i] for i in columns)
    slowdown, least = given.slowdown, given.least_half(_all(given))
    ends = (slowdown.mean(), np.quantile(slowdown, 0.025), np.quantile(slowdown, 0.975))
    value, low, high = map(float, ends)
    return FittedModel(
        kind=name,
        features=names,
        regressor=kind.arrays(estimator),
        preparation=preparation,
        band=whole.band,
        usual=(value, max(1.0, min(low, value - least)), max(high, value + least)),
        most=float(slowdown.max()),
        n_rows=len(slowdown),
        machine=training.machine,
        card={
            "features": [
                dataclasses.asdict(FEATURES[name]) if name in FEATURES else {"name": name} for name in names
            ],
            "training": _summary(training),
            "held": whole.held,
            "seed": seed,
            "versions": {library.__name__: library.__version__ for library in (sklearn, np)},
        },
    )


def _summary(training: TrainingSet) -> dict[str, Any]:
    rows = training.rows
    sources, counts = np.unique(rows["source"], return_counts=True)
    return {
        "n_rows": len(rows),
        "n_jobs": len(training.jobs),
        "programs": training.programs,
        "sources": {name.decode(): int(n) for name, n in zip(sources, counts, strict=True)},
        "slowdown_quantiles": np.quantile(rows["slowdown"], [0, 0.25, 0.5, 0.75, 1]).tolist(),
    }


def why_baseline(model: FittedModel) -> str | None:
    """Why a baseline was kept, and a remedy; None if the model is not a baseline."""
    if model.kind not in BASELINES:
        return None
    first, remedy = model.card["scores"][0]["kind"], "measure more programs, or more rounds"
    if first == model.kind:
        return f"the baseline {first!r} has the least cost: {remedy}"
    return (
        f"{first!r} came first by luck: a model chosen without the left-out programs costs no less than "
        f"{model.kind!r}, which is kept: {remedy}"
    )
