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
import contextlib
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mpicoloc.bubble import propagation_verb
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import count, positive, whole
from mpicoloc.core.number_lists import format_cpus, parse_cpus
from mpicoloc.errors import DataError, MpicolocError, UsageError
from mpicoloc.job import flags

if TYPE_CHECKING:
    from mpicoloc.bubble.calibration import Calibration
    from mpicoloc.bubble.sensitivity import Setup
    from mpicoloc.bubble.shutters import Bubbled

_WAYS = ("counts", "runs")
_EXAMPLES = {
    "calibrate": "--seconds 300",
    "levels": "--json",
    "run": "--level 3.5 --cores 1",
    "sensitivity": "-n 4 --curves curves.csv -- ./heat2d 400 2000",
    "score": "--curves curves.csv -- mpirun -n 4 ./heat2d 400 2000",
    "collect": "--curves curves.csv mpicoloc-*.h5",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb and of the words that may follow it."""
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="each has a --help of its own"
    )
    calibrating = _action(actions, "calibrate", _calibrate, "find what bubbles must do on this machine")
    _add_cores(calibrating, "the bubble", "the upper half of those of this process")
    calibrating.add_argument(
        "--probe-core", metavar="CPU", help="processor of the probe (default: the first other)"
    )
    calibrating.add_argument(
        "--seconds", metavar="S", type=positive, default=120.0, help="time that it takes (default 120)"
    )
    _add_seed(calibrating)
    _add_json(calibrating)
    levels = _action(actions, "levels", _levels, "print what a bubble of each level does here")
    _add_json(levels)
    run = _action(actions, "run", _run, "let a bubble press on this machine until it is interrupted")
    run.add_argument(
        "--level", dest="bubble_level", metavar="L", type=level, required=True, help="0 to 8, also a fraction"
    )
    _add_cores(run, "the bubble", "the upper half of those of this process")
    run.add_argument("--seconds", metavar="S", type=positive, help="end after so long")
    run.add_argument(
        "--show-command", action="store_true", help="run nothing: print what one rank of an mpirun is to run"
    )
    _add_sensitivity(actions)
    score = _action(actions, "score", _score, "measure which bubble a program is like")
    _add_cores(score, "the probe, of which one is used", "the first of those of this process")
    _add_measured(score)
    propagation_verb.add_action(actions)
    words = "add up what profiles say of bubbles in their jobs' shutters"
    collect = arguments.action(actions, "bubble collect", words, _EXAMPLES["collect"])
    collect.add_argument("profiles", metavar="FILE", nargs="+", help="profiles of jobs run with --bubble")
    words = "put the curves into this CSV file, for `place`, in place of those that the programs have there"
    collect.add_argument("--curves", metavar="FILE", help=words)
    _add_json(collect)
    collect.set_defaults(act=_collect)


def _add_sensitivity(actions: Any) -> None:
    add = _action(actions, "sensitivity", _sensitivity, "measure what an MPI program suffers from bubbles")
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
    add.add_argument("--way", choices=_WAYS, default="",
                     help="see progress by counted places, or as the time of whole runs (default: the latter "
                     "where the former gives no result)")  # fmt: skip
    _add_cores(add, "the bubble", "the upper half of those of this process")
    _add_measured(add)


def _add_measured(parser: argparse.ArgumentParser) -> None:
    """What `sensitivity` and `score` have in common."""
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


def _action(actions: Any, name: str, function: Any, words: str) -> argparse.ArgumentParser:
    parser = arguments.action(actions, f"bubble {name}", words, _EXAMPLES[name])
    parser.add_argument(
        "--calibration", metavar="FILE", help="the calibration (default: this machine's, in the user's cache)"
    )
    parser.set_defaults(act=function)
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
    """Do what the action says."""
    return int(args.act(args))


def _calibrate(args: argparse.Namespace) -> int:
    import numpy as np

    from mpicoloc.bubble import calibrate

    cpus = _cpus("--cores", args.cores, upper_half())
    others = sorted(os.sched_getaffinity(0) - set(cpus))
    if args.probe_core is None and not others:
        raise UsageError("no processor is left for the probe: give fewer --cores")
    probe = _cpus("--probe-core", args.probe_core, others[:1])[0]
    if probe in cpus:
        raise UsageError(f"--probe-core {probe} is one of the bubble's processors: choose another")
    place = calibrate.Place(cpus, probe, calibrate.last_cache_bytes(probe))
    found = calibrate.calibrate(place, args.seconds, np.random.default_rng(args.seed))
    calibrate.write_file(found, args.calibration or calibrate.default_path())
    return _print_levels(args, found)


def _levels(args: argparse.Namespace) -> int:
    from mpicoloc.bubble import calibrate

    return _print_levels(args, calibrate.read_file(args.calibration))


def _print_levels(args: argparse.Namespace, found: Calibration) -> int:
    from mpicoloc.bubble import terminal as report

    _print(args, report.levels_json(found), lambda: report.show_levels(found))
    return 0


def _print(args: argparse.Namespace, document: Any, show: Callable[[], None]) -> None:
    """The result as JSON, or as it is shown."""
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        show()
    sys.stdout.flush()


def _run(args: argparse.Namespace) -> int:
    from mpicoloc.bubble import calibrate, hogs

    level, seconds = args.bubble_level, args.seconds
    cpus = _cpus("--cores", args.cores, upper_half())
    setting = calibrate.read_file(args.calibration).setting(level)
    if args.show_command:
        path = args.calibration or calibrate.default_path()
        print(
            shlex.join(
                [hogs.program(), "--cpus", format_cpus(cpus), "--levels", path, "--level", f"{level:g}"]
            )
        )
        return 0
    end_s = None if seconds is None else time.monotonic() + seconds
    with contextlib.closing(hogs.Bubble(cpus, setting.working_set_bytes, is_reporting=False)) as bubble:
        bubble.set(setting)
        while bubble.is_alive() and (end_s is None or time.monotonic() < end_s):
            time.sleep(0.1)
        bubble.set(hogs.SILENCE)  # refuses if it was ended from outside
    return 0


def _sensitivity(args: argparse.Namespace) -> int:
    import numpy as np

    from mpicoloc.bubble import curves_file, sensitivity
    from mpicoloc.bubble import terminal as report

    app = flags.application(args.app, "application", "mpicoloc bubble sensitivity -n N [--] app [arguments]")
    setup = _sensitivity_setup(args, app)
    curves_file.check_update(args.curves)  # before minutes of measuring
    rng = np.random.default_rng(args.seed)
    suffered = sensitivity.sensitivity(app, _name(args, app), os.environ, setup, rng, to_stderr=args.json)
    curve, way = suffered.curve, suffered.way
    _print(args, report.curve_json(curve, way), lambda: report.show_curve(curve, way))
    if args.curves:
        curves_file.update(args.curves, curve.program, curve=curve)
    return 0


def _sensitivity_setup(args: argparse.Namespace, app: Sequence[str]) -> Setup:
    from mpicoloc.bubble import calibrate, sensitivity
    from mpicoloc.job import target

    cpus = _cpus("--cores", args.cores, upper_half())
    mpirun = [*([f"--mpirun={args.mpirun}"] if args.mpirun else []),
              *(f"--mpirun-arg={x}" for x in args.mpirun_arg)]  # fmt: skip
    if args.way == "runs" and math.isfinite(args.seconds):
        raise UsageError("--way runs compares whole runs: leave out --seconds")
    if target.find(app, os.environ).abi == "openmpi" and not args.mpirun_arg:
        # It would bind ranks to processors that are not among those of the program.
        mpirun += [f"--mpirun-arg={word}" for word in ("--oversubscribe", "--bind-to", "none")]
    ways = dict(zip(_WAYS, sensitivity.WAYS, strict=True))
    return sensitivity.Setup(
        calibrate.read_file(args.calibration), cpus, _app_cpus(args, cpus), args.levels, args.n_ranks,
        args.seconds, args.repeats, mpirun,
        [ways[args.way]] if args.way else tuple(ways.values()),
    )  # fmt: skip


def _score(args: argparse.Namespace) -> int:
    import numpy as np

    from mpicoloc.bubble import calibrate, curves_file, sensitivity
    from mpicoloc.bubble import terminal as report

    app = flags.application(args.app, "program", "mpicoloc bubble score [--] app [arguments]")
    probe = _cpus("--cores", args.cores, sorted(os.sched_getaffinity(0))[:1])
    calibration = calibrate.read_file(args.calibration)
    setup = sensitivity.ScoreSetup(calibration, probe[0], _app_cpus(args, probe[:1]), args.seconds)
    curves_file.check_update(args.curves)  # before minutes of measuring
    rng = np.random.default_rng(args.seed)
    found = sensitivity.score(app, os.environ, setup, rng, to_stderr=args.json)
    name = _name(args, app)
    _print(args, report.score_json(found), lambda: report.show_score(name, found))
    if args.curves:
        curves_file.update(args.curves, name, score=found.score)
    return 0


def _collect(args: argparse.Namespace) -> int:
    from mpicoloc import messages
    from mpicoloc.bubble import curves_file, shutters
    from mpicoloc.bubble import terminal as report
    from mpicoloc.core.features import program_name
    from mpicoloc.profile import profiles

    curves_file.check_update(args.curves)  # before minutes of measuring
    runs: dict[str, list[Bubbled]] = {}
    for path in args.profiles:
        try:
            profile = profiles.read(path)
        except MpicolocError as error:
            messages.trouble(str(error))
            continue
        name = program_name(profile.job.command)
        found = shutters.from_tables(profile.tables, name)
        if found.curve is None:
            why = shutters.why_none(profile) or found.reason
            messages.note(f"{path}: no curve of {name}: {why}")
        if found.score is None and shutters.ran_any(profile.tables["shutters"]):
            messages.note(f"{path}: no score of {name}: {found.score_reason}")
        if found.curve is not None or found.score is not None:
            runs.setdefault(name, []).append(found)
    if not runs:
        raise DataError(
            "no profile has a curve or a score: run the jobs for longer, or with a larger --bubble"
        )
    programs = {name: shutters.merge_runs(of_program) for name, of_program in runs.items()}
    if args.curves:
        for name, one in programs.items():
            curves_file.update(args.curves, name, curve=one.curve, score=one.score)

    def show() -> None:
        for name, one in programs.items():
            report.show_production(name, one, len(runs[name]))

    _print(args, [report.production_json(name, one) for name, one in programs.items()], show)
    return 0


def upper_half() -> list[int]:
    """The upper half of the processors that this process may use."""
    mine = sorted(os.sched_getaffinity(0))
    return mine[len(mine) // 2 :]


def _cpus(flag: str, text: str | None, default: Sequence[int]) -> list[int]:
    """The processors that a flag names.

    Raises `UsageError` if it names none, or one that this process may not use.
    """
    if text is None:
        return list(default)
    mine = os.sched_getaffinity(0)
    found = sorted(parse_cpus(text))
    if not found:
        raise UsageError(f"{flag} must be a list of processors such as 0-3,8, got {text!r}")
    if wrong := [cpu for cpu in found if cpu not in mine]:
        raise UsageError(
            f"{flag}: processor {wrong[0]} is not among those of this process, {format_cpus(mine)}"
        )
    return found


def _app_cpus(args: argparse.Namespace, taken: Sequence[int]) -> list[int]:
    others = sorted(os.sched_getaffinity(0) - set(taken))
    cpus = _cpus("--app-cores", args.app_cores, others)
    if not cpus:
        raise UsageError("no processor is left for the program: give fewer --cores, or --app-cores")
    if shared := set(cpus) & set(taken):
        raise UsageError(
            f"--app-cores and --cores share processor {format_cpus(shared)}: give each processors of its own"
        )
    return cpus


def level(text: str) -> float:
    """A level of bubbles, as a type of a flag."""
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
    """The levels of a list but 0, in their order."""
    found = sorted({*map(level, text.split(","))} - {0.0})
    if not found:
        raise argparse.ArgumentTypeError(f"must be a list with a level above 0, got {text!r}")
    return found


def _name(args: argparse.Namespace, app: Sequence[str]) -> str:
    return str(args.name or os.path.basename(app[0]))
