"""What the pairing service says to Slurm, and its log."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpicoloc.core.batch import PENDING, BatchJob, Snapshot
from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.schedule import assignment, sharing_plan
from mpicoloc.slurm import client, slurm_command


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


class Refused(EnvironmentFault):
    """Slurm has refused to change the job `job`."""

    def __init__(self, job: int, error: EnvironmentFault) -> None:
        super().__init__(str(error))
        self.job = job


def say(
    action: sharing_plan.Action,
    now: Snapshot,
    partitions: sharing_plan.Partitions,
    audit: Audit,
    pauses_s: Sequence[float] = (),
) -> int | None:
    """Say it and note it; returns the job that Slurm refused to change; None: it did as it was told.

    A controller that does not answer is asked again after each of `pauses_s`, s. By then the queue may be
    another one: who has more to say looks at it again instead.

    Raises
    ------
    slurm_command.Away
        If it does not answer.
    """
    try:
        apply(action, now, partitions, pauses_s)
    except slurm_command.Away as error:
        audit.note(now.now_s, "not said", **told(action), error=str(error))
        raise
    except Refused as error:
        audit.note(now.now_s, "refused", **told(action), error=str(error), refused=error.job)
        audit.warn(str(error))
        return error.job
    audit.note(now.now_s, "said", **told(action))
    return None


def told(action: sharing_plan.Action) -> dict[str, Any]:
    """What the log says of it."""
    return {"action": type(action).__name__.lower(), **dataclasses.asdict(action)}


def apply(
    action: sharing_plan.Action,
    now: Snapshot,
    partitions: sharing_plan.Partitions,
    pauses_s: Sequence[float] = (),
) -> None:
    """Say it to Slurm: one change of one job, but for a leader that runs and needs more time than it has.

    That leader is told first, so that whoever is killed in between has cost it nothing; it has its time back
    if its partner is refused.

    Raises
    ------
    Refused
        If Slurm refuses.
    slurm_command.Away
        If it does not answer.
    """
    jobs = {job.id: job for job in now.jobs}
    if isinstance(action, sharing_plan.Release):
        _update(action.job, _released(action, jobs[action.job], partitions), pauses_s)
        return
    max_s = now.queue(partitions.shared).max_s
    grown: list[BatchJob] = []
    for number, factor in zip(action.share.jobs, action.slowdowns, strict=True):
        job = jobs[number]
        # Sharing must not cost a job its end: who is slowed down has so much longer.
        limit_s = min(assignment.own_limit_s(job) * factor, max_s)
        changes = {"TimeLimit": _minutes(limit_s)} if limit_s > job.limit_s else {}
        if number == action.share.job:
            changes |= _committed(action, job, partitions, now.now_s)
        try:
            if changes:
                _update(number, changes, pauses_s)
                grown.append(job)
        except Refused:
            for leader in grown:
                # One that has ended in the meantime needs it no more.
                with contextlib.suppress(Refused):
                    _update(leader.id, {"TimeLimit": _minutes(leader.limit_s)}, pauses_s)
            raise


def _minutes(limit_s: float) -> str:
    return str(math.ceil(limit_s / 60))


def _update(job: int, changes: Mapping[str, str], pauses_s: Sequence[float]) -> None:
    try:
        client.update(job, changes, pauses_s)
    except slurm_command.Away:
        raise
    except EnvironmentFault as error:
        raise Refused(job, error) from None


def _committed(
    action: sharing_plan.Commit, job: BatchJob, partitions: sharing_plan.Partitions, now_s: float
) -> dict[str, str]:
    return {
        "AdminComment": action.share.text(assignment.own_limit_s(job), action.after, now_s),
        "Partition": partitions.shared,
        "ReqNodeList": ",".join(action.share.nodes),
        "Dependency": "afterany:" + ":".join(map(str, action.after)) if action.after else "",
    }


def _released(
    action: sharing_plan.Release, job: BatchJob, partitions: sharing_plan.Partitions
) -> dict[str, str]:
    """Takes back what the service said, and nothing that somebody else has said since."""
    changes = {"AdminComment": ""}
    if job.partition != partitions.shared:
        return changes
    changes |= {"Partition": partitions.alone}
    told = assignment.share_of(job)
    if told and set(job.wanted_nodes) == set(told[0].nodes):
        changes |= {"ReqNodeList": ""}
    if assignment.waits_as_told(job):
        changes |= {"Dependency": ""}
    if math.isfinite(action.limit_s):
        changes |= {"TimeLimit": _minutes(action.limit_s)}
    return changes


def release(
    partitions: sharing_plan.Partitions, audit: Audit, names: Collection[str] = ()
) -> list[sharing_plan.Release]:
    """Give back all that waits as it was told, or what waits for nodes `names`; what was given back.

    Raises
    ------
    EnvironmentFault
        If Slurm does not answer, or refuses one of them; the others are given back.
    UsageError
        If it has no partitions of these names.
    """
    now = client.snapshot()
    if missing := _missing(now, partitions):
        raise UsageError(missing[0])
    given = [
        (action, say(action, now, partitions, audit, slurm_command.PAUSES_S))
        for action in sharing_plan.released(now, names)
    ]
    if refused := [str(job) for _, job in given if job is not None]:
        raise EnvironmentFault(
            f"jobs {', '.join(refused)} are not given back: run this as Slurm's administrator"
        )
    return [action for action, _ in given]


def advice(now: Snapshot, partitions: sharing_plan.Partitions, settings: Mapping[str, str]) -> list[str]:
    """What of the partitions and of Slurm's settings keeps pairs apart, in words."""
    found = _missing(now, partitions)
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
    return [*found, *_noted(now, partitions)]


def _noted(now: Snapshot, partitions: sharing_plan.Partitions) -> list[str]:
    """Whether most jobs are left alone for what somebody else has written at them, in words."""
    waiting = [job for job in now.jobs if job.state == PENDING and job.partition == partitions.alone]
    texts = Counter(job.admin_comment for job in waiting if not sharing_plan.is_free(job))
    if 2 * texts.total() <= len(waiting):
        return []
    (most, _), *_ = texts.most_common(1)
    return [
        f"{texts.total()} of {len(waiting)} jobs that wait in {partitions.alone} have an AdminComment of "
        f"somebody else's ({most[:40]!r}) and are left alone: write it elsewhere (Comment, --wckey)"
    ]


def _missing(now: Snapshot, partitions: sharing_plan.Partitions) -> list[str]:
    names = {queue.name for queue in now.queues}
    return [
        f"Slurm has no partition {name}: see --alone and --shared"
        for name in (partitions.alone, partitions.shared)
        if name not in names
    ]
