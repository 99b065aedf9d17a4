"""Records of steps and jobs that ended while slurmctld was away, or unseen; those of steps from notes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mpicoloc.core.step_record import ALLOCATION, SCRIPTS, StepRecord
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, Refused, UsageError
from mpicoloc.profile import signature
from mpicoloc.slurm import slurm_close, slurm_record, step_note, step_record
from mpicoloc.slurm.slurm_close import Start
from mpicoloc.slurm.slurm_command import Away
from mpicoloc.slurm.step_note import StepNote

_OVER = ("CD", "F", "CA", "TO", "NF", "PR", "OOM", "BF", "DL")
"""States in which nothing of a job runs any more, and its epilogs have run, if they run at all."""


def of_job(spool: str, start: Start, key: signature.Key, now_unix_s: float) -> Iterator[str | MpicolocError]:
    """Make the records that are missing of a job that has ended, in its epilog, and remove its notes.

    A job of which a step has a record and the script has none gets one of its own, which pays the rest.

    Parameters
    ----------
    spool : str
        The folder.
    start : Start
        The job.
    key : bytes or KeyFile
        The site's.
    now_unix_s : float
        When what was killed has ended, at the latest, s.

    Yields
    ------
    str or MpicolocError
        Path of a record that was made, or what keeps one from being made.
    """
    for path, note in slurm_record.notes_of(spool, start).items():
        try:
            yield from _settled(spool, (path, note), (start, now_unix_s), key)
        except MpicolocError as error:
            yield error
    try:
        yield from _allocated(spool, start, key)
    except MpicolocError as error:
        yield error


def _allocated(spool: str, start: Start, key: signature.Key) -> Iterator[str]:
    """Make the record of a job of `srun` or `salloc` alone, whose steps need not fill its time."""
    if start.told["BatchFlag"] != "0":
        return  # its script pays, unless its user had that not measured
    known = slurm_record.recorded(spool, start)
    noted = {note.step for note in slurm_record.notes_of(spool, start).values()}
    # Slurm requeues scripts only, and tells the start of one that it requeues no more.
    if not known or (known | noted).intersection(SCRIPTS) or start.told["RestartCnt"] != "0":
        return
    user, ended = slurm_close.user_name(start.uid), start.told["EndTime"]
    if not ended.isdecimal():
        raise DataError(f"Slurm has no end of job {start.job} ({ended!r}): it has no record")
    record = slurm_record.parsed(start, (ALLOCATION, ""), user, float(ended))
    made = slurm_record.put(spool, start.name(ALLOCATION), record, key)
    yield from [made] if made else []


def left(spool: str, key: signature.Key) -> Iterator[str | MpicolocError]:
    """Make the records that are missing of all jobs, where no epilog did it.

    Their first node has died, or slurmctld did not answer there. A job that runs, or whose epilog may yet
    come, is left alone.

    Parameters
    ----------
    spool : str
        The folder.
    key : bytes or KeyFile
        The site's.

    Yields
    ------
    str or MpicolocError
        As of `of_job`.

    Raises
    ------
    EnvironmentFault
        If slurmctld does not answer, or the spool cannot be read.
    """
    yield from _notes_left(spool, key)
    # After these, as a job of which a step has a record has one of its own.
    yield from _allocations_left(spool, key)


def _notes_left(spool: str, key: signature.Key) -> Iterator[str | MpicolocError]:
    """Make the records of steps of which there is a note."""
    notes: list[tuple[str, StepNote]] = []
    for path in step_note.paths(spool):
        try:
            note = step_note.read(path)
            notes += [(path, note)] if note and not _is_late(spool, (path, note), key) else []
        except MpicolocError as error:
            yield error
    jobs: dict[tuple[int, int], Start | None] = {}
    for path, note in notes:
        job = note.job, note.uid
        if job not in jobs:
            jobs[job] = _known(*job)
        same = [other for _, other in notes if (other.job, other.uid) == job]
        try:
            ended = _ended(spool, (path, note), jobs[job], same, key)
            yield from _settled(spool, (path, note), ended, key) if ended else ()
        except MpicolocError as error:
            yield error


def _allocations_left(spool: str, key: signature.Key) -> Iterator[str | MpicolocError]:
    """Make the records of marked jobs that are over."""
    marked = step_note.marked(spool)  # before Slurm is asked, so that it knows those that run
    known = _without_script() if marked else {}
    for job in marked:
        uid, state = known.get(job, (0, ""))
        try:
            if job not in known:
                raise Refused(_forgotten(spool, job))
            start = _known(job, uid) if state in _OVER else None
            if start is not None:
                yield from _allocated(spool, start, key)
                step_note.unmark(spool, job)
        except Away:
            raise
        except MpicolocError as error:
            yield error


def _without_script() -> dict[int, tuple[int, str]]:
    """User and state of all jobs without a script that Slurm knows, in one answer for thousands."""
    # Nothing of it is a user's word, so none can look like another job's line.
    fields = ("JobID", "UserID", "StateCompact", "BatchFlag")
    wanted = ",".join(f"{name}:24" for name in fields)
    told = slurm_close.ask(["squeue", "--noheader", "--all", "--states=all", "--Format", wanted])
    rows = [row for row in map(str.split, told.splitlines()) if len(row) == len(fields)]
    return {int(job): (int(uid), state) for job, uid, state, batch_flag in rows if batch_flag == "0"}


def _forgotten(spool: str, job: int) -> str:
    return (
        f"no record of job {job} itself, which had no script, as Slurm no longer has it: only its steps are "
        f"charged. See `sacct -D -j {job} -o JobID,Submit,Start,End,NCPUS,Account` for what it had, and "
        f"remove {step_note.mark_of(spool, job)}"
    )


@dataclass(frozen=True)
class Told:
    """What the site tells of a job that Slurm has forgotten, as `sacct` has it; times in s since 1970.

    `submitted_unix_s` is of the start in question: a requeued job has one for each. `account` None: it had
    none; `ended_unix_s` None: the notes of all of its steps have their end.
    """

    job: int
    submitted_unix_s: int
    ended_unix_s: float | None
    account: str | None
    cluster: str


def by_hand(spool: str, key: signature.Key, told: Told) -> Iterator[str | MpicolocError]:
    """Make the records of one start of a job by what the site tells of it; as `left` else.

    Raises
    ------
    UsageError
        If there is no note of it.
    """
    start = Start(told.job, 0, told.submitted_unix_s, told.submitted_unix_s, False, str(told.job))
    found = {}
    for path in step_note.paths(spool, told.job):
        note = step_note.read(path)
        if note is None or not slurm_record.is_of(replace(start, uid=note.uid), note):
            continue
        if _is_late(spool, (path, note), key):
            continue
        if told.ended_unix_s is None or note.begun_unix_s <= told.ended_unix_s:  # else of a later start
            found[path] = note
    if not found:
        raise UsageError(
            f"no step of job {told.job} that was submitted at {told.submitted_unix_s} waits for its record"
        )
    row = _row(told, list(found.values()))
    for path, note in found.items():
        ended_s = note.ended_unix_s if told.ended_unix_s is None else told.ended_unix_s
        if ended_s is None:
            yield UsageError(f"the end of step {note.name} is unknown: give that of its job with --ended")
        else:
            of_note = replace(start, uid=note.uid, told=row)
            yield from _settled(spool, (path, note), (of_note, ended_s), key)


def _row(told: Told, notes: Sequence[StepNote]) -> dict[str, str]:
    """As squeue would have told it, as far as anybody knows."""
    values = {
        "SubmitTime": told.submitted_unix_s,
        "StartTime": int(min(note.begun_unix_s for note in notes)),
        "NumNodes": max(note.n_nodes for note in notes),
        "NumCPUs": max(note.n_cpus_here * note.n_nodes for note in notes),
        "JobCPUs": "",  # it may have had more than each of these steps
        "Account": told.account or "",
        "Cluster": told.cluster,
        "RestartCnt": 0,
        "ArrayTaskID": "N/A",
        "Partition": "",
        "TimeUsed": "",
    }
    return {name: str(value) for name, value in values.items()}


def _is_late(spool: str, noted: tuple[str, StepNote], key: signature.Key) -> bool:
    """Whether a writer that hung has put back the note of a step that has its record; it is removed then."""
    path, note = noted
    sealed = None
    for other in step_record.paths(spool, note.job):
        with contextlib.suppress(MpicolocError):
            sealed = step_record.read(other)
        if sealed and not sealed.reason(key) and _is_of(note, sealed.record):
            step_note.remove(path)
            return True
    return False


def _is_of(note: StepNote, record: StepRecord) -> bool:
    """Steps of two starts of a job never run at one time. Slurm tells their begin in whole seconds."""
    after_s = note.begun_unix_s - record.step_start_unix_s
    return (record.uid, record.step) == (note.uid, note.step) and -1.0 <= after_s <= record.ran_s


def _settled(
    spool: str, noted: tuple[str, StepNote], ended: tuple[Start, float], key: signature.Key
) -> Iterator[str]:
    """Make the record of a note of this start of a job, whose steps ended then at the latest, s."""
    (path, note), (start, ended_unix_s) = noted, ended
    record = slurm_record.noted(start, note, ended_unix_s)
    made = slurm_record.put(spool, start.name(note.step), record, key)
    if start.told.get("BatchFlag") == "0":
        step_note.mark(spool, start.job)  # as at the end of a step that was seen
    step_note.remove(path)
    yield from [made] if made else []


def _known(job: int, uid: int) -> Start | None:
    try:
        return slurm_close.start_of(job, uid)
    except Away:
        raise
    except EnvironmentFault:
        return None


def _ended(
    spool: str, noted: tuple[str, StepNote], start: Start | None, same: Sequence[StepNote], key: signature.Key
) -> tuple[Start, float] | None:
    """The start of its job that a note is of, and when it ended, s; None: it may run still.

    Parameters
    ----------
    spool : str
        The folder.
    noted : (str, StepNote)
        The note and its file.
    start : Start or None
        What Slurm knows of the job.
    same : sequence of StepNote
        All notes of the job.
    key : bytes or KeyFile
        The site's.

    Raises
    ------
    Refused
        If Slurm does not know it any more.
    """
    (path, note), row = noted, start.told if start else {}
    state = row.get("StateCompact")
    if start and slurm_record.is_of(start, note):
        return (start, float(row["EndTime"])) if state in _OVER else None
    if start and state == "CG":
        return None
    if start and row["RestartCnt"] == "1":
        earlier = [other for other in same if not slurm_record.is_of(start, other)]
        return _first(spool, start, earlier, key), float(start.submitted_unix_s)
    raise Refused(_lost(path, note))


def _first(spool: str, start: Start, notes: Sequence[StepNote], key: signature.Key) -> Start:
    """The first start of a job that was requeued since: its SubmitTime is now that of the second one.

    It is that of the records which were made in time, or, where there are none, when the first step began: no
    other start of the job can have that one.
    """
    began_s = min(note.begun_unix_s for note in notes)
    submitted_s = int(began_s)
    for path in step_record.paths(spool, start.job):
        sealed = step_record.read(path)
        if sealed and not sealed.reason(key):
            record = sealed.record
            if (record.uid, record.restarts) == (start.uid, 0) and record.job_submit_unix_s <= began_s + 1.0:
                submitted_s = int(record.job_submit_unix_s)
    n_cpus = max(int(start.told["NumCPUs"]), *(note.n_cpus_here * note.n_nodes for note in notes))
    told = {
        "SubmitTime": submitted_s,
        "StartTime": int(began_s),
        "RestartCnt": 0,
        "NumCPUs": n_cpus,
        "TimeUsed": "",
    }
    row = {**start.told, **{name: str(value) for name, value in told.items()}}
    return replace(start, submitted_unix_s=submitted_s, is_running=False, told=row)


def _lost(path: str, note: StepNote) -> str:
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
