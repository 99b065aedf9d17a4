r"""Run bubbles, memory hogs of adjustable pressure, to measure a program's sensitivity and its own pressure.

Calibrate each kind of machine once. Then `sensitivity` measures a program's slowdown beside a bubble of each
level from 0 (none) to 8, and `score` finds the level of the bubble that slows others as much as the program
does. A program's slowdown beside another one is its curve at the other's score (Han et al. 2016, section 2).

  mpicoloc bubble calibrate
  mpicoloc bubble sensitivity -n 4 -- ./heat2d 400 2000
  mpicoloc bubble score -- mpirun -n 4 ./heat2d 400 2000
  mpicoloc bubble run --level 3.5 --cores 1

`propagation` measures a program on several nodes, with bubbles on some of them. Bubbles can also run beside
production jobs (`mpicoloc run --bubble 0.3`); `collect` makes curves from those jobs' profiles.

  mpicoloc bubble collect --curves curves.csv mpicoloc-*.h5
"""

from __future__ import annotations

import argparse
import math
from typing import Any

from mpicoloc.bubble import propagation_verb
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import count, positive, whole

_EXAMPLES = {
    "calibrate": "--seconds 300",
    "levels": "--json",
    "run": "--level 3.5 --cores 1",
    "sensitivity": "-n 4 --curves curves.csv -- ./heat2d 400 2000",
    "score": "--curves curves.csv -- mpirun -n 4 ./heat2d 400 2000",
    "collect": "--curves curves.csv mpicoloc-*.h5",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb and its actions."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="each action has its own --help"
    )
    calibrating = _action(
        actions, "calibrate", "make_calibration", "calibrate the levels of bubbles on this machine"
    )
    _add_cores(calibrating, "the bubble", "the upper half of those of this process")
    calibrating.add_argument(
        "--probe-core", metavar="CPU", help="processor of the probe (default: the first one without a bubble)"
    )
    calibrating.add_argument(
        "--seconds",
        metavar="S",
        type=positive,
        default=120.0,
        help="duration of the calibration (default 120)",
    )
    _add_seed(calibrating)
    _add_json(calibrating)
    levels = _action(
        actions, "levels", "print_levels", "print what a bubble of each level does on this machine"
    )
    _add_json(levels)
    run = _action(actions, "run", "press", "run a bubble on this machine until it is interrupted")
    run.add_argument(
        "--level",
        dest="bubble_level",
        metavar="L",
        type=level,
        required=True,
        help="0 to 8, fractions allowed",
    )
    _add_cores(run, "the bubble", "the upper half of those of this process")
    run.add_argument("--seconds", metavar="S", type=positive, help="stop after this time")
    run.add_argument(
        "--show-command",
        action="store_true",
        help="only print the command that each rank of an mpirun must run",
    )
    _add_sensitivity(actions)
    score = _action(actions, "score", "measure_score", "measure a program's pressure score")
    _add_cores(score, "the probe, which runs on one of them", "the first of those of this process")
    _add_measured(score)
    propagation_verb.add_action(actions)
    words = "combine the profiles of jobs run with --bubble into curves"
    collect = arguments.action(actions, "bubble collect", words, _EXAMPLES["collect"], "collect")
    collect.add_argument("profiles", metavar="FILE", nargs="+", help="profiles of jobs run with --bubble")
    words = "write the curves to this CSV file, for `place`; they replace the programs' curves in it"
    collect.add_argument("--curves", metavar="FILE", help=words)
    _add_json(collect)


def _add_sensitivity(actions: Any) -> None:
    add = _action(
        actions, "sensitivity", "measure_sensitivity", "measure an MPI program's slowdown beside bubbles"
    )
    add.add_argument(
        "-n", "-np", dest="n_ranks", metavar="N", type=count, default=1, help="ranks (default 1)"
    )
    add.add_argument(
        "--mpirun", metavar="PATH", help="the mpirun to use (default: that of the MPI that app links)"
    )
    add.add_argument(
        "--mpirun-arg", action="append", default=[], metavar="ARG", help="one more argument for mpirun"
    )
    add.add_argument(
        "--levels",
        metavar="LIST",
        type=_levels_above_0,
        default="1,2,3,4,5,6,7,8",
        help="levels to measure (default 1 to 8)",
    )
    add.add_argument("--repeats", metavar="N", type=whole(2), default=3,
                     help="runs at each level, if whole runs are timed (default 3)")  # fmt: skip
    add.add_argument("--way", choices=("counts", "runs"), default="",
                     help="measure progress by counted places or by the time of whole runs (default: counts, "
                     "or runs if counts give no result)")  # fmt: skip
    _add_cores(add, "the bubble", "the upper half of those of this process")
    _add_measured(add)


def _add_measured(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `sensitivity` and `score` share."""
    parser.add_argument("--app-cores", metavar="LIST", help="processors of the program (default: the others)")
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=positive,
        default=math.inf,
        help="stop the program once it was measured for this time (default: it runs to its end)",
    )
    parser.add_argument("--curves", metavar="FILE", help="write the result to this CSV file, for `place`")
    parser.add_argument(
        "--name", metavar="NAME", help="the program's name in that file (default: its file's name)"
    )
    _add_seed(parser)
    _add_json(parser)
    parser.add_argument("app", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def _action(actions: Any, name: str, function: str, words: str) -> argparse.ArgumentParser:
    parser = arguments.action(actions, f"bubble {name}", words, _EXAMPLES[name], function)
    parser.add_argument(
        "--calibration", metavar="FILE", help="the calibration (default: this machine's, in the user's cache)"
    )
    return parser


def _add_cores(parser: argparse.ArgumentParser, whose: str, default: str) -> None:
    parser.add_argument(
        "--cores", metavar="LIST", help=f"processors of {whose}, as 0-3,8 (default: {default})"
    )


def _add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", metavar="K", type=whole(0), default=1, help="seed of the random order of turns (default 1)"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    if args.act == "propagation":
        from mpicoloc.bubble.propagation_runs import run_on_nodes

        return run_on_nodes(args)
    from mpicoloc.bubble import actions

    return int(getattr(actions, args.act)(args))


def level(text: str) -> float:
    """Argument type: a level of bubbles."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 8:
        raise argparse.ArgumentTypeError(
            f"must be a level from 0 to 8, got {text!r}: bubbles have no other levels"
        )
    return value


def _levels_above_0(text: str) -> list[float]:
    """Argument type: a list of levels, sorted, without 0."""
    found = sorted({*map(level, text.split(","))} - {0.0})
    if not found:
        raise argparse.ArgumentTypeError(f"must list at least one level above 0, got {text!r}")
    return found
