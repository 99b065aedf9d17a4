"""Fit a model that predicts how much jobs slow each other down.

The training data are measured slowdowns: from a campaign, or from shutters in the profiles of production jobs
that shared nodes. Several kinds of models compete; the one that predicts unseen programs best is saved. With
--curves nothing is trained: the model is a table of curves and scores (`mpicoloc bubble`).

  mpicoloc fit --profiles ~/profiles --out m.npz
  mpicoloc fit --campaign found --out m.npz --save-training t.npz
  mpicoloc fit --training t.npz --profiles ~/profiles --out m.npz
  mpicoloc fit --curves curves.csv --out m.npz
"""

from __future__ import annotations

import argparse
import dataclasses
import time

import mpicoloc
from mpicoloc import messages
from mpicoloc.cli.arguments import whole
from mpicoloc.core.progress import stage
from mpicoloc.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    _add_sources(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help="file for the model")
    _add_search(parser)
    parser.add_argument("--json", action="store_true", help="print the model's card as JSON")


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profiles",
        metavar="FOLDER",
        action="append",
        default=[],
        help="folder of profiles, searched with its subfolders",
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
    parser.add_argument(
        "--curves", metavar="FILE", help="curves and scores of programs, in place of slowdowns"
    )
    parser.add_argument(
        "--save-training", metavar="FILE", help="save the training set, so that the profiles can be deleted"
    )
    parser.add_argument(
        "--machine",
        metavar="WORDS",
        default="",
        help="part of the machine's name, if the profiles are of several machines",
    )
    parser.add_argument(
        "--layout",
        metavar="WORD",
        default="",
        help="cores: only jobs on processors of their own; turns: only jobs on the same processors",
    )


def _add_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trials",
        metavar="N",
        type=whole(0, 2**31 - 1),
        default=12,
        help="sets of parameters to try for each kind of model; 0: only the defaults (default 12)",
    )
    parser.add_argument(
        "--kind",
        metavar="NAME",
        action="append",
        default=[],
        help='a kind of model to include, such as "random forest" (default: all)',
    )
    parser.add_argument(
        "--features",
        choices=("all", "table3"),
        default="all",
        help="inputs of the models; table3: only counters that every processor has (Zacarias et al. 2021, "
        "Table 3)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=whole(0, 2**31 - 1),
        default=0,
        help="seed of all random numbers (default 0)",
    )


def run(args: argparse.Namespace) -> int:
    """Fit, write the model, print its card."""
    from mpicoloc.core.slowdown import CORES, LAYOUTS, TURNS

    if args.layout not in LAYOUTS:
        raise UsageError(f"--layout must be {TURNS} or {CORES}, got {args.layout!r}")
    if args.curves is not None:
        return _of_curves(args)
    if not (args.profiles or args.campaign or args.training):
        raise UsageError("nothing to learn from: give --profiles, --campaign, --training or --curves")
    from mpicoloc.pairing import features, model_file, terminal, training_sets
    from mpicoloc.pairing.training.fitting import KINDS, fit_model, why_baseline

    learnt = training_sets.learn_from(
        args.training, args.campaign, args.profiles, machine=args.machine, layout=args.layout
    )
    if args.save_training:
        training_sets.write_file(learnt, args.save_training)
    unknown = next((name for name in args.kind if name not in KINDS), None)
    if unknown is not None:
        raise UsageError(f"--kind must be one of {', '.join(KINDS)}, got {unknown!r}")
    if args.features == "table3":
        learnt = features.only(learnt, features.TABLE_3)
    with stage("fitting"):
        date = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        model = fit_model(learnt, seed=args.seed, n_trials=args.trials, kinds=args.kind or tuple(KINDS))
    versions = {"mpicoloc": mpicoloc.__version__, **model.card["versions"]}
    card = {**model.card, "versions": versions, "date": date, "layout": learnt.layout or args.layout}
    model = dataclasses.replace(model, card=card)
    model_file.write(model, args.out)
    if (why := why_baseline(model)) is not None:
        messages.note(why)
    terminal.print_model(model, is_json=args.json)
    return 0


def _of_curves(args: argparse.Namespace) -> int:
    """Write a model made of curves and scores."""
    from mpicoloc.core.slowdown import CORES, check_layout

    check_layout(args.layout, CORES, args.curves, "leave out --layout")
    if args.profiles or args.campaign or args.training:
        raise UsageError("--curves needs no slowdowns: leave out --profiles, --campaign and --training")
    from mpicoloc.pairing import model_file, terminal

    model = model_file.of_curves(args.curves)
    model_file.write(model, args.out)
    terminal.print_model(model, is_json=args.json)
    return 0
