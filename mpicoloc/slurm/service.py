"""The pairing service: looks at Slurm's queue again and again, and says which waiting jobs share a node next.

It keeps nothing in memory that the queue and the profiles do not tell: it may die at any time and be started
again, or not. Jobs that it never came to run as the batch system has them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.batch import PENDING, BatchJob, Snapshot
from mpicoloc.core.estimate import Estimate
from mpicoloc.core.features import JobFeatures
from mpicoloc.schedule import policies, sharing_plan
from mpicoloc.schedule.assignment import own_limit_s
from mpicoloc.schedule.queue import Queue, Room
from mpicoloc.slowdown import pair_history, slowdown
from mpicoloc.slurm import apply, client
from mpicoloc.slurm.job_history import Kind, Known

Array = NDArray[np.float64]
Met: TypeAlias = Mapping[tuple[Kind, Kind], Sequence[Estimate]]
"""What kinds suffered when they met (`Known.met`)."""
BARRED_S = 600.0
"""So long a job is left alone after Slurm has refused it."""
NOT_TOGETHER = 1e9
"""As a slowdown, worse than any: leaders have nodes of their own."""
FRESH_S = 1.0
"""A queue that is older is asked for again: profiles had to be read meanwhile, at first thousands."""
LEAST_S = 1.0
"""What a job still runs, at least, that should have ended by what its profiles say."""


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

    partitions: sharing_plan.Partitions
    rules: policies.Rules
    model: slowdown.SlowdownModel | None
    n_sharing: int = 2


def advice(now: Snapshot, how: Steering) -> list[str]:
    """What of the nodes is not as the model has it, in words."""
    machine = getattr(how.model, "machine", None)
    nodes = sharing_plan.usable(now, how.partitions)
    other = None if machine is None else next((each for each in nodes if each.n_cpus != machine.n_cpus), None)
    if other is None:
        return []
    return [
        f"node {other.name} has {other.n_cpus} CPUs, and the model is of {machine}: what jobs suffer on such "
        "nodes may be another thing; fit a model of jobs that ran there"
    ]


def look(now: Snapshot, known: Known, how: Steering) -> list[sharing_plan.Action]:
    """What to say at this time: `steering.decide` with what is known of the jobs."""
    features = {
        job.id: _within_limit(job, found)
        for job in now.jobs
        if (found := known.of(job, now.now_s)) is not None
    }
    runtime_s = {number: found.runtime_s for number, found in features.items()}
    measured = known.met({job.kind for job in now.jobs if job.id in features})

    def plan(leaders: Sequence[BatchJob], waiting: Sequence[BatchJob]) -> Sequence[policies.Group]:
        return planned(leaders, waiting, features, how, now, measured)

    def growth(job: BatchJob, others: Sequence[BatchJob]) -> float:
        # With equal shares of the processors a job takes so much longer, whatever is expected.
        least = float(max(how.n_sharing, how.rules.prior_slowdown or 1.0))
        both = [job, *others]
        if not all(each.id in features for each in both):
            return least
        value, high = _expected(both, features, how, measured)
        # What is not known of a pair, `least` has to cover.
        lost = np.nan_to_num(np.fmax(value, high)[0, 1:] - 1.0)
        return max(1.0 + float(lost.sum()), least)

    return sharing_plan.decide(now, how.partitions, plan, runtime_s, growth)


def _within_limit(job: BatchJob, found: JobFeatures) -> JobFeatures:
    """No job runs longer than its time limit, whatever its profiles say."""
    return dataclasses.replace(found, runtime_s=min(found.runtime_s, max(own_limit_s(job), LEAST_S)))


def planned(
    leaders: Sequence[BatchJob],
    waiting: Sequence[BatchJob],
    features: Mapping[int, JobFeatures],
    how: Steering,
    now: Snapshot,
    measured: Met,
) -> list[policies.Group]:
    """Groups of leaders and waiting jobs that have as many nodes.

    A job of which nothing is known runs alone, so that its profile tells next time; so does one whose time
    limit cannot grow as sharing needs it.
    """
    both = [*leaders, *waiting]
    room, max_s = _room(now, how), now.queue(how.partitions.shared).max_s
    may = [
        i
        for i, job in enumerate(both)
        if job.id in features and _fits(job, features[job.id], room)
        and (i < len(leaders) or math.isinf(job.limit_s) or job.limit_s * how.n_sharing <= max_s)
    ]  # fmt: skip
    groups = []
    for n_nodes in sorted({both[i].n_nodes for i in may}):
        # Policies that take jobs two by two must come upon a leader and a job for it.
        first = [i for i in may if both[i].n_nodes == n_nodes and i < len(leaders)]
        others = [i for i in may if both[i].n_nodes == n_nodes and i >= len(leaders)]
        mixed = [i for two in itertools.zip_longest(first, others) for i in two if i is not None]
        queue = _queue([both[i] for i in mixed], {both[i].id for i in first}, features, how, now, measured)
        rules = dataclasses.replace(how.rules, room=room)
        groups += [
            policies.Group(tuple(sorted(mixed[i] for i in group.jobs)), group.duration_s, group.why)
            for group in policies.plan(queue, rules).groups
        ]
    alone = set(range(len(both))) - set(may)
    return [*groups, *(policies.Group((i,), 0.0, "no prediction, or it cannot share") for i in alone)]


def _queue(
    jobs: Sequence[BatchJob],
    leaders: Collection[int],
    features: Mapping[int, JobFeatures],
    how: Steering,
    now: Snapshot,
    measured: Met,
) -> Queue:
    value, high = _expected(jobs, features, how, measured)
    leads = np.array([job.id in leaders for job in jobs], bool)
    value, high = (np.where(leads[:, None] & leads, NOT_TOGETHER, array) for array in (value, high))
    return Queue(
        np.array([_left_s(job, features[job.id], now) for job in jobs]),
        value,
        high,
        n_cores=np.array([_n_cores(job) for job in jobs]),
        memory_bytes=np.array([_memory_bytes(job, features[job.id]) for job in jobs]),
    )


def _expected(
    jobs: Sequence[BatchJob], features: Mapping[int, JobFeatures], how: Steering, measured: Met
) -> tuple[Array, Array]:
    """What each job will suffer beside each other, and the upper end of that (`met.among`)."""
    # Jobs of one kind behave alike: a queue has many of few kinds.
    of_kind = {job.kind: features[job.id] for job in reversed(jobs)}
    place = {kind: i for i, kind in enumerate(of_kind)}
    which = np.array([place[job.kind] for job in jobs], int)
    before: slowdown.PairSlowdowns | float | None = how.rules.prior_slowdown
    if how.model is not None and jobs:
        before = slowdown.pair_slowdowns(how.model, list(of_kind.values()))
    value, high = (array[np.ix_(which, which)] for array in pair_history.among(of_kind, measured, before))
    return value, high


def _left_s(job: BatchJob, found: JobFeatures, now: Snapshot) -> float:
    """How long a job alone would still run, s."""
    gone_s = now.now_s - job.start_s if job.is_on_nodes else 0.0
    return max(found.runtime_s - gone_s, LEAST_S)


def _fits(job: BatchJob, found: JobFeatures, room: Room) -> bool:
    return _n_cores(job) <= room.n_cores and _memory_bytes(job, found) <= room.memory_bytes


def _n_cores(job: BatchJob) -> float:
    """Processors that it wants of each of its nodes."""
    # One that runs has all of them, whatever it wants.
    n_cores = max(job.n_tasks, job.n_cpus) if job.state == PENDING else job.n_tasks
    return max(n_cores / max(job.n_nodes, 1), 1.0)


def _memory_bytes(job: BatchJob, found: JobFeatures) -> float:
    """Most memory that its ranks had together on a node, or what it asks for, if that is more."""
    measured_bytes = found.values.get("rss_bytes_mean", 0.0) * found.n_cores / max(job.n_nodes, 1)
    return max(measured_bytes, job.memory_bytes)


def _room(now: Snapshot, how: Steering) -> Room:
    """That of the smallest node, and no more than the rules say: any pair must fit wherever it comes to."""
    nodes = sharing_plan.usable(now, how.partitions)
    n_cores = min((node.n_cpus * how.n_sharing for node in nodes), default=1)
    memory_bytes = min((node.memory_bytes for node in nodes), default=1.0)
    given = how.rules.room
    return Room(min(float(n_cores), given.n_cores), min(memory_bytes, given.memory_bytes))


@dataclass
class Spoken:
    """What was said at earlier looks, so that it is neither said nor noted at each of them."""

    would: set[tuple[str, int, tuple[str, ...]]] = field(default_factory=set)
    refused: dict[int, float] = field(default_factory=dict)


def step(
    known: Known,
    how: Steering,
    audit: apply.Audit,
    *,
    is_dry: bool,
    spoken: Spoken | None = None,
    clock: Callable[[], float] = time.time,
) -> list[sharing_plan.Action]:
    """One look: decide, say it unless `is_dry`, note it; returns what is new of what was decided.

    Raises
    ------
    EnvironmentFault
        If Slurm does not answer. What it refuses for one job is noted, and looked at again after `BARRED_S`.
    DataError
        If its answer or the profiles' folder is not what it should be.
    """
    spoken = Spoken() if spoken is None else spoken
    now = client.snapshot(clock)
    known.look({str(job.id) for job in now.jobs if job.is_on_nodes})
    # What is new is read before the queue is asked again, so that this one is young when it is decided upon.
    known.met({job.kind for job in now.jobs if known.of(job, now.now_s) is not None})
    if clock() - now.now_s > FRESH_S:
        now = client.snapshot(clock)
    actions = look(now, known, how)
    if not is_dry:
        return _said(actions, now, known, how, audit, spoken)
    new = [action for action in actions if _key(action) not in spoken.would]
    for action in new:
        audit.note(now.now_s, "would say", **apply.told(action))
    spoken.would = set(map(_key, actions))
    return new


def _said(
    actions: Sequence[sharing_plan.Action],
    now: Snapshot,
    known: Known,
    how: Steering,
    audit: apply.Audit,
    spoken: Spoken,
) -> list[sharing_plan.Action]:
    spoken.refused = {job: until_s for job, until_s in spoken.refused.items() if until_s > now.now_s}
    unsaid: set[int] = set(spoken.refused)
    new = []
    for action in actions:
        if isinstance(action, sharing_plan.Commit) and unsaid & set(action.after):
            continue  # it would wait for a job that is not where it was to be
        if spoken.refused.keys() & set(_jobs(action)):
            continue
        new.append(action)
        if (refused := apply.say(action, now, how.partitions, audit)) is not None:
            unsaid.add(_job(action))
            spoken.refused[refused] = now.now_s + BARRED_S
            known.bar(refused, now.now_s + BARRED_S)
        elif isinstance(action, sharing_plan.Release) and action.why.startswith(sharing_plan.REFUSED):
            known.bar(action.job, now.now_s + BARRED_S)
    return new


def _key(action: sharing_plan.Action) -> tuple[str, int, tuple[str, ...]]:
    nodes = action.share.nodes if isinstance(action, sharing_plan.Commit) else ()
    return type(action).__name__, _job(action), nodes


def _jobs(action: sharing_plan.Action) -> tuple[int, ...]:
    return action.share.jobs if isinstance(action, sharing_plan.Commit) else (action.job,)


def _job(action: sharing_plan.Action) -> int:
    return action.share.job if isinstance(action, sharing_plan.Commit) else action.job
