"""How much jobs ask of the network, and how much any two of them meet there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import DataError
from mpicoloc.network.characterise import Case, Shared


@dataclass(frozen=True)
class Demands:
    """Demands of jobs that run together.

    Parameters
    ----------
    demand_frac : ndarray, shape (n_jobs,)
        Largest utilisation of a level above L0: bytes/s over the bytes/s available to the job there.
    meeting : ndarray, shape (n_jobs, n_jobs)
        Symmetric, 0 on the diagonal: the product of two jobs' utilisations on the level where it is largest,
        among the levels on which they share links. Chance that both send there at the same time if they send
        independently of each other; 0 for jobs that share no link.
    """

    demand_frac: NDArray[np.float64]
    meeting: NDArray[np.float64]

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.demand_frac)


def demands_of(cases: Sequence[Case], shared: Shared | None) -> Demands:
    """Demands of jobs as `characterise` found them.

    Raises `DataError` if the time in which a job sent its bytes is unknown.
    """
    used = np.array([_utilisation(case) for case in cases])
    used[:, 0] = 0.0  # a host's link belongs to its job
    meeting = np.zeros((len(cases), len(cases)))
    if shared is not None:
        products = used.T[:, :, None] * used.T[:, None, :]
        meeting = np.where(shared.sharing.n_links > 0, products, 0.0).max(axis=0)
        np.fill_diagonal(meeting, 0.0)
    return Demands(used.max(axis=1), meeting)


def _utilisation(case: Case) -> list[float]:
    fractions = [row.utilisation_frac for row in case.levels]
    if None in fractions:
        raise DataError(f"job {case.job.id}: no run time, so no bytes/s that it sends: give --duration-s")
    return [fraction for fraction in fractions if fraction is not None]
