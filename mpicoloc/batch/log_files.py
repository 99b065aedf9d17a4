"""Read the jobs of log files. The first line of a file shows its format."""

from __future__ import annotations

import functools
import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mpicoloc import messages
from mpicoloc.batch.inputs import NO_JOB, JobLog
from mpicoloc.core.profile import Floats, Ints
from mpicoloc.core.units import counted, slurm_seconds
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
"""Status codes of lines that describe only a part of a job. The whole job has a line of its own."""
COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct --allusers --allocations --parsable2 --format=JobIDRaw,User,Partition,Submit,"
    "Eligible,Start,End,NNodes,NCPUS,Timelimit,AllocTRES,NodeList,JobName"
)
"""The command that prints a log for `parse_sacct`. JobName is last because it can contain the separator."""
REMEDY = "correct or remove it, or leave out such entries with --skip-damaged"
_FORMATS = f"a log in Standard Workload Format, 18 numbers a line, or the output of {COMMAND}"


def parse_swf(
    lines: Sequence[str], source: str, *, skip_damaged: bool = False
) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs of a log in Standard Workload Format, in order of submission.

    If the log has another order, its jobs are sorted and a note says so.

    Raises `DataError` if a line is damaged (with the line's number), or if there is no job.
    """
    header, numbers = _head(lines)
    if not numbers:
        raise DataError(f"{source}: no job in it: give a log in Standard Workload Format, 18 numbers a line")
    rows = _rows(lines, numbers)
    if isinstance(rows, list) and not any(rows):
        first = lines[numbers[0] - 1].strip()[:40]
        raise DataError(f"{source} is not a log: its first line is {first!r}; give {_FORMATS}")
    table = np.array([(math.nan,) * N_FIELDS if row is None else row for row in rows])
    wrong = _damage(table)
    damaged = tuple(int(numbers[i]) for i in wrong)
    if damaged and not skip_damaged:
        i = min(wrong)
        raise DataError(f"{source}, line {numbers[i]}: {wrong[i]}: {REMEDY}")
    keep = np.ones(len(table), bool)
    keep[list(wrong)] = False
    keep &= ~np.isin(table[:, _STATUS], _PARTIAL)
    if not keep.any():
        raise DataError(f"{source}: none of its {len(table)} lines is a job; if one is damaged, {REMEDY}")
    table = table[keep]
    if n_early := int((np.diff(table[:, _SUBMIT]) < 0).sum()):
        messages.note(
            f"{source}: sorted by submission, which in {counted(n_early, 'line')} was before the line above"
        )
        table = table[np.argsort(table[:, _SUBMIT], kind="stable")]
    return _log(table, header, _partition_names(lines)), damaged


def _head(lines: Sequence[str]) -> tuple[dict[str, str], list[int]]:
    """Fields of the header, and the numbers of the lines with jobs."""
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
    """Names of partitions by their numbers, from header lines such as ``; Partition: 1 pbatch``."""
    found = (re.match(r";\s*Partition:\s*(\d{1,9})\s+(\S+)", line, re.ASCII) for line in lines)
    return {int(match[1]): match[2] for match in found if match}


def _rows(lines: Sequence[str], numbers: Sequence[int]) -> Floats | list[list[float] | None]:
    """The fields of each line; None for a line that does not have 18 numbers."""
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
    """A description of the damage in each damaged row, by row index."""
    wrong: dict[int, str] = {}
    finite = np.isfinite(table).all(axis=1)
    submit_s, run_s, number, previous = (table[:, i] for i in (_SUBMIT, _RUN, _NUMBER, _PREVIOUS))
    checks = (
        (finite & (submit_s < 0), "submitted {:g} s before the log begins", -submit_s),
        (finite & (run_s < 0) & (run_s != NO_JOB), "a run time of {:g} s is negative", run_s),
        (
            finite & (previous > 0) & (previous >= number),
            "it waits for job {:g}, which is not an earlier one",
            previous,
        ),
    )
    for is_wrong, words, value in checks:
        wrong |= {int(i): words.format(value[i]) for i in np.flatnonzero(is_wrong) if int(i) not in wrong}
    return wrong | {int(i): f"it does not have {N_FIELDS} numbers" for i in np.flatnonzero(~finite)}


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
        memory_bytes=_swf_memory_bytes(table),
    )


def _swf_memory_bytes(table: Floats) -> Floats | None:
    """Memory for each processor, which the format has in KiB; None: no job has it."""
    requested, used = table[:, _REQUESTED_MEMORY], table[:, _MEMORY]
    known = np.where(requested > 0, requested, used)
    return np.where(known > 0, known * 1024.0, NO_JOB) if (known > 0).any() else None


def _indices(previous: Ints, number: Ints) -> Ints:
    """Index of the job with each number; -1 if there is no such job."""
    order = np.argsort(number, kind="stable")
    place = np.minimum(np.searchsorted(number, previous, sorter=order), len(number) - 1)
    return np.where((previous > 0) & (number[order[place]] == previous), order[place], NO_JOB)


Words = Mapping[str, Sequence[str]]
"""One word per job in each column: ``number``, ``submit``, ``start``, ``end``, and any others of `_READERS`
and `_NAMES` that the log has."""

_UNKNOWN = frozenset({"", "Unknown", "None", "N/A", "Partition_Limit"})
_YEAR_S = 365 * 86400.0
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
_TIME_LENGTH = len("2026-01-31T23:59:59")
_COUNT = re.compile(r"(\d{1,15}(?:\.\d+)?)([KMG]?)", re.ASCII)
_USER_ID = re.compile(r"\(\d+\)$")
_POWERS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_NAMES = {"user": "user", "partition": "partition", "queue": "queue", "name": "program"}
"""Columns of names, and the field of `JobLog` for each."""


def log_of(
    words: Words, lines: Sequence[int], source: str, *, skip_damaged: bool, entry: str = "line"
) -> tuple[JobLog, tuple[int, ...]]:
    """The jobs of a Slurm log, in order of arrival.

    A job arrives when it becomes eligible to run, because before that it waits for another job or for a time
    that its user set. If the log does not say when, or the submission is later, the submission counts. Jobs
    that have not begun or not ended have run time -1.

    Raises `DataError` if a line is damaged (with the line's number), or if there is no job.
    """
    values, wrong = _values(words)
    wrong = _disorder(values) | wrong
    damaged = tuple(sorted(lines[i] for i in wrong))
    if damaged and not skip_damaged:
        i = min(wrong)
        raise DataError(f"{source}, {entry} {lines[i]}: {wrong[i]}: {REMEDY}")
    keep = np.ones(len(lines), bool)
    keep[list(wrong)] = False
    if not keep.any():
        raise DataError(f"{source}: no job in it: print the log with {COMMAND}")
    kept = np.flatnonzero(keep)
    kept = kept[np.argsort(_arrival(values)[kept], kind="stable")]
    return _slurm_log({key: column[kept] for key, column in values.items()}, words, kept), damaged


def _values(words: Words) -> tuple[dict[str, Floats], dict[int, str]]:
    """Values of all columns (NaN: unknown), and a description of the damage in each damaged row."""
    values: dict[str, Floats] = {}
    wrong: dict[int, str] = {}
    for key, (read, what) in _READERS.items():
        column = words.get(key)
        if column is None:
            values[key] = np.full(len(words["number"]), np.nan)
            continue
        if read is _time and (times_s := _same_times(column)) is not None:
            values[key] = times_s
            continue
        known = {word: np.nan if word in _UNKNOWN else read(word) for word in set(column)}
        values[key] = np.array([np.nan if (v := known[word]) is None else v for word in column])
        if None in known.values():
            bad = [i for i, word in enumerate(column) if known[word] is None]
            wrong = {i: f"{key} {column[i][:40]!r} is not a {what}" for i in bad} | wrong
    return values, wrong


def _disorder(values: Mapping[str, Floats]) -> dict[int, str]:
    """A description of each row that lacks a time or number, or whose times contradict each other."""
    submit_s, start_s, end_s = (values[key] for key in ("submit", "start", "end"))
    local = "local clocks go back once a year, so print the log with SLURM_TIME_FORMAT=%s"
    wrong = {int(i): "it has no time of submission" for i in np.flatnonzero(np.isnan(submit_s))}
    wrong |= {int(i): "it has no number" for i in np.flatnonzero(np.isnan(values["number"]))}
    for late, early, text in ((start_s, submit_s, "starts"), (end_s, start_s, "ends")):
        before = "it was submitted" if text == "starts" else "it starts"
        wrong |= {
            int(i): f"it {text} {early[i] - late[i]:g} s before {before} ({local})"
            for i in np.flatnonzero(late < early)
        }
    return wrong


def _arrival(values: Mapping[str, Floats]) -> Floats:
    """Time at which each job could begin, but at most its start, as jobs can be held and released again."""
    return np.fmin(np.fmax(values["submit"], values["eligible"]), values["start"])


def _slurm_log(values: Mapping[str, Floats], words: Words, kept: Ints) -> JobLog:
    arrival_s = _arrival(values)
    run_s = np.nan_to_num(values["end"] - values["start"], nan=NO_JOB)
    names: dict[str, dict[int, str]] = {}
    numbers = {column: np.full(len(kept), NO_JOB) for column in _NAMES.values()}
    for key, column in _NAMES.items():
        if key in words:
            own = [words[key][i] for i in kept.tolist()]
            place = {word: i for i, word in enumerate(dict.fromkeys(own))}
            numbers[column] = np.array([place[word] for word in own], np.int64)
            # jobcomp appends the user id to the name, as in root(0).
            is_user = key == "user"
            names[column] = {i: _USER_ID.sub("", word) if is_user else word for word, i in place.items()}
    return JobLog(
        number=_integers(values["number"]),
        submit_s=arrival_s - arrival_s[0],
        run_s=run_s,
        limit_s=np.nan_to_num(values["limit"], nan=NO_JOB),
        n_processors=_integers(values["processors"]),
        n_nodes=_integers(values["nodes"]),
        user=numbers["user"],
        program=numbers["program"],
        queue=numbers["queue"],
        partition=numbers["partition"],
        previous=np.full(len(kept), NO_JOB),
        think_s=np.zeros(len(kept)),
        names=names,
        wait_s=np.nan_to_num(values["start"] - arrival_s, nan=NO_JOB),
        memory_bytes=_memory_by_processor(values),
        node_list=np.array(words["node_list"], object)[kept] if "node_list" in words else None,
    )


def _memory_by_processor(values: Mapping[str, Floats]) -> Floats | None:
    found = values["memory"] / values["processors"]
    return np.nan_to_num(found, nan=NO_JOB) if np.isfinite(found).any() else None


def _integers(column: Floats) -> Ints:
    return np.nan_to_num(column, nan=NO_JOB).astype(np.int64)


def _number(word: str) -> float | None:
    """The number 123 from ``123``, ``123_4`` (a task of an array) or ``123+1`` (a component of a job)."""
    found = re.match(r"\d{1,15}(?![^_+])", word, re.ASCII)
    return float(found[0]) if found else None


def _time(word: str) -> float | None:
    """Seconds since 1970. A time without a zone is read as UTC, because only differences of times matter."""
    if word.isascii() and word.isdigit():
        return float(word)
    if not _TIME.fullmatch(word):
        return None
    try:
        return datetime.fromisoformat(word).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _same_times(words: Sequence[str]) -> Floats | None:
    """`_time` of all words at once, which is faster; None if their formats differ or a word is malformed."""
    if all(word in _UNKNOWN or (len(word) == _TIME_LENGTH and word[10] == "T") for word in words):
        try:
            times = np.array(["NaT" if word in _UNKNOWN else word for word in words], "datetime64[s]")
        except ValueError:
            return None
        return np.where(np.isnat(times), np.nan, times.astype(np.int64))
    if all(word in _UNKNOWN or (word.isascii() and word.isdigit()) for word in words):
        return np.array([np.nan if word in _UNKNOWN else float(word) for word in words])
    return None


def _limit(word: str) -> float | None:
    """Seconds from ``2-12:00:00``, a number of minutes, or ``UNLIMITED`` (a year, as in Slurm's backfill)."""
    return _YEAR_S if word.upper() == "UNLIMITED" else slurm_seconds(word)


def _count(word: str) -> float | None:
    """Value of ``1152`` or ``2K`` (suffixes are powers of 1,024). 0 counts as unknown: the job never ran."""
    found = _COUNT.fullmatch(word)
    if found is None:
        return None
    return round(float(found[1]) * _POWERS[found[2]]) or np.nan


def _memory(word: str) -> float | None:
    """Bytes of all nodes from resources such as ``cpu=2,mem=16G,node=1``; NaN if they have no memory."""
    found = re.search(r"(?:^|,)mem=(\d{1,15}(?:\.\d+)?)([KMGTP]?)", word, re.ASCII)
    return float(found[1]) * _POWERS[found[2] or "M"] if found else np.nan


_READERS: dict[str, tuple[Callable[[str], float | None], str]] = {
    "number": (_number, "number of a job"),
    "submit": (_time, "time"),
    "eligible": (_time, "time"),
    "start": (_time, "time"),
    "end": (_time, "time"),
    "nodes": (_count, "number of nodes"),
    "processors": (_count, "number of processors"),
    "limit": (_limit, "time limit"),
    "memory": (_memory, "list of resources"),
}
"""For each column of numbers: the function that reads a word (None: malformed), and a description."""


_KEYS = {
    "number": ("JobId",),
    "submit": ("SubmitTime",),
    "eligible": ("EligibleTime",),
    "start": ("StartTime",),
    "end": ("EndTime",),
    "nodes": ("NodeCnt",),
    "processors": ("ProcCnt", "Procs"),
    "limit": ("TimeLimit",),
    "memory": ("Tres",),
    "user": ("UserId",),
    "partition": ("Partition",),
    "queue": ("QOS",),
    "name": ("Name",),
    "node_list": ("NodeList",),
}
_OTHERS = (
    *("GroupId", "JobState", "WorkDir", "ReservationName", "Gres", "Account", "WcKey"),
    *("Cluster", "ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset", "DerivedExitCode", "ExitCode"),
)
_JOBCOMP_COLUMNS = ("number", "submit", "start", "end", "nodes")
# Names can contain blanks, so a value ends where the next key begins.
_KEY = re.compile(rf"(?:^|\s)({'|'.join([*(key for keys in _KEYS.values() for key in keys), *_OTHERS])})=")


def parse_jobcomp(
    lines: Sequence[str], source: str, *, skip_damaged: bool = False
) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs of a ``jobcomp/filetxt`` log; arguments, results and errors as in `parse_sacct`."""
    rows, numbers, broken = [], [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = _slurm_row(line)
        if all(found[key] is not None for key in _JOBCOMP_COLUMNS):
            rows.append(found)
            numbers.append(number)
        else:
            broken.append(number)
    if broken and not skip_damaged:
        found = _slurm_row(lines[broken[0] - 1])
        lacks = ", ".join(_KEYS[key][0] for key in _JOBCOMP_COLUMNS if found[key] is None)
        raise DataError(f"{source}, line {broken[0]}: it lacks {lacks}: {REMEDY}")
    if not rows:
        raise DataError(f"{source}: no job in it: print the log with {COMMAND}")
    words = {key: [row[key] or "" for row in rows] for key in _KEYS}
    log, damaged = log_of(words, numbers, source, skip_damaged=skip_damaged)
    return log, tuple(sorted((*broken, *damaged)))


def _slurm_row(line: str) -> dict[str, str | None]:
    """The values in a line, by the columns of `_KEYS`; None for a column whose keys the line lacks."""
    parts = _KEY.split(line.strip())
    words = {key: word.strip() for key, word in zip(parts[1::2], parts[2::2], strict=True)}
    return {key: next((words[name] for name in names if name in words), None) for key, names in _KEYS.items()}


_COLUMNS = {
    "number": ("jobidraw", "jobid"),
    "submit": ("submit",),
    "eligible": ("eligible",),
    "start": ("start",),
    "end": ("end",),
    "nodes": ("nnodes", "allocnodes"),
    "processors": ("ncpus", "alloccpus"),
    "limit": ("timelimit", "timelimitraw"),
    "memory": ("alloctres", "reqtres"),
    "user": ("user", "uid"),
    "partition": ("partition",),
    "queue": ("qos",),
    "name": ("jobname",),
    "node_list": ("nodelist",),
}
"""Possible names of each column in the output of `sacct`. If several are there, the first of them counts."""
_SACCT_COLUMNS = {"number": "JobIDRaw", "submit": "Submit", "start": "Start", "end": "End"}


def parse_sacct(
    lines: Sequence[str], source: str, *, skip_damaged: bool = False
) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs in the output of `sacct`, without job steps.

    A repeated line counts once, because the files of two months can both contain the same job.

    Raises `DataError` if the header lacks a column, if a line is damaged (with its number), or if there is no
    job.
    """
    number, header = next((i, line.strip()) for i, line in enumerate(lines, 1) if line.strip())
    # --parsable also writes | after the last column. With --parsable2, a final | means an empty last column.
    end = "|" if header.endswith("|") else ""
    header = header.removesuffix(end)
    places, n_words = _places(header, source)
    # A job's name can contain |, which does no harm if the name is the last column.
    n_splits = n_words - 1 if places.get("name") == n_words - 1 else -1
    split = [(i, line.split("|", n_splits)) for i, line in _once(lines[number:], number + 1, header, end)]
    damaged = [(i, len(words)) for i, words in split if len(words) != n_words]
    if damaged and not skip_damaged:
        i, n = damaged[0]
        raise DataError(f"{source}, line {i}: {n} fields between |, but {n_words} in the header: {REMEDY}")
    rows = [(i, words) for i, words in split if len(words) == n_words and "." not in words[places["number"]]]
    words_of = {key: [words[place].strip() for _, words in rows] for key, place in places.items()}
    log, wrong = log_of(words_of, [i for i, _ in rows], source, skip_damaged=skip_damaged)
    return log, tuple(sorted((*(i for i, _ in damaged), *wrong)))


def _places(header: str, source: str) -> tuple[dict[str, int], int]:
    """Index of each known column, and the number of all columns."""
    names = columns_of(header)
    places = {
        key: names.index(found)
        for key, known in _COLUMNS.items()
        if (found := next((name for name in known if name in names), None)) is not None
    }
    missing = [name for key, name in _SACCT_COLUMNS.items() if key not in places]
    if "nodes" not in places and "processors" not in places:
        missing.append("NNodes")
    if missing:
        raise DataError(f"{source}: its header lacks {', '.join(missing)}: print the log with {COMMAND}")
    return places, len(names)


def columns_of(header: str) -> list[str]:
    """Names of the columns in a header of `sacct`, in lower case."""
    # If --format sets a width, Slurm repeats it in the header, as in JobName%30.
    return [word.partition("%")[0].strip() for word in header.lower().split("|")]


def _once(lines: Sequence[str], first: int, header: str, end: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without empty lines, repeated headers and repeated lines."""
    seen = {header}
    found = []
    for number, line in enumerate(lines, first):
        text = line.strip().removesuffix(end)  # without the | after the last column
        if text and text not in seen:
            seen.add(text)
            found.append((number, text))
    return found


_NO_VALUE, _INFINITE = 0xFFFFFFFE, 0xFFFFFFFF
"""Slurm's numbers for "not set" and "no limit"."""


def parse_json(text: str, source: str, *, skip_damaged: bool = False) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs in the output of `sacct --json` of any version, and the positions of damaged entries in the list.

    Raises `DataError` if the text is not such output, if an entry is damaged (with its position), or if there
    is no job.
    """
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{source} is not JSON: {error}: print it again with {_JSON_COMMAND}") from None
    jobs = told.get("jobs") if isinstance(told, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(_part(job, "time"), dict) for job in jobs):
        raise DataError(f"{source} has no `jobs`, or one without `time`: print the log with {_JSON_COMMAND}")
    rows = [_json_words(job) for job in jobs]
    words = {key: [row[key] for row in rows] for key in (*_READERS, *_NAMES, "node_list")}
    numbers = range(1, len(jobs) + 1)
    return log_of(words, numbers, source, skip_damaged=skip_damaged, entry="job")


_JSON_COMMAND = "sacct --allusers --allocations --json"


def _part(job: object, *keys: str) -> Any:
    """The value that a path of keys leads to; None if there is no such value."""
    for key in keys:
        job = job.get(key) if isinstance(job, dict) else None
    return job


def _json_words(job: Mapping[str, Any]) -> dict[str, str]:
    """The words that `sacct --parsable2` would print for a job."""
    allocated = _part(job, "tres", "allocated")
    entries = allocated if isinstance(allocated, list) else []
    counts = {str(_part(one, "type")): _part(one, "count") for one in entries}
    times = {"submit": "submission", "eligible": "eligible", "start": "start", "end": "end"}
    words = {key: _json_word(_part(job, "time", name)) for key, name in times.items()}
    # If an event has not happened yet, Slurm gives its time as 0 or "no limit".
    return {key: "" if word in ("0", "UNLIMITED") else word for key, word in words.items()} | {
        "number": _json_word(job.get("job_id")),
        "nodes": _json_word(job.get("allocation_nodes")),
        "processors": _json_word(counts.get("cpu") or _part(job, "required", "CPUs")),
        "limit": _json_word(_part(job, "time", "limit")),
        "memory": f"mem={counts['mem']}M" if counts.get("mem") else "",
        "user": _json_word(job.get("user") or _part(job, "association", "user")),
        **{key: _json_word(job.get(name)) for key, name in _JSON_NAMES.items()},
    }


_JSON_NAMES = {"partition": "partition", "queue": "qos", "name": "name", "node_list": "nodes"}


def _json_word(told: object) -> str:
    """A number or name in Slurm's JSON; from version 23.02 on, numbers are ``{set, infinite, number}``."""
    if isinstance(told, dict) and told.get("infinite") is True:
        return "UNLIMITED"
    if isinstance(told, dict) and "number" in told:
        told = told["number"] if told.get("set") else None
    known = {None: "", -1: "", _NO_VALUE: "", _INFINITE: "UNLIMITED"}
    return known[told] if isinstance(told, int | None) and told in known else str(told)


def parse(lines: Sequence[str], source: str, *, skip_damaged: bool = False) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs of a log in Standard Workload Format, or from Slurm's `sacct` (also with ``--json``) or
    ``jobcomp/filetxt``.

    Parameters, results and errors are those of `parse_swf`.

    Raises `DataError` if the format is unknown, if a line is damaged (with its number), or if there is no
    job.
    """
    first = next((line.strip() for line in lines if line.strip()), None)
    if first is None:
        raise DataError(f"{source} is empty: give {_FORMATS}")
    if first.startswith(("{", "[")):
        return parse_json("\n".join(lines), source, skip_damaged=skip_damaged)
    if first.startswith("JobId="):
        return parse_jobcomp(lines, source, skip_damaged=skip_damaged)
    if "|" in first and {"jobid", "jobidraw"} & {*columns_of(first)}:
        return parse_sacct(lines, source, skip_damaged=skip_damaged)
    is_sacct = first.lower().startswith("jobid") or ("|" in first and not first.startswith(";"))
    if is_sacct:
        lacks = "no | between its columns" if "|" not in first else "no header with JobIDRaw"
        raise DataError(f"{source} has {lacks}: print the log with {COMMAND}")
    return parse_swf(lines, source, skip_damaged=skip_damaged)


def read(path: str, *, skip_damaged: bool) -> tuple[JobLog, tuple[int, ...]]:
    """The jobs of a log file, and the numbers of its damaged lines, which are left out.

    The result is cached until the file changes.
    """
    try:
        found = os.stat(path)
    except OSError:
        return _read(path, None, skip_damaged=skip_damaged)
    return _read(path, (found.st_ino, found.st_size, found.st_mtime_ns), skip_damaged=skip_damaged)


@functools.lru_cache(maxsize=2)
def _read(path: str, state: object, *, skip_damaged: bool) -> tuple[JobLog, tuple[int, ...]]:
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"cannot read {path}: {reason}: give a log in Standard Workload Format or from Slurm's sacct"
        ) from None
    return parse(data.decode("utf-8-sig", "replace").split("\n"), path, skip_damaged=skip_damaged)
