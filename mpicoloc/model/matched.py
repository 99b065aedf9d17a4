"""The matched estimate: how much longer the same cycles take with co-runners than without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import PHASES, Table

METHOD = "burst-matched"
MIN_SHUTTERS = 8
"""Valid shutters below which there is no estimate."""
MIN_CYCLES = 30
"""Solo completions, all cycles together, below which there is no estimate."""
MIN_STRATUM = 30
"""Solo completions that a kind of cycle needs for a slowdown of its own."""
MIN_POOL = 8
"""Solo completions that the remaining kinds need together, else they count as slowed like the others."""
N_GROUPS = 16
N_REPLICATES = 600
MODEL_ERROR = 0.005
"""Relative standard error that no number of shutters removes."""
EDGE_ERROR = 0.25
"""The part of the edge correction that is itself uncertain."""
_MAX_BOOTSTRAP_CELLS = 12_000_000

_SITES = 1 << 12
_LANES = 1 << 4
_KEY = (("rank", 1), ("lane", _LANES), ("from_site", _SITES), ("to_site", _SITES), ("size_class", 1 << 8))
"""Columns that tell kinds of cycles apart, with room for their values."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Matched:
    """Result of `matched`; `slowdown` is None when `reason` says why."""

    slowdown: Estimate | None
    reason: str = ""
    coverage_frac: float | None = None


@dataclass(frozen=True)
class Cells:
    """Number and time of cycles, co-run and solo, per kind of cycle (row) and group of shutters (column).

    `n_start` counts how many cycles of the kind began in solo windows.
    """

    n_corun: Array
    x_corun: Array
    n_solo: Array
    x_solo: Array
    n_start: Array

    def weighted(self, weights: Array) -> Cells:
        """Sums over groups, each group counted `weights[replicate, group]` times: (replicate, kind)."""
        names = ("n_corun", "x_corun", "n_solo", "x_solo", "n_start")
        return Cells(*(weights @ getattr(self, name).T for name in names))


def matched(cycles: Table, *, n_windows: int, window_s: float, rng: np.random.Generator) -> Matched:
    """Slowdown of the co-run phase, T_co/T_solo, from the cycles seen in both phases.

    Parameters
    ----------
    cycles : Table
        Table "cycles" of a profile.
    n_windows : int
        Valid shutters behind the solo cells.
    window_s : float
        Their mean length, s.
    rng : numpy.random.Generator
        For the bootstrap.

    Returns
    -------
    Matched
        With a 95 % interval, or with the reason why there is none.
    """
    if n_windows < MIN_SHUTTERS:
        return Matched(None, f"{n_windows} valid shutters, {MIN_SHUTTERS} needed")
    cells = collect(cycles)
    n_solo = cells.n_solo.sum(axis=1)
    matched_kinds = (n_solo > 0) & (cells.n_corun.sum(axis=1) > 0)
    n_cycles = int(n_solo[matched_kinds].sum())
    if n_cycles < MIN_CYCLES:
        return Matched(None, f"{n_cycles} cycles ended in shutters, {MIN_CYCLES} needed")
    x_corun = cells.x_corun.sum(axis=1)
    coverage = float(x_corun[matched_kinds].sum() / x_corun.sum())
    own = n_solo >= MIN_STRATUM
    ends = _interval(cells, own, window_s, rng)
    if ends is None:
        return Matched(None, "the cycles in shutters do not determine it", coverage)
    return Matched(Estimate(*ends, n_windows, "1", METHOD), "", coverage)


def collect(cycles: Table) -> Cells:
    """Cells by kind: the same rank, thread, call sites and size class."""
    shared = cycles["phase"] != PHASES.index("alone")
    used = cycles if shared.all() else cycles[shared]
    key = np.zeros(len(used), dtype=np.uint64)
    for name, n_values in _KEY:
        key *= np.uint64(n_values)
        key += used[name].astype(np.uint64)
    _, first, kind = np.unique(key, return_index=True, return_inverse=True)
    shape = (2, len(first), N_GROUPS)
    # PHASES begins with co-run and solo, so the phase is the first index.
    cell = (used["phase"].astype(np.int64) * len(first) + kind) * N_GROUPS + used["group"] % N_GROUPS
    spent_ns = np.zeros(len(used))
    spent_ns += used["comp_ns"]
    spent_ns += used["mpi_ns"]
    n = np.bincount(cell, used["n"], minlength=int(np.prod(shape))).reshape(shape)
    x = np.bincount(cell, spent_ns, minlength=int(np.prod(shape))).reshape(shape) * 1e-9
    starts = _starts(used[first], n.sum(axis=(0, 2)), n[1])
    return Cells(n_corun=n[0], x_corun=x[0], n_solo=n[1], x_solo=x[1], n_start=starts)


def _starts(kinds: Table, n_total: Array, n_solo: Array) -> Array:
    """Cycles begun in solo windows: as many leave a site as arrive there, shared out as in the whole run."""
    thread = kinds["rank"].astype(np.int64) * _LANES + kinds["lane"]
    sites = np.concatenate([thread * _SITES + kinds["from_site"], thread * _SITES + kinds["to_site"]])
    unique, site = np.unique(sites, return_inverse=True)
    from_site, to_site = site[: len(kinds)], site[len(kinds) :]
    leaving = np.bincount(from_site, n_total, minlength=len(unique))
    share = n_total / np.maximum(leaving[from_site], 1)
    arrived = np.zeros((len(unique), N_GROUPS))
    np.add.at(arrived, to_site, n_solo)
    return arrived[from_site] * share[:, None]


def slowdown_of(cells: Cells, own: NDArray[np.bool_], corun_total_s: Array, window_s: float) -> Array:
    """T_co/T_solo of each replicate.

    `own` marks the kinds with a slowdown of their own. `corun_total_s`, how long each kind ran co-run, is
    known, not sampled, and so the same for every replicate.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        corun_s = np.where(cells.n_corun > 0, cells.x_corun / cells.n_corun, 0.0)
    known = cells.n_corun > 0
    work = cells.n_solo * corun_s
    spent = np.where(known, cells.x_solo, 0.0) - edge_correction(cells, known, corun_s, window_s)
    alone = own & (cells.n_solo > 0) & (spent > 0) & known
    with np.errstate(divide="ignore", invalid="ignore"):
        solo_s = np.where(alone, corun_total_s * spent / work, 0.0).sum(axis=-1)
    corun_s_used = np.where(alone, corun_total_s, 0.0).sum(axis=-1)
    rest = known & ~alone
    sums = {"n": cells.n_solo, "x": corun_total_s, "work": work, "spent": spent}
    pool = {name: np.where(rest, array, 0.0).sum(axis=-1) for name, array in sums.items()}
    use = (pool["n"] >= MIN_POOL) & (pool["spent"] > 0)
    solo_s += np.where(use, pool["x"] * pool["spent"] / np.where(use, pool["work"], 1.0), 0.0)
    corun_s_used += np.where(use, pool["x"], 0.0)
    result: Array = corun_s_used / solo_s
    return result


def edge_correction(cells: Cells, known: NDArray[np.bool_], corun_s: Array, window_s: float) -> Array:
    """Time to take off x_solo because windows cut more cycles of a kind at one edge than at the other.

    A cycle that only begins or only ends in a window spends min(D, window)/2 there on average, D being its
    solo duration, which solves x_solo - surplus * min(D, window) / 2 = n_solo * D.
    """
    surplus = np.where(known, cells.n_start - cells.n_solo, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        long_s = (cells.x_solo - surplus * window_s / 2) / cells.n_solo
        short_s = cells.x_solo / (cells.n_solo + surplus / 2)
        solo_s = np.where(long_s >= window_s, window_s, np.minimum(short_s, window_s))
    solo_s = np.where(cells.n_solo > 0, solo_s, np.minimum(corun_s, window_s))
    result: Array = surplus * solo_s / 2
    return result


def _interval(
    cells: Cells, own: NDArray[np.bool_], window_s: float, rng: np.random.Generator
) -> tuple[float, float, float] | None:
    """Value and interval, the wider of bootstrap and jackknife over groups, plus model error; or None."""
    groups = _used_groups(cells)
    n_groups = groups.x_corun.shape[1]
    total_s = groups.x_corun.sum(axis=1)

    def logarithms(weights: Array, length_s: float = window_s) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            result: Array = np.log(slowdown_of(groups.weighted(weights), own, total_s, length_s))
        return result[np.isfinite(result)]

    both = [logarithms(np.ones((1, n_groups)), length_s) for length_s in (window_s, 0.0)]
    left_out = logarithms(1.0 - np.eye(n_groups))
    if not both[0].size or len(left_out) < 2:
        return None
    value = float(both[0][0])
    error = float(np.sqrt((n_groups - 1) / n_groups * ((left_out - left_out.mean()) ** 2).sum()))
    below = above = t_quantile(n_groups - 1) * error
    if len(own) * N_REPLICATES <= _MAX_BOOTSTRAP_CELLS:
        picks = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), N_REPLICATES)
        ends = np.quantile(np.append(logarithms(picks.astype(float)), value), [0.025, 0.975])
        below, above = max(below, value - float(ends[0])), max(above, float(ends[1]) - value)
    edge = abs(value - float(both[1][0])) if both[1].size else 0.0
    model = 2 * np.hypot(MODEL_ERROR, EDGE_ERROR * edge)
    low, high = value - np.hypot(below, model), value + np.hypot(above, model)
    return float(np.exp(value)), float(np.exp(low)), float(np.exp(high))


def _used_groups(cells: Cells) -> Cells:
    used = cells.x_solo.sum(axis=0) + cells.x_corun.sum(axis=0) > 0
    return Cells(*(getattr(cells, name)[:, used] for name in vars(cells)))


def t_quantile(n_free: int) -> float:
    """Student's t, 97.5 %, to within 0.5 % from 6 degrees of freedom on."""
    return 1.96 + 2.37 / n_free + 2.8 / n_free**2
