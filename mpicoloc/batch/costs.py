"""What sharing costs and saves: Jokanovic 2014, section 2.3, and the node hours that stay free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mpicoloc.batch.engine import Schedule
from mpicoloc.batch.logs.job_log import Workload
from mpicoloc.core.estimate import Estimate

Floats = NDArray[np.float64]
_CONFIDENCE_FRAC = 0.95
_HOUR_S = 3600.0


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

    @property
    def utilisation_frac(self) -> float:
        """Part of the machine's node hours with any job."""
        return self.busy_node_hours / self.machine_node_hours


@dataclass(frozen=True)
class LinkCosts:
    """What jobs lose because others use the same links.

    Parameters
    ----------
    lost_node_hours : float
        Part of `SharingCosts.lost_node_hours`.
    against_node_hours : float or None
        The same under the allocation that is compared with; None: there is none.
    """

    lost_node_hours: float
    against_node_hours: float | None = None

    @property
    def effectiveness(self) -> float | None:
        """E(P) of Eq. 2.4, as `effectiveness`; None: of nothing, or of 0."""
        if not self.against_node_hours or not self.lost_node_hours:
            return None
        return self.against_node_hours / self.lost_node_hours


def of_links(workload: Workload, lost_s: Floats) -> LinkCosts:
    """Costs of jobs that took longer by `lost_s` because of links, each on all of its nodes (Eq. 2.3)."""
    return LinkCosts(float((lost_s * workload.n_nodes).sum()) / _HOUR_S)


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
        lost_node_hours=float((np.maximum(inter_s, 0.0) * workload.n_nodes).sum()) / _HOUR_S,
        busy_node_hours=busy_node_s / _HOUR_S,
        shared_node_hours=shared_node_s / _HOUR_S,
        machine_node_hours=n_nodes * schedule.completion_s / _HOUR_S,
        slowdown_mean=float(slowdowns(workload, schedule).mean()),
    )


def effectiveness(reference: SharingCosts, policy: SharingCosts) -> float | None:
    """E(P) of Eq. 2.4: node hours lost under the reference over those under the policy; None: of 0."""
    return reference.lost_node_hours / policy.lost_node_hours if policy.lost_node_hours > 0 else None


def saved_frac(alone: SharingCosts, shared: SharingCosts) -> float:
    """Part of the machine's node hours that the same jobs leave free when they share; < 0: they need more.

    The machine's node hours are those of the schedule without sharing.
    """
    return (alone.busy_node_hours - shared.busy_node_hours) / alone.machine_node_hours


def over_seeds(values: Sequence[float], unit: str, least: float = -np.inf) -> Estimate:
    """Mean of one figure over seeds, with its 95 % interval by Student's t; one seed has none."""
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return Estimate(mean, mean, mean, 1, unit, "one seed")
    error = float(array.std(ddof=1)) / np.sqrt(len(array))
    half = float(stats.t.ppf(0.5 + _CONFIDENCE_FRAC / 2, len(array) - 1)) * error
    return Estimate(mean, max(mean - half, least), mean + half, len(array), unit, "over seeds")


def ratio_over_seeds(values: Sequence[float]) -> Estimate:
    """Geometric mean of one ratio over seeds, with its 95 % interval: its logarithm as `over_seeds`."""
    found = over_seeds(np.log(values).tolist(), "1")
    value, low, high = np.exp((found.value, found.low, found.high)).tolist()
    return Estimate(value, low, high, found.n, "1", found.method)
