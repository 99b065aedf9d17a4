"""What a wrong prediction of a slowdown costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.pairing.intervals import Band

Array = NDArray[np.float64]
UNDER_COST = 2.0
"""An underestimate costs so many times an overestimate: it brings jobs together that should be apart."""


def cost(predicted: Array, measured: Array, weights: Array) -> float:
    """Weighted mean error, underestimates counted `UNDER_COST` times."""
    error = predicted - measured
    return float(np.average(np.where(error < 0, -UNDER_COST * error, error), weights=weights))


def cheapest(measured: Array, weights: Array) -> float:
    """The one prediction for all that costs least.

    Notes
    -----
    The weighted quantile at UNDER_COST / (UNDER_COST + 1): Koenker and Bassett 1978, Regression quantiles.
    """
    order = np.argsort(measured)
    below = np.cumsum(weights[order])
    found = np.searchsorted(below, UNDER_COST / (UNDER_COST + 1) * below[-1])
    return float(measured[order][min(int(found), len(order) - 1)])


UNDER = 0.05
"""A slowdown larger by this than predicted counts as underestimated."""


@dataclass(frozen=True)
class Scores:
    """Of n predictions for rows that a model had not learnt from.

    `r2`: 1 - squared errors over those of the mean (Zacarias et al. 2021, Eq. 2), None where that has none.
    `mae`: mean absolute error of the slowdown. `cost`: mean error with underestimates counted
    `pairing.scores.UNDER_COST` times. `under_frac`: part of the rows underestimated by more than `UNDER`.
    `worst_under`: largest underestimate, 0 if there is none. `coverage`: part of the rows that the 95 %
    interval holds. `width`: its mean width.
    """

    r2: float | None
    mae: float
    cost: float
    under_frac: float
    worst_under: float
    coverage: float
    width: float


@dataclass(frozen=True)
class Predictions:
    """Predictions (n,) with their intervals, beside what was measured.

    `usual` is what whoever knows nothing of the pair would say, and `weight` what the row counts for.
    """

    measured: Array
    weight: Array
    usual: Array
    value: Array
    low: Array
    high: Array


def with_intervals(
    measured: Array, weight: Array, usual: float | Array, value: Array, width: Band
) -> Predictions:
    """Predictions with an interval of this width."""
    return Predictions(measured, weight, np.broadcast_to(usual, value.shape), value, *width.ends(value))


def concatenated(parts: list[Predictions]) -> Predictions:
    """The predictions of several parts, one after the other."""
    fields = ("measured", "weight", "usual", "value", "low", "high")
    return Predictions(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def scores_of(of: Predictions) -> Scores:
    """Scores of predictions."""
    error = of.measured - of.value
    total = float(((of.measured - of.usual) ** 2).sum())
    return Scores(
        r2=1 - float((error**2).sum()) / total if total > 0 else None,
        mae=float(np.abs(error).mean()),
        cost=cost(of.value, of.measured, of.weight),
        under_frac=float((error > UNDER).mean()),
        worst_under=float(max(error.max(), 0.0)),
        coverage=float(((of.low <= of.measured) & (of.measured <= of.high)).mean()),
        width=float((of.high - of.low).mean()),
    )
