"""POPPA's estimators from instructions per cycle: Breslow et al. 2013, section 6."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import VERDICTS, Table

MIN_SHUTTERS = 8
"""Blocks below which there is no estimate."""
DELTA = 0.05
"""Algorithm 4: largest difference of IPC before and after a shutter."""
N_REPLICATES = 1000

Array = NDArray[np.float64]


def blocks(shutters: Table) -> Array:
    """IPC before, during and after each valid shutter, (n_blocks, 3); those without cycles are left out."""
    valid = shutters[shutters["verdict"] == VERDICTS.index("valid")]
    out = np.full((len(valid), 3), np.nan)
    for i, when in enumerate(("before", "during", "after")):
        cycles = valid[f"{when}_cycles"].astype(float)
        np.divide(valid[f"{when}_instructions"], cycles, out=out[:, i], where=cycles > 0)
    kept: Array = out[np.isfinite(out).all(axis=1) & (out > 0).all(axis=1)]
    return kept


def unfiltered(ipc: Array, *, rng: np.random.Generator) -> Estimate | None:
    """Slowdown as the ratio of mean IPC, solo against co-run.

    Parameters
    ----------
    ipc : ndarray, shape (n_blocks, 3)
        Before, during and after each shutter, see `blocks`.
    rng : numpy.random.Generator
        For the bootstrap over shutters.

    Returns
    -------
    Estimate or None
        T_co/T_solo with 95 % interval; None below `MIN_SHUTTERS` blocks.

    Notes
    -----
    Breslow et al. 2013, Eq. 6-8: T_solo/T_co = IPC_co/IPC_solo, each IPC the mean of its samples.
    """
    return _ratio(ipc, "ipc-unfiltered", rng)


def filtered(ipc: Array, *, delta: float = DELTA, rng: np.random.Generator) -> Estimate | None:
    """Slowdown from the blocks that do not cross a phase boundary.

    Parameters and result as of `unfiltered`; `delta` is the largest difference of IPC before and after.

    Notes
    -----
    Breslow et al. 2013, Algorithm 4. It keeps only blocks whose IPC rose in the shutter, so that a job
    without interference is estimated above 1 by its noise; the unfiltered estimate stands beside it in the
    profile.
    """
    return _ratio(ipc[passes(ipc, delta)], "ipc-filtered", rng)


def passes(ipc: Array, delta: float = DELTA) -> NDArray[np.bool_]:
    """Line 3 of Algorithm 4, per block."""
    before, during, after = ipc[:, 0], ipc[:, 1], ipc[:, 2]
    result: NDArray[np.bool_] = (np.abs(before - after) < delta) & (before < during) & (after < during)
    return result


def _ratio(ipc: Array, method: str, rng: np.random.Generator) -> Estimate | None:
    n = len(ipc)
    if n < MIN_SHUTTERS:
        return None
    corun, solo = (ipc[:, 0] + ipc[:, 2]) / 2, ipc[:, 1]
    value = float(solo.sum() / corun.sum())
    picks = rng.integers(0, n, size=(N_REPLICATES, n))
    replicates = solo[picks].sum(axis=1) / corun[picks].sum(axis=1)
    low, high = (float(end) for end in np.quantile(replicates, [0.025, 0.975]))
    return Estimate(value, min(low, value), max(high, value), n, "1", method)
