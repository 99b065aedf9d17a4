"""Files of logs: their format, by the first line, and the jobs in them."""

from __future__ import annotations

import functools
import gzip
import os
import zlib
from collections.abc import Sequence

from mpicoloc.batch import slurm_log, swf
from mpicoloc.batch.job_log import JobLog
from mpicoloc.errors import DataError


def parse(lines: Sequence[str], source: str, *, skip_damaged: bool = False) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs of a log in Standard Workload Format, or as Slurm's `sacct` or ``jobcomp/filetxt`` tells them.

    Parameters, results and errors are those of `swf.parse`.

    Raises `DataError` if it is in no such format; if a line is damaged, with its number; if there is no job.
    """
    first = next((line.strip() for line in lines if line.strip()), None)
    if first is None:
        raise DataError(
            f"{source} is empty: give a log in Standard Workload Format, or what Slurm prints by "
            f"{slurm_log.COMMAND}"
        )
    if first.startswith("JobId="):
        return slurm_log.parse_jobcomp(lines, source, skip_damaged=skip_damaged)
    if "|" in first and {"jobid", "jobidraw"} & {*slurm_log.columns_of(first)}:
        return slurm_log.parse_sacct(lines, source, skip_damaged=skip_damaged)
    is_sacct = first.lower().startswith("jobid") or ("|" in first and not first.startswith(";"))
    if is_sacct:
        lacks = "no | between its columns" if "|" not in first else "no header with JobIDRaw"
        raise DataError(f"{source} has {lacks}: print the log with {slurm_log.COMMAND}")
    return swf.parse(lines, source, skip_damaged=skip_damaged)


def read(path: str, *, skip_damaged: bool) -> tuple[JobLog, tuple[int, ...]]:
    """A log, and the numbers of its damaged lines, which are left out.

    A process reads it once while its file is the same.
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
        raise DataError(
            f"cannot read {path}: {error}: give a log in Standard Workload Format or of Slurm's sacct"
        ) from None
    return parse(data.decode("utf-8-sig", "replace").split("\n"), path, skip_damaged=skip_damaged)
