"""Writes missing records of steps and jobs: they ended while slurmctld was away, or their node died."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mpicoloc.core.step_record import ALLOCATION, SCRIPTS, StepRecord
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, Refused, UsageError
from mpicoloc.profile import signature
from mpicoloc.slurm import close, step_note, step_record
from mpicoloc.slurm import record as slurm_record
from mpicoloc.slurm.close import Start
from mpicoloc.slurm.command import ControllerAway
from mpicoloc.slurm.step_note import StepNote

_ENDED_STATES = ("CD", "F", "CA", "TO", "NF", "PR", "OOM", "BF", "DL")
"""States of jobs that have ended, epilogs included."""


def settle_job(
    spool: str, start: Start, key: signature.Key, now_unix_s: float
) -> Iterator[str | MpicolocError]:
    """Write the missing records of a job in its epilog, and remove its notes.

    A job without a script whose steps have records gets a record of its own, which pays for the rest of its
    time.

    Result: path of a record that was made, or what keeps one from being made.
    """
    for path, note in slurm_record.read_notes(spool, start).items():
        try:
            yield from _write_from_note(spool, (path, note), (start, now_unix_s), key)
        except MpicolocError as error:
            yield error
    try:
        yield from _write_allocation(spool, start, key)
    except MpicolocError as error:
        yield error


def _write_allocation(spool: str, start: Start, key: signature.Key) -> Iterator[str]:
    """Write the record of a job of `srun` or `salloc` alone, whose steps may not fill its time."""
    if start.fields["BatchFlag"] != "0":
        return  # its script pays, unless its user had that not measured
    known = slurm_record.recorded_steps(spool, start)
    noted = {note.step for note in slurm_record.read_notes(spool, start).values()}
    # Slurm requeues scripts only, and tells the start of one that it requeues no more.
    if not known or (known | noted).intersection(SCRIPTS) or start.fields["RestartCnt"] != "0":
        return
    user, ended = close.user_name(start.uid), start.fields["EndTime"]
    if not ended.isdecimal():
        raise DataError(f"Slurm has no end of job {start.job} ({ended!r}): it has no record")
    record = slurm_record.parse_step(start, (ALLOCATION, ""), user, float(ended))
    made = slurm_record.write_record(spool, start.name(ALLOCATION), record, key)
    yield from [made] if made else []


def settle_all(spool: str, key: signature.Key) -> Iterator[str | MpicolocError]:
    """Write the missing records of all jobs without an epilog.

    Their first node has died, or slurmctld did not answer there. Jobs that run, or whose epilog may still
    come, are left out.

    Result: as of `settle_job`. Raises `EnvironmentFault` if slurmctld does not answer, or the spool cannot be
    read.
    """
    yield from _settle_notes(spool, key)
    # After the notes, because a job gets its own record only if one of its steps has one.
    yield from _settle_allocations(spool, key)


def _settle_notes(spool: str, key: signature.Key) -> Iterator[str | MpicolocError]:
    """Write the records of steps that have a note."""
    notes: list[tuple[str, StepNote]] = []
    for path in step_note.paths(spool):
        try:
            note = step_note.read(path)
            notes += [(path, note)] if note and not _has_record_already(spool, (path, note), key) else []
        except MpicolocError as error:
            yield error
    jobs: dict[tuple[int, int], Start | None] = {}
    for path, note in notes:
        job = note.job, note.uid
        if job not in jobs:
            jobs[job] = _query_start(*job)
        same = [other for _, other in notes if (other.job, other.uid) == job]
        try:
            ended = _start_and_end(spool, (path, note), jobs[job], same, key)
            yield from _write_from_note(spool, (path, note), ended, key) if ended else ()
        except MpicolocError as error:
            yield error


def _settle_allocations(spool: str, key: signature.Key) -> Iterator[str | MpicolocError]:
    """Write the records of marked jobs that have ended."""
    marked = step_note.marked_jobs(spool)  # read first: a job marked later may be unknown to the answer
    known = _jobs_without_script() if marked else {}
    for job in marked:
        uid, state = known.get(job, (0, ""))
        try:
            if job not in known:
                raise Refused(_forgotten_job(spool, job))
            start = _query_start(job, uid) if state in _ENDED_STATES else None
            if start is not None:
                yield from _write_allocation(spool, start, key)
                step_note.unmark(spool, job)
        except ControllerAway:
            raise
        except MpicolocError as error:
            yield error


def _jobs_without_script() -> dict[int, tuple[int, str]]:
    """User and state of all jobs without a script, by number: one query for thousands of jobs."""
    # No field is a user's text, so none can look like another job's line.
    fields = ("JobID", "UserID", "StateCompact", "BatchFlag")
    wanted = ",".join(f"{name}:24" for name in fields)
    answer = close.run_slurm(["squeue", "--noheader", "--all", "--states=all", "--Format", wanted])
    rows = [row for row in map(str.split, answer.splitlines()) if len(row) == len(fields)]
    return {int(job): (int(uid), state) for job, uid, state, batch_flag in rows if batch_flag == "0"}


def _forgotten_job(spool: str, job: int) -> str:
    return (
        f"no record of job {job} itself, which had no script, as Slurm no longer has it: only its steps are "
        f"charged. See `sacct -D -j {job} -o JobID,Submit,Start,End,NCPUS,Account` for what it had, and "
        f"remove {step_note.mark_path(spool, job)}"
    )


@dataclass(frozen=True)
class OperatorStatement:
    """Fields of a job that Slurm has forgotten, stated by the site from `sacct`; times in s since 1970.

    `submitted_unix_s` is of the start in question: a requeued job has one for each. `account` None: it had
    none; `ended_unix_s` None: the notes of all of its steps have their end.
    """

    job: int
    submitted_unix_s: int
    ended_unix_s: float | None
    account: str | None
    cluster: str


def settle_stated_job(
    spool: str, key: signature.Key, statement: OperatorStatement
) -> Iterator[str | MpicolocError]:
    """Write the records of one start of a job from the site's statement; yields as `settle_all`.

    Raises `UsageError` if there is no note of it.
    """
    start = Start(
        statement.job, 0, statement.submitted_unix_s, statement.submitted_unix_s, False, str(statement.job)
    )
    found = {}
    for path in step_note.paths(spool, statement.job):
        note = step_note.read(path)
        if note is None or not slurm_record.is_note_of(replace(start, uid=note.uid), note):
            continue
        if _has_record_already(spool, (path, note), key):
            continue
        if (
            statement.ended_unix_s is None or note.begun_unix_s <= statement.ended_unix_s
        ):  # else of a later start
            found[path] = note
    if not found:
        raise UsageError(
            f"no step of job {statement.job} that was submitted at {statement.submitted_unix_s} "
            "waits for its record"
        )
    row = _squeue_row(statement, list(found.values()))
    for path, note in found.items():
        ended_s = note.ended_unix_s if statement.ended_unix_s is None else statement.ended_unix_s
        if ended_s is None:
            yield UsageError(f"the end of step {note.name} is unknown: give that of its job with --ended")
        else:
            of_note = replace(start, uid=note.uid, fields=row)
            yield from _write_from_note(spool, (path, note), (of_note, ended_s), key)


def _squeue_row(statement: OperatorStatement, notes: Sequence[StepNote]) -> dict[str, str]:
    """Fields as squeue would have printed them; unknown ones are empty."""
    values = {
        "SubmitTime": statement.submitted_unix_s,
        "StartTime": int(min(note.begun_unix_s for note in notes)),
        "NumNodes": max(note.n_nodes for note in notes),
        "NumCPUs": max(note.n_cpus_here * note.n_nodes for note in notes),
        "JobCPUs": "",  # it may have had more than each of these steps
        "Account": statement.account or "",
        "Cluster": statement.cluster,
        "RestartCnt": 0,
        "ArrayTaskID": "N/A",
        "Partition": "",
        "TimeUsed": "",
    }
    return {name: str(value) for name, value in values.items()}


def _has_record_already(spool: str, noted: tuple[str, StepNote], key: signature.Key) -> bool:
    """Remove a note whose step has a record already (a hung writer leaves one); whether it was removed."""
    path, note = noted
    sealed = None
    for other in step_record.paths(spool, note.job):
        with contextlib.suppress(MpicolocError):
            sealed = step_record.read(other)
        if sealed and not sealed.reason(key) and _is_record_of(note, sealed.record):
            step_note.remove(path)
            return True
    return False


def _is_record_of(note: StepNote, record: StepRecord) -> bool:
    """Whether note and record are of one step. Slurm tells whole seconds only."""
    after_s = note.begun_unix_s - record.step_start_unix_s
    return (record.uid, record.step) == (note.uid, note.step) and -1.0 <= after_s <= record.ran_s


def _write_from_note(
    spool: str, noted: tuple[str, StepNote], ended: tuple[Start, float], key: signature.Key
) -> Iterator[str]:
    """Write the record of a note; `ended` is the start of its job and its latest end, s."""
    (path, note), (start, ended_unix_s) = noted, ended
    record = slurm_record.record_from_note(start, note, ended_unix_s)
    made = slurm_record.write_record(spool, start.name(note.step), record, key)
    if start.fields.get("BatchFlag") == "0":
        step_note.mark(spool, start.job)  # as at the end of a step that was seen
    step_note.remove(path)
    yield from [made] if made else []


def _query_start(job: int, uid: int) -> Start | None:
    try:
        return close.query_start(job, uid)
    except ControllerAway:
        raise
    except EnvironmentFault:
        return None


def _start_and_end(
    spool: str, noted: tuple[str, StepNote], start: Start | None, same: Sequence[StepNote], key: signature.Key
) -> tuple[Start, float] | None:
    """The start of the job that a note belongs to, and its end, s; None if it may still run.

    Raises `Refused` if Slurm does not know it any more.
    """
    (path, note), row = noted, start.fields if start else {}
    state = row.get("StateCompact")
    if start and slurm_record.is_note_of(start, note):
        return (start, float(row["EndTime"])) if state in _ENDED_STATES else None
    if start and state == "CG":
        return None
    if start and row["RestartCnt"] == "1":
        earlier = [other for other in same if not slurm_record.is_note_of(start, other)]
        return _first_start(spool, start, earlier, key), float(start.submitted_unix_s)
    raise Refused(_forgotten_step(path, note))


def _first_start(spool: str, start: Start, notes: Sequence[StepNote], key: signature.Key) -> Start:
    """The first start of a job that was requeued since, so that SubmitTime is now the second start's.

    The first start's submit time is taken from its records, else the begin of its first step stands for it:
    no other start of the job can have that time.
    """
    began_s = min(note.begun_unix_s for note in notes)
    submitted_s = int(began_s)
    for path in step_record.paths(spool, start.job):
        sealed = step_record.read(path)
        if sealed and not sealed.reason(key):
            record = sealed.record
            if (record.uid, record.restarts) == (start.uid, 0) and record.job_submit_unix_s <= began_s + 1.0:
                submitted_s = int(record.job_submit_unix_s)
    n_cpus = max(int(start.fields["NumCPUs"]), *(note.n_cpus_here * note.n_nodes for note in notes))
    changed = {
        "SubmitTime": submitted_s,
        "StartTime": int(began_s),
        "RestartCnt": 0,
        "NumCPUs": n_cpus,
        "TimeUsed": "",
    }
    row = {**start.fields, **{name: str(value) for name, value in changed.items()}}
    return replace(start, submitted_unix_s=submitted_s, is_running=False, fields=row)


def _forgotten_step(path: str, note: StepNote) -> str:
    begun, ended = (_time(time_s) for time_s in (note.begun_unix_s, note.ended_unix_s))
    return (
        f"no record of step {note.name} of user {note.uid}, {note.n_cpus_here} CPUs on its first node of "
        f"{note.n_nodes}, from {begun} to {ended}, as Slurm no longer has its job: look it up with "
        f"`SLURM_TIME_FORMAT=%s sacct -D -j {note.job} -o JobID,Submit,End,Account`, and give "
        f"`mpicoloc slurm settle` that with --job, --submitted, --ended and --account; or remove {path}"
    )


def _time(time_s: float | None) -> str:
    return (
        "an unknown end" if time_s is None else f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S UTC}"
    )
