"""Groups of jobs on one node: how long they take, and how groups become larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.pairing.queue import Queue, Room

Floats = NDArray[np.float64]


def duration_s(queue: Queue, jobs: Sequence[int]) -> float:
    """How long `jobs` take that begin together on one node, s; NaN where a slowdown is not known.

    The longest of their degraded run times, each as if all others were there all the time: for two jobs the
    term max(RunTime_i Deg_ij, RunTime_j Deg_ji) of Zacarias et al. 2021, section 3.5. Of more than two the
    time lost to each is added, as `slowdown.together` does.
    """
    chosen = list(jobs)
    lost = queue.slowdown[np.ix_(chosen, chosen)] - 1.0
    np.fill_diagonal(lost, 0.0)
    return float((queue.runtime_s[chosen] * (1.0 + lost.sum(axis=1))).max())


@dataclass(frozen=True)
class Graph:
    """The degradation graph over groups of jobs.

    Parameters
    ----------
    weights : ndarray, shape (n, n)
        How long two groups take together, s; infinite: they may not be together.
    alone : ndarray, shape (n,)
        How long each takes without the other, s.
    """

    weights: Floats
    alone: Floats


def degradation_graph(
    queue: Queue, groups: Sequence[Sequence[int]], room: Room, n_per_node: int, threshold_frac: float | None
) -> Graph:
    """How long each two of `groups` take together (Zacarias et al. 2021, section 3.5 and Figure 4)."""
    if not groups:
        return Graph(np.empty((0, 0)), np.empty(0))
    jobs = np.array([job for group in groups for job in group], np.int64)
    sizes = np.array([len(group) for group in groups], np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    lost = queue.slowdown[np.ix_(jobs, jobs)] - 1.0
    np.fill_diagonal(lost, 0.0)
    # [i, B]: what job i loses to all jobs of group B.
    lost_to = np.add.reduceat(lost, starts, axis=1)
    own = lost_to[np.arange(len(jobs)), np.repeat(np.arange(len(groups)), sizes)]
    degraded_s = queue.runtime_s[jobs, None] * (1.0 + own[:, None] + lost_to)
    longest_s = np.maximum.reduceat(degraded_s, starts, axis=0)
    alone = np.maximum.reduceat(queue.runtime_s[jobs] * (1.0 + own), starts)
    weights = np.maximum(longest_s, longest_s.T)
    allowed = ~np.isnan(weights) & (sizes[:, None] + sizes <= n_per_node) & room.fits(queue, groups)
    if threshold_frac is not None:
        allowed &= weights <= threshold_frac * (alone[:, None] + alone)
    weights[~allowed] = np.inf
    np.fill_diagonal(weights, 0.0)
    return Graph(weights, alone)
