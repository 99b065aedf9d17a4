r"""Bubbles: memory hogs of a set size, which show how much a program suffers from others and presses on them.

Calibrate each kind of machine once. Then `sensitivity` gives a program's slowdown beside bubbles of each
level from 0 (none) to 8, and `score` the level of the bubble that the program itself is like. The slowdown of
one program beside another is its curve at the other's score. As in Han et al. 2016, section 2.

  mpicoloc bubble calibrate
  mpicoloc bubble sensitivity -n 4 -- ./heat2d 400 2000
  mpicoloc bubble score -- mpirun -n 4 ./heat2d 400 2000
  mpicoloc bubble run --level 3.5 --cores 1

`propagation` is of a program on several nodes, with bubbles on some of them. Jobs can have bubbles while they
run: `mpicoloc run --bubble 0.3`. `collect` adds up what their profiles say.

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
        dest="action", metavar="ACTION", required=True, help="each has a --help of its own"
    )
    calibrating = _action(
        actions, "calibrate", "make_calibration", "find what bubbles must do on this machine"
    )
    _add_cores(calibrating, "the bubble", "the upper half of those of this process")
    calibrating.add_argument(
        "--probe-core", metavar="CPU", help="processor of the probe (default: the first other)"
    )
    calibrating.add_argument(
        "--seconds", metavar="S", type=positive, default=120.0, help="time that it takes (default 120)"
    )
    _add_seed(calibrating)
    _add_json(calibrating)
    levels = _action(actions, "levels", "print_levels", "print what a bubble of each level does here")
    _add_json(levels)
    run = _action(actions, "run", "press", "let a bubble press on this machine until it is interrupted")
    run.add_argument(
        "--level", dest="bubble_level", metavar="L", type=level, required=True, help="0 to 8, also a fraction"
    )
    _add_cores(run, "the bubble", "the upper half of those of this process")
    run.add_argument("--seconds", metavar="S", type=positive, help="end after so long")
    run.add_argument(
        "--show-command", action="store_true", help="run nothing: print what one rank of an mpirun is to run"
    )
    _add_sensitivity(actions)
    score = _action(actions, "score", "measure_score", "measure which bubble a program is like")
    _add_cores(score, "the probe, of which one is used", "the first of those of this process")
    _add_measured(score)
    propagation_verb.add_action(actions)
    words = "add up what profiles say of bubbles in their jobs' shutters"
    collect = arguments.action(actions, "bubble collect", words, _EXAMPLES["collect"], "collect")
    collect.add_argument("profiles", metavar="FILE", nargs="+", help="profiles of jobs run with --bubble")
    words = "put the curves into this CSV file, for `place`, in place of those that the programs have there"
    collect.add_argument("--curves", metavar="FILE", help=words)
    _add_json(collect)


def _add_sensitivity(actions: Any) -> None:
    add = _action(
        actions, "sensitivity", "measure_sensitivity", "measure what an MPI program suffers from bubbles"
    )
    add.add_argument(
        "-n", "-np", dest="n_ranks", metavar="N", type=count, default=1, help="ranks (default 1)"
    )
    add.add_argument("--mpirun", metavar="PATH", help="the mpirun to use; default: of the MPI that app links")
    add.add_argument("--mpirun-arg", action="append", default=[], metavar="ARG", help="one more for mpirun")
    add.add_argument(
        "--levels",
        metavar="LIST",
        type=_levels_above_0,
        default="1,2,3,4,5,6,7,8",
        help="levels to try (default 1 to 8)",
    )
    add.add_argument("--repeats", metavar="N", type=whole(2), default=3,
                     help="runs at each level, if whole runs are compared (default 3)")  # fmt: skip
    add.add_argument("--way", choices=("counts", "runs"), default="",
                     help="see progress by counted places, or as the time of whole runs (default: the latter "
                     "where the former gives no result)")  # fmt: skip
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
        help="end the program when it was measured for so long (default: it runs to its end)",
    )
    parser.add_argument("--curves", metavar="FILE", help="put the result into this CSV file, for `place`")
    parser.add_argument("--name", metavar="NAME", help="the program's name there (default: that of its file)")
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
        "--seed", metavar="K", type=whole(0), default=1, help="of the order of turns (default 1)"
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
        raise argparse.ArgumentTypeError(f"must be a list with a level above 0, got {text!r}")
    return found
