"""The Standard Workload Format, version 2.2, of the Parallel Workloads Archive."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from mpicoloc.batch.job_log import NO_JOB, JobLog
from mpicoloc.core.profile import Floats, Ints
from mpicoloc.errors import DataError

N_FIELDS = 18
(
    _NUMBER,
    _SUBMIT,
    _WAIT,
    _RUN,
    _USED,
    _CPU,
    _MEMORY,
    _REQUESTED,
    _LIMIT,
    _REQUESTED_MEMORY,
    _STATUS,
    _USER,
    _GROUP,
    _PROGRAM,
    _QUEUE,
    _PARTITION,
    _PREVIOUS,
    _THINK,
) = range(N_FIELDS)
_PARTIAL = (2, 3, 4)
"""Status of lines that repeat pieces of a job whose whole has a line of its own."""
_REMEDY = "mend or remove that line, or leave such lines out with --skip-damaged"


def parse(lines: Sequence[str], source: str, *, skip_damaged: bool = False) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs of a log.

    Raises `DataError` if a line is damaged, with its number; if there is no job.
    """
    header, numbers = _head(lines)
    if not numbers:
        raise DataError(f"{source}: no job in it: give a log in Standard Workload Format, 18 numbers a line")
    rows = _rows(lines, numbers)
    table = np.array([(math.nan,) * N_FIELDS if row is None else row for row in rows])
    wrong = _damage(table)
    damaged = tuple(int(numbers[i]) for i in wrong)
    if damaged and not skip_damaged:
        i = min(wrong)
        raise DataError(f"{source}, line {numbers[i]}: {wrong[i]}: {_REMEDY}")
    keep = np.ones(len(table), bool)
    keep[list(wrong)] = False
    keep &= ~np.isin(table[:, _STATUS], _PARTIAL)
    if not keep.any():
        raise DataError(f"{source}: none of its {len(table)} lines is a job: {_REMEDY}")
    return _log(table[keep], header, _partition_names(lines)), damaged


def _head(lines: Sequence[str]) -> tuple[dict[str, str], list[int]]:
    """Fields of the head, and the numbers of the lines with jobs."""
    header: dict[str, str] = {}
    numbers = []
    for number, line in enumerate(lines, 1):
        if line.startswith(";"):
            key, colon, value = line[1:].partition(":")
            if colon and key.strip().isalnum():
                header.setdefault(key.strip(), value.strip())
        elif line and not line.isspace():
            numbers.append(number)
    return header, numbers


def _partition_names(lines: Sequence[str]) -> dict[int, str]:
    """Names of partitions by their numbers, from lines of the head such as ``; Partition: 1 pbatch``."""
    found = (re.match(r";\s*Partition:\s*(\d{1,9})\s+(\S+)", line, re.ASCII) for line in lines)
    return {int(match[1]): match[2] for match in found if match}


def _rows(lines: Sequence[str], numbers: Sequence[int]) -> Floats | list[list[float] | None]:
    """The fields of each line; None for one that has not 18 numbers."""
    try:
        table = np.loadtxt((lines[i - 1] for i in numbers), comments=";", ndmin=2)
    except ValueError:
        return [_row(lines[i - 1]) for i in numbers]
    same = len(table) == len(numbers) and table.shape[1] == N_FIELDS
    return table if same else [_row(lines[i - 1]) for i in numbers]


def _row(line: str) -> list[float] | None:
    words = line.partition(";")[0].split()
    if len(words) != N_FIELDS:
        return None
    try:
        return [float(word) for word in words]
    except ValueError:
        return None


def _damage(table: Floats) -> dict[int, str]:
    """What is wrong with the damaged rows."""
    wrong: dict[int, str] = {}
    finite = np.isfinite(table).all(axis=1)
    submit_s, run_s, number, previous = (table[:, i] for i in (_SUBMIT, _RUN, _NUMBER, _PREVIOUS))
    latest_s = np.maximum.accumulate(np.where(finite, submit_s, -np.inf))
    checks = (
        (finite & (submit_s < 0), "submitted {:g} s before the log's begin", -submit_s),
        (finite & (submit_s < latest_s), "the clock runs back to {:g} s", submit_s),
        (finite & (run_s < 0) & (run_s != NO_JOB), "a run time of {:g} s is negative", run_s),
        (
            finite & (previous > 0) & (previous >= number),
            "it waits for job {:g}, not an earlier one",
            previous,
        ),
    )
    for is_wrong, words, value in checks:
        wrong |= {int(i): words.format(value[i]) for i in np.flatnonzero(is_wrong) if int(i) not in wrong}
    return wrong | {int(i): f"not {N_FIELDS} numbers" for i in np.flatnonzero(~finite)}


def _log(table: Floats, header: dict[str, str], partitions: dict[int, str]) -> JobLog:
    def integers(i: int) -> Ints:
        return table[:, i].astype(np.int64)

    number = integers(_NUMBER)
    requested, used = integers(_REQUESTED), integers(_USED)
    return JobLog(
        number=number,
        submit_s=table[:, _SUBMIT].copy(),
        run_s=table[:, _RUN].copy(),
        limit_s=table[:, _LIMIT].copy(),
        n_processors=np.where(requested > 0, requested, used),
        n_nodes=np.full(len(table), NO_JOB),
        user=integers(_USER),
        program=integers(_PROGRAM),
        queue=integers(_QUEUE),
        partition=integers(_PARTITION),
        previous=_indices(integers(_PREVIOUS), number),
        think_s=np.maximum(table[:, _THINK], 0),
        header=header,
        names={"partition": partitions} if partitions else {},
        wait_s=table[:, _WAIT].copy(),
    )


def _indices(previous: Ints, number: Ints) -> Ints:
    """Index of the job with each number; -1 where no job has it."""
    order = np.argsort(number, kind="stable")
    place = np.minimum(np.searchsorted(number, previous, sorter=order), len(number) - 1)
    return np.where((previous > 0) & (number[order[place]] == previous), order[place], NO_JOB)
