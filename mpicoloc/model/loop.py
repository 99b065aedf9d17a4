"""The loop estimate: how often the program passes a place, per second, with co-runners and without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import VERDICTS, Table

METHOD = "loop"
MIN_SHUTTERS = 8
"""Shutters with counts below which there is no estimate."""
MIN_HITS = 30
"""Passes seen in shutters, all together, below which there is no estimate."""
N_REPLICATES = 1000
MODEL_ERROR = 0.005
"""Relative standard error that no number of shutters removes."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """Result of `rates`; `slowdown` is None when `reason` says why."""

    slowdown: Estimate | None
    reason: str = ""


@dataclass(frozen=True)
class Blocks:
    """Hits and seconds of one shutter (row), solo and co-run; `group`: what was counted, on which node."""

    solo: Array
    solo_s: Array
    corun: Array
    corun_s: Array
    group: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.solo)


def blocks(shutters: Table) -> Blocks:
    """The valid shutters with counts inside and on one side at least."""
    rows = shutters[(shutters["verdict"] == VERDICTS.index("valid")) & (shutters["entry"] > 0)]
    rows = rows[(rows["during_window_ns"] > 0) & (rows["before_window_ns"] + rows["after_window_ns"] > 0)]
    what = np.stack([rows["i_node"].astype(np.uint64), rows["entry"]], axis=1)
    group = np.unique(what, axis=0, return_inverse=True)[1].ravel() if len(rows) else np.zeros(0, np.intp)
    return Blocks(
        solo=rows["during_hits"].astype(float),
        solo_s=rows["during_window_ns"] * 1e-9,
        corun=rows["before_hits"].astype(float) + rows["after_hits"],
        corun_s=(rows["before_window_ns"] + rows["after_window_ns"]) * 1e-9,
        group=group,
    )


def rates(shutters: Table, *, rng: np.random.Generator) -> Rates:
    """Slowdown of the co-run phase, T_co/T_solo, from the rates at which a place is passed.

    Parameters
    ----------
    shutters : Table
        Table "shutters" of a profile.
    rng : numpy.random.Generator
        For the bootstrap over shutters.

    Returns
    -------
    Rates
        With 95 % interval.

    Notes
    -----
    Eq. 6-8 of Breslow et al. 2013 with hits per second in place of IPC. Hits of different places, or on
    different nodes, do not add up: each is measured by its own co-run rate.
    """
    found = blocks(shutters)
    n_hits = int(found.solo.sum())
    if len(found) < MIN_SHUTTERS or n_hits < MIN_HITS:
        seen = f"{n_hits} times in {len(found)} shutters, {MIN_HITS} in {MIN_SHUTTERS} needed"
        return Rates(None, f"the counted place was passed {seen}")
    picks = rng.multinomial(len(found), np.full(len(found), 1 / len(found)), size=N_REPLICATES)
    value = float(_ratio(found, np.ones((1, len(found))))[0])
    replicates = _ratio(found, picks.astype(float))
    spread = np.log(replicates[np.isfinite(replicates) & (replicates > 0)])
    if not (np.isfinite(value) and value > 0 and len(spread) > 1):
        return Rates(None, "the counted place was passed inside shutters only, or outside them")
    half = 1.96 * float(np.hypot(spread.std(), MODEL_ERROR))
    return Rates(Estimate(value, value * np.exp(-half), value * np.exp(half), len(found), "1", METHOD))


def _ratio(found: Blocks, weights: Array) -> Array:
    """Slowdown per row of weights: mean over the groups, by their time in shutters.

    Each shutter is compared with its own surroundings: the ratio of the windows' lengths changes with the
    number of co-runners, and the rate with the phase of the program.
    """
    n_groups = int(found.group.max()) + 1
    member = np.eye(n_groups)[found.group]
    solo, solo_s, expected = (
        weights @ (column[:, None] * member)
        for column in (found.solo, found.solo_s, found.corun * found.solo_s / found.corun_s)
    )
    usable = expected > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        corun_s = np.where(usable, solo / np.where(usable, expected, 1.0) * solo_s, 0.0).sum(axis=1)
        ratio: Array = corun_s / np.where(usable, solo_s, 0.0).sum(axis=1)
    return ratio
