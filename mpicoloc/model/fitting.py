"""Fit slowdown models to measured pairs, compare them on programs they do not know, and keep the best.

Zacarias et al. 2021, section 3.3.1: 30 % of the rows held back, five-fold cross-validation on the others,
sequential model-based search. What decides is another score: each program is left out in turn, as target and
as co-runner, because a scheduler asks about programs that nobody has paired yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import sklearn
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mpicoloc.core.progress import steps
from mpicoloc.core.training import TrainingSet
from mpicoloc.errors import DataError
from mpicoloc.model.features import FEATURES
from mpicoloc.model.fitted import FittedModel, matrix
from mpicoloc.model.intervals import Band, covering
from mpicoloc.model.learning import BASELINES, KINDS, Choice, Kind, Parameters, fit
from mpicoloc.model.preparation import Preparation, prepare

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
MIN_ROWS, MIN_PROGRAMS = 12, 3
HELD_BACK_FRAC = 0.3
N_FOLDS = 5
MAX_PROGRAM_FOLDS = 20
"""Of more programs several are left out together."""
UNDER_COST = 2.0
"""An underestimate costs so many times an overestimate: it brings jobs together that should be apart."""
UNDER = 0.05
"""A slowdown larger by this than predicted counts as underestimated."""
TRIALS = 12
_STATISTICS = "statistics"
_NO_MEAN = ("_min", "_max", "_sd")


@dataclass(frozen=True)
class _Problem:
    """Rows of a training set as numbers; `features` (n_jobs, F) has NaN where a job lacks one."""

    names: tuple[str, ...]
    features: Array
    target: Ints
    co_runner: Ints
    slowdown: Array
    weight: Array
    program: Ints

    def columns(self, statistics: str) -> Ints:
        """Features of these statistics: ``all``, or ``mean`` for those that are no least, largest or sd."""
        return np.array(
            [i for i, name in enumerate(self.names) if statistics == "all" or not name.endswith(_NO_MEAN)]
        )


@dataclass(frozen=True)
class Score:
    """How good one kind of model is; `*_new` on programs that it did not know, the others on held-back rows.

    `r2` is Eq. 2 of the paper, None where all measured slowdowns are one. `under_frac` is the part of rows
    underestimated by more than `UNDER`; `cost` the mean error with underestimates counted `UNDER_COST` times,
    which decides; `coverage` the part of rows that the 95 % interval holds; `width` its mean width.
    """

    kind: str
    r2: float | None
    mae: float
    r2_new: float | None
    mae_new: float
    under_frac_new: float
    cost_new: float
    coverage_new: float
    width_new: float
    parameters: Mapping[str, Any]


def fit_model(
    training: TrainingSet, *, seed: int = 0, n_trials: int = TRIALS, kinds: Sequence[str] = tuple(KINDS)
) -> FittedModel:
    """The best of several kinds of models for a training set.

    Parameters
    ----------
    training : TrainingSet
        At least `MIN_ROWS` rows of at least `MIN_PROGRAMS` programs; slowdowns below 1 count as 1.
    seed : int
        The same seed gives the same model.
    n_trials : int
        Points of the search for each kind; 0: the usual ones.
    kinds : sequence of str
        Of `model.learning.KINDS`; baselines are always there.

    Returns
    -------
    FittedModel
        Its card has ``scores``, best first, ``features`` and ``training``.

    Raises
    ------
    DataError
        If there are too few rows or programs, or the jobs have no features.
    """
    problem = _problem(training)
    rivals = {name: KINDS[name] for name in kinds} | dict(BASELINES)
    found = []
    # More threads only make small problems slower, and results differ with their number.
    with threadpool_limits(1):
        for name, kind in steps(rivals.items(), "fitting", unit="models"):
            found.append(_contest(problem, name, kind, n_trials, seed))
        found.sort(key=lambda rival: rival[0].cost_new)
        best, band = found[0]
        model = _final(training, problem, best, band, [score for score, _ in found], seed)
    return dataclasses.replace(model, card={**model.card, "n_trials": n_trials})


def fit_kind(training: TrainingSet, name: str, *, seed: int = 0) -> FittedModel:
    """A model of one kind, baselines among them, with its usual parameters: no search, no rivals.

    Raises
    ------
    DataError
        As of `fit_model`.
    """
    kind = {**KINDS, **BASELINES}[name]
    problem = _problem(training)
    with threadpool_limits(1):
        score, band = _contest(problem, name, kind, 0, seed)
        return _final(training, problem, score, band, [score], seed)


def _problem(training: TrainingSet) -> _Problem:
    rows = training.rows
    used = np.unique(np.concatenate([rows["target"], rows["co_runner"]]))
    programs = np.array([job.program for job in training.jobs])
    n_programs = len(np.unique(programs[used]))
    if len(rows) < MIN_ROWS or n_programs < MIN_PROGRAMS:
        raise DataError(
            f"{len(rows)} slowdowns of {n_programs} programs are too few for a model: need {MIN_ROWS} of "
            f"{MIN_PROGRAMS}; run `mpicoloc campaign`, or wait for more jobs that shared nodes"
        )
    names = sorted({name for job in training.jobs for name in job.values})
    features = matrix(training.jobs, names)
    told = np.array([len(np.unique(column[~np.isnan(column)])) > 1 for column in features[used].T], bool)
    if not told.any():
        raise DataError("the jobs of the training set differ in no feature; give profiles of their runs")
    return _Problem(
        names=tuple(np.array(names)[told].tolist()),
        features=features[:, told],
        target=rows["target"].astype(np.int64),
        co_runner=rows["co_runner"].astype(np.int64),
        slowdown=np.maximum(rows["slowdown"], 1.0),
        weight=rows["weight"].astype(float),
        program=np.unique(programs, return_inverse=True)[1],
    )


def _contest(problem: _Problem, name: str, kind: Kind, n_trials: int, seed: int) -> tuple[Score, Band]:
    """Search one kind on 70 % of the rows, and score it on the rest and on programs left out."""
    order = np.random.default_rng(seed).permutation(len(problem.slowdown))
    n_held = max(1, round(HELD_BACK_FRAC * len(order)))
    held, rest = np.sort(order[:n_held]), np.sort(order[n_held:])
    parameters = _search(problem, kind, rest, n_trials, seed)
    on_held = _left_out(problem, kind, parameters, rest, held, seed)
    truth = problem.slowdown[held]
    rows, folds, predicted = _on_new_programs(problem, kind, parameters, seed)
    measured, weights = problem.slowdown[rows], problem.weight[rows]
    band, coverage = covering(predicted, measured, folds)
    low, high = band.ends(predicted)
    score = Score(
        kind=name,
        r2=_r2(truth, on_held),
        mae=float(np.abs(truth - on_held).mean()),
        r2_new=_r2(measured, predicted),
        mae_new=float(np.abs(measured - predicted).mean()),
        under_frac_new=float((measured > predicted + UNDER).mean()),
        cost_new=_cost(predicted, measured, weights),
        coverage_new=coverage,
        width_new=float((high - low).mean()),
        parameters=parameters,
    )
    return score, band


def _search(problem: _Problem, kind: Kind, rows: Ints, n_trials: int, seed: int) -> Parameters:
    """The best parameters of `n_trials`, by five-fold cross-validation with whole programs in a fold."""
    if not kind.space or n_trials < 1:
        return kind.usual
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(2, n_trials // 3)),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1),
    )
    study.enqueue_trial({_STATISTICS: "mean", **kind.usual})
    space = {_STATISTICS: Choice(["mean", "all"]), **kind.space}
    folds = list(_folds(problem.program[problem.target[rows]], N_FOLDS, seed))
    for _ in range(n_trials):
        trial = study.ask(space)
        costs = []
        for i, is_out in enumerate(folds):
            test = rows[is_out]
            predicted = _left_out(problem, kind, trial.params, rows[~is_out], test, seed)
            costs.append(_cost(predicted, problem.slowdown[test], problem.weight[test]))
            trial.report(float(np.mean(costs)), i)
            if trial.should_prune():
                break
        pruned = len(costs) < len(folds)
        state = optuna.trial.TrialState.PRUNED if pruned else None
        study.tell(trial, None if pruned else float(np.mean(costs)), state=state)
    return study.best_params


def _folds(labels: Ints, n_folds: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Which rows are left out, with all rows of a label in one fold."""
    names = np.random.default_rng(seed).permutation(np.unique(labels))
    for part in np.array_split(names, min(n_folds, len(names))):
        yield np.isin(labels, part)


def _on_new_programs(
    problem: _Problem, kind: Kind, parameters: Parameters, seed: int
) -> tuple[Ints, Ints, Array]:
    """Rows, number of the fold, and what is predicted there by a model that never saw the fold's programs."""
    mine, others = problem.program[problem.target], problem.program[problem.co_runner]
    names = np.random.default_rng(seed).permutation(np.unique(np.concatenate([mine, others])))
    rows, folds, predicted = [], [], []
    for i, part in enumerate(np.array_split(names, min(MAX_PROGRAM_FOLDS, len(names)))):
        is_out = np.isin(mine, part) | np.isin(others, part)
        test, train = np.flatnonzero(is_out), np.flatnonzero(~is_out)
        if len(test) and len(train):
            rows.append(test)
            folds.append(np.full(len(test), i))
            predicted.append(_left_out(problem, kind, parameters, train, test, seed))
    if not rows:
        raise DataError("each program was paired with the others of one only; measure more pairs")
    return np.concatenate(rows), np.concatenate(folds), np.concatenate(predicted)


def _left_out(
    problem: _Problem, kind: Kind, parameters: Parameters, train: Ints, test: Ints, seed: int
) -> Array:
    """Predictions for rows `test` by an estimator that saw the rows `train`."""
    estimator, columns, preparation = _fitted(problem, kind, parameters, train, seed)
    predicted = estimator.predict(_inputs(problem, columns, preparation, test))
    return np.clip(predicted, 1.0, problem.slowdown[train].max())


def _fitted(
    problem: _Problem, kind: Kind, parameters: Parameters, rows: Ints, seed: int
) -> tuple[Any, Ints, Preparation | None]:
    """An estimator fitted to `rows`, the features it looks at, and how these are prepared."""
    rest = {name: value for name, value in parameters.items() if name != _STATISTICS}
    columns = problem.columns(parameters.get(_STATISTICS, "mean"))
    if not len(columns):
        columns = problem.columns("all")
    jobs = np.unique(np.concatenate([problem.target[rows], problem.co_runner[rows]]))
    preparation = prepare(problem.features[np.ix_(jobs, columns)]) if kind.is_prepared else None
    x = _inputs(problem, columns, preparation, rows)
    return fit(kind, rest, seed, x, problem.slowdown[rows], problem.weight[rows]), columns, preparation


def _inputs(problem: _Problem, columns: Ints, preparation: Preparation | None, rows: Ints) -> Array:
    """Features of target and co-runner of `rows`, (n, 2 F)."""
    features = problem.features[:, columns]
    features = features.astype(np.float32) if preparation is None else preparation.apply(features)
    return np.hstack([features[problem.target[rows]], features[problem.co_runner[rows]]])


def _cost(predicted: Array, measured: Array, weights: Array) -> float:
    error = predicted - measured
    return float(np.average(np.where(error < 0, -UNDER_COST * error, error), weights=weights))


def _r2(measured: Array, predicted: Array) -> float | None:
    """Zacarias et al. 2021, Eq. 2."""
    total = float(((measured - measured.mean()) ** 2).sum())
    return 1 - float(((measured - predicted) ** 2).sum()) / total if total > 0 else None


def _final(
    training: TrainingSet, problem: _Problem, best: Score, band: Band, scores: Sequence[Score], seed: int
) -> FittedModel:
    """The best kind, fitted to all rows."""
    kind = {**KINDS, **BASELINES}[best.kind]
    everything = np.arange(len(problem.slowdown))
    estimator, columns, preparation = _fitted(problem, kind, best.parameters, everything, seed)
    names = tuple(problem.names[i] for i in columns)
    slowdown = problem.slowdown
    ends = (slowdown.mean(), np.quantile(slowdown, 0.025), np.quantile(slowdown, 0.975))
    value, low, high = map(float, ends)
    return FittedModel(
        kind=best.kind,
        features=names,
        regressor=kind.arrays(estimator),
        preparation=preparation,
        band=band,
        usual=(value, min(low, value), max(high, value)),
        most=float(slowdown.max()),
        n_rows=len(slowdown),
        machine=training.machine,
        card={
            "scores": [dataclasses.asdict(score) for score in scores],
            "features": [_told(name) for name in names],
            "training": _summary(training),
            "seed": seed,
            "versions": {library.__name__: library.__version__ for library in (sklearn, np, optuna)},
        },
    )


def _told(name: str) -> dict[str, str]:
    feature = FEATURES.get(name)
    return {"name": name, "unit": feature.unit, "meaning": feature.meaning} if feature else {"name": name}


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
