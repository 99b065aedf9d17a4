"""The Slurm plugin's note of a step that has begun: a JSON file in the spool until the step has its record.

The plugin writes it as root in C (``csrc/spank/notes.c``), without a query to Slurm. Beside the notes lie
marks: a mark says that steps of a job of `srun` or `salloc` alone have records, so the job itself needs one
too.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import stat
from dataclasses import dataclass

from mpicoloc.core.plain_values import dataclass_from
from mpicoloc.core.step_record import SCRIPTS
from mpicoloc.errors import MALFORMED, DataError, EnvironmentFault

FOLDER = ".steps"
"""In the spool; root's only."""
VERSION = 1
MAX_BYTES = 1 << 12
_MARK_KEPT_S = 400 * 86400.0
"""Age at which a mark is removed, s: no job lasts so long after its last step."""


@dataclass(frozen=True)
class StepNote:
    """One step as its first node saw it.

    Attributes
    ----------
    job, step : int, str
        Slurm's number of the job; that of the step, or ``batch`` for the script and ``interactive``.
    uid : int
        Who runs it.
    n_nodes, n_cpus_here : int
        Nodes of the step, and CPUs that it has on the first one.
    begun_unix_s, ended_unix_s : float, float or None
        When its tasks began, and when the last one on the first node ended, s; None: they run, or the end was
        not seen.
    """

    job: int
    step: str
    uid: int
    n_nodes: int
    n_cpus_here: int
    begun_unix_s: float
    ended_unix_s: float | None

    @property
    def name(self) -> str:
        """Job and step, as Slurm writes them."""
        return f"{self.job}.{self.step}"


def paths(spool: str, job: int | None = None) -> list[str]:
    """Files of the notes in a spool, of one job or of all, in the order of their names."""
    start = "[0-9]" if job is None else f"{job}."
    return sorted(glob.glob(os.path.join(glob.escape(spool), FOLDER, f"{start}*.json")))


def read(path: str) -> StepNote | None:
    """The note in a file; None: it is gone, as its record was made.

    Raises `DataError` if it is no note, or one of another version, or not root's. Raises `EnvironmentFault`
    if it cannot be read.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.geteuid()):
        raise DataError(f"{path} is not root's, so the plugin did not write it: remove it")
    try:
        values = json.loads(content) if len(content) <= MAX_BYTES else {}
        version = values["schema_version"]
        if version != VERSION:
            raise DataError(f"{path} has version {version!r}, this mpicoloc reads {VERSION}: use a newer one")
        found = dataclass_from(StepNote, values)
        if not (found.step.isdecimal() or found.step in SCRIPTS):
            raise ValueError(found.step)
        return found
    except (AttributeError, *MALFORMED) as error:
        raise DataError(
            f"{path} is no note of a step: it is damaged. Look its job up with `sacct`, and remove it"
        ) from error


def mark(spool: str, job: int) -> None:
    """Mark a job for its epilog (``mn_has`` in C), which writes the record of the job itself.

    Raises `EnvironmentFault` if the folder refuses.
    """
    path = mark_path(spool, job)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "wb"):
            os.utime(handle)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}") from error


def unmark(spool: str, job: int) -> None:
    """Remove the mark of a job that has its records, if there is one; errors as of `remove`."""
    remove(mark_path(spool, job))


def sweep(spool: str, now_unix_s: float) -> None:
    """Remove marks of jobs that have had no epilog, as their first node died."""
    for path in glob.glob(mark_path(glob.escape(spool), "*")):
        with contextlib.suppress(OSError):
            if os.lstat(path).st_mtime < now_unix_s - _MARK_KEPT_S:
                os.unlink(path)


def marked_jobs(spool: str) -> list[int]:
    """Jobs that have a mark."""
    names = map(os.path.basename, glob.glob(mark_path(glob.escape(spool), "*")))
    return sorted(int(job) for job in (name.partition(".")[0] for name in names) if job.isdecimal())


def mark_path(spool: str, job: int | str) -> str:
    """Path of a job's mark; its ending is not ``.json``, so it is not read as a note."""
    return os.path.join(spool, FOLDER, f"{job}.allocation")


def remove(path: str) -> None:
    """Remove a note whose step has its record.

    Raises `EnvironmentFault` if the folder refuses.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be removed: {error.strerror}") from error
