"""Jobs, nodes and queues as a batch system describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

PENDING, RUNNING = "PENDING", "RUNNING"
REASONS_FOR_NODES = ("", "None", "Resources", "Priority")
"""Reasons of jobs that wait only for nodes."""
_STATES_ON_NODES = {
    RUNNING,
    "CONFIGURING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
}


@dataclass(frozen=True)
class BatchJob:
    """One job that waits, runs, or has just ended.

    Parameters
    ----------
    id : int
        Number in the batch system.
    user, name : str
        Who submitted it, and its name, which is by default that of its script.
    state : str
        `PENDING`, `RUNNING`, or another word of the batch system.
    partition : str
        Queue in which it waits.
    n_nodes, n_tasks, n_cpus : int
        Nodes, tasks and processors (of all nodes together) that it asks for.
    memory_bytes : float
        Memory that it asks for on each node; infinite: all of the node; 0: jobs are not limited to what they
        ask for.
    nodes : tuple of str
        Where it runs or ran.
    wanted_nodes : tuple of str
        The only nodes on which it may run; empty: any.
    waits_for : tuple of int
        Jobs that must end before it begins.
    is_chained : bool
        Whether it waits for jobs in another way: until they have succeeded, or begun.
    submit_s, start_s : float
        Unix time, s; 0: not yet.
    limit_s : float
        Longest time that it may run, s; infinite: none.
    priority : int
        Jobs of larger priority run sooner; 0: held.
    reason : str
        Why it waits.
    admin_comment : str
        Slurm's AdminComment of the job.
    is_bound : bool
        Whether it has conditions that restrict its placement: a dependency, nodes that it asks for or
        excludes, a range of nodes, a reservation, features, more than one task of an array.
    """

    id: int
    user: str
    name: str
    state: str
    partition: str
    n_nodes: int
    n_tasks: int
    n_cpus: int
    nodes: tuple[str, ...] = ()
    wanted_nodes: tuple[str, ...] = ()
    waits_for: tuple[int, ...] = ()
    is_chained: bool = False
    submit_s: float = 0.0
    start_s: float = 0.0
    limit_s: float = float("inf")
    priority: int = 1
    reason: str = ""
    admin_comment: str = ""
    is_bound: bool = False
    memory_bytes: float = 0.0

    @property
    def is_on_nodes(self) -> bool:
        """Whether it occupies nodes: it runs, begins or ends."""
        return self.state in _STATES_ON_NODES

    @property
    def kind(self) -> tuple[str, str, int]:
        """Jobs of one user with one name and size are taken to be runs of one program."""
        return self.user, self.name, self.n_tasks


@dataclass(frozen=True)
class BatchNode:
    """One node; `is_up`: it takes jobs now, or when the jobs on it have ended."""

    name: str
    n_cpus: int
    memory_bytes: float
    is_up: bool
    partitions: tuple[str, ...]


@dataclass(frozen=True)
class BatchQueue:
    """One queue (a partition): jobs of a higher `tier` are placed first; none runs longer than `max_s`."""

    name: str
    tier: int = 1
    max_s: float = float("inf")


@dataclass(frozen=True)
class Snapshot:
    """Jobs, nodes and queues of a cluster at one time, s since 1970."""

    now_s: float
    jobs: tuple[BatchJob, ...]
    nodes: tuple[BatchNode, ...]
    queues: tuple[BatchQueue, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[int, BatchJob]:
        """Jobs by number."""
        return {job.id: job for job in self.jobs}

    def queue(self, name: str) -> BatchQueue:
        """The queue of that name; a queue without limits if there is none."""
        return next((queue for queue in self.queues if queue.name == name), BatchQueue(name))
