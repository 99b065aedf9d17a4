"""Scores of a model that learns from no pairs, on the same left-out programs as models that do."""

import numpy as np

from mpicoloc.errors import DataError
from mpicoloc.pairing.fitted import Predictions, concatenated, scores_of
from mpicoloc.pairing.training.fitting import MAX_PROGRAM_FOLDS, leave_program_out, problem


def scores_without_pairs(training, model, seed=0):
    """Scores of a model as `fitting` gives them for programs left out.

    The model is made without these pairs, such as `BubbleModel`, so leaving a program out changes nothing of
    it; what is usual, which R2 is measured against, is that of the other programs, as for all models.
    """
    given = problem(training)
    found = [
        model.predict(training.jobs[target], [training.jobs[co_runner]])
        for target, co_runner in zip(given.target, given.co_runner, strict=True)
    ]
    if not found:
        raise DataError("no pairs to compare with: give a campaign")
    value, low, high = (np.array([getattr(one, end) for one in found]) for end in ("value", "low", "high"))
    parts = []
    for train, test in leave_program_out(given, np.arange(len(value)), MAX_PROGRAM_FOLDS, seed):
        usual = np.full(len(test), given.mean(train))
        measured = given.slowdown[test], given.weight[test]
        parts.append(Predictions(*measured, usual, value[test], low[test], high[test]))
    return scores_of(concatenated(parts))
