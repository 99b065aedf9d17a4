"""Files that carry a policy of lanes to others: to opensm, and to the jobs by the Slurm plugin."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mpicoloc.core.profile import Job
from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.replay.qos.opensm import environment_file


def write(folder: str, contents: Mapping[str, str], flag: str) -> None:
    """Write files into a folder, each whole or not at all; everybody may read them.

    Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    try:
        for name, text in contents.items():
            path = os.path.join(folder, name)
            _make_folder(os.path.dirname(path))
            part = f"{path}.{os.getpid()}.part"
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(part, path)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write to {folder}: {error.strerror}; choose another folder with {flag}"
        ) from None


def _make_folder(path: str) -> None:
    """Make a folder into which all may look, whatever the caller's umask."""
    if not os.path.isdir(path):
        os.makedirs(path)
        os.chmod(path, 0o755)


def level_files(jobs: Sequence[Job], levels: Sequence[int]) -> dict[str, str]:
    """Variables of jobs by the path at which the Slurm plugin looks for them: user/name of the job.

    Raises `DataError` if a job has no name by which a later run can be known, or runs of one name have two
    levels.
    """
    found: dict[str, int] = {}
    for job, level in zip(jobs, levels, strict=True):
        name = job.batch_name
        if not (job.user and name) or "/" in name or name.startswith("."):
            raise DataError(
                f"job {printable(job.id)}: its name in Slurm is {printable(name)!r}, by which the plugin "
                "cannot know it: give the profile of a run in Slurm, named without / (sbatch --job-name)"
            )
        path = f"{job.user}/{name}"
        if found.setdefault(path, level) != level:
            raise DataError(
                f"two profiles of job {printable(path)} have service levels {found[path]} and {level}: "
                "give one profile of each job, or --assign them one lane"
            )
    return {path: environment_file(level) for path, level in found.items()}
