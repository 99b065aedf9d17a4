"""Rounds of the pairing service on a partition that gives out cores: each job prefers nodes that suit it.

Slurm tries a job's preferred nodes (`Prefer`) first, and starts the job elsewhere if these have no room. So
no job starts later than without the service, which can die at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from mpicoloc.core.batch_system import PENDING, BatchJob, Snapshot
from mpicoloc.core.units import counted
from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.pairing import sharing_plan
from mpicoloc.pairing.cores_plan import Preference, Programs, preferences
from mpicoloc.slurm import client, service
from mpicoloc.slurm.job_history import ProfileHistory

MARK = "mpicoloc prefers these nodes"
"""AdminComment of jobs whose preference is the service's, not their user's."""


class CoresService(service.PairingService):
    """The pairing service on a partition that gives out cores."""

    def advice(self, now: Snapshot, settings: Mapping[str, str]) -> list[str]:
        """Warnings about settings of Slurm. Raises `UsageError` if they contradict the layout."""
        return advice(now, self.how.partitions.shared, settings)

    def round(self) -> Sequence[Preference]:
        """Decide and change jobs."""
        return run_once(self.known, self.how, self.audit, is_dry=self.is_dry, state=self.state)


def advice(now: Snapshot, partition: str, settings: Mapping[str, str]) -> list[str]:
    """Warnings about nodes that jobs cannot prefer.

    Raises `UsageError` if there is no such partition, or it does not give out cores.
    """
    _check_partition(now, partition)
    sharing, select = now.queue(partition).sharing, settings.get("SelectTypeParameters", "")
    if sharing not in ("NO", "YES:1", "FORCE:1") or "cons_" not in settings.get("SelectType", ""):
        raise UsageError(
            f"partition {partition} has OverSubscribe={sharing} and SelectType="
            f"{settings.get('SelectType', '')} ({select}), which do not give out cores: set "
            "OverSubscribe=NO and select/cons_tres, or leave out --layout cores"
        )
    nodes = [node for node in now.nodes if partition in node.partitions]
    nameless = [node.name for node in nodes if node.name not in node.features]
    if not nameless:
        return []
    return [
        f"{counted(len(nameless), 'node')} of {partition} cannot be preferred, such as {nameless[0]}: add "
        f"its name to its features, as in NodeName={nameless[0]} ... Feature={nameless[0]}"
    ]


def decide(now: Snapshot, known: ProfileHistory, how: service.ServiceSettings) -> list[Preference]:
    """The preferences that differ from those that the jobs have."""
    partition = how.partitions.shared
    there = [job for job in now.jobs if job.is_on_nodes or job.partition == partition]
    features = {job.id: found for job in there if (found := known.features_of(job, now.now_s)) is not None}
    first = {job.kind: job for job in reversed(there) if job.id in features}
    number = {kind: i for i, kind in enumerate(first)}
    measured = known.measured_pairs(first.keys())
    value, high = service.expected_slowdowns(list(first.values()), features, how, measured)
    programs = Programs(
        {job.id: number[job.kind] for job in there if job.id in features},
        np.fmax(value, high) if how.rules.is_cautious else value,
        {job.id: job.start_s + features[job.id].runtime_s for job in there if job.id in features},
    )
    wanted = preferences(now, partition, programs)
    return [one for one in wanted if _is_change(now.by_id[one.job], one)]


def _is_change(job: BatchJob, wanted: Preference) -> bool:
    """Whether a job's preference must change. Preferences and comments of others stay."""
    if not _is_marked(job) and (job.prefer or not sharing_plan.is_free(job)):
        return False
    return sorted(job.prefer.split("|") if job.prefer else ()) != sorted(wanted.nodes)


def _is_marked(job: BatchJob) -> bool:
    """Whether the preference is the service's. The plugin adds a price to the comment of a job that ran."""
    return job.admin_comment == MARK or job.admin_comment.startswith(MARK + " {")


def changes(wanted: Preference) -> dict[str, str]:
    """Changes of a job in Slurm."""
    return {"Prefer": "|".join(wanted.nodes), "AdminComment": MARK if wanted.nodes else ""}


def run_once(
    known: ProfileHistory,
    how: service.ServiceSettings,
    audit: service.AuditLog,
    *,
    is_dry: bool,
    state: service.LoopState,
    clock: Callable[[], float] = time.time,
) -> list[Preference]:
    """One round, as `service.run_once`."""
    now = client.snapshot(clock)
    known.update({str(job.id) for job in now.jobs if job.is_on_nodes})
    decided = decide(now, known, how)
    state.excluded_until_s = {
        job: until_s for job, until_s in state.excluded_until_s.items() if until_s > now.now_s
    }
    if is_dry:
        new = [one for one in decided if ("prefer", one.job, one.nodes) not in state.announced]
        for one in new:
            audit.add(now.now_s, "would say", action="prefer", job=one.job, nodes=one.nodes)
        state.announced = {("prefer", one.job, one.nodes) for one in decided}
        return new
    applied = []
    for one in decided:
        if one.job in state.excluded_until_s:
            continue
        if apply(one, now, audit):
            applied.append(one)
        else:
            state.excluded_until_s[one.job] = now.now_s + service.EXCLUDED_S
    return applied


def apply(one: Preference, now: Snapshot, audit: service.AuditLog, pauses_s: Sequence[float] = ()) -> bool:
    """Change a job in Slurm, and log the change; False if Slurm refuses.

    Raises `client.ControllerAway` if slurmctld does not answer.
    """
    facts = {"action": "prefer", "job": one.job, "nodes": one.nodes}
    try:
        client.update(one.job, changes(one), pauses_s)
    except client.ControllerAway as error:
        audit.add(now.now_s, "not said", **facts, error=str(error))
        raise
    except EnvironmentFault as error:  # the job may have begun meanwhile
        audit.add(now.now_s, "refused", **facts, error=str(error))
        audit.warn(str(error))
        return False
    audit.add(now.now_s, "said", **facts)
    return True


def release(partition: str, audit: service.AuditLog, names: Collection[str] = ()) -> list[Preference]:
    """Take all preferences of the service back, or those for the nodes `names`.

    Raises `UsageError` if there is no such partition. Raises `EnvironmentFault` if Slurm does not answer, or
    refuses to change a job; the other jobs are released all the same.
    """
    now = client.snapshot()
    _check_partition(now, partition)
    mine = [
        Preference(job.id, ())
        for job in now.jobs
        if job.state == PENDING and job.partition == partition and _is_marked(job)
        and (not names or set(job.prefer.split("|")) & set(names))
    ]  # fmt: skip
    refused = [str(one.job) for one in mine if not apply(one, now, audit, client.PAUSES_S)]
    if refused:
        raise EnvironmentFault(
            f"jobs {', '.join(refused)} cannot be released: run this as Slurm's administrator"
        )
    return mine


def _check_partition(now: Snapshot, partition: str) -> None:
    if partition not in {queue.name for queue in now.queues}:
        raise UsageError(f"Slurm has no partition {partition}: see --shared")
