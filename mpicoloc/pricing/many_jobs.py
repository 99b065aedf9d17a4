"""Prices of many jobs at once, whose slowdowns are known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.pricing.price import Tariff

Floats = NDArray[np.float64]


def charged_su(tariff: Tariff, n_cores: NDArray[np.int64], wall_s: Floats, slowdown: Floats) -> Floats:
    """What each job is charged, SU.

    Parameters
    ----------
    tariff : Tariff
    n_cores : ndarray of int, shape (n,)
        Cores of each job (C).
    wall_s, slowdown : ndarray, shape (n,)
        T_co, s, and T_co / T_solo of each.

    Raises
    ------
    UsageError
        If the price function fails.

    Notes
    -----
    Breslow et al. 2013, Eq. 2.
    """
    jobs = zip(n_cores.tolist(), wall_s.tolist(), slowdown.tolist(), strict=True)
    return np.array([tariff.shared_su(*job) for job in jobs])
