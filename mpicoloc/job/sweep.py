"""A sweep: work that is done for many cases, each by itself, and not again for those that are noted."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from dataclasses import dataclass
from typing import Any

from mpicoloc.core import progress
from mpicoloc.errors import EnvironmentFault, MpicolocError
from mpicoloc.job import row_log
from mpicoloc.job.row_log import Row

ROWS = "rows.jsonl"
"""File in a sweep's folder with one row for each case that has ended."""


@dataclass(frozen=True)
class Case:
    """One case of a sweep.

    Parameters
    ----------
    settings : mapping of str to str
        What is varied, for people: ``{"slimming": "2"}``.
    key : str
        Of all that the result depends on; equal keys mean equal results.
    argument : object
        What the work is called with. It goes to another process, so it must be possible to pickle it.
    """

    settings: Mapping[str, str]
    key: str
    argument: Any


def grid(axes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination of the values of each axis; the first axis varies least often."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def complete(
    cases: Sequence[Case],
    work: Callable[[Any], Row],
    folder: str,
    executor: Executor,
    tell_failed: Callable[[Case, MpicolocError], None],
) -> list[tuple[Case, Row]]:
    """Do the work for the cases that the folder lacks, and note each as it ends.

    Result: the cases that have a row, in their order, with what `work` returned. Raises `EnvironmentFault` if
    a process of the executor died. What has ended is noted.
    """
    path = os.path.join(folder, ROWS)
    noted = row_log.recover(path)
    rows = {case.key: noted[case.key]["row"] for case in cases if "row" in noted.get(case.key, ())}
    missing = {case.key: case for case in cases if case.key not in rows}
    with progress.stage("sweep", len(missing), "rows") as advance:
        try:
            running = {executor.submit(work, case.argument): case for case in missing.values()}
        except BrokenExecutor:
            raise _WorkerDied(_died(path)) from None
        for future in as_completed(running):
            case = running.pop(future)
            try:
                rows[case.key] = _result(future, path)
            except MpicolocError as error:
                if isinstance(error, _WorkerDied):
                    raise
                tell_failed(case, error)
            else:
                row_log.append(path, {"key": case.key, "settings": case.settings, "row": rows[case.key]})
            advance(1)
    return [(case, rows[case.key]) for case in cases if case.key in rows]


class _WorkerDied(EnvironmentFault):
    """No more work is possible."""


def _result(future: Future[Row], path: str) -> Row:
    try:
        return future.result()
    except BrokenExecutor:
        raise _WorkerDied(_died(path)) from None


def _died(path: str) -> str:
    return (
        "a process of the sweep died, killed or out of memory: run the same command again, with fewer "
        f"--processes if memory was short; what has ended is in {path}"
    )
