"""What the profiles of a folder tell of the jobs in Slurm's queue.

Users write the profiles, and the plugin signs what they wrote: each is a stranger's word on his own jobs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mpicoloc.core.batch import BatchJob
from mpicoloc.core.features import JobFeatures
from mpicoloc.core.machine import Machine
from mpicoloc.core.tables import printable
from mpicoloc.errors import DataError
from mpicoloc.model import steps
from mpicoloc.model.features import job_features, program_name
from mpicoloc.run.training import read_runs
from mpicoloc.store import history

N_RUNS = 5
"""Jobs of one kind that count: the last ones."""
LONGEST_S = 366 * 86400.0
"""A job that says that it ran longer is not believed."""
MOST_CORES = 10**8
"""One that says that it had more is not believed."""
MOST = 1e21
"""Nor is a feature beyond this, whatever its unit: its square must still be a number."""
COLUMNS = ("user", "batch_name", "job", "n_ranks", "start_unix_s", "wall_s", "partial")
"""Of the history."""
Name = tuple[str, str]
"""Of a user's jobs: his name, and theirs."""
Kind = tuple[str, str, int]


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
    _jobs: dict[Name, list[list[_Ran]]] = field(default_factory=dict)
    _running: Container[str] = ()
    _paths: dict[Kind, tuple[str, ...]] = field(default_factory=dict)
    _made: dict[tuple[str, ...], JobFeatures | None] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _barred: dict[int, float] = field(default_factory=dict)

    def look(self, running: Container[str] = ()) -> None:
        """Learn of new profiles, but not of the jobs `running`: more of their steps may follow.

        Raises
        ------
        DataError, EnvironmentFault
            As of `store.history.changes`.
        """
        rows, changed, note = history.changes(self.folder, self._seen, COLUMNS)
        self.notes = {"index": note} if note else {}
        for path in changed & self._name_of.keys():
            name = self._name_of.pop(path)
            del self._ran[name][path]
            self._jobs.pop(name, None)
        for row in rows:
            if row["batch_name"]:
                self._add((str(row["user"]), str(row["batch_name"])), row)
        used = set(self._paths.values())
        self._made = {
            paths: made for paths, made in self._made.items() if paths in used and not changed & set(paths)
        }
        self._running, self._paths = running, {}

    def _add(self, name: Name, row: Mapping[str, Any]) -> None:
        times_s = float(row["start_unix_s"] or 0), float(row["wall_s"] or 0)
        path = str(row["path"])
        job = (str(row["job"]), int(row["n_ranks"]), *times_s, bool(row["partial"]))
        self._ran.setdefault(name, {})[path] = _Ran(path, row["owner"], *job)
        self._name_of[path] = name
        self._jobs.pop(name, None)

    def compare_with(self, machine: Machine | None) -> None:
        """Take the profiles of another machine from now on: the model is another one."""
        self.machine, self._made = machine, {}

    def bar(self, job: int, until_s: float) -> None:
        """Leave a job alone for a while: Slurm has refused it."""
        self._barred[job] = until_s

    def of(self, job: BatchJob, now_s: float) -> JobFeatures | None:
        """Features of a job by the last runs of its kind; None: there is no profile that tells."""
        if self._barred.get(job.id, 0.0) > now_s:
            return None
        if job.kind not in self._paths:
            self._paths[job.kind] = self._last(*job.kind)
        paths = self._paths[job.kind]
        if paths not in self._made:
            self._made[paths] = self._features(job.user, paths) if paths else None
        return self._made[paths]

    def _last(self, user: str, name: str, n_ranks: int) -> tuple[str, ...]:
        """Profiles of the last runs of a kind."""
        if (user, name) not in self._jobs:
            told = self._ran.get((user, name), {}).values()
            own = [ran for ran in told if self._is_of(user, ran.owner, ran.path)]
            self._jobs[user, name] = steps.jobs(own)
        found = itertools.islice(
            (
                job
                for job in reversed(self._jobs[user, name])
                if not any(step.partial for step in job)
                and steps.number(job[0]) not in self._running
                and steps.n_ranks(job) == n_ranks
            ),
            N_RUNS,
        )
        return tuple(step.path for job in reversed(list(found)) for step in job)

    def _is_of(self, user: str, owner: int | None, path: str) -> bool:
        """Whether a file is the user's own, or of somebody who may speak for him."""
        if user not in self._numbers:
            with contextlib.suppress(KeyError):
                self._numbers[user] = pwd.getpwnam(user).pw_uid
        if owner in (0, os.geteuid(), self._numbers.get(user, 0)):
            return True
        told = f"{printable(path)} tells of a job of {user}, and is a file of user {owner}"
        self.notes.setdefault("owner", f"{told}: such profiles are not believed")
        return False

    def _features(self, user: str, paths: Sequence[str]) -> JobFeatures | None:
        read, _ = read_runs([os.path.join(self.folder, path) for path in paths])
        # Between the list and the reading somebody may have put another file there.
        runs = {path: run for path, run in read.items() if self._is_of(user, run.owner, path)}
        here = [
            run
            for run in runs.values()
            if self.machine is None or run.machine is None or run.machine.is_like(self.machine)
        ]
        if runs and not here:
            self._note_machine(next(iter(runs.values())).machine)
        jobs = steps.jobs(here)
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
        told = f"{printable(paths[-1])} tells of {wrong}, which cannot be"
        self.notes.setdefault("impossible", f"{told}: jobs with such profiles are not paired")
        return None

    def _note_machine(self, other: Machine | None) -> None:
        told = f"profiles in {self.folder} are of {other}, and the model is of {self.machine}"
        self.notes.setdefault("machine", f"{told}: jobs with such profiles are not paired; fit a model here")


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
