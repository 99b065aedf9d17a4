"""The list of ended jobs that Slurm's plugin ``jobcomp/filetxt`` writes: words like ``JobId=7`` in a line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpicoloc.errors import DataError
from mpicoloc.schedule.batch.logs import slurm_jobs
from mpicoloc.schedule.batch.logs.job_log import JobLog

_KEYS = {
    "number": ("JobId",),
    "submit": ("SubmitTime",),
    "eligible": ("EligibleTime",),
    "start": ("StartTime",),
    "end": ("EndTime",),
    "nodes": ("NodeCnt",),
    "processors": ("ProcCnt", "Procs"),
    "limit": ("TimeLimit",),
    "user": ("UserId",),
    "partition": ("Partition",),
    "queue": ("QOS",),
    "name": ("Name",),
}
_OTHERS = (
    *("GroupId", "JobState", "NodeList", "WorkDir", "ReservationName", "Tres", "Gres", "Account", "WcKey"),
    *("Cluster", "ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset", "DerivedExitCode", "ExitCode"),
)
_NEEDED = ("number", "submit", "start", "end", "nodes")
# A name may have blanks, so a word ends where the next key begins.
_KEY = re.compile(rf"(?:^|\s)({'|'.join([*(key for keys in _KEYS.values() for key in keys), *_OTHERS])})=")


def is_line(line: str) -> bool:
    """Whether a line is one of that plugin's."""
    return line.startswith("JobId=")


def parse(lines: Sequence[str], source: str, *, skip_damaged: bool = False) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs of a list; arguments, results and errors as of `sacct.parse`."""
    rows, numbers, broken = [], [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = _row(line)
        if all(found[key] is not None for key in _NEEDED):
            rows.append(found)
            numbers.append(number)
        else:
            broken.append(number)
    if broken and not skip_damaged:
        found = _row(lines[broken[0] - 1])
        lacks = ", ".join(_KEYS[key][0] for key in _NEEDED if found[key] is None)
        raise DataError(f"{source}, line {broken[0]}: it lacks {lacks}: {slurm_jobs.REMEDY}")
    if not rows:
        raise DataError(f"{source}: no job in it: print the log with {slurm_jobs.COMMAND}")
    words = {key: [row[key] or "" for row in rows] for key in _KEYS}
    log, damaged = slurm_jobs.log_of(words, numbers, source, skip_damaged=skip_damaged)
    return log, tuple(sorted((*broken, *damaged)))


def _row(line: str) -> dict[str, str | None]:
    """The words of a line by `_KEYS`; None: it lacks the key."""
    parts = _KEY.split(line.strip())
    words = {key: word.strip() for key, word in zip(parts[1::2], parts[2::2], strict=True)}
    return {key: next((words[name] for name in names if name in words), None) for key, names in _KEYS.items()}
