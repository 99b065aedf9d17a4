"""The pairing service. It reads Slurm's queue periodically, and decides which waiting jobs share nodes.

The service can die at any time, because it rebuilds its state from the queue and the profiles. Slurm
schedules jobs that the service has not changed as usual.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO, TypeAlias

import numpy as np

from mpicoloc import messages
from mpicoloc.core import slowdown
from mpicoloc.core.batch_system import PENDING, BatchJob, Snapshot
from mpicoloc.core.profile import Estimate, Floats
from mpicoloc.core.slowdown import TURNS, JobFeatures
from mpicoloc.core.units import counted
from mpicoloc.errors import EnvironmentFault, MpicolocError, UsageError
from mpicoloc.pairing import blossom, model_file, policies, production, sharing_plan
from mpicoloc.pairing.cores_plan import Preference
from mpicoloc.pairing.policies import Queue, Room, Rules
from mpicoloc.pairing.sharing_plan import Action, Partitions, own_limit_s
from mpicoloc.slurm import client
from mpicoloc.slurm.job_history import Kind, ProfileHistory

MeasuredPairs: TypeAlias = Mapping[tuple[Kind, Kind], Sequence[Estimate]]
"""Slowdowns of each kind of job beside each other kind (`ProfileHistory.measured_pairs`)."""
EXCLUDED_S = 600.0
"""Time for which the service does not touch a job after Slurm refused to change it, s."""
FORBIDDEN_SLOWDOWN = 1e9
"""Slowdown assumed for two leaders. It is so large that no plan pairs them: each has nodes of its own."""
SNAPSHOT_AGE_MAX_S = 1.0
"""Largest age of a snapshot, s. It is exceeded when thousands of profiles are read for the first time."""
MIN_REMAINING_S = 1.0
"""Assumed remaining run time of a job that has run longer than its profiles predict, s."""


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of the service.

    Parameters
    ----------
    partitions : sharing_plan.Partitions
        Names of the two queues.
    rules : policies.Rules
        Rules for choosing pairs.
    model : SlowdownModel or None
        If None, `rules.prior_slowdown` is the expected slowdown of each pair.
    n_sharing : int
        Jobs per processor in the queue for sharing (2 for Slurm's OverSubscribe=FORCE:2).
    layout : str
        `TURNS`; or `CORES` or `SPREAD` if the queue gives out cores, which is then both queues of
        `partitions`.
    """

    partitions: sharing_plan.Partitions
    rules: policies.Rules
    model: slowdown.SlowdownModel | None
    n_sharing: int = 2
    layout: str = TURNS


def machine_advice(now: Snapshot, how: ServiceSettings) -> list[str]:
    """A warning if nodes differ from the machine on which the model was measured; else, an empty list."""
    machine = getattr(how.model, "machine", None)
    nodes = sharing_plan.usable(now, how.partitions)
    other = None if machine is None else next((each for each in nodes if each.n_cpus != machine.n_cpus), None)
    if other is None:
        return []
    return [
        f"node {other.name} has {counted(other.n_cpus, 'CPU')}, but the model is from {machine}: "
        "fit a model to jobs that ran on such nodes"
    ]


def decide_actions(now: Snapshot, known: ProfileHistory, how: ServiceSettings) -> list[sharing_plan.Action]:
    """Actions for this snapshot: `sharing_plan.decide` with run times and slowdowns from the profiles."""
    features = {
        job.id: _within_limit(job, found)
        for job in now.jobs
        if (found := known.features_of(job, now.now_s)) is not None
    }
    runtime_s = {number: found.runtime_s for number, found in features.items()}
    measured = known.measured_pairs({job.kind for job in now.jobs if job.id in features})

    def plan(leaders: Sequence[BatchJob], waiting: Sequence[BatchJob]) -> Sequence[policies.Group]:
        return plan_groups(leaders, waiting, features, how, now, measured)

    def growth(job: BatchJob, others: Sequence[BatchJob]) -> float:
        # Jobs that take turns on a processor are slowed down by at least this factor, whatever the model
        # predicts.
        least = float(max(how.n_sharing, how.rules.prior_slowdown or 1.0))
        both = [job, *others]
        if not all(each.id in features for each in both):
            return least
        value, high = expected_slowdowns(both, features, how, measured)
        # A pair with an unknown slowdown adds nothing here, because `least` covers it.
        lost = np.nan_to_num(np.fmax(value, high)[0, 1:] - 1.0)
        return max(1.0 + float(lost.sum()), least)

    return sharing_plan.decide(now, how.partitions, plan, runtime_s, growth)


def _within_limit(job: BatchJob, found: JobFeatures) -> JobFeatures:
    """Cap the run time at the job's time limit, because the profiles may be of longer runs."""
    return dataclasses.replace(found, runtime_s=min(found.runtime_s, max(own_limit_s(job), MIN_REMAINING_S)))


def plan_groups(
    leaders: Sequence[BatchJob],
    waiting: Sequence[BatchJob],
    features: Mapping[int, JobFeatures],
    how: ServiceSettings,
    now: Snapshot,
    measured: MeasuredPairs,
) -> list[policies.Group]:
    """Groups of leaders and waiting jobs; jobs of a group have equally many nodes.

    A job without profiles runs alone, so that it has a profile next time. A job also runs alone if sharing
    needs a longer time limit than the partition allows.
    """
    both = [*leaders, *waiting]
    room, max_s = _smallest_room(now, how), now.queue(how.partitions.shared).max_s
    sharable = [
        i
        for i, job in enumerate(both)
        if job.id in features and _fits_in(job, features[job.id], room)
        and (i < len(leaders) or math.isinf(job.limit_s) or job.limit_s * how.n_sharing <= max_s)
    ]  # fmt: skip
    groups = []
    for n_nodes in sorted({both[i].n_nodes for i in sharable}):
        # Alternate leaders and waiting jobs, because some policies pair neighbours in the queue.
        first = [i for i in sharable if both[i].n_nodes == n_nodes and i < len(leaders)]
        others = [i for i in sharable if both[i].n_nodes == n_nodes and i >= len(leaders)]
        mixed = [i for two in itertools.zip_longest(first, others) for i in two if i is not None]
        queue = _queue([both[i] for i in mixed], {both[i].id for i in first}, features, how, now, measured)
        rules = dataclasses.replace(how.rules, room=room)
        groups += [
            policies.Group(tuple(sorted(mixed[i] for i in group.jobs)), group.duration_s, group.why)
            for group in policies.plan(queue, rules).groups
        ]
    alone = set(range(len(both))) - set(sharable)
    return [*groups, *(policies.Group((i,), 0.0, "no prediction, or it cannot share") for i in alone)]


def _queue(
    jobs: Sequence[BatchJob],
    leaders: Collection[int],
    features: Mapping[int, JobFeatures],
    how: ServiceSettings,
    now: Snapshot,
    measured: MeasuredPairs,
) -> Queue:
    value, high = expected_slowdowns(jobs, features, how, measured)
    leads = np.array([job.id in leaders for job in jobs], bool)
    value, high = (np.where(leads[:, None] & leads, FORBIDDEN_SLOWDOWN, array) for array in (value, high))
    return Queue(
        np.array([_remaining_s(job, features[job.id], now) for job in jobs]),
        value,
        high,
        n_cores=np.array([_n_cores(job) for job in jobs]),
        memory_bytes=np.array([_memory_bytes(job, features[job.id]) for job in jobs]),
    )


def expected_slowdowns(
    jobs: Sequence[BatchJob],
    features: Mapping[int, JobFeatures],
    how: ServiceSettings,
    measured: MeasuredPairs,
) -> tuple[Floats, Floats]:
    """Expected slowdown of each job beside each other job, and its upper end (`production`)."""
    # Predict per kind, because jobs of a kind have the same features and a queue has few kinds.
    of_kind = {job.kind: features[job.id] for job in reversed(jobs)}
    place = {kind: i for i, kind in enumerate(of_kind)}
    which = np.array([place[job.kind] for job in jobs], int)
    before: slowdown.PairSlowdowns | float | None = how.rules.prior_slowdown
    if how.model is not None and jobs:
        before = slowdown.pair_slowdowns(how.model, list(of_kind.values()))
    value, high = (
        array[np.ix_(which, which)] for array in production.expected_pair_slowdowns(of_kind, measured, before)
    )
    return value, high


def _remaining_s(job: BatchJob, found: JobFeatures, now: Snapshot) -> float:
    """Remaining run time of a job without co-runners, s."""
    gone_s = now.now_s - job.start_s if job.is_on_nodes else 0.0
    return max(found.runtime_s - gone_s, MIN_REMAINING_S)


def _fits_in(job: BatchJob, found: JobFeatures, room: Room) -> bool:
    return _n_cores(job) <= room.n_cores and _memory_bytes(job, found) <= room.memory_bytes


def _n_cores(job: BatchJob) -> float:
    """Processors that a job needs on each of its nodes."""
    # A running job is allocated all processors of its nodes, so only its number of tasks shows what it uses.
    n_cores = max(job.n_tasks, job.n_cpus) if job.state == PENDING else job.n_tasks
    return max(n_cores / max(job.n_nodes, 1), 1.0)


def _memory_bytes(job: BatchJob, found: JobFeatures) -> float:
    """Memory of a job on a node: the larger of what its ranks used and what the job requested, bytes."""
    measured_bytes = found.values.get("rss_bytes_mean", 0.0) * found.n_cores / max(job.n_nodes, 1)
    return max(measured_bytes, job.memory_bytes)


def _smallest_room(now: Snapshot, how: ServiceSettings) -> Room:
    """Room of the smallest node, within the rules' limits, because a pair may be placed on any node."""
    nodes = sharing_plan.usable(now, how.partitions)
    n_cores = min((node.n_cpus * how.n_sharing for node in nodes), default=1)
    memory_bytes = min((node.memory_bytes for node in nodes), default=1.0)
    given = how.rules.room
    return Room(min(float(n_cores), given.n_cores), min(memory_bytes, given.memory_bytes))


# Applies decisions: changes jobs in Slurm and logs the changes.


@dataclass
class AuditLog:
    """Log of decisions, changes and refusals, as JSON lines. A full disk does not stop the service."""

    path: str | None
    warn: Callable[[str], None]
    _has_warned: bool = False

    def add(self, now_s: float, event: str, **fields: Any) -> None:
        """Add a line; warn once if that fails."""
        if self.path is None:
            return
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"unix_s": round(now_s, 3), "what": event, **fields}) + "\n")
        except OSError as error:
            if not self._has_warned:
                self.warn(f"audit log {self.path} cannot be written: {error.strerror}")
            self._has_warned = True


Change: TypeAlias = Action | Preference
"""A decision that changes jobs in Slurm."""


class UpdateRefused(EnvironmentFault):
    """Slurm refused to change the job `job`."""

    def __init__(self, job: int, error: EnvironmentFault) -> None:
        super().__init__(str(error))
        self.job = job


def apply_action(
    action: Change,
    now: Snapshot,
    partitions: sharing_plan.Partitions,
    audit: AuditLog,
    pauses_s: Sequence[float] = (),
) -> int | None:
    """Change the jobs of an action in Slurm, and log the action.

    Result: number of the job that Slurm refused to change; None if Slurm made all changes. Raises
    `client.ControllerAway` if slurmctld does not answer.
    """
    try:
        change_jobs(action, now, partitions, pauses_s)
    except client.ControllerAway as error:
        audit.add(now.now_s, "not said", **action_fields(action), error=str(error))
        raise
    except UpdateRefused as error:
        audit.add(now.now_s, "refused", **action_fields(action), error=str(error), refused=error.job)
        audit.warn(str(error))
        return error.job
    audit.add(now.now_s, "said", **action_fields(action))
    return None


def action_fields(action: Change) -> dict[str, Any]:
    """Fields of an action in the log."""
    return {"action": type(action).__name__.lower(), **dataclasses.asdict(action)}


def change_jobs(
    action: Change,
    now: Snapshot,
    partitions: sharing_plan.Partitions,
    pauses_s: Sequence[float] = (),
) -> None:
    """Make the changes of an action: usually one change of one job.

    A leader that already runs may also need a longer time limit. Its limit is changed first, so that no job
    runs out of time if the service is killed in between, and is restored if Slurm refuses the partner.

    Raises `UpdateRefused` if Slurm refuses, and `client.ControllerAway` if slurmctld does not answer.
    """
    if isinstance(action, Preference):
        _update(action.job, action.changes(), pauses_s)
        return
    if isinstance(action, sharing_plan.Release):
        _update(action.job, _release_changes(action, now.by_id[action.job], partitions), pauses_s)
        return
    max_s = now.queue(partitions.shared).max_s
    extended: list[BatchJob] = []
    for number, factor in zip(action.share.jobs, action.slowdowns, strict=True):
        job = now.by_id[number]
        # The time limit grows by the expected slowdown, so that the slowed job does not reach it.
        limit_s = min(sharing_plan.own_limit_s(job) * factor, max_s)
        changes = {"TimeLimit": _minutes(limit_s)} if limit_s > job.limit_s else {}
        if number == action.share.job:
            changes |= _commit_changes(action, job, partitions, now.now_s)
        try:
            if changes:
                _update(number, changes, pauses_s)
                extended.append(job)
        except UpdateRefused:
            for leader in extended:
                # Slurm refuses to change a leader that has ended meanwhile, but such a leader needs no
                # change.
                with contextlib.suppress(UpdateRefused):
                    _update(leader.id, {"TimeLimit": _minutes(leader.limit_s)}, pauses_s)
            raise


def _minutes(limit_s: float) -> str:
    return str(math.ceil(limit_s / 60))


def _update(job: int, changes: Mapping[str, str], pauses_s: Sequence[float]) -> None:
    try:
        client.update(job, changes, pauses_s)
    except client.ControllerAway:
        raise
    except EnvironmentFault as error:
        raise UpdateRefused(job, error) from None


def _commit_changes(
    action: sharing_plan.Commit, job: BatchJob, partitions: sharing_plan.Partitions, now_s: float
) -> dict[str, str]:
    return {
        "AdminComment": action.share.text(sharing_plan.own_limit_s(job), action.after, now_s),
        "Partition": partitions.shared,
        "ReqNodeList": ",".join(action.share.nodes),
        "Dependency": "afterany:" + ":".join(map(str, action.after)) if action.after else "",
    }


def _release_changes(
    action: sharing_plan.Release, job: BatchJob, partitions: sharing_plan.Partitions
) -> dict[str, str]:
    """Changes that undo the service's changes. What somebody else has changed since stays."""
    changes = {"AdminComment": ""}
    if job.partition != partitions.shared:
        return changes
    changes |= {"Partition": partitions.alone}
    told = sharing_plan.assignment_of(job)
    if told and set(job.wanted_nodes) == set(told[0].nodes):
        changes |= {"ReqNodeList": ""}
    if sharing_plan.waits_as_assigned(job):
        changes |= {"Dependency": ""}
    if math.isfinite(action.limit_s):
        changes |= {"TimeLimit": _minutes(action.limit_s)}
    return changes


def release_jobs(
    partitions: sharing_plan.Partitions,
    audit: AuditLog,
    names: Collection[str] = (),
    released: Callable[[Snapshot, Collection[str]], Sequence[Change]] = sharing_plan.released,
) -> list[Change]:
    """Undo the service's changes to all waiting jobs, or to the jobs that wait for the nodes `names`.

    Result: the actions. Raises `EnvironmentFault` if Slurm does not answer, or if it refuses to change a job;
    after a refusal, the other jobs are released all the same. Raises `UsageError` if Slurm lacks one of the
    partitions.
    """
    now = client.snapshot()
    if missing := missing_partitions(now, partitions):
        raise UsageError(missing[0])
    given = [
        (action, apply_action(action, now, partitions, audit, client.PAUSES_S))
        for action in released(now, names)
    ]
    if refused := [str(job) for _, job in given if job is not None]:
        raise EnvironmentFault(
            f"jobs {', '.join(refused)} cannot be released: run this as Slurm's administrator"
        )
    return [action for action, _ in given]


def configuration_advice(
    now: Snapshot, partitions: sharing_plan.Partitions, settings: Mapping[str, str]
) -> list[str]:
    """Warnings about settings of Slurm and its partitions that keep pairs from forming."""
    found = missing_partitions(now, partitions)
    has_both, alone, shared = not found, now.queue(partitions.alone), now.queue(partitions.shared)
    if has_both and shared.tier <= alone.tier:
        found.append(
            f"PriorityTier={shared.tier} of partition {shared.name} is not above {alone.tier} of "
            f"{alone.name}: a partner waits behind jobs that need the node alone, and starts late"
        )
    if has_both and (not shared.sharing.startswith("FORCE") or shared.sharing == "FORCE:1"):
        found.append(
            f"OverSubscribe={shared.sharing} of partition {shared.name}: no partner starts beside a running "
            "job; set OverSubscribe=FORCE:2"
        )
    if (preempt := settings.get("PreemptType", "(null)")) not in ("preempt/none", "(null)"):
        found.append(
            f"PreemptType={preempt}: a job moved to {shared.name} may preempt jobs of {alone.name}; "
            "set preempt/none"
        )
    given = [settings.get(name, "") for name in ("DefMemPerCPU", "DefMemPerNode")]
    if "GANG" in settings.get("PreemptMode", "").upper():
        found.append(
            f"PreemptMode={settings['PreemptMode']}: jobs that share a node are suspended in turn "
            "instead of running side by side; set PreemptMode=OFF"
        )
    selected = settings.get("SelectTypeParameters", "")
    if client.shares_out_memory(settings) and all(text in ("", "0", "UNLIMITED") for text in given):
        found.append(
            f"SelectTypeParameters={selected} without DefMemPerCPU: a job that requests no memory gets all "
            "memory of its node, so no partner starts there; set DefMemPerCPU, if the partitions have none"
        )
    return [*found, *_foreign_comment_advice(now, partitions)]


def _foreign_comment_advice(now: Snapshot, partitions: sharing_plan.Partitions) -> list[str]:
    """A warning if most waiting jobs have a foreign AdminComment, as the service does not touch these."""
    waiting = [job for job in now.jobs if job.state == PENDING and job.partition == partitions.alone]
    texts = Counter(job.admin_comment for job in waiting if not sharing_plan.is_free(job))
    if 2 * texts.total() <= len(waiting):
        return []
    (most, _), *_ = texts.most_common(1)
    return [
        f"{texts.total()} of {len(waiting)} jobs that wait in {partitions.alone} have an AdminComment not "
        f"from mpicoloc ({most[:40]!r}), so they are not paired: write it elsewhere (Comment, --wckey)"
    ]


def missing_partitions(now: Snapshot, partitions: sharing_plan.Partitions) -> list[str]:
    """A message for each of the partitions that Slurm lacks."""
    names = {queue.name for queue in now.queues}
    return [
        f"Slurm has no partition {name}: see --alone and --shared"
        for name in (partitions.alone, partitions.shared)
        if name not in names
    ]


@dataclass
class LoopState:
    """State of earlier rounds: actions announced already, and jobs not to touch for a while."""

    announced: set[tuple[str, int, tuple[str, ...]]] = field(default_factory=set)
    excluded_until_s: dict[int, float] = field(default_factory=dict)


Decide: TypeAlias = Callable[[Snapshot, ProfileHistory, ServiceSettings], Sequence[Change]]


def run_once(
    known: ProfileHistory,
    how: ServiceSettings,
    audit: AuditLog,
    *,
    is_dry: bool,
    state: LoopState | None = None,
    clock: Callable[[], float] = time.time,
    decide: Decide = decide_actions,
) -> list[Change]:
    """One round: take a snapshot, decide, change the jobs unless `is_dry`, and log.

    Result: the actions; in a dry run only new actions. If Slurm refuses to change a job, the refusal is
    logged, and the job is tried again after `EXCLUDED_S`. Raises `EnvironmentFault` if Slurm does not answer.
    Raises `DataError` if Slurm's answer or the folder of profiles is not understood.
    """
    state = LoopState() if state is None else state
    now = client.snapshot(clock)
    known.update({str(job.id) for job in now.jobs if job.is_on_nodes})
    # Reading new profiles may take long. Read them first, so that the decision has a fresh snapshot.
    known.measured_pairs({job.kind for job in now.jobs if known.features_of(job, now.now_s) is not None})
    if clock() - now.now_s > SNAPSHOT_AGE_MAX_S:
        now = client.snapshot(clock)
    actions = decide(now, known, how)
    if not is_dry:
        return _apply_actions(actions, now, known, how, audit, state)
    new = [action for action in actions if _action_key(action) not in state.announced]
    for action in new:
        audit.add(now.now_s, "would say", **action_fields(action))
    state.announced = set(map(_action_key, actions))
    return new


def _apply_actions(
    actions: Sequence[Change],
    now: Snapshot,
    known: ProfileHistory,
    how: ServiceSettings,
    audit: AuditLog,
    state: LoopState,
) -> list[Change]:
    state.excluded_until_s = {
        job: until_s for job, until_s in state.excluded_until_s.items() if until_s > now.now_s
    }
    unchanged: set[int] = set(state.excluded_until_s)
    new = []
    for action in actions:
        if isinstance(action, sharing_plan.Commit) and unchanged & set(action.after):
            continue  # it would wait for a job that could not be moved
        if state.excluded_until_s.keys() & set(_jobs_of(action)):
            continue
        new.append(action)
        if (refused := apply_action(action, now, how.partitions, audit)) is not None:
            unchanged.add(_moved_job(action))
            state.excluded_until_s[refused] = now.now_s + EXCLUDED_S
            known.exclude_until(refused, now.now_s + EXCLUDED_S)
        elif isinstance(action, sharing_plan.Release) and action.why.startswith(sharing_plan.REFUSED):
            known.exclude_until(action.job, now.now_s + EXCLUDED_S)
    return new


def _action_key(action: Change) -> tuple[str, int, tuple[str, ...]]:
    place = action.share if isinstance(action, sharing_plan.Commit) else action
    nodes = () if isinstance(place, sharing_plan.Release) else place.nodes
    return type(action).__name__, _moved_job(action), nodes


def _jobs_of(action: Change) -> tuple[int, ...]:
    return action.share.jobs if isinstance(action, sharing_plan.Commit) else (action.job,)


def _moved_job(action: Change) -> int:
    return action.share.job if isinstance(action, sharing_plan.Commit) else action.job


_HELD: list[TextIO] = []


def _close_locks() -> None:
    for file in _HELD:
        file.close()


# A child that reads a profile may hang and outlive the service. It must not keep the lock.
os.register_at_fork(after_in_child=_close_locks)


@contextlib.contextmanager
def hold_lock(partitions: Partitions) -> Iterator[None]:
    """Hold the lock of these partitions. The kernel releases the lock when the process ends.

    If the lock's file cannot be created or the file system has no locks, the service runs without a lock.

    Raises `EnvironmentFault` if another service holds the lock.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    words = "\0".join((os.environ.get("SLURM_CONF", ""), partitions.alone, partitions.shared))
    name = f"pair-{hashlib.sha256(words.encode(errors='surrogateescape')).hexdigest()[:16]}.lock"
    path = os.path.join(cache, "mpicoloc", name)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = stack.enter_context(open(path, "a", encoding="utf-8"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EnvironmentFault(
                    f"another `mpicoloc pair --watch` manages {partitions.alone} and {partitions.shared} "
                    f"({path} is locked): stop it first, or use --dry-run"
                ) from None
            _HELD.append(file)
            stack.callback(_HELD.remove, file)
        yield


Show = Callable[[Change], None]


def service_settings(
    partitions: Partitions, rules: Rules, model_path: str | None, layout: str = TURNS
) -> ServiceSettings:
    """Settings of a service with these rules and the model in a file.

    Raises `UsageError` if the service cannot apply these rules.
    """
    if model_path is None and layout == slowdown.SPREAD:
        raise UsageError("--watch --layout spread needs --model FILE")
    if model_path is None and rules.prior_slowdown is None:
        raise UsageError("--watch needs --model FILE, or --prior-slowdown X until there is a model")
    if rules.policy == "blossom" and layout == TURNS:
        blossom.library()  # report a missing library at start, not when two jobs wait
    if rules.policy == "di":
        raise UsageError(
            "--policy di needs an intensity of each job, which Slurm does not give: use another policy"
        )
    if rules.n_per_node != 2:
        raise UsageError(f"--watch makes pairs, but --per-node is {rules.n_per_node}: leave out --per-node")
    model = None if model_path is None else _model(model_path, layout)
    return ServiceSettings(partitions, rules, model, layout=layout)


def _model(path: str, layout: str) -> model_file.StoredModel:
    """The model in a file. Raises `UsageError` if it is of another layout."""
    model = model_file.read(path)
    slowdown.check_layout(layout, model_file.layout(model), path)
    return model


def named_partitions(alone: str, shared: str) -> Partitions:
    """The two queues.

    Raises `UsageError` if both have the same name.
    """
    if alone == shared:
        raise UsageError(f"--alone and --shared are both {alone}: name two different partitions")
    return Partitions(alone, shared)


def watch(pairing: PairingService, interval_s: float, *, is_once: bool) -> None:
    """Run rounds until the process ends, or run one round. A lock ensures that only one service changes jobs.

    Raises the `MpicolocError` that stopped a single round. Without `is_once` an error is reported, and the
    next round tries again, unless the error is a `UsageError`.
    """
    lock = contextlib.nullcontext() if pairing.is_dry else hold_lock(pairing.how.partitions)
    with lock:
        while True:
            try:
                pairing.look()
            except UsageError:
                raise
            except MpicolocError as error:
                if is_once:
                    raise
                pairing.report_trouble(error)
            if is_once:
                return
            time.sleep(interval_s)


class PairingService:
    """The pairing service, with the state between two rounds: job history, and messages already reported.

    Parameters
    ----------
    profiles : str
        Folder of the jobs' profiles.
    model_path : str or None
        File of the model in `how`. The file is read again when it changes.
    how : ServiceSettings
    audit : AuditLog
    show : callable
        Called with each new action.
    is_dry : bool
        Whether to decide and log only.
    """

    def __init__(
        self,
        profiles: str,
        model_path: str | None,
        how: ServiceSettings,
        audit: AuditLog,
        show: Show,
        *,
        is_dry: bool,
    ) -> None:
        self.model_path, self.how, self.audit, self.show, self.is_dry = model_path, how, audit, show, is_dry
        self.known = ProfileHistory(profiles, getattr(how.model, "machine", None), how.layout)
        self.state = LoopState()
        self.reported: set[str] = set()
        self.is_advised = False
        self.trouble = ""
        self.model_stamp = _stamp(model_path)

    def look(self) -> None:
        """One round."""
        if not self.is_advised:
            now = client.snapshot()
            for line in self.advice(now, client.settings()) + machine_advice(now, self.how):
                messages.trouble(line)
            self.is_advised = True
        self.renew_model()
        found = run_once(
            self.known, self.how, self.audit, is_dry=self.is_dry, state=self.state, decide=self.decide
        )
        for action in found:
            self.show(action)
        for sort in self.known.notes.keys() - self.reported:
            messages.trouble(self.known.notes[sort])
        self.trouble = ""
        self.reported |= self.known.notes.keys()

    def advice(self, now: Snapshot, settings: Mapping[str, str]) -> list[str]:
        """Warnings about settings of Slurm."""
        return configuration_advice(now, self.how.partitions, settings)

    def decide(self, now: Snapshot, known: ProfileHistory, how: ServiceSettings) -> Sequence[Change]:
        """Changes of jobs."""
        return decide_actions(now, known, how)

    def renew_model(self) -> None:
        """Read the model again if its file has changed. If that fails, warn and keep the old model."""
        stamp = _stamp(self.model_path)
        if stamp == self.model_stamp or self.model_path is None:
            return
        self.model_stamp = stamp
        try:
            model = _model(self.model_path, self.how.layout)
        except MpicolocError as error:
            messages.trouble(f"{error}; the previous model stays in use")
            return
        self.how = dataclasses.replace(self.how, model=model)
        self.known.set_machine(model.machine)

    def report_trouble(self, error: MpicolocError) -> None:
        """Report an error, but not twice in a row: Slurm may restart, and a file system may come back."""
        if str(error) != self.trouble:
            messages.trouble(str(error))
            self.audit.add(time.time(), "trouble", error=str(error))
        self.trouble = str(error)


def _stamp(path: str | None) -> tuple[int, ...]:
    """A stamp that changes when the file is rewritten; constant if the path is None or cannot be read."""
    try:
        found = os.stat(path) if path else None
    except OSError:
        return (-1,)
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)
