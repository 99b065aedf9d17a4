"""The rows of a training set as numbers, and estimators fitted to some of them and asked about others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.training import TrainingSet
from mpicoloc.errors import DataError
from mpicoloc.pairing.fitted import matrix
from mpicoloc.pairing.preparation import Preparation, prepare
from mpicoloc.pairing.training.regressors import BASELINES, Kind, Parameters, fit

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
MIN_ROWS, MIN_PROGRAMS = 8, 4
"""Below which there is no model. With so few the mean is kept unless another kind is clearly better, and it
is more than an assumption; of fewer programs nothing is left to learn from when one is left out."""
LOOKED_AT = "features"
"""The parameter of every kind that says which features it looks at."""
FEATURE_SETS = ("few", "mean", "all")
FEW = (
    "mpi_frac_mean",
    "cpu_frac_mean",
    "rss_bytes_mean",
    "minor_faults_per_s_mean",
    "sent_bps_mean",
    "burst_p50_s_mean",
    "ipc_mean",
    "cache_misses_per_s_mean",
)
"""What tells most of a program in few numbers: with ten programs, two of a hundred features fit anything."""
MISSES = "cache_misses_per_s_mean"
"""What Distributed Intensity looks at."""
_NO_MEAN = ("_min", "_max", "_sd")


@dataclass(frozen=True)
class Problem:
    """Rows of a training set as numbers; `features` (n_jobs, F) has NaN where a job lacks one."""

    names: tuple[str, ...]
    features: Array
    target: Ints
    co_runner: Ints
    slowdown: Array
    weight: Array
    program: Ints

    def columns(self, wanted: str, jobs: Ints) -> Ints:
        """Features of one of `FEATURE_SETS`, or ``misses``, in which `jobs` differ; others teach nothing."""
        keep = {
            "few": lambda name: name in FEW,
            "misses": lambda name: name == MISSES,
            "mean": lambda name: not name.endswith(_NO_MEAN),
            "all": lambda name: True,
        }[wanted]
        named = np.array([i for i, name in enumerate(self.names) if keep(name)], np.int64)
        told = _differ(self.features[np.ix_(jobs, named)]) if len(named) else np.zeros(0, bool)
        return named[told]

    def mean(self, rows: Ints) -> float:
        """Weighted mean slowdown of rows."""
        return float(np.average(self.slowdown[rows], weights=self.weight[rows]))


def problem(training: TrainingSet) -> Problem:
    """The rows of a training set; slowdowns below 1 count as 1 (Zacarias et al. 2021, section 3.2).

    Raises `DataError` if there are too few rows or programs, or the jobs have no features.
    """
    rows = training.rows
    used = np.unique(np.concatenate([rows["target"], rows["co_runner"]]))
    programs = np.array([job.program for job in training.jobs])
    n_programs = len(np.unique(programs[used]))
    if len(rows) < MIN_ROWS or n_programs < MIN_PROGRAMS:
        raise DataError(
            f"{len(rows)} slowdowns of {n_programs} programs are too few for a model: need {MIN_ROWS} of "
            f"{MIN_PROGRAMS}; run `mpicoloc campaign`, or wait for more jobs that shared nodes"
        )
    names = sorted({name for job in training.jobs for name in job.values})
    features = matrix(training.jobs, names)
    if not _differ(features[used]).any():
        raise DataError("the jobs of the training set differ in no feature; give profiles of their runs")
    return Problem(
        names=tuple(names),
        features=features,
        target=rows["target"].astype(np.int64),
        co_runner=rows["co_runner"].astype(np.int64),
        slowdown=np.maximum(rows["slowdown"], 1.0),
        weight=rows["weight"].astype(float),
        program=np.unique(programs, return_inverse=True)[1],
    )


def _differ(features: Array) -> NDArray[np.bool_]:
    """Columns with more than one value; a missing one is none."""
    return np.array([len(np.unique(column[~np.isnan(column)])) > 1 for column in features.T], bool)


def leave_program_out(given: Problem, rows: Ints, n_folds: int, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Rows to learn from and rows to be asked about: with programs at either end that the first do not know.

    Shapes: `rows` (n,). Result: no program of `test` that was left out is target or co-runner in `train`.
    Parts with nothing to learn from, or nothing to ask, are left away.
    """
    mine, others = given.program[given.target[rows]], given.program[given.co_runner[rows]]
    programs = np.random.default_rng(seed).permutation(np.unique(np.concatenate([mine, others])))
    for part in np.array_split(programs, min(n_folds, len(programs))):
        is_out = np.isin(mine, part) | np.isin(others, part)
        if is_out.any() and not is_out.all():
            yield rows[~is_out], rows[is_out]


def fitted(
    given: Problem, kind: Kind, parameters: Parameters, rows: Ints, seed: int
) -> tuple[Any, Ints, Preparation | None]:
    """An estimator fitted to `rows`, the features it looks at, and how these are prepared."""
    jobs = np.unique(np.concatenate([given.target[rows], given.co_runner[rows]]))
    for wanted in (parameters.get(LOOKED_AT, "mean"), *FEATURE_SETS):
        columns = given.columns(wanted, jobs)
        if len(columns):
            break
    else:
        # Jobs all alike: what is left is their mean.
        kind, parameters, columns = BASELINES["mean"], {}, np.arange(len(given.names))
    preparation = prepare(given.features[np.ix_(jobs, columns)]) if kind.is_prepared else None
    rest = {name: value for name, value in parameters.items() if name != LOOKED_AT}
    x = _inputs(given, columns, preparation, rows)
    return fit(kind, rest, seed, x, given.slowdown[rows], given.weight[rows]), columns, preparation


def predicted(
    given: Problem, kind: Kind, parameters: Parameters, train: Ints, test: Ints, seed: int
) -> Array:
    """Slowdowns of rows `test` as an estimator says that saw the rows `train`."""
    estimator, columns, preparation = fitted(given, kind, parameters, train, seed)
    found = estimator.predict(_inputs(given, columns, preparation, test))
    return np.clip(found, 1.0, given.slowdown[train].max())


def _inputs(given: Problem, columns: Ints, preparation: Preparation | None, rows: Ints) -> Array:
    """Features of target and co-runner of `rows`, (n, 2 F)."""
    features = given.features[:, columns]
    features = features.astype(np.float32) if preparation is None else preparation.apply(features)
    return np.hstack([features[given.target[rows]], features[given.co_runner[rows]]])
