"""A program's sensitivity curve, from bubbles within one run, or else from the wall times of whole runs.

Within one run, bubbles run in shutters, which are much more frequent than in production, and the passes of
counted places measure progress. If the run is too short for this, or the machine cannot count places, whole
runs are compared, each beside a bubble of one level.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc import messages
from mpicoloc.bubble import calibrate, shutters
from mpicoloc.bubble.application import Application
from mpicoloc.bubble.calibration import Calibration
from mpicoloc.bubble.hogs import Bubble, Hog, take_turns
from mpicoloc.bubble.shutters import QUIET_FRAC, Progress, Turns, slowdowns
from mpicoloc.core import progress
from mpicoloc.core.bubbles import SensitivityCurve
from mpicoloc.core.number_lists import format_cpus
from mpicoloc.core.profile import Estimate
from mpicoloc.errors import DataError
from mpicoloc.job import wrap
from mpicoloc.measure.statistics import welch
from mpicoloc.profile import profiles

TURN_S, GUARD_S = 0.15, 0.03


@dataclass(frozen=True)
class Scored:
    """The score of a program. `is_beyond`: the program's pressure exceeds that of the largest bubble."""

    score: Estimate
    probe_slowdown: Estimate
    is_beyond: bool


@dataclass(frozen=True)
class ScoreSetup:
    """Processors of probe and program; `seconds`: time after which the program is ended (infinite: never)."""

    calibration: Calibration
    probe_cpu: int
    app_cpus: Collection[int]
    seconds: float


def score(
    command: Sequence[str],
    env: Mapping[str, str],
    setup: ScoreSetup,
    rng: np.random.Generator,
    *,
    to_stderr: bool = False,
) -> Scored:
    """Measure a program's score: run it beside the probe, and alternately stop and continue it.

    Raises `UsageError` if the program cannot be started. Raises `DataError` if it failed, or ended after
    too few turns.
    """
    probe = setup.calibration.probe
    with contextlib.closing(Hog(setup.probe_cpu, probe.working_set_bytes)) as hog:
        hog.set(probe)
        with Application(command, setup.app_cpus, env, to_stderr=to_stderr) as app:
            taken = _stopped_in_turns(app, setup.seconds, rng)
            exit_code = app.end()
        found = _probe_slowdowns(hog.progress(), taken.without_beginnings(GUARD_S))
    if exit_code:
        raise DataError(f"{command[0]} ended with code {exit_code}, so there is no score")
    if 1.0 not in found and exit_code is None:
        raise DataError(f"{setup.seconds:g} s is too short for a score on this machine: give more --seconds")
    if 1.0 not in found:
        raise DataError(f"{command[0]} ended too soon for a score: give it work for several seconds")
    slowdown, read_back = found[1.0], setup.calibration
    return Scored(read_back.score(slowdown), slowdown, read_back.is_beyond(slowdown))


def _stopped_in_turns(app: Application, seconds: float, rng: np.random.Generator) -> Turns:
    """Stop the program at level 0, and let it run at level 1."""

    def apply(level: float) -> None:
        if level:
            app.go_on()
        else:
            app.stop()

    return take_turns(apply, [1.0], TURN_S, app.has_ended, rng, seconds, "measuring the score")


def _probe_slowdowns(progress: Progress, taken: Turns) -> Mapping[float, Estimate]:
    """The probe's slowdown in turns without other programs on its processor, else in all turns."""
    found = slowdowns(progress, taken, QUIET_FRAC)
    if not found and (found := slowdowns(progress, taken)):
        messages.note("other programs ran on the probe's processor: their pressure is included in this score")
    return found


METHOD = "whole-runs"
MIN_RUNS = 2


def wall_slowdowns(walls_s: Mapping[float, Sequence[float]]) -> Mapping[float, Estimate]:
    """Mean wall time at each level over that at level 0, with Welch's interval for the logarithms.

    Raises `DataError` if a level has fewer than `MIN_RUNS` runs.
    """
    if few := [level for level, walls in walls_s.items() if len(walls) < MIN_RUNS]:
        raise DataError(f"level {few[0]:g} has {len(walls_s[few[0]])} runs, but {MIN_RUNS} are needed")
    alone = np.log(walls_s[0.0])
    return {level: _ratio(np.log(walls_s[level]), alone) for level in sorted(walls_s) if level > 0}


def _ratio(beside: np.ndarray, alone: np.ndarray) -> Estimate:
    """Ratio of the geometric means of two samples, which are given as logarithms."""
    difference = welch(alone, beside)
    half = difference.half_width()
    value, low, high = (math.exp(difference.value + sign * half) for sign in (0, -1, 1))
    return Estimate(value, low, high, len(beside), "1", METHOD)


IN_SHUTTERS, WHOLE_RUNS = WAYS = "counts", "whole runs"
_PROFILE_LIMIT_S = 20.0


@dataclass(frozen=True)
class Setup:
    """Processors of bubbles and program, and the way to measure.

    `n_ranks`: number of ranks of the program; `seconds`: time after which the program is ended (infinite:
    never); `n_repeats`: number of whole runs at each level; `ways`: those of `WAYS` that are allowed.
    """

    calibration: Calibration
    bubble_cpus: Sequence[int]
    app_cpus: Collection[int]
    levels: Sequence[float]
    n_ranks: int
    seconds: float
    n_repeats: int
    mpirun: Sequence[str] = ()
    ways: Collection[str] = WAYS


@dataclass(frozen=True)
class Suffered:
    """A program's curve, and the member of `WAYS` that produced it."""

    curve: SensitivityCurve
    way: str


def sensitivity(
    app: Sequence[str],
    name: str,
    env: Mapping[str, str],
    setup: Setup,
    rng: np.random.Generator,
    *,
    to_stderr: bool = False,
) -> Suffered:
    """Measure a program's sensitivity curve beside bubbles.

    Raises `UsageError` if the program cannot be started. Raises `DataError` if it fails, or the data do
    not give a curve.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = _Runs(app, env, setup, folder, to_stderr)
        way = IN_SHUTTERS
        curve, reason = run.in_shutters(name) if IN_SHUTTERS in setup.ways else (None, "")
        if curve is None and WHOLE_RUNS not in setup.ways:
            raise DataError(f"counts gave no curve of {app[0]}: {reason}; run it longer, or leave out --way")
        if curve is None:
            if np.isfinite(setup.seconds):
                raise DataError(
                    f"counts gave no curve of {app[0]} in {setup.seconds:g} s: {reason}; leave out "
                    "--seconds, so that whole runs can be compared"
                )
            if reason:
                messages.note(f"counts gave no curve ({reason}), so whole runs of {app[0]} are compared")
            way = WHOLE_RUNS
            curve = shutters.curve(name, wall_slowdowns(run.beside_each_level(rng)))
    _note_falls(curve)
    return Suffered(curve, way)


class _Runs:
    """Runs of one program."""

    def __init__(
        self, app: Sequence[str], env: Mapping[str, str], setup: Setup, folder: str, to_stderr: bool
    ) -> None:
        self._app, self._setup, self._to_stderr = app, setup, to_stderr
        self._env = {name: text for name, text in env.items() if name != "MPICOLOC_OUT"}
        self._folder, self._profile = folder, os.path.join(folder, "app.h5")
        command = [*wrap.python_module("mpicoloc"), "run", "-q", "-n", str(setup.n_ranks), *setup.mpirun]
        self._command = [*command, "--out", self._profile]

    def _started(self, flags: Sequence[str]) -> Application:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._profile)
        command = [*self._command, *flags, "--", *self._app]
        return Application(command, self._setup.app_cpus, self._env, to_stderr=self._to_stderr)

    def in_shutters(self, name: str) -> tuple[SensitivityCurve | None, str]:
        """The curve from a run in which nearly every shutter has a bubble; or None, and the reason."""
        setup, file = self._setup, os.path.join(self._folder, "calibration.txt")
        if (n := setup.calibration.n_bubble_cpus) != len(setup.bubble_cpus):
            return None, f"calibrated with {n} bubbles, but --cores names {len(setup.bubble_cpus)} processors"
        calibrate.write_file(setup.calibration, file)
        options = {
            "--bubble": "0.9",
            "--bubble-levels": ",".join(f"{level:g}" for level in setup.levels),
            "--bubble-cores": format_cpus(setup.bubble_cpus),
            "--bubble-calibration": file,
            "--shutter-duty-frac": "0.5",
            "--meter": "count",
        }
        with self._started([f"{flag}={value}" for flag, value in options.items()]) as app:
            _wait(app, setup.seconds)
            code = app.end()
        if code:
            raise DataError(f"{self._app[0]} ended with code {code}, so there is no curve")
        self._await_profile()
        profile = profiles.read(self._profile)
        found = shutters.from_tables(profile.tables, name)
        if found.curve is None:
            return None, shutters.why_none(profile) or found.reason
        if len(found.curve.levels) < 1 + len(setup.levels):
            return (
                None,
                f"only {len(found.curve.levels) - 1} of {len(setup.levels)} levels had a shutter with counts",
            )
        return replace(found.curve, source=SensitivityCurve.source), ""

    def _await_profile(self) -> None:
        """Wait for the profile: if the job was killed, the keeper writes it after the launcher has ended."""
        end_s = time.monotonic() + _PROFILE_LIMIT_S
        while not os.path.exists(self._profile):
            if time.monotonic() > end_s:
                raise DataError(f"{self._app[0]} left no profile: see `mpicoloc check`")
            time.sleep(0.05)

    def beside_each_level(self, rng: np.random.Generator) -> Mapping[float, Sequence[float]]:
        """Wall times of whole runs by level, s. The order of the runs is random."""
        settings = {level: self._setup.calibration.setting(level) for level in (0.0, *self._setup.levels)}
        walls_s: dict[float, list[float]] = {level: [] for level in settings}
        order = rng.permutation([*settings] * self._setup.n_repeats).tolist()
        n_bytes = max(one.working_set_bytes for one in settings.values())
        with contextlib.closing(Bubble(self._setup.bubble_cpus, n_bytes)) as bubble:
            for level in progress.steps(order, "running", unit="runs"):
                bubble.set(settings[level])
                walls_s[level].append(self._time_one_run())
        return walls_s

    def _time_one_run(self) -> float:
        """Wall time of a run, s."""
        with self._started([]) as app:
            begin_s = time.monotonic()
            while not app.wait(1.0):
                pass
            wall_s = time.monotonic() - begin_s
            if code := app.end():
                raise DataError(f"{self._app[0]} ended with code {code}, so there is no curve")
        return wall_s


def _wait(app: Application, seconds: float) -> None:
    """Wait `seconds`, or until the program has ended."""
    begin_s = now_s = time.monotonic()
    with progress.stage("measuring sensitivity", seconds if np.isfinite(seconds) else None, "s") as advance:
        while now_s < begin_s + seconds and not app.wait(min(1.0, begin_s + seconds - now_s)):
            before_s, now_s = now_s, time.monotonic()
            advance(now_s - before_s)


def _note_falls(curve: SensitivityCurve) -> None:
    """Print a note if a curve falls significantly, because more pressure cannot speed a program up."""
    falling = curve.levels[1:][curve.high[1:] < curve.low[:-1]]
    if len(falling):
        at = ", ".join(f"{level:g}" for level in falling)
        messages.note(f"the curve falls at level {at}, perhaps by noise: run the program longer")
