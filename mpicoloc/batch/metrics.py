"""Figures of one simulated schedule: Jokanovic 2014, sections 2.2.5, 2.3 and 4.3, and saved node hours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicoloc.batch.engine import Schedule
from mpicoloc.batch.job_log import Workload
from mpicoloc.batch.links import SharedLinks
from mpicoloc.batch.machine import Machine
from mpicoloc.core.profile import Bools, Floats

LEAST_RUN_S = 10.0
"""Run time below which a wait counts no more than beside this one, in bounded slowdowns."""
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Outcome:
    """Figures of one schedule, by their names in JSON; None: there was no such job.

    Parameters
    ----------
    n_jobs : int
    completion_s : float
        From the first arrival to the last end, s.
    utilisation_frac : float
        Node seconds with a job, or with several, of all until the last end.
    wait_mean_s, wait_median_s, wait_p95_s : float or None
        Time from arrival to begin, s.
    log_wait_mean_s : float or None
        How long jobs waited in reality, s; None: the log does not tell.
    bounded_slowdown_mean : float or None
        Mean of ``max(1, (wait + run) / max(run, LEAST_RUN_S))`` (Feitelson 2001).
    small_wait_mean_s, big_wait_mean_s : float or None
        Of jobs that fit a switch, and of larger ones.
    sharing_jobs_mean : float
        Jobs with which a job shared the network on average.
    sharing_jobs_frac : float
        Jobs that shared it with any other.
    pairs_by_level : dict of int to int
        Pairs of jobs that shared links of each level.
    subtrees_mean : tuple of float
        Subtrees of level 1 (first-level switches), 2, ... that a job was in on average.
    """

    n_jobs: int
    completion_s: float
    utilisation_frac: float
    wait_mean_s: float | None
    wait_median_s: float | None
    wait_p95_s: float | None
    log_wait_mean_s: float | None
    bounded_slowdown_mean: float | None
    small_wait_mean_s: float | None
    big_wait_mean_s: float | None
    sharing_jobs_mean: float
    sharing_jobs_frac: float
    pairs_by_level: dict[int, int]
    subtrees_mean: tuple[float, ...]


def outcome(
    workload: Workload, machine: Machine, schedule: Schedule, shared: SharedLinks, costs: SharingCosts
) -> Outcome:
    """The figures of a schedule."""
    wait_s, run_s = schedule.start_s - schedule.arrival_s, schedule.end_s - schedule.start_s
    is_small = workload.n_nodes <= machine.switch_size
    log_wait_s = workload.log.wait_s
    return Outcome(
        n_jobs=len(workload),
        completion_s=schedule.completion_s,
        utilisation_frac=costs.busy_node_hours / costs.machine_node_hours,
        wait_mean_s=_mean(wait_s),
        wait_median_s=float(np.median(wait_s)),
        wait_p95_s=float(np.quantile(wait_s, 0.95)),
        log_wait_mean_s=None if log_wait_s is None else _mean(log_wait_s, log_wait_s >= 0),
        bounded_slowdown_mean=_mean(np.maximum((wait_s + run_s) / np.maximum(run_s, LEAST_RUN_S), 1)),
        small_wait_mean_s=_mean(wait_s, is_small),
        big_wait_mean_s=_mean(wait_s, ~is_small),
        sharing_jobs_mean=float(shared.n_sharers.mean()),
        sharing_jobs_frac=float((shared.n_sharers > 0).mean()),
        pairs_by_level=dict(shared.n_pairs),
        subtrees_mean=tuple(shared.n_subtrees.mean(axis=0).tolist()),
    )


def _mean(values: Floats, which: Bools | slice = slice(None)) -> float | None:
    """Mean of some values; None: there are none."""
    known = values[which]
    return float(known.mean()) if len(known) else None


@dataclass(frozen=True)
class SharingCosts:
    """Costs of one simulated schedule.

    Parameters
    ----------
    lost_node_hours : float
        Node hours lost to interference: J_inter of Eq. 2.3.
    busy_node_hours, shared_node_hours : float
        Node hours with any job, and with two.
    machine_node_hours : float
        All of the machine from the first arrival to the last end.
    slowdown_mean : float
        T_co / T_solo, mean of all jobs.
    """

    lost_node_hours: float
    busy_node_hours: float
    shared_node_hours: float
    machine_node_hours: float
    slowdown_mean: float


def lost_node_hours(workload: Workload, lost_s: Floats) -> float:
    """Node hours of jobs that took longer by `lost_s`, each on all of its nodes (Eq. 2.3)."""
    return float((lost_s * workload.n_nodes).sum()) / _HOUR_S


def slowdowns(workload: Workload, schedule: Schedule) -> Floats:
    """T_co / T_solo of each job, at least 1."""
    return np.maximum((schedule.end_s - schedule.start_s) / workload.log.run_s, 1.0)


def of_schedule(
    workload: Workload, schedule: Schedule, n_nodes: int, busy_node_s: float, shared_node_s: float
) -> SharingCosts:
    """Costs of a schedule on a machine of `n_nodes`, of which nodes had a job, or two, for so long.

    Notes
    -----
    Jokanovic 2014, Eq. 2.2 and 2.3: nodes of each job times the time that it took longer than alone.
    """
    inter_s = schedule.end_s - schedule.start_s - workload.log.run_s
    return SharingCosts(
        # Of a job alone the difference is what rounding leaves of 0.
        lost_node_hours=lost_node_hours(workload, np.maximum(inter_s, 0.0)),
        busy_node_hours=busy_node_s / _HOUR_S,
        shared_node_hours=shared_node_s / _HOUR_S,
        machine_node_hours=n_nodes * schedule.completion_s / _HOUR_S,
        slowdown_mean=float(slowdowns(workload, schedule).mean()),
    )


def effectiveness(reference_lost: float | None, lost: float | None) -> float | None:
    """E(P) of Eq. 2.4: node hours lost under the reference over those under a policy; None: of none or 0."""
    return reference_lost / lost if reference_lost and lost else None


def saved_frac(alone: SharingCosts, shared: SharingCosts) -> float:
    """Part of the machine's node hours that the same jobs leave free when they share; < 0: they need more.

    The machine's node hours are those of the schedule without sharing.
    """
    return (alone.busy_node_hours - shared.busy_node_hours) / alone.machine_node_hours
