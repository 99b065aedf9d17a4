"""A slowdown model that was fitted to measured pairs: predicts with NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mpicoloc.core.arrays import Floats, Ints
from mpicoloc.core.estimate import Estimate
from mpicoloc.core.features import JobFeatures
from mpicoloc.core.machine import Machine
from mpicoloc.core.slowdown import PairSlowdowns, together
from mpicoloc.pairing.scores import Band


@dataclass(frozen=True)
class Preparation:
    """What was learnt of F features from the jobs of a training set.

    `scale` (F,) is the size at which asinh turns from linear to logarithmic, `fill` (F,) stands in for what
    is missing, `flagged` (K,) are the features whose absence becomes a feature of its own. `mean` and `sd`
    (F + K,) make all of one scale.
    """

    scale: Floats
    fill: Floats
    flagged: Ints
    mean: Floats
    sd: Floats

    def apply(self, features: Floats) -> Floats:
        """Features of jobs (n, F), NaN where missing, as (n, F + K)."""
        return (_filled(features, self.scale, self.fill, self.flagged) - self.mean) / self.sd


def prepare(features: Floats) -> Preparation:
    """Learn from the features (n, F) of the jobs of a training set, NaN where missing."""
    missing = np.isnan(features)
    sizes = np.where(missing | (features == 0), np.nan, np.abs(features))
    scale = _median(sizes, 1.0)
    fill = _median(np.arcsinh(features / scale), 0.0)
    flagged = np.flatnonzero(missing.any(axis=0) & ~missing.all(axis=0))
    full = _filled(features, scale, fill, flagged)
    sd = full.std(axis=0)
    return Preparation(scale, fill, flagged, full.mean(axis=0), np.where(sd > 1e-12, sd, 1.0))


def _filled(features: Floats, scale: Floats, fill: Floats, flagged: Ints) -> Floats:
    values = np.arcsinh(features / scale)
    return np.hstack([np.where(np.isnan(values), fill, values), np.isnan(features[:, flagged])])


def _median(values: Floats, otherwise: float) -> Floats:
    known = ~np.isnan(values).all(axis=0)
    result = np.full(values.shape[1], otherwise)
    result[known] = np.nanmedian(values[:, known], axis=0)
    return result


class Regressor(Protocol):
    """A regressor as arrays."""

    def pairs(self, targets: Floats, co_runners: Floats) -> Floats:
        """Predictions for all pairs of targets (n, F) and co-runners (m, F): (n, m)."""

    def trouble(self, n_inputs: int) -> str:
        """Why arrays from a file are no such model on `n_inputs` = 2 F features; empty: they are."""


@dataclass(frozen=True)
class FittedModel:
    """A `SlowdownModel` from measured pairs.

    Parameters
    ----------
    kind : str
        Name of the regressor.
    features : tuple of str
        Features it looks at, in the order of its arrays.
    regressor : Regressor
    preparation : Preparation or None
        What features go through before; None: nothing, missing ones are NaN.
    band : Band
        Width of the interval.
    usual : tuple of float
        Mean, 2.5 % and 97.5 % of the measured slowdowns: what is said of a job that has none of the features.
    most : float
        Largest slowdown that was measured; what a model says beyond it is not believed.
    n_rows : int
        Measured pairs that it was fitted to.
    machine : Machine or None
        Where they were measured.
    card : mapping
        Plain data for people: scores, training set, versions.
    """

    kind: str
    features: tuple[str, ...]
    regressor: Regressor
    preparation: Preparation | None
    band: Band
    usual: tuple[float, float, float]
    most: float
    n_rows: int
    machine: Machine | None = None
    card: Mapping[str, Any] = field(default_factory=dict)

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Slowdown of `target`; see `SlowdownModel`. Several co-runners: `core.slowdown.together`."""
        found = self._ends([target], co_runners)[:, 0, :]
        parts = [Estimate(v, low, high, self.n_rows, "1", self.kind) for v, low, high in found.T]
        return parts[0] if len(parts) == 1 else together(parts, self.kind)

    def predict_pairs(self, jobs: Sequence[JobFeatures]) -> PairSlowdowns:
        """All ordered pairs of `jobs`; see `core.slowdown.pair_slowdowns`."""
        return PairSlowdowns(*self._ends(jobs, jobs))

    def _ends(self, targets: Sequence[JobFeatures], co_runners: Sequence[JobFeatures]) -> Floats:
        """Value, low and high (3, n, m) for all pairs."""
        mine, others = matrix(targets, self.features), matrix(co_runners, self.features)
        if self.preparation is None:
            value = self.regressor.pairs(mine, others)
        else:
            value = self.regressor.pairs(self.preparation.apply(mine), self.preparation.apply(others))
        value = np.clip(value, 1.0, max(self.most, 1.0))
        result = np.stack([value, *self.band.ends(value)])
        result[:, np.isnan(mine).all(axis=1), :] = np.reshape(self.usual, (3, 1, 1))
        result[:, :, np.isnan(others).all(axis=1)] = np.reshape(self.usual, (3, 1, 1))
        return result


def matrix(jobs: Sequence[JobFeatures], names: Sequence[str]) -> Floats:
    """Features of jobs, shape (n_jobs, n_names); NaN where a job does not have one."""
    rows = [[job.values.get(name, np.nan) for name in names] for job in jobs]
    return np.array(rows, float).reshape(len(jobs), len(names))
