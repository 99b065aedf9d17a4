"""Slowdown of whole runs, by their wall times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import t as students_t

from mpicoloc.core.estimate import Estimate
from mpicoloc.errors import DataError

METHOD = "whole-runs"
MIN_RUNS = 2


def wall_slowdowns(walls_s: Mapping[float, Sequence[float]]) -> Mapping[float, Estimate]:
    """Mean wall time at each level over that at level 0, with Welch's interval of the logarithms.

    Parameters
    ----------
    walls_s : mapping
        Seconds of the runs at each level, 0 among them.

    Raises
    ------
    DataError
        If a level has fewer than `MIN_RUNS`.
    """
    if few := [level for level, walls in walls_s.items() if len(walls) < MIN_RUNS]:
        raise DataError(f"level {few[0]:g} has {len(walls_s[few[0]])} runs, {MIN_RUNS} needed")
    alone = np.log(walls_s[0.0])
    return {level: _ratio(np.log(walls_s[level]), alone) for level in sorted(walls_s) if level > 0}


def _ratio(beside: np.ndarray, alone: np.ndarray) -> Estimate:
    """Ratio of the means of two samples of logarithms."""
    value = float(beside.mean() - alone.mean())
    parts = np.array([sample.var(ddof=1) / len(sample) for sample in (beside, alone)])
    freedom = np.array([len(beside) - 1, len(alone) - 1])
    total = float(parts.sum())
    half = 0.0
    if total > 0:
        half = math.sqrt(total) * float(students_t.ppf(0.975, total**2 / float(np.sum(parts**2 / freedom))))
    return Estimate(math.exp(value), math.exp(value - half), math.exp(value + half), len(beside), "1", METHOD)
