"""Estimators from hardware counters: POPPA's, which use instructions per cycle, and two robust to polling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Estimate, Floats, Table, valid_shutters

MIN_SHUTTERS = 8
"""Least number of blocks for an estimate."""
DELTA = 0.05
"""Largest difference between the IPC before and after a shutter in Algorithm 4."""
MAX_ENDS_APART = 3.0
"""Largest mean difference, in standard errors, between windows before and after shutters that is ascribed to
chance."""
N_REPLICATES = 1000
MAX_END_RATIO = 2.7
"""If the ratio of an interval's ends is larger, there is no estimate."""
UNMODIFIED = "ipc-unfiltered"
EVENTS = ("instructions", "cycles")


WINDOWS = ("before", "during", "after")


def blocks(shutters: Table, *, outside: bool = False) -> Floats:
    """IPC before, during and after each valid shutter with cycles, shape (n_blocks, 3).

    With `outside`, the IPC outside MPI calls.
    """
    valid = valid_shutters(shutters)
    instructions, cycles = (_counts(valid, f"outside_{what}" if outside else what) for what in EVENTS)
    ipc = np.divide(instructions, cycles, out=np.zeros_like(cycles), where=cycles > 0)
    return ipc[(ipc > 0).all(axis=1)]


def work(shutters: Table) -> Floats:
    """Instructions outside MPI before, during and after each valid shutter whose counts are known."""
    valid = valid_shutters(shutters)
    outside = _counts(valid, "outside_instructions")
    # A window of length 0 was not measured. A window without counts was spent in MPI or without a processor.
    return outside[(_counts(valid, "window_ns") > 0).all(axis=1) & outside.any(axis=1)]


def _counts(shutters: Table, what: str) -> Floats:
    return np.stack([shutters[f"{when}_{what}"].astype(float) for when in WINDOWS], axis=1)


def estimates(shutters: Table, *, rng: np.random.Generator) -> list[Estimate]:
    """All estimates from the hardware counts of a job, the most trustworthy first.

    Parameters
    ----------
    shutters : Table
        Table "shutters" of a profile.
    rng : numpy.random.Generator
        For the bootstrap over shutters.

    Returns
    -------
    list of Estimate
        ``ipc-progress``, ``ipc-outside``, ``ipc-filtered`` and ``ipc-unfiltered``; estimates with too few
        shutters are left out.
    """
    all_blocks = blocks(shutters)
    results = (
        progress(work(shutters), rng=rng),
        unfiltered(blocks(shutters, outside=True), method="ipc-outside", rng=rng),
        filtered(all_blocks, rng=rng),
        unfiltered(all_blocks, rng=rng),
    )
    return [estimate for estimate in results if estimate is not None]


def progress(instructions: Floats, *, rng: np.random.Generator) -> Estimate | None:
    """Slowdown as the ratio of instructions outside MPI in shutters to those in equal windows beside them.

    Parameters
    ----------
    instructions : ndarray, shape (n_blocks, 3)
        Before, during and after each shutter, see `work`.
    rng : numpy.random.Generator
        For the bootstrap over shutters.

    Returns
    -------
    Estimate or None
        T_co/T_solo with 95 % interval; None below `MIN_SHUTTERS` blocks.

    Notes
    -----
    Eq. 6-8 of Breslow et al. 2013 with instructions per time in place of IPC. A job computes less per second
    when its instructions get slower, when it has no processor, and when it waits in MPI for a rank that
    suffers from either. IPC shows only the first effect.

    On shared processors the scheduler favours co-runners after the shutter, because they have just rested. So
    windows after shutters are replaced by those before if the two differ by more than `MAX_ENDS_APART`
    standard errors.
    """
    if _differ(instructions[:, 0], instructions[:, 2]):
        instructions = instructions[:, [0, 1, 0]]
    return _ratio(instructions, "ipc-progress", rng)


def _differ(before: Floats, after: Floats) -> bool:
    """Whether the mean counts before and after shutters differ significantly."""
    n = len(before)
    if n < MIN_SHUTTERS:
        return False
    apart = after - before
    return bool(abs(apart.mean()) > MAX_ENDS_APART * apart.std(ddof=1) / np.sqrt(n))


def unfiltered(ipc: Floats, *, rng: np.random.Generator, method: str = UNMODIFIED) -> Estimate | None:
    """Slowdown as the ratio of mean IPC, solo over co-run.

    Parameters
    ----------
    ipc : ndarray, shape (n_blocks, 3)
        Before, during and after each shutter, see `blocks`.
    rng : numpy.random.Generator
        For the bootstrap over shutters.
    method : str
        Name of the estimate: not the default if the counts cover only a part of the job.

    Returns
    -------
    Estimate or None
        T_co/T_solo with 95 % interval; None below `MIN_SHUTTERS` blocks.

    Notes
    -----
    Breslow et al. 2013, Eq. 6-8: T_solo/T_co = IPC_co/IPC_solo, each IPC the mean of its samples.
    """
    return _ratio(ipc, method, rng)


def filtered(ipc: Floats, *, delta: float = DELTA, rng: np.random.Generator) -> Estimate | None:
    """Slowdown from the blocks that do not cross a phase boundary.

    Parameters and result are those of `unfiltered`; `delta` is the largest difference between the IPC before
    and after.

    Notes
    -----
    Breslow et al. 2013, Algorithm 4. It selects blocks whose IPC rose in the shutter, so noise alone makes
    the estimate exceed 1 for a job without interference. Therefore the profile also has the unfiltered
    estimate.
    """
    return _ratio(ipc[passes(ipc, delta)], "ipc-filtered", rng)


def passes(ipc: Floats, delta: float = DELTA) -> NDArray[np.bool_]:
    """Whether each block passes the filter of Algorithm 4, line 3."""
    before, during, after = ipc[:, 0], ipc[:, 1], ipc[:, 2]
    return (np.abs(before - after) < delta) & (before < during) & (after < during)


def _ratio(ipc: Floats, method: str, rng: np.random.Generator) -> Estimate | None:
    n = len(ipc)
    corun, solo = (ipc[:, 0] + ipc[:, 2]) / 2, ipc[:, 1]
    if n < MIN_SHUTTERS or not corun.any() or not solo.any():
        return None
    value = float(solo.sum() / corun.sum())
    picks = rng.integers(0, n, size=(N_REPLICATES, n))
    above, below = solo[picks].sum(axis=1), corun[picks].sum(axis=1)
    replicates = above[below > 0] / below[below > 0]
    low, high = (float(end) for end in np.quantile(replicates, [0.025, 0.975]))
    if not 0 < high <= MAX_END_RATIO * low:
        return None
    return Estimate(value, min(low, value), max(high, value), n, "1", method)
