"""The bubble that a program is like: the probe's slowdown beside it, read back (Han et al. 2016, sec. 2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc import messages
from mpicoloc.bubble.application import Application
from mpicoloc.bubble.calibration import Calibration
from mpicoloc.bubble.hogs import Hog
from mpicoloc.bubble.taking_turns import take_turns
from mpicoloc.bubble.turns import QUIET_FRAC, Progress, Turns, slowdowns
from mpicoloc.core.estimate import Estimate
from mpicoloc.errors import DataError

TURN_S, GUARD_S = 0.15, 0.03


@dataclass(frozen=True)
class Scored:
    """What was found of a program.

    `exit_code`: of the program, None if it was ended when enough was measured. `is_beyond`: it presses more
    than the largest bubble.
    """

    score: Estimate
    probe_slowdown: Estimate
    is_beyond: bool
    exit_code: int | None


@dataclass(frozen=True)
class Setup:
    """Where things run. After `seconds` the program is ended; infinite: it runs to its end."""

    calibration: Calibration
    probe_cpu: int
    app_cpus: Collection[int]
    seconds: float


def score(
    command: Sequence[str],
    env: Mapping[str, str],
    setup: Setup,
    rng: np.random.Generator,
    *,
    to_stderr: bool = False,
) -> Scored:
    """Run a program beside the probe, and stop it in turns.

    Raises `UsageError` if the program cannot be started. Raises `DataError` if it failed, or ended before
    enough was seen.
    """
    hog = Hog(setup.probe_cpu, setup.calibration.probe.working_set_bytes)
    try:
        hog.set(setup.calibration.probe)
        with Application(command, setup.app_cpus, env, to_stderr=to_stderr) as app:
            turns = _stopped_in_turns(app, setup.seconds, rng)
            exit_code = app.end()
        found = _slowdowns(hog.progress(), turns.without_beginnings(GUARD_S))
    finally:
        hog.close()
    if exit_code:
        raise DataError(f"{command[0]} ended with {exit_code}, so there is no score")
    if 1.0 not in found and exit_code is None:
        raise DataError(f"{setup.seconds:g} s are too short for a score on this machine: give more --seconds")
    if 1.0 not in found:
        raise DataError(f"{command[0]} ended too soon for a score: give it more work, for some seconds")
    slowdown, read_back = found[1.0], setup.calibration
    return Scored(read_back.score(slowdown), slowdown, read_back.is_beyond(slowdown), exit_code)


def _stopped_in_turns(app: Application, seconds: float, rng: np.random.Generator) -> Turns:
    """Level 1: it runs."""

    def apply(level: float) -> None:
        if level:
            app.go_on()
        else:
            app.stop()

    return take_turns(apply, [1.0], TURN_S, app.has_ended, rng, seconds, "measuring the score")


def _slowdowns(progress: Progress, turns: Turns) -> Mapping[float, Estimate]:
    """Of turns in which nobody else had the probe's processor, or else of all."""
    found = slowdowns(progress, turns, QUIET_FRAC)
    if not found and (found := slowdowns(progress, turns)):
        messages.note("other programs ran on the probe's processor: they are part of this score")
    return found
