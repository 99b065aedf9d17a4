"""One step of a job as Slurm knew it at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpicoloc.core.plain_values import dataclass_from

ALLOCATION = "allocation"
"""The job itself if it has no script (`srun` or `salloc` alone): it never has a profile."""
SCRIPTS = ("batch", "interactive", ALLOCATION)
"""Steps that stand for the whole job."""


@dataclass(frozen=True)
class StepRecord:
    """One step of a job as Slurm knew it; a field that is None does not apply.

    Attributes
    ----------
    profile : str
        Name of the signed profile beside the record.
    cluster : str
        ``ClusterName`` of slurm.conf.
    job, step : int, str
        Slurm's number of the job; that of the step, or ``batch`` for the script, ``interactive``,
        or `ALLOCATION`.
    restarts : int
        How often the job was requeued before this run of it.
    array_job, array_task : int or None
        The array, if the job is one of its tasks.
    uid, user : int, str
        Who ran it.
    account : str or None
        Slurm's account of the job.
    partition : str
        Where it ran.
    n_nodes, n_cpus : int
        What Slurm gave to the step; to the script, all that the job has. A CPU that another job may use, too,
        counts as a whole.
    job_submit_unix_s, job_start_unix_s, step_start_unix_s : float
        When the job was submitted, or last requeued; when this run of it began, and the step, s.
    ran_s : float
        How long the step ran, s.
    job_n_cpus : int or None
        CPUs that Slurm gave to the job; None: not given.
    job_ran_s : float or None
        How long the job had run when the step ended, less what it was suspended, s.
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

    @property
    def is_script(self) -> bool:
        """Whether the step stands for the whole job: all other steps run within its time."""
        return self.step in SCRIPTS

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the step had."""
        return self.n_cpus * self.ran_s

    def charged_s(self, others_cpu_s: float) -> float:
        """Seconds to charge for all CPUs of the step, less the CPU seconds charged for other steps."""
        return max(self.cpu_s - others_cpu_s, 0.0) / self.n_cpus if self.n_cpus else 0.0

    @property
    def name(self) -> str:
        """Job and step as Slurm writes them, like ``12.batch``."""
        return f"{self.job}.{self.step}"

    @property
    def run(self) -> str:
        """Unique name of this run of the step, even if Slurm restarts its job numbers."""
        return self.run_of(self.step)

    def run_of(self, step: str) -> str:
        """Unique name of this job's run of a step."""
        return json.dumps([self.cluster, f"{self.job}.{step}", self.restarts, self.job_submit_unix_s])


def step_record_of(values: Mapping[str, Any]) -> StepRecord:
    """The record from plain values; errors as of `dataclass_from`."""
    # Records of earlier versions lack these two.
    return dataclass_from(StepRecord, {"job_n_cpus": None, "job_ran_s": None, **values})
