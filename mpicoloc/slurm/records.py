"""Records and notes of steps: JSON files in the spool, beside the signed profiles.

A record is what Slurm said of a step when it ended, with the site's code on it: who ran it, on how many cores
and for how long. The profile tells how much the step was slowed down, as its user's programs measured it.
Root queries a record on the step's first node before slurmctld forgets the step. Users cannot forge it: texts
that a user chooses could look like other fields, so they are not read or stand last.

A note is of a step that has begun, until the step has its record. The Slurm plugin writes it as root in C
(``csrc/spank/notes.c``), without a query to Slurm; fields that slurmctld has forgotten are taken from it, so
that records which are missing, because slurmctld was away or a node died, can be made later. Beside the notes
lie marks: a mark says that steps of a job of `srun` or `salloc` alone have records, so the job itself needs
one too.
"""

from __future__ import annotations

import contextlib
import glob
import hmac
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from mpicoloc.core.batch_system import ALLOCATION, SCRIPTS, StepRecord, step_record_of
from mpicoloc.core.plain_values import dataclass_from
from mpicoloc.core.units import slurm_seconds
from mpicoloc.errors import (
    MALFORMED,
    DataError,
    EnvironmentFault,
    MpicolocError,
    Refused,
    UsageError,
    printable,
)
from mpicoloc.profile import signature
from mpicoloc.profile.signature import ALGORITHM, Key, key_id, mac
from mpicoloc.slurm import client
from mpicoloc.slurm.client import ControllerAway, Start

T = TypeVar("T")
STEP = re.compile(r"\d{1,10}|batch|interactive")
NOTES_FOLDER = ".steps"
"""In the spool; root's only."""
NOTE_MAX_BYTES, MAX_BYTES = 1 << 12, 1 << 16
VERSION = 1
SKEW_S = 60.0
"""By how much the clocks of a node and of slurmctld may differ, s."""


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
    path : str
        Its file.
    """

    job: int
    step: str
    uid: int
    n_nodes: int
    n_cpus_here: int
    begun_unix_s: float
    ended_unix_s: float | None
    path: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Job and step, as Slurm writes them."""
        return f"{self.job}.{self.step}"


def note_paths(spool: str, job: int | None = None) -> list[str]:
    """Files of the notes in a spool, of one job or of all, in the order of their names."""
    start = "[0-9]" if job is None else f"{job}."
    return sorted(glob.glob(os.path.join(glob.escape(spool), NOTES_FOLDER, f"{start}*.json")))


def read_note(path: str) -> StepNote | None:
    """The note in a file; None: it is gone, as its record was made.

    Raises `DataError` if it is no note, or one of another version, or not root's. Raises `EnvironmentFault`
    if it cannot be read.
    """

    def make(values: dict[str, Any]) -> StepNote:
        found = dataclass_from(StepNote, values, path=path)
        if not (found.step.isdecimal() or found.step in SCRIPTS):
            raise ValueError(found.step)
        return found

    damaged = "is not a note of a step: it is damaged. Look its job up with `sacct`, and remove it"
    return _read(path, make, damaged, NOTE_MAX_BYTES, is_roots=True)


def _read(
    path: str, make: Callable[[dict[str, Any]], T], damaged: str, max_bytes: int, *, is_roots: bool = False
) -> T | None:
    """The result of `make` for a JSON file; None: there is none."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if is_roots else 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            status, content = os.fstat(file.fileno()), file.read(max_bytes + 1)
        if is_roots and not (stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid())):
            raise DataError(f"{path} is not owned by root, so the plugin did not write it: remove it")
        values = json.loads(content) if len(content) <= max_bytes else {}
        version = values["schema_version"]
        if version != VERSION:
            raise DataError(f"{path} has version {version!r}, this mpicoloc reads {VERSION}: use a newer one")
        return make(values)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}") from error
    except (AttributeError, *MALFORMED) as error:
        raise DataError(f"{path} {damaged}") from error


def mark_job(spool: str, job: int) -> None:
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


def unmark_job(spool: str, job: int) -> None:
    """Remove the mark of a job that has its records, if there is one; errors as of `remove`."""
    remove_note(mark_path(spool, job))


def marked_jobs(spool: str) -> list[int]:
    """Jobs that have a mark."""
    names = map(os.path.basename, glob.glob(mark_path(glob.escape(spool), "*")))
    return sorted(int(job) for job in (name.partition(".")[0] for name in names) if job.isdecimal())


def mark_path(spool: str, job: int | str) -> str:
    """Path of a job's mark; its ending is not ``.json``, so it is not read as a note."""
    return os.path.join(spool, NOTES_FOLDER, f"{job}.allocation")


def remove_note(path: str) -> None:
    """Remove a note whose step has its record.

    Raises `EnvironmentFault` if the folder refuses.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be removed: {error.strerror}") from error


@dataclass(frozen=True)
class Sealed:
    """A record as its file has it; nothing of it is checked before `reason`."""

    record: StepRecord
    covered: bytes
    key_id: str
    code: str

    def reason(self, key: Key) -> str:
        """Why this is not as the holder of `key` wrote it; empty: it is."""
        # In constant time, so that no caller can find the code byte by byte.
        if hmac.compare_digest(mac(key, self.covered).encode(), self.code.encode("utf-8", "replace")):
            return ""
        if self.key_id != key_id(key):
            return f"Slurm's record has the code of another key ({printable(self.key_id)[:32]})"
        return "Slurm's record was changed after it was written"


def record_path(profile: str) -> str:
    """Where the record of a profile in a spool is."""
    return os.path.splitext(profile)[0] + ".json"


def record_paths(spool: str, job: int) -> list[str]:
    """Records of a job's steps in a spool, of all of its starts, in the order of their names."""
    return sorted(glob.glob(os.path.join(glob.escape(spool), f"{job}.*.json")))


def write_sealed(path: str, record: StepRecord, key: Key) -> bool:
    """Write a record whole or not at all, readable by its owner only; False: there is one, which stays.

    Raises `EnvironmentFault` if the folder or disk refuses.
    """
    text = json.dumps(seal(record, key), indent=1, allow_nan=False) + "\n"
    try:
        handle, new = tempfile.mkstemp(
            prefix=".mpicoloc-", suffix=".part", dir=os.path.dirname(os.path.abspath(path))
        )
        try:
            with open(handle, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(handle)
            os.link(new, path)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}") from error
    return True


def seal(record: StepRecord, key: Key) -> dict[str, Any]:
    """The record as plain values, with its code."""
    values = {"schema_version": VERSION, **asdict(record)}
    code = mac(key, _covered(values))
    return {**values, "signature": {"algorithm": ALGORITHM, "key_id": key_id(key), "code": code}}


def read_record(path: str) -> Sealed | None:
    """The record in a file; None: there is no such file.

    Raises `DataError` if it is no record, or one of another version. Raises `EnvironmentFault` if it cannot
    be read.
    """

    def make(values: dict[str, Any]) -> Sealed:
        code = values.pop("signature")
        return Sealed(step_record_of(values), _covered(values), str(code["key_id"]), str(code["code"]))

    return _read(path, make, "is not a record of Slurm's: it is damaged", MAX_BYTES)


def _covered(values: dict[str, Any]) -> bytes:
    """One text for the same values, however the file is laid out."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


_STEP_LINE = re.compile(r"StepId=\S+ UserId=\d+ StartTime=(\d+) .*? Nodes=(\d+) CPUs=(\d+) ")


def record_ended_step(
    start: Start, step: str, key: signature.Key, spool: str, ended_unix_s: float
) -> str | None:
    """Write the record of a step that ends now into the spool, beside the place of its profile.

    The profile of a killed step comes later, when Slurm has forgotten the step. The step's note is removed. A
    job without a script gets a mark: its epilog then writes the record of the job itself.

    Result: where the record is; None: there is one of that name. Raises `EnvironmentFault` if slurmctld does
    not answer, or knows the step no more and there is no note of it, or the spool cannot be written. Raises
    `DataError` if its answer is not understood: another version of Slurm.
    """
    if not STEP.fullmatch(step):
        raise UsageError(f"step {step!r}: give its number, batch or interactive")
    notes = [note for note in read_notes(spool, start) if note.step == step]
    name = start.name(step)
    written = None
    if not os.path.lexists(record_path(os.path.join(spool, name))):
        record = _record_of_ended(start, step, notes[0] if notes else None, ended_unix_s)
        written = write_record(spool, name, record, key)
    if start.fields["BatchFlag"] == "0":
        mark_job(spool, start.job)  # before the note goes, so that there is always one of them
    for note in notes:
        remove_note(note.path)
    return written


def write_record(spool: str, name: str, record: StepRecord, key: signature.Key) -> str | None:
    """Write a record beside where the profile of this name is or will be.

    Result: its path; None: there is one, which stays. Raises `EnvironmentFault` if the spool cannot be
    written.
    """
    path = record_path(os.path.join(spool, name))
    return path if write_sealed(path, replace(record, profile=name), key) else None


def read_notes(spool: str, start: Start) -> list[StepNote]:
    """Notes of the steps of this start of a job; those that cannot be read are left out."""
    found = []
    for path in note_paths(spool, start.job):
        with contextlib.suppress(DataError, EnvironmentFault):
            note = read_note(path)
            if note is not None and is_note_of(start, note):
                found.append(note)
    return found


def recorded_steps(spool: str, start: Start) -> set[str]:
    """Steps of this start of a job that have a record."""
    names = (os.path.basename(path) for path in record_paths(spool, start.job))
    return {name.split(".")[-2] for name in names if name.startswith(f"{start.stem}.")}


def split_by_known_steps(
    found: Sequence[tuple[str, str]], spool: str, start: Start
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Profiles of steps that Slurm has begun, and all others, which a user may lay there."""
    steps = recorded_steps(spool, start) | {note.step for note in read_notes(spool, start)}
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


def _record_of_ended(start: Start, step: str, note: StepNote | None, ended_unix_s: float) -> StepRecord:
    """Record of a step that ends now: from Slurm if it still knows the step, else from the note."""
    if note is None or not is_leaving(start, note):
        # Of scripts scontrol shows nothing, or all steps, with names that look like others.
        command = ["scontrol", "--oneliner", "show", "step", f"{start.job}.{step}"]
        try:
            text = "" if step in SCRIPTS else client.ask(command)
            return parse_step(start, step, text, client.user_name(start.uid), ended_unix_s)
        except (EnvironmentFault, DataError) as error:
            if note is None or isinstance(error, ControllerAway):
                raise
    return record_from_note(start, note, ended_unix_s)


def is_leaving(start: Start, note: StepNote) -> bool:
    """Whether a requeued job is leaving its nodes; Slurm then no longer has its start and run time."""
    begun = start.fields.get("StartTime", "")
    is_later = begun.isdecimal() and int(begun) > note.begun_unix_s + 1.0
    return not start.is_running and is_later and _restarts(start.fields) > 0


def parse_step(start: Start, step: str, text: str, user: str, ended_unix_s: float) -> StepRecord:
    """Record from Slurm's answers; errors as of `record_ended_step`."""
    own = None
    if step not in SCRIPTS:
        found = _STEP_LINE.match(text)
        if found is None:
            raise _not_understood(start, step, ValueError(f"no step: {text[:80]!r}"))
        own = float(found[1]), int(found[2]), int(found[3])
    return _make_record(start, step, own, user, ended_unix_s)


def record_from_note(start: Start, note: StepNote, ended_unix_s: float) -> StepRecord:
    """Record of a step that Slurm has forgotten: the step's fields from its note, the job's from Slurm.

    Raises `DataError` if Slurm's answer about the job is not understood.
    """
    row = start.fields
    if is_leaving(start, note):
        row = _changed(row, StartTime=int(note.begun_unix_s), RestartCnt=_restarts(row) - 1, TimeUsed="")
    ended_s = ended_unix_s if note.ended_unix_s is None else note.ended_unix_s
    own = None
    if note.step not in SCRIPTS:
        most = int(row["NumCPUs"]) if row.get("NumCPUs", "").isdecimal() else 0
        own = note.begun_unix_s, note.n_nodes, min(note.n_cpus_here * note.n_nodes, most)
    return _make_record(replace(start, fields=row), note.step, own, client.user_name(start.uid), ended_s)


def _changed(row: Mapping[str, str], **values: object) -> dict[str, str]:
    """Fields as squeue would have printed them with these values."""
    return {**row, **{name: str(value) for name, value in values.items()}}


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
    for note in read_notes(spool, start):
        yield from _attempt(_write_from_note(spool, note, start, now_unix_s, key))
    yield from _attempt(_write_allocation(spool, start, key))


def _attempt(made: Iterator[str]) -> Iterator[str | MpicolocError]:
    """The result, or the error instead; that slurmctld does not answer is raised."""
    try:
        yield from made
    except ControllerAway:
        raise
    except MpicolocError as error:
        yield error


def _write_allocation(spool: str, start: Start, key: signature.Key) -> Iterator[str]:
    """Write the record of a job of `srun` or `salloc` alone, whose steps may not fill its time."""
    if start.fields["BatchFlag"] != "0":
        return  # its script pays, unless its user had that not measured
    known = recorded_steps(spool, start)
    noted = {note.step for note in read_notes(spool, start)}
    # Slurm requeues scripts only, and tells the start of one that it requeues no more.
    if not known or (known | noted).intersection(SCRIPTS) or start.fields["RestartCnt"] != "0":
        return
    user, ended = client.user_name(start.uid), start.fields["EndTime"]
    if not ended.isdecimal():
        raise DataError(f"Slurm has no end of job {start.job} ({ended!r}): it has no record")
    record = parse_step(start, ALLOCATION, "", user, float(ended))
    made = write_record(spool, start.name(ALLOCATION), record, key)
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
    notes: list[StepNote] = []
    for path in note_paths(spool):
        try:
            note = read_note(path)
            notes += [note] if note and not _has_record_already(spool, note, key) else []
        except MpicolocError as error:
            yield error
    jobs: dict[tuple[int, int], Start | None] = {}
    for note in notes:
        job = note.job, note.uid
        if job not in jobs:
            jobs[job] = _query_start(*job)
        same = [other for other in notes if (other.job, other.uid) == job]
        yield from _attempt(_settle_note(spool, note, jobs[job], same, key))


def _settle_note(
    spool: str, note: StepNote, start: Start | None, same: Sequence[StepNote], key: signature.Key
) -> Iterator[str]:
    """Write the record of a note whose job, now in this start, may have ended; `same` are all of its notes.

    Raises `Refused` if Slurm does not know the job any more.
    """
    row = start.fields if start else {}
    state = row.get("StateCompact")
    if start and is_note_of(start, note):
        if state in _ENDED_STATES:
            yield from _write_from_note(spool, note, start, float(row["EndTime"]), key)
    elif start and state == "CG":
        return  # its epilog may yet come
    elif start and row["RestartCnt"] == "1":
        first = _first_start(spool, start, [other for other in same if not is_note_of(start, other)], key)
        yield from _write_from_note(spool, note, first, float(start.submitted_unix_s), key)
    else:
        raise Refused(_forgotten_step(note))


def _settle_allocations(spool: str, key: signature.Key) -> Iterator[str | MpicolocError]:
    """Write the records of marked jobs that have ended."""
    marked = marked_jobs(spool)  # read first: a job marked later may be unknown to the answer
    known = _jobs_without_script() if marked else {}
    for job in marked:
        yield from _attempt(_settle_allocation(spool, job, known.get(job), key))


def _settle_allocation(
    spool: str, job: int, known: tuple[int, str] | None, key: signature.Key
) -> Iterator[str]:
    if known is None:
        raise Refused(_forgotten_job(spool, job))
    uid, state = known
    start = _query_start(job, uid) if state in _ENDED_STATES else None
    if start is not None:
        yield from _write_allocation(spool, start, key)
        unmark_job(spool, job)


def _jobs_without_script() -> dict[int, tuple[int, str]]:
    """User and state of all jobs without a script, by number: one query for thousands of jobs."""
    # No field is a user's text, so none can look like another job's line.
    fields = ("JobID", "UserID", "StateCompact", "BatchFlag")
    wanted = ",".join(f"{name}:24" for name in fields)
    answer = client.ask(["squeue", "--noheader", "--all", "--states=all", "--Format", wanted])
    rows = [row for row in map(str.split, answer.splitlines()) if len(row) == len(fields)]
    return {int(job): (int(uid), state) for job, uid, state, batch_flag in rows if batch_flag == "0"}


def _forgotten_job(spool: str, job: int) -> str:
    return (
        f"no record of job {job} itself, which had no script, as Slurm no longer has it: only its steps are "
        f"charged. See `sacct -D -j {job} -o JobID,Submit,Start,End,NCPUS,Account` for what it had, and "
        f"remove {mark_path(spool, job)}"
    )


def settle_stated_job(
    spool: str, key: signature.Key, start: Start, ended_unix_s: float | None
) -> Iterator[str | MpicolocError]:
    """Write the records of one start of a job that Slurm has forgotten, as the site states it from `sacct`.

    `start` is of user 0, with Account and Cluster; `ended_unix_s` None: the notes of all of its steps have
    their end. Yields as `settle_all`. Raises `UsageError` if there is no note of it.
    """
    found = []
    for path in note_paths(spool, start.job):
        note = read_note(path)
        if note is None or not is_note_of(replace(start, uid=note.uid), note):
            continue
        is_later = ended_unix_s is not None and note.begun_unix_s > ended_unix_s  # of a later start
        if not _has_record_already(spool, note, key) and not is_later:
            found.append(note)
    if not found:
        raise UsageError(
            f"no step of job {start.job} that was submitted at {start.submitted_unix_s} waits for its record"
        )
    row = _squeue_row(start, found)
    for note in found:
        ended_s = note.ended_unix_s if ended_unix_s is None else ended_unix_s
        if ended_s is None:
            yield UsageError(f"the end of step {note.name} is unknown: give that of its job with --ended")
        else:
            of_note = replace(start, uid=note.uid, fields=row)
            yield from _write_from_note(spool, note, of_note, ended_s, key)


def _squeue_row(start: Start, notes: Sequence[StepNote]) -> dict[str, str]:
    """Fields as squeue would have printed them; unknown ones are empty."""
    return _changed(
        start.fields,
        SubmitTime=start.submitted_unix_s,
        StartTime=int(min(note.begun_unix_s for note in notes)),
        NumNodes=max(note.n_nodes for note in notes),
        NumCPUs=max(note.n_cpus_here * note.n_nodes for note in notes),
        JobCPUs="",  # it may have had more than each of these steps
        RestartCnt=0,
        ArrayTaskID="N/A",
        Partition="",
        TimeUsed="",
    )


def _has_record_already(spool: str, note: StepNote, key: signature.Key) -> bool:
    """Remove a note whose step has a record already (a hung writer leaves one); whether it was removed."""
    sealed = None
    for other in record_paths(spool, note.job):
        with contextlib.suppress(MpicolocError):
            sealed = read_record(other)
        if sealed and not sealed.reason(key) and _is_record_of(note, sealed.record):
            remove_note(note.path)
            return True
    return False


def _is_record_of(note: StepNote, record: StepRecord) -> bool:
    """Whether note and record are of one step. Slurm tells whole seconds only."""
    after_s = note.begun_unix_s - record.step_start_unix_s
    return (record.uid, record.step) == (note.uid, note.step) and -1.0 <= after_s <= record.ran_s


def _write_from_note(
    spool: str, note: StepNote, start: Start, ended_unix_s: float, key: signature.Key
) -> Iterator[str]:
    """Write the record of a note; `ended_unix_s` is the latest end of its job."""
    made = write_record(spool, start.name(note.step), record_from_note(start, note, ended_unix_s), key)
    if start.fields.get("BatchFlag") == "0":
        mark_job(spool, start.job)  # as at the end of a step that was seen
    remove_note(note.path)
    yield from [made] if made else []


def _query_start(job: int, uid: int) -> Start | None:
    try:
        return client.query_start(job, uid)
    except ControllerAway:
        raise
    except EnvironmentFault:
        return None


def _first_start(spool: str, start: Start, notes: Sequence[StepNote], key: signature.Key) -> Start:
    """The first start of a job that was requeued since, so that SubmitTime is now the second start's.

    The first start's submit time is taken from its records, else the begin of its first step stands for it:
    no other start of the job can have that time.
    """
    began_s = min(note.begun_unix_s for note in notes)
    submitted_s = int(began_s)
    for path in record_paths(spool, start.job):
        sealed = read_record(path)
        if sealed and not sealed.reason(key):
            record = sealed.record
            if (record.uid, record.restarts) == (start.uid, 0) and record.job_submit_unix_s <= began_s + 1.0:
                submitted_s = int(record.job_submit_unix_s)
    n_cpus = max(int(start.fields["NumCPUs"]), *(note.n_cpus_here * note.n_nodes for note in notes))
    row = _changed(
        start.fields,
        SubmitTime=submitted_s,
        StartTime=int(began_s),
        RestartCnt=0,
        NumCPUs=n_cpus,
        TimeUsed="",
    )
    return replace(start, submitted_unix_s=submitted_s, is_running=False, fields=row)


def _forgotten_step(note: StepNote) -> str:
    begun, ended = (_time(time_s) for time_s in (note.begun_unix_s, note.ended_unix_s))
    return (
        f"no record of step {note.name} of user {note.uid}, {note.n_cpus_here} CPUs on its first node of "
        f"{note.n_nodes}, from {begun} to {ended}: Slurm has forgotten its job; look it up with "
        f"`SLURM_TIME_FORMAT=%s sacct -D -j {note.job} -o JobID,Submit,End,Account`, and pass the values to "
        f"`mpicoloc slurm settle --job --submitted --ended --account`; or remove {note.path}"
    )


def _time(time_s: float | None) -> str:
    return (
        "an unknown end" if time_s is None else f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S UTC}"
    )
