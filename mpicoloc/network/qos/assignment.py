"""Which job uses which lane."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import UsageError
from mpicoloc.network.qos.demand import Demands

_MIN_GAIN = 1e-12


def assign_lanes(demands: Demands, n_lanes: int) -> tuple[int, ...]:
    """Lane of each job: its own while there are enough, else jobs that meet little share one.

    Parameters
    ----------
    demands : Demands
    n_lanes : int
        Lanes for jobs; there may be more than jobs.

    Returns
    -------
    tuple of int
        Lanes from 0 on, without gaps; the lane whose jobs demand most is the first.

    Raises
    ------
    UsageError
        If there is no lane.

    Notes
    -----
    Jokanovic 2014, section 5.1.1 and Figure 5.2. The thesis groups by classes of demand. Here the sum of
    `Demands.meeting` over all pairs on one lane is made small, which keeps heavy jobs apart and needs no
    limits between classes: jobs are placed in the order of their demands, then moved and swapped while that
    helps.
    """
    if n_lanes < 1:
        raise UsageError(f"jobs need at least 1 lane, got {n_lanes}")
    order = np.argsort(-demands.demand_frac, kind="stable")
    lanes = np.full(demands.n_jobs, -1)
    for job in order:
        load = np.bincount(lanes[lanes >= 0], demands.demand_frac[lanes >= 0], n_lanes)
        costs = _costs(demands.meeting, lanes, n_lanes)[job]
        lanes[job] = _first_empty(lanes, n_lanes, np.lexsort((load, costs))[0])
    _improve(demands.meeting, lanes, n_lanes)
    return _numbered(demands, lanes)


def shared_cost(demands: Demands, lane_of_job: tuple[int, ...]) -> float:
    """Sum of `Demands.meeting` over all pairs of jobs on one lane."""
    lanes = np.array(lane_of_job)
    return float(np.triu(demands.meeting * (lanes[:, None] == lanes), 1).sum())


def _first_empty(lanes: NDArray[np.int64], n_lanes: int, otherwise: np.int64) -> int:
    """A job gets a lane of its own while there is one, also if it meets nobody."""
    empty = np.setdiff1d(np.arange(n_lanes), lanes)
    return int(empty[0] if len(empty) else otherwise)


def _costs(meeting: NDArray[np.float64], lanes: NDArray[np.int64], n_lanes: int) -> NDArray[np.float64]:
    """What each job meets on each lane, shape (n_jobs, n_lanes)."""
    return np.stack([meeting[:, lanes == lane].sum(axis=1) for lane in range(n_lanes)], axis=1)


def _improve(meeting: NDArray[np.float64], lanes: NDArray[np.int64], n_lanes: int) -> None:
    """Move a job to another lane, or swap two, whichever gains most, until nothing gains."""
    jobs = np.arange(len(lanes))
    while True:
        costs = _costs(meeting, lanes, n_lanes)
        own, theirs = costs[jobs, lanes], costs[:, lanes]  # theirs[i, j]: job i on the lane of j
        moves = own[:, None] - costs
        swaps = np.where(lanes[:, None] == lanes, 0.0, own[:, None] + own - theirs - theirs.T + 2 * meeting)
        if max(moves.max(), swaps.max()) <= _MIN_GAIN:
            return
        if moves.max() >= swaps.max():
            job, lane = np.unravel_index(moves.argmax(), moves.shape)
            lanes[job] = lane
        else:
            pair = list(np.unravel_index(swaps.argmax(), swaps.shape))
            lanes[pair] = lanes[pair[::-1]]


def _numbered(demands: Demands, lanes: NDArray[np.int64]) -> tuple[int, ...]:
    used = np.unique(lanes)
    sums = np.array([demands.demand_frac[lanes == lane].sum() for lane in used])
    rank = np.empty(len(used), dtype=np.int64)
    rank[np.argsort(-sums, kind="stable")] = np.arange(len(used))
    return tuple(rank[np.searchsorted(used, lanes)].tolist())
