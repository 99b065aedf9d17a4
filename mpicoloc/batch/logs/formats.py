"""Which format a log has, by its first line, and the jobs in it."""

from __future__ import annotations

from collections.abc import Sequence

from mpicoloc.batch.logs import slurm_jobs, swf
from mpicoloc.batch.logs.job_log import JobLog
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
            f"{slurm_jobs.COMMAND}"
        )
    if slurm_jobs.is_line(first):
        return slurm_jobs.parse_jobcomp(lines, source, skip_damaged=skip_damaged)
    if "|" in first and slurm_jobs.is_header(first):
        return slurm_jobs.parse_sacct(lines, source, skip_damaged=skip_damaged)
    is_sacct = first.lower().startswith("jobid") or ("|" in first and not first.startswith(";"))
    if is_sacct:
        lacks = "no | between its columns" if "|" not in first else "no header with JobIDRaw"
        raise DataError(f"{source} has {lacks}: print the log with {slurm_jobs.COMMAND}")
    return swf.parse(lines, source, skip_damaged=skip_damaged)
