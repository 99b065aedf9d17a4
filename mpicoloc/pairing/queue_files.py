"""Files of waiting jobs and of slowdowns of pairs: CSV, or JSON as from ``mpicoloc campaign --json``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from mpicoloc.core.profile import Floats
from mpicoloc.core.row_file import Cell, check_slowdowns, number_of, table_rows
from mpicoloc.core.slowdown import (
    LAYOUTS,
    SPREAD,
    JobFeatures,
    PairSlowdowns,
    Run,
    check_layout,
    ends_of_spread,
    read_layout,
)
from mpicoloc.errors import DataError
from mpicoloc.pairing.features import job_features
from mpicoloc.pairing.model_file import StoredModel
from mpicoloc.pairing.policies import Plan, Queue, Room, Rules, plan_parts

Ends: TypeAlias = tuple[float, float, float]
"""Value, low, high."""
NUMBERS = ("n_cores", "memory_bytes", "intensity")
_JOB_KEYS = {"id", "program", "profile", "runtime_s", *NUMBERS}
_PAIR_KEYS = {"target", "co_runner", "slowdown", "low", "high", "target_kind", "co_runner_kind", "layout"}


@dataclass(frozen=True)
class WaitingJob:
    """One job of a queue. Unknown numbers are NaN; a job without a program has its id as program.

    `profile` is the profile of an earlier run, or empty. `kind` is the `JobFeatures.kind` in this profile, or
    empty if no profile was read.
    """

    id: str
    program: str
    profile: str
    kind: str
    runtime_s: float
    n_cores: float
    memory_bytes: float
    intensity: float


def jobs(path: str) -> list[WaitingJob]:
    """The jobs in a file, in order of arrival.

    Columns, or keys: ``id``, and ``runtime_s`` or ``profile``; ``program``, ``n_cores``, ``memory_bytes`` and
    ``intensity`` may be missing or empty.

    Raises `UsageError` if the file cannot be read. Raises `DataError` if a column is missing, a number is
    invalid, or an id appears twice.
    """
    found = [_job(path, i, row) for i, row in enumerate(table_rows(path, "jobs", _JOB_KEYS, {"id"}), 1)]
    seen: set[str] = set()
    for job in found:
        if job.id in seen:
            raise DataError(f"{path}: job {job.id!r} appears twice; ids must differ")
        seen.add(job.id)
    return found


def slowdowns(path: str, *wanted: str, otherwise: str = "") -> dict[tuple[str, str], Ends]:
    """Slowdowns by the names of target and co-runner: value, and the ends of the interval, NaN if unknown.

    A slowdown is also found by ``target_kind`` and ``co_runner_kind`` if no other pair has the same kinds.

    Columns, or keys: ``target``, ``co_runner``, ``slowdown``; ``low``, ``high`` and ``layout`` may be
    missing. In JSON the slowdown may be an object with ``value``, ``low`` and ``high``.

    Raises `UsageError` if the file cannot be read, or has slowdowns that do not apply to all layouts `wanted`
    (with the remedy `otherwise`). Raises `DataError` if a column is missing, a number is invalid or not a
    slowdown, or a pair appears twice.
    """
    found: dict[tuple[str, str], Ends] = {}
    of_kinds: dict[tuple[str, str], list[Ends]] = {}
    cells: list[Cell] = []
    layouts: set[str] = set()
    for i, row in enumerate(
        table_rows(path, "slowdowns", _PAIR_KEYS, {"target", "co_runner", "slowdown"}), 1
    ):
        layouts.add(_layout(path, i, row))
        told = row["slowdown"]
        ends = dict(told) if isinstance(told, dict) else {**row, "value": told}
        value = number_of(path, i, "slowdown", ends.get("value"))
        low, high = (number_of(path, i, name, ends.get(name)) for name in ("low", "high"))
        cells.append((i, "slowdown", value, low, high))
        pair = str(row["target"]), str(row["co_runner"])
        if pair in found:
            raise DataError(f"{path}: the pair {pair[0]} beside {pair[1]} appears twice; keep one row")
        found[pair] = value, low, high
        kinds = str(row.get("target_kind") or ""), str(row.get("co_runner_kind") or "")
        if all(kinds):
            of_kinds.setdefault(kinds, []).append(found[pair])
    check_slowdowns(path, cells)
    if len(layouts) > 1:
        raise DataError(f"{path} has slowdowns of several layouts: give a file for each")
    for layout, needed in itertools.product(layouts, wanted):
        check_layout(needed, layout, path, otherwise)
    # If a pair of kinds has several slowdowns, for example for two inputs, it is not known which applies:
    # drop them all.
    return {kinds: ends[0] for kinds, ends in of_kinds.items() if len(ends) == 1} | found


def _layout(path: str, i: int, row: Mapping[str, Any]) -> str:
    layout = read_layout(str(row.get("layout") or ""))
    if layout not in (*LAYOUTS, SPREAD):
        raise DataError(f"{path}: row {i}: layout must be turns or cores, got {layout!r}")
    return layout


def _job(path: str, i: int, row: Mapping[str, Any]) -> WaitingJob:
    numbers = {name: number_of(path, i, name, row.get(name)) for name in ("runtime_s", *NUMBERS)}
    name, profile = str(row["id"]), str(row.get("profile") or "")
    if math.isnan(numbers["runtime_s"]) and not profile:
        raise DataError(f"{path}: row {i} has neither runtime_s nor a profile")
    return WaitingJob(name, str(row.get("program") or name), profile, "", **numbers)


@dataclass(frozen=True)
class PredictedPairs:
    """Predicted slowdowns of all pairs of profiles, and the row of each profile."""

    slowdowns: PairSlowdowns
    rows: Mapping[str, int]


def features(paths: Iterable[str], model: StoredModel | None = None) -> dict[str, JobFeatures]:
    """Features of the jobs of these profiles, by path.

    Raises `DataError` if a profile cannot be read, is not of a complete run, or has another machine than the
    model.
    """
    from mpicoloc.pairing.training_sets import read_runs  # imports SciPy and pandas, which take a second

    runs, troubles = read_runs(list(dict.fromkeys(paths)))
    if troubles:
        raise DataError(troubles[0])
    for path, run in runs.items():
        machine = model.machine if model else None
        if machine is not None and run.machine is not None and not run.machine.is_like(machine):
            raise DataError(
                f"{path} was measured on {run.machine}, but the model is of {machine}: "
                "slowdowns differ between machines; fit a model for the profile's machine"
            )
    return {path: _features(path, run) for path, run in runs.items()}


def _features(path: str, run: Run) -> JobFeatures:
    try:
        return job_features([run])
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def fill_from_profiles(waiting: Sequence[WaitingJob], known: Mapping[str, JobFeatures]) -> list[WaitingJob]:
    """The jobs, with missing fields filled in from their profiles."""
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
    layout: str = "",
) -> Queue:
    """The queue as arrays.

    With the layout `SPREAD`, a node of the queue stands for two. There a job that is packed on one of them
    leaves room for another, so it counts for half of its time.

    If a pair has several slowdowns, the first in this order counts: measured for the two jobs, measured for
    their programs, measured for the programs and sizes in their profiles, predicted by the model.
    """
    slowdown = _known_slowdowns(waiting, measured, predicted)
    runtime_s = np.array([job.runtime_s for job in waiting], float)
    if layout == SPREAD:
        itself = np.diagonal(slowdown, axis1=1, axis2=2)[:, :, None]
        relative = ends_of_spread(np.maximum(slowdown, 1.0), np.maximum(itself, 1.0))
        slowdown, runtime_s = np.maximum(2.0 * relative, 1.0), runtime_s / 2.0
    columns = {name: np.array([getattr(job, name) for job in waiting], float) for name in NUMBERS}
    # Missing numbers of cores and bytes are replaced by numbers that fit every node.
    least = {"n_cores": 1.0, "memory_bytes": 0.0, "intensity": np.nan}
    given = {
        name: np.where(np.isnan(column), least[name], column)
        for name, column in columns.items()
        if not np.isnan(column).all()
    }
    return Queue(runtime_s, slowdown[0], slowdown[2], **given)


def _known_slowdowns(
    waiting: Sequence[WaitingJob],
    measured: Mapping[tuple[str, str], Ends],
    predicted: PredictedPairs | None,
) -> Floats:
    """Values, lower and upper ends of the slowdowns of all ordered pairs, shape (3, n, n); NaN: unknown."""
    n = len(waiting)
    slowdown = np.full((3, n, n), np.nan)
    if predicted is not None:
        rows = np.array([predicted.rows.get(job.profile, -1) for job in waiting], np.int64)
        has = np.flatnonzero(rows >= 0)
        found = predicted.slowdowns
        for matrix, ends in zip(slowdown, (found.value, found.low, found.high), strict=True):
            matrix[np.ix_(has, has)] = ends[np.ix_(rows[has], rows[has])]
    names = ([job.kind for job in waiting], [job.program for job in waiting], [job.id for job in waiting])
    for indexes in map(_indexes_by_name, names):
        for (target, co_runner), found_ends in measured.items():
            cells = np.ix_(indexes.get(target, []), indexes.get(co_runner, []))
            for matrix, end in zip(slowdown, found_ends, strict=True):
                matrix[cells] = end
    return slowdown


def _indexes_by_name(names: Iterable[str]) -> dict[str, list[int]]:
    indexes: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        indexes.setdefault(name, []).append(i)
    return indexes


def _check_sizes(waiting: Iterable[WaitingJob], room: Room, n_nodes: int) -> None:
    """Raise `DataError` if a job does not fit a node, of which `n_nodes` have that room."""
    for job in waiting:
        for name, flag, needed, most in (
            ("cores", "--node-cores", job.n_cores, room.n_cores / n_nodes),
            ("bytes of memory", "--node-memory", job.memory_bytes, room.memory_bytes / n_nodes),
        ):
            if needed > most:
                raise DataError(
                    f"job {job.id} needs {needed:g} {name}, but a node has {most:g}: leave it out, or raise "
                    f"{flag}"
                )


def plan(
    listed: Sequence[WaitingJob],
    measured: Mapping[tuple[str, str], Ends],
    model: StoredModel | None,
    rules: Rules,
    layout: str = "",
) -> tuple[list[WaitingJob], Plan]:
    """The jobs, completed from their profiles, and their plan by these rules."""
    known = features((job.profile for job in listed if job.profile), model)
    jobs = fill_from_profiles(listed, known)
    _check_sizes(jobs, rules.room, 2 if layout == SPREAD else 1)

    def queue_of(chosen: slice) -> Queue:
        # Predict per part of the queue, because all pairs of many profiles would not fit into memory.
        part = jobs[chosen]
        return as_queue(part, measured, predict_pairs(model, known, part) if model else None, layout)

    return jobs, plan_parts(len(jobs), queue_of, rules)
