"""Whether what was measured in some runs differs from what was measured in others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mpicoloc.core.estimate import Estimate

CONFIDENCE = 0.95
Values = Sequence[float | Estimate | None]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """One quantity in two groups of runs.

    Parameters
    ----------
    name, unit : str
        What it is.
    before, after : float or None
        Geometric mean of the runs of each group; the arithmetic one where some are 0; None: no run has it.
    n_before, n_after : int
        Runs that have it.
    ratio : float or None
        `after` over `before`.
    low, high : float or None
        95 % interval of the ratio; None where nothing tells how far runs scatter.
    p_value : float or None
        Probability of a ratio at least that far from 1 if the groups were alike; None as above.
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

    @property
    def is_judged(self) -> bool:
        """Whether there is an interval."""
        return self.low is not None

    @property
    def verdict(self) -> str:
        """``more``, ``less``, ``alike``, or ``not judged``."""
        if self.low is None or self.high is None:
            return "not judged"
        return "more" if self.low > 1 else "less" if self.high < 1 else "alike"

    def is_above(self, limit_frac: float) -> bool:
        """Whether it grew by more than that part, and, where there are several runs, not by chance.

        From nothing to something is growth; where only some of several runs have it nothing is said.
        """
        if self.before == 0 and self.after is not None:
            return self.after > 0
        if self.ratio is None or self.ratio <= 1 + limit_frac:
            return False
        return min(self.n_before, self.n_after) == 1 if self.low is None else self.low > 1


def compare(
    before: Mapping[str, Values], after: Mapping[str, Values], units: Mapping[str, str]
) -> list[Comparison]:
    """Compare each quantity of `units`, in its order.

    The logarithms of the runs' values are compared by Welch's t-test, which supposes neither that both groups
    scatter alike nor that they have equally many runs. Where each group has one run, and its value is an
    `Estimate`, its interval tells the scatter.

    Parameters
    ----------
    before, after : mapping of str to sequence
        For each quantity the value of each run; None: not measured.
    units : mapping of str to str
        Unit of each quantity.
    """
    return [_one(name, unit, before.get(name, ()), after.get(name, ())) for name, unit in units.items()]


def _one(name: str, unit: str, before: Values, after: Values) -> Comparison:
    groups = [_numbers(before), _numbers(after)]
    means = [_mean(group) for group in groups]
    sizes = (len(groups[0]), len(groups[1]))
    first, second = means
    if first is None or second is None or first <= 0:
        return Comparison(name, unit, first, second, *sizes)
    ratio = second / first
    if any((group <= 0).any() for group in groups):
        return Comparison(name, unit, first, second, *sizes, ratio)
    found = _welch(*map(np.log, groups)) if min(sizes) > 1 else _by_intervals(before, after)
    if found is None:
        return Comparison(name, unit, first, second, *sizes, ratio)
    half, p_value = found
    ends = (ratio * np.exp(-half), ratio * np.exp(half))
    return Comparison(name, unit, first, second, *sizes, ratio, float(ends[0]), float(ends[1]), p_value)


def _numbers(values: Values) -> Array:
    known = [value.value if isinstance(value, Estimate) else value for value in values if value is not None]
    return np.array(known, dtype=float)


def _mean(values: Array) -> float | None:
    if not len(values):
        return None
    return float(np.exp(np.log(values).mean()) if (values > 0).all() else values.mean())


def _welch(before: Array, after: Array) -> tuple[float, float]:
    """Half the interval of the difference of means, and its p-value."""
    difference = after.mean() - before.mean()
    parts = np.array([group.var(ddof=1) / len(group) for group in (before, after)])
    error = float(np.sqrt(parts.sum()))
    if error < 1e-12:  # what is counted is often the same in every run
        return 0.0, 0.0 if abs(difference) > 1e-12 else 1.0
    freedom = parts.sum() ** 2 / (parts**2 / (np.array([len(before), len(after)]) - 1)).sum()
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    return half, float(2 * stats.t.sf(abs(difference) / error, freedom))


def _by_intervals(before: Values, after: Values) -> tuple[float, float] | None:
    """As `_welch`, from the intervals of two estimates."""
    known = [[value for value in group if value is not None] for group in (before, after)]
    both = [group[0] for group in known if len(group) == 1 and isinstance(group[0], Estimate)]
    if len(both) < 2 or any(estimate.low <= 0 for estimate in both):
        return None
    width = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    error = float(np.hypot(*(np.log(each.high / each.low) / (2 * width) for each in both)))
    difference = abs(np.log(both[1].value / both[0].value))
    if error < 1e-12:
        return 0.0, 0.0 if difference > 1e-12 else 1.0
    return width * error, float(2 * stats.norm.sf(difference / error))
