"""The load of a job on each level of a fat-tree, as characterised in Jokanovic 2014, section 3.2.

Level L counts the bytes that leave a subtree of level L: L0 what leaves a host, L1 what leaves a first-level
switch. A tree of height h has L0 to L(h-1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import NetworkLevel
from mpicoloc.core.topology import Placement, Topology
from mpicoloc.core.traffic import Exchange, Floats, Rounds, TimedCalls, TimedMessages, TrafficSum
from mpicoloc.errors import DataError
from mpicoloc.network import routing
from mpicoloc.network.routing import LinkLoads, Route
from mpicoloc.network.topology.xgft import check_placement, climb, subtree

MAX_WINDOWS = 1_000_000


@dataclass(frozen=True)
class Windows:
    """The load of a job in windows of equal length, the first of which begins with the first message.

    `injection_bps[i, L]` are the bytes/s that leave subtrees of level L in window i. `in_transit_bytes[i]` is
    the mean of the bytes that are on their way.
    """

    start_s: float
    window_s: float
    injection_bps: Floats
    in_transit_bytes: Floats


def mean_bytes_in_transit(messages: TimedMessages, duration_s: float) -> float:
    """Mean over a job's time of the bytes that are on their way between ranks.

    Notes
    -----
    Jokanovic 2014, Eq. 2.1: each message adds its bytes times its time to the integral.
    """
    if not duration_s > 0:
        raise DataError(f"bytes in transit: the duration must be above 0 s, got {duration_s}")
    return float((messages.n_bytes * (messages.end_s - messages.start_s)).sum() / duration_s)


def windows(
    topology: Topology,
    placement: Placement,
    messages: TimedMessages,
    window_s: float,
    calls: Sequence[TimedCalls] = (),
) -> Windows:
    """Injection rates per level and bytes in transit of each window.

    The bytes of each message, and those that a rank sends in a collective call, are spread evenly over the
    time of the message or call. Messages within a host do not count.

    Raises `DataError` if the length is not above 0 s, there are more than `MAX_WINDOWS`, or the placement
    does not fit.
    """
    check_placement(topology, placement)
    if not (window_s > 0 and math.isfinite(window_s)):
        raise DataError(f"windows: the length must be above 0 s, got {window_s}")
    if len(messages.src) and int(max(messages.src.max(), messages.dst.max())) >= placement.n_ranks:
        raise DataError(f"windows: a message names a rank that the placement, of {placement.n_ranks}, lacks")
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
        raise DataError(f"windows: {last - first:g} s have more than {MAX_WINDOWS} windows of {window_s:g} s")
    n_windows = max(1, math.ceil((last - first) / window_s))
    start, end = (start_s - first) / window_s, (end_s - first) / window_s
    rates = [spread(start, end, amounts[:, i], n_windows) for i in range(topology.height)]
    in_transit = spread(start, end, amounts[:, 0] * (end_s - start_s), n_windows)
    return Windows(first, window_s, np.stack(rates, axis=1) / window_s, in_transit / window_s)


def _message_bytes_by_level(topology: Topology, placement: Placement, messages: TimedMessages) -> Floats:
    """Bytes of each message (row) that leave subtrees of each level (column)."""
    levels = climb(topology, placement.hosts[messages.src], placement.hosts[messages.dst])
    return messages.n_bytes.astype(np.float64)[:, None] * (levels[:, None] > np.arange(topology.height))


def _call_bytes_by_level(topology: Topology, placement: Placement, calls: TimedCalls) -> Floats:
    """Bytes of each call (row) that leave subtrees of each level (column)."""
    sent = np.zeros((placement.n_ranks, topology.height))
    for src, dst, n_bytes in calls.traffic.rounds():
        levels = climb(topology, placement.hosts[src], placement.hosts[dst])
        for level in range(topology.height):
            sent[:, level] += np.bincount(src, n_bytes * (levels > level), placement.n_ranks)
    return sent[calls.rank] * calls.share[:, None]


def spread(start: Floats, end: Floats, amount: Floats, n_windows: int) -> Floats:
    """Sum in each window [i, i + 1) of amounts that are each spread evenly from `start` to `end`."""
    first = np.minimum(start.astype(np.int64), n_windows - 1)
    last = np.clip(np.ceil(end).astype(np.int64) - 1, first, n_windows - 1)
    inside = first == last
    total: Floats = np.bincount(first[inside], amount[inside], n_windows).astype(np.float64)
    start, end, first, last = start[~inside], end[~inside], first[~inside], last[~inside]
    rate = amount[~inside] / (end - start)
    total += np.bincount(first, rate * (first + 1 - start), n_windows)
    total += np.bincount(last, rate * (end - last), n_windows)
    # Windows between the first and the last have the full rate.
    change = np.bincount(first + 1, rate, n_windows + 1) - np.bincount(last, rate, n_windows + 1)
    return total + np.maximum(np.cumsum(change)[:n_windows], 0.0)


CLASSES = ("low", "moderate", "extreme")
LIMITS = (0.1, 0.5)
"""Utilisation from which a job is moderate, and extreme; the thesis has no numbers for its classes."""


def level_bytes(topology: Topology, placement: Placement, traffic: Rounds) -> NDArray[np.float64]:
    """Bytes that leave the subtrees of each level.

    Parameters
    ----------
    topology : Topology
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
        if isinstance(part, Exchange):
            total += _exchange_bytes(topology, placement, part)
            continue
        for ranks, others, n_bytes in part.rounds():
            src, dst = placement.hosts[ranks], placement.hosts[others]
            for level in range(topology.height):
                total[level] += n_bytes[src != dst].sum()
                src, dst = src // topology.m[level], dst // topology.m[level]
    return total


def _traffic_parts(traffic: Rounds) -> tuple[Rounds, ...]:
    return traffic.parts if isinstance(traffic, TrafficSum) else (traffic,)


def _exchange_bytes(topology: Topology, placement: Placement, part: Exchange) -> NDArray[np.float64]:
    """Bytes of an exchange: of p members, c_s in subtree s, p^2 - sum of c_s^2 pairs leave their subtrees."""
    hosts = placement.hosts[part.members]
    together = [
        (np.unique(subtree(topology, level, hosts), return_counts=True)[1].astype(float) ** 2).sum()
        for level in range(topology.height)
    ]
    return part.n_bytes * (float(len(hosts)) ** 2 - np.array(together))


def populated(topology: Topology, placement: Placement) -> NDArray[np.int64]:
    """Number of subtrees of each level 0 to h - 1 with ranks of the job: hosts, first-level switches, ..."""
    hosts = placement.distinct_hosts()
    counts = [len(np.unique(subtree(topology, level, hosts))) for level in range(topology.height)]
    return np.array(counts, dtype=np.int64)


def available_links(topology: Topology, placement: Placement) -> NDArray[np.int64]:
    """Number of links of each level that leave the job's populated subtrees.

    It is 0 on a level that the job never uses, because all of it is in one subtree.
    """
    trees = populated(topology, placement)
    leaving = [topology.subtree_roots(level + 1) for level in range(topology.height)]
    return np.where(trees > 1, trees * np.array(leaving), 0)


def available_bps(topology: Topology, placement: Placement) -> NDArray[np.float64]:
    """Bandwidth available to the job's allocation on each level, bytes/s (Figures 3.4 and 3.5)."""
    check_placement(topology, placement)
    return available_links(topology, placement) * np.array(topology.capacity_bps)


def total_bps(topology: Topology) -> NDArray[np.float64]:
    """Bandwidth of all links of each level, bytes/s in each direction (Figure 3.1)."""
    n_links = [topology.n_links(level) for level in range(topology.height)]
    return np.array(n_links) * np.array(topology.capacity_bps)


def utilisation(
    topology: Topology, placement: Placement, traffic: Rounds, duration_s: float | None
) -> tuple[NetworkLevel, ...]:
    """Injection rate, available bandwidth and utilisation of each level (Figures 3.3 to 3.6).

    Parameters
    ----------
    duration_s : float or None
        Time in which the job sent its bytes; None: unknown, so there are no rates.

    Raises
    ------
    DataError
        If the traffic does not fit the placement, the placement does not fit the topology, or the duration is
        not above 0 or too short for a finite rate.
    """
    if duration_s is not None and not duration_s > 0:
        raise DataError(f"utilisation: the duration must be above 0 s, got {duration_s}")
    sent, available = level_bytes(topology, placement, traffic), available_bps(topology, placement)
    rows = []
    for level in range(topology.height):
        rate = None if duration_s is None else float(sent[level]) / duration_s
        if rate is not None and not math.isfinite(rate):
            raise DataError(f"utilisation: {sent[level]:g} bytes in {duration_s} s are no rate: is it right?")
        fraction = None if rate is None else (rate / float(available[level]) if available[level] else 0.0)
        rows.append(NetworkLevel(level, float(sent[level]), rate, float(available[level]), fraction))
    return tuple(rows)


def demand_class(levels: Sequence[NetworkLevel], limits: tuple[float, float] = LIMITS) -> str | None:
    """Class of a job's demand by its largest utilisation of a level (Figure 3.7); None if that is unknown.

    L0 does not count, because a host's link belongs to its job.
    """
    fractions = [row.utilisation_frac for row in levels]
    if None in fractions:
        return None
    most = max([0.0, *(fraction for fraction in fractions[1:] if fraction is not None)])
    return CLASSES[sum(most >= limit for limit in limits)]


def job_link_loads(
    topology: Topology, placement: Placement, traffic: Rounds, route: Route = routing.d_mod_k
) -> LinkLoads:
    """Bytes that a job puts on each link.

    Raises
    ------
    DataError
        If the traffic does not fit the placement, or the placement does not fit the topology.
    """
    _check_sizes(topology, placement, traffic)
    parts = _traffic_parts(traffic)
    closed = route in (routing.d_mod_k, routing.s_mod_k)
    exchanges = [part for part in parts if isinstance(part, Exchange) and closed]
    others = [part for part in parts if not (isinstance(part, Exchange) and closed)]
    size = max(routing.CHUNK, *(topology.n_links(level) for level in range(topology.height)))
    batches = (
        (placement.hosts[src], placement.hosts[dst], n_bytes)
        for part in others
        for src, dst, n_bytes in _batches(part, size)
    )
    loads = routing.sum_loads(topology, batches, route)
    for part in exchanges:
        more = routing.exchange_loads(topology, placement.hosts[part.members], part.n_bytes, route)
        loads = routing.added((loads, more))
    return loads


def _batches(traffic: Rounds, size: int) -> Iterator[routing.Messages]:
    """The rounds in batches of at least `size` messages; the last may be smaller."""
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


def _check_sizes(topology: Topology, placement: Placement, traffic: Rounds) -> None:
    check_placement(topology, placement)
    if traffic.n_ranks != placement.n_ranks:
        raise DataError(
            f"the placement has hosts for {placement.n_ranks} ranks, the job has {traffic.n_ranks}"
        )
