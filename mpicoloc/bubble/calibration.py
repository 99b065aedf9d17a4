"""Calibration of a kind of machine: a bubble's setting at each level, and the probe's slowdown beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.bubbles import LEVELS, MAX_LEVEL, Floats, SensitivityCurve, check_level, pressure_score
from mpicoloc.core.profile import Estimate
from mpicoloc.errors import DataError

SLOPE = 1e-9
"""Least rise per level, which a curve gets before it is inverted."""


@dataclass(frozen=True)
class BubbleSetting:
    """A bubble's working set, and the cache lines that it touches per second (0: no limit)."""

    working_set_bytes: int
    lines_per_s: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "working_set_bytes", int(self.working_set_bytes))
        object.__setattr__(self, "lines_per_s", float(self.lines_per_s))


@dataclass(frozen=True)
class Calibration:
    """Settings of bubbles for one kind of machine.

    Parameters
    ----------
    cpu_model : str
    n_cpus : int
        Processors of the machine.
    n_bubble_cpus : int
        Processors on which the bubble ran.
    settings : tuple of BubbleSetting
        Settings of the whole bubble (on all its processors together) at levels 0 to 8.
    probe : BubbleSetting
        The reference probe: a hog with a fixed working set, whose slowdown beside bubbles is measured.
    probe_alone_lines_per_s : float
        Cache lines that the probe touches per second of its processor time while nothing runs beside it.
    curve : SensitivityCurve
        The probe's slowdown at each level. This curve never falls.

    Raises
    ------
    DataError
        If a setting or the curve is invalid.
    """

    cpu_model: str
    n_cpus: int
    n_bubble_cpus: int
    settings: tuple[BubbleSetting, ...]
    probe: BubbleSetting
    probe_alone_lines_per_s: float
    curve: SensitivityCurve

    def __post_init__(self) -> None:
        if reason := self._trouble():
            raise DataError(f"calibration of bubbles: {reason}")

    def _trouble(self) -> str:
        if len(self.settings) != len(LEVELS) or self.curve.levels.tolist() != list(LEVELS):
            return f"needs levels {LEVELS[0]} to {LEVELS[-1]}, got {len(self.settings)} settings"
        sizes = [setting.working_set_bytes for setting in self.settings]
        rates = [setting.lines_per_s for setting in self.settings]
        if sizes[0] != 0 or not all(size > 0 for size in (*sizes[1:], self.probe.working_set_bytes)):
            return f"working sets must be above 0, and 0 at level 0, got {sizes}"
        if not all(math.isfinite(rate) and rate >= 0 for rate in rates):
            return f"rates must be numbers from 0, got {rates}"
        if not (math.isfinite(self.probe_alone_lines_per_s) and self.probe_alone_lines_per_s > 0):
            return f"the probe's pace alone must be above 0, got {self.probe_alone_lines_per_s}"
        if np.any(np.diff(self.curve.slowdown) < 0):
            return f"the probe's curve falls: {self.curve.slowdown.tolist()}"
        return ""

    def setting(self, level: float) -> BubbleSetting:
        """Setting of a bubble of this level, interpolated linearly between whole levels.

        Raises `DataError` if the level is not in [0, 8].
        """
        check_level(level)
        sizes = [one.working_set_bytes for one in self.settings]
        rates = [one.lines_per_s for one in self.settings]
        return BubbleSetting(
            int(np.interp(level, LEVELS, sizes)), float(np.interp(level, LEVELS, rates)) if level else 0.0
        )

    def score(self, slowdown: Estimate) -> Estimate:
        """The level of the bubble that slows the probe by this much: `score_of` with the probe's curve."""
        return score_of(slowdown, self.curve)

    def is_beyond(self, slowdown: Estimate) -> bool:
        """Whether the slowdown exceeds that beside the largest bubble, so that the score is a lower bound."""
        return slowdown.value > float(self.curve.slowdown[-1])


def score_of(slowdown: Estimate, curve: SensitivityCurve) -> Estimate:
    """The level of the bubble that causes this slowdown of the probe.

    The interval of the result combines the uncertainties of the slowdown and of the curve.

    Han et al. 2016, section 2: the inverse of the probe's curve, at the probe's slowdown beside the program.
    """
    level = _read_back(slowdown.value, curve.slowdown)
    own = [_read_back(end, curve.slowdown) for end in (slowdown.low, slowdown.high)]
    of_curve = [_read_back(slowdown.value, ends) for ends in (curve.high, curve.low)]
    low = level - math.hypot(max(0.0, level - own[0]), max(0.0, level - of_curve[0]))
    high = level + math.hypot(max(0.0, own[1] - level), max(0.0, of_curve[1] - level))
    return pressure_score(level, max(0.0, low), min(MAX_LEVEL, high), slowdown.n)


def _read_back(slowdown: float, curve: Floats) -> float:
    """The level at which the curve has this slowdown; beyond the curve's ends, its first or last level."""
    levels = np.array(LEVELS, float)
    return float(np.interp(slowdown, np.maximum.accumulate(curve) + SLOPE * levels, levels))
