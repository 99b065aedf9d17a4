"""Slurm's record of a step that ends: root queries it on the step's first node before slurmctld forgets it.

Users cannot forge it: texts that a user chooses could look like other fields, so they are not read or stand
last. Fields that slurmctld has forgotten are taken from the plugin's note of the step.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mpicoloc.core.step_record import SCRIPTS, StepRecord
from mpicoloc.core.units import slurm_seconds
from mpicoloc.errors import DataError, EnvironmentFault, UsageError
from mpicoloc.profile import signature
from mpicoloc.slurm import close, step_note, step_record
from mpicoloc.slurm.close import STEP, Start
from mpicoloc.slurm.command import ControllerAway
from mpicoloc.slurm.step_note import StepNote
from mpicoloc.slurm.step_record import SKEW_S

_STEP = re.compile(r"StepId=\S+ UserId=\d+ StartTime=(\d+) .*? Nodes=(\d+) CPUs=(\d+) ")


def record_ended_step(
    ended: tuple[Start, str], key: signature.Key, spool: str, ended_unix_s: float
) -> str | None:
    """Write the record of a step that ends now into the spool, beside the place of its profile.

    The profile of a killed step comes later, when Slurm has forgotten the step. The step's note is removed. A
    job without a script gets a mark: its epilog then writes the record of the job itself.

    Result: where the record is; None: there is one of that name. Raises `EnvironmentFault` if slurmctld does
    not answer, or knows the step no more and there is no note of it, or the spool cannot be written. Raises
    `DataError` if its answer is not understood: another version of Slurm.
    """
    start, step = ended
    if not STEP.fullmatch(step):
        raise UsageError(f"step {step!r}: give its number, batch or interactive")
    notes = {path: note for path, note in read_notes(spool, start).items() if note.step == step}
    note = next(iter(notes.values()), None)
    name = start.name(step)
    written = None
    if not os.path.lexists(_path(spool, name)):
        written = write_record(spool, name, _record_of_ended(ended, note, ended_unix_s), key)
    if start.fields["BatchFlag"] == "0":
        step_note.mark(spool, start.job)  # before the note goes, so that there is always one of them
    for path in notes:
        step_note.remove(path)
    return written


def _path(spool: str, name: str) -> str:
    return step_record.path_of(os.path.join(spool, name))


def write_record(spool: str, name: str, record: StepRecord, key: signature.Key) -> str | None:
    """Write a record beside where the profile of this name is or will be.

    Result: its path; None: there is one, which stays. Raises `EnvironmentFault` if the spool cannot be
    written.
    """
    path = _path(spool, name)
    return path if step_record.write(path, replace(record, profile=name), key) else None


def read_notes(spool: str, start: Start) -> dict[str, StepNote]:
    """Notes of the steps of this start of a job, by their files; those that cannot be read are left out."""
    found = {}
    for path in step_note.paths(spool, start.job):
        with contextlib.suppress(DataError, EnvironmentFault):
            note = step_note.read(path)
            if note is not None and is_note_of(start, note):
                found[path] = note
    return found


def recorded_steps(spool: str, start: Start) -> set[str]:
    """Steps of this start of a job that have a record."""
    names = (os.path.basename(path) for path in step_record.paths(spool, start.job))
    return {name.split(".")[-2] for name in names if name.startswith(f"{start.stem}.")}


def split_by_known_steps(
    found: Sequence[tuple[str, str]], spool: str, start: Start
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Profiles of steps that Slurm has begun, and all others, which a user may lay there."""
    steps = recorded_steps(spool, start) | {note.step for note in read_notes(spool, start).values()}
    known = {start.name(step) for step in steps}
    return [one for one in found if one[1] in known], [one for one in found if one[1] not in known]


def is_note_of(start: Start, note: StepNote) -> bool:
    """Whether a note belongs to this start of the job, not to an earlier one or a job of the same number."""
    if start.fields.get("StateCompact") == "PD":
        return False
    # A job that was not requeued has no earlier start, so clocks may differ.
    early_s = 1.0 if _restarts(start.fields) else SKEW_S
    return note.uid == start.uid and note.begun_unix_s >= start.submitted_unix_s - early_s


def _restarts(row: Mapping[str, str]) -> int:
    text = row.get("RestartCnt", "")
    return int(text) if text.isdecimal() else 0


def _record_of_ended(ended: tuple[Start, str], note: StepNote | None, ended_unix_s: float) -> StepRecord:
    """Record of a step that ends now: from Slurm if it still knows the step, else from the note."""
    start, step = ended
    if note is None:
        return query_step(start, step, ended_unix_s)
    if not is_leaving(start, note):
        try:
            return query_step(start, step, ended_unix_s)
        except ControllerAway:
            raise
        except (EnvironmentFault, DataError):
            pass
    return record_from_note(start, note, ended_unix_s)


def is_leaving(start: Start, note: StepNote) -> bool:
    """Whether a requeued job is leaving its nodes; Slurm then no longer has its start and run time."""
    begun = start.fields.get("StartTime", "")
    is_later = begun.isdecimal() and int(begun) > note.begun_unix_s + 1.0
    return not start.is_running and is_later and _restarts(start.fields) > 0


def query_step(start: Start, step: str, ended_unix_s: float) -> StepRecord:
    """Record of a step that ends now, from Slurm; errors as of `record_ended_step`."""
    text = ""
    if step not in SCRIPTS:  # of those scontrol shows nothing, or all steps, with names that look like others
        text = close.run_slurm(["scontrol", "--oneliner", "show", "step", f"{start.job}.{step}"])
    return parse_step(start, (step, text), close.user_name(start.uid), ended_unix_s)


def parse_step(start: Start, ended: tuple[str, str], user: str, ended_unix_s: float) -> StepRecord:
    """Record from Slurm's answers; errors as of `record_ended_step`."""
    step, text = ended
    found = _STEP.match(text)
    if step in SCRIPTS:
        return _make_record(start, step, None, user, ended_unix_s)
    if found is None:
        raise _not_understood(start, step, ValueError(f"no step: {text[:80]!r}"))
    begun, n_nodes, n_cpus = map(int, found.groups())
    return _make_record(start, step, (float(begun), n_nodes, n_cpus), user, ended_unix_s)


def record_from_note(start: Start, note: StepNote, ended_unix_s: float) -> StepRecord:
    """Record of a step that Slurm has forgotten: the step's fields from its note, the job's from Slurm.

    Raises `DataError` if Slurm's answer about the job is not understood.
    """
    row = dict(start.fields)
    if is_leaving(start, note):
        row |= {
            "StartTime": str(int(note.begun_unix_s)),
            "RestartCnt": str(_restarts(row) - 1),
            "TimeUsed": "",
        }
    ended_s = ended_unix_s if note.ended_unix_s is None else note.ended_unix_s
    own = None
    if note.step not in SCRIPTS:
        most = int(row["NumCPUs"]) if row.get("NumCPUs", "").isdecimal() else 0
        own = note.begun_unix_s, note.n_nodes, min(note.n_cpus_here * note.n_nodes, most)
    return _make_record(replace(start, fields=row), note.step, own, close.user_name(start.uid), ended_s)


def _make_record(
    start: Start, step: str, own: tuple[float, int, int] | None, user: str, ended_unix_s: float
) -> StepRecord:
    """The record; `own` has start, nodes and CPUs of the step, None: they are the job's."""
    row = start.fields
    try:
        job_start = float(row["StartTime"])
        step_start, n_nodes, n_cpus = own or (job_start, int(row["NumNodes"]), int(row["NumCPUs"]))
        is_array = row["ArrayTaskID"].isdecimal()
        of_job = row.get("JobCPUs", row["NumCPUs"])
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
            job_start_unix_s=job_start,
            step_start_unix_s=step_start,
            ran_s=_ran_s(step_start, ended_unix_s, row["TimeUsed"]),
            job_n_cpus=int(of_job) if of_job else None,
            job_ran_s=_ran_s(job_start, ended_unix_s, row["TimeUsed"]),
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _not_understood(start, step, error) from None


def _ran_s(step_start_unix_s: float, ended_unix_s: float, used: str) -> float:
    """Run time of the step, s; at most the job's own (`used`), which stops while the job is suspended."""
    ran_s = max(0.0, ended_unix_s - step_start_unix_s)
    if used:
        used_s = slurm_seconds(used)
        if used_s is None:
            raise ValueError(f"no time: {used!r}")
        ran_s = min(ran_s, used_s + 1.0)  # whole seconds, rounded down
    return round(ran_s, 3)


def _not_understood(start: Start, step: str, error: Exception) -> DataError:
    return DataError(
        f"Slurm's answer about step {start.job}.{step} is not understood "
        f"({type(error).__name__}: {error}): tried are squeue and scontrol of Slurm 22.05"
    )
