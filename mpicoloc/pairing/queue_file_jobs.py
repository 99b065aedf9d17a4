"""Jobs of a queue file: completed from profiles, a fitted model and measured pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.core.features import JobFeatures
from mpicoloc.core.run import Run
from mpicoloc.core.slowdown import PairSlowdowns
from mpicoloc.errors import DataError
from mpicoloc.pairing.features import job_features
from mpicoloc.pairing.policies import Plan, Rules, plan_parts
from mpicoloc.pairing.queue import Queue
from mpicoloc.pairing.queue_files import NUMBERS, Ends, WaitingJob
from mpicoloc.pairing.serialize import StoredModel
from mpicoloc.pairing.training_sets import read_runs


@dataclass(frozen=True)
class PredictedPairs:
    """Slowdowns of all pairs of profiles, and the row of each profile."""

    slowdowns: PairSlowdowns
    rows: Mapping[str, int]


def features(paths: Iterable[str], model: StoredModel | None = None) -> dict[str, JobFeatures]:
    """Features of the jobs of these profiles, by their paths.

    Raises `DataError` if a profile cannot be read, tells of no whole run, or is of another machine than the
    model.
    """
    runs, troubles = read_runs(list(dict.fromkeys(paths)))
    if troubles:
        raise DataError(troubles[0])
    for path, run in runs.items():
        machine = model.machine if model else None
        if machine is not None and run.machine is not None and not run.machine.is_like(machine):
            raise DataError(
                f"{path} was measured on {run.machine}, and the model is of {machine}: "
                "slowdowns do not carry over to another machine; fit a model there"
            )
    return {path: _features(path, run) for path, run in runs.items()}


def _features(path: str, run: Run) -> JobFeatures:
    try:
        return job_features([run])
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def fill_from_profiles(waiting: Sequence[WaitingJob], known: Mapping[str, JobFeatures]) -> list[WaitingJob]:
    """The jobs, with fields that the file leaves out taken from their profiles."""
    found = []
    for job in waiting:
        profile = known.get(job.profile)
        if profile is not None:
            n_cores = profile.n_cores if math.isnan(job.n_cores) else job.n_cores
            runtime_s = profile.runtime_s if math.isnan(job.runtime_s) else job.runtime_s
            program = profile.program if job.program == job.id else job.program
            job = replace(job, n_cores=n_cores, runtime_s=runtime_s, program=program, kind=profile.kind)
        found.append(job)
    return found


def predict_pairs(
    model: StoredModel, known: Mapping[str, JobFeatures], waiting: Sequence[WaitingJob]
) -> PredictedPairs:
    """Slowdowns that the model predicts for all pairs of the jobs' profiles."""
    paths = [path for path in dict.fromkeys(job.profile for job in waiting) if path in known]
    found = model.predict_pairs([known[path] for path in paths])
    return PredictedPairs(found, {path: i for i, path in enumerate(paths)})


def as_queue(
    waiting: Sequence[WaitingJob],
    measured: Mapping[tuple[str, str], Ends],
    predicted: PredictedPairs | None = None,
) -> Queue:
    """The queue as arrays.

    Of several slowdowns of a pair the first of these counts: measured for the two jobs, for their programs,
    for programs and sizes of their profiles, predicted by the model.
    """
    n = len(waiting)
    slowdown = np.full((2, n, n), np.nan)
    if predicted is not None:
        rows = np.array([predicted.rows.get(job.profile, -1) for job in waiting], np.int64)
        has = np.flatnonzero(rows >= 0)
        for matrix, ends in zip(slowdown, (predicted.slowdowns.value, predicted.slowdowns.high), strict=True):
            matrix[np.ix_(has, has)] = ends[np.ix_(rows[has], rows[has])]
    names = ([job.kind for job in waiting], [job.program for job in waiting], [job.id for job in waiting])
    for indexes in map(_indexes_by_name, names):
        for (target, co_runner), (value, _, high) in measured.items():
            cells = np.ix_(indexes.get(target, []), indexes.get(co_runner, []))
            slowdown[0][cells], slowdown[1][cells] = value, high
    columns = {name: np.array([getattr(job, name) for job in waiting], float) for name in NUMBERS}
    # A missing value is one that always fits.
    least = {"n_cores": 1.0, "memory_bytes": 0.0, "intensity": np.nan}
    given = {
        name: np.where(np.isnan(column), least[name], column)
        for name, column in columns.items()
        if not np.isnan(column).all()
    }
    return Queue(np.array([job.runtime_s for job in waiting], float), *slowdown, **given)


def _indexes_by_name(names: Iterable[str]) -> dict[str, list[int]]:
    indexes: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        indexes.setdefault(name, []).append(i)
    return indexes


def plan(
    listed: Sequence[WaitingJob],
    measured: Mapping[tuple[str, str], Ends],
    model: StoredModel | None,
    rules: Rules,
) -> tuple[list[WaitingJob], Plan]:
    """The jobs, completed from their profiles, and who shares a node with whom by these rules."""
    known = features((job.profile for job in listed if job.profile), model)
    jobs = fill_from_profiles(listed, known)

    def queue_of(chosen: slice) -> Queue:
        # Many jobs have as many profiles: all pairs of them would not fit into memory.
        part = jobs[chosen]
        return as_queue(part, measured, predict_pairs(model, known, part) if model else None)

    return jobs, plan_parts(len(jobs), queue_of, rules)
