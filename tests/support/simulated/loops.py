"""A simulated program passes counted places in its loops: its shutters and counts, with known slowdown."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mpicoloc.core.profile import BEFORE_WINDOWS, COUNT_WINDOWS, table

APART_S, SAMPLE_S = 0.012, 0.0005


@dataclass(frozen=True)
class Program:
    """A program that visits one loop after the other.

    slowdown: of each loop. visit_s: mean time of a visit alone. visit_cv: spread of it (gamma). place_cv:
    spread of the passes of a place for the same work, by visit. noise: spread of the co-run pace of a window.
    shared: part of the places that a loop shares with the next one. uncounted: loops without places.
    calling: loops whose time is in functions without places, so that no sample is near theirs.
    order: "random", "cycle": one after the other, or "blocks": each loop's visits come in one piece.
    slice_s: the co-runner takes the processor in turns, half of the time. poll: places that are passed a
    million times a second whatever the program does. swap: places that are replaced at every shutter.
    same_places: every loop passes all places, each loop three times as often as the one before.
    by_loop: only the places of the loop at the shutter are watched. cost_ns: time that counting a pass takes.
    sampled: threads are sampled in the windows.
    """

    slowdown: tuple[float, ...] = (1.4, 1.1, 2.0)
    visit_s: float = 2e-3
    visit_cv: float = 0.7
    place_cv: float = 0.3
    noise: float = 0.05
    n_places: int = 64
    shared: float = 0.0
    uncounted: tuple[int, ...] = ()
    calling: tuple[int, ...] = ()
    order: str = "random"
    n_shutters: int = 30
    duration_s: float = 0.02
    before_s: float = 0.08
    period_s: float = 0.5
    slice_s: float = 0.0
    poll: int = 0
    swap: int = 0
    by_loop: bool = False
    same_places: bool = False
    cost_ns: float = 0.0
    sampled: bool = False


@dataclass(frozen=True)
class Run:
    """Tables and truth."""

    shutters: np.ndarray
    counts: np.ndarray
    truth: float


def simulate(rng, program):
    """The shutters of one run: time 0 is its begin, in co-run but for the shutters."""
    visits, loops = _visits(rng, program)
    rates = _rates(rng, program)
    paces = np.asarray(program.slowdown)[loops]
    work = np.concatenate([[0.0], np.cumsum(visits)])
    corun = np.concatenate([[0.0], np.cumsum(visits * paces)])
    spread = np.sqrt(np.log(1 + program.place_cv**2))
    each = rates[loops] * np.exp(rng.normal(-(spread**2) / 2, spread, (len(visits), program.n_places)))
    passes = np.concatenate([np.zeros((1, program.n_places)), np.cumsum(each * visits[:, None], axis=0)])
    is_near = ~np.isin(loops, program.uncounted + program.calling)
    near = [np.concatenate([[0.0], np.cumsum(visits * is_near * pace)]) for pace in (paces, 1.0)]
    shutters, counts, samples = [], [], []
    t0 = (rng.uniform(0.2, 0.8) + np.arange(program.n_shutters)) * program.period_s
    for i, begin in enumerate(t0):
        n, ends = _windows(rng, program, np.interp(begin, corun, work), (work, corun, passes))
        samples.append(_samples(ends, work, corun, near))
        watched = _watched(program, i, loops[np.searchsorted(corun, begin) - 1])
        shutters.append(begin)
        counts.append((i, watched, n[:, watched]))
    truth = corun[-1] / work[-1]
    return Run(_shutters(program, shutters, np.array(samples)), _counts(program, shutters, counts), truth)


def _visits(rng, program):
    """Time alone of each visit, and its loop; co-run they fill all periods."""
    n_loops = len(program.slowdown)
    mean = program.visit_s * np.mean(program.slowdown)
    n = max(int(1.05 * program.n_shutters * program.period_s / mean) + 20, n_loops)
    loops = rng.integers(n_loops, size=n)
    if program.order == "blocks":
        loops = np.sort(loops)
    elif program.order == "cycle":
        loops = np.arange(n) % n_loops
    shape = 1 / max(program.visit_cv, 1e-3) ** 2
    visits = rng.gamma(shape, program.visit_s / shape, n)
    total = (visits * np.asarray(program.slowdown)[loops]).sum()
    # The run ends just after its last period, so the truth is that of the time in which shutters fall.
    return visits * (program.n_shutters * program.period_s / total), loops


def _rates(rng, program):
    """Passes per second alone, of each loop (row) and place."""
    n_loops = len(program.slowdown)
    home = np.arange(program.n_places) % n_loops
    rates = np.zeros((n_loops, program.n_places))
    typical = 10 ** rng.uniform(4, 7, program.n_places)
    rates[home, np.arange(program.n_places)] = typical
    also = rng.random(program.n_places) < program.shared
    there = typical[also] * 10 ** rng.uniform(-1, 1, also.sum())
    rates[(home[also] + 1) % n_loops, np.flatnonzero(also)] = there
    if program.same_places:
        rates[:] = typical * 3.0 ** np.arange(n_loops)[:, None]
    rates[list(program.uncounted)] = 0.0
    return rates


def _windows(rng, program, work_s, clocks):
    """Passes in all windows; the shutter begins when `work_s` are done."""
    work, corun, passes = clocks
    n_before = len(BEFORE_WINDOWS)
    each_s = program.before_s / n_before
    edges = [np.interp(work_s, work, corun) - APART_S]
    for _ in range(n_before):
        edges.append(edges[-1] - each_s * _pace(rng, program, each_s))
    at = np.interp(edges[::-1], corun, work)
    work_end = work_s + program.duration_s * np.exp(rng.normal(0, program.noise / 3))
    ends = [*pairwise(at), (work_s, work_end)]
    n = np.array([_passed(work, passes, end) - _passed(work, passes, begin) for begin, end in ends])
    times = np.array([each_s] * n_before + [program.duration_s])
    n[:, : program.poll] = 1e6 * times[:, None]
    if program.cost_ns:
        n *= (times / (times + n.sum(axis=1) * program.cost_ns * 1e-9))[:, None]
    return rng.poisson(np.maximum(n, 0)), ends


def _samples(ends, work, corun, near):
    """Samples of each window, and those near counted places: (window, 2)."""
    clocks = [(corun, near[0])] * len(BEFORE_WINDOWS) + [(work, near[1])]
    times = [
        [np.interp(end, work, clock) for clock in of_window]
        for end, of_window in zip(ends, clocks, strict=True)
    ]
    return np.round(np.diff(times, axis=2)[:, :, 0] / SAMPLE_S)


def _passed(work, passes, at):
    i = np.clip(np.searchsorted(work, at, side="right") - 1, 0, len(work) - 2)
    part = (at - work[i]) / (work[i + 1] - work[i])
    return passes[i] + part * (passes[i + 1] - passes[i])


def _pace(rng, program, length_s):
    """Pace of co-run in one window, 1 on average."""
    pace = np.exp(rng.normal(-(program.noise**2) / 2, program.noise))
    if not program.slice_s:
        return pace
    period = 2 * program.slice_s  # a co-runner that takes half the time; `slowdown` includes this factor of 2
    begin = rng.uniform(0, period)

    def had(t):
        return np.floor(t / period) * program.slice_s + min(t % period, program.slice_s)

    return pace * (had(begin + length_s) - had(begin)) / (length_s / 2)


def _watched(program, i, loop):
    places = np.arange(program.n_places)
    if program.by_loop:
        return places[places % len(program.slowdown) == loop]
    if program.swap:
        first = i * program.swap
        return np.sort((first + np.arange(program.n_places * 3 // 4)) % program.n_places)
    return places


def _shutters(program, t0, samples):
    n, columns = len(t0), {}
    columns["t0_ns"] = np.round(np.array(t0) * 1e9)
    columns["t1_ns"] = columns["t0_ns"] + round(program.duration_s * 1e9)
    for when, length_s in (("before", program.before_s), ("during", program.duration_s)):
        columns[f"{when}_window_ns"] = np.full(n, round(length_s * 1e9))
    for i, when in enumerate(COUNT_WINDOWS if program.sampled else ()):
        columns |= {f"{when}_samples": samples[:, i, 0], f"{when}_near": samples[:, i, 1]}
    busy = 1 / np.mean(program.slowdown) if program.slice_s else 0.999
    columns |= {"epoch": columns["t0_ns"] - 5e6, "verdict": np.ones(n), "busy_frac": np.full(n, busy)}
    columns["n_corunners"] = np.ones(n)
    return table("shutters", columns)


def _counts(program, t0, counts):
    rows = {name: [] for name in ("t0_ns", "place", *(f"n_{when}" for when in COUNT_WINDOWS))}
    for i, watched, n in counts:
        rows["t0_ns"].append(np.full(len(watched), np.round(t0[i] * 1e9)))
        rows["place"].append(watched)
        for when, values in zip(COUNT_WINDOWS, n, strict=True):
            rows[f"n_{when}"].append(values)
    return table("counts", {name: np.concatenate(values) for name, values in rows.items()})
