"""What several runs of a program tell together of it beside bubbles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mpicoloc.bubble.shutters import Bubbled, smoothed
from mpicoloc.core.bubbles import MAX_LEVEL, SensitivityCurve, pressure_score
from mpicoloc.core.estimate import Estimate

_LEAST_HALF_LEVEL = 0.25
"""Half-width that a score counts with at least: at 0 and 8 both ends of an interval may be cut off."""
Array = NDArray[np.float64]


def of_runs(runs: Sequence[Bubbled]) -> Bubbled:
    """What several runs of one program tell together; at least one."""
    curves = [one.measured for one in runs if one.measured is not None]
    measured = mean_curve(curves) if curves else None
    scores = [one.score for one in runs if one.score is not None]
    return Bubbled(
        None if measured is None else smoothed(measured),
        n_taken=sum(one.n_taken for one in runs),
        n_used=sum(one.n_used for one in runs),
        score=mean_score(scores) if scores else None,
        measured=measured,
    )


def mean_score(scores: Sequence[Estimate]) -> Estimate:
    """One score from those of several runs of a program; at least one."""
    value, low, high = (np.array([getattr(one, name) for one in scores]) for name in ("value", "low", "high"))
    mean, half = _weighted_mean(value, np.maximum((high - low) / 2, _LEAST_HALF_LEVEL))
    return pressure_score(
        mean, max(0.0, mean - half), min(MAX_LEVEL, mean + half), sum(one.n for one in scores)
    )


def mean_curve(curves: Sequence[SensitivityCurve]) -> SensitivityCurve:
    """One curve from those of several runs of a program."""
    rows = []
    for level in sorted({float(level) for one in curves for level in one.levels if level > 0}):
        has = [one for one in curves if level in one.levels]
        ends = np.array([[values[one.levels == level][0] for values in (one.slowdown, one.low, one.high)]
                         for one in has])  # fmt: skip
        rows.append([level, *_mean_of_runs(*np.log(ends).T)])
    levels, value, low, high = np.array([[0.0, 1.0, 1.0, 1.0], *rows]).T
    first = curves[0]
    return SensitivityCurve(
        first.program, levels, value, low, high, sum(one.n for one in curves), first.source
    )


def _mean_of_runs(value: Array, low: Array, high: Array) -> tuple[float, float, float]:
    """Of logarithms, with their intervals: the mean slowdown and its interval."""
    mean, half = _weighted_mean(value, (high - low) / 2)
    return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))


def _weighted_mean(value: Array, half: Array) -> tuple[float, float]:
    """Mean of runs and half of its interval, wider if they differ by more than theirs say (Birge's ratio)."""
    half = np.maximum(half, 1e-6)
    weight = 1 / half**2
    mean = float(weight @ value / weight.sum())
    chi_square = float((((value - mean) / half * 1.96) ** 2).sum())
    birge = max(1.0, np.sqrt(chi_square / max(len(value) - 1, 1)))
    return mean, float(birge / np.sqrt(weight.sum()))
