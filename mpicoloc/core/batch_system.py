"""Jobs, their steps, nodes and queues as a batch system describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mpicoloc.core.plain_values import dataclass_from

ALLOCATION = "allocation"
"""Step that stands for a job without a script (`srun` or `salloc` alone). It never has a profile."""
SCRIPTS = ("batch", "interactive", ALLOCATION)
"""Steps that stand for the whole job."""


@dataclass(frozen=True)
class StepRecord:
    """Slurm's record of one step of a job. A field that does not apply is None.

    Attributes
    ----------
    profile : str
        Name of the signed profile beside the record.
    cluster : str
        ``ClusterName`` of slurm.conf.
    job : int
        Slurm's number of the job.
    step : str
        Number of the step, or ``batch`` for the script, ``interactive``, or `ALLOCATION`.
    restarts : int
        Number of times the job was requeued before this run.
    array_job, array_task : int or None
        Number of the array and of the task, if the job is a task of an array.
    uid, user : int, str
        The job's user.
    account : str or None
        Slurm's account of the job.
    partition : str
        Partition in which the job ran.
    n_nodes, n_cpus : int
        Nodes and CPUs allocated to the step or, for a script, to the job. A CPU that is shared with another
        job counts in full.
    job_submit_unix_s, job_start_unix_s, step_start_unix_s : float
        Times of the job's submission or last requeue, of the start of this run, and of the step's start, s.
    ran_s : float
        Run time of the step, s.
    job_n_cpus : int or None
        CPUs allocated to the job; None if the record lacks them.
    job_ran_s : float or None
        Run time of the job until the step ended, without suspended time, s.
    job_billing : float or None
        Slurm's ``billing`` of the job: its resources by ``TRESBillingWeights`` of the partition, else its
        CPUs. None if the record lacks it.
    """

    profile: str
    cluster: str
    job: int
    step: str
    restarts: int
    array_job: int | None
    array_task: int | None
    uid: int
    user: str
    account: str | None
    partition: str
    n_nodes: int
    n_cpus: int
    job_submit_unix_s: float
    job_start_unix_s: float
    step_start_unix_s: float
    ran_s: float
    job_n_cpus: int | None
    job_ran_s: float | None
    job_billing: float | None

    @property
    def billing_per_cpu(self) -> float:
        """Factor of a CPU's price, for its share of the job's memory and other resources."""
        return self.job_billing / self.job_n_cpus if self.job_billing is not None and self.job_n_cpus else 1.0

    @property
    def is_script(self) -> bool:
        """Whether the step stands for the whole job, so that all other steps run within its time."""
        return self.step in SCRIPTS

    @property
    def cpu_s(self) -> float:
        """CPU seconds allocated to the step."""
        return self.n_cpus * self.ran_s

    def charged_s(self, others_cpu_s: float) -> float:
        """Seconds to charge on all CPUs of the step if other steps were already charged `others_cpu_s`."""
        return max(self.cpu_s - others_cpu_s, 0.0) / self.n_cpus if self.n_cpus else 0.0

    @property
    def name(self) -> str:
        """Job and step as Slurm writes them, like ``12.batch``."""
        return f"{self.job}.{self.step}"

    @property
    def run(self) -> str:
        """Name of this run of the step, unique even if Slurm reuses job numbers."""
        return self.run_of(self.step)

    def run_of(self, step: str) -> str:
        """Unique name of this job's run of a step."""
        return json.dumps([self.cluster, f"{self.job}.{step}", self.restarts, self.job_submit_unix_s])


def step_record_of(values: Mapping[str, Any]) -> StepRecord:
    """The record from plain values. Raises the same errors as `dataclass_from`."""
    # Records of earlier versions lack these fields.
    return dataclass_from(StepRecord, {"job_n_cpus": None, "job_ran_s": None, "job_billing": None, **values})


PENDING, RUNNING = "PENDING", "RUNNING"
REASONS_FOR_NODES = ("", "None", "Resources", "Priority")
"""Slurm's reasons for jobs that wait only for nodes."""
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
        Number of the job in the batch system.
    user, name : str
        The user who submitted the job, and its name, which by default is that of its script.
    state : str
        `PENDING`, `RUNNING`, or another word of the batch system.
    partition : str
        Queue in which the job waits.
    n_nodes, n_tasks, n_cpus : int
        Requested nodes, tasks and processors (of all nodes together).
    memory_bytes : float
        Requested memory on each node; infinite: all memory of the node; 0: the cluster does not limit memory.
    nodes : tuple of str
        Nodes on which the job runs or ran.
    wanted_nodes : tuple of str
        The only nodes on which the job may run; empty: any.
    waits_for : tuple of int
        Jobs that must end before this job begins.
    is_chained : bool
        Whether the job waits for jobs in another way: until they have succeeded, or until they have begun.
    submit_s, start_s : float
        Unix times of the submission and the start, s; 0: not yet.
    limit_s : float
        Time limit, s; infinite: none.
    priority : int
        Jobs of larger priority run sooner; 0: held.
    reason : str
        Why the job waits.
    admin_comment : str
        Slurm's AdminComment of the job.
    is_bound : bool
        Whether a condition restricts when or where the job can begin: a dependency, requested or excluded
        nodes, a range of nodes, a reservation, features, or more than one task of an array.
    prefer : str
        Features of nodes that the job prefers.
    comment : str
        The user's comment.
    most_nodes : int
        Largest number of nodes that the job may have; 0: not given.
    min_cpus : int
        Least number of processors on each node.
    is_shaped : bool
        Whether the user says how the job's tasks lie on nodes, or wants nodes without other jobs.
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
    prefer: str = ""
    comment: str = ""
    most_nodes: int = 0
    min_cpus: int = 1
    is_shaped: bool = False

    @property
    def is_on_nodes(self) -> bool:
        """Whether the job occupies nodes, because it is running, starting or ending."""
        return self.state in _STATES_ON_NODES

    @property
    def kind(self) -> tuple[str, str, int]:
        """User, name and size: jobs that agree in all three are assumed to be runs of one program."""
        return self.user, self.name, self.n_tasks


@dataclass(frozen=True)
class BatchNode:
    """One node. `is_up`: the node accepts jobs, either at once or when its current jobs have ended.

    `n_used` is the number of processors of its jobs, as far as the batch system tells.
    """

    name: str
    n_cpus: int
    memory_bytes: float
    is_up: bool
    partitions: tuple[str, ...]
    features: tuple[str, ...] = ()
    n_used: int = 0


@dataclass(frozen=True)
class BatchQueue:
    """One queue (a partition). Jobs of queues with a higher `tier` are placed first.

    `max_s` is the time limit, s; `sharing` is Slurm's OverSubscribe.
    """

    name: str
    tier: int = 1
    max_s: float = float("inf")
    sharing: str = "NO"


@dataclass(frozen=True)
class Snapshot:
    """Jobs, nodes and queues of a cluster at the time `now_s`, s since 1970."""

    now_s: float
    jobs: tuple[BatchJob, ...]
    nodes: tuple[BatchNode, ...]
    queues: tuple[BatchQueue, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[int, BatchJob]:
        """Jobs by number."""
        return {job.id: job for job in self.jobs}

    def queue(self, name: str) -> BatchQueue:
        """The queue of that name, or a queue without limits if there is no such queue."""
        return next((queue for queue in self.queues if queue.name == name), BatchQueue(name))
