"""On which nodes each job of a simulation was, and how many nodes were busy, for pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Record:
    """Observer that keeps the nodes of each job as runs of neighbours.

    Parameters
    ----------
    n_jobs : int

    Attributes
    ----------
    runs : list of list of tuple of (int, int)
        First node and number of nodes of each run, by job.
    beside : dict of int to set of int
        The jobs that were on nodes of a job at any time, by job; of those that had any.
    busy : list of tuple of (float, int)
        Time, s, and nodes with a job from then on.
    """

    def __init__(self, n_jobs: int) -> None:
        self.runs: list[list[tuple[int, int]]] = [[] for _ in range(n_jobs)]
        self.beside: dict[int, set[int]] = {}
        self.busy: list[tuple[float, int]] = []

    def began(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Keep the job's nodes."""
        starts = np.flatnonzero(np.diff(nodes, prepend=-2) != 1)
        lengths = np.diff(starts, append=len(nodes))
        self.runs[job] = list(zip(nodes[starts].tolist(), lengths.tolist(), strict=True))
        # Without sharing a simulation keeps no such table.
        for other in getattr(simulation, "beside", {}).get(job, ()):
            self.beside.setdefault(job, set()).add(other)
            self.beside.setdefault(other, set()).add(job)
        self._count(simulation)

    def ended(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Count the nodes that are still busy."""
        self._count(simulation)

    def _count(self, simulation: Any) -> None:
        view = simulation.view
        self.busy.append((view.now_s, view.machine.n_nodes - view.n_free))
