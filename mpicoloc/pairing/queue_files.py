"""Files that tell which jobs wait and what pairs suffer: CSV, or JSON as of ``mpicoloc campaign --json``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mpicoloc.core.row_file import number_of, table_rows
from mpicoloc.errors import DataError

Ends: TypeAlias = tuple[float, float, float]
"""Value, low, high."""
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

    Raises `UsageError` if the file cannot be read. Raises `DataError` if it has no such columns, or a number
    is none, or an id is there twice.
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

    Raises `UsageError` if the file cannot be read. Raises `DataError` if it has no such columns, or a number
    is none, or a pair is there twice.
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
