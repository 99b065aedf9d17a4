"""A simulated job: cycles one after another, windows on a grid, cells filled as csrc/guest/hooks.c does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpicoloc.core.profile import Table, table

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
    phase = rng.uniform(0, period_s)
    starts = np.arange(phase, duration_s, period_s)
    starts = starts + rng.uniform(0, jitter * period_s, len(starts))
    walk = _Walk(key, work, corun, len(solo_s))
    now = 0.0
    for i_window, t0 in enumerate(starts):
        walk.advance(0, t0 - now, i_window % N_GROUPS)
        walk.advance(1, window_s, i_window % N_GROUPS)
        now = t0 + window_s
        if walk.i > n - 2 * len(order) - window_s / solo_s.min() * 4:
            break
    done = slice(0, walk.i)
    truth = corun[done].sum() / work[done].sum()
    return Simulated(_cells(walk, pairs), i_window + 1, window_s, truth)


class _Walk:
    """Where the job stands: cycle i, of which `left` (a fraction) is still to do."""

    def __init__(self, key, work, corun, n_kinds):
        self.key = key
        self.count, self.time_s, self.done_s, self.cut_s, self.n_cut = np.zeros((5, 2, n_kinds, N_GROUPS))
        self.spent_s = [0.0, 0.0]  # in co-run and in windows, by the cycle that is under way
        self.is_cut = False  # whether that has met a window
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
        rest = span_s
        if end > self.i:
            self._complete(phase, end, first, group)
            rest = begin + span_s - total[end]
            self.i, self.left, self.spent_s = end, 1.0, [0.0, 0.0]
        self.time_s[phase, self.key[self.i], group] += rest
        self.left -= rest / length[self.i]
        self.is_cut = True  # co-run ends where a window begins
        if phase == 0:
            self.cut_s[0, self.key[self.i], group] += rest
        self.spent_s[phase] += rest

    def _complete(self, phase, end, first, group):
        keys, n_keys = self.key[self.i : end], self.count.shape[1]
        spent = self.length[phase][self.i : end].copy()
        spent[0] = first
        spent_s = np.bincount(keys, weights=spent, minlength=n_keys)
        self.count[phase, :, group] += np.bincount(keys, minlength=n_keys)
        self.time_s[phase, :, group] += spent_s
        if phase == 0:
            self.n_cut[0, keys[0], group] += self.is_cut
            self.cut_s[0, keys[0], group] += first * self.is_cut
        else:
            self.done_s[1, :, group] += spent_s
            self.cut_s[1, keys[0], group] += self.spent_s[0]
            self.done_s[1, keys[0], group] += self.spent_s[1]


def _cells(walk, pairs):
    """A kind of cycle goes from the site of its key to that of the key after it."""
    phase, kind, group = (axis.ravel() for axis in np.indices(walk.count.shape))
    times_s = {"comp_ns": walk.time_s, "cut_ns": walk.cut_s, "done_ns": walk.done_s}
    times_ns = {name: np.round(values.ravel() * 1e9) for name, values in times_s.items()}
    columns = {
        "rank": np.zeros(phase.size), "lane": np.zeros(phase.size),
        "from_site": pairs[kind, 0] + 1, "to_site": pairs[kind, 1] + 1, "size_class": np.zeros(phase.size),
        "phase": phase, "group": group, "n": walk.count.ravel(), "n_cut": walk.n_cut.ravel(),
        "mpi_ns": np.zeros(phase.size), **times_ns,
    }  # fmt: skip
    cells = table("cycles", columns)
    return cells[(cells["n"] > 0) | (cells["comp_ns"] > 0)]
