"""What a program suffers from bubbles: they come and go in turns inside one run of it.

Its progress is that of the MPI calls of rank 0, from the trace of all calls, so it need not be changed and no
hardware counters are needed. A run that is too short for turns is repeated whole, beside a bubble each time.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.bubble.application import Application
from mpicoloc.bubble.hogs import Bubble
from mpicoloc.bubble.taking_turns import take_turns
from mpicoloc.core import messages, progress
from mpicoloc.core.bubbles import SensitivityCurve
from mpicoloc.core.estimate import Estimate
from mpicoloc.errors import DataError
from mpicoloc.launch import wrap
from mpicoloc.measure.calibration import Calibration
from mpicoloc.measure.runs import wall_slowdowns
from mpicoloc.measure.steps import classify_steps, step_slowdowns
from mpicoloc.measure.turns import Turns
from mpicoloc.profile import profiles
from mpicoloc.trace import trace

TURN_S, GUARD_S = 0.3, 0.05
IN_TURNS, WHOLE_RUNS = "turns", "whole runs"
_PROFILE_LIMIT_S = 20.0


@dataclass(frozen=True)
class Setup:
    """Where things run, and how it is measured.

    `n_ranks`: of the program; `seconds`: after these it is ended (infinite: it runs to its end); `n_repeats`:
    runs at each level, where whole runs are compared.
    """

    calibration: Calibration
    bubble_cpus: Sequence[int]
    app_cpus: Collection[int]
    levels: Sequence[float]
    n_ranks: int
    seconds: float
    n_repeats: int
    mpirun: Sequence[str] = ()


@dataclass(frozen=True)
class Suffered:
    """A program's curve, and how it was found: `IN_TURNS` or `WHOLE_RUNS`."""

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
    """Run a program beside bubbles.

    Parameters
    ----------
    app : sequence of str
        Program and arguments.
    name : str
        Of the program in the result.
    env : mapping
        Its environment.
    setup : Setup
    rng : numpy.random.Generator
        For the order of the turns.
    to_stderr : bool
        Send the program's output there.

    Raises
    ------
    UsageError
        If the program cannot be started.
    DataError
        If it fails, or too little was seen.
    """
    settings = {level: setup.calibration.setting(level) for level in (0.0, *setup.levels)}
    n_bytes = max(one.working_set_bytes for one in settings.values())
    with tempfile.TemporaryDirectory() as folder, Bubble(setup.bubble_cpus, n_bytes) as bubble:
        run = _Runs(app, env, setup, folder, to_stderr)
        found, is_whole = run.in_turns(lambda level: bubble.set(settings[level]), rng)
        if found:
            return Suffered(_curve(name, found), IN_TURNS)
        if not is_whole:
            raise DataError(f"{app[0]} made too few MPI calls in {setup.seconds:g} s: leave out --seconds")
        messages.note(f"{app[0]} is too short, or calls MPI too rarely, for turns: whole runs are compared")
        walls_s = run.repeated(lambda level: bubble.set(settings[level]), list(settings), rng)
    return Suffered(_curve(name, wall_slowdowns(walls_s)), WHOLE_RUNS)


class _Runs:
    """Runs of one program."""

    def __init__(
        self, app: Sequence[str], env: Mapping[str, str], setup: Setup, folder: str, to_stderr: bool
    ) -> None:
        self._app, self._setup, self._to_stderr = app, setup, to_stderr
        self._env = {name: text for name, text in env.items() if name != "MPICOLOC_OUT"}
        self._profile = os.path.join(folder, "app.h5")
        command = [*wrap.python_module("mpicoloc"), "run", "-q", "-n", str(setup.n_ranks), *setup.mpirun]
        self._command = [*command, "--out", self._profile]

    def _started(self, flags: Sequence[str]) -> Application:
        command = [*self._command, *flags, "--", *self._app]
        return Application(command, self._setup.app_cpus, self._env, to_stderr=self._to_stderr)

    def in_turns(
        self, apply: Callable[[float], None], rng: np.random.Generator
    ) -> tuple[Mapping[float, Estimate], bool]:
        """Slowdowns at all levels, or none; whether the program came to its end."""
        setup = self._setup
        with self._started(["--trace", "all"]) as app:
            turns = take_turns(
                apply, setup.levels, TURN_S, app.has_ended, rng, setup.seconds, "measuring sensitivity"
            )
            apply(0.0)
            code = app.end()
        if code:
            raise DataError(f"{self._app[0]} ended with {code}, so there is no curve")
        found = self._slowdowns(turns)
        return (found if len(found) == len(setup.levels) else {}), code == 0

    def _slowdowns(self, turns: Turns) -> Mapping[float, Estimate]:
        self._await_profile()
        calls = trace.read(self._profile, profiles.read(self._profile)).frame(ranks=[0])
        calls = calls[calls["lane"] == 0]
        ends_s = (calls["t_ns"] + calls["duration_ns"]).to_numpy(np.float64) / 1e9
        order = np.argsort(ends_s, kind="stable")
        kinds = classify_steps(calls["i_site"].to_numpy(np.int64)[order])
        return step_slowdowns(ends_s[order], kinds, turns, GUARD_S)

    def _await_profile(self) -> None:
        """Of a job that was ended, the keeper writes it after its launcher has gone."""
        end_s = time.monotonic() + _PROFILE_LIMIT_S
        while not os.path.exists(self._profile):
            if time.monotonic() > end_s:
                raise DataError(f"{self._app[0]} left no profile: see `mpicoloc check`")
            time.sleep(0.05)

    def repeated(
        self, apply: Callable[[float], None], levels: Sequence[float], rng: np.random.Generator
    ) -> Mapping[float, Sequence[float]]:
        """Seconds of whole runs at each level, in random order."""
        walls_s: dict[float, list[float]] = {level: [] for level in levels}
        order = rng.permutation(list(levels) * self._setup.n_repeats).tolist()
        for level in progress.steps(order, "running", unit="runs"):
            apply(level)
            walls_s[level].append(self._time_one_run())
        return walls_s

    def _time_one_run(self) -> float:
        """Seconds of a run."""
        with self._started([]) as app:
            begin_s = time.monotonic()
            while not app.wait(1.0):
                pass
            wall_s = time.monotonic() - begin_s
            if code := app.end():
                raise DataError(f"{self._app[0]} ended with {code}, so there is no curve")
        return wall_s


def _curve(name: str, found: Mapping[float, Estimate]) -> SensitivityCurve:
    rows = [(1.0, 1.0, 1.0), *((one.value, one.low, one.high) for one in found.values())]
    slowdown, low, high = np.array(rows).T
    levels = np.array([0.0, *found])
    if np.any(falling := (high[1:] < low[:-1])):
        at = levels[1:][falling]
        messages.note(
            f"the curve falls at level {', '.join(f'{level:g}' for level in at)}: noise? Run it longer"
        )
    return SensitivityCurve(name, levels, slowdown, low, high, sum(one.n for one in found.values()))
