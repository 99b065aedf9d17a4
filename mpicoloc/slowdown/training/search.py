"""Choose the parameters of one kind of model for some rows, and the width of its interval, from these alone.

Everything that is learnt of rows is learnt here, so that whoever leaves a program out of the rows has left it
out of all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from numpy.typing import NDArray

from mpicoloc.slowdown.costs import cost
from mpicoloc.slowdown.intervals import Band, band, covering
from mpicoloc.slowdown.training.problem import FEATURE_SETS, LOOKED_AT, Problem, leave_program_out, predicted
from mpicoloc.slowdown.training.regressors import Choice, Kind, Parameters

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Parts = Sequence[tuple[Ints, Ints]]
N_FOLDS = 5


@dataclass(frozen=True)
class Tuned:
    """Parameters, their `cost` on programs left out of the rows, and the interval's width.

    `held` is the part of the rows that intervals held which were made without their program; None: too few
    programs to tell.
    """

    parameters: Parameters
    cost: float
    band: Band
    held: float | None


@dataclass(frozen=True)
class _LeftOut:
    """Rows (n,), the number of the part in which each was asked about, and what was predicted there."""

    rows: Ints
    part: Ints
    predicted: Array


def tuned(given: Problem, kind: Kind, rows: Ints, n_trials: int, seed: int) -> Tuned:
    """Search the parameters of a kind by cross-validation, with whole programs left out at either end.

    Parameters
    ----------
    given : Problem
    kind : Kind
    rows : ndarray, shape (n,)
        The only ones that are looked at.
    n_trials : int
        Points that are tried, the usual one first; below 2 only that.
    seed : int
        Of the search and of the folds.

    Notes
    -----
    Zacarias et al. 2021, section 3.3.1: five folds and sequential model-based search, here by a
    tree-structured Parzen estimator. The interval comes from what the best trial predicted for
    programs left out.
    """
    parts = list(leave_program_out(given, rows, N_FOLDS, seed))
    usual = {LOOKED_AT: "mean", **kind.usual} if kind.space else dict(kind.usual)
    if not parts:
        # Too few programs to leave one out: no more certain than their mean.
        mean, measured = np.full(len(rows), given.mean(rows)), given.slowdown[rows]
        return Tuned(usual, cost(mean, measured, given.weight[rows]), band(mean, measured), None)
    if kind.space and n_trials > 1:
        parameters, found = _best(given, kind, usual, parts, n_trials, seed)
    else:
        parameters, found = usual, _joined(parts, [*_answers(given, kind, usual, parts, seed)])
    measured = given.slowdown[found.rows]
    width, held = covering(found.predicted, measured, found.rows, found.part)
    return Tuned(parameters, cost(found.predicted, measured, given.weight[found.rows]), width, held)


def _best(
    given: Problem, kind: Kind, usual: Parameters, parts: Parts, n_trials: int, seed: int
) -> tuple[Parameters, _LeftOut]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(2, n_trials // 3)),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1),
    )
    study.enqueue_trial(dict(usual))
    space = {LOOKED_AT: Choice(FEATURE_SETS), **kind.space}
    answers = {}
    for _ in range(n_trials):
        trial = study.ask(space)
        answer = _tried(given, kind, trial, parts, seed)
        if answer is None:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        measured, weights = given.slowdown[answer.rows], given.weight[answer.rows]
        study.tell(trial, cost(answer.predicted, measured, weights))
        answers[trial.number] = answer
    return study.best_params, answers[study.best_trial.number]


def _tried(given: Problem, kind: Kind, trial: optuna.trial.Trial, parts: Parts, seed: int) -> _LeftOut | None:
    """Answers of a trial; None if it is so bad that it was given up half way."""
    answers, costs = [], []
    for i, answer in enumerate(_answers(given, kind, trial.params, parts, seed)):
        test = parts[i][1]
        answers.append(answer)
        costs.append(cost(answer, given.slowdown[test], given.weight[test]))
        trial.report(float(np.mean(costs)), i)
        if trial.should_prune():
            return None
    return _joined(parts, answers)


def _answers(given: Problem, kind: Kind, parameters: Parameters, parts: Parts, seed: int) -> Iterator[Array]:
    for train, test in parts:
        yield predicted(given, kind, parameters, train, test, seed)


def _joined(parts: Parts, answers: Sequence[Array]) -> _LeftOut:
    number = [np.full(len(test), i) for i, (_, test) in enumerate(parts)]
    return _LeftOut(
        np.concatenate([test for _, test in parts]), np.concatenate(number), np.concatenate(answers)
    )
