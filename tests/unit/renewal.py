"""A simulated job: cycles one after another, windows on a grid, cells filled as csrc/hooks.c does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicoloc.core.tables import Table, table

N_GROUPS = 16


@dataclass(frozen=True)
class Simulated:
    cycles: Table
    n_windows: int
    window_s: float
    truth: float


def simulate(
    rng,
    *,
    solo_s,
    slowdown,
    cv=0.0,
    slice_s=0.0,
    duration_s=60.0,
    window_s=0.0032,
    period_s=0.2,
    pattern=None,
    jitter=0.3,
):
    """Run keys in the order of `pattern` (else 0..K-1) for `duration_s`; key k lasts solo_s[k] alone.

    cv: relative spread of a cycle's solo duration (gamma distributed). slice_s: the co-runner takes the
    processor for whole slices of this length, instead of slowing evenly. jitter: part of the period by
    which a window may come late; without it, cycles whose length divides the period would meet the grid
    always in the same place.
    """
    solo_s, slowdown = np.asarray(solo_s, float), np.asarray(slowdown, float)
    order = np.arange(len(solo_s)) if pattern is None else np.asarray(pattern)
    pairs, order = np.unique(np.column_stack([order, np.roll(order, -1)]), axis=0, return_inverse=True)
    order = order.ravel()
    solo_s, slowdown = solo_s[pairs[:, 0]], slowdown[pairs[:, 0]]
    n = int(duration_s / (solo_s * slowdown)[order].mean() * 1.5) + 4 * len(order)
    key = np.resize(order, n)
    work = solo_s[key] * (rng.gamma(cv**-2, cv**2, n) if cv else 1.0)
    extra = work * (slowdown[key] - 1)
    corun = work + (rng.poisson(extra / slice_s) * slice_s if slice_s else extra)
    count = np.zeros((2, len(solo_s), N_GROUPS))
    time_s = np.zeros_like(count)
    phase = rng.uniform(0, period_s)
    starts = np.arange(phase, duration_s, period_s)
    starts = starts + rng.uniform(0, jitter * period_s, len(starts))
    walk = _Walk(key, work, corun, count, time_s)
    now = 0.0
    for i_window, t0 in enumerate(starts):
        walk.advance(0, t0 - now, i_window % N_GROUPS)
        walk.advance(1, window_s, i_window % N_GROUPS)
        now = t0 + window_s
        if walk.i > n - 2 * len(order) - window_s / solo_s.min() * 4:
            break
    done = slice(0, walk.i)
    truth = corun[done].sum() / work[done].sum()
    return Simulated(_cells(count, time_s, pairs), i_window + 1, window_s, truth)


class _Walk:
    """Where the job stands: cycle i, of which `left` (a fraction) is still to do."""

    def __init__(self, key, work, corun, count, time_s):
        self.key, self.count, self.time_s = key, count, time_s
        self.cumulative = [
            np.concatenate([[0.0], np.cumsum(corun)]),
            np.concatenate([[0.0], np.cumsum(work)]),
        ]
        self.length = [corun, work]
        self.i, self.left = 0, 1.0

    def advance(self, phase, span_s, group):
        total, length = self.cumulative[phase], self.length[phase]
        first = self.left * length[self.i]
        begin = total[self.i + 1] - first
        end = int(np.searchsorted(total, begin + span_s, side="right")) - 1
        if end <= self.i:
            self.time_s[phase, self.key[self.i], group] += span_s
            self.left -= span_s / length[self.i]
            return
        keys = self.key[self.i : end]
        spent = length[self.i : end].copy()
        spent[0] = first
        n_keys = self.count.shape[1]
        self.count[phase, :, group] += np.bincount(keys, minlength=n_keys)
        self.time_s[phase, :, group] += np.bincount(keys, weights=spent, minlength=n_keys)
        rest = begin + span_s - total[end]
        self.time_s[phase, self.key[end], group] += rest
        self.i, self.left = end, 1.0 - rest / length[end]


def _cells(count, time_s, pairs):
    """A kind of cycle goes from the site of its key to that of the key after it."""
    phase, kind, group = (axis.ravel() for axis in np.indices(count.shape))
    columns = {
        "rank": np.zeros(phase.size), "lane": np.zeros(phase.size),
        "from_site": pairs[kind, 0] + 1, "to_site": pairs[kind, 1] + 1, "size_class": np.zeros(phase.size),
        "phase": phase, "group": group, "n": count.ravel(),
        "comp_ns": np.round(time_s.ravel() * 1e9), "mpi_ns": np.zeros(phase.size),
    }  # fmt: skip
    cells = table("cycles", columns)
    return cells[(cells["n"] > 0) | (cells["comp_ns"] > 0)]
