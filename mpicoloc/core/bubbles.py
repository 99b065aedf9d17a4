"""A program's sensitivity curve and its pressure score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicoloc.core.profile import Bools, Estimate, Floats, frozen
from mpicoloc.errors import DataError

MAX_LEVEL = 8.0
"""Level of the largest bubble; level 0 means no bubble."""
LEVELS = tuple(range(int(MAX_LEVEL) + 1))
"""Levels of the curves in files."""
METHOD = "bubble"
POLICIES = {
    "n-max": "as many nodes as suffer the largest pressure",
    "n-plus-1-max": "one node more than suffer the largest pressure, for all others together",
    "all-max": "the largest pressure on every node",
    "interpolate": "the mean pressure on every node",
}
"""For each policy: the even pressure by which it replaces uneven pressures (Han et al. 2016, section 3.3)."""
SOURCES = ("offline", "production")


def check_level(level: float, what: str = "level") -> float:
    """Return the level. Raises `DataError` if it is not in [0, MAX_LEVEL]."""
    if not 0 <= level <= MAX_LEVEL:
        raise DataError(f"{what} must be in [0, {MAX_LEVEL:g}], got {level}: bubbles have no other levels")
    return float(level)


@dataclass(frozen=True)
class SensitivityCurve:
    """Slowdown of a program against the level of the bubble beside it.

    Parameters
    ----------
    program : str
    levels : ndarray, shape (n,)
        Increasing, from 0 to at most `MAX_LEVEL`.
    slowdown, low, high : ndarray, shape (n,)
        T_co / T_solo at each level, and the ends of its 95 % interval; all above 0. At level 0 they are 1 by
        definition. Because of noise, a measured curve may fall with the level or be below 1.
    n : int
        Number of samples.
    source : str
        "offline" or "production".

    Raises
    ------
    DataError
        If the arrays do not meet these conditions.
    """

    program: str
    levels: Floats
    slowdown: Floats
    low: Floats
    high: Floats
    n: int = 0
    source: str = "offline"

    def __post_init__(self) -> None:
        for name in ("levels", "slowdown", "low", "high"):
            object.__setattr__(self, name, frozen(np.array(getattr(self, name), np.float64)))
        if reason := self._trouble():
            raise DataError(f"curve of {self.program}: {reason}")

    def _trouble(self) -> str:
        """Why the numbers are not a valid curve; empty if they are."""
        shapes = {array.shape for array in (self.levels, self.slowdown, self.low, self.high)}
        if len(shapes) != 1 or self.levels.ndim != 1 or len(self.levels) < 2:
            return f"needs two or more levels, each with slowdown and interval, got {sorted(shapes)}"
        if not np.isfinite([self.levels, self.slowdown, self.low, self.high]).all():
            return "all numbers must be finite"
        if self.levels[0] != 0 or self.levels[-1] > MAX_LEVEL or (np.diff(self.levels) <= 0).any():
            return f"levels must increase from 0 to at most {MAX_LEVEL:g}, got {self.levels.tolist()}"
        if not ((self.low > 0) & (self.low <= self.slowdown) & (self.slowdown <= self.high)).all():
            return "needs 0 < low <= slowdown <= high at each level"
        if self.slowdown[0] != 1:
            return f"the slowdown at level 0 is 1 by definition, got {self.slowdown[0]}"
        if self.source not in SOURCES:
            return f"the source must be one of {', '.join(SOURCES)}, got {self.source!r}"
        return ""

    @property
    def max_level(self) -> float:
        """The largest level that was measured."""
        return float(self.levels[-1])

    def holds(self, level: float) -> bool:
        """Whether the curve was measured up to this level; above that, `at` returns the last value."""
        return level <= self.max_level

    def at(self, level: float) -> Estimate:
        """Slowdown at a level: linear between measured levels, constant above the last one.

        Raises `DataError` if the level is not in [0, MAX_LEVEL].
        """
        check_level(level)
        value, low, high = (
            float(np.interp(level, self.levels, ends)) for ends in (self.slowdown, self.low, self.high)
        )
        return Estimate(value, min(low, value), max(high, value), self.n, "1", METHOD)


@dataclass(frozen=True)
class ProgramPressure:
    """A program's sensitivity curve, pressure score and policy for uneven pressures.

    Parameters
    ----------
    program : str
    curve : SensitivityCurve
        The program's slowdown beside bubbles.
    score : Estimate
        The level of the bubble that slows others as much as the program does, unit "level".
    policy : str or None
        Policy that best predicts the program's slowdown under uneven pressures, one of `POLICIES`; None: not
        known.

    Raises
    ------
    DataError
        If the score is not a level, or the policy is unknown.
    """

    program: str
    curve: SensitivityCurve
    score: Estimate
    policy: str | None = None

    def __post_init__(self) -> None:
        check_level(self.score.value, f"score of {self.program}")
        if self.policy is not None and self.policy not in POLICIES:
            raise DataError(
                f"policy of {self.program} must be one of {', '.join(POLICIES)}, got {self.policy!r}"
            )


def pressure_score(value: float, low: float | None = None, high: float | None = None, n: int = 0) -> Estimate:
    """A pressure score. An end of the interval that is not given is set to the value."""
    return Estimate(value, value if low is None else low, value if high is None else high, n, "level", METHOD)


@dataclass(frozen=True)
class PropagationMatrix:
    """Normalised times of a program for each pressure and number of disturbed nodes.

    Parameters
    ----------
    times : ndarray, shape (n_pressures, n_nodes + 1)
        T of Algorithms 1 and 2: element [i, j] is the time with bubbles of level i + 1 on j nodes over the
        time without bubbles, dimensionless. The first column is 1.
    is_measured : ndarray of bool, same shape
        Whether each entry was measured; the others are interpolated.

    Raises
    ------
    DataError
        If the shapes are wrong, or a time is not finite and above 0.
    """

    times: Floats
    is_measured: Bools

    def __post_init__(self) -> None:
        times, seen = np.array(self.times, np.float64), np.array(self.is_measured, bool)
        if times.ndim != 2 or times.shape != seen.shape or times.shape[0] < 1 or times.shape[1] < 2:
            raise DataError(f"propagation: the shape must be pressures x (nodes + 1), got {times.shape}")
        if times.shape[0] > MAX_LEVEL:
            raise DataError(f"propagation: at most {MAX_LEVEL:g} levels are allowed, got {times.shape[0]}")
        is_time = np.isfinite(times) & (times > 0)
        if not is_time.all():
            raise DataError(f"propagation: times must be finite and above 0, got {times[~is_time][0]:g}")
        if not np.allclose(times[:, 0], 1):
            undisturbed = times[np.argmax(np.abs(times[:, 0] - 1)), 0]
            raise DataError(f"propagation: the entry for 0 disturbed nodes must be 1, got {undisturbed:g}")
        object.__setattr__(self, "times", frozen(times))
        object.__setattr__(self, "is_measured", frozen(seen))

    @property
    def n_pressures(self) -> int:
        """Number of levels; the first one is level 1."""
        return self.times.shape[0]

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the program, m."""
        return self.times.shape[1] - 1

    @property
    def cost_frac(self) -> float:
        """Measured fraction of the n m + 1 settings, one of which is the run without interference."""
        n_settings = self.n_pressures * self.n_nodes + 1
        return float((1 + self.is_measured[:, 1:].sum()) / n_settings)

    def at(self, level: float, n_disturbed: int) -> float:
        """Slowdown at a level on `n_disturbed` nodes: linear between levels, constant above the last.

        Raises `DataError` if `n_disturbed` is not in [0, `n_nodes`].
        """
        if not 0 <= n_disturbed <= self.n_nodes:
            raise DataError(f"propagation: disturbed nodes must be 0 to {self.n_nodes}, got {n_disturbed}")
        column = np.concatenate([[1.0], self.times[:, n_disturbed]])
        return float(np.interp(level, np.arange(len(column)), column))


@dataclass(frozen=True)
class JobRequest:
    """One job to be placed: it takes one slot on each of `n_nodes` nodes.

    Raises
    ------
    DataError
        If `n_nodes` is below 1.
    """

    id: str
    program: str
    n_nodes: int = 1

    def __post_init__(self) -> None:
        if self.n_nodes < 1:
            raise DataError(f"job {self.id!r}: n_nodes must be at least 1, got {self.n_nodes}")
