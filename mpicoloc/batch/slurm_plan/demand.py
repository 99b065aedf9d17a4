"""What the jobs of a simulated schedule ask of a batch system's settings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicoloc.batch.engine import Schedule
from mpicoloc.batch.logs.job_log import Workload
from mpicoloc.batch.machine import Machine


@dataclass(frozen=True)
class Demand:
    """Sizes that Slurm must be told, as the log has them.

    Parameters
    ----------
    longest_s : float
        Longest time limit, s.
    deepest_queue : int
        Most jobs that waited at a time.
    largest_nodes : int
        Nodes of the largest job.
    small_nodes, big_nodes : float
        Nodes that jobs of at most a first-level switch, and larger ones, had on average over time.
    """

    longest_s: float
    deepest_queue: int
    largest_nodes: int
    small_nodes: float
    big_nodes: float


def of_schedule(workload: Workload, machine: Machine, schedule: Schedule) -> Demand:
    """The demand of all jobs of a schedule."""
    times_s = np.concatenate((schedule.start_s, schedule.arrival_s))
    changes = np.repeat([-1, 1], len(workload))
    # Jobs that begin at an instant do not wait with those that arrive then.
    waiting = np.cumsum(changes[np.argsort(times_s, kind="stable")])
    node_s = workload.n_nodes * (schedule.end_s - schedule.start_s)
    is_small = workload.n_nodes <= machine.switch_size
    small_nodes, big_nodes = (
        float(node_s[which].sum()) / schedule.completion_s for which in (is_small, ~is_small)
    )
    return Demand(
        float(workload.estimate_s.max()),
        max(int(waiting.max()), 0),
        int(workload.n_nodes.max()),
        small_nodes,
        big_nodes,
    )
