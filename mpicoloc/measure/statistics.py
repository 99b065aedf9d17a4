"""Tests whether a quantity differs between groups of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from mpicoloc.core.profile import Estimate, Floats

CONFIDENCE = 0.95
Values = Sequence[float | Estimate | None]


@dataclass(frozen=True)
class Comparison:
    """One quantity in two groups of runs.

    Parameters
    ----------
    name, unit : str
        Name and unit of the quantity.
    before, after : float or None
        Mean over the runs of each group, geometric, or arithmetic if a run has 0; None if no run has a value.
    n_before, n_after : int
        Number of runs with a value.
    ratio : float or None
        `after` over `before`.
    low, high : float or None
        Interval of the ratio; None if the scatter of runs is unknown.
    p_value : float or None
        Probability of a ratio at least this far from 1 if the groups were alike, adjusted by Holm for the
        number of groups compared with the same one; None if the scatter of runs is unknown.
    confidence_frac : float
        Confidence of the interval: 0.95, or more if several groups are compared with the same one.
    """

    name: str
    unit: str
    before: float | None
    after: float | None
    n_before: int
    n_after: int
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    confidence_frac: float = CONFIDENCE

    @property
    def is_judged(self) -> bool:
        """Whether there is an interval."""
        return self.low is not None

    @property
    def verdict(self) -> str:
        """``more``, ``less``, ``alike``, or ``no verdict``."""
        if self.low is None or self.high is None:
            return "no verdict"
        return "more" if self.low > 1 else "less" if self.high < 1 else "alike"

    def is_above(self, limit_frac: float) -> bool:
        """Whether the ratio exceeds 1 + `limit_frac`, and, with several runs, exceeds 1 significantly.

        A change from 0 to above 0 is growth. If only some of several runs are 0, the result is False.
        """
        if self.before == 0 and self.after is not None:
            return self.after > 0
        if self.ratio is None or self.ratio <= 1 + limit_frac:
            return False
        # If a group has several runs but there is no interval, the difference may be due to chance.
        return max(self.n_before, self.n_after) == 1 if self.low is None else self.low > 1


@dataclass(frozen=True)
class Difference:
    """Difference of two groups, in the logarithm, with its standard error and degrees of freedom."""

    value: float
    error: float
    freedom: float

    @property
    def is_exact(self) -> bool:
        """Whether the runs do not scatter at all, as is common for counts."""
        return self.error < 1e-12

    @property
    def p_value(self) -> float:
        """Probability of a difference at least as large as this one if the groups were alike."""
        if self.is_exact:
            return 0.0 if abs(self.value) > 1e-12 else 1.0
        return float(2 * stats.t.sf(abs(self.value) / self.error, self.freedom))

    def half_width(self, confidence_frac: float = CONFIDENCE) -> float:
        """Half width of the interval."""
        if self.is_exact:
            return 0.0
        return float(stats.t.ppf((1 + confidence_frac) / 2, self.freedom)) * self.error


def compare(
    before: Mapping[str, Values], after: Mapping[str, Values], units: Mapping[str, str]
) -> list[Comparison]:
    """Compare each quantity of `units`, in that order, between two groups; see `compare_all`."""
    return compare_all(before, [after], units)[0]


def compare_all(
    first: Mapping[str, Values], others: Sequence[Mapping[str, Values]], units: Mapping[str, str]
) -> list[list[Comparison]]:
    """Compare each quantity of `units`, in that order, between the first group and each of the others.

    Welch's t-test compares the logarithms of the runs' values; it assumes neither equal variances nor equal
    numbers of runs. If each group has one run, whose value is an `Estimate`, the scatter is taken from the
    intervals.

    Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    rows = [
        _judged([_one(name, unit, first.get(name, ()), other.get(name, ())) for other in others])
        for name, unit in units.items()
    ]
    return [list(of_group) for of_group in zip(*rows, strict=True)] if rows else [[] for _ in others]


def holm(p_values: Sequence[float]) -> tuple[Floats, Floats]:
    """Adjusted p-values, and the significance level alpha that Holm's procedure leaves each test.

    Shapes: result (n,). A test rejects if its adjusted p-value is below 1 - `CONFIDENCE`, that is, if its own
    p-value is below its alpha.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    n_left = len(p) - np.arange(len(p))
    adjusted = np.minimum(np.maximum.accumulate(p[order] * n_left), 1.0)
    # Holm's procedure stops at the first test that does not reject; all later ones get the same alpha.
    n_rejected = int((adjusted < 1 - CONFIDENCE).sum())
    n_left[n_rejected:] = len(p) - n_rejected
    found, alpha = np.empty_like(p), np.empty_like(p)
    found[order], alpha[order] = adjusted, (1 - CONFIDENCE) / n_left
    return found, alpha


def _judged(pairs: Sequence[tuple[Comparison, Difference | None]]) -> list[Comparison]:
    """The comparisons of one quantity between one group and each of the others."""
    judged = [difference for _, difference in pairs if difference is not None]
    levels = zip(*holm([difference.p_value for difference in judged]), strict=True)
    found = []
    for row, difference in pairs:
        if difference is not None and row.ratio is not None:
            p_value, alpha = next(levels)
            half = difference.half_width(1 - alpha)
            low, high = row.ratio * np.exp(-half), row.ratio * np.exp(half)
            level = 1 - float(alpha)
            row = replace(
                row, low=float(low), high=float(high), p_value=float(p_value), confidence_frac=level
            )
        found.append(row)
    return found


def _one(name: str, unit: str, before: Values, after: Values) -> tuple[Comparison, Difference | None]:
    """The two groups and their difference; no difference if the scatter of runs is unknown."""
    groups = [_numbers(before), _numbers(after)]
    first, second = (_mean(group) for group in groups)
    sizes = (len(groups[0]), len(groups[1]))
    row = Comparison(name, unit, first, second, *sizes)
    if first is None or second is None or first <= 0:
        return row, None
    row = replace(row, ratio=second / first)
    if any((group <= 0).any() for group in groups):
        return row, None
    return row, welch(*map(np.log, groups)) if min(sizes) > 1 else _by_intervals(before, after)


def _numbers(values: Values) -> Floats:
    known = [value.value if isinstance(value, Estimate) else value for value in values if value is not None]
    return np.array(known, dtype=float)


def _mean(values: Floats) -> float | None:
    if not len(values):
        return None
    return float(np.exp(np.log(values).mean()) if (values > 0).all() else values.mean())


def welch(before: Floats, after: Floats) -> Difference:
    """Difference of the means; degrees of freedom by Welch and Satterthwaite."""
    parts = np.array([group.var(ddof=1) / len(group) for group in (before, after)])
    squares = float((parts**2 / (np.array([len(before), len(after)]) - 1)).sum())
    freedom = float(parts.sum() ** 2) / squares if squares else np.inf
    return Difference(float(after.mean() - before.mean()), float(np.sqrt(parts.sum())), freedom)


def _by_intervals(before: Values, after: Values) -> Difference | None:
    """Difference of two estimates, from their intervals."""
    known = [[value for value in group if value is not None] for group in (before, after)]
    both = [group[0] for group in known if len(group) == 1 and isinstance(group[0], Estimate)]
    if len(both) < 2 or any(estimate.low <= 0 for estimate in both):
        return None
    width = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    error = float(np.hypot(*(np.log(each.high / each.low) / (2 * width) for each in both)))
    return Difference(float(np.log(both[1].value / both[0].value)), error, np.inf)
