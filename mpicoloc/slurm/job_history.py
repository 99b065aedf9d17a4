"""What the profiles of a folder tell of the jobs in Slurm's queue.

Users write the profiles, and the plugin signs what they wrote: each is a stranger's word on his own jobs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpicoloc.campaign.training_sets import read_runs
from mpicoloc.core.batch import BatchJob
from mpicoloc.core.estimate import Estimate
from mpicoloc.core.features import JobFeatures
from mpicoloc.core.machine import Machine
from mpicoloc.core.run import Run
from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError
from mpicoloc.profile import history
from mpicoloc.slowdown import pair_history, steps
from mpicoloc.slowdown.features import job_features, program_name

N_RUNS = 5
"""Jobs of one kind that count: the last ones."""
N_MET = 20
"""Of those that were measured beside others."""
LONGEST_S = 366 * 86400.0
"""A job that says that it ran longer is not believed."""
MOST_CORES = 10**8
"""One that says that it had more is not believed."""
MOST = 1e21
"""Nor is a feature beyond this, whatever its unit: its square must still be a number."""
COLUMNS = ("user", "batch_name", "job", "n_ranks", "start_unix_s", "wall_s", "partial", "slowdown")
"""Of the history."""
Name = tuple[str, str]
"""Of a user's jobs: his name, and theirs."""
Kind = tuple[str, str, int]
Meeting = tuple[str, Estimate]
"""Number of the other job, and the slowdown beside it."""


@dataclass(frozen=True, slots=True)
class _Ran:
    """What the history tells of a profile (`steps.Ran`), and who owns its file."""

    path: str
    owner: int
    id: str
    n_ranks: int
    start_unix_s: float
    wall_s: float
    partial: bool
    is_measured: bool


@dataclass(frozen=True)
class _Jobs:
    """Jobs of one name, each by its steps: in the order in which they began, and by number."""

    in_order: list[list[_Ran]]
    of_number: dict[str, list[list[_Ran]]]


@dataclass
class Known:
    """What the profiles below a folder say of kinds of jobs: user, name and number of ranks.

    `machine` is that of the model: profiles of another one tell nothing here. `notes` says what is wrong with
    the index of the folder or with profiles, a line for each sort of trouble.
    """

    folder: str
    machine: Machine | None = None
    notes: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, str] = field(default_factory=dict)
    _name_of: dict[str, Name] = field(default_factory=dict)
    _ran: dict[Name, dict[str, _Ran]] = field(default_factory=dict)
    _jobs: dict[Name, _Jobs] = field(default_factory=dict)
    _names: dict[str, Counter[Name]] = field(default_factory=lambda: defaultdict(Counter))
    _running: Container[str] = ()
    _paths: dict[Kind, tuple[str, ...]] = field(default_factory=dict)
    _made: dict[tuple[str, ...], JobFeatures | None] = field(default_factory=dict)
    _meetings: dict[tuple[str, ...], Meeting | None] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _barred: dict[int, float] = field(default_factory=dict)

    def look(self, running: Container[str] = ()) -> None:
        """Learn of new profiles, but not of the jobs `running`: more of their steps may follow.

        Raises
        ------
        DataError, EnvironmentFault
            As of `profile.history.changes`.
        """
        rows, changed, note = history.changes(self.folder, self._seen, COLUMNS)
        self.notes = {"index": note} if note else {}
        for path in changed & self._name_of.keys():
            self._forget(path)
        for row in rows:
            if row["batch_name"]:
                self._add((str(row["user"]), str(row["batch_name"])), row)
        used = set(self._paths.values())
        self._made = {
            paths: made for paths, made in self._made.items() if paths in used and not changed & set(paths)
        }
        self._meetings = {paths: made for paths, made in self._meetings.items() if not changed & set(paths)}
        self._running, self._paths = running, {}

    def _add(self, name: Name, row: Mapping[str, Any]) -> None:
        times_s = float(row["start_unix_s"] or 0), float(row["wall_s"] or 0)
        path, id = str(row["path"]), str(row["job"])
        of_end = bool(row["partial"]), row["slowdown"] is not None
        ran = _Ran(path, row["owner"], id, int(row["n_ranks"]), *times_s, *of_end)
        self._ran.setdefault(name, {})[path] = ran
        self._name_of[path] = name
        self._names[steps.number(ran)][name] += 1
        self._jobs.pop(name, None)

    def _forget(self, path: str) -> None:
        name = self._name_of.pop(path)
        number = steps.number(self._ran[name].pop(path))
        self._names[number] -= Counter([name])
        if not self._names[number]:
            del self._names[number]
        self._jobs.pop(name, None)

    def compare_with(self, machine: Machine | None) -> None:
        """Take the profiles of another machine from now on: the model is another one."""
        self.machine, self._made, self._meetings = machine, {}, {}

    def bar(self, job: int, until_s: float) -> None:
        """Leave a job alone for a while: Slurm has refused it."""
        self._barred[job] = until_s

    def of(self, job: BatchJob, now_s: float) -> JobFeatures | None:
        """Features of a job by the last runs of its kind; None: there is no profile that tells."""
        if self._barred.get(job.id, 0.0) > now_s:
            return None
        if job.kind not in self._paths:
            self._paths[job.kind] = self._last(job.kind)
        paths = self._paths[job.kind]
        if paths not in self._made:
            self._made[paths] = self._features(job.user, paths) if paths else None
        return self._made[paths]

    def met(self, kinds: Collection[Kind]) -> dict[tuple[Kind, Kind], list[Estimate]]:
        """What jobs of these kinds suffered beside jobs of each of them, the last times that they met."""
        jobs = {kind: list(itertools.islice(self._jobs_of(kind, is_measured=True), N_MET)) for kind in kinds}
        self._read_meetings({_paths(job): kind[0] for kind, of_kind in jobs.items() for job in of_kind})
        found: dict[tuple[Kind, Kind], list[Estimate]] = defaultdict(list)
        for kind, of_kind in jobs.items():
            for job in of_kind:
                meeting = self._meetings[_paths(job)]
                other = None if meeting is None else self._who(meeting[0], job)
                if meeting is not None and other is not None and other in kinds:
                    found[kind, other].append(meeting[1])
        return found

    def _read_meetings(self, jobs: Mapping[tuple[str, ...], str]) -> None:
        """Those of jobs, given by their profiles, and the users of these."""
        new = {paths: user for paths, user in jobs.items() if paths not in self._meetings}
        runs = self._read({path: user for paths, user in new.items() for path in paths})
        self._meetings = {paths: made for paths, made in self._meetings.items() if paths in jobs}
        for paths in new:
            self._meetings[paths] = None
            if all(path in runs for path in paths):
                try:
                    self._meetings[paths] = pair_history.meeting([runs[path] for path in paths])
                except (ArithmeticError, DataError):
                    self._note_impossible(paths[-1], "times or slowdowns", "such jobs count as alone")

    def _last(self, kind: Kind) -> tuple[str, ...]:
        """Profiles of the last runs of a kind."""
        found = itertools.islice(self._jobs_of(kind), N_RUNS)
        return tuple(step.path for job in reversed(list(found)) for step in job)

    def _jobs_of(self, kind: Kind, *, is_measured: bool = False) -> Iterator[list[_Ran]]:
        """Those that have ended, the last one first; all, or those beside others that were measured."""
        user, name, n_ranks = kind
        return (
            job
            for job in reversed(self._of_name((user, name)).in_order)
            if (not is_measured or any(step.is_measured for step in job))
            and not any(step.partial for step in job)
            and steps.number(job[0]) not in self._running
            and steps.n_ranks(job) == n_ranks
        )

    def _of_name(self, name: Name) -> _Jobs:
        if name not in self._jobs:
            told = self._ran.get(name, {}).values()
            own = steps.jobs([ran for ran in told if self._is_of(name[0], ran.owner, ran.path)])
            of_number: dict[str, list[list[_Ran]]] = defaultdict(list)
            for job in own:
                of_number[steps.number(job[0])].append(job)
            self._jobs[name] = _Jobs(own, of_number)
        return self._jobs[name]

    def _who(self, number: str, beside: Sequence[_Ran]) -> Kind | None:
        """The kind of the job of this number that ran at the time of another one; None: several say so."""
        begin_s, end_s = beside[0].start_unix_s, _end_s(beside)
        found = {
            (*name, steps.n_ranks(job))
            for name in self._names.get(number, ())
            for job in self._of_name(name).of_number.get(number, ())
            if job[0].start_unix_s < end_s and begin_s < _end_s(job)
        }
        # A stranger may have written one of them, or two clusters have jobs of one number.
        return found.pop() if len(found) == 1 else None

    def _is_of(self, user: str, owner: int | None, path: str) -> bool:
        """Whether a file is the user's own, or of somebody who may speak for him."""
        if user not in self._numbers:
            with contextlib.suppress(KeyError):
                self._numbers[user] = pwd.getpwnam(user).pw_uid
        if owner in (0, os.geteuid(), self._numbers.get(user, 0)):
            return True
        told = f"{printable(path)} is of a job of {user}, but the file belongs to user {owner}"
        self.notes.setdefault("owner", f"{told}: such profiles are not used")
        return False

    def _read(self, users: Mapping[str, str]) -> dict[str, Run]:
        """Runs by path: on machines like the model's, and of files that may speak for the path's user."""
        full = {os.path.join(self.folder, path): path for path in users}
        read, _ = read_runs(list(full))
        # Between the list and the reading somebody may have put another file there.
        runs = {
            full[path]: run for path, run in read.items() if self._is_of(users[full[path]], run.owner, path)
        }
        here = {
            path: run
            for path, run in runs.items()
            if self.machine is None or run.machine is None or run.machine.is_like(self.machine)
        }
        if runs and not here:
            self._note_machine(next(iter(runs.values())).machine)
        return here

    def _features(self, user: str, paths: Sequence[str]) -> JobFeatures | None:
        jobs = steps.jobs(self._read(dict.fromkeys(paths, user)).values())
        # By default all jobs of `sbatch --wrap` are called wrap.
        if len({frozenset(program_name(step.command) for step in job) for job in jobs}) > 1:
            return None
        try:
            found = job_features([steps.whole(job) for job in jobs])
            wrong = _impossible(found)
        except DataError:
            return None
        except ArithmeticError:
            wrong = "numbers that are too large"
        if not wrong:
            return found
        self._note_impossible(paths[-1], wrong, "jobs with such profiles are not paired")
        return None

    def _note_impossible(self, path: str, wrong: str, so: str) -> None:
        self.notes.setdefault("impossible", f"{printable(path)} has impossible {wrong}: {so}")

    def _note_machine(self, other: Machine | None) -> None:
        told = f"profiles in {self.folder} are of {other}, and the model is of {self.machine}"
        self.notes.setdefault("machine", f"{told}: jobs with such profiles are not paired; fit a model here")


def _paths(job: Sequence[_Ran]) -> tuple[str, ...]:
    return tuple(step.path for step in job)


def _end_s(job: Sequence[_Ran]) -> float:
    return max(step.start_unix_s + step.wall_s for step in job)


def _impossible(found: JobFeatures) -> str:
    """What no job can have been like, in words; empty: it may all be true."""
    if found.runtime_s > LONGEST_S:
        return f"a run of {found.runtime_s:.3g} s"
    if found.n_cores > MOST_CORES:
        return f"{found.n_cores:.3g} processors"
    if (memory_bytes := found.values.get("rss_bytes_mean", 0.0)) < 0:
        return f"{memory_bytes:.3g} bytes of memory"
    wrong = next((name for name, value in found.values.items() if abs(value) > MOST), None)
    return "" if wrong is None else f"{wrong} = {found.values[wrong]:.3g}"
