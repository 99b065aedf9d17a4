"""Run programs alone and in pairs, and tell how much each slows down beside each other one.

What the slowdown models learn from. FILE is TOML: a table for each program, with the command, and the ranks
that `mpicoloc run` is to give it; without n_ranks the command starts the job itself, with mpicoloc in it.

  rounds = 3
  places = [[0], [1]]             # processors of the first and the second job
  [programs.heat2d]
  command = "./heat2d 400 2000"
  n_ranks = 1
  [programs.lammps]
  command = "lmp -in in.lj"
  n_ranks = 1
  folder = "lj"                   # copied into each run's working directory

Of two programs the one that ends first is started again until the other has ended too. A campaign that was
interrupted goes on where it stopped.

  mpicoloc campaign programs.toml --out campaign
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpicoloc.cli import tell
from mpicoloc.errors import MpicolocError, UsageError

if TYPE_CHECKING:
    from mpicoloc.model.corun import TimedRun
    from mpicoloc.run.campaign_file import Campaign, Experiment

_WHY_UNKNOWN = (
    "needs runs alone that ended, one program run twice, and runs that last long beside their start and end"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help="the programs, as TOML")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="for profiles and what was measured")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these programs only")
    parser.add_argument("--pairs", metavar="N", help="so many pairs only, chosen at random")
    parser.add_argument("--seed", metavar="N", default="0", help="of the random order (default 0)")
    parser.add_argument(
        "--meter", default="none", help="meter of the jobs; none, the default, pauses no job for shutters"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be run")
    parser.add_argument("--json", action="store_true", help="print the slowdowns as JSON")


def run(args: argparse.Namespace) -> int:
    """Make what is missing and print all slowdowns; 1 if an experiment failed."""
    import numpy as np

    from mpicoloc import config
    from mpicoloc.report import campaign as report
    from mpicoloc.run import campaign, campaign_file

    env = config.flags_to_env({"meter": args.meter})
    seed, n_pairs = _number("--seed", args.seed, 0), args.pairs and _number("--pairs", args.pairs, 1)
    plan = campaign_file.read(args.file)
    names = args.only or list(plan.programs)
    wanted = campaign_file.experiments(plan, names, n_pairs or None, np.random.default_rng(seed))
    todo = campaign.missing(plan, wanted, campaign.read(args.out))
    _tell_plan(plan, todo, len(wanted))
    if args.dry_run:
        for each in todo:
            print(f"{each.i_round} {each.kind} {' '.join(each.names)}")
        return 0
    os.makedirs(args.out, exist_ok=True)
    n_failed = campaign.make(plan, todo, args.out, env, _tell)
    done = campaign.read(args.out)
    found = report.slowdowns(done, names)
    for text in report.unknown(done, found, names):
        tell.note(f"{text}: {_WHY_UNKNOWN}")
    if args.json:
        print(json.dumps(report.as_json(found), indent=2, allow_nan=False))
    else:
        report.show(found, names)
    return 1 if n_failed else 0


def _number(flag: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise UsageError(f"{flag} must be a whole number of at least {least}, got {text!r}")
    return int(text)


def _tell_plan(plan: Campaign, todo: Sequence[Experiment], n_wanted: int) -> None:
    places = " and ".join(",".join(map(str, place)) for place in plan.places)
    tell.note(f"{len(todo)} of {n_wanted} experiments to make, on processors {places}")


def _tell(experiment: Experiment, found: Sequence[TimedRun] | MpicolocError) -> None:
    what = f"round {experiment.i_round}, {' + '.join(experiment.names)}"
    if isinstance(found, MpicolocError):
        tell.trouble(f"{what}: {found}")
        return
    times = ", ".join(f"{run.program} {run.wall_s:.2f} s" for run in found if run.is_whole)
    tell.note(f"{what}: {times}")
