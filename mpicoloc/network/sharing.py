"""Jobs that share links: how many at most, how many in truth, and a first estimate of what it costs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.topology import Placement, Topology
from mpicoloc.errors import DataError
from mpicoloc.network.routing import LinkLoads
from mpicoloc.network.utilisation import populated
from mpicoloc.network.xgft import check_placement


def most_sharing_jobs(topology: Topology, placement: Placement) -> NDArray[np.int64]:
    """Most jobs with which a job can share the links of each level.

    That many if every other host below the job's populated subtrees runs a job of its own that leaves them.
    On level 0 there is none: a host's link is its job's own.

    Returns
    -------
    ndarray of int, shape (height,)

    Notes
    -----
    Jokanovic 2014, Eq. 4.2; its level k is the link level k - 1 here. Eq. 4.1 is for fragments of equal size,
    Eq. 4.3 and 4.4 for those of one host on its levels 2 and 3.
    """
    check_placement(topology, placement)
    below = np.array([topology.subtree_hosts(level) for level in range(topology.height)])
    return populated(topology, placement) * below - len(placement.distinct_hosts())


def most_sharing_jobs_of_fragments(n_hosts: int, fragment: int, m: Sequence[int]) -> float:
    """The same for a job in equal fragments: ``N / n * (m_1 ... m_(k-1) - n)``.

    Parameters
    ----------
    n_hosts : int
        N, hosts of the job.
    fragment : int
        n_(k-1), hosts of the job in each subtree that it populates.
    m : sequence of int
        m_1 ... m_(k-1).

    Notes
    -----
    Jokanovic 2014, Eq. 4.1.
    """
    below = int(np.prod(m, dtype=np.int64))
    if not 1 <= fragment <= min(n_hosts, below):
        raise DataError(f"sharing: a fragment must be in [1, {min(n_hosts, below)}] hosts, got {fragment}")
    return n_hosts / fragment * (below - fragment)


def most_sharing_jobs_per_link(topology: Topology, placement: Placement) -> NDArray[np.float64]:
    """The same for one populated subtree: those that can meet at one of its links (section 4.1)."""
    return most_sharing_jobs(topology, placement) / populated(topology, placement)


@dataclass(frozen=True)
class Sharing:
    """Which jobs meet on which level.

    Parameters
    ----------
    n_links : ndarray of int, shape (height, n_jobs, n_jobs)
        Links, each direction for itself, that two jobs both load; on the diagonal those that a job loads.
    """

    n_links: NDArray[np.int64]

    def n_jobs(self) -> NDArray[np.int64]:
        """Other jobs with which each job shares links of each level, shape (height, n_jobs)."""
        others = self.n_links > 0
        diagonal = np.einsum("lii->li", self.n_links) > 0
        return others.sum(axis=2) - diagonal


def shared_links(jobs: Sequence[LinkLoads]) -> Sharing:
    """Links that jobs of one topology share, from what each puts on them."""
    levels = []
    for level in range(len(jobs[0].up)):
        loaded = np.array([np.concatenate((job.up[level], job.down[level])) > 0 for job in jobs])
        levels.append(loaded.astype(np.int64) @ loaded.T)
    return Sharing(np.array(levels))


def mutual_slowdown(
    topology: Topology, jobs: Sequence[LinkLoads], durations_s: Sequence[float]
) -> tuple[Estimate, ...]:
    """A first estimate of the slowdown that each job suffers by all others on its links.

    Parameters
    ----------
    topology : Topology
    jobs : sequence of LinkLoads
        What each job puts on the links, level 0 included.
    durations_s : sequence of float
        Time in which each job does so, alone.

    Returns
    -------
    tuple of Estimate
        T_co / T_solo of each job. `low` is 1: they never send at the same time. `high`: they always do, as
        far as their bytes last. `value`: they send independently of each other.

    Raises
    ------
    DataError
        If a duration is not above 0.

    Notes
    -----
    Assumes that a job waits for its most loaded link, that a link shares its bandwidth evenly among the jobs
    that send, and that nothing else of the jobs meets. A link that job i keeps busy for the share f_i of its
    time costs it f_i f_j more by job j (value), min(f_i, f_j) at most (high).
    """
    if not all(duration_s > 0 for duration_s in durations_s):
        raise DataError(f"sharing: durations must be above 0 s, got {min(durations_s)}")
    capacities = np.repeat(topology.capacity_bps, [2 * topology.n_links(i) for i in range(topology.height)])
    busy = np.array([_flat(job) / capacities / s for job, s in zip(jobs, durations_s, strict=True)])
    busy = np.minimum(busy, 1.0)
    found = []
    for i, own in enumerate(busy):
        others = np.delete(busy, i, axis=0)
        alone = own.max(initial=0.0)
        value = (own * (1 + others.sum(axis=0))).max(initial=0.0) - alone
        high = (own + np.minimum(own, others).sum(axis=0)).max(initial=0.0) - alone
        found.append(Estimate(1 + value, 1.0, 1 + max(high, value), 0, "1", "summed link loads"))
    return tuple(found)


def _flat(job: LinkLoads) -> NDArray[np.float64]:
    """Loads of all levels in one row, up before down on each."""
    pairs = zip(job.up, job.down, strict=True)
    return np.concatenate([side for pair in pairs for side in pair])
