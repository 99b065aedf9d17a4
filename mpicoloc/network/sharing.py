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
    On level 0 there is none: a host's link is its job's own; nor on levels that the job never uses, because
    all of it is in one subtree.

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
    trees = populated(topology, placement)
    return np.where(trees > 1, trees * below - len(placement.distinct_hosts()), 0)


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

    def pairs(self) -> list[tuple[int, int]]:
        """Jobs that share a link on any level, each pair once."""
        met = np.triu((self.n_links > 0).any(axis=0), 1)
        return [(int(i), int(j)) for i, j in np.argwhere(met)]

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


@dataclass(frozen=True)
class CommonLink:
    """A link that two jobs both load, in one direction, and the bytes of each; numbers as in `xgft`."""

    level: int
    link: int
    way: str
    n_bytes: tuple[float, float]


def common_links(one: LinkLoads, two: LinkLoads) -> list[CommonLink]:
    """Links that both jobs load, those with most bytes of both together first."""
    found = []
    for way in ("up", "down"):
        for level, sides in enumerate(zip(getattr(one, way), getattr(two, way), strict=True)):
            for link in np.flatnonzero((sides[0] > 0) & (sides[1] > 0)).tolist():
                found.append(CommonLink(level, link, way, (float(sides[0][link]), float(sides[1][link]))))
    return sorted(found, key=lambda link: -sum(link.n_bytes))


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
    return tuple(_suffered(own, np.delete(busy, i, axis=0)) for i, own in enumerate(busy))


def _suffered(own: NDArray[np.float64], others: NDArray[np.float64]) -> Estimate:
    """Slowdown of a job that keeps links busy for these shares of its time, by the others."""
    alone = own.max(initial=0.0)
    value = (own * (1 + others.sum(axis=0))).max(initial=0.0) - alone
    high = (own + np.minimum(own, others).sum(axis=0)).max(initial=0.0) - alone
    return Estimate(1 + value, 1.0, 1 + max(high, value), 0, "1", "summed link loads")


def _flat(job: LinkLoads) -> NDArray[np.float64]:
    """Loads of all levels in one row, up before down on each."""
    pairs = zip(job.up, job.down, strict=True)
    return np.concatenate([side for pair in pairs for side in pair])
