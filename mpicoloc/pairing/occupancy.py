"""Who has the nodes of a cluster, and when they are free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mpicoloc.core.batch_system import BatchJob, Snapshot

LATE = 2.0
"""A job is overdue when it has run so many times as long as it does alone: beside another it has half of the
processors, so it may run twice as long."""


@dataclass(frozen=True)
class Occupancy:
    """Of the nodes at one time.

    Parameters
    ----------
    free_s : mapping of str to float
        When the jobs on each node have ended, as far as it is known, s since 1970.
    owners : mapping of str to frozenset of int
        Jobs on each node that has any.
    overdue : frozenset of str
        Nodes with a job that is overdue: nobody knows when they are free.
    """

    free_s: Mapping[str, float]
    owners: Mapping[str, frozenset[int]]
    overdue: frozenset[str]


def occupancy(now: Snapshot, runtime_s: Mapping[int, float]) -> Occupancy:
    """The nodes of a cluster as they are."""
    free_s = dict.fromkeys((node.name for node in now.nodes), now.now_s)
    owners: dict[str, frozenset[int]] = {}
    overdue: set[str] = set()
    for job in now.jobs:
        if job.is_on_nodes:
            end_s, is_late = _end(job, min(runtime_s.get(job.id, job.limit_s), job.limit_s), now.now_s)
            for name in job.nodes:
                free_s[name] = max(free_s.get(name, now.now_s), end_s)
                owners[name] = owners.get(name, frozenset()) | {job.id}
            if is_late:
                overdue.update(job.nodes)
    return Occupancy(free_s, owners, frozenset(overdue))


def _end(job: BatchJob, alone_s: float, now_s: float) -> tuple[float, bool]:
    """When a job ends, s since 1970, and whether it is overdue."""
    late_s = min(LATE * alone_s, job.limit_s)
    ends_s = [job.start_s + each_s for each_s in (alone_s, late_s, job.limit_s)]
    is_late = late_s < job.limit_s and ends_s[1] <= now_s
    return next((end_s for end_s in ends_s if end_s > now_s), now_s), is_late
