"""What a centre wants to know of a simulated schedule: Jokanovic 2014, sections 2.2.5 and 4.3."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch.engine import Schedule
from mpicoloc.batch.logs.job_log import Workload
from mpicoloc.batch.machine import Machine
from mpicoloc.batch.network_sharing import SharedLinks

LEAST_RUN_S = 10.0
"""Run time below which a wait counts no more than beside this one, in bounded slowdowns."""


@dataclass(frozen=True)
class Waits:
    """How long some jobs waited; None: there was no such job.

    Parameters
    ----------
    n_jobs : int
    mean_s, median_s, p95_s : float or None
        Time from arrival to begin, s.
    bounded_slowdown : float or None
        Mean of ``max(1, (wait + run) / max(run, LEAST_RUN_S))`` (Feitelson 2001).
    """

    n_jobs: int
    mean_s: float | None
    median_s: float | None
    p95_s: float | None
    bounded_slowdown: float | None


@dataclass(frozen=True)
class Outcome:
    """Figures of one simulated schedule.

    Parameters
    ----------
    n_jobs : int
    completion_s : float
        From the first arrival to the last end, s.
    utilisation_frac : float
        Node seconds with a job, of all until the last end.
    waits, small_waits, big_waits : Waits
        Of all jobs, of those that fit a switch, and of larger ones.
    sharing_jobs_mean : float
        Jobs with which a job shared the network on average.
    sharing_jobs_frac : float
        Jobs that shared it with any other.
    pairs_by_level : dict of int to int
        Pairs of jobs that shared links of each level.
    subtrees_mean : tuple of float
        Subtrees of level 1 (first-level switches), 2, ... that a job was in on average.
    log_wait_mean_s : float or None
        How long jobs waited in reality, by the log, s; None: it does not tell.
    """

    n_jobs: int
    completion_s: float
    utilisation_frac: float
    waits: Waits
    small_waits: Waits
    big_waits: Waits
    sharing_jobs_mean: float
    sharing_jobs_frac: float
    pairs_by_level: dict[int, int]
    subtrees_mean: tuple[float, ...]
    log_wait_mean_s: float | None = None


def outcome(workload: Workload, machine: Machine, schedule: Schedule, shared: SharedLinks) -> Outcome:
    """The figures of a schedule."""
    used_s = float(((schedule.end_s - schedule.start_s) * workload.n_nodes).sum())
    is_small = workload.n_nodes <= machine.switch_size
    return Outcome(
        n_jobs=len(workload),
        completion_s=schedule.completion_s,
        utilisation_frac=used_s / (schedule.completion_s * machine.n_nodes),
        waits=_waits(schedule, np.ones(len(workload), bool)),
        small_waits=_waits(schedule, is_small),
        big_waits=_waits(schedule, ~is_small),
        sharing_jobs_mean=float(shared.n_sharers.mean()),
        sharing_jobs_frac=float((shared.n_sharers > 0).mean()),
        pairs_by_level=dict(shared.n_pairs),
        subtrees_mean=tuple(shared.n_subtrees.mean(axis=0).tolist()),
        log_wait_mean_s=_log_wait_s(workload),
    )


def _log_wait_s(workload: Workload) -> float | None:
    wait_s = workload.log.wait_s
    known = np.empty(0) if wait_s is None else wait_s[wait_s >= 0]
    return float(known.mean()) if len(known) else None


def _waits(schedule: Schedule, which: NDArray[np.bool_]) -> Waits:
    if not which.any():
        return Waits(0, None, None, None, None)
    wait_s = (schedule.start_s - schedule.arrival_s)[which]
    run_s = (schedule.end_s - schedule.start_s)[which]
    slowdown = np.maximum((wait_s + run_s) / np.maximum(run_s, LEAST_RUN_S), 1)
    return Waits(
        int(which.sum()),
        float(wait_s.mean()),
        float(np.median(wait_s)),
        float(np.quantile(wait_s, 0.95)),
        float(slowdown.mean()),
    )
