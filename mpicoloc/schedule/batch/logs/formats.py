"""Which format a log has, by its first line, and the jobs in it."""

from __future__ import annotations

from collections.abc import Sequence

from mpicoloc.errors import DataError
from mpicoloc.schedule.batch.logs import jobcomp, sacct, slurm_jobs, swf
from mpicoloc.schedule.batch.logs.job_log import JobLog


def parse(lines: Sequence[str], source: str, *, skip_damaged: bool = False) -> tuple[JobLog, tuple[int, ...]]:
    """Jobs of a log in Standard Workload Format, or as Slurm's `sacct` or ``jobcomp/filetxt`` tells them.

    Parameters, results and errors are those of `swf.parse`.

    Raises
    ------
    DataError
        If it is in no such format; if a line is damaged, with its number; if there is no job.
    """
    first = next((line.strip() for line in lines if line.strip()), None)
    if first is None:
        raise DataError(
            f"{source} is empty: give a log in Standard Workload Format, or what Slurm prints by "
            f"{slurm_jobs.COMMAND}"
        )
    if jobcomp.is_line(first):
        return jobcomp.parse(lines, source, skip_damaged=skip_damaged)
    if "|" in first and sacct.is_header(first):
        return sacct.parse(lines, source, skip_damaged=skip_damaged)
    is_sacct = first.lower().startswith("jobid") or ("|" in first and not first.startswith(";"))
    if is_sacct:
        lacks = "no | between its columns" if "|" not in first else "no header with JobIDRaw"
        raise DataError(f"{source} has {lacks}: print the log with {slurm_jobs.COMMAND}")
    return swf.parse(lines, source, skip_damaged=skip_damaged)
