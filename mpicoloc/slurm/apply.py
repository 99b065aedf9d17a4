"""Carries out what the pairing service decides: changes of jobs in Slurm, and the log of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpicoloc.core.batch_system import PENDING, BatchJob, Snapshot
from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.pairing import sharing_plan
from mpicoloc.slurm import client


@dataclass
class AuditLog:
    """Log in lines of JSON: what was decided, changed and refused, and when. A full disk stops no job."""

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


class UpdateRefused(EnvironmentFault):
    """Slurm has refused to change the job `job`."""

    def __init__(self, job: int, error: EnvironmentFault) -> None:
        super().__init__(str(error))
        self.job = job


def apply_action(
    action: sharing_plan.Action,
    now: Snapshot,
    partitions: sharing_plan.Partitions,
    audit: AuditLog,
    pauses_s: Sequence[float] = (),
) -> int | None:
    """Change the jobs of an action in Slurm and log it.

    Result: number of the job that Slurm refused to change; None if it made all changes. Raises
    `slurm_command.ControllerAway` if it does not answer.
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


def action_fields(action: sharing_plan.Action) -> dict[str, Any]:
    """Fields of an action in the log."""
    return {"action": type(action).__name__.lower(), **dataclasses.asdict(action)}


def change_jobs(
    action: sharing_plan.Action,
    now: Snapshot,
    partitions: sharing_plan.Partitions,
    pauses_s: Sequence[float] = (),
) -> None:
    """Make the changes of an action: as a rule one change of one job.

    A leader that already runs may need a longer time limit as well. It gets that first, so that a service
    which is killed in between harms nobody, and loses it again if Slurm refuses its partner.

    Raises `UpdateRefused` if Slurm refuses. Raises `slurm_command.ControllerAway` if it does not answer.
    """
    jobs = {job.id: job for job in now.jobs}
    if isinstance(action, sharing_plan.Release):
        _update(action.job, _release_changes(action, jobs[action.job], partitions), pauses_s)
        return
    max_s = now.queue(partitions.shared).max_s
    extended: list[BatchJob] = []
    for number, factor in zip(action.share.jobs, action.slowdowns, strict=True):
        job = jobs[number]
        # A job that is slowed down must not hit its time limit, so the limit grows by the same factor.
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
                # A leader that has ended meanwhile cannot be changed, and needs no change.
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
    """Undo what the service changed, but nothing that somebody else has changed since."""
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
    partitions: sharing_plan.Partitions, audit: AuditLog, names: Collection[str] = ()
) -> list[sharing_plan.Release]:
    """Undo the changes of all waiting jobs, or of those that wait for the nodes `names`.

    Result: what was undone. Raises `EnvironmentFault` if Slurm does not answer, or refuses to change a job;
    the others are changed. Raises `UsageError` if it has no partitions of these names.
    """
    now = client.snapshot()
    if missing := _missing_partitions(now, partitions):
        raise UsageError(missing[0])
    given = [
        (action, apply_action(action, now, partitions, audit, client.PAUSES_S))
        for action in sharing_plan.released(now, names)
    ]
    if refused := [str(job) for _, job in given if job is not None]:
        raise EnvironmentFault(
            f"jobs {', '.join(refused)} are not given back: run this as Slurm's administrator"
        )
    return [action for action, _ in given]


def configuration_advice(
    now: Snapshot, partitions: sharing_plan.Partitions, settings: Mapping[str, str]
) -> list[str]:
    """Settings of Slurm and its partitions that keep pairs from forming, a sentence each."""
    found = _missing_partitions(now, partitions)
    alone, shared = now.queue(partitions.alone), now.queue(partitions.shared)
    if not found and shared.tier <= alone.tier:
        found.append(
            f"PriorityTier={shared.tier} of partition {shared.name} is not above {alone.tier} of "
            f"{alone.name}: a partner waits behind jobs that want the node alone, and comes late"
        )
    if (preempt := settings.get("PreemptType", "preempt/none")) != "preempt/none":
        found.append(
            f"PreemptType={preempt}: what is sent to {shared.name} may end jobs of {alone.name}; "
            "set preempt/none"
        )
    given = [settings.get(name, "") for name in ("DefMemPerCPU", "DefMemPerNode")]
    if "GANG" in settings.get("PreemptMode", "").upper():
        found.append(
            f"PreemptMode={settings['PreemptMode']}: jobs that share a node are suspended by turns "
            "instead of running beside each other; set PreemptMode=OFF"
        )
    selected = settings.get("SelectTypeParameters", "")
    if client.shares_out_memory(settings) and all(text in ("", "0", "UNLIMITED") for text in given):
        found.append(
            f"SelectTypeParameters={selected} without DefMemPerCPU: a job that names no memory takes all "
            "of its node, and no partner starts beside it; set DefMemPerCPU, if the partitions have none"
        )
    return [*found, *_foreign_comment_advice(now, partitions)]


def _foreign_comment_advice(now: Snapshot, partitions: sharing_plan.Partitions) -> list[str]:
    """A sentence if most waiting jobs have an AdminComment of somebody else and are left alone."""
    waiting = [job for job in now.jobs if job.state == PENDING and job.partition == partitions.alone]
    texts = Counter(job.admin_comment for job in waiting if not sharing_plan.is_free(job))
    if 2 * texts.total() <= len(waiting):
        return []
    (most, _), *_ = texts.most_common(1)
    return [
        f"{texts.total()} of {len(waiting)} jobs that wait in {partitions.alone} have an AdminComment of "
        f"somebody else's ({most[:40]!r}) and are left alone: write it elsewhere (Comment, --wckey)"
    ]


def _missing_partitions(now: Snapshot, partitions: sharing_plan.Partitions) -> list[str]:
    names = {queue.name for queue in now.queues}
    return [
        f"Slurm has no partition {name}: see --alone and --shared"
        for name in (partitions.alone, partitions.shared)
        if name not in names
    ]
