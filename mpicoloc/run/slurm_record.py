"""What Slurm knows of a step at its end, asked by root on the step's first node before slurmctld forgets it.

Nothing of it is the user's word: texts that he chooses, which could look like other fields, are not read, or
stand last.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from dataclasses import replace

from mpicoloc import config
from mpicoloc.errors import DataError, UsageError
from mpicoloc.run import slurm_close, slurm_command
from mpicoloc.run.slurm_close import STEP, Start
from mpicoloc.store import signature, step_record
from mpicoloc.store.step_record import SCRIPTS, StepRecord

_FIRST_SPECIAL = 0xFFFFFFF0
"""From here on Slurm's numbers of steps mean what no user starts: that of the prolog, say."""
_STEP = re.compile(r"StepId=\S+ UserId=\d+ StartTime=(\d+) .*? Nodes=(\d+) CPUs=(\d+) ")


def keep(
    pattern: str, ended: tuple[Start, str], key: signature.Key, spool: str, ended_unix_s: float
) -> str | None:
    """Put the record of a step that ends now into the spool, beside where its profile is or will be.

    The profile of one that was killed comes later, when Slurm has forgotten the step.

    Parameters
    ----------
    pattern : str
        As of `slurm_close.files`.
    ended : (Start, str)
        The job and the step: its number, ``batch`` or ``interactive``.
    key : bytes or KeyFile
        The site's.
    spool : str
        The folder.
    ended_unix_s : float
        When its last task here ended, s.

    Returns
    -------
    str or None
        Where the record is; None: nothing of the job is measured here, or there is one of that name.

    Raises
    ------
    EnvironmentFault
        If slurmctld does not answer or does not know the step any more, or the spool cannot be written.
    DataError
        If its answer is not understood: another version of Slurm.
    """
    start, step = ended
    if not STEP.fullmatch(step):
        raise UsageError(f"step {step!r}: give its number, batch or interactive")
    if step.isdecimal() and int(step) >= _FIRST_SPECIAL:
        return None
    path, name = slurm_close.place(pattern, start, step)
    record_path = step_record.path_of(os.path.join(spool, name))
    if os.path.lexists(record_path) or not (os.path.lexists(path) or _is_measured(start.uid)):
        return None
    record = ask(start, step, ended_unix_s)
    found = replace(record, profile=name)
    return record_path if step_record.write(record_path, found, key) else None


def _is_measured(uid: int) -> bool:
    """Whether the user has files in the node's shared memory."""
    for path in glob.glob(os.path.join(str(config.get("shm_dir")), "mpicoloc.*")):
        with contextlib.suppress(OSError):
            if os.lstat(path).st_uid == uid and not path.endswith(".board"):
                return True
    return False


def ask(start: Start, step: str, ended_unix_s: float) -> StepRecord:
    """What Slurm knows of a step that ends now; errors as of `keep`."""
    told = ""
    if step not in SCRIPTS:  # of those scontrol shows nothing, or all steps, with names that look like others
        told = slurm_close.ask(["scontrol", "--oneliner", "show", "step", f"{start.job}.{step}"])
    return parsed(start, (step, told), slurm_close.user_name(start.uid), ended_unix_s)


def parsed(start: Start, ended: tuple[str, str], user: str, ended_unix_s: float) -> StepRecord:
    """The record that these answers make; errors as of `keep`.

    Parameters
    ----------
    start : Start
        The job.
    ended : (str, str)
        The step, and what ``scontrol show step`` printed of it, times in s since 1970; of a script nothing.
    user : str
        Name of the user.
    ended_unix_s : float
        When its last task here ended, s.
    """
    (step, told), row = ended, start.told
    try:
        step_start, n_nodes, n_cpus = (int(row[name]) for name in ("StartTime", "NumNodes", "NumCPUs"))
        if step not in SCRIPTS:
            step_start, n_nodes, n_cpus = map(int, _STEP.match(told).groups())  # type: ignore[union-attr]
        used_s = slurm_command.seconds(row["TimeUsed"])
        if used_s is None:
            raise ValueError(f"no time: {row['TimeUsed']!r}")
        is_array = row["ArrayTaskID"].isdecimal()
        return StepRecord(
            profile="",
            cluster=row["Cluster"],
            job=start.job,
            step=step,
            restarts=int(row["RestartCnt"]),
            array_job=int(row["ArrayJobID"]) if is_array else None,
            array_task=int(row["ArrayTaskID"]) if is_array else None,
            uid=start.uid,
            user=user,
            account=None if row["Account"] in ("", "(null)") else row["Account"],
            partition=row["Partition"],
            n_nodes=n_nodes,
            n_cpus=n_cpus,
            job_submit_unix_s=float(row["SubmitTime"]),
            job_start_unix_s=float(row["StartTime"]),
            step_start_unix_s=float(step_start),
            # The job's own time stands still while it is suspended; it is told in whole seconds, cut off.
            ran_s=round(max(0.0, min(ended_unix_s - step_start, used_s + 1.0)), 3),
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise DataError(
            f"Slurm's answer about step {start.job}.{step} is not understood "
            f"({type(error).__name__}: {error}): tried are squeue and scontrol of Slurm 22.05"
        ) from None
