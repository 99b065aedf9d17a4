"""Decides which nodes suit jobs that share nodes by cores: for the simulated batch system, and for Slurm.

A neighbour with a part k of a node's cores causes 2 k of the excess slowdown that it causes with half of the
node, and the excesses of several neighbours add up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.batch_system import PENDING, BatchJob, BatchNode, Snapshot
from mpicoloc.core.profile import Bools, Floats, Ints
from mpicoloc.pairing import sharing_plan

EMPTY_NODE_FRAC = 0.1
"""Cost of an empty node, as a fraction of the job's work: nodes that cost less fill first."""
MAX_AHEAD = 1000
"""Number of waiting jobs that are considered, the first ones of the queue."""
MAX_PREFERRED = 64
"""Number of nodes that a job prefers, or twice its own, so that lists stay short."""
SAME_LOSS_FRAC = 0.02
"""Nodes whose losses differ by less, as a fraction of the job's work, suit a job alike."""


class Pressure:
    """The excess slowdown that a program suffers on each node from the jobs there.

    Attributes
    ----------
    excess : ndarray, shape (n_programs, n_programs)
        At [i, j] the excess slowdown of program i by each slot of program j.
    suffered : ndarray, shape (n_nodes, n_programs)
    """

    def __init__(self, slowdowns: Floats, n_nodes: int, n_slots: int) -> None:
        self.n_slots = n_slots
        self.excess = (slowdowns - 1.0) * (2.0 / n_slots)
        self.suffered = np.zeros((n_nodes, len(slowdowns)))

    def change(self, program: int, nodes: Ints, counts: Ints, empty: Ints) -> None:
        """Account for slots that jobs of a program take (counts above 0) or leave, and nodes now empty."""
        self.suffered[nodes] += counts[:, None] * self.excess[:, program]
        self.suffered[empty] = 0.0  # so that rounding errors do not accumulate


class Losses:
    """Losses of a job and its neighbours on each node, by the expected slowdowns.

    Notes
    -----
    The loss is in slots: a job of m slots whose slowdown grows by e loses m e. As its slowest node sets its
    speed, a neighbour on one of the n nodes that it does not fill is taken to cost m e / n.
    """

    def __init__(self, believed: Pressure) -> None:
        self.believed, self.n_slots = believed, believed.n_slots
        self.caused = np.zeros_like(believed.suffered)

    def change(self, program: int, nodes: Ints, counts: Ints, empty: Ints) -> None:
        """Account for slots that a job takes (counts above 0) or leaves, and nodes that are empty now."""
        n_open = int(np.count_nonzero(np.abs(counts) < self.n_slots))
        self.caused[nodes] += counts.sum() / max(n_open, 1) * self.believed.excess[program]
        self.caused[empty] = 0.0

    @classmethod
    def beside(
        cls, slowdowns: Floats, n_nodes: int, node: Ints, job: Ints, program: Ints, part: Floats
    ) -> Losses:
        """Losses beside jobs that have parts of nodes; one entry for each job and node."""
        found, n_programs = cls(Pressure(slowdowns, n_nodes, 1)), len(slowdowns)
        cell = node * n_programs + program
        total, n_open = np.bincount(job, part), np.bincount(job, part < 1)
        caused = (total / np.maximum(n_open, 1))[job]
        there, theirs = (
            np.bincount(cell, of_entry, n_nodes * n_programs).reshape(n_nodes, n_programs)
            for of_entry in (part, caused)
        )
        excess = found.believed.excess
        found.believed.suffered, found.caused = there @ excess.T, theirs @ excess
        return found

    def by_slot(self, program: int, n_slots: float) -> Floats:
        """Loss on each node by each slot that a job of this program and size gets there."""
        return self.caused[:, program] + self.believed.suffered[:, program] * n_slots / self.n_slots


MARK = "mpicoloc prefers these nodes"
"""AdminComment of jobs whose preference is the service's, not their user's."""


@dataclass(frozen=True)
class Preference:
    """The nodes that a waiting job should prefer; empty: it has no preference."""

    job: int
    nodes: tuple[str, ...]

    def changes(self) -> dict[str, str]:
        """Changes of the job in Slurm, whose nodes have their names as features."""
        return {"Prefer": "|".join(self.nodes), "AdminComment": MARK if self.nodes else ""}


def is_marked(job: BatchJob) -> bool:
    """Whether the preference is the service's. The plugin adds a price to the comment of a job that ran."""
    return job.admin_comment == MARK or job.admin_comment.startswith(MARK + " {")


def released(now: Snapshot, names: Collection[str] = ()) -> list[Preference]:
    """Take back the preferences of all waiting jobs; if `names` are given, only those for these nodes."""
    marked = [job for job in now.jobs if job.state == PENDING and is_marked(job)]
    return [Preference(job.id, ()) for job in marked if not names or set(names) & set(job.prefer.split("|"))]


@dataclass(frozen=True)
class Programs:
    """Program of each job by its number, the programs' slowdowns beside half a node of each, and the expected
    ends of running jobs, s since 1970.
    """

    of_job: Mapping[int, int]
    slowdowns: Floats
    ends_s: Mapping[int, float]


def preferences(now: Snapshot, partition: str, programs: Programs) -> list[Preference]:
    """The nodes that each waiting job should prefer, for jobs of less than a node whose program is known.

    A node is judged by the neighbours that remain if its other jobs leave in order of their expected ends,
    until the job fits. Preferred are the nodes on which the job and its neighbours lose least, up to
    `SAME_LOSS_FRAC`.
    """
    nodes = sorted(
        (node for node in now.nodes if node.is_up and partition in node.partitions),
        key=lambda node: node.name,
    )
    waiting = [job for job in now.jobs if _may_prefer(job, partition) and job.id in programs.of_job]
    residents = Residents(now, nodes, programs)
    found: dict[tuple[int, int, int], tuple[str, ...]] = {}
    chosen = []
    for job in sorted(waiting, key=sharing_plan.order)[:MAX_AHEAD]:
        size = programs.of_job[job.id], cores_on_node(job), job.n_nodes
        if size not in found:
            found[size] = _preferred(nodes, residents, *size)
        chosen.append(Preference(job.id, found[size]))
    return chosen


def _may_prefer(job: BatchJob, partition: str) -> bool:
    is_waiting = job.state == PENDING and job.partition == partition and job.priority > 0
    return is_waiting and not job.is_bound


def cores_on_node(job: BatchJob) -> int:
    """Cores that a job has, or requests, on each of its nodes."""
    return -(-max(job.n_tasks, job.n_cpus) // max(job.n_nodes, 1))


class Residents:
    """Jobs on nodes: an entry for each job and node, the job that is expected to end last first.

    Attributes
    ----------
    used : ndarray of int, shape (n_nodes,)
        Cores with jobs.
    free_s : ndarray, shape (n_nodes,)
        Expected end of the last job, s since 1970.
    memory_bytes : ndarray, shape (n_nodes,)
        Memory requested by the jobs.
    has_unknown : ndarray of bool, shape (n_nodes,)
        Whether a job's program is unknown.
    """

    def __init__(self, now: Snapshot, nodes: Sequence[BatchNode], programs: Programs) -> None:
        index = {node.name: i for i, node in enumerate(nodes)}
        running = [job for job in now.jobs if job.is_on_nodes]
        end_s = {job.id: programs.ends_s.get(job.id, job.start_s + job.limit_s) for job in running}
        running.sort(key=lambda job: -end_s[job.id])
        entries = [
            (index[name], i, programs.of_job.get(job.id, -1), cores_on_node(job))
            for i, job in enumerate(running) for name in job.nodes if name in index
        ]  # fmt: skip
        self.n_cpus = np.array([node.n_cpus for node in nodes])
        self.slowdowns = programs.slowdowns
        self.node, self.job, self.program, cores = np.array(entries, np.int64).reshape(-1, 4).T
        self.part = cores / self.n_cpus[self.node]
        self.used = used = np.zeros(len(nodes), np.int64)
        self.has_unknown = np.bincount(self.node[self.program < 0], minlength=len(nodes)) > 0
        self.up_to = np.zeros(len(cores), np.int64)
        self.free_s, self.memory_bytes = np.zeros(len(nodes)), np.zeros(len(nodes))
        for entry, (i, n) in enumerate(zip(self.node.tolist(), cores.tolist(), strict=True)):
            used[i] += n
            self.up_to[entry] = used[i]
            job = running[self.job[entry]]
            self.free_s[i] = max(self.free_s[i], end_s[job.id])
            self.memory_bytes[i] += job.memory_bytes
        self._losses: dict[int, tuple[Losses, Bools]] = {}

    def losses(self, n_cores: int) -> tuple[Losses, Bools]:
        """Losses beside the jobs that stay when so many cores are free, and whether any job stays."""
        if n_cores not in self._losses:
            stay = self.up_to <= self.n_cpus[self.node] - n_cores
            is_used = np.bincount(self.node[stay], minlength=len(self.n_cpus)) > 0
            stay &= self.program >= 0
            entries = (self.node[stay], self.job[stay], self.program[stay], self.part[stay])
            self._losses[n_cores] = Losses.beside(self.slowdowns, len(self.n_cpus), *entries), is_used
        return self._losses[n_cores]


def _preferred(
    nodes: Sequence[BatchNode], residents: Residents, program: int, n_cores: int, n_nodes: int
) -> tuple[str, ...]:
    """Names of the nodes on which a job of this program and size should run; empty: no preference."""
    fits = np.flatnonzero(n_cores < residents.n_cpus)
    if len(fits) <= n_nodes:
        return ()
    losses, is_used = residents.losses(n_cores)
    part = float((n_cores / residents.n_cpus).mean())
    loss = np.where(is_used, losses.by_slot(program, part * n_nodes) / n_nodes, EMPTY_NODE_FRAC)[fits]
    # A job of several nodes needs as many that suit it alike.
    enough = float(np.sort(loss)[n_nodes - 1]) + SAME_LOSS_FRAC
    best = fits[loss <= enough]
    if len(best) == len(fits):
        return ()
    order = fits[np.argsort(loss, kind="stable")][: min(len(best), max(MAX_PREFERRED, 2 * n_nodes))]
    return tuple(sorted(nodes[i].name for i in order))
