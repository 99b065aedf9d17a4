"""CSV files of programs' curves and scores, a row per program: ``program, score, level_1 ... level_8``."""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

import numpy as np

from mpicoloc.core.bubbles import (
    LEVELS,
    POLICIES,
    JobRequest,
    ProgramPressure,
    PropagationMatrix,
    SensitivityCurve,
    check_level,
    pressure_score,
)
from mpicoloc.core.profile import Estimate
from mpicoloc.core.row_file import Cell, check_slowdowns, number_of, table_rows
from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.profile import hdf5

_LEVEL = re.compile(r"level_(\d+(?:\.\d+)?)")
_KNOWN = {"program", "score", "score_low", "score_high", "policy", "source", "n", "n_score"}
_COLUMNS = {*_KNOWN, *(f"level_{level}" for level in LEVELS[1:])}


@dataclass(frozen=True)
class _Known:
    """The measured parts of a row: a program can have a curve without a score, or a score without a curve."""

    program: str
    curve: SensitivityCurve | None = None
    score: Estimate | None = None
    policy: str | None = None


def read(path: str) -> dict[str, ProgramPressure]:
    """Curves and scores in a file, by program name.

    Columns, or keys of JSON objects: ``program``, ``score``, and ``level_L`` for at least one level L.
    Optional: ``score_low``, ``score_high``, ``level_L_low``, ``level_L_high``, ``policy``, ``source``
    (offline, production), and the numbers of samples of the curve (``n``) and the score (``n_score``). A
    number without an interval counts as exact.

    Raises `UsageError` if the file cannot be read. Raises `DataError` if a column is missing, a number is
    malformed, a program appears twice, or a program lacks its curve or its score.
    """
    found = {}
    for name, one in _read(path).items():
        if one.curve is None or one.score is None:
            missing, words = ("curve", "sensitivity") if one.curve is None else ("score", "score")
            raise DataError(
                f"{path}: {name} has no {missing} yet: measure it with `mpicoloc bubble {words} --curves`"
            )
        found[name] = ProgramPressure(name, one.curve, one.score, one.policy)
    if not found:
        raise DataError(f"{path} lists no program; the columns are {', '.join(sorted(_COLUMNS))}")
    return found


def _read(path: str) -> dict[str, _Known]:
    found: dict[str, _Known] = {}
    rows = table_rows(path, "curves", _COLUMNS, {"program"})
    check_slowdowns(path, [cell for i, row in enumerate(rows, 1) for cell in _cells(path, i, row)])
    for i, row in enumerate(rows, 1):
        try:
            one = _known(path, i, row)
        except DataError as error:
            raise error if str(error).startswith(path) else DataError(f"{path}: row {i}: {error}") from None
        if one.program in found:
            raise DataError(f"{path}: row {i}: program {one.program!r} appears twice; keep one row")
        found[one.program] = one
    return found


def _known(path: str, i: int, row: Mapping[str, Any]) -> _Known:
    def number(name: str) -> float:
        return number_of(path, i, name, row.get(name))

    name, policy = str(row["program"]), str(row.get("policy") or "") or None
    if policy is not None and policy not in POLICIES:
        raise DataError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    score = None
    if not math.isnan(value := number("score")):
        low, high = (value if math.isnan(end) else end for end in map(number, ("score_low", "score_high")))
        n = number("n_score")
        score = pressure_score(value, low, high, 0 if math.isnan(n) else int(n))
        check_level(value, f"score of {name}")
    return _Known(name, _curve(path, i, name, row), score, policy)


def _cells(path: str, i: int, row: Mapping[str, Any]) -> Iterator[Cell]:
    """The row's slowdowns at levels above 0."""
    for column in filter(None, row):
        match = _LEVEL.fullmatch(column)
        if match is None or float(match[1]) == 0:
            continue
        value, low, high = (
            number_of(path, i, name, row.get(name)) for name in (column, f"{column}_low", f"{column}_high")
        )
        if not math.isnan(value):
            yield i, column, value, low, high


def _curve(path: str, i: int, program: str, row: Mapping[str, Any]) -> SensitivityCurve | None:
    points = [(0.0, 1.0, 1.0, 1.0)]
    for _, column, value, low, high in _cells(path, i, row):
        level = float(column.removeprefix("level_"))
        points.append((level, value, value if math.isnan(low) else low, value if math.isnan(high) else high))
    if len(points) == 1:
        return None
    levels, value, low, high = np.array(sorted(points)).T
    n = number_of(path, i, "n", row.get("n"))
    source = str(row.get("source") or "offline")
    return SensitivityCurve(program, levels, value, low, high, 0 if math.isnan(n) else int(n), source)


def write(path: str, programs: Iterable[ProgramPressure]) -> None:
    """Write a file that `read` reads, atomically.

    Raises `EnvironmentFault` if the file cannot be written.
    """
    _put(path, [_row(_Known(one.program, one.curve, one.score, one.policy)) for one in programs])


def curve_of(path: str, program: str) -> SensitivityCurve:
    """A program's curve, even if the file has no score of the program.

    Raises `UsageError`, `DataError` as `read` does, or if the file has no curve of the program.
    """
    known = _read(path)
    found = known[program].curve if program in known else None
    if found is None:
        raise DataError(
            f"{path} has no curve of {program!r}: name one of {', '.join(known)}, or measure it with "
            "`mpicoloc bubble sensitivity --curves`"
        )
    return found


def update(
    path: str,
    program: str,
    curve: SensitivityCurve | None = None,
    score: Estimate | None = None,
    policy: str | None = None,
) -> bool:
    """Add or replace parts of a program's row in a file. Returns whether the row then has curve and score.

    Columns that `read` does not know are dropped.

    Raises `UsageError`, `DataError`, `EnvironmentFault` as `check_update` and `write` do.
    """
    with _one_at_a_time(path):
        known = check_update(path)
        old = known.get(program, _Known(program))
        one = _Known(program, curve or old.curve, score or old.score, policy or old.policy)
        _put(path, [_row(each) for each in (known | {program: one}).values()])
    return one.curve is not None and one.score is not None


def check_update(path: str | None) -> dict[str, _Known]:
    """Contents of a file to update; {} without a file. Call this before a measurement that takes minutes.

    Raises `UsageError`, `DataError` as `read` does, or if the file is JSON, which `update` cannot write.
    """
    return _read(path) if path and _is_there_to_update(path) else {}


def _is_there_to_update(path: str) -> bool:
    if path.endswith(".json"):
        raise UsageError(f"{path}: the file would be written as CSV: name one that ends in .csv")
    return os.path.exists(path)


@contextlib.contextmanager
def _one_at_a_time(path: str) -> Iterator[None]:
    """Lock the folder of a file, so that updates run one at a time. If that fails, go on without a lock."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # if the folder is missing, writing the file reports that
            folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
            stack.callback(os.close, folder)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def _put(path: str, rows: Sequence[Mapping[str, object]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    try:
        hdf5.replace(path, text.getvalue().encode())
    except EnvironmentFault as error:
        reason = getattr(error.__cause__, "strerror", None) or "system error"
        raise EnvironmentFault(f"cannot write {path}: {reason}; name another file") from error


def _row(one: _Known) -> dict[str, object]:
    row: dict[str, object] = {"program": one.program, "score": ""}
    if one.score is not None:
        row |= {**_ends("score", one.score), "n_score": one.score.n}
    row["policy"] = one.policy or ""
    if one.curve is not None:
        row |= {"source": one.curve.source, "n": one.curve.n}
        for level in one.curve.levels[1:]:
            row |= _ends(f"level_{level:g}", one.curve.at(float(level)))
    return row


def _ends(name: str, number: Estimate) -> dict[str, object]:
    return {name: number.value, f"{name}_low": number.low, f"{name}_high": number.high}


def jobs(path: str) -> list[JobRequest]:
    """Jobs to place, in the order of a file.

    Columns, or keys: ``id``, ``program``, and ``n_nodes`` (1 if missing or empty).

    Raises `UsageError` if the file cannot be read or has no job. Raises `DataError` if a column is missing, a
    number is malformed, or an id appears twice.
    """
    found: dict[str, JobRequest] = {}
    needed = {"id", "program"}
    for i, row in enumerate(table_rows(path, "jobs", {*needed, "n_nodes"}, needed), 1):
        n_nodes = number_of(path, i, "n_nodes", row.get("n_nodes"))
        if not (math.isnan(n_nodes) or (n_nodes >= 1 and n_nodes == int(n_nodes))):
            raise DataError(
                f"{path}: row {i}: n_nodes must be a whole number of at least 1, got {row['n_nodes']!r}"
            )
        job = JobRequest(str(row["id"]), str(row["program"]), 1 if math.isnan(n_nodes) else int(n_nodes))
        if job.id in found:
            raise DataError(f"{path}: job {job.id!r} appears twice; give each job its own id")
        found[job.id] = job
    if not found:
        raise UsageError(f"{path} has no job: give at least one")
    return list(found.values())


def matrices(path: str) -> dict[str, PropagationMatrix]:
    """Propagation matrices in a file, by program name.

    Columns, or keys: ``program``, ``level`` from 1 on, and ``nodes_1`` ... ``nodes_m``: the slowdown with
    1 ... m of the program's nodes disturbed by bubbles of that level.

    Raises `UsageError` if the file cannot be read. Raises `DataError` if a column is missing, a number is
    malformed, or a level is missing.
    """
    needed = {"program", "level"}
    found: dict[str, list[list[float]]] = {}
    cells: list[Cell] = []
    for i, row in enumerate(table_rows(path, "matrices", {*needed, "nodes_1"}, needed), 1):
        rows = found.setdefault(str(row["program"]), [])
        level = number_of(path, i, "level", row["level"])
        if level != len(rows) + 1:
            raise DataError(
                f"{path}: row {i}: level {level:g} must be {len(rows) + 1}: give all levels from 1, in order"
            )
        columns = list(takewhile(row.get, map("nodes_{}".format, count(1))))
        times = [number_of(path, i, name, row[name]) for name in columns]
        cells += [(i, name, time, math.nan, math.nan) for name, time in zip(columns, times, strict=True)]
        rows.append([1.0, *times])
    check_slowdowns(path, cells, has_intervals=False)
    return {name: _matrix(path, name, rows) for name, rows in found.items()}


def _matrix(path: str, program: str, rows: list[list[float]]) -> PropagationMatrix:
    if len({len(row) for row in rows}) != 1:
        raise DataError(f"{path}: the rows of {program} have different numbers of nodes_1, nodes_2, ...")
    try:
        times = np.array(rows)
        return PropagationMatrix(times, np.ones(times.shape, bool))
    except DataError as error:
        raise DataError(f"{path}: {program}: {error}") from None


def update_matrices(path: str, program: str, matrix: PropagationMatrix) -> None:
    """Add or replace a program's matrix in a file.

    Raises `UsageError`, `DataError`, `EnvironmentFault` as `check_update_matrices` and `write_matrices` do.
    """
    with _one_at_a_time(path):
        write_matrices(path, check_update_matrices(path) | {program: matrix})


def check_update_matrices(path: str | None) -> dict[str, PropagationMatrix]:
    """Contents of a file to update; {} without a file. Call this before long runs.

    Raises `UsageError`, `DataError` as `matrices` does, or if the file is JSON, which `write_matrices` cannot
    write.
    """
    return matrices(path) if path and _is_there_to_update(path) else {}


def write_matrices(path: str, known: Mapping[str, PropagationMatrix]) -> None:
    """Write a file that `matrices` reads, atomically.

    Raises `EnvironmentFault` if the file cannot be written.
    """
    rows: list[dict[str, object]] = []
    for name, matrix in known.items():
        for level, times in enumerate(matrix.times[:, 1:].tolist(), 1):
            columns = {f"nodes_{n}": time for n, time in enumerate(times, 1)}
            rows.append({"program": name, "level": level, **columns})
    _put(path, rows)
