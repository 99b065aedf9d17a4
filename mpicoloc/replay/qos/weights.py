"""Weights of lanes, in packets a turn as in the thesis and as rows of InfiniBand's arbitration tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mpicoloc.errors import UsageError
from mpicoloc.replay.qos.demand import Demands

MAX_WEIGHT = 8
"""Largest weight that is chosen without a search: the thesis' largest sweet spot (Figures 5.12 to 5.17)."""
UNIT_BYTES, MAX_UNITS = 64, 255

Rows = tuple[tuple[int, int], ...]
"""Rows (lane, weight in units of 64 bytes)."""


def favouring_weights(
    demands: Demands, lane_of_job: Sequence[int], n_lanes: int, max_weight: int = MAX_WEIGHT
) -> tuple[int, ...]:
    """Packets that each lane may send in its turn: more, the less its jobs communicate.

    Result: the ratio of the largest demand of a lane to the lane's own, as the nearest power of two up to
    `max_weight`.

    Jokanovic 2014, section 5.1.2: more to those that compute most for what they communicate. The thesis
    leaves the numbers to trials (`search.trials`).
    """
    lanes = np.asarray(lane_of_job)
    sums = [float(demands.demand_frac[lanes == lane].sum()) for lane in range(n_lanes)]
    most = max(sums)
    return tuple(
        _power_of_two(most / total if total else math.inf, max_weight) if most and lane in lanes else 1
        for lane, total in enumerate(sums)
    )


def _power_of_two(ratio: float, most: int) -> int:
    return 1 << round(math.log2(min(ratio, most)))


def arbitration_rows(weights: Sequence[tuple[int, int]], mtu_bytes: int, n_rows: int) -> Rows:
    """Rows of an arbitration table that let each lane send so many full packets in a turn.

    Raises `UsageError` if they need more rows.

    InfiniBand Architecture Specification, volume 1, section 7.6.9: a row's weight counts 64 bytes, is at most
    255, and a lane that has any of it left sends a whole packet. So 255 units are as good as 256, headers do
    not count, and what needs more takes several rows, between those of other lanes.
    """
    parts = {lane: _split(packets, mtu_bytes) for lane, packets in weights}
    needed = n_rows_needed([packets for _, packets in weights], mtu_bytes)
    if needed > n_rows:
        listed = ":".join(str(packets) for _, packets in weights)
        raise UsageError(
            f"weights {listed} in packets of {mtu_bytes} bytes need {needed} rows of the arbitration table, "
            f"and the ports have {n_rows}: give smaller weights, a smaller --mtu, or --rows if they have more"
        )
    longest = max(map(len, parts.values()), default=0)
    rows = [
        (lane, min(own[turn] * mtu_bytes // UNIT_BYTES, MAX_UNITS))
        for turn in range(longest)
        for lane, own in parts.items()
        if turn < len(own)
    ]
    return tuple(rows)


def n_rows_needed(weights: Sequence[int], mtu_bytes: int) -> int:
    """Rows that `arbitration_rows` makes of weights in packets."""
    return sum(len(_split(packets, mtu_bytes)) for packets in weights)


def _split(packets: int, mtu_bytes: int) -> list[int]:
    """Packets in as few rows as possible, as equal as possible."""
    units = mtu_bytes // UNIT_BYTES
    # With more packets in a row their headers, up to a unit each, would make up for one of them.
    per_row = max(n for n in range(1, MAX_UNITS) if (n - 1) * (units + 1) < min(n * units, MAX_UNITS))
    n = -(-packets // per_row)
    return [packets // n + (i < packets % n) for i in range(n)]
