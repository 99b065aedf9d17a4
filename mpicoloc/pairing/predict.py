"""Predict how much jobs slow each other down, from a profile of each job alone or of an earlier run.

Each profile stands for one job; with --curves, name programs in place of profiles. Without --together, every
pair of jobs is predicted. `mpicoloc pair` accepts the output of --json both as JOBS and as --slowdowns.

  mpicoloc predict --model m.npz a.h5 b.h5
  mpicoloc predict --model m.npz --together a.h5 b.h5 c.h5
  mpicoloc predict --curves curves.csv lu cg
  mpicoloc predict --model m.npz --card
  mpicoloc predict --model m.npz --json *.h5 > queue.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpicoloc.cli import arguments
from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.core.slowdown import JobFeatures
    from mpicoloc.pairing.model_file import StoredModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("files", metavar="PROFILE", nargs="*", help="profile of one job, or a program")
    parser.add_argument("--model", metavar="FILE", help="slowdown model written by `mpicoloc fit`")
    parser.add_argument("--curves", metavar="FILE", help="curves and scores of programs, in place of --model")
    parser.add_argument(
        "--together", action="store_true", help="predict the first job beside all others at once"
    )
    arguments.add_layout(parser, "relative to a packed run")
    parser.add_argument("--card", action="store_true", help="print the model's training data and scores")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Print predictions, or the card."""
    if bool(args.files) == args.card:
        raise UsageError("give either the profiles of the jobs to predict, or --card")
    if (args.model is None) == (args.curves is None):
        raise UsageError("give either --model FILE, written by `mpicoloc fit`, or --curves FILE")
    from mpicoloc.core.slowdown import SPREAD, check_layout, of_spread
    from mpicoloc.pairing import model_file, terminal

    model = model_file.of_curves(args.curves) if args.model is None else model_file.read(args.model)
    if args.card:
        _card(args, model)
        return 0
    measured = model_file.layout(model)
    check_layout(args.layout, measured, args.curves or args.model)
    jobs = _jobs(args, model)
    pairs: Sequence[terminal.Pair]
    if args.together:
        arguments.note_together(len(jobs) - 1)
        pairs = [(jobs[0], jobs[1:], model.predict(jobs[0], jobs[1:]))]
    else:
        pairs = model_file.each_beside_each_other(model, jobs)
    if args.layout == SPREAD:
        pairs = [(job, beside, of_spread(found, model.predict(job, [job]))) for job, beside, found in pairs]
    if args.json:
        print(
            json.dumps(
                terminal.predictions_json(model.kind, jobs, pairs, args.layout or measured),
                indent=2,
                allow_nan=False,
            )
        )
    else:
        terminal.show_predictions(pairs)
    return 0


def _jobs(args: argparse.Namespace, model: StoredModel) -> list[JobFeatures]:
    """One job for each profile, or for each program if the model is made of curves."""
    if args.curves is None:
        from mpicoloc.pairing import queue_files

        known = queue_files.features(args.files, model)
        return [known[file] for file in args.files]
    from mpicoloc.core.slowdown import JobFeatures

    return [JobFeatures(name, name, 1.0, 1, 1) for name in args.files]


def _card(args: argparse.Namespace, model: StoredModel) -> None:
    from mpicoloc.pairing import terminal

    if args.curves is not None:
        raise UsageError("curves have no card; only a model has one: give --model FILE")
    try:
        terminal.print_model(model, is_json=args.json)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"the card of {args.model} is not one that `mpicoloc fit` writes: {error}") from error
