"""Invented programs on several nodes, whose slowdown under interference on some of them is known.

Three types, as in Han et al. 2016, section 3.2: high propagation (one disturbed node is nearly as bad as all,
the more so the larger the pressure), proportional, and low (hardly any effect).
"""

from __future__ import annotations

import numpy as np

TYPES = ("high", "proportional", "low")
SHARES = (7, 3, 2)
"""Of the paper's twelve programs, as far as Figure 2 tells."""


def growth(rng, n_pressures):
    """Part of the largest slowdown at each pressure: rises to 1, bent either way, or a step."""
    x = np.arange(1, n_pressures + 1) / n_pressures
    if rng.uniform() < 0.3:
        middle, steep = rng.uniform(0.3, 0.7), rng.uniform(6, 12)
        found = 1 / (1 + np.exp(-steep * (x - middle)))
        return found / found[-1]
    return x ** rng.uniform(0.5, 2.0)


def times(kind, rng, n_pressures=8, n_nodes=8, noise=0.005):
    """A matrix T of shape (n_pressures, n_nodes + 1) of a program of one type.

    `noise` is the relative standard deviation of each measured time.
    """
    largest = rng.uniform(0.01, 0.1) if kind == "low" else rng.uniform(0.3, 1.5)
    height = largest * growth(rng, n_pressures)[:, None]
    j = np.arange(n_nodes + 1) / n_nodes
    if kind == "high":
        # The larger the pressure, the fewer nodes are enough.
        reach = rng.uniform(0.1, 0.3) * (1.5 - 0.5 * np.linspace(0, 1, n_pressures)[:, None])
        shape = (1 - np.exp(-j / reach)) / (1 - np.exp(-1 / reach))
    else:
        shape = j[None] ** rng.uniform(0.8, 1.2)
    found = 1 + height * shape
    found[:, 1:] *= np.exp(rng.normal(0, noise, found[:, 1:].shape))
    return found


def programs(seed, n_rounds=1, **more):
    """Type and matrix of programs in the paper's proportion of types."""
    rng = np.random.default_rng(seed)
    kinds = [kind for kind, n in zip(TYPES, SHARES, strict=True) for _ in range(n)] * n_rounds
    return [(kind, times(kind, rng, **more)) for kind in kinds]


def profile_of(matrix):
    """`profile(k, j)` that reads a matrix; the time without interference is 10 s."""
    return lambda k, j: 10.0 * (matrix[k - 1, j] if k else 1.0)
