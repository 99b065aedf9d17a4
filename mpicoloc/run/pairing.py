"""The pairing service: looks at Slurm's queue again and again, and says which waiting jobs share a node next.

It keeps nothing in memory that the queue and the profiles do not tell: it may die at any time and be started
again, or not. Jobs that it never came to run as the batch system has them.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpicoloc.core.batch import BatchJob, Snapshot
from mpicoloc.core.features import JobFeatures
from mpicoloc.core.machine import Machine
from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.model import pairs, slowdown, steering, steps
from mpicoloc.model.features import job_features
from mpicoloc.model.queue import Queue, Room
from mpicoloc.run import slurm, slurm_command
from mpicoloc.run.training import read_runs
from mpicoloc.store import history

N_RUNS = 5
"""Jobs of one kind that count: the last ones."""
BARRED_S = 600.0
"""So long a job is left alone after Slurm has refused it."""
Kind = tuple[str, str, int]


@dataclass(frozen=True)
class _Ran:
    """What the history tells of a profile (`steps.Ran`)."""

    path: str
    id: str
    n_ranks: int
    start_unix_s: float
    wall_s: float
    partial: bool


@dataclass
class Known:
    """What the profiles below a folder say of kinds of jobs: user, name and number of ranks.

    `machine` is that of the model: profiles of another one tell nothing here.
    """

    folder: str
    machine: Machine | None = None
    _made: dict[tuple[str, ...], JobFeatures | None] = field(default_factory=dict)
    _paths: dict[Kind, tuple[str, ...]] = field(default_factory=dict)
    _barred: dict[int, float] = field(default_factory=dict)

    def look(self, running: Container[str] = ()) -> None:
        """Learn of new profiles, but not of the jobs `running`: more of their steps may follow.

        Raises
        ------
        DataError, EnvironmentFault
            As of `store.history.history`.
        """
        by_name: dict[tuple[str, str], list[_Ran]] = {}
        for row in history.records(history.history(self.folder)):
            if row["trouble"] is None and row["batch_name"]:
                times_s = float(row["start_unix_s"] or 0), float(row["wall_s"] or 0)
                facts = (str(row["job"]), int(row["n_ranks"]), *times_s, bool(row["partial"]))
                ran = _Ran(os.path.join(self.folder, row["path"]), *facts)
                by_name.setdefault((str(row["user"]), str(row["batch_name"])), []).append(ran)
        found: dict[Kind, list[list[_Ran]]] = {}
        for (user, name), profiles in by_name.items():
            for job in steps.jobs(profiles):
                if not any(step.partial for step in job) and steps.number(job[0]) not in running:
                    found.setdefault((user, name, steps.n_ranks(job)), []).append(job)
        self._paths = {
            kind: tuple(step.path for job in jobs[-N_RUNS:] for step in job) for kind, jobs in found.items()
        }
        used = set(self._paths.values())
        self._made = {paths: made for paths, made in self._made.items() if paths in used}

    def bar(self, job: int, until_s: float) -> None:
        """Leave a job alone for a while: Slurm has refused it."""
        self._barred[job] = until_s

    def of(self, job: BatchJob, now_s: float) -> JobFeatures | None:
        """Features of a job by the last runs of its kind; None: there is no profile that tells."""
        paths = self._paths.get(job.kind)
        if paths is None or self._barred.get(job.id, 0.0) > now_s:
            return None
        if paths not in self._made:
            self._made[paths] = self._features(paths)
        return self._made[paths]

    def _features(self, paths: Sequence[str]) -> JobFeatures | None:
        runs, _ = read_runs(paths)
        here = [
            run
            for run in runs.values()
            if self.machine is None or run.machine is None or run.machine.is_like(self.machine)
        ]
        try:
            return job_features([steps.whole(job) for job in steps.jobs(here)])
        except DataError:
            return None


@dataclass(frozen=True)
class Steering:
    """How it is steered.

    Parameters
    ----------
    partitions : steering.Partitions
        Names of the two queues.
    rules : pairs.Rules
        How pairs are chosen.
    model : SlowdownModel or None
        None: only `rules.prior_slowdown` is known.
    n_sharing : int
        Jobs that the queue for sharing puts on one processor (Slurm's OverSubscribe=FORCE:2).
    """

    partitions: steering.Partitions
    rules: pairs.Rules
    model: slowdown.SlowdownModel | None
    n_sharing: int = 2


def look(now: Snapshot, known: Known, how: Steering) -> list[steering.Action]:
    """What to say at this time: `steering.decide` with what is known of the jobs."""
    features = {job.id: found for job in now.jobs if (found := known.of(job, now.now_s)) is not None}
    runtime_s = {number: found.runtime_s for number, found in features.items()}

    def plan(waiting: Sequence[BatchJob]) -> Sequence[pairs.Group]:
        return planned(waiting, features, how, _room(now, how)).groups

    def growth(job: BatchJob, others: Sequence[BatchJob]) -> float:
        # With equal shares of the processors a job takes so much longer, whatever was predicted.
        least = float(max(how.n_sharing, how.rules.prior_slowdown or 1.0))
        if how.model is None or not all(each.id in features for each in (job, *others)):
            return least
        return max(how.model.predict(features[job.id], [features[each.id] for each in others]).high, least)

    return steering.decide(now, how.partitions, plan, runtime_s, growth)


def planned(
    waiting: Sequence[BatchJob], features: Mapping[int, JobFeatures], how: Steering, room: Room
) -> pairs.Plan:
    """Groups of the jobs; one of which nothing is known runs alone, so that its profile tells next time."""
    fitting = [
        (job.n_cpus <= room.n_cores and _memory_bytes(features[job.id]) <= room.memory_bytes)
        if job.id in features
        else False
        for job in waiting
    ]
    known = [i for i, fits in enumerate(fitting) if fits]
    rules = dataclasses.replace(how.rules, room=room)
    found = pairs.plan(_queue([waiting[i] for i in known], features, how.model), rules)
    groups = [
        pairs.Group(tuple(known[i] for i in group.jobs), group.duration_s, group.why)
        for group in found.groups
    ]
    left = set(range(len(waiting))) - set(known)
    groups += [pairs.Group((i,), 0.0, "no profile of a run alone") for i in left]
    return dataclasses.replace(found, groups=tuple(sorted(groups, key=lambda group: group.jobs)))


def _queue(
    jobs: Sequence[BatchJob], features: Mapping[int, JobFeatures], model: slowdown.SlowdownModel | None
) -> Queue:
    of_jobs = [features[job.id] for job in jobs]
    n = len(jobs)
    value = high = np.full((n, n), np.nan)
    if model is not None and n:
        # Jobs of one kind behave alike: a queue has many of few kinds.
        kinds = list(dict.fromkeys(job.kind for job in jobs))
        first = {job.kind: found for job, found in reversed(list(zip(jobs, of_jobs, strict=True)))}
        among = slowdown.pair_slowdowns(model, [first[kind] for kind in kinds])
        which = np.array([kinds.index(job.kind) for job in jobs])
        value, high = (array[np.ix_(which, which)] for array in (among.value, among.high))
    return Queue(
        np.array([found.runtime_s for found in of_jobs]),
        value,
        high,
        n_cores=np.array([float(job.n_cpus) for job in jobs]),
        memory_bytes=np.array([_memory_bytes(found) for found in of_jobs]),
    )


def _memory_bytes(found: JobFeatures) -> float:
    """Most memory that its ranks had together; 0 where its profile does not tell."""
    return found.values.get("rss_bytes_mean", 0.0) * found.n_cores


def _room(now: Snapshot, how: Steering) -> Room:
    """That of the smallest node, and no more than the rules say: any pair must fit wherever it comes to."""
    nodes = steering.usable(now, how.partitions)
    n_cores = min((node.n_cpus * how.n_sharing for node in nodes), default=1)
    memory_bytes = min((node.memory_bytes for node in nodes), default=1.0)
    given = how.rules.room
    return Room(min(float(n_cores), given.n_cores), min(memory_bytes, given.memory_bytes))


def apply(action: steering.Action, now: Snapshot, partitions: steering.Partitions) -> None:
    """Say it to Slurm; what was said half is taken back by the next look.

    Raises
    ------
    EnvironmentFault
        If Slurm refuses.
    """
    if isinstance(action, steering.Release):
        slurm.update(action.job, _released(action, partitions))
        return
    jobs = {job.id: job for job in now.jobs}
    for number, factor in zip(action.share.jobs, action.slowdowns, strict=True):
        slurm.update(number, _committed(action, jobs[number], factor, partitions))


def _committed(
    action: steering.Commit, job: BatchJob, factor: float, partitions: steering.Partitions
) -> dict[str, str]:
    told = steering.share_of(job)
    own_s = job.limit_s if told is None else told[1]
    changes = {"AdminComment": action.share.text(own_s), "Partition": partitions.shared}
    changes |= {"ReqNodeList": action.share.node}
    changes |= {"Dependency": "afterany:" + ":".join(map(str, action.after)) if action.after else ""}
    if math.isfinite(own_s):
        # Sharing must not cost a job its end: who is slowed down has so much longer.
        changes |= {"TimeLimit": str(math.ceil(own_s / 60 * factor))}
    return changes


def _released(action: steering.Release, partitions: steering.Partitions) -> dict[str, str]:
    changes = {"Partition": partitions.alone, "ReqNodeList": "", "Dependency": "", "AdminComment": ""}
    if math.isfinite(action.limit_s):
        changes |= {"TimeLimit": str(math.ceil(action.limit_s / 60))}
    return changes


@dataclass
class Audit:
    """Lines of JSON: what was decided, said, refused, and when. A full disk stops no job."""

    path: str | None
    warn: Callable[[str], None]
    _is_told: bool = False

    def note(self, now_s: float, what: str, **told: Any) -> None:
        """Add a line; trouble is told once."""
        if self.path is None:
            return
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"unix_s": round(now_s, 3), "what": what, **told}) + "\n")
        except OSError as error:
            if not self._is_told:
                self.warn(f"audit log {self.path} cannot be written: {error.strerror}")
            self._is_told = True


def step(known: Known, how: Steering, audit: Audit, *, is_dry: bool) -> list[steering.Action]:
    """One look: decide, say it unless `is_dry`, note it; returns what was decided.

    Raises
    ------
    EnvironmentFault
        If Slurm does not answer. What it refuses for one job is noted, and looked at again next time.
    DataError
        If its answer or the profiles' folder is not what it should be.
    """
    now = slurm.snapshot()
    known.look({str(job.id) for job in now.jobs if job.is_on_nodes})
    actions = look(now, known, how)
    for action in actions:
        told = {"action": type(action).__name__.lower(), **dataclasses.asdict(action)}
        if is_dry:
            audit.note(now.now_s, "would say", **told)
            continue
        try:
            apply(action, now, how.partitions)
            audit.note(now.now_s, "said", **told)
        except slurm_command.Away as error:
            # By the time that it answers again the queue will be another one.
            audit.note(now.now_s, "not said", **told, error=str(error))
            raise
        except EnvironmentFault as error:
            audit.note(now.now_s, "refused", **told, error=str(error))
            audit.warn(str(error))
            _bar(known, action, now.now_s)
        else:
            if isinstance(action, steering.Release) and action.why.startswith(steering.REFUSED):
                _bar(known, action, now.now_s)
    return actions


def _bar(known: Known, action: steering.Action, now_s: float) -> None:
    jobs = action.share.jobs if isinstance(action, steering.Commit) else (action.job,)
    for job in jobs:
        known.bar(job, now_s + BARRED_S)
