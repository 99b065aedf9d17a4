"""What the pairing service says to Slurm, and its log."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mpicoloc.core.batch import BatchJob, Snapshot
from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.model import share, steering
from mpicoloc.run import slurm, slurm_command


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


def say(action: steering.Action, now: Snapshot, partitions: steering.Partitions, audit: Audit) -> bool:
    """Say it and note it; returns whether Slurm did as it was told.

    Raises
    ------
    slurm_command.Away
        If it does not answer.
    """
    try:
        apply(action, now, partitions)
    except slurm_command.Away as error:
        # By the time that it answers again the queue will be another one.
        audit.note(now.now_s, "not said", **told(action), error=str(error))
        raise
    except EnvironmentFault as error:
        audit.note(now.now_s, "refused", **told(action), error=str(error))
        audit.warn(str(error))
        return False
    audit.note(now.now_s, "said", **told(action))
    return True


def told(action: steering.Action) -> dict[str, Any]:
    """What the log says of it."""
    return {"action": type(action).__name__.lower(), **dataclasses.asdict(action)}


def apply(action: steering.Action, now: Snapshot, partitions: steering.Partitions) -> None:
    """Say it to Slurm: one change of one job, but for a leader that runs and needs more time than it has.

    Raises
    ------
    EnvironmentFault
        If Slurm refuses.
    """
    jobs = {job.id: job for job in now.jobs}
    if isinstance(action, steering.Release):
        slurm.update(action.job, _released(action, jobs[action.job], partitions))
        return
    max_s = now.queue(partitions.shared).max_s
    for number, factor in zip(action.share.jobs, action.slowdowns, strict=True):
        job = jobs[number]
        # Sharing must not cost a job its end: who is slowed down has so much longer.
        limit_s = min(share.own_limit_s(job) * factor, max_s)
        changes = {"TimeLimit": str(math.ceil(limit_s / 60))} if limit_s > job.limit_s else {}
        if number == action.share.job:
            changes |= _committed(action, job, partitions, now.now_s)
        if changes:
            slurm.update(number, changes)


def _committed(
    action: steering.Commit, job: BatchJob, partitions: steering.Partitions, now_s: float
) -> dict[str, str]:
    return {
        "AdminComment": action.share.text(share.own_limit_s(job), action.after, now_s),
        "Partition": partitions.shared,
        "ReqNodeList": ",".join(action.share.nodes),
        "Dependency": "afterany:" + ":".join(map(str, action.after)) if action.after else "",
    }


def _released(action: steering.Release, job: BatchJob, partitions: steering.Partitions) -> dict[str, str]:
    """Takes back what the service said, and nothing that somebody else has said since."""
    changes = {"AdminComment": ""}
    if job.partition != partitions.shared:
        return changes
    changes |= {"Partition": partitions.alone}
    told = share.share_of(job)
    if told and set(job.wanted_nodes) == set(told[0].nodes):
        changes |= {"ReqNodeList": ""}
    if share.waits_as_told(job):
        changes |= {"Dependency": ""}
    if math.isfinite(action.limit_s):
        changes |= {"TimeLimit": str(math.ceil(action.limit_s / 60))}
    return changes


def release(
    partitions: steering.Partitions, audit: Audit, names: Collection[str] = ()
) -> list[steering.Release]:
    """Give back all that waits as it was told, or what waits for nodes `names`; what was given back.

    Raises
    ------
    EnvironmentFault
        If Slurm does not answer, or refuses one of them; the others are given back.
    UsageError
        If it has no partitions of these names.
    """
    now = slurm.snapshot()
    if missing := _missing(now, partitions):
        raise UsageError(missing[0])
    given = [(action, say(action, now, partitions, audit)) for action in steering.released(now, names)]
    if refused := [str(action.job) for action, is_said in given if not is_said]:
        raise EnvironmentFault(
            f"jobs {', '.join(refused)} are not given back: run this as Slurm's administrator"
        )
    return [action for action, _ in given]


def advice(now: Snapshot, partitions: steering.Partitions, settings: Mapping[str, str]) -> list[str]:
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
    selected = settings.get("SelectTypeParameters", "")
    if slurm.shares_out_memory(settings) and all(text in ("", "0", "UNLIMITED") for text in given):
        found.append(
            f"SelectTypeParameters={selected} without DefMemPerCPU: a job that names no memory takes all "
            "of its node, and no partner starts beside it; set DefMemPerCPU, if the partitions have none"
        )
    return found


def _missing(now: Snapshot, partitions: steering.Partitions) -> list[str]:
    names = {queue.name for queue in now.queues}
    return [
        f"Slurm has no partition {name}: see --alone and --shared"
        for name in (partitions.alone, partitions.shared)
        if name not in names
    ]
