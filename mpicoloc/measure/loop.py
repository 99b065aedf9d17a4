"""The loop estimate: how often per second the program passes a counted place, with co-runners and without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import Table, valid_shutters
from mpicoloc.measure.burst import t_quantile

METHOD = "loop"
MIN_SHUTTERS = 6
"""Shutters with counts below which there is no estimate."""
MIN_HITS = 6
"""Passes that all shutters together would have at the co-run pace, below which there is no estimate.

It is no threshold on the passes seen in shutters, which would select lucky samples.
"""
MAX_HALF_WIDTH = 0.5
"""Half width of an interval, in the logarithm, above which there is no estimate."""
MIN_BUSY = 0.97
"""Part of the time that threads have their processors, below which edges say nothing of progress."""
N_REPLICATES, N_TRIAL_REPLICATES = 1000, 200
AFTER_ERROR = 0.02
"""Standard error of a rate that includes the time after shutters, if threads take turns on a processor."""
PRIOR_HITS = 0.5
"""Weight of the prior of the speed between pause and window, in passes."""
EDGE_ERROR = 0.25
"""Standard error of the correction for the speed at the edges, as part of it."""
MAX_PACE_RATIO = 4.0
"""The speed between pause and window is within this factor of those on both sides."""
MODEL_ERROR = 0.005
"""Relative standard error that no number of shutters removes."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """Result of `rates`; `slowdown` is None when `reason` says why."""

    slowdown: Estimate | None
    reason: str = ""


@dataclass(frozen=True)
class Edge:
    """The time between pause and window at one side of each shutter (row); all but `hits` in co-run passes.

    A distance is that to the nearest pass, away from the window, in passes at the co-run pace. `far` is the
    distance from the far end of this time, and `mean` its mean at random co-run instants. The distance from
    the window's edge is `inside` (in this time) plus `outside` (beyond it).
    """

    hits: Array
    expected: Array
    far: Array
    mean: Array
    inside: Array
    outside: Array


@dataclass(frozen=True)
class Blocks:
    """Passes in each shutter (row), its length in seconds, and the passes expected at the co-run pace.

    Rows of one `group` counted the same place on the same node. Rows of one `shutter` are of one instant on
    several nodes, and therefore not independent. `edges` is empty if edges say nothing of progress.
    """

    solo: Array
    solo_s: Array
    expected: Array
    group: NDArray[np.intp]
    shutter: NDArray[np.intp]
    edges: tuple[Edge, ...] = ()

    def __len__(self) -> int:
        return len(self.solo)

    @property
    def n_shutters(self) -> int:
        """Shutters that are independent of each other."""
        return int(self.shutter.max(initial=-1)) + 1


def _counted(shutters: Table) -> Table:
    """The valid shutters with counts inside them and on at least one side."""
    valid = valid_shutters(shutters)
    rows = valid[valid["entry"] > 0]
    return rows[(rows["during_window_ns"] > 0) & (rows["before_window_ns"] + rows["after_window_ns"] > 0)]


def _busy_frac(rows: Table) -> float:
    """Mean part of the time that threads had their processors; 0: not measured."""
    known = rows["busy_frac"][rows["busy_frac"] > 0]
    return float(known.mean()) if len(known) else 0.0


def blocks(shutters: Table, *, only_before: bool = False) -> Blocks:
    """Counts in and around each shutter; `only_before` leaves out those after it if there are some before."""
    rows = _counted(shutters)
    what = np.stack([rows["i_node"].astype(np.uint64), rows["entry"]], axis=1)
    group = np.unique(what, axis=0, return_inverse=True)[1].ravel() if len(rows) else np.zeros(0, np.intp)
    before, before_ns = rows["before_hits"].astype(float), rows["before_window_ns"].astype(float)
    after, after_ns = rows["after_hits"].astype(float), rows["after_window_ns"].astype(float)
    if only_before:
        skipped = before_ns >= after_ns / 2
        after, after_ns = np.where(skipped, 0.0, after), np.where(skipped, 0.0, after_ns)
    rate = (before + after) / (before_ns + after_ns)
    has_edges = bool(((rows["begin_window_ns"] > 0) & (rows["end_window_ns"] > 0)).all())
    has_edges &= _busy_frac(rows) >= MIN_BUSY
    return Blocks(
        solo=rows["during_hits"].astype(float),
        solo_s=rows["during_window_ns"] * 1e-9,
        expected=rate * rows["during_window_ns"],
        group=group,
        shutter=_instants(rows),
        edges=tuple(_edge(rows, when, rate) for when in ("begin", "end")) if has_edges else (),
    )


def _edge(rows: Table, when: str, rate: Array) -> Edge:
    names = ("far", "mean", "inside", "outside")
    distances = (rows[f"{when}_{name}"].astype(float) for name in names)
    return Edge(rows[f"{when}_hits"].astype(float), rate * rows[f"{when}_window_ns"], *distances)


def _instants(rows: Table) -> NDArray[np.intp]:
    """A number for each row; rows of a shutter that several nodes have in common get the same one."""
    alone = np.iinfo(np.int64).max - np.arange(len(rows))
    common = rows["common"].astype(np.int64)
    return np.unique(np.where(common > 0, common, alone), return_inverse=True)[1].ravel()


def rates(shutters: Table, *, rng: np.random.Generator) -> Rates:
    """Slowdown of the co-run phase, T_co/T_solo, from the rates at which a place is passed.

    Result: with 95 % interval.

    Eq. 6-8 of Breslow et al. 2013 with hits per second in place of IPC. Hits of different places, or on
    different nodes, do not add up: each is measured by its own co-run rate.
    """
    counts = blocks(shutters)
    if counts.edges or not 0 < _busy_frac(_counted(shutters)) < MIN_BUSY:
        return _estimate(counts, 0.0, rng)
    # A thread that shares its processor with a co-runner loses it just after the shutter.
    before_only = _estimate(blocks(shutters, only_before=True), 0.0, rng)
    both_sides = _estimate(counts, AFTER_ERROR, rng)
    return min((before_only, both_sides), key=_interval_ratio)


def _interval_ratio(rates: Rates) -> float:
    return rates.slowdown.high / rates.slowdown.low if rates.slowdown else np.inf


def _estimate(counts: Blocks, error: float, rng: np.random.Generator) -> Rates:
    """Slowdown with interval, to which `error` adds a relative standard error."""
    n_hits, n_usual = int(counts.solo.sum()), float(counts.expected.sum())
    n_shutters = counts.n_shutters
    if n_shutters < MIN_SHUTTERS or (n_usual < MIN_HITS and (n_usual > 0 or not n_hits)):
        usual = f"{n_usual:.0f} times in as much time as {n_shutters} shutters last"
        return Rates(None, f"the counted place is passed {usual}, {MIN_HITS} in {MIN_SHUTTERS} needed")
    all_once, edge_weight = np.ones((1, len(counts))), _best_edge_weight(counts, rng)
    value = float(_mean_slowdown(counts, all_once, edge_weight)[0])
    replicates = _mean_slowdown(counts, _bootstrap_weights(counts, N_REPLICATES, rng), edge_weight)
    spread = np.log(replicates[np.isfinite(replicates) & (replicates > 0)])
    if not (np.isfinite(value) and value > 0 and len(spread) > 1):
        return Rates(None, "the counted place was passed inside shutters only, or outside them")
    edge = EDGE_ERROR * np.log(
        value / np.clip(_mean_slowdown(counts, all_once, edge_weight, 1e9)[0], value / 2, value * 2)
    )
    model = 1.96 * float(np.sqrt(MODEL_ERROR**2 + edge**2 + error**2))
    half = float(np.hypot(_half_width(float(spread.std()), n_shutters, n_hits, edge_weight), model))
    if half > MAX_HALF_WIDTH:
        wide = f"the interval's ends differ by a factor of {np.exp(2 * half):.1f}"
        return Rates(None, f"the counted place was passed too unevenly or rarely: {wide}")
    return Rates(Estimate(value, value * np.exp(-half), value * np.exp(half), n_shutters, "1", METHOD))


def _half_width(spread: float, n_shutters: int, n_hits: int, edge_weight: float) -> float:
    """Half the 95 % interval, in the logarithm."""
    # Equal counts in all shutters are no sign of precision: each may be one off by chance.
    spread = float(np.hypot(spread, (1.0 - edge_weight) / max(n_hits, 1)))
    n_free = n_shutters - (3 if edge_weight else 1)
    return t_quantile(n_free) * spread * float(np.sqrt(n_shutters / n_free))


def _best_edge_weight(counts: Blocks, rng: np.random.Generator) -> float:
    """The weight for distances at the edges: near 1 if passes are evenly spaced, 0 if they are random.

    Every weight is unbiased. So the weight with the smallest spread is taken, if its gain is significant.
    """
    if not counts.edges:
        return 0.0
    picks = _bootstrap_weights(counts, N_TRIAL_REPLICATES, rng)
    edge_weights = np.linspace(0.0, 1.0, 9)
    with np.errstate(divide="ignore", invalid="ignore"):
        spreads = np.array(
            [np.log(_mean_slowdown(counts, picks, edge_weight)).std() for edge_weight in edge_weights]
        )
    spreads = np.where(np.isfinite(spreads), spreads, np.inf)
    best = int(np.argmin(spreads))
    return float(edge_weights[best]) if spreads[best] < 0.9 * spreads[0] else 0.0


def _bootstrap_weights(counts: Blocks, n: int, rng: np.random.Generator) -> Array:
    """Weights of the shutters in each of n bootstrap replicates."""
    n_shutters = counts.n_shutters
    times = rng.multinomial(n_shutters, np.full(n_shutters, 1 / n_shutters), size=n)
    return times[:, counts.shutter].astype(float)


def _speeds(
    counts: Blocks, weights: Array, edge_weight: float, prior_hits: float = PRIOR_HITS
) -> tuple[Array, list[Array]]:
    """Speed in shutters and at each of their edges, over the co-run speed, per row of weights and group."""
    member = np.eye(int(counts.group.max()) + 1)[counts.group]

    def total(column: Array) -> Array:
        result: Array = weights @ (column[:, None] * member)
        return result

    done, expected, n = total(counts.solo), total(counts.expected), total(np.ones(len(counts)))
    slowdown = _ratio_or_zero(done, expected)
    paces: list[Array] = []
    for _ in range(2 if counts.edges else 0):
        paces, left = [], done
        for edge, usual in zip(counts.edges, (slowdown, np.ones_like(slowdown)), strict=True):
            prior = prior_hits + (1.0 - edge_weight) * n / 2
            begun = total(edge.hits) + edge_weight * total(edge.outside - edge.far) + prior * usual
            pace = begun / (total(edge.expected - edge_weight * edge.inside) + prior)
            pace = np.clip(
                pace, np.minimum(slowdown, 1.0) / MAX_PACE_RATIO, np.maximum(slowdown, 1.0) * MAX_PACE_RATIO
            )
            left = left - edge_weight * (pace * total(edge.inside) + total(edge.outside - edge.mean))
            paces.append(pace)
        slowdown = _ratio_or_zero(left, expected)
    return slowdown, paces


def _ratio_or_zero(a: Array, b: Array) -> Array:
    """A / b, and 0 where b is not above 0."""
    result: Array = np.where(b > 0, a, 0.0) / np.where(b > 0, b, 1.0)
    return result


def _mean_slowdown(
    counts: Blocks, weights: Array, edge_weight: float, prior_hits: float = PRIOR_HITS
) -> Array:
    """Slowdown per row of weights: mean over the groups, weighted by their time in shutters.

    Each shutter is compared with its own surroundings, because the ratio of the windows' lengths changes with
    the number of co-runners, and the rate with the phase of the program.
    """
    member = np.eye(int(counts.group.max()) + 1)[counts.group]
    slowdown, _ = _speeds(counts, weights, edge_weight, prior_hits)
    usable = weights @ (counts.expected[:, None] * member) > 0
    solo_s = np.where(usable, weights @ (counts.solo_s[:, None] * member), 0.0)
    result: Array = _ratio_or_zero((slowdown * solo_s).sum(axis=1), solo_s.sum(axis=1))
    return result
