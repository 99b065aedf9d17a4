"""What Slurm knows of a step at its end, asked by root on the step's first node before slurmctld forgets it.

Nothing of it is the user's word: texts that he chooses, which could look like other fields, are not read, or
stand last.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from mpicoloc import config
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, UsageError
from mpicoloc.run import slurm_close, slurm_command
from mpicoloc.run.slurm_close import STEP, Start
from mpicoloc.store import signature, step_record
from mpicoloc.store.step_record import StepRecord

SCRIPTS = ("batch", "interactive")
"""Steps that are the job itself: all others run within their time."""
_FIRST_SPECIAL = 0xFFFFFFF0
"""From here on Slurm's numbers of steps mean what no user starts: that of the prolog, say."""
_FIELDS = ("JobID", "UserID", "ArrayJobID", "ArrayTaskID", "RestartCnt", "NumNodes", "NumCPUs", "SubmitTime",
           "StartTime", "TimeUsed", "Cluster", "Partition", "Account")  # fmt: skip
"""Account last: where Slurm does not check it, it is the user's text."""
_WIDTH = 128
_STEP = re.compile(r"StepId=\S+ UserId=\d+ StartTime=(\d+) .*? Nodes=(\d+) CPUs=(\d+) ")
_TIME_USED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


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
    others = glob.glob(os.path.join(glob.escape(spool), f"{start.stem}.*.json"))
    found = with_others(replace(record, profile=name), others)
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
    fields = ",".join(f"{name}:{_WIDTH}" for name in _FIELDS)
    job = str(start.job)
    commands = [["squeue", "--noheader", "--states=all", "--jobs", job, "--Format", fields]]
    if step not in SCRIPTS:  # of those scontrol shows nothing, or all steps, with names that look like others
        commands.append(["scontrol", "--oneliner", "show", "step", f"{job}.{step}"])
    told = [slurm_command.ask(command, more={"SLURM_TIME_FORMAT": "%s"}) for command in commands]
    return parsed(told, (start.job, step), (start.uid, slurm_close.user_name(start.uid)), ended_unix_s)


def parsed(
    told: Sequence[str], ids: tuple[int, str], owner: tuple[int, str], ended_unix_s: float
) -> StepRecord:
    """The record that these answers make; errors as of `keep`.

    Parameters
    ----------
    told : sequence of str
        What ``squeue`` printed of the job, and unless the step is its script, ``scontrol show step``; times
        in s since 1970.
    ids : (int, str)
        Job and step.
    owner : (int, str)
        Number and name of the user.
    ended_unix_s : float
        When its last task here ended, s.
    """
    (job, step), (uid, user) = ids, owner
    row = _row(told[0], job, uid)
    try:
        step_start, n_nodes, n_cpus = (int(row[name]) for name in ("StartTime", "NumNodes", "NumCPUs"))
        if step not in SCRIPTS:
            step_start, n_nodes, n_cpus = map(int, _STEP.match(told[1]).groups())  # type: ignore[union-attr]
        is_array = row["ArrayTaskID"].isdecimal()
        return StepRecord(
            profile="",
            cluster=row["Cluster"],
            job=job,
            step=step,
            restarts=int(row["RestartCnt"]),
            array_job=int(row["ArrayJobID"]) if is_array else None,
            array_task=int(row["ArrayTaskID"]) if is_array else None,
            uid=uid,
            user=user,
            account=None if row["Account"] in ("", "(null)") else row["Account"],
            partition=row["Partition"],
            n_nodes=n_nodes,
            n_cpus=n_cpus,
            job_submit_unix_s=float(row["SubmitTime"]),
            job_start_unix_s=float(row["StartTime"]),
            step_start_unix_s=float(step_start),
            # The job's own time stands still while it is suspended; it is told in whole seconds, cut off.
            ran_s=round(max(0.0, min(ended_unix_s - step_start, _seconds(row["TimeUsed"]) + 1.0)), 3),
            others_cpu_s=0.0,
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise DataError(
            f"Slurm's answer about step {job}.{step} is not understood ({type(error).__name__}: {error}): "
            "tried are squeue and scontrol of Slurm 22.05"
        ) from None


def _row(told: str, job: int, uid: int) -> dict[str, str]:
    """The fields of a job. An account with a line break in it does not look like another line."""
    for line in told.splitlines():
        row = {name: line[i * _WIDTH : (i + 1) * _WIDTH].strip() for i, name in enumerate(_FIELDS)}
        if len(line) > (len(_FIELDS) - 1) * _WIDTH and row["JobID"] == str(job) and row["UserID"] == str(uid):
            return row
    raise EnvironmentFault(f"slurmctld knows no job {job} of user {uid}: its steps have no record")


def _seconds(text: str) -> float:
    found = _TIME_USED.fullmatch(text)
    if found is None:
        raise ValueError(f"no time: {text!r}")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 60.0 * (60 * (24 * days + hours) + minutes) + seconds


def with_others(record: StepRecord, paths: Sequence[str]) -> StepRecord:
    """The record of a script, which pays for what steps with a profile do not; any other as it is."""
    if record.step not in SCRIPTS:
        return record
    others_cpu_s = 0.0
    for path in paths:
        with contextlib.suppress(MpicolocError):
            found = step_record.read(path)
            has_profile = found and os.path.exists(os.path.join(os.path.dirname(path), found.record.profile))
            if found and has_profile and found.record.is_of_same_job(record):
                others_cpu_s += found.record.cpu_s
    return replace(record, others_cpu_s=round(others_cpu_s, 3))
