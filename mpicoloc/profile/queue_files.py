"""Files that tell which jobs wait and what pairs suffer: CSV, or JSON as of ``mpicoloc campaign --json``."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO, TypeAlias

from mpicoloc.errors import DataError, UsageError

Ends: TypeAlias = tuple[float, float, float]
"""Value, low, high."""
MAX_BYTES = 1 << 30
NUMBERS = ("n_cores", "memory_bytes", "intensity")
_JOB_KEYS = {"id", "program", "profile", "runtime_s", *NUMBERS}
_PAIR_KEYS = {"target", "co_runner", "slowdown", "low", "high", "target_kind", "co_runner_kind"}


@dataclass(frozen=True)
class WaitingJob:
    """One job of a queue: numbers that were not told are NaN, without a program it is one of its own.

    `profile` is the file that tells of a run of it, `kind` what it says (`JobFeatures.kind`); empty: none.
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
    """The jobs of a file, in order of arrival.

    Columns, or keys: ``id``, and ``runtime_s`` or ``profile``; ``program``, ``n_cores``, ``memory_bytes`` and
    ``intensity`` may be missing or empty.

    Raises
    ------
    UsageError
        If the file cannot be read.
    DataError
        If it has no such columns, or a number is none, or an id is there twice.
    """
    found = [_job(path, i, row) for i, row in enumerate(table_rows(path, "jobs", _JOB_KEYS, {"id"}), 1)]
    seen: set[str] = set()
    for job in found:
        if job.id in seen:
            raise DataError(f"{path}: job {job.id!r} is there twice; ids must differ")
        seen.add(job.id)
    return found


def slowdowns(path: str) -> dict[tuple[str, str], Ends]:
    """Slowdowns by the names of target and co-runner: value, and the ends of the interval, NaN if not told.

    Also by their kinds (``target_kind``, ``co_runner_kind``), where two names only have these.

    Columns, or keys: ``target``, ``co_runner``, ``slowdown``; ``low`` and ``high`` may be missing. In JSON
    the slowdown may be an object with ``value``, ``low`` and ``high``.

    Raises
    ------
    UsageError
        If the file cannot be read.
    DataError
        If it has no such columns, or a number is none, or a pair is there twice.
    """
    found: dict[tuple[str, str], Ends] = {}
    of_kinds: dict[tuple[str, str], list[Ends]] = {}
    for i, row in enumerate(
        table_rows(path, "slowdowns", _PAIR_KEYS, {"target", "co_runner", "slowdown"}), 1
    ):
        told = row["slowdown"]
        ends = dict(told) if isinstance(told, dict) else {**row, "value": told}
        value, low, high = (number_of(path, i, name, ends.get(name)) for name in ("value", "low", "high"))
        pair = str(row["target"]), str(row["co_runner"])
        if pair in found:
            raise DataError(f"{path}: {pair[0]} beside {pair[1]} is there twice")
        found[pair] = value, low, high
        kinds = str(row.get("target_kind") or ""), str(row.get("co_runner_kind") or "")
        if all(kinds):
            of_kinds.setdefault(kinds, []).append(found[pair])
    # Of several inputs of one program nobody knows which is meant.
    return {kinds: ends[0] for kinds, ends in of_kinds.items() if len(ends) == 1} | found


def _job(path: str, i: int, row: Mapping[str, Any]) -> WaitingJob:
    numbers = {name: number_of(path, i, name, row.get(name)) for name in ("runtime_s", *NUMBERS)}
    name, profile = str(row["id"]), str(row.get("profile") or "")
    if math.isnan(numbers["runtime_s"]) and not profile:
        raise DataError(f"{path}: row {i} has no runtime_s and no profile with it")
    return WaitingJob(name, str(row.get("program") or name), profile, "", **numbers)


def number_of(path: str, i: int, name: str, told: object) -> float:
    """The number that row `i` of a file has in this column; NaN if it has none.

    Raises
    ------
    DataError
        If it is no finite number.
    """
    if told is None or told == "":
        return math.nan
    try:
        if isinstance(told, bool) or not isinstance(told, str | int | float):
            raise ValueError
        if math.isinf(number := float(told)):
            raise ValueError
    except (ValueError, OverflowError):
        raise DataError(f"{path}: row {i}: {name} must be a finite number, got {told!r}") from None
    return number


def table_rows(path: str, key: str, known: set[str], needed: set[str]) -> Sequence[Mapping[str, Any]]:
    """Rows of a file, by column or key.

    Parameters
    ----------
    path : str
        JSON if it ends with ".json", else CSV.
    key : str
        Under which a JSON object has the list of rows.
    known, needed : set of str
        Columns for the message, and those that each row must have.

    Raises
    ------
    UsageError
        If the file cannot be read.
    DataError
        If it is no such file, or a row lacks what it needs.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = _json_rows(path, key, file) if path.endswith(".json") else _csv_rows(file)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error, json.JSONDecodeError, RecursionError) as error:
        kind = "JSON" if path.endswith(".json") else "CSV"
        raise DataError(f"{path} is no {kind}: {error}") from None
    for i, row in enumerate(rows, 1):
        missing = sorted(name for name in needed if row.get(name) in (None, ""))
        if missing:
            raise DataError(f"{path}: row {i} has no {missing[0]}; there are {', '.join(sorted(known))}")
    return rows


def _csv_rows(file: TextIO) -> list[dict[str, Any]]:
    return list(csv.DictReader(file))


def _json_rows(path: str, key: str, file: TextIO) -> list[dict[str, Any]]:
    text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise DataError(f"{path} has more than {MAX_BYTES:,} bytes: no list of {key}")
    told = json.loads(text)
    rows = told.get(key) if isinstance(told, dict) else told
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f'{path}: needs a list of objects, or {{"{key}": [...]}}')
    return rows
