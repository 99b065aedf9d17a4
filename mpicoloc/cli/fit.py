"""Fit a model that predicts how much jobs slow each other down.

It learns from slowdowns that were measured: by a campaign, or by shutters in the profiles of jobs that met in
production. Several kinds of models compete; the one that predicts best for programs it does not know is kept.

  mpicoloc fit --profiles ~/profiles --out m.npz
  mpicoloc fit --campaign found --out m.npz --save-training t.npz
  mpicoloc fit --training t.npz --profiles ~/profiles --out m.npz
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mpicoloc
from mpicoloc import config
from mpicoloc.core import messages
from mpicoloc.core.progress import stage
from mpicoloc.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from mpicoloc.core.training import TrainingSet
    from mpicoloc.slowdown.fitted import FittedModel

BASELINES = ("mean", "quantile", "intensity (DI)")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "--profiles",
        metavar="FOLDER",
        action="append",
        default=[],
        help="profiles of jobs, in folders below it too",
    )
    parser.add_argument(
        "--campaign",
        metavar="FOLDER",
        action="append",
        default=[],
        help="folder that `mpicoloc campaign --out` wrote",
    )
    parser.add_argument(
        "--training",
        metavar="FILE",
        action="append",
        default=[],
        help="training set that --save-training wrote",
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="where the model goes")
    parser.add_argument(
        "--save-training", metavar="FILE", help="save the training set, so that the profiles may be deleted"
    )
    parser.add_argument(
        "--machine", metavar="WORDS", default="", help="part of the machine's name, for profiles of several"
    )
    parser.add_argument(
        "--layout",
        metavar="WORD",
        default="",
        help="apart or same: jobs on processors of their own, or on the same ones, for profiles of both",
    )
    parser.add_argument(
        "--trials",
        metavar="N",
        default="12",
        help="parameters tried for each kind of model; 0: the usual ones (default 12)",
    )
    parser.add_argument(
        "--kind",
        metavar="NAME",
        action="append",
        default=[],
        help='a kind of model that competes, like "random forest"; default all',
    )
    parser.add_argument("--seed", metavar="N", default="0", help="seed of all random numbers (default 0)")
    parser.add_argument("--json", action="store_true", help="print the model's card as JSON")


def run(args: argparse.Namespace) -> int:
    """Fit, write the model, print its card."""
    if not (args.profiles or args.campaign or args.training):
        raise UsageError("nothing to learn from: give --profiles, --campaign or --training")
    if args.layout not in ("", "apart", "same"):
        raise UsageError(f"--layout must be apart or same, got {args.layout!r}")
    seed, n_trials = (
        config.parse_whole(flag, text, 0, 2**31 - 1)
        for flag, text in (("--seed", args.seed), ("--trials", args.trials))
    )
    from mpicoloc.campaign import model_file
    from mpicoloc.campaign import training_file as files
    from mpicoloc.core.training import merged

    sets = _sets(args)
    learnt = merged(sets)
    n_twice = sum(len(found.rows) for found in sets) - len(learnt.rows)
    if n_twice:
        messages.note(f"{n_twice} slowdowns were given more than once, and count once")
    if args.save_training:
        files.write(learnt, args.save_training)
    with stage("fitting"):
        model = _fitted(learnt, seed, n_trials, args.kind)
    model_file.write(model, args.out)
    if model.kind in BASELINES:
        messages.note(_why_baseline(model))
    if args.json:
        print(json.dumps(model_file.card(model), indent=2, allow_nan=False))
    else:
        from mpicoloc.report.terminal import slowdowns

        slowdowns.show_card(model_file.card(model), messages.is_verbose())
    return 0


def _why_baseline(model: FittedModel) -> str:
    first, remedy = model.card["scores"][0]["kind"], "measure more programs, or more rounds"
    if first == model.kind:
        return f"the baseline {first!r} has the least cost: {remedy}"
    return (
        f"{first!r} came first by luck: chosen without the programs left out, models cost no less than "
        f"{model.kind!r}, which is kept: {remedy}"
    )


def _sets(args: argparse.Namespace) -> list[TrainingSet]:
    from mpicoloc.campaign import training_file as files
    from mpicoloc.campaign import training_sets

    sets = [files.read(path) for path in args.training]
    sets += [training_sets.from_campaign(folder) for folder in args.campaign]
    if args.profiles:
        runs, troubles = training_sets.read_runs(_paths(args.profiles, args.campaign))
        for words in troubles:
            messages.trouble(words)
        found, others = training_sets.from_production([*runs.values()], args.machine, args.layout)
        reasons = "".join(f", {n} {reason}" for reason, n in sorted(others.items()))
        messages.note(f"{len(runs)} profiles: {len(found.rows)} slowdowns beside one other job{reasons}")
        sets.append(found)
    return sets


def _paths(folders: Sequence[str], campaigns: Sequence[str]) -> list[str]:
    """Profiles below the folders but those of the campaigns, which tell of the same runs."""
    from mpicoloc.profile.history import files_below

    told = tuple(os.path.join(os.path.realpath(folder), "") for folder in campaigns)
    found = dict.fromkeys(path for folder in folders for path in files_below(folder))
    return [path for path in found if not path.startswith(told)]


def _fitted(learnt: TrainingSet, seed: int, n_trials: int, kinds: Sequence[str]) -> FittedModel:
    try:
        from mpicoloc.slowdown.training.fitting import KINDS, fit_model
    except ImportError as missing:
        raise EnvironmentFault(
            f"fitting needs scikit-learn and optuna ({missing}): pip install 'mpicoloc[schedule]'"
        ) from missing
    unknown = next((name for name in kinds if name not in KINDS), None)
    if unknown is not None:
        raise UsageError(f"--kind must be one of {', '.join(KINDS)}, got {unknown!r}")
    date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    model = fit_model(learnt, seed=seed, n_trials=n_trials, kinds=kinds or tuple(KINDS))
    versions = {"mpicoloc": mpicoloc.__version__, **model.card["versions"]}
    card = {**model.card, "versions": versions, "date": date, "layout": learnt.layout}
    return dataclasses.replace(model, card=card)
