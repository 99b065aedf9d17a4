"""What jobs suffer beside each other in a simulation: as the batch system believes, and as it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.slowdown import PairSlowdowns
from mpicoloc.errors import DataError

Floats = NDArray[np.float64]
_Z = 1.959963984540054
BLIND_SLOWDOWN = 2.0
"""What a batch system without a model expects of two jobs on a node: each has half of its processors."""


@dataclass(frozen=True)
class Slowdowns:
    """Slowdowns of p programs beside each other.

    Parameters
    ----------
    believed, true : ndarray, shape (p, p)
        At [i, j] T_co / T_solo of program i beside program j; what is decided by, and what jobs suffer.

    Raises
    ------
    DataError
        If a slowdown is below 1 or not finite, or the shapes differ.
    """

    believed: Floats
    true: Floats

    def __post_init__(self) -> None:
        n = len(self.true)
        for name in ("believed", "true"):
            array = getattr(self, name)
            if array.shape != (n, n) or not ((array >= 1) & (array < np.inf)).all():
                raise DataError(f"{name} slowdowns: need finite numbers >= 1 of shape {(n, n)}, got {array}")


def drawn(pairs: PairSlowdowns, rng: np.random.Generator | None = None) -> Slowdowns:
    """Slowdowns as a model believes them, and true ones drawn from its 95 % intervals.

    The logarithm is taken as normal, with the spread that the interval's upper end tells: the lower end is
    cut at 1. What is drawn below 1 counts as 1.
    """
    value = np.array(pairs.value)
    if rng is None:
        return Slowdowns(value, value)
    sd = np.log(pairs.high / pairs.value) / _Z
    return Slowdowns(value, np.maximum(value * np.exp(rng.normal(0.0, 1.0, value.shape) * sd), 1.0))


def blind(slowdowns: Slowdowns) -> Slowdowns:
    """The same truth for a batch system that knows nothing of it."""
    return Slowdowns(np.full_like(slowdowns.true, BLIND_SLOWDOWN), slowdowns.true)
