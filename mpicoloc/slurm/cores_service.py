"""The pairing service on a partition that gives out cores: each job prefers nodes that suit it, or is spread.

Slurm tries a job's preferred nodes (`Prefer`) first, and starts the job elsewhere if these have no room. So
preferences delay no job, even after the service has died.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mpicoloc.core.batch_system import PENDING, BatchJob, Snapshot
from mpicoloc.core.slowdown import SPREAD
from mpicoloc.core.units import counted
from mpicoloc.errors import UsageError
from mpicoloc.pairing import sharing_plan, spread_plan
from mpicoloc.pairing.cores_plan import Preference, Programs, is_marked, preferences
from mpicoloc.slurm import service
from mpicoloc.slurm.job_history import ProfileHistory


class CoresService(service.PairingService):
    """The pairing service on a partition that gives out cores."""

    def advice(self, now: Snapshot, settings: Mapping[str, str]) -> list[str]:
        """Warnings about settings of Slurm. Raises `UsageError` if they contradict the layout."""
        found = advice(now, self.how.partitions, settings)
        if self.how.layout == SPREAD and "DIST_BLOCK" in settings.get("SelectTypeParameters", "").upper():
            found.append(
                f"SelectTypeParameters={settings['SelectTypeParameters']}: a spread job gets the cores of "
                "one socket first, not half of each; leave out CR_CORE_DEFAULT_DIST_BLOCK"
            )
        return found

    def decide(
        self, now: Snapshot, known: ProfileHistory, how: service.ServiceSettings
    ) -> Sequence[Preference]:
        """Changes of jobs."""
        return decide(now, known, how)


def advice(now: Snapshot, partitions: sharing_plan.Partitions, settings: Mapping[str, str]) -> list[str]:
    """Warnings about nodes that jobs cannot prefer.

    Raises `UsageError` if there is no such partition, or it does not give out cores.
    """
    name, select = partitions.shared, settings.get("SelectType", "")
    if name not in {queue.name for queue in now.queues}:
        raise UsageError(f"Slurm has no partition {name}: give the partition of the jobs as --shared")
    sharing, unit = now.queue(name).sharing, settings.get("SelectTypeParameters", "")
    is_by_core = unit.upper().split(",")[0].removesuffix("_MEMORY") in ("", "CR_CORE", "CR_CPU")
    if sharing not in ("NO", "YES:1", "FORCE:1") or "cons_" not in select or not is_by_core:
        raise UsageError(
            f"partition {name} does not give out cores (OverSubscribe={sharing}, SelectType={select}, "
            f"SelectTypeParameters={unit}): name another one with --shared, or set OverSubscribe=NO, "
            "select/cons_tres and CR_Core"
        )
    nodes = [node for node in now.nodes if name in node.partitions]
    nameless = [node.name for node in nodes if node.name not in node.features]
    if not nameless:
        return []
    return [
        f"{counted(len(nameless), 'node')} of {name} cannot be preferred, such as {nameless[0]}: add "
        f"its name to its features, as in NodeName={nameless[0]} ... Feature={nameless[0]}"
    ]


def decide(now: Snapshot, known: ProfileHistory, how: service.ServiceSettings) -> list[Preference]:
    """Preferences that differ from those that the jobs have; with the layout `SPREAD`, shapes of jobs."""
    partition = how.partitions.shared
    there = [
        job for job in now.jobs
        if job.is_on_nodes or (job.state == PENDING and job.partition == partition)
    ]  # fmt: skip
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
    if how.layout == SPREAD:
        runtime_s = {job: found.runtime_s for job, found in features.items()}
        return spread_plan.shapes(now, partition, programs, runtime_s, np.diag(value))
    wanted = preferences(now, partition, programs)
    return [one for one in wanted if _is_change(now.by_id[one.job], one)]


def _is_change(job: BatchJob, wanted: Preference) -> bool:
    """Whether a job's preference must change. Preferences and comments of others stay."""
    if not is_marked(job) and (job.prefer or not sharing_plan.is_free(job)):
        return False
    return sorted(job.prefer.split("|") if job.prefer else ()) != sorted(wanted.nodes)
