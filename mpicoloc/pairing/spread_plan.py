"""Decides which jobs get half of the cores of each of twice their nodes: in simulation, and in Slurm.

In Slurm only the first waiting job is spread, if enough nodes are half free and it is expected to end no
later than packed. It can still begin on whole nodes, so it begins no later, even if the service dies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.batch_system import PENDING, REASONS_FOR_NODES, BatchJob, Snapshot
from mpicoloc.core.profile import Floats, Ints
from mpicoloc.pairing import sharing_plan
from mpicoloc.pairing.cores_plan import MAX_PREFERRED, Preference, Programs, Residents, cores_on_node

HALVES = 2
"""Slots of a node that spread jobs share."""
_N_DIGITS = 12


def halves(free: Ints, order: Ints, n_slots: int) -> Ints:
    """Slots on each node: one of each in this order, then second ones if there are too few nodes."""
    wanted = np.zeros_like(free)
    ordered = order[free[order] > 0]
    wanted[ordered[:n_slots]] = 1
    second = ordered[free[ordered] > 1][: max(n_slots - len(ordered), 0)]
    wanted[second] = HALVES
    return wanted


def least_loss(
    free: Ints, suffered: Floats, caused: Floats, own: float, n_slots: int
) -> tuple[Ints, float, float]:
    """Halves of nodes on which a job and its neighbours lose least; at least `n_slots` are free.

    For each node: its free halves, the excess slowdown that the job would suffer there, and the loss of the
    neighbours there. `own` is the excess slowdown that the job's own processes cause.

    Result: slots on each node, excess slowdown on the slowest node, and the loss of all jobs in slots.
    """
    best, slowest_of_best, least = np.zeros_like(free), np.inf, np.inf
    # The slowest node sets the speed, so nodes are chosen among those up to each possible slowdown.
    for most in np.unique(suffered[free > 0].round(_N_DIGITS)).tolist():
        allowed = np.where(suffered <= most + 10.0**-_N_DIGITS, free, 0)
        if allowed.sum() >= n_slots:
            wanted = halves(allowed, np.argsort(caused, kind="stable"), n_slots)
            slowest = max(most, own) if wanted.max() == HALVES else most
            loss = n_slots * slowest + float(wanted @ caused)
            if loss < least:
                best, slowest_of_best, least = wanted, slowest, loss
    return best, slowest_of_best, least


SPREAD_COMMENT = "mpicoloc:spread"
"""Word in the comment of a job that may be spread (`sbatch --comment`)."""
LIMIT_MARGIN = 1.2
"""The expected run time of a spread job, multiplied by this, must be within its time limit."""
_MARK = re.compile(r"mpicoloc spreads this job of (\d+) nodes and (\d+) CPUs(?: \{.*)?")


@dataclass(frozen=True)
class Shape(Preference):
    """Range of a waiting job's number of nodes, CPUs in all and least on each, and nodes that it prefers."""

    n_nodes: tuple[int, int]
    n_cpus: int
    min_cpus: int
    comment: str = ""

    def changes(self) -> dict[str, str]:
        """Changes of the job in Slurm, which refuses MinCPUsNode, and so all, once the job has begun.

        Without NumCPUs, Slurm would reduce the job to the least CPUs of its fewest nodes.
        """
        return {
            "NumNodes": "{}-{}".format(*self.n_nodes),
            "NumCPUs": str(self.n_cpus),
            "MinCPUsNode": str(self.min_cpus),
            "Prefer": "|".join(self.nodes),
            "AdminComment": self.comment,
        }


def is_marked(job: BatchJob) -> bool:
    """Whether the service has spread the job."""
    return _MARK.fullmatch(job.admin_comment) is not None


def _packed(job: BatchJob) -> Preference:
    """A spread job as it was. If somebody has changed its number of nodes since, that stays."""
    found = _MARK.fullmatch(job.admin_comment)
    n_nodes, min_cpus = (int(number) for number in found.groups()) if found else (0, 0)
    if (job.n_nodes, job.most_nodes) != (n_nodes, 2 * n_nodes):
        return Preference(job.id, ())
    return Shape(job.id, (), (n_nodes, n_nodes), job.n_cpus, min_cpus)


def released(now: Snapshot, names: Collection[str] = ()) -> list[Preference]:
    """Pack all spread jobs again that wait; if `names` are given, only those that prefer these nodes."""
    spread = [job for job in now.jobs if job.state == PENDING and is_marked(job)]
    return [_packed(job) for job in spread if not names or set(names) & set(job.prefer.split("|"))]


def shapes(
    now: Snapshot,
    partition: str,
    programs: Programs,
    runtime_s: Mapping[int, float],
    beside_itself: Floats,
) -> list[Preference]:
    """Change of the first waiting job's shape, if any, and jobs to pack again.

    `beside_itself` has the slowdown of each program beside another job of it.
    """
    waiting = sorted(
        (
            job for job in now.jobs
            if job.state == PENDING and job.partition == partition and job.priority > 0
            and job.reason in REASONS_FOR_NODES
        ),
        key=sharing_plan.order,
    )  # fmt: skip
    shape = None
    if waiting and _may_spread(waiting[0], programs):
        own = float(beside_itself[programs.of_job[waiting[0].id]]) - 1.0
        shape = _spread(now, partition, programs, waiting[0], runtime_s[waiting[0].id], own)
    others = waiting if shape is None else waiting[1:]
    changed = [_packed(job) for job in others if is_marked(job)]
    if shape is not None and sorted(shape.nodes) != sorted(waiting[0].prefer.split("|")):
        changed.append(shape)
    return changed


def _may_spread(job: BatchJob, programs: Programs) -> bool:
    if SPREAD_COMMENT not in job.comment.split() or job.id not in programs.of_job or job.is_shaped:
        return False
    if is_marked(job):
        return job.most_nodes == 2 * job.n_nodes
    # A job that Slurm has not tried to start has no reason yet.
    is_free = sharing_plan.is_free(job) and not job.prefer and not job.is_bound
    return is_free and job.reason in ("Resources", "Priority") and job.most_nodes == job.n_nodes


def _spread(
    now: Snapshot, partition: str, programs: Programs, job: BatchJob, runtime_s: float, own: float
) -> Shape | None:
    """The spread shape of a job that fills nodes; None if it could begin packed, or would end later.

    It may also begin packed, and so as soon as without the service.
    """
    n_nodes, n_cores = job.n_nodes, cores_on_node(job)
    nodes = [
        node for node in now.nodes
        if node.is_up and partition in node.partitions
        and node.name in node.features and node.n_cpus == n_cores
    ]  # fmt: skip
    if n_cores % 2 or job.n_tasks % (2 * n_nodes) or 2 * n_nodes > min(len(nodes), MAX_PREFERRED):
        return None
    residents = Residents(now, nodes, programs)
    used = np.maximum(residents.used, [node.n_used for node in nodes])
    room_bytes = np.array([node.memory_bytes for node in nodes]) - residents.memory_bytes
    is_half_free = (used <= n_cores / 2) & ~residents.has_unknown & (room_bytes >= job.memory_bytes)
    if np.count_nonzero(used == 0) >= n_nodes or np.count_nonzero(is_half_free) < 2 * n_nodes:
        return None
    losses, program = residents.losses(0)[0], programs.of_job[job.id]
    suffered, caused = losses.believed.suffered[:, program], losses.caused[:, program]
    wanted, slowest, _ = least_loss(is_half_free.astype(np.int64), suffered, caused, own, 2 * n_nodes)
    free_s = float(np.sort(residents.free_s)[n_nodes - 1]) - now.now_s
    # Profiles may be of packed or of spread runs: the job must end no later in either case.
    is_late = runtime_s * (slowest - own) >= max(free_s, 0.0)
    if is_late or LIMIT_MARGIN * runtime_s * (1.0 + slowest) > job.limit_s:
        return None
    names = tuple(sorted(nodes[i].name for i in np.flatnonzero(wanted)))
    comment = job.admin_comment
    if not is_marked(job):
        comment = f"mpicoloc spreads this job of {n_nodes} nodes and {job.min_cpus} CPUs"
    return Shape(job.id, names, (n_nodes, 2 * n_nodes), n_nodes * n_cores, n_cores // 2, comment)
