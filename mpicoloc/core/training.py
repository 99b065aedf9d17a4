"""What slowdown models learn from: jobs, and what each suffered beside another one."""

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
SOURCES = ("campaign", "production")
LAYOUTS = ("", "apart", "same")
"""Processors of the two jobs: not known, each its own, the same ones."""
CERTAIN = 0.05
"""Standard error of a slowdown at which its row counts half."""


@dataclass(frozen=True)
class Row:
    """One measured slowdown of job `target` beside job `co_runner`.

    `key` is `key_of` what was measured; `layout` one of `LAYOUTS`.
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
        One of `LAYOUTS`. No feature tells, and slowdowns of about 1 become slowdowns of 2.

    Raises
    ------
    DataError
        If a row names no job, a number is not finite or out of range, or the layout is none.
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


def key_of(*told: str | float) -> str:
    """Short text that differs for different measurements: of what stays the same when files are copied."""
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def weight_of(slowdown: Estimate) -> float:
    """What a row counts for: less, the wider the interval of its slowdown."""
    standard_error = (slowdown.high - slowdown.low) / (2 * 1.96)
    return CERTAIN**2 / (CERTAIN**2 + standard_error**2)


def training_set(rows: Sequence[Row], machine: Machine | None = None, layout: str = "") -> TrainingSet:
    """The set of these rows; a job that is in several of them is kept once."""
    jobs: dict[tuple[object, ...], int] = {}
    found: list[JobFeatures] = []
    numbers = np.zeros(len(rows), ROW_DTYPE)
    for i, row in enumerate(rows):
        for name, job in (("target", row.target), ("co_runner", row.co_runner)):
            facts = _facts(job)
            if facts not in jobs:
                jobs[facts] = len(found)
                found.append(job)
            numbers[name][i] = jobs[facts]
        slowdown = row.slowdown
        numbers["slowdown"][i], numbers["n"][i] = slowdown.value, min(slowdown.n, np.iinfo(np.int32).max)
        numbers["low"][i], numbers["high"][i] = max(slowdown.low, 1e-3), slowdown.high
        numbers["weight"][i], numbers["source"][i] = weight_of(slowdown), row.source.encode()
        numbers["key"][i] = row.key.encode()
    return TrainingSet(tuple(found), numbers, machine, layout)


def _facts(job: JobFeatures) -> tuple[str | float, ...]:
    flat = [fact for pair in sorted(job.values.items()) for fact in pair]
    return (job.id, job.program, job.runtime_s, job.n_cores, job.n_ranks, *flat)


def merged(sets: Iterable[TrainingSet]) -> TrainingSet:
    """All rows of several sets, each measurement once, and the jobs that they name.

    Of one that is there several times, as a campaign that went on, the row with most observations counts;
    where they are equal the last one, whose jobs may be known better by then.

    Raises
    ------
    DataError
        If they are of different machines or layouts; one that is not known goes with each.
    """
    sets = list(sets)
    machines = [found.machine for found in sets if found.machine is not None]
    other = next((machine for machine in machines if not machine.is_like(machines[0])), None)
    if other is not None:
        raise DataError(f"slowdowns of {machines[0]} and of {other}: fit a model for each machine")
    layouts = sorted({found.layout for found in sets} - {""})
    if len(layouts) > 1:
        raise DataError(
            "slowdowns of jobs on processors of their own and of jobs on the same ones: fit a model for each"
        )
    jobs: list[JobFeatures] = []
    parts = [np.zeros(0, ROW_DTYPE)]
    for found in sets:
        rows = found.rows.copy()
        rows["key"] = _keys(found)
        rows["target"] += len(jobs)
        rows["co_runner"] += len(jobs)
        parts.append(rows)
        jobs.extend(found.jobs)
    rows = np.concatenate(parts)
    best: dict[bytes, int] = {}
    for i, (key, n) in enumerate(zip(rows["key"].tolist(), rows["n"].tolist(), strict=True)):
        if key not in best or n >= rows["n"][best[key]]:
            best[key] = i
    used, kept = _without_idle(jobs, rows[sorted(best.values())])
    return TrainingSet(used, kept, machines[0] if machines else None, "".join(layouts))


def _keys(found: TrainingSet) -> list[bytes]:
    """Those of the rows; a file of an earlier version has none, and there all numbers must be the same."""
    keys: list[bytes] = found.rows["key"].tolist()
    if all(keys):
        return keys
    names = [
        column.name for column in ROW_COLUMNS if column.name not in ("target", "co_runner", "key", "source")
    ]
    facts = [_facts(job) for job in found.jobs]
    return [
        key
        or key_of(
            *facts[row["target"]], *facts[row["co_runner"]], *(float(row[name]) for name in names)
        ).encode()
        for key, row in zip(keys, found.rows, strict=True)
    ]


def _without_idle(
    jobs: Sequence[JobFeatures], rows: NDArray[np.void]
) -> tuple[tuple[JobFeatures, ...], NDArray[np.void]]:
    """Jobs that these rows name, and the rows, which name them by their new places."""
    ends = np.stack([rows["target"], rows["co_runner"]])
    used, places = np.unique(ends, return_inverse=True)
    rows["target"], rows["co_runner"] = places.reshape(ends.shape)
    return tuple(jobs[i] for i in used), rows
