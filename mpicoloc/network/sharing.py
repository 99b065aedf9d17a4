"""Jobs that share links: how many can at most, how many do, and an estimate of the slowdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Estimate
from mpicoloc.core.progress import steps
from mpicoloc.core.topology import Hosts, Placement, Topology
from mpicoloc.core.traffic import Exchange, Rounds, TrafficSum
from mpicoloc.errors import DataError
from mpicoloc.network import routing
from mpicoloc.network.routing import LinkLoads, Route
from mpicoloc.network.topology.xgft import check_placement
from mpicoloc.network.utilisation import job_link_loads, populated

MAX_ITERATIONS, TOLERANCE = 100, 1e-5
"""Of slowdowns that agree with the times in which jobs send."""


def most_sharing_jobs(topology: Topology, placement: Placement) -> NDArray[np.int64]:
    """Largest number of jobs with which a job can share the links of each level.

    It is reached if every other host below the job's populated subtrees runs a job of its own that sends
    out of them. It is 0 on level 0, because a host's link belongs to its job. It is also 0 on levels that the
    job never uses, because all of it is in one subtree.

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
    """`most_sharing_jobs` of a job in equal fragments: ``N / n * (m_1 ... m_(k-1) - n)``.

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
    """`most_sharing_jobs` for one populated subtree: jobs that can meet at one of its links (section 4.1)."""
    return most_sharing_jobs(topology, placement) / populated(topology, placement)


@dataclass(frozen=True)
class Sharing:
    """Which jobs share links of which level.

    Parameters
    ----------
    n_links : ndarray of int, shape (height, n_jobs, n_jobs)
        Links that two jobs both load, each direction counted by itself; on the diagonal, links of one job.
    """

    n_links: NDArray[np.int64]

    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of jobs that share a link on any level, each pair once."""
        has_common_link = np.triu((self.n_links > 0).any(axis=0), 1)
        return [(int(i), int(j)) for i, j in np.argwhere(has_common_link)]

    def n_jobs(self) -> NDArray[np.int64]:
        """Number of other jobs with which each job shares links of each level, shape (height, n_jobs)."""
        others = self.n_links > 0
        diagonal = np.einsum("lii->li", self.n_links) > 0
        return others.sum(axis=2) - diagonal


def shared_links(jobs: Sequence[LinkLoads]) -> Sharing:
    """Links that jobs of one topology share, from the load of each job."""
    levels = []
    for level in range(len(jobs[0].up)):
        loaded = np.array([np.concatenate((job.up[level], job.down[level])) > 0 for job in jobs])
        levels.append(loaded.astype(np.int64) @ loaded.T)
    return Sharing(np.array(levels))


@dataclass(frozen=True)
class CommonLink:
    """A link that two jobs both load in one direction, and the bytes of each job; numbers as in `xgft`."""

    level: int
    link: int
    way: str
    n_bytes: tuple[float, float]


def common_links(first: LinkLoads, second: LinkLoads) -> list[CommonLink]:
    """Links that both jobs load; those with most bytes of both together come first."""
    common = []
    for way in ("up", "down"):
        for level, sides in enumerate(zip(getattr(first, way), getattr(second, way), strict=True)):
            for link in np.flatnonzero((sides[0] > 0) & (sides[1] > 0)).tolist():
                common.append(CommonLink(level, link, way, (float(sides[0][link]), float(sides[1][link]))))
    return sorted(common, key=lambda link: -sum(link.n_bytes))


def sending_hosts(
    topology: Topology, placement: Placement, traffic: Rounds, route: Route = routing.d_mod_k
) -> LinkLoads:
    """Effective number of a job's hosts that send over each link; hosts that send little count little.

    For messages it is the square of the sum of the hosts' bytes over the sum of their squares. For an
    exchange it is the number of its hosts. For both together it is the mean, weighted by bytes.

    Returns
    -------
    LinkLoads
        Hosts in place of bytes; 0 on links without load.
    """
    n_bytes = weighted = np.zeros(2 * sum(routing.check_links(topology)))
    for part in traffic.parts if isinstance(traffic, TrafficSum) else (traffic,):
        loads = _flatten(job_link_loads(topology, placement, part, route))
        if isinstance(part, Exchange) and route in (routing.d_mod_k, routing.s_mod_k):
            hosts = _exchange_senders(topology, np.unique(placement.hosts[part.members]), route)
        else:
            squares = _squared_host_bytes(topology, placement, part, route)
            hosts = np.divide(loads**2, squares, out=np.zeros(len(loads)), where=squares > 0)
        n_bytes, weighted = n_bytes + loads, weighted + loads * hosts
    return _by_level(topology, np.divide(weighted, n_bytes, out=np.zeros_like(n_bytes), where=n_bytes > 0))


def _exchange_senders(topology: Topology, hosts: Hosts, route: Route) -> NDArray[np.float64]:
    """Number of hosts that send over each link when each host sends to each other."""
    rows = []
    for level in range(topology.height):
        roots, n_links = topology.subtree_roots(level + 1), topology.n_links(level)
        tree = hosts // topology.subtree_hosts(level)
        inside = np.bincount(tree * roots + hosts % roots, minlength=n_links).reshape(-1, roots)
        if route is routing.d_mod_k:  # any host may send to a destination that chooses the link
            members = np.broadcast_to(inside.sum(axis=1, keepdims=True), inside.shape)
            rows += [members, len(hosts) - members]
        else:
            rows += [inside, inside.sum(axis=0) - inside]
    return np.concatenate([row.ravel() for row in rows]).astype(np.float64)


def _squared_host_bytes(
    topology: Topology, placement: Placement, traffic: Rounds, route: Route
) -> NDArray[np.float64]:
    """Sum of the squares of each host's bytes on each link."""
    src, dst, n_bytes = (np.concatenate(column) for column in zip(*traffic.rounds(), strict=True))
    src, dst = placement.hosts[src], placement.hosts[dst]
    paths, rows = route(topology, src, dst), []
    for level in range(topology.height):
        roots, below = topology.subtree_roots(level + 1), topology.subtree_hosts(level)
        leaves = src // below != dst // below
        for end in (src, dst):
            link = end // below * roots + paths % roots
            keys, place = np.unique(link[leaves] * topology.n_hosts + src[leaves], return_inverse=True)
            sums = np.bincount(place, n_bytes[leaves], len(keys))
            rows.append(np.bincount(keys // topology.n_hosts, sums**2, topology.n_links(level)))
    return np.concatenate(rows)


def mutual_slowdown(
    topology: Topology,
    jobs: Sequence[LinkLoads],
    durations_s: Sequence[float],
    senders: Sequence[LinkLoads] | None = None,
) -> tuple[Estimate, ...]:
    """A first estimate of the slowdown of each job by all others on its links.

    Parameters
    ----------
    topology : Topology
    jobs : sequence of LinkLoads
        Load of each job on the links, level 0 included.
    durations_s : sequence of float
        Time that each job takes without the others.
    senders : sequence of LinkLoads, optional
        How many hosts of each job send over each link (`sending_hosts`); None: one of each job.

    Returns
    -------
    tuple of Estimate
        T_co / T_solo of each job. `low` is 1, as if jobs never sent at the same time. `high` is as if they
        always did, until their bytes are sent. `value` is as if they sent independently of each other.

    Raises
    ------
    DataError
        If a duration is not above 0.

    Notes
    -----
    Assumes that a job waits for its most loaded link, that a link serves the hosts that send in turn, and
    that nothing else of the jobs meets. Of two jobs that keep a link busy all the time, with n_i and n_j
    hosts, one takes 1 + n_j / n_i times as long. A job that others slow down also sends more slowly, over a
    longer part of its time: the shares of time in which jobs send are those that agree with the slowdowns.
    """
    if not all(duration_s > 0 for duration_s in durations_s):
        raise DataError(f"sharing: durations must be above 0 s, got {min(durations_s)}")
    capacities = np.repeat(topology.capacity_bps, [2 * topology.n_links(i) for i in range(topology.height)])
    busy = np.array([_flatten(job) / capacities / s for job, s in zip(jobs, durations_s, strict=True)])
    busy = np.minimum(busy, 1.0)
    alone, shared = busy.max(axis=1, initial=0.0), (busy > 0).sum(axis=0) > 1
    hosts = np.ones_like(busy) if senders is None else np.array([_flatten(job) for job in senders])
    values, highs = (_slowdowns(busy[:, shared], hosts[:, shared], alone, always) for always in (False, True))
    return tuple(
        Estimate(float(value), 1.0, float(max(value, high)), 0, "1", "summed link loads")
        for value, high in zip(values, highs, strict=True)
    )


def _slowdowns(
    busy: NDArray[np.float64], hosts: NDArray[np.float64], alone: NDArray[np.float64], always: bool
) -> NDArray[np.float64]:
    """Slowdown of each job, which keeps each link busy for a part `busy` of its time.

    `alone` is that part for the most loaded link, shared or not. With `always`, jobs send at the same time
    wherever they can; otherwise independently of each other.
    """
    slowdowns, sending, longer = np.ones(len(busy)), busy, np.zeros_like(busy)
    for _ in steps(range(MAX_ITERATIONS), "estimating slowdowns", unit="rounds at most"):
        for i, own in enumerate(busy):
            used = own > 0
            longer[i, used] = own[used] / _rates(i, sending[:, used], hosts[:, used], always)
        before, slowdowns = slowdowns, 1 + np.maximum(longer.max(axis=1, initial=0.0) - alone, 0.0)
        sending = longer / slowdowns[:, None]
        if np.abs(slowdowns - before).max() < TOLERANCE:
            break
    return slowdowns


def _rates(
    i: int, sending: NDArray[np.float64], hosts: NDArray[np.float64], always: bool
) -> NDArray[np.float64]:
    """Part of each link's capacity that job i gets while it sends.

    Another job j, which sends for a part p_j of that time, leaves 1 - p_j n_j / (n_i + n_j) of the link to
    job i. Written as 1 / (1 + o_j), all other jobs together leave 1 / (1 + sum of o_j). That is exact for one
    other job, and for any number of jobs that always send.
    """
    part = np.minimum(sending / sending[i], 1.0) if always else sending
    lost = part * hosts / (hosts + hosts[i])
    lost[i] = 0.0
    return 1 / (1 + crowding(lost).sum(axis=0))


def crowding(lost: NDArray[np.float64]) -> NDArray[np.float64]:
    """o_j of each other job, by the part of a link that it takes from a job: 1 / (1 + o_j) is left."""
    return lost / (1 - lost)


def _flatten(job: LinkLoads) -> NDArray[np.float64]:
    """Loads of all levels in one array; on each level up comes before down."""
    pairs = zip(job.up, job.down, strict=True)
    return np.concatenate([side for pair in pairs for side in pair])


def _by_level(topology: Topology, flat: NDArray[np.float64]) -> LinkLoads:
    """Loads by level from an array that `_flatten` returned."""
    ends = np.cumsum(np.repeat([topology.n_links(i) for i in range(topology.height)], 2))
    rows = np.split(flat, ends[:-1])
    return LinkLoads(tuple(rows[::2]), tuple(rows[1::2]))
