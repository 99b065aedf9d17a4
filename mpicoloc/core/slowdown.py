"""What one job suffers beside others: the protocol of all models, and measured pairs as the simplest one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.features import JobFeatures
from mpicoloc.errors import DataError

Matrix = NDArray[np.float64]

LEAST_SLOWDOWN = 0.5
"""A smaller number is no slowdown but another quantity, such as a degradation."""


class SlowdownModel(Protocol):
    """Tells the slowdown T_co / T_solo (not the degradation in percent, 100 (slowdown - 1))."""

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Slowdown that `target` suffers while all `co_runners` share its nodes, with 95 % interval.

        Every end of the interval is at least 1, and without co-runners all are 1.
        """


@runtime_checkable
class BatchModel(Protocol):
    """A model that predicts many pairs at once faster than one by one."""

    def predict_pairs(self, jobs: Sequence[JobFeatures]) -> PairSlowdowns:
        """All ordered pairs of `jobs`, as `pair_slowdowns` would have them one by one."""


@dataclass(frozen=True)
class PairSlowdowns:
    """Slowdowns of all ordered pairs of n jobs.

    Parameters
    ----------
    value, low, high : ndarray, shape (n, n)
        At [i, j] what job i suffers beside job j, dimensionless, >= 1; low and high are the ends of the 95 %
        interval. On the diagonal, beside another job just like itself. Read-only.

    Raises
    ------
    DataError
        If the shapes differ or an interval does not hold its value.
    """

    value: Matrix
    low: Matrix
    high: Matrix

    def __post_init__(self) -> None:
        n = len(self.value)
        for name in ("value", "low", "high"):
            array = getattr(self, name)
            if array.shape != (n, n):
                raise DataError(f"slowdowns of pairs: {name} must have shape {(n, n)}, got {array.shape}")
            array.flags.writeable = False
        # Not the opposite of it: with NaN all comparisons are false.
        if not ((self.low >= 1) & (self.low <= self.value) & (self.value <= self.high)).all():
            raise DataError("slowdowns of pairs: need 1 <= low <= value <= high everywhere")


def pair_slowdowns(model: SlowdownModel, jobs: Sequence[JobFeatures]) -> PairSlowdowns:
    """Predict all ordered pairs of `jobs`, in one batch where the model can.

    Parameters
    ----------
    model : SlowdownModel
    jobs : sequence of JobFeatures

    Returns
    -------
    PairSlowdowns
        Matrices of shape (len(jobs), len(jobs)).
    """
    if isinstance(model, BatchModel):
        return model.predict_pairs(jobs)
    found = np.ones((3, len(jobs), len(jobs)))
    for i, target in enumerate(jobs):
        for j, co_runner in enumerate(jobs):
            estimate = model.predict(target, [co_runner])
            found[:, i, j] = estimate.value, estimate.low, estimate.high
    return PairSlowdowns(*found)


def alone(method: str) -> Estimate:
    """The slowdown of a job without co-runners."""
    return Estimate(1.0, 1.0, 1.0, 0, "1", method)


def together(parts: Sequence[Estimate], method: str) -> Estimate:
    """Slowdown beside several co-runners, from that beside each of them.

    Parameters
    ----------
    parts : sequence of Estimate
        Slowdown beside each co-runner alone.
    method : str
        Of the result.

    Returns
    -------
    Estimate
        The time lost to each co-runner is added: 1 + sum of (slowdown - 1), and so are the ends.

    Notes
    -----
    Exact where a shared resource is full with any one co-runner; where it gets full only with the last one
    the truth is larger.
    """
    if not parts:
        return alone(method)
    value, low, high = (
        1 + sum(max(getattr(p, end), 1.0) - 1 for p in parts) for end in ("value", "low", "high")
    )
    return Estimate(value, low, high, min(part.n for part in parts), "1", method)


class MeasuredTable:
    """Slowdowns of pairs that have been run.

    Parameters
    ----------
    pairs : mapping of (str, str) to Estimate
        By the kinds (`JobFeatures.kind`) of target and co-runner. What is below 1 counts as 1: a job does not
        gain by company (section 3.2 of Zacarias et al. 2021).
    otherwise : SlowdownModel, optional
        Asked for pairs that are not there.
    """

    def __init__(
        self, pairs: Mapping[tuple[str, str], Estimate], otherwise: SlowdownModel | None = None
    ) -> None:
        self._pairs = dict(pairs)
        self._otherwise = otherwise

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Slowdown of `target`, as measured; see `SlowdownModel`.

        Raises
        ------
        DataError
            If a pair was not measured and there is no other model to ask.
        """
        parts = [self._beside(target, co_runner) for co_runner in co_runners]
        return parts[0] if len(parts) == 1 else together(parts, "measured")

    def _beside(self, target: JobFeatures, co_runner: JobFeatures) -> Estimate:
        found = self._pairs.get((target.kind, co_runner.kind))
        if found is not None:
            value, low, high = (max(end, 1.0) for end in (found.value, found.low, found.high))
            return Estimate(value, low, high, found.n, "1", "measured")
        if self._otherwise is None:
            raise DataError(
                f"{target.kind} beside {co_runner.kind} was not measured; measure the pair, or give a model"
            )
        return self._otherwise.predict(target, [co_runner])


def measured_programs(
    pairs: Mapping[tuple[str, str], tuple[float, float, float]], programs: Iterable[str]
) -> tuple[MeasuredTable, dict[str, JobFeatures]]:
    """A table by programs alone, whatever the size of their jobs, and the jobs to ask it about."""
    jobs = {name: JobFeatures(name, name, 1.0, 1, 1) for name in dict.fromkeys(programs)}
    known = {
        (jobs[one].kind, jobs[other].kind): Estimate(
            value, value if isnan(low) else low, value if isnan(high) else high, 1, "1", "measured"
        )
        for (one, other), (value, low, high) in pairs.items()
        if one in jobs and other in jobs
    }
    return MeasuredTable(known), jobs
