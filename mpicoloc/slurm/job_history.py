"""Data about the jobs in Slurm's queue from the profiles in a folder.

Users write the profiles, and the plugin signs them unverified. So a profile is trusted only for its owner's
own jobs, and implausible numbers are left out.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mpicoloc.core.batch_system import BatchJob
from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import CORES, TURNS, JobFeatures, Machine, Run, program_name
from mpicoloc.errors import DataError, printable
from mpicoloc.pairing import production
from mpicoloc.pairing.features import job_features
from mpicoloc.pairing.training_sets import read_runs
from mpicoloc.profile import history

N_RUNS = 5
"""Number of jobs of a kind, the most recent ones, from which the features of the kind are taken."""
N_MEASURED_JOBS = 20
"""Number of jobs of a kind, the most recent ones, that contribute measured slowdowns."""
RUNTIME_MAX_S = 366 * 86400.0
"""A longer run time is implausible, s."""
N_CORES_MAX = 10**8
"""A larger number of cores is implausible."""
FEATURE_MAX = 1e21
"""A larger feature is implausible, whatever its unit. The square of a feature must stay finite."""
COLUMNS = ("user", "batch_name", "job", "n_ranks", "start_unix_s", "wall_s", "partial", "slowdown")
"""Columns that are read from the history."""
Name = tuple[str, str]
"""User and name of jobs."""
Kind = tuple[str, str, int]
Meeting = tuple[str, Estimate]
"""Number of the co-runner, and the slowdown beside it."""


@dataclass(frozen=True, slots=True)
class _ProfileRow:
    """One profile's row in the history (a `RunLike`), and the uid of its file's owner."""

    path: str
    owner: int
    id: str
    n_ranks: int
    start_unix_s: float
    wall_s: float
    partial: bool
    is_measured: bool


@dataclass(frozen=True)
class _JobsOfName:
    """Jobs of one name, in order of start, and by job number. Each job is a list of its steps."""

    in_order: list[list[_ProfileRow]]
    of_number: dict[str, list[list[_ProfileRow]]]


@dataclass(frozen=True)
class _Measured:
    """A job's run, without its features, and its meetings; None: its profiles are not usable."""

    run: Run | None = None
    meetings: Sequence[Meeting] = ()


@dataclass
class ProfileHistory:
    """Data about kinds of jobs (user, name, number of ranks) from the profiles below a folder.

    `machine` is the machine of the model; profiles from other machines are left out. Slowdowns that were
    certainly measured in another `layout` are left out, too. `notes` has a message for each type of problem
    with the folder's index or with profiles.
    """

    folder: str
    machine: Machine | None = None
    layout: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    _seen: dict[str, str] = field(default_factory=dict)
    _name_of: dict[str, Name] = field(default_factory=dict)
    _rows: dict[Name, dict[str, _ProfileRow]] = field(default_factory=dict)
    _jobs: dict[Name, _JobsOfName] = field(default_factory=dict)
    _names: dict[str, Counter[Name]] = field(default_factory=lambda: defaultdict(Counter))
    _running: Container[str] = ()
    _paths: dict[Kind, tuple[str, ...]] = field(default_factory=dict)
    _features_of_paths: dict[tuple[str, ...], JobFeatures | None] = field(default_factory=dict)
    _measured: dict[tuple[str, ...], _Measured] = field(default_factory=dict)
    _uids: dict[str, int] = field(default_factory=dict)
    _excluded_until_s: dict[int, float] = field(default_factory=dict)

    def update(self, running: Container[str] = ()) -> None:
        """Read new profiles. Jobs in `running` are left out later, because their steps are not complete.

        Raises the errors of `profile.history.changes`.
        """
        rows, changed, note = history.changes(self.folder, self._seen, COLUMNS)
        self.notes = {"index": note} if note else {}
        for path in changed & self._name_of.keys():
            self._forget(path)
        for row in rows:
            if row["batch_name"]:
                self._add((str(row["user"]), str(row["batch_name"])), row)
        used = set(self._paths.values())
        self._features_of_paths = {
            paths: made
            for paths, made in self._features_of_paths.items()
            if paths in used and not changed & set(paths)
        }
        self._measured = {paths: made for paths, made in self._measured.items() if not changed & set(paths)}
        self._running, self._paths = running, {}

    def _add(self, name: Name, row: Mapping[str, Any]) -> None:
        times_s = float(row["start_unix_s"] or 0), float(row["wall_s"] or 0)
        path, id = str(row["path"]), str(row["job"])
        of_end = bool(row["partial"]), row["slowdown"] is not None
        ran = _ProfileRow(path, row["owner"], id, int(row["n_ranks"]), *times_s, *of_end)
        self._rows.setdefault(name, {})[path] = ran
        self._name_of[path] = name
        self._names[production.job_number(ran.id)][name] += 1
        self._jobs.pop(name, None)

    def _forget(self, path: str) -> None:
        name = self._name_of.pop(path)
        number = production.job_number(self._rows[name].pop(path).id)
        self._names[number] -= Counter([name])
        if not self._names[number]:
            del self._names[number]
        self._jobs.pop(name, None)

    def set_machine(self, machine: Machine | None) -> None:
        """Use the profiles of another machine from now on, because the model was replaced."""
        self.machine, self._features_of_paths, self._measured = machine, {}, {}

    def exclude_until(self, job: int, until_s: float) -> None:
        """Return no features for a job until this time, because Slurm refused to change it."""
        self._excluded_until_s[job] = until_s

    def features_of(self, job: BatchJob, now_s: float) -> JobFeatures | None:
        """Features of a job from the last runs of its kind; None if there is no usable profile."""
        if self._excluded_until_s.get(job.id, 0.0) > now_s:
            return None
        if job.kind not in self._paths:
            self._paths[job.kind] = self._last_profiles(job.kind)
        paths = self._paths[job.kind]
        if paths not in self._features_of_paths:
            self._features_of_paths[paths] = self._features(job.user, paths) if paths else None
        return self._features_of_paths[paths]

    def measured_pairs(self, kinds: Collection[Kind]) -> dict[tuple[Kind, Kind], list[Estimate]]:
        """Measured slowdowns of these kinds of jobs beside each other, from each kind's latest jobs."""
        jobs = {
            kind: list(itertools.islice(self._jobs_of(kind, is_measured=True), N_MEASURED_JOBS))
            for kind in kinds
        }
        targets = {_paths(job): kind[0] for kind, of_kind in jobs.items() for job in of_kind}
        self._read_jobs(targets)
        met = [
            (kind, _paths(job), *beside, slowdown)
            for kind, of_kind in jobs.items()
            for job in of_kind
            for number, slowdown in self._measured[_paths(job)].meetings
            if (beside := self._job_of_number(number, job)) is not None and beside[0] in kinds
        ]
        others = {paths: other[0] for _, _, other, paths, _ in met}
        self._read_jobs(others)
        self._measured = {paths: self._measured[paths] for paths in targets | others}
        found: dict[tuple[Kind, Kind], list[Estimate]] = defaultdict(list)
        for kind, mine, other, theirs, slowdown in met:
            if (usable := self._in_layout(slowdown, mine, theirs)) is not None:
                found[kind, other].append(usable)
        return found

    def _in_layout(
        self, slowdown: Estimate, mine: tuple[str, ...], theirs: tuple[str, ...]
    ) -> Estimate | None:
        """A slowdown beside another job, as in `layout`; None if it is of another one, or says nothing.

        By cores, it becomes that beside a job with half of the node.
        """
        target, co_runner = self._measured[mine].run, self._measured[theirs].run
        if not self.layout or target is None or co_runner is None:
            return slowdown
        needed = TURNS if self.layout == TURNS else CORES
        measured = production.layout(target, [co_runner])
        if measured not in ("", needed):
            return None
        return production.beside_half(slowdown, target, co_runner) if measured == CORES else slowdown

    def _read_jobs(self, jobs: Mapping[tuple[str, ...], str]) -> None:
        """Read runs and meetings of jobs; `jobs` maps the profiles of each job to the job's user."""
        new = {paths: user for paths, user in jobs.items() if paths not in self._measured}
        runs = self._read({path: user for paths, user in new.items() for path in paths})
        for paths in new:
            self._measured[paths] = _Measured()
            if all(path in runs for path in paths):
                steps = [runs[path] for path in paths]
                try:
                    whole = replace(production.run_of_steps(steps), seen={})
                    self._measured[paths] = _Measured(whole, production.meetings(steps))
                except (ArithmeticError, DataError):
                    self._note_implausible(paths[-1], "times or slowdowns", "such jobs count as alone")

    def _last_profiles(self, kind: Kind) -> tuple[str, ...]:
        """Paths of the profiles of a kind's last runs."""
        found = itertools.islice(self._jobs_of(kind), N_RUNS)
        return tuple(step.path for job in reversed(list(found)) for step in job)

    def _jobs_of(self, kind: Kind, *, is_measured: bool = False) -> Iterator[list[_ProfileRow]]:
        """Ended jobs of a kind, the latest first. With `is_measured`, only jobs with a measured slowdown."""
        user, name, n_ranks = kind
        return (
            job
            for job in reversed(self._of_name((user, name)).in_order)
            if (not is_measured or any(step.is_measured for step in job))
            and not any(step.partial for step in job)
            and production.job_number(job[0].id) not in self._running
            and production.peak_ranks(job) == n_ranks
        )

    def _of_name(self, name: Name) -> _JobsOfName:
        if name not in self._jobs:
            message = self._rows.get(name, {}).values()
            own = production.runs_by_job(
                [ran for ran in message if self._is_trusted(name[0], ran.owner, ran.path)]
            )
            of_number: dict[str, list[list[_ProfileRow]]] = defaultdict(list)
            for job in own:
                of_number[production.job_number(job[0].id)].append(job)
            self._jobs[name] = _JobsOfName(own, of_number)
        return self._jobs[name]

    def _job_of_number(
        self, number: str, beside: Sequence[_ProfileRow]
    ) -> tuple[Kind, tuple[str, ...]] | None:
        """Kind and profiles of the job with this number that ran at the same time as `beside`.

        None if no job matches, or if jobs of several kinds match.
        """
        begin_s, end_s = beside[0].start_unix_s, _end_s(beside)
        found = {
            (*name, production.peak_ranks(job)): _paths(job)
            for name in self._names.get(number, ())
            for job in self._of_name(name).of_number.get(number, ())
            if job[0].start_unix_s < end_s and begin_s < _end_s(job)
        }
        # With several matches, a user may have forged one, or two clusters use the same number.
        return found.popitem() if len(found) == 1 else None

    def _is_trusted(self, user: str, owner: int | None, path: str) -> bool:
        """Whether a profile's file belongs to the user, to root or to this process's user."""
        if user not in self._uids:
            with contextlib.suppress(KeyError):
                self._uids[user] = pwd.getpwnam(user).pw_uid
        if owner in (0, os.geteuid(), self._uids.get(user, 0)):
            return True
        message = f"{printable(path)} is from a job of {user}, but the file belongs to user {owner}"
        self.notes.setdefault("owner", f"{message}: such profiles are not used")
        return False

    def _read(self, users: Mapping[str, str]) -> dict[str, Run]:
        """Runs by path, from trusted files, on machines like the model's."""
        full = {os.path.join(self.folder, path): path for path in users}
        read, _ = read_runs(list(full))
        # The file may have been replaced between the listing and the reading.
        runs = {
            full[path]: run
            for path, run in read.items()
            if self._is_trusted(users[full[path]], run.owner, path)
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
        jobs = production.runs_by_job(self._read(dict.fromkeys(paths, user)).values())
        # All jobs of `sbatch --wrap` have the name wrap, whatever program they run.
        if len({frozenset(program_name(step.command) for step in job) for job in jobs}) > 1:
            return None
        try:
            found = job_features([production.run_of_steps(job) for job in jobs])
            wrong = _implausible(found)
        except DataError:
            return None
        except ArithmeticError:
            wrong = "numbers that are too large"
        if not wrong:
            return found
        self._note_implausible(paths[-1], wrong, "jobs with such profiles are not paired")
        return None

    def _note_implausible(self, path: str, wrong: str, so: str) -> None:
        self.notes.setdefault("impossible", f"{printable(path)} has impossible {wrong}: {so}")

    def _note_machine(self, other: Machine | None) -> None:
        message = f"profiles in {self.folder} are from {other}, but the model is from {self.machine}"
        self.notes.setdefault(
            "machine", f"{message}: jobs with such profiles are not paired; fit a model here"
        )


def _paths(job: Sequence[_ProfileRow]) -> tuple[str, ...]:
    return tuple(step.path for step in job)


def _end_s(job: Sequence[_ProfileRow]) -> float:
    return max(step.start_unix_s + step.wall_s for step in job)


def _implausible(found: JobFeatures) -> str:
    """Description of the first implausible number; empty if there is none."""
    if found.runtime_s > RUNTIME_MAX_S:
        return f"a run of {found.runtime_s:.3g} s"
    if found.n_cores > N_CORES_MAX:
        return f"{found.n_cores:.3g} processors"
    if (memory_bytes := found.values.get("rss_bytes_mean", 0.0)) < 0:
        return f"{memory_bytes:.3g} bytes of memory"
    wrong = next((name for name, value in found.values.items() if abs(value) > FEATURE_MAX), None)
    return "" if wrong is None else f"{wrong} = {found.values[wrong]:.3g}"
