"""The actions of `mpicoloc bubble` on one node, and their results on a terminal and as JSON."""

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
from typing import Any

import numpy as np

from mpicoloc import messages
from mpicoloc.bubble import calibrate, curves_file, hogs, sensitivity, shutters
from mpicoloc.bubble.calibration import Calibration
from mpicoloc.bubble.sensitivity import Scored
from mpicoloc.bubble.shutters import Bubbled
from mpicoloc.core.bubbles import LEVELS, SensitivityCurve
from mpicoloc.core.number_lists import format_cpus, parse_cpus
from mpicoloc.core.plain_values import plain
from mpicoloc.core.slowdown import program_name
from mpicoloc.core.units import amount, counted
from mpicoloc.errors import DataError, MpicolocError, UsageError
from mpicoloc.job import flags, target
from mpicoloc.profile import profiles

WAYS = ("counts", "runs")


def levels_json(one: Calibration) -> dict[str, Any]:
    """A calibration as plain values for JSON."""
    return {
        "machine": {"cpu_model": one.cpu_model, "n_cpus": one.n_cpus},
        "n_bubble_cpus": one.n_bubble_cpus,
        "levels": list(LEVELS),
        "working_set_bytes": [setting.working_set_bytes for setting in one.settings],
        "lines_per_s": [setting.lines_per_s for setting in one.settings],
        "probe_slowdown": one.curve.slowdown.tolist(),
        "probe_low": one.curve.low.tolist(),
        "probe_high": one.curve.high.tolist(),
    }


def show_levels(one: Calibration) -> None:
    """Print a table of the levels."""
    print(f"{one.cpu_model}, {counted(one.n_cpus, 'CPU')}, bubble on {one.n_bubble_cpus}")
    print("level  working set  lines per s   slowdown of the probe")
    rows = zip(LEVELS, one.settings, one.curve.slowdown, one.curve.low, one.curve.high, strict=True)
    for level, setting, value, low, high in rows:
        size = amount(setting.working_set_bytes) if setting.working_set_bytes else "-"
        print(f"{level:5}  {size:>11}  {setting.lines_per_s:11.3g}   {value:.3f} [{low:.3f}, {high:.3f}]")


def curve_json(curve: SensitivityCurve, way: str) -> dict[str, Any]:
    """A sensitivity curve as plain values for JSON."""
    return {
        "program": curve.program,
        "levels": curve.levels.tolist(),
        "slowdown": curve.slowdown.tolist(),
        "low": curve.low.tolist(),
        "high": curve.high.tolist(),
        "n": curve.n,
        "method": way,
    }


def show_curve(curve: SensitivityCurve, way: str) -> None:
    """Print a table of a sensitivity curve."""
    print(f"{curve.program}: slowdown beside bubbles, by {way}")
    for row in zip(curve.levels, curve.slowdown, curve.low, curve.high, strict=True):
        print("level {:4g}   {:.3f} [{:.3f}, {:.3f}]".format(*row))


def production_json(name: str, found: Bubbled) -> dict[str, Any]:
    """Curve and score from the shutters of a program's jobs, as plain values for JSON; None: unknown."""
    names = ("levels", "slowdown", "low", "high", "n")
    curve = {} if found.curve is None else curve_json(found.curve, "")
    return {
        "program": name,
        **{key: curve.get(key) for key in names},
        "score": plain(found.score),
        "method": "production",
    }


def show_production(name: str, found: Bubbled, n_runs: int) -> None:
    """Print a program's curve and score from its jobs' shutters."""
    if found.curve is None:
        print(f"{name}: no curve")
    else:
        show_curve(found.curve, f"{counted(n_runs, 'run')}, in their own shutters")
    if found.score is not None:
        print(f"score      {found.score.value:.2f} [{found.score.low:.2f}, {found.score.high:.2f}]")


def score_json(found: Scored) -> dict[str, Any]:
    """A score as plain values for JSON."""
    return {
        "score": found.score.value,
        "low": found.score.low,
        "high": found.score.high,
        "n": found.score.n,
        "is_beyond_largest": found.is_beyond,
        "probe_slowdown": plain(found.probe_slowdown),
    }


def show_score(name: str, found: Scored) -> None:
    """Print a score in one line."""
    score, slower = found.score, found.probe_slowdown.value
    more = ", more than the largest bubble" if found.is_beyond else ""
    print(
        f"{name}: score {score.value:.2f} [{score.low:.2f}, {score.high:.2f}]{more}; "
        f"the probe beside it is {slower:.3f} times slower"
    )


def make_calibration(args: argparse.Namespace) -> int:
    """Calibrate the bubble levels on this machine."""
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


def print_levels(args: argparse.Namespace) -> int:
    """Print the working set, rate and probe slowdown of each level on this machine."""
    return _print_levels(args, calibrate.read_file(args.calibration))


def _print_levels(args: argparse.Namespace, found: Calibration) -> int:
    _print(args, levels_json(found), lambda: show_levels(found))
    return 0


def _print(args: argparse.Namespace, document: Any, show: Callable[[], None]) -> None:
    """Print the result as JSON or as text."""
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        show()
    sys.stdout.flush()


def press(args: argparse.Namespace) -> int:
    """Run a bubble on this machine."""
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
        bubble.set(hogs.SILENCE)  # raises if another process ended the bubble
    return 0


def measure_sensitivity(args: argparse.Namespace) -> int:
    """Measure the sensitivity curve of an MPI program."""
    app = flags.application(args.app, "application", "mpicoloc bubble sensitivity -n N [--] app [arguments]")
    setup = _sensitivity_setup(args, app)
    curves_file.check_update(args.curves)  # fail before minutes of measuring
    rng = np.random.default_rng(args.seed)
    suffered = sensitivity.sensitivity(app, _name(args, app), os.environ, setup, rng, to_stderr=args.json)
    curve, way = suffered.curve, suffered.way
    _print(args, curve_json(curve, way), lambda: show_curve(curve, way))
    if args.curves:
        curves_file.update(args.curves, curve.program, curve=curve)
    return 0


def _sensitivity_setup(args: argparse.Namespace, app: Sequence[str]) -> sensitivity.Setup:
    cpus = _cpus("--cores", args.cores, upper_half())
    mpirun = [*([f"--mpirun={args.mpirun}"] if args.mpirun else []),
              *(f"--mpirun-arg={x}" for x in args.mpirun_arg)]  # fmt: skip
    if args.way == "runs" and math.isfinite(args.seconds):
        raise UsageError("--seconds does not apply to --way runs, which compares whole runs: leave it out")
    if target.find(app, os.environ).abi == "openmpi" and not args.mpirun_arg:
        # Without these flags Open MPI binds ranks to processors outside the program's set.
        mpirun += [f"--mpirun-arg={word}" for word in ("--oversubscribe", "--bind-to", "none")]
    ways = dict(zip(WAYS, sensitivity.WAYS, strict=True))
    return sensitivity.Setup(
        calibrate.read_file(args.calibration), cpus, _app_cpus(args, cpus), args.levels, args.n_ranks,
        args.seconds, args.repeats, mpirun,
        [ways[args.way]] if args.way else tuple(ways.values()),
    )  # fmt: skip


def measure_score(args: argparse.Namespace) -> int:
    """Measure the pressure score of a program."""
    app = flags.application(args.app, "program", "mpicoloc bubble score [--] app [arguments]")
    probe = _cpus("--cores", args.cores, sorted(os.sched_getaffinity(0))[:1])
    calibration = calibrate.read_file(args.calibration)
    setup = sensitivity.ScoreSetup(calibration, probe[0], _app_cpus(args, probe[:1]), args.seconds)
    curves_file.check_update(args.curves)  # fail before minutes of measuring
    found = sensitivity.score(app, os.environ, setup, np.random.default_rng(args.seed), to_stderr=args.json)
    name = _name(args, app)
    _print(args, score_json(found), lambda: show_score(name, found))
    if args.curves:
        curves_file.update(args.curves, name, score=found.score)
    return 0


def collect(args: argparse.Namespace) -> int:
    """Merge the curves and scores that several profiles have from bubbles in their shutters."""
    curves_file.check_update(args.curves)  # fail before minutes of measuring
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
            show_production(name, one, len(runs[name]))

    _print(args, [production_json(name, one) for name, one in programs.items()], show)
    return 0


def upper_half() -> list[int]:
    """The upper half (by number) of the processors that this process may use."""
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
            f"{flag}: this process may not use processor {wrong[0]}, but only {format_cpus(mine)}"
        )
    return found


def _app_cpus(args: argparse.Namespace, taken: Sequence[int]) -> list[int]:
    cpus = _cpus("--app-cores", args.app_cores, sorted(os.sched_getaffinity(0) - set(taken)))
    if not cpus:
        raise UsageError("no processor is left for the program: give fewer --cores, or set --app-cores")
    if shared := set(cpus) & set(taken):
        raise UsageError(
            f"--app-cores and --cores both have processor {format_cpus(shared)}: name it in only one of them"
        )
    return cpus


def _name(args: argparse.Namespace, app: Sequence[str]) -> str:
    return str(args.name or os.path.basename(app[0]))
