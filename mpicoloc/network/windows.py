"""The load of a job on the network over time, from messages with their times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.topology import Placement, Topology
from mpicoloc.core.traffic import Floats, TimedCalls, TimedMessages
from mpicoloc.errors import DataError
from mpicoloc.network.topology.xgft import check_placement, climb

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
