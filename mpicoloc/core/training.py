"""Training data of slowdown models: jobs, and the slowdown of each beside another job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.features import JobFeatures
from mpicoloc.core.machine import Machine
from mpicoloc.core.tables import Column, frozen
from mpicoloc.errors import DataError

ROW_COLUMNS = (
    Column("target", "i4", "1", "row of the job that suffers in /jobs"),
    Column("co_runner", "i4", "1", "row of the job beside it"),
    Column("slowdown", "f8", "1", "T_co / T_solo as measured, also below 1"),
    Column("low", "f8", "1", "lower end of its 95 % interval"),
    Column("high", "f8", "1", "upper end"),
    Column("n", "i4", "1", "observations behind it"),
    Column("weight", "f8", "1", "what the row counts for, at most 1"),
    Column("source", "S16", "1", "campaign or production"),
    Column("key", "S16", "1", "which measurement it is: rows of one key are the same one"),
)
ROW_DTYPE = np.dtype([(column.name, column.type) for column in ROW_COLUMNS])
LAYOUTS = ("", "apart", "same")
"""Processors of the two jobs: unknown, each its own, or the same ones."""
HALF_WEIGHT_ERROR = 0.05
"""Standard error of a slowdown with which its row has half the weight."""


@dataclass(frozen=True)
class Row:
    """One measured slowdown of job `target` beside job `co_runner`.

    `key` is `key_of` the measurement; `layout` is one of `LAYOUTS`.
    """

    target: JobFeatures
    co_runner: JobFeatures
    slowdown: Estimate
    source: str
    key: str = ""
    layout: str = ""


@dataclass(frozen=True)
class TrainingSet:
    """Measured slowdowns of one machine.

    Parameters
    ----------
    jobs : tuple of JobFeatures
        Each job once.
    rows : ndarray, shape (n_rows,), type `ROW_DTYPE`
        Read-only; `target` and `co_runner` are indices of `jobs`.
    machine : Machine or None
        Where all of it was measured; None: not known.
    layout : str
        One of `LAYOUTS`. No feature has it, although a slowdown of 1 becomes 2 on the same processors.

    Raises
    ------
    DataError
        If a row names no job, a number is not finite or out of range, or the layout is unknown.
    """

    jobs: tuple[JobFeatures, ...]
    rows: NDArray[np.void]
    machine: Machine | None = None
    layout: str = ""

    def __post_init__(self) -> None:
        rows = self.rows
        if self.layout not in LAYOUTS:
            raise DataError(f"training set: layout must be one of {LAYOUTS}, got {self.layout!r}")
        if rows.dtype != ROW_DTYPE or rows.ndim != 1:
            raise DataError(f"training set: rows must be of {ROW_DTYPE.names}, got {rows.dtype.names}")
        ends = np.concatenate([rows["target"], rows["co_runner"]])
        if len(ends) and not (ends.min() >= 0 and ends.max() < len(self.jobs)):
            raise DataError(f"training set: a row names a job that is none of {len(self.jobs)}")
        ordered = (rows["low"] > 0) & (rows["low"] <= rows["slowdown"]) & (rows["slowdown"] <= rows["high"])
        finite = np.isfinite(rows["high"]) & (rows["weight"] > 0) & (rows["weight"] <= 1)
        if not (ordered & finite).all():
            raise DataError("training set: need 0 < low <= slowdown <= high, finite, and 0 < weight <= 1")
        frozen(rows)

    @property
    def programs(self) -> list[str]:
        """Names of the programs of all jobs."""
        return sorted({job.program for job in self.jobs})


def key_of(*facts: str | float) -> str:
    """Short text that identifies a measurement by facts that stay the same when files are copied."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def weight_of(slowdown: Estimate) -> float:
    """Weight of a row, at most 1: the wider the interval of its slowdown, the smaller."""
    standard_error = (slowdown.high - slowdown.low) / (2 * 1.96)
    return HALF_WEIGHT_ERROR**2 / (HALF_WEIGHT_ERROR**2 + standard_error**2)


def training_set(rows: Sequence[Row], machine: Machine | None = None, layout: str = "") -> TrainingSet:
    """The training set of these rows, in which each job occurs once."""
    jobs: dict[tuple[object, ...], int] = {}
    kept_jobs: list[JobFeatures] = []
    numbers = np.zeros(len(rows), ROW_DTYPE)
    for i, row in enumerate(rows):
        for name, job in (("target", row.target), ("co_runner", row.co_runner)):
            facts = _identity(job)
            if facts not in jobs:
                jobs[facts] = len(kept_jobs)
                kept_jobs.append(job)
            numbers[name][i] = jobs[facts]
        slowdown = row.slowdown
        numbers["slowdown"][i], numbers["n"][i] = slowdown.value, min(slowdown.n, np.iinfo(np.int32).max)
        numbers["low"][i], numbers["high"][i] = max(slowdown.low, 1e-3), slowdown.high
        numbers["weight"][i], numbers["source"][i] = weight_of(slowdown), row.source.encode()
        numbers["key"][i] = row.key.encode()
    return TrainingSet(tuple(kept_jobs), numbers, machine, layout)


def _identity(job: JobFeatures) -> tuple[str | float, ...]:
    flat = [fact for pair in sorted(job.values.items()) for fact in pair]
    return (job.id, job.program, job.runtime_s, job.n_cores, job.n_ranks, *flat)


def merged(sets: Iterable[TrainingSet]) -> TrainingSet:
    """All rows of several sets, each measurement once, and the jobs that they name.

    A campaign that was continued has several rows of one measurement. The row with most observations counts,
    and among equal ones the last, whose jobs may be known better.

    Raises `DataError` if the sets are of different machines or layouts; unknown ones fit to all.
    """
    sets = list(sets)
    machines = [member.machine for member in sets if member.machine is not None]
    other = next((machine for machine in machines if not machine.is_like(machines[0])), None)
    if other is not None:
        raise DataError(f"slowdowns of {machines[0]} and of {other}: fit a model for each machine")
    layouts = sorted({member.layout for member in sets} - {""})
    if len(layouts) > 1:
        raise DataError(
            "slowdowns of jobs on processors of their own and of jobs on the same ones: fit a model for each"
        )
    jobs: list[JobFeatures] = []
    parts = [np.zeros(0, ROW_DTYPE)]
    for member in sets:
        rows = member.rows.copy()
        rows["key"] = _keys(member)
        rows["target"] += len(jobs)
        rows["co_runner"] += len(jobs)
        parts.append(rows)
        jobs.extend(member.jobs)
    rows = np.concatenate(parts)
    best: dict[bytes, int] = {}
    for i, (key, n) in enumerate(zip(rows["key"].tolist(), rows["n"].tolist(), strict=True)):
        if key not in best or n >= rows["n"][best[key]]:
            best[key] = i
    used, kept = _drop_unused_jobs(jobs, rows[sorted(best.values())])
    return TrainingSet(used, kept, machines[0] if machines else None, "".join(layouts))


def _keys(training: TrainingSet) -> list[bytes]:
    """Keys of the rows. Files of earlier versions have none; then rows are the same if all numbers are."""
    keys: list[bytes] = training.rows["key"].tolist()
    if all(keys):
        return keys
    names = [
        column.name for column in ROW_COLUMNS if column.name not in ("target", "co_runner", "key", "source")
    ]
    facts = [_identity(job) for job in training.jobs]
    return [
        key
        or key_of(
            *facts[row["target"]], *facts[row["co_runner"]], *(float(row[name]) for name in names)
        ).encode()
        for key, row in zip(keys, training.rows, strict=True)
    ]


def _drop_unused_jobs(
    jobs: Sequence[JobFeatures], rows: NDArray[np.void]
) -> tuple[tuple[JobFeatures, ...], NDArray[np.void]]:
    """The jobs that these rows name, and the rows with the jobs' new indices."""
    ends = np.stack([rows["target"], rows["co_runner"]])
    used, places = np.unique(ends, return_inverse=True)
    rows["target"], rows["co_runner"] = places.reshape(ends.shape)
    return tuple(jobs[i] for i in used), rows
