"""What jobs suffered beside each other when they met, and what that lets one expect of the next time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from mpicoloc.core.profile import Estimate, Floats
from mpicoloc.core.slowdown import LEAST_SLOWDOWN, PairSlowdowns, Run
from mpicoloc.pairing import production
from mpicoloc.pairing.production import beside

K = TypeVar("K", bound=Hashable)

RUN_SD = 0.1
"""Of the logarithm of a slowdown from one meeting to the next, however well each of them was measured."""
GUESS_SD = 0.5
"""Of the logarithm of a slowdown that somebody assumed, and of one pair among all that have a job in common:
three times as much would be a surprise."""
MOST = 1000.0
"""A job that says that it took so many times as long is not believed."""
_Z = 1.959963984540054


def meeting(job: Sequence[Run]) -> tuple[str, Estimate] | None:
    """Whom a job met, and what it suffered meanwhile.

    Result: number of the other job, and the slowdown beside it. None: there was none, or several, or the
    slowdown was not measured.
    """
    whole = production.run_of_steps(job)
    overlap_s: dict[str, float] = defaultdict(float)
    for name, both_s in whole.co_runners:
        overlap_s[production.job_number(name)] += both_s
    overlap_s.pop(production.job_number(job[0].id), None)  # a step of its own that left no profile
    found = beside(replace(whole, co_runners=tuple(overlap_s.items())))
    if isinstance(found, str):
        return None
    slowdown = found[1]
    is_believed = slowdown.low > 0 and slowdown.value >= LEAST_SLOWDOWN and slowdown.high < MOST
    return found if is_believed else None


def expected_pair_slowdowns(
    kinds: Collection[K],
    measured: Mapping[tuple[K, K], Sequence[Estimate]],
    before: PairSlowdowns | float | None,
) -> tuple[Floats, Floats]:
    """What is expected of all ordered pairs of kinds of jobs.

    Shapes: result (n, n). Result: at [i, j] what the i-th kind suffers beside the j-th; NaN: nothing is
    known. Of an assumption there is no upper end.
    """
    place = {kind: i for i, kind in enumerate(kinds)}
    here = {
        (place[target], place[co_runner]): meetings
        for (target, co_runner), meetings in measured.items()
        if target in place and co_runner in place
    }
    value, low, high = np.full((3, len(place), len(place)), np.nan)
    if isinstance(before, PairSlowdowns):
        value, low, high = (np.array(each) for each in (before.value, before.low, before.high))
    elif before is not None:
        value = _typical(before, here, len(place))
    for (i, j), meetings in here.items():
        said = None if before is None else guess(value[i, j])
        if isinstance(before, PairSlowdowns):
            said = Estimate(value[i, j], low[i, j], high[i, j], 0, "1", "predicted")
        found = expected(said, meetings)
        value[i, j], high[i, j] = found.value, found.high
    return value, high


def _typical(assumed: float, measured: Mapping[tuple[int, int], Sequence[Estimate]], n: int) -> Floats:
    """What to assume of each pair of n kinds.

    The geometric mean of what its target suffered beside others, what others suffered beside its co-runner,
    and, as one pair more, of what was assumed. A pair counts as one at most, however often it met, less if
    that was measured badly, and for no more than a surprise: a profile is its user's word.
    """
    total, count = np.zeros((2, n, n))
    most = _Z * GUESS_SD
    for pair, meetings in measured.items():
        log, variance = _mean(map(_point, meetings))
        count[pair] = GUESS_SD**2 / (GUESS_SD**2 + variance)
        total[pair] = count[pair] * min(max(log, 0.0) - math.log(assumed), most)
    # What the pair itself did is not of others: it counts for itself, by `expected`.
    log, weight = (each.sum(axis=1, keepdims=True) + each.sum(axis=0) - 2 * each for each in (total, count))
    return np.maximum(assumed * np.exp(log / (1 + weight)), 1.0)


def guess(slowdown: float) -> Estimate:
    """A slowdown that somebody assumed, as an estimate."""
    return scattered(slowdown, GUESS_SD, 0, "assumed")


def scattered(slowdown: float, sd: float, n: int, method: str) -> Estimate:
    """A slowdown whose logarithm has the standard deviation `sd`, by `n` measurements."""
    factor = math.exp(_Z * sd)
    return Estimate(slowdown, slowdown / factor, slowdown * factor, n, "1", method)


def expected(before: Estimate | None, measured: Sequence[Estimate]) -> Estimate:
    """Slowdown of a pair that has met.

    Result: of the next time that they meet; every end at least 1.

    Mean of the logarithms, each weighted with the inverse of its variance: what follows of a normal prior and
    normal errors. A meeting scatters by `RUN_SD` beside its own error, and no prediction is better than that.
    So one that was measured badly says little, and none says so much that the next could not correct it. The
    next time will scatter as well, so the interval is never narrower than that.
    """
    points = list(map(_point, measured))
    if before is not None:
        # Of a prediction the lower end is cut at 1: the upper one tells how certain it is.
        sd = math.log(before.high / before.value) / _Z
        points.append((math.log(before.value), max(sd**2, RUN_SD**2)))
    mean, variance = _mean(points)
    half = _Z * math.sqrt(variance + RUN_SD**2)
    value, low, high = (max(math.exp(log), 1.0) for log in (mean, mean - half, mean + half))
    return Estimate(value, low, high, sum(each.n for each in measured), "1", "met before")


def _point(meeting: Estimate) -> tuple[float, float]:
    """Logarithm of what was measured, and its variance as one of what the pair does."""
    sd = math.log(meeting.high / meeting.low) / (2 * _Z)
    return math.log(meeting.value), sd**2 + RUN_SD**2


def _mean(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Inverse-variance weighted mean of (value, variance) points, and its variance."""
    weighted = [(value / variance, 1 / variance) for value, variance in points]
    total, weight = map(sum, zip(*weighted, strict=True))
    return total / weight, 1 / weight
