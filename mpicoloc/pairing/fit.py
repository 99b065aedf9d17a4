"""Fit a model that predicts how much jobs slow each other down.

It learns from slowdowns that were measured: by a campaign, or by shutters in the profiles of jobs that met in
production. Several kinds of models compete; the one that predicts best for programs it does not know is kept.
With --curves nothing is learnt: the model is made of curves and scores of programs (`mpicoloc bubble`).

  mpicoloc fit --profiles ~/profiles --out m.npz
  mpicoloc fit --campaign found --out m.npz --save-training t.npz
  mpicoloc fit --training t.npz --profiles ~/profiles --out m.npz
  mpicoloc fit --curves curves.csv --out m.npz
"""

from __future__ import annotations

import argparse
import json

from mpicoloc import config, messages
from mpicoloc.core.progress import stage
from mpicoloc.errors import UsageError


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
    parser.add_argument(
        "--curves", metavar="FILE", help="curves and scores of programs, in place of slowdowns"
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
    if args.curves is not None:
        return _of_curves(args)
    if not (args.profiles or args.campaign or args.training):
        raise UsageError("nothing to learn from: give --profiles, --campaign, --training or --curves")
    if args.layout not in ("", "apart", "same"):
        raise UsageError(f"--layout must be apart or same, got {args.layout!r}")
    seed, n_trials = (
        config.parse_whole(flag, text, 0, 2**31 - 1)
        for flag, text in (("--seed", args.seed), ("--trials", args.trials))
    )
    from mpicoloc.pairing import fit_model, model_file, terminal, training_file

    learnt = fit_model.training_set_of(
        args.training, args.campaign, args.profiles, machine=args.machine, layout=args.layout
    )
    if args.save_training:
        training_file.write(learnt, args.save_training)
    with stage("fitting"):
        model = fit_model.fit(learnt, seed, n_trials, args.kind)
    model_file.write(model, args.out)
    if (why := fit_model.why_baseline(model)) is not None:
        messages.note(why)
    if args.json:
        print(json.dumps(model_file.card(model), indent=2, allow_nan=False))
    else:
        terminal.show_card(model_file.card(model), messages.is_verbose())
    return 0


def _of_curves(args: argparse.Namespace) -> int:
    """Write a model of curves and scores."""
    if args.profiles or args.campaign or args.training:
        raise UsageError("--curves needs no slowdowns: leave out --profiles, --campaign and --training")
    from mpicoloc.bubble import curves_file
    from mpicoloc.bubble.model import BubbleModel
    from mpicoloc.pairing import model_file, terminal

    model = BubbleModel(curves_file.read(args.curves))
    for note in model.notes:
        messages.note(note)
    model_file.write(model, args.out)
    if args.json:
        print(json.dumps(model_file.card(model), indent=2, allow_nan=False))
    else:
        terminal.show_bubbles(model)
    return 0
