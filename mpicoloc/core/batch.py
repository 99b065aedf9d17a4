"""What a batch system says of its jobs and nodes."""

from __future__ import annotations

from dataclasses import dataclass

PENDING, RUNNING = "PENDING", "RUNNING"
FOR_ROOM = ("", "None", "Resources", "Priority")
"""Reasons of jobs that wait for nothing but nodes."""
_ON_NODES = {
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
        Who submitted it, and what he called it: by default the name of its script.
    state : str
        `PENDING`, `RUNNING`, or another word of the batch system.
    partition : str
        Queue that it waits in.
    n_nodes, n_tasks, n_cpus : int
        What it asks for; processors of all nodes together.
    memory_bytes : float
        What it asks for on each node, where jobs get no more than that; infinite: all of the node, 0: that
        does not matter.
    nodes : tuple of str
        Where it runs or ran.
    wanted_nodes : tuple of str
        Where alone it may run; empty: anywhere.
    waits_for : tuple of int
        Jobs that must end before it begins.
    is_chained : bool
        Whether it waits for jobs in another way: until they have ended well, or begun.
    submit_s, start_s : float
        Unix time, s; 0: not yet.
    limit_s : float
        Longest time that it may run, s; infinite: none.
    priority : int
        The larger, the sooner; 0: held.
    reason : str
        Why it waits.
    admin_comment : str
        What operators have written at it.
    is_bound : bool
        Whether it has conditions of its own that keep others from placing it: a dependency, nodes that it
        asks for or excludes, a range of nodes, a reservation, features, more than one task of an array.
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
        """Whether it has nodes, and they are not free for others: it runs, begins or ends."""
        return self.state in _ON_NODES

    @property
    def kind(self) -> tuple[str, str, int]:
        """Jobs of one user with one name and size are taken to be runs of one program."""
        return self.user, self.name, self.n_tasks


@dataclass(frozen=True)
class BatchNode:
    """One node; `is_up`: it takes jobs now or when those on it have ended."""

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

    def queue(self, name: str) -> BatchQueue:
        """The queue of that name; one without limits where it is not known."""
        return next((queue for queue in self.queues if queue.name == name), BatchQueue(name))
