"""Records and notes of steps: JSON files in the spool, beside the signed profiles.

A record holds Slurm's data about a step at its end, signed with the site's key: who ran the step, on how many
cores and for how long. The profile holds the step's slowdown, as the user's programs measured it. Root
queries Slurm for the record on the step's first node, before slurmctld forgets the step. Users cannot forge a
record: text that a user chooses could look like another field, so it is either not read or comes last.

A note describes a step that has begun, and exists until the step has its record. The Slurm plugin writes the
note as root in C (``csrc/spank/notes.c``), without a query to Slurm. If slurmctld did not answer or a node
died, the record is written later, and the note supplies the fields that slurmctld has forgotten. The notes'
folder also holds marks: a mark says that steps of a job without a script (`srun` or `salloc` only) have
records, so the job itself needs one too.
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
"""Subfolder of the spool that only root can read."""
NOTE_MAX_BYTES, MAX_BYTES = 1 << 12, 1 << 16
VERSION = 1
SKEW_S = 60.0
"""Largest accepted difference between the clocks of a node and of slurmctld, s."""


@dataclass(frozen=True)
class StepNote:
    """Data about one step, recorded on its first node.

    Attributes
    ----------
    job, step : int, str
        Slurm's number of the job; Slurm's number of the step, ``batch`` (the script) or ``interactive``.
    uid : int
        The user who runs the step.
    n_nodes, n_cpus_here : int
        Nodes of the step, and its CPUs on the first node.
    begun_unix_s, ended_unix_s : float, float or None
        Start of the step's tasks, and end of the last task on the first node, s. The end is None while tasks
        run, or if nothing recorded it.
    path : str
        The note's file.
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
    """Sorted paths of the notes in a spool: of one job, or of all jobs."""
    start = "[0-9]" if job is None else f"{job}."
    return sorted(glob.glob(os.path.join(glob.escape(spool), NOTES_FOLDER, f"{start}*.json")))


def read_note(path: str) -> StepNote | None:
    """Read the note in a file. Returns None if the file is gone, because the step has its record.

    Raises `DataError` if the file is not a note, has another version or is not owned by root. Raises
    `EnvironmentFault` if it cannot be read.
    """

    def make(values: dict[str, Any]) -> StepNote:
        found = dataclass_from(StepNote, values, path=path)
        if not (found.step.isdecimal() or found.step in SCRIPTS):
            raise ValueError(found.step)
        return found

    damaged = "is not a note of a step: it is damaged. Look its job up with `sacct`, and remove the file"
    return _read(path, make, damaged, NOTE_MAX_BYTES, is_roots=True)


def _read(
    path: str, make: Callable[[dict[str, Any]], T], damaged: str, max_bytes: int, *, is_roots: bool = False
) -> T | None:
    """Apply `make` to the values of a JSON file. Returns None if the file does not exist."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_NOFOLLOW if is_roots else 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            status, content = os.fstat(file.fileno()), file.read(max_bytes + 1)
        if is_roots and not (stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid())):
            raise DataError(f"{path} is not owned by root, so the plugin did not write it: remove it")
        values = json.loads(content) if len(content) <= max_bytes else {}
        version = values["schema_version"]
        if version != VERSION:
            raise DataError(f"{path} has version {version!r}, but this mpicoloc reads {VERSION}: upgrade")
        return make(values)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}") from error
    except (AttributeError, *MALFORMED) as error:
        raise DataError(f"{path} {damaged}") from error


def mark_job(spool: str, job: int) -> None:
    """Mark a job, so that its epilog (``mn_has`` in C) writes a record of the job itself.

    Raises `EnvironmentFault` if the mark cannot be written.
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
    """Remove the mark, if any, of a job that has all its records. Raises the errors of `remove_note`."""
    remove_note(mark_path(spool, job))


def marked_jobs(spool: str) -> list[int]:
    """Jobs that have a mark."""
    names = map(os.path.basename, glob.glob(mark_path(glob.escape(spool), "*")))
    return sorted(int(job) for job in (name.partition(".")[0] for name in names) if job.isdecimal())


def mark_path(spool: str, job: int | str) -> str:
    """Path of a job's mark. The mark does not end in ``.json``, so it is not read as a note."""
    return os.path.join(spool, NOTES_FOLDER, f"{job}.allocation")


def remove_note(path: str) -> None:
    """Remove a note whose step has its record.

    Raises `EnvironmentFault` if the note cannot be removed.
    """
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be removed: {error.strerror}") from error


@dataclass(frozen=True)
class Sealed:
    """The unverified content of a record's file: call `reason` to verify it."""

    record: StepRecord
    covered: bytes
    key_id: str
    code: str

    def reason(self, key: Key) -> str:
        """The reason to doubt that the holder of `key` wrote the record; empty if there is no doubt."""
        # Compare in constant time: the timing must not reveal how many bytes of a forged code are right.
        if hmac.compare_digest(mac(key, self.covered).encode(), self.code.encode("utf-8", "replace")):
            return ""
        if self.key_id != key_id(key):
            return f"Slurm's record has the code of another key ({printable(self.key_id)[:32]})"
        return "Slurm's record was changed after it was written"


def record_path(profile: str) -> str:
    """Path of the record that belongs to a profile in a spool."""
    return os.path.splitext(profile)[0] + ".json"


def record_paths(spool: str, job: int) -> list[str]:
    """Sorted paths of the records of a job's steps in a spool, for all starts of the job."""
    return sorted(glob.glob(os.path.join(glob.escape(spool), f"{job}.*.json")))


def write_sealed(path: str, record: StepRecord, key: Key) -> bool:
    """Write a record atomically, readable by its owner only. An existing record stays; returns False then.

    Raises `EnvironmentFault` if the record cannot be written.
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
    """The record as plain values, with its authentication code."""
    values = {"schema_version": VERSION, **asdict(record)}
    code = mac(key, _covered(values))
    return {**values, "signature": {"algorithm": ALGORITHM, "key_id": key_id(key), "code": code}}


def read_record(path: str) -> Sealed | None:
    """Read the record in a file. Returns None if the file does not exist.

    Raises `DataError` if the file is not a record or has another version. Raises `EnvironmentFault` if it
    cannot be read.
    """

    def make(values: dict[str, Any]) -> Sealed:
        code = values.pop("signature")
        return Sealed(step_record_of(values), _covered(values), str(code["key_id"]), str(code["code"]))

    return _read(path, make, "is not a Slurm record: it is damaged", MAX_BYTES)


def _covered(values: dict[str, Any]) -> bytes:
    """The bytes that the code covers: canonical JSON, which does not depend on the file's layout."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


_STEP_LINE = re.compile(r"StepId=\S+ UserId=\d+ StartTime=(\d+) .*? Nodes=(\d+) CPUs=(\d+) ")


def record_ended_step(
    start: Start, step: str, key: signature.Key, spool: str, ended_unix_s: float
) -> str | None:
    """Write the record of a step that ends now into the spool, next to its profile.

    The record cannot wait for the profile: if the step was killed, the profile arrives after Slurm has
    forgotten the step. The step's note is removed. A job without a script gets a mark, so that its epilog
    writes a record of the job itself.

    Result: path of the record; None if a record of that name exists. Raises `EnvironmentFault` if slurmctld
    does not answer, if it has forgotten a step that has no note, or if the spool cannot be written. Raises
    `DataError` if Slurm's answer is not understood, as from another version of Slurm.
    """
    if not STEP.fullmatch(step):
        raise UsageError(f"step {step!r} is not valid: give its number, batch or interactive")
    notes = [note for note in read_notes(spool, start) if note.step == step]
    name = start.name(step)
    written = None
    if not os.path.lexists(record_path(os.path.join(spool, name))):
        record = _record_of_ended(start, step, notes[0] if notes else None, ended_unix_s)
        written = write_record(spool, name, record, key)
    if start.fields["BatchFlag"] == "0":
        mark_job(spool, start.job)  # before the note is removed, so that a mark or a note always exists
    for note in notes:
        remove_note(note.path)
    return written


def write_record(spool: str, name: str, record: StepRecord, key: signature.Key) -> str | None:
    """Write a record next to the profile of this name, which may not exist yet.

    Result: path of the record; None if a record exists: it stays. Raises `EnvironmentFault` if the spool
    cannot be written.
    """
    path = record_path(os.path.join(spool, name))
    return path if write_sealed(path, replace(record, profile=name), key) else None


def read_notes(spool: str, start: Start) -> list[StepNote]:
    """Notes of the steps of this start of a job, without notes that cannot be read."""
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
    """Profiles of steps that Slurm has begun, and all others, which a user may have put there."""
    steps = recorded_steps(spool, start) | {note.step for note in read_notes(spool, start)}
    known = {start.name(step) for step in steps}
    return [one for one in found if one[1] in known], [one for one in found if one[1] not in known]


def is_note_of(start: Start, note: StepNote) -> bool:
    """Whether a note belongs to this start, not to an earlier start or another job of that number."""
    if start.fields.get("StateCompact") == "PD":
        return False
    # A job that was not requeued has no earlier start, so a difference between clocks can be tolerated.
    early_s = 1.0 if _restarts(start.fields) else SKEW_S
    return note.uid == start.uid and note.begun_unix_s >= start.submitted_unix_s - early_s


def _restarts(row: Mapping[str, str]) -> int:
    text = row.get("RestartCnt", "")
    return int(text) if text.isdecimal() else 0


def _record_of_ended(start: Start, step: str, note: StepNote | None, ended_unix_s: float) -> StepRecord:
    """Record of a step that ends now, from Slurm; if Slurm no longer knows the step, from the note."""
    if note is None or not is_leaving(start, note):
        # Do not ask scontrol about a script: it prints nothing, or all steps, with names that users choose.
        command = ["scontrol", "--oneliner", "show", "step", f"{start.job}.{step}"]
        try:
            text = "" if step in SCRIPTS else client.ask(command)
            return parse_step(start, step, text, client.user_name(start.uid), ended_unix_s)
        except (EnvironmentFault, DataError) as error:
            if note is None or isinstance(error, ControllerAway):
                raise
    return record_from_note(start, note, ended_unix_s)


def is_leaving(start: Start, note: StepNote) -> bool:
    """Whether a requeued job is leaving its nodes: Slurm has lost the job's start and run time by then."""
    begun = start.fields.get("StartTime", "")
    is_later = begun.isdecimal() and int(begun) > note.begun_unix_s + 1.0
    return not start.is_running and is_later and _restarts(start.fields) > 0


def parse_step(start: Start, step: str, text: str, user: str, ended_unix_s: float) -> StepRecord:
    """Record from Slurm's answers. Raises `DataError` if they are not understood."""
    own = None
    if step not in SCRIPTS:
        found = _STEP_LINE.match(text)
        if found is None:
            raise _not_understood(start, step, ValueError(f"no step: {text[:80]!r}"))
        own = float(found[1]), int(found[2]), int(found[3])
    return _make_record(start, step, own, user, ended_unix_s)


def record_from_note(start: Start, note: StepNote, ended_unix_s: float) -> StepRecord:
    """Record of a step that Slurm has forgotten. The step's fields are from its note, the job's from Slurm.

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
    """Fields in squeue's format, with these values replaced."""
    return {**row, **{name: str(value) for name, value in values.items()}}


def _make_record(
    start: Start, step: str, own: tuple[float, int, int] | None, user: str, ended_unix_s: float
) -> StepRecord:
    """The record. `own` has start, nodes and CPUs of the step; if it is None, the job's are taken."""
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
            job_billing=_billing(row.get("tres-alloc", "")),
        )
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _not_understood(start, step, error) from None


def _billing(tres: str) -> float | None:
    """The billing in a list such as ``cpu=4,mem=8G,node=1,billing=4``; Slurm puts it before long names."""
    found = re.search(r"(?:^|,)billing=([0-9]+(?:\.[0-9]+)?)", tres)
    return float(found[1]) if found else None


def _ran_s(step_start_unix_s: float, ended_unix_s: float, used: str) -> float:
    """Run time of the step, s: at most the job's run time `used`, which excludes suspended time."""
    ran_s = max(0.0, ended_unix_s - step_start_unix_s)
    if used:
        used_s = slurm_seconds(used)
        if used_s is None:
            raise ValueError(f"no time: {used!r}")
        ran_s = min(ran_s, used_s + 1.0)  # Slurm rounds down to whole seconds
    return round(ran_s, 3)


def _not_understood(start: Start, step: str, error: Exception) -> DataError:
    return DataError(
        f"Slurm's answer about step {start.job}.{step} cannot be parsed "
        f"({type(error).__name__}: {error}): mpicoloc is tested with squeue and scontrol of Slurm 22.05"
    )


_ENDED_STATES = ("CD", "F", "CA", "TO", "NF", "PR", "OOM", "BF", "DL")
"""States of jobs that have ended, including their epilogs."""


def settle_job(
    spool: str, start: Start, key: signature.Key, now_unix_s: float
) -> Iterator[str | MpicolocError]:
    """Write the missing records of a job in its epilog, and remove its notes.

    A job without a script whose steps have records gets a record of its own, so that the time outside its
    steps is charged too.

    Yields the path of each new record, or the error that prevented it.
    """
    for note in read_notes(spool, start):
        yield from _attempt(_write_from_note(spool, note, start, now_unix_s, key))
    yield from _attempt(_write_allocation(spool, start, key))


def _attempt(made: Iterator[str]) -> Iterator[str | MpicolocError]:
    """Yield results, or the error that ended them. `ControllerAway` is raised instead."""
    try:
        yield from made
    except ControllerAway:
        raise
    except MpicolocError as error:
        yield error


def _write_allocation(spool: str, start: Start, key: signature.Key) -> Iterator[str]:
    """Write the record of a job without a script; its steps may use only a part of the job's time."""
    if start.fields["BatchFlag"] != "0":
        return  # its script is charged, unless the user has excluded the script from measurement
    known = recorded_steps(spool, start)
    noted = {note.step for note in read_notes(spool, start)}
    # Slurm requeues only jobs with a script, so a restart count means that this job had one.
    if not known or (known | noted).intersection(SCRIPTS) or start.fields["RestartCnt"] != "0":
        return
    user, ended = client.user_name(start.uid), start.fields["EndTime"]
    if not ended.isdecimal():
        raise DataError(f"Slurm gives no end time of job {start.job} ({ended!r}), so no record is written")
    record = parse_step(start, ALLOCATION, "", user, float(ended))
    made = write_record(spool, start.name(ALLOCATION), record, key)
    yield from [made] if made else []


def settle_all(spool: str, key: signature.Key) -> Iterator[str | MpicolocError]:
    """Write the missing records of all jobs whose epilog did not write them.

    Either the job's first node died, or slurmctld did not answer there. Jobs that run, or whose epilog may
    still run, are left out.

    Yields like `settle_job`. Raises `EnvironmentFault` if slurmctld does not answer or the spool cannot be
    read.
    """
    yield from _settle_notes(spool, key)
    # Do this after the notes: a job gets its own record only if one of its steps has a record.
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
    """Write the record of a note if the note's start of the job has ended.

    `start` is the job's current start, `same` all notes of the job. Raises `Refused` if Slurm has forgotten
    the job.
    """
    row = start.fields if start else {}
    state = row.get("StateCompact")
    if start and is_note_of(start, note):
        if state in _ENDED_STATES:
            yield from _write_from_note(spool, note, start, float(row["EndTime"]), key)
    elif start and state == "CG":
        return  # its epilog may still run
    elif start and row["RestartCnt"] == "1":
        first = _first_start(spool, start, [other for other in same if not is_note_of(start, other)], key)
        yield from _write_from_note(spool, note, first, float(start.submitted_unix_s), key)
    else:
        raise Refused(_forgotten_step(note))


def _settle_allocations(spool: str, key: signature.Key) -> Iterator[str | MpicolocError]:
    """Write the records of marked jobs that have ended."""
    marked = marked_jobs(spool)  # before the query: its answer may lack jobs that are marked later
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
    """User and state of all jobs without a script, by job number, from a single query."""
    # Users do not choose any of these fields, so they cannot forge another job's line.
    fields = ("JobID", "UserID", "StateCompact", "BatchFlag")
    wanted = ",".join(f"{name}:24" for name in fields)
    answer = client.ask(["squeue", "--noheader", "--all", "--states=all", "--Format", wanted])
    rows = [row for row in map(str.split, answer.splitlines()) if len(row) == len(fields)]
    return {int(job): (int(uid), state) for job, uid, state, batch_flag in rows if batch_flag == "0"}


def _forgotten_job(spool: str, job: int) -> str:
    return (
        f"Slurm has forgotten job {job}, which had no script: only its steps have records and are charged. "
        f"See `sacct -D -j {job} -o JobID,Submit,Start,End,NCPUS,Account` for what the job had, and "
        f"remove {mark_path(spool, job)}"
    )


def settle_stated_job(
    spool: str, key: signature.Key, start: Start, ended_unix_s: float | None
) -> Iterator[str | MpicolocError]:
    """Write the records of one start of a job that Slurm has forgotten, from the site's `sacct` values.

    `start` has user 0 and the fields Account and Cluster. If `ended_unix_s` is None, each note must have its
    step's end. Yields like `settle_all`. Raises `UsageError` if this start of the job has no note.
    """
    found = []
    for path in note_paths(spool, start.job):
        note = read_note(path)
        if note is None or not is_note_of(replace(start, uid=note.uid), note):
            continue
        is_later = ended_unix_s is not None and note.begun_unix_s > ended_unix_s  # from a later start
        if not _has_record_already(spool, note, key) and not is_later:
            found.append(note)
    if not found:
        raise UsageError(
            f"no step of job {start.job}, submitted at {start.submitted_unix_s}, waits for its record"
        )
    row = _squeue_row(start, found)
    for note in found:
        ended_s = note.ended_unix_s if ended_unix_s is None else ended_unix_s
        if ended_s is None:
            yield UsageError(f"the end of step {note.name} is unknown: give the end of its job with --ended")
        else:
            of_note = replace(start, uid=note.uid, fields=row)
            yield from _write_from_note(spool, note, of_note, ended_s, key)


def _squeue_row(start: Start, notes: Sequence[StepNote]) -> dict[str, str]:
    """Fields in squeue's format; unknown fields are empty."""
    return _changed(
        start.fields,
        SubmitTime=start.submitted_unix_s,
        StartTime=int(min(note.begun_unix_s for note in notes)),
        NumNodes=max(note.n_nodes for note in notes),
        NumCPUs=max(note.n_cpus_here * note.n_nodes for note in notes),
        JobCPUs="",  # unknown: the job may have had more CPUs than any of these steps
        RestartCnt=0,
        ArrayTaskID="N/A",
        Partition="",
        TimeUsed="",
    )


def _has_record_already(spool: str, note: StepNote, key: signature.Key) -> bool:
    """Remove the note if its step has a record.

    A writer that hung may have left the note. Returns whether the note was removed.
    """
    sealed = None
    for other in record_paths(spool, note.job):
        with contextlib.suppress(MpicolocError):
            sealed = read_record(other)
        if sealed and not sealed.reason(key) and _is_record_of(note, sealed.record):
            remove_note(note.path)
            return True
    return False


def _is_record_of(note: StepNote, record: StepRecord) -> bool:
    """Whether note and record describe the same step. Slurm reports whole seconds only."""
    after_s = note.begun_unix_s - record.step_start_unix_s
    return (record.uid, record.step) == (note.uid, note.step) and -1.0 <= after_s <= record.ran_s


def _write_from_note(
    spool: str, note: StepNote, start: Start, ended_unix_s: float, key: signature.Key
) -> Iterator[str]:
    """Write the record of a note, then remove the note. A note without an end gets `ended_unix_s`."""
    made = write_record(spool, start.name(note.step), record_from_note(start, note, ended_unix_s), key)
    if start.fields.get("BatchFlag") == "0":
        mark_job(spool, start.job)  # as `record_ended_step` does
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
    """The first start of a job that was requeued once, so that Slurm has only the second start's SubmitTime.

    The first submit time comes from the first start's records. Without records, the time at which its first
    step began takes its place: it is unique, because no other start of the job can have it.
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
        f"no record of step {note.name} of user {note.uid} ({note.n_cpus_here} CPUs on the first of "
        f"{note.n_nodes} nodes, from {begun} to {ended}): Slurm has forgotten its job; look it up with "
        f"`SLURM_TIME_FORMAT=%s sacct -D -j {note.job} -o JobID,Submit,End,Account`, and pass the values to "
        f"`mpicoloc slurm settle --job --submitted --ended --account`; or remove {note.path}"
    )


def _time(time_s: float | None) -> str:
    return (
        "an unknown end" if time_s is None else f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S UTC}"
    )
