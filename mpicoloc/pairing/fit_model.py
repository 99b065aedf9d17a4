"""From folders of profiles and campaigns to a fitted slowdown model with its card."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence

import mpicoloc
from mpicoloc import messages
from mpicoloc.core.training import TrainingSet, merged
from mpicoloc.errors import UsageError
from mpicoloc.pairing import training_file, training_sets
from mpicoloc.pairing.fitted import FittedModel
from mpicoloc.profile.history import files_below


def training_set_of(
    training: Sequence[str], campaigns: Sequence[str], folders: Sequence[str], *, machine: str, layout: str
) -> TrainingSet:
    """All slowdowns of training files, campaigns and folders of profiles, each once."""
    sets = [training_file.read(path) for path in training]
    sets += [training_sets.from_campaign(folder) for folder in campaigns]
    if folders:
        sets.append(_production(profile_paths(folders, campaigns), machine, layout))
    both = merged(sets)
    n_twice = sum(len(found.rows) for found in sets) - len(both.rows)
    if n_twice:
        messages.note(f"{n_twice} slowdowns were given more than once, and count once")
    return both


def _production(paths: Sequence[str], machine: str, layout: str) -> TrainingSet:
    runs, troubles = training_sets.read_runs(paths)
    for words in troubles:
        messages.trouble(words)
    found, others = training_sets.from_production([*runs.values()], machine, layout)
    reasons = "".join(f", {n} {reason}" for reason, n in sorted(others.items()))
    messages.note(f"{len(runs)} profiles: {len(found.rows)} slowdowns beside one other job{reasons}")
    return found


def profile_paths(folders: Sequence[str], campaigns: Sequence[str]) -> list[str]:
    """Profiles below the folders, without those of the campaigns, which have the same runs."""
    of_campaigns = tuple(os.path.join(os.path.realpath(folder), "") for folder in campaigns)
    found = dict.fromkeys(path for folder in folders for path in files_below(folder))
    return [path for path in found if not path.startswith(of_campaigns)]


def fit(training: TrainingSet, seed: int, n_trials: int, kinds: Sequence[str]) -> FittedModel:
    """The best model of these kinds (none: all), with versions, date and layout on its card.

    Raises `UsageError` if there is no such kind. Raises `DataError` if the training set is too small.
    """
    from mpicoloc.pairing.training.fitting import KINDS, fit_model

    unknown = next((name for name in kinds if name not in KINDS), None)
    if unknown is not None:
        raise UsageError(f"--kind must be one of {', '.join(KINDS)}, got {unknown!r}")
    date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    model = fit_model(training, seed=seed, n_trials=n_trials, kinds=kinds or tuple(KINDS))
    versions = {"mpicoloc": mpicoloc.__version__, **model.card["versions"]}
    card = {**model.card, "versions": versions, "date": date, "layout": training.layout}
    return dataclasses.replace(model, card=card)


def why_baseline(model: FittedModel) -> str | None:
    """Why a baseline was kept, and what helps; None if the model is none."""
    from mpicoloc.pairing.training.regressors import BASELINES

    if model.kind not in BASELINES:
        return None
    first, remedy = model.card["scores"][0]["kind"], "measure more programs, or more rounds"
    if first == model.kind:
        return f"the baseline {first!r} has the least cost: {remedy}"
    return (
        f"{first!r} came first by luck: chosen without the programs left out, models cost no less than "
        f"{model.kind!r}, which is kept: {remedy}"
    )
