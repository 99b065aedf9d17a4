"""Processor time of bursts of computation, of which only the time between two MPI calls was recorded.

Where more ranks than processors ran, a rank stood ready without one for part of that time, which comes in
whole turns of other processes. The system tells how long over the whole run only, and most of that is in MPI
calls, where ranks wait busily. So bursts between the same two calls are compared: of short ones most were not
interrupted, and one that was is as long as the others and a turn of another process. Bursts that are longer
than a turn were all interrupted, and had the processor for the same part of their time as the rank on the
whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LEAST_DELAY_FRAC = 0.02
"""A rank that stood without processor for less of its time counts as never interrupted."""
TURN_NS = 2_000_000
"""A process that Linux lets run keeps the processor for about 1 to 4 ms while others wait."""


def running_frac(cpu_s: float, run_delay_s: float) -> float:
    """Part of the time in which a rank could run that it had a processor; 1 if that is not known."""
    if not (np.isfinite(cpu_s) and np.isfinite(run_delay_s)) or cpu_s <= 0 or run_delay_s <= 0:
        return 1.0
    return cpu_s / (cpu_s + run_delay_s)


def processor_ns(burst_ns: Array, kind: Array, running: float) -> NDArray[np.int64]:
    """Processor time of each burst of one rank.

    Shapes: `burst_ns` (n,), `kind` (n,), result (n,). Result: no burst gets longer.

    Of a kind with a median below `TURN_NS`, a burst that exceeds it by half a turn and by the median itself
    becomes the median. Bursts of the other kinds are multiplied by `running`.
    """
    bursts = np.asarray(burst_ns, np.int64)
    if running >= 1 - LEAST_DELAY_FRAC or not len(bursts):
        return bursts.copy()
    _, which = np.unique(kind, return_inverse=True)
    median = _medians(bursts, which)[which]
    is_interrupted = bursts > np.maximum(2 * median, median + TURN_NS // 2)
    of_short = np.where(is_interrupted, median, bursts)
    return np.where(median < TURN_NS, of_short, np.rint(running * bursts)).astype(np.int64)


def _medians(values: Array, which: Array) -> Array:
    """The lower median of the values of each kind."""
    order = np.lexsort((values, which))
    n = np.bincount(which)
    return values[order][np.cumsum(n) - n + (n - 1) // 2]
