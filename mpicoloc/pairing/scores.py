"""Errors of predicted slowdowns: the intervals that they give, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicoloc.core.profile import Floats, Ints

COVERAGE = 0.95
_WIDER = np.linspace(1.0, 4.0, 31)
_LEAST = 1e-3
"""No prediction is more certain than a slowdown of this."""


@dataclass(frozen=True)
class Band:
    """Errors of a prediction p have the spread `fixed` + `per_excess` (p - 1).

    So many spreads (`below` <= 0 <= `above`) away from it lie the ends of the 95 % interval.
    """

    fixed: float
    per_excess: float
    below: float
    above: float

    def ends(self, predicted: Floats) -> tuple[Floats, Floats]:
        """Lower and upper ends for slowdowns `predicted` of any shape, which are >= 1."""
        spread = self.fixed + self.per_excess * (predicted - 1)
        low: Floats = np.maximum(1.0, predicted + self.below * spread)
        high: Floats = predicted + self.above * spread
        return np.minimum(low, predicted), high


def band(predicted: Floats, measured: Floats) -> Band:
    """Interval from slowdowns predicted for rows that were left out, and what was measured there.

    Notes
    -----
    Split conformal prediction with residuals scaled by their expected size; the quantiles allow for the
    number of rows, (n + 1)/n.
    """
    from scipy.optimize import nnls  # imported here because only fitting needs SciPy

    error = measured - predicted
    design = np.stack([np.ones_like(predicted), predicted - 1], axis=1)
    fixed, per_excess = nnls(design, np.abs(error))[0]
    fixed = max(float(fixed), _LEAST)
    scaled = np.sort(error / (fixed + per_excess * (predicted - 1)))
    n, tail = len(scaled), (1 - COVERAGE) / 2
    # Of n + 1 errors in order, so many are below the end.
    i_low = int(np.floor((n + 1) * tail)) - 1
    i_high = int(np.ceil((n + 1) * (1 - tail))) - 1
    below, above = scaled[max(i_low, 0)], scaled[min(i_high, n - 1)]
    return Band(fixed, float(per_excess), float(min(below, 0.0)), float(max(above, 0.0)))


def covering(predicted: Floats, measured: Floats, rows: Ints, left_out: Ints) -> tuple[Band, float]:
    """Interval that holds for programs which it was not made from.

    Shapes: `predicted`, `measured` (n,), `rows` (n,), `left_out` (n,).
    """
    held = np.zeros((len(_WIDER), len(predicted)), bool)
    for fold in np.unique(left_out):
        place = left_out == fold
        # With a program at the other end of a row, the row itself is there a second time.
        clean = ~np.isin(rows, rows[place])
        if clean.any():
            other = band(predicted[clean], measured[clean])
            for i, factor in enumerate(_WIDER):
                low, high = _wider(other, factor).ends(predicted[place])
                held[i, place] = (low <= measured[place]) & (measured[place] <= high)
    shares = held.mean(axis=1)
    enough = np.flatnonzero(shares >= COVERAGE)
    i = int(enough[0]) if len(enough) else len(_WIDER) - 1
    return _wider(band(predicted, measured), _WIDER[i]), float(shares[i])


def _wider(found: Band, factor: float) -> Band:
    return Band(found.fixed, found.per_excess, found.below * factor, found.above * factor)


UNDER_COST = 2.0
"""An underestimate costs so many times an overestimate: it brings jobs together that should be apart."""


def cost(predicted: Floats, measured: Floats, weights: Floats) -> float:
    """Weighted mean error, underestimates counted `UNDER_COST` times."""
    error = predicted - measured
    return float(np.average(np.where(error < 0, -UNDER_COST * error, error), weights=weights))


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

    measured: Floats
    weight: Floats
    usual: Floats
    value: Floats
    low: Floats
    high: Floats


def with_intervals(
    measured: Floats, weight: Floats, usual: float | Floats, value: Floats, width: Band
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
