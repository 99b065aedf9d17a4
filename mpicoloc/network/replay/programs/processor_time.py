"""Processor time of bursts of computation, of which only the time between two MPI calls was recorded.

Where more ranks than processors ran, a rank stood ready without one for part of that time. The system tells
for each rank how long, over its whole run. What is too much in its bursts is taken from those that are long
against others between the same two calls: a burst that was interrupted is, and where all were, all are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LEAST_DELAY_FRAC = 0.02
"""A rank that stood without processor for less of its time counts as never interrupted."""


def running_frac(cpu_s: float, run_delay_s: float) -> float:
    """Part of the time in which a rank could run that it had a processor; 1 if that is not known."""
    if not (np.isfinite(cpu_s) and np.isfinite(run_delay_s)) or cpu_s <= 0 or run_delay_s <= 0:
        return 1.0
    return cpu_s / (cpu_s + run_delay_s)


def processor_ns(burst_ns: Array, kind: Array, running: float) -> NDArray[np.int64]:
    """Processor time of each burst of one rank.

    Parameters
    ----------
    burst_ns : ndarray of int, shape (n,)
        Time between two MPI calls.
    kind : ndarray of int, shape (n,)
        Bursts of one kind are between the same two calls.
    running : float
        Part of all bursts' time in which the rank had a processor, in (0, 1].

    Returns
    -------
    ndarray of int64, shape (n,)
        No burst gets longer; the sum is `running` times that of the bursts, but for rounding.

    Notes
    -----
    Each burst is cut at one multiple of the median of its kind, the same for all kinds, chosen so that the
    sum is right. A single long burst of its kind is its own median, so it is cut only when all are.
    """
    bursts = np.asarray(burst_ns, np.int64)
    if running >= 1 - LEAST_DELAY_FRAC or not len(bursts) or bursts.sum() == 0:
        return bursts.copy()
    _, which = np.unique(kind, return_inverse=True)
    median = np.maximum(_medians(bursts, which)[which], 1)
    multiple = _multiple(bursts, median, running * float(bursts.sum()))
    return np.minimum(bursts, np.rint(multiple * median)).astype(np.int64)


def _medians(values: Array, which: Array) -> Array:
    """The lower median of the values of each kind."""
    order = np.lexsort((values, which))
    n = np.bincount(which)
    return values[order][np.cumsum(n) - n + (n - 1) // 2]


def _multiple(bursts: Array, median: Array, wanted: float) -> float:
    """The multiple of the medians at which bursts must be cut so that `wanted` remains."""
    ratio = bursts / median
    order = np.argsort(ratio)
    whole = np.concatenate([[0.0], np.cumsum(bursts[order].astype(np.float64))])
    rest = np.concatenate([np.cumsum(median[order][::-1].astype(np.float64))[::-1], [0.0]])
    # With the first i bursts whole and the others cut at ratio r: whole[i] + r * rest[i].
    sums = whole[:-1] + ratio[order] * rest[:-1]
    i = min(int(np.searchsorted(sums, wanted)), len(sums) - 1)
    return float((wanted - whole[i]) / rest[i])
