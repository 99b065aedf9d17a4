"""The load of a job on each level of a fat-tree, and the jobs with which it shares links: Jokanovic 2014.

Level L counts the bytes that leave a subtree of level L: L0 counts the bytes that leave a host, and L1 counts
the bytes that leave a first-level switch. A tree of height h has the levels L0 to L(h-1). In an irregular
network, level L counts the bytes that pass a link of level L or above, even if they only make a detour and
stay within a subtree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.network import (
    Exchange,
    Floats,
    Hosts,
    Levelled,
    Placement,
    Rounds,
    TimedCalls,
    TimedMessages,
    Topology,
    TrafficSum,
    check_placement,
)
from mpicoloc.core.profile import Estimate, NetworkLevel
from mpicoloc.core.progress import steps
from mpicoloc.errors import DataError
from mpicoloc.network import routing
from mpicoloc.network.routing import LinkLoads, Route

MAX_WINDOWS = 1_000_000


@dataclass(frozen=True)
class Windows:
    """The load of a job in windows of equal length, the first of which begins with the first message.

    `injection_bps[i, L]` is the rate in bytes/s at which data leave subtrees of level L in window i.
    `in_transit_bytes[i]` is the mean number of bytes in transit.
    """

    start_s: float
    window_s: float
    injection_bps: Floats
    in_transit_bytes: Floats


def mean_bytes_in_transit(messages: TimedMessages, duration_s: float) -> float:
    """Mean number of bytes in transit between ranks during a job.

    Notes
    -----
    Jokanovic 2014, Eq. 2.1: each message adds its bytes, multiplied by its time in transit, to the integral.
    """
    if not duration_s > 0:
        raise DataError(f"bytes in transit: the duration must be above 0 s, got {duration_s}")
    return float((messages.n_bytes * (messages.end_s - messages.start_s)).sum() / duration_s)


def windows(
    topology: Levelled,
    placement: Placement,
    messages: TimedMessages,
    window_s: float,
    calls: Sequence[TimedCalls] = (),
) -> Windows:
    """Injection rates per level and bytes in transit of each window.

    The bytes of a message, or of a rank in a collective call, are spread evenly over the time of the message
    or call. Messages within a host do not count.

    Raises `DataError` if the window length is not above 0 s, there are more than `MAX_WINDOWS` windows, or
    the placement does not fit.
    """
    check_placement(topology, placement)
    if not (window_s > 0 and math.isfinite(window_s)):
        raise DataError(f"windows: the length must be above 0 s, got {window_s}")
    if len(messages.src) and int(max(messages.src.max(), messages.dst.max())) >= placement.n_ranks:
        raise DataError(f"windows: a message names a rank outside the placement of {placement.n_ranks} ranks")
    amounts = np.concatenate(
        [_message_bytes_by_level(topology, placement, messages)]
        + [_call_bytes_by_level(topology, placement, timed) for timed in calls]
    )
    start_s, end_s = (
        np.concatenate([getattr(messages, name), *(getattr(timed, name) for timed in calls)])
        for name in ("start_s", "end_s")
    )
    first = float(start_s.min()) if len(amounts) else 0.0
    last = float(end_s.max()) if len(amounts) else 0.0
    if (last - first) / window_s >= MAX_WINDOWS:
        raise DataError(
            f"windows: {last - first:g} s have more than {MAX_WINDOWS} windows of {window_s:g} s: "
            "use longer windows"
        )
    n_windows = max(1, math.ceil((last - first) / window_s))
    start, end = (start_s - first) / window_s, (end_s - first) / window_s
    rates = [spread(start, end, amounts[:, i], n_windows) for i in range(topology.height)]
    in_transit = spread(start, end, amounts[:, 0] * (end_s - start_s), n_windows)
    return Windows(first, window_s, np.stack(rates, axis=1) / window_s, in_transit / window_s)


def _message_bytes_by_level(topology: Levelled, placement: Placement, messages: TimedMessages) -> Floats:
    """Bytes of each message (row) that leave subtrees of each level (column)."""
    levels = topology.climb(placement.hosts[messages.src], placement.hosts[messages.dst])
    return messages.n_bytes.astype(np.float64)[:, None] * (levels[:, None] > np.arange(topology.height))


def _call_bytes_by_level(topology: Levelled, placement: Placement, calls: TimedCalls) -> Floats:
    """Bytes of each call (row) that leave subtrees of each level (column)."""
    sent = np.zeros((placement.n_ranks, topology.height))
    for src, dst, n_bytes in calls.traffic.rounds():
        levels = topology.climb(placement.hosts[src], placement.hosts[dst])
        for level in range(topology.height):
            sent[:, level] += np.bincount(src, n_bytes * (levels > level), placement.n_ranks)
    return sent[calls.rank] * calls.share[:, None]


def spread(start: Floats, end: Floats, amount: Floats, n_windows: int) -> Floats:
    """Sum in each window [i, i + 1) of amounts, each spread evenly from its `start` to its `end`."""
    first = np.minimum(start.astype(np.int64), n_windows - 1)
    last = np.clip(np.ceil(end).astype(np.int64) - 1, first, n_windows - 1)
    inside = first == last
    total: Floats = np.bincount(first[inside], amount[inside], n_windows).astype(np.float64)
    start, end, first, last = start[~inside], end[~inside], first[~inside], last[~inside]
    rate = amount[~inside] / (end - start)
    total += np.bincount(first, rate * (first + 1 - start), n_windows)
    total += np.bincount(last, rate * (end - last), n_windows)
    # Windows between the first and the last get the full rate.
    change = np.bincount(first + 1, rate, n_windows + 1) - np.bincount(last, rate, n_windows + 1)
    return total + np.maximum(np.cumsum(change)[:n_windows], 0.0)


CLASSES = ("low", "moderate", "extreme")
LIMITS = (0.1, 0.5)
"""Utilisation from which demand is moderate, and from which it is extreme. The thesis gives no numbers for
its classes."""


def level_bytes(topology: Levelled, placement: Placement, traffic: Rounds) -> NDArray[np.float64]:
    """Bytes that leave the subtrees of each level.

    Parameters
    ----------
    topology : Levelled
    placement : Placement
    traffic : Rounds
        `Traffic`, or an object that yields it in pieces.

    Returns
    -------
    ndarray, shape (height,)

    Raises
    ------
    DataError
        If the traffic has other ranks than the placement, or a host does not exist.
    """
    _check_sizes(topology, placement, traffic)
    total = np.zeros(topology.height)
    for part in _traffic_parts(traffic):
        if isinstance(part, Exchange) and isinstance(topology, Topology):
            total += _exchange_bytes(topology, placement, part)
            continue
        for src, dst, n_bytes in part.rounds():
            levels = topology.climb(placement.hosts[src], placement.hosts[dst])
            total += [n_bytes[levels > level].sum() for level in range(topology.height)]
    return total


def _traffic_parts(traffic: Rounds) -> tuple[Rounds, ...]:
    return traffic.parts if isinstance(traffic, TrafficSum) else (traffic,)


def _exchange_bytes(topology: Topology, placement: Placement, part: Exchange) -> NDArray[np.float64]:
    """Bytes of an exchange: with c_s of p members in subtree s, p^2 - sum of c_s^2 pairs leave subtrees."""
    hosts = placement.hosts[part.members]
    together = [
        (np.unique(topology.subtree(level, hosts), return_counts=True)[1].astype(float) ** 2).sum()
        for level in range(topology.height)
    ]
    return part.n_bytes * (float(len(hosts)) ** 2 - np.array(together))


def _populated(topology: Levelled, placement: Placement) -> list[Hosts]:
    """Subtrees with ranks of the job on each level 0 to h - 1: hosts, first-level switches, ..."""
    hosts = placement.distinct_hosts()
    return [np.unique(topology.subtree(level, hosts)) for level in range(topology.height)]


def populated(topology: Levelled, placement: Placement) -> NDArray[np.int64]:
    """Number of subtrees of each level 0 to h - 1 with ranks of the job."""
    return np.array([len(trees) for trees in _populated(topology, placement)], dtype=np.int64)


def available_bps(
    topology: Levelled, placement: Placement, sent: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Bandwidth of the links that leave the job's populated subtrees, bytes/s (Figures 3.4 and 3.5).

    The bandwidth of a level is 0 if the job does not use the level: the whole job is in one subtree, and
    `sent`, the job's bytes on each level, shows no detours.
    """
    check_placement(topology, placement)
    return np.array(
        [
            topology.leaving_bps(level, trees)
            if len(trees) > 1 or (sent is not None and sent[level])
            else 0.0
            for level, trees in enumerate(_populated(topology, placement))
        ]
    )


def total_bps(topology: Levelled) -> NDArray[np.float64]:
    """Bandwidth of all links of each level, bytes/s in each direction (Figure 3.1)."""
    return np.array([topology.link_bps(level).sum() for level in range(topology.height)])


def utilisation(
    topology: Levelled, placement: Placement, traffic: Rounds, duration_s: float | None
) -> tuple[NetworkLevel, ...]:
    """Injection rate, available bandwidth and utilisation of each level (Figures 3.3 to 3.6).

    Parameters
    ----------
    duration_s : float or None
        T_base: the time that the job needs to send its bytes without interference. If None, it is unknown,
        and there are no rates.

    Raises
    ------
    DataError
        If the traffic does not fit the placement, the placement does not fit the topology, or the duration is
        not above 0 or too short for a finite rate.
    """
    if duration_s is not None and not duration_s > 0:
        raise DataError(f"utilisation: the duration must be above 0 s, got {duration_s}")
    sent = level_bytes(topology, placement, traffic)
    available = available_bps(topology, placement, sent)
    rows = []
    for level in range(topology.height):
        rate = None if duration_s is None else float(sent[level]) / duration_s
        if rate is not None and not math.isfinite(rate):
            raise DataError(
                f"utilisation: {sent[level]:g} bytes in {duration_s} s give no finite rate: correct the "
                "duration"
            )
        fraction = None if rate is None else (rate / float(available[level]) if available[level] else 0.0)
        rows.append(NetworkLevel(level, float(sent[level]), rate, float(available[level]), fraction))
    return tuple(rows)


NOTABLE_DIFFERENCE = 0.1


def by_wall_time(used_frac: float | None, duration_s: float | None, wall_s: float) -> float | None:
    """Utilisation by the wall time instead of the job's duration; None if the two times hardly differ.

    Notes
    -----
    Jokanovic 2014 divides by T_base, the time without interference. The wall time of a slowed job is longer,
    so dividing by it would make the job look harmless.
    """
    if used_frac is None or not duration_s or wall_s <= 0:
        return None
    ratio = duration_s / wall_s
    return used_frac * ratio if not 1 / (1 + NOTABLE_DIFFERENCE) <= ratio <= 1 + NOTABLE_DIFFERENCE else None


def demand_class(levels: Sequence[NetworkLevel], limits: tuple[float, float] = LIMITS) -> str | None:
    """Demand class of a job by its largest utilisation above L0 (Figure 3.7); None if any is unknown.

    L0 does not count, because a host's link belongs to its job.
    """
    fractions = [row.utilisation_frac for row in levels]
    if None in fractions:
        return None
    most = max([0.0, *(fraction for fraction in fractions[1:] if fraction is not None)])
    return CLASSES[sum(most >= limit for limit in limits)]


def job_link_loads(
    topology: Levelled, placement: Placement, traffic: Rounds, route: Route = routing.d_mod_k
) -> LinkLoads:
    """Bytes that a job puts on each link.

    Raises
    ------
    DataError
        If the traffic does not fit the placement, or the placement does not fit the topology.
    """
    _check_sizes(topology, placement, traffic)
    exchanges: list[Exchange] = []
    others: list[Rounds] = []
    for part in _traffic_parts(traffic):
        if isinstance(part, Exchange) and _has_closed_form(topology, route):
            exchanges.append(part)
        else:
            others.append(part)
    size = max(routing.CHUNK, *(topology.n_links(level) for level in range(topology.height)))
    batches = (
        (placement.hosts[src], placement.hosts[dst], n_bytes)
        for part in others
        for src, dst, n_bytes in _batches(part, size)
    )
    loads = routing.sum_loads(topology, batches, route)
    for part in exchanges:
        assert isinstance(topology, Topology)
        more = routing.exchange_loads(topology, placement.hosts[part.members], part.n_bytes, route)
        loads = routing.added((loads, more))
    return loads


def _has_closed_form(topology: Levelled, route: Route) -> bool:
    """Whether the loads of an exchange can be computed from member counts, without its messages."""
    return isinstance(topology, Topology) and route in (routing.d_mod_k, routing.s_mod_k)


def _batches(traffic: Rounds, size: int) -> Iterator[routing.Messages]:
    """The rounds in batches of at least `size` messages; the last batch can be smaller."""
    waiting: list[routing.Messages] = []
    n = 0
    for piece in traffic.rounds():
        waiting.append(piece)
        n += len(piece[0])
        if n >= size:
            yield tuple(np.concatenate(column) for column in zip(*waiting, strict=True))  # type: ignore[misc]
            waiting, n = [], 0
    if waiting:
        yield tuple(np.concatenate(column) for column in zip(*waiting, strict=True))  # type: ignore[misc]


def _check_sizes(topology: Levelled, placement: Placement, traffic: Rounds) -> None:
    check_placement(topology, placement)
    if traffic.n_ranks != placement.n_ranks:
        raise DataError(
            f"the placement has hosts for {placement.n_ranks} ranks, but the job has {traffic.n_ranks}"
        )


# Jobs that share links: their largest possible number, their actual number, and an estimate of the slowdown.

MAX_ITERATIONS, TOLERANCE = 100, 1e-5
"""Limits of the iteration that makes the slowdowns consistent with the times during which jobs send."""


def most_sharing_jobs(topology: Levelled, placement: Placement) -> NDArray[np.int64]:
    """Largest number of jobs with which a job can share the links of each level.

    The number is reached if every other host below the job's populated subtrees runs a separate job that
    sends data out of the subtree. It is 0 on level 0, because a host's link belongs to its job, and on levels
    that the job does not use because the whole job is in one subtree.

    Returns
    -------
    ndarray of int, shape (height,)

    Notes
    -----
    Jokanovic 2014, Eq. 4.2; level k of the thesis is link level k - 1 here. Eq. 4.1 is for fragments of equal
    size. Eq. 4.3 and 4.4 are for fragments of one host on levels 2 and 3 of the thesis.
    """
    check_placement(topology, placement)
    own = len(placement.distinct_hosts())
    return np.array(
        [
            topology.n_hosts_of(level, trees) - own if len(trees) > 1 else 0
            for level, trees in enumerate(_populated(topology, placement))
        ]
    )


def most_sharing_jobs_of_fragments(n_hosts: int, fragment: int, m: Sequence[int]) -> float:
    """`most_sharing_jobs` of a job with equal fragments: ``N / n * (m_1 ... m_(k-1) - n)``.

    Parameters
    ----------
    n_hosts : int
        N, number of the job's hosts.
    fragment : int
        n_(k-1), number of the job's hosts in each subtree that it populates.
    m : sequence of int
        m_1 ... m_(k-1).

    Notes
    -----
    Jokanovic 2014, Eq. 4.1.
    """
    below = int(np.prod(m, dtype=np.int64))
    if not 1 <= fragment <= min(n_hosts, below):
        raise DataError(
            f"sharing: the number of hosts in a fragment must be in [1, {min(n_hosts, below)}], got "
            f"{fragment}"
        )
    return n_hosts / fragment * (below - fragment)


def most_sharing_jobs_per_link(topology: Levelled, placement: Placement) -> NDArray[np.float64]:
    """`most_sharing_jobs` per populated subtree: jobs that can share one link of a subtree (section 4.1)."""
    return most_sharing_jobs(topology, placement) / populated(topology, placement)


@dataclass(frozen=True)
class Sharing:
    """Numbers of links that pairs of jobs share, by level.

    Parameters
    ----------
    n_links : ndarray of int, shape (height, n_jobs, n_jobs)
        Number of links that both jobs load, each direction counted separately; on the diagonal, links that
        the job loads.
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
    """Links that jobs on the same topology share, from the load of each job."""
    levels = []
    for level in range(len(jobs[0].up)):
        loaded = np.array([np.concatenate((job.up[level], job.down[level])) > 0 for job in jobs])
        levels.append(loaded.astype(np.int64) @ loaded.T)
    return Sharing(np.array(levels))


@dataclass(frozen=True)
class CommonLink:
    """A link that two jobs both load in one direction, numbered as in `core.network`, and their bytes."""

    level: int
    link: int
    way: str
    n_bytes: tuple[float, float]


def common_links(first: LinkLoads, second: LinkLoads) -> list[CommonLink]:
    """Links that both jobs load, sorted by the total bytes of both, largest first."""
    common = []
    for way in ("up", "down"):
        for level, sides in enumerate(zip(getattr(first, way), getattr(second, way), strict=True)):
            for link in np.flatnonzero((sides[0] > 0) & (sides[1] > 0)).tolist():
                common.append(CommonLink(level, link, way, (float(sides[0][link]), float(sides[1][link]))))
    return sorted(common, key=lambda link: -sum(link.n_bytes))


def sending_hosts(
    topology: Levelled, placement: Placement, traffic: Rounds, route: Route = routing.d_mod_k
) -> LinkLoads:
    """Effective number of a job's hosts that send over each link; hosts with few bytes count less.

    For messages, the effective number is (sum of b)^2 / (sum of b^2) over the bytes b of the hosts. For an
    exchange, it is the number of hosts that send over the link. For a job with both, it is the mean of the
    two, weighted by bytes.

    Returns
    -------
    LinkLoads
        Hosts in place of bytes; 0 on links without load.
    """
    n_bytes = weighted = np.zeros(2 * sum(routing.check_links(topology)))
    for part in traffic.parts if isinstance(traffic, TrafficSum) else (traffic,):
        loads = _flatten(job_link_loads(topology, placement, part, route))
        if isinstance(part, Exchange) and _has_closed_form(topology, route):
            assert isinstance(topology, Topology)
            hosts = _exchange_senders(topology, np.unique(placement.hosts[part.members]), route)
        else:
            squares = _squared_host_bytes(topology, placement, part, route)
            hosts = np.divide(loads**2, squares, out=np.zeros(len(loads)), where=squares > 0)
        n_bytes, weighted = n_bytes + loads, weighted + loads * hosts
    return _by_level(topology, np.divide(weighted, n_bytes, out=np.zeros_like(n_bytes), where=n_bytes > 0))


def _exchange_senders(topology: Topology, hosts: Hosts, route: Route) -> NDArray[np.float64]:
    """Number of hosts that send over each link if each host sends to every other host."""
    rows = []
    for level in range(topology.height):
        roots, n_links = topology.subtree_roots(level + 1), topology.n_links(level)
        tree = hosts // topology.subtree_hosts(level)
        inside = np.bincount(tree * roots + hosts % roots, minlength=n_links).reshape(-1, roots)
        if route is routing.d_mod_k:  # the destination selects the link, so all hosts inside use it
            members = np.broadcast_to(inside.sum(axis=1, keepdims=True), inside.shape)
            rows += [members, len(hosts) - members]
        else:
            rows += [inside, inside.sum(axis=0) - inside]
    return np.concatenate([row.ravel() for row in rows]).astype(np.float64)


def _squared_host_bytes(
    topology: Levelled, placement: Placement, traffic: Rounds, route: Route
) -> NDArray[np.float64]:
    """Sum of the squares of each host's bytes on each link."""
    src, dst, n_bytes = (np.concatenate(column) for column in zip(*traffic.rounds(), strict=True))
    src, dst = placement.hosts[src], placement.hosts[dst]
    found: dict[tuple[int, bool], list[tuple[Hosts, NDArray[np.float64]]]] = {}
    for level, is_up, passes, links in topology.crossings(src, dst, route(topology, src, dst)):
        keys = links[passes].astype(np.int64) * topology.n_hosts + src[passes]
        found.setdefault((level, is_up), []).append((keys, n_bytes[passes]))
    rows = []
    for level in range(topology.height):
        for is_up in (True, False):
            row = np.zeros(topology.n_links(level))
            if pieces := found.get((level, is_up)):
                all_keys, sent = (np.concatenate(column) for column in zip(*pieces, strict=True))
                keys, place = np.unique(all_keys, return_inverse=True)
                squares = np.bincount(place, sent, len(keys)) ** 2
                row[:] = np.bincount(keys // topology.n_hosts, squares, len(row))
            rows.append(row)
    return np.concatenate(rows)


def mutual_slowdown(
    topology: Levelled,
    jobs: Sequence[LinkLoads],
    durations_s: Sequence[float],
    senders: Sequence[LinkLoads] | None = None,
) -> tuple[Estimate, ...]:
    """A first estimate of the slowdown of each job by other jobs on its links.

    Parameters
    ----------
    topology : Levelled
    jobs : sequence of LinkLoads
        Load of each job on the links, level 0 included.
    durations_s : sequence of float
        Time that each job takes without the others.
    senders : sequence of LinkLoads, optional
        Number of each job's hosts that send over each link (`sending_hosts`); None: one host of each job.

    Returns
    -------
    tuple of Estimate
        T_co / T_solo of each job. `low` is 1, as if the jobs never sent at the same time. `high` assumes that
        they always send at the same time, until their bytes are sent. `value` assumes that they send
        independently of each other.

    Raises
    ------
    DataError
        If a duration is not above 0.

    Notes
    -----
    Assumes that a job waits for its most loaded link, that a link serves the sending hosts in turn, and that
    jobs share nothing else. If two jobs with n_i and n_j hosts keep a link busy all the time, job i takes
    1 + n_j / n_i times as long. A slowed job also sends more slowly, over a longer part of its time, so
    slowdowns and the fractions of time in which jobs send are iterated until they are consistent.
    """
    if not all(duration_s > 0 for duration_s in durations_s):
        raise DataError(f"sharing: durations must be above 0 s, got {min(durations_s)}")
    capacities = np.concatenate([np.tile(topology.link_bps(i), 2) for i in range(topology.height)])
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
    """Slowdown of each job; `busy` is the fraction of its time for which it keeps each link busy.

    `alone` is this fraction for the job's most loaded link, shared or not. With `always`, jobs send at the
    same time as far as possible; otherwise they send independently of each other.
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
    """Fraction of each link's capacity that job i gets while it sends.

    Another job j that sends for a fraction p_j of that time leaves 1 - p_j n_j / (n_i + n_j) of the link to
    job i. This fraction is written as 1 / (1 + o_j). All other jobs together then leave
    1 / (1 + sum of o_j), which is exact for one other job, and for any number of jobs that always send.
    """
    part = np.minimum(sending / sending[i], 1.0) if always else sending
    lost = part * hosts / (hosts + hosts[i])
    lost[i] = 0.0
    return 1 / (1 + crowding(lost).sum(axis=0))


def crowding(lost: NDArray[np.float64]) -> NDArray[np.float64]:
    """o_j of each other job, from the fraction of a link that it takes: 1 / (1 + o_j) is left."""
    return lost / (1 - lost)


def _flatten(job: LinkLoads) -> NDArray[np.float64]:
    """Loads of all levels in one array; on each level up comes before down."""
    pairs = zip(job.up, job.down, strict=True)
    return np.concatenate([side for pair in pairs for side in pair])


def _by_level(topology: Levelled, flat: NDArray[np.float64]) -> LinkLoads:
    """Loads by level from an array that `_flatten` returned."""
    ends = np.cumsum(np.repeat([topology.n_links(i) for i in range(topology.height)], 2))
    rows = np.split(flat, ends[:-1])
    return LinkLoads(tuple(rows[::2]), tuple(rows[1::2]))
