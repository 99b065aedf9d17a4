"""The loop estimate: how often the program passes a place, per second, with co-runners and without.

Equations, assumptions and measured errors: docs/explain/estimators.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import VERDICTS, Table
from mpicoloc.measure.burst import t_quantile

METHOD = "loop"
MIN_SHUTTERS = 6
"""Shutters with counts below which there is no estimate."""
MIN_HITS = 6
"""Passes that shutters would have, all together, at the co-run pace, below which there is no estimate.

Who asks for so many seen in shutters favours luck.
"""
WIDEST = 0.5
"""Half of an interval, in the logarithm, above which an estimate is none."""
MIN_BUSY = 0.97
"""Part of the time that threads have their processors below which edges tell nothing of progress."""
N_REPLICATES, N_TRIED = 1000, 200
AFTER_ERROR = 0.02
"""Standard error of a rate for which the time after shutters counts, where threads run by turns."""
PRIOR_HITS = 0.5
"""What the speed between pause and window is supposed to be counts as so many passes."""
EDGE_ERROR = 0.25
"""Standard error of what the speed at the edges being another changes, as part of it."""
MOST = 4.0
"""Speeds between pause and window are within this factor of those on both sides."""
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
    """Time beside the window of each shutter; all but `hits` in passes at the co-run pace.

    A distance is that to the nearest pass outwards: `far` from the far end of this time, with `mean` that of
    random co-run instants, and from the window's edge: `inside` this time, `outside` the rest.
    """

    hits: Array
    expected: Array
    far: Array
    mean: Array
    inside: Array
    outside: Array


@dataclass(frozen=True)
class Blocks:
    """Passes and seconds of one shutter (row), passes expected; `group`: what was counted, on which node.

    Rows of one `shutter` are of the same instant on several nodes, and not independent. `edges` is empty
    where they tell nothing.
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
        """Independent ones."""
        return int(self.shutter.max(initial=-1)) + 1


def _counted(shutters: Table) -> Table:
    """The valid shutters with counts inside and on one side at least."""
    rows = shutters[(shutters["verdict"] == VERDICTS.index("valid")) & (shutters["entry"] > 0)]
    return rows[(rows["during_window_ns"] > 0) & (rows["before_window_ns"] + rows["after_window_ns"] > 0)]


def _busy_frac(rows: Table) -> float:
    """Part of the time that threads had their processors; 0: not measured."""
    known = rows["busy_frac"][rows["busy_frac"] > 0]
    return float(known.mean()) if len(known) else 0.0


def blocks(shutters: Table, *, only_before: bool = False) -> Blocks:
    """What was counted in and around each shutter, or where it can be in and before it."""
    rows = _counted(shutters)
    what = np.stack([rows["i_node"].astype(np.uint64), rows["entry"]], axis=1)
    group = np.unique(what, axis=0, return_inverse=True)[1].ravel() if len(rows) else np.zeros(0, np.intp)
    before, before_ns = rows["before_hits"].astype(float), rows["before_window_ns"].astype(float)
    after, after_ns = rows["after_hits"].astype(float), rows["after_window_ns"].astype(float)
    if only_before:
        skipped = before_ns >= after_ns / 2
        after, after_ns = np.where(skipped, 0.0, after), np.where(skipped, 0.0, after_ns)
    rate = (before + after) / (before_ns + after_ns)
    edged = bool(((rows["begin_window_ns"] > 0) & (rows["end_window_ns"] > 0)).all())
    edged &= _busy_frac(rows) >= MIN_BUSY
    return Blocks(
        solo=rows["during_hits"].astype(float),
        solo_s=rows["during_window_ns"] * 1e-9,
        expected=rate * rows["during_window_ns"],
        group=group,
        shutter=_instants(rows),
        edges=tuple(_edge(rows, when, rate) for when in ("begin", "end")) if edged else (),
    )


def _edge(rows: Table, when: str, rate: Array) -> Edge:
    names = ("far", "mean", "inside", "outside")
    distances = (rows[f"{when}_{name}"].astype(float) for name in names)
    return Edge(rows[f"{when}_hits"].astype(float), rate * rows[f"{when}_window_ns"], *distances)


def _instants(rows: Table) -> NDArray[np.intp]:
    """A number for each row, the same for those that several nodes have in common."""
    alone = np.iinfo(np.int64).max - np.arange(len(rows))
    common = rows["common"].astype(np.int64)
    return np.unique(np.where(common > 0, common, alone), return_inverse=True)[1].ravel()


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
    whole = blocks(shutters)
    if whole.edges or not 0 < _busy_frac(_counted(shutters)) < MIN_BUSY:
        return _estimate(whole, 0.0, rng)
    # Who shares a processor with a co-runner loses it just after the shutter, which is no mean instant.
    tries = (_estimate(blocks(shutters, only_before=True), 0.0, rng), _estimate(whole, AFTER_ERROR, rng))
    return min(
        tries, key=lambda found: found.slowdown.high / found.slowdown.low if found.slowdown else np.inf
    )


def _estimate(found: Blocks, error: float, rng: np.random.Generator) -> Rates:
    """Slowdown with interval; `error`: a standard error more."""
    n_hits, n_usual = int(found.solo.sum()), float(found.expected.sum())
    n_shutters = found.n_shutters
    if n_shutters < MIN_SHUTTERS or (n_usual < MIN_HITS and (n_usual > 0 or not n_hits)):
        usual = f"{n_usual:.0f} times in as much time as {n_shutters} shutters last"
        return Rates(None, f"the counted place is passed {usual}, {MIN_HITS} in {MIN_SHUTTERS} needed")
    everything, trust = np.ones((1, len(found))), _fit(found, rng)
    value = float(_combined(found, everything, trust)[0])
    replicates = _combined(found, _picks(found, N_REPLICATES, rng), trust)
    spread = np.log(replicates[np.isfinite(replicates) & (replicates > 0)])
    if not (np.isfinite(value) and value > 0 and len(spread) > 1):
        return Rates(None, "the counted place was passed inside shutters only, or outside them")
    edge = EDGE_ERROR * np.log(
        value / np.clip(_combined(found, everything, trust, 1e9)[0], value / 2, value * 2)
    )
    model = 1.96 * float(np.sqrt(MODEL_ERROR**2 + edge**2 + error**2))
    half = float(np.hypot(_half(float(spread.std()), n_shutters, n_hits, trust), model))
    if half > WIDEST:
        wide = f"the interval's ends differ by a factor of {np.exp(2 * half):.1f}"
        return Rates(None, f"the counted place was passed too unevenly or rarely: {wide}")
    return Rates(Estimate(value, value * np.exp(-half), value * np.exp(half), n_shutters, "1", METHOD))


def _half(spread: float, n_shutters: int, n_hits: int, trust: float) -> float:
    """Half the 95 % interval, in the logarithm."""
    # Equal counts in all shutters are no sign of precision: one of them might as well have been another.
    spread = float(np.hypot(spread, (1.0 - trust) / max(n_hits, 1)))
    n_free = n_shutters - (3 if trust else 1)
    return t_quantile(n_free) * spread * float(np.sqrt(n_shutters / n_free))


def _fit(found: Blocks, rng: np.random.Generator) -> float:
    """How far distances at the edges tell what a window cuts off: near 1 where passes are even, 0 at random.

    Right on average with any, so that which gives the smallest spread is taken, unless its gain may be luck.
    """
    if not found.edges:
        return 0.0
    picks = _picks(found, N_TRIED, rng)
    trusts = np.linspace(0.0, 1.0, 9)
    with np.errstate(divide="ignore", invalid="ignore"):
        spreads = np.array([np.log(_combined(found, picks, trust)).std() for trust in trusts])
    spreads = np.where(np.isfinite(spreads), spreads, np.inf)
    best = int(np.argmin(spreads))
    return float(trusts[best]) if spreads[best] < 0.9 * spreads[0] else 0.0


def _picks(found: Blocks, n: int, rng: np.random.Generator) -> Array:
    """Weights of the shutters in each of n replicates."""
    n_shutters = found.n_shutters
    times = rng.multinomial(n_shutters, np.full(n_shutters, 1 / n_shutters), size=n)
    return times[:, found.shutter].astype(float)


def _speeds(
    found: Blocks, weights: Array, trust: float, prior_hits: float = PRIOR_HITS
) -> tuple[Array, list[Array]]:
    """Speed in shutters, and at each of their edges, over that in co-run: per row of weights and group."""
    member = np.eye(int(found.group.max()) + 1)[found.group]

    def total(column: Array) -> Array:
        result: Array = weights @ (column[:, None] * member)
        return result

    done, expected, n = total(found.solo), total(found.expected), total(np.ones(len(found)))
    slowdown = _over(done, expected)
    paces: list[Array] = []
    for _ in range(2 if found.edges else 0):
        paces, left = [], done
        for edge, usual in zip(found.edges, (slowdown, np.ones_like(slowdown)), strict=True):
            prior = prior_hits + (1.0 - trust) * n / 2
            begun = total(edge.hits) + trust * total(edge.outside - edge.far) + prior * usual
            pace = begun / (total(edge.expected - trust * edge.inside) + prior)
            pace = np.clip(pace, np.minimum(slowdown, 1.0) / MOST, np.maximum(slowdown, 1.0) * MOST)
            left = left - trust * (pace * total(edge.inside) + total(edge.outside - edge.mean))
            paces.append(pace)
        slowdown = _over(left, expected)
    return slowdown, paces


def _over(a: Array, b: Array) -> Array:
    """A / b, and 0 where there is no b."""
    result: Array = np.where(b > 0, a, 0.0) / np.where(b > 0, b, 1.0)
    return result


def _combined(found: Blocks, weights: Array, trust: float, prior_hits: float = PRIOR_HITS) -> Array:
    """Slowdown per row of weights: mean over the groups, by their time in shutters.

    Each shutter is compared with its own surroundings: the ratio of the windows' lengths changes with the
    number of co-runners, and the rate with the phase of the program.
    """
    member = np.eye(int(found.group.max()) + 1)[found.group]
    slowdown, _ = _speeds(found, weights, trust, prior_hits)
    usable = weights @ (found.expected[:, None] * member) > 0
    solo_s = np.where(usable, weights @ (found.solo_s[:, None] * member), 0.0)
    result: Array = _over((slowdown * solo_s).sum(axis=1), solo_s.sum(axis=1))
    return result
