"""Cycles of a job by kind, and what is known of each kind from the whole run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.tables import PHASES, Table

MIN_STRATUM = 30
"""Co-run durations of solo time that a kind of cycle needs for a slowdown of its own."""
MIN_SEEN = 8
"""And solo completions: a rare long wait of a cycle that is usually short tells nothing of it."""
MIN_WHOLE = 0.1
"""Part of the cycles of a kind that no shutter cut, below which these are not typical."""
N_OCTAVES = 64
"""Kinds of fewer completions are pooled by octaves of duration: long cycles must not drown short ones."""
N_GROUPS = 16
"""Shutters are dealt into so many."""

_SITES = 1 << 12
_LANES = 1 << 5
_KEY = (("rank", 1), ("lane", _LANES), ("from_site", _SITES), ("to_site", _SITES), ("size_class", 1 << 8))
"""Columns that tell kinds of cycles apart, with room for their values."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """Number and time of cycles, co-run and solo, per kind of cycle (row) and group of shutters (column).

    `n_start` cycles of the kind began in solo windows. Those that ended there took `done` from the begin of
    the pause on, and `before` until then. `n_whole` cycles, of time `whole`, met no shutter; `thread` tells
    whose they are.
    """

    n_corun: Array
    x_corun: Array
    n_solo: Array
    x_solo: Array
    n_start: Array
    done: Array
    before: Array
    n_whole: Array
    whole: Array
    thread: NDArray[np.int64]

    def each(self, change: Callable[[Array], Array]) -> Cells:
        """The same change made to all numbers and times."""
        names = ("n_corun", "x_corun", "n_solo", "x_solo", "n_start", "done", "before", "n_whole", "whole")
        return Cells(**{name: change(getattr(self, name)) for name in names}, thread=self.thread)

    def weighted(self, weights: Array) -> Cells:
        """Sums over groups, each group counted `weights[replicate, group]` times: (replicate, kind)."""
        return self.each(lambda values: weights @ values.T)

    @property
    def n_groups(self) -> int:
        """Groups of shutters."""
        return self.n_corun.shape[1]


def kind_keys(cycles: Table) -> NDArray[np.uint64]:
    """A number for each row, the same for cycles of one kind."""
    key = np.zeros(len(cycles), dtype=np.uint64)
    for name, n_values in _KEY:
        key *= np.uint64(n_values)
        key += cycles[name].astype(np.uint64)
    return key


def threads_of(rows: Table) -> NDArray[np.int64]:
    """The thread of each row, as a number."""
    result: NDArray[np.int64] = rows["rank"].astype(np.int64) * _LANES + rows["lane"]
    return result


def collect(cycles: Table, n_windows: int) -> Cells:
    """Cells by kind: the same rank, thread, call sites and size class."""
    shared = cycles["phase"] != PHASES.index("alone")
    used = cycles if shared.all() else cycles[shared]
    _, first, kind = np.unique(kind_keys(used), return_index=True, return_inverse=True)
    shape = (2, len(first), N_GROUPS)
    # PHASES begins with co-run and solo, so the phase is the first index.
    cell = (used["phase"].astype(np.int64) * len(first) + kind) * N_GROUPS + used["group"] % N_GROUPS
    spent_ns = np.zeros(len(used))
    spent_ns += used["comp_ns"]
    spent_ns += used["mpi_ns"]
    n = np.bincount(cell, used["n"], minlength=int(np.prod(shape))).reshape(shape)
    x = np.bincount(cell, spent_ns, minlength=int(np.prod(shape))).reshape(shape) * 1e-9
    starts = _starts(used[first], n.sum(axis=(0, 2)), n[1])
    # A window cuts one cycle at each edge, so starts and ends of a kind differ by no more than the windows.
    n_most = -(-n_windows // N_GROUPS)
    starts = n[1] + np.clip(starts - n[1], -n_most, n_most)
    n_cut, cut, done = (
        np.bincount(cell, used[name], minlength=n.size).reshape(shape)
        for name in ("n_cut", "cut_ns", "done_ns")
    )
    whole = np.maximum(n[0] - n_cut[0], 0.0), np.maximum(x[0] - cut[0] * 1e-9, 0.0)
    ended = done[1] * 1e-9, cut[1] * 1e-9
    return Cells(n[0], x[0], n[1], x[1], starts, *ended, *whole, threads_of(used[first]))


def _starts(kinds: Table, n_total: Array, n_solo: Array) -> Array:
    """Cycles begun in solo windows: as many leave a site as arrive there, shared out as in the whole run."""
    thread = threads_of(kinds)
    sites = np.concatenate([thread * _SITES + kinds["from_site"], thread * _SITES + kinds["to_site"]])
    unique, site = np.unique(sites, return_inverse=True)
    from_site, to_site = site[: len(kinds)], site[len(kinds) :]
    leaving = np.bincount(from_site, n_total, minlength=len(unique))
    share = n_total / np.maximum(leaving[from_site], 1)
    arrived = np.zeros((len(unique), N_GROUPS))
    np.add.at(arrived, to_site, n_solo)
    return arrived[from_site] * share[:, None]


@dataclass(frozen=True)
class Kinds:
    """What is known of each kind from the whole run: its stratum, co-run time and mean co-run duration, s.

    `whole_s` is the mean duration of those that met no shutter, NaN where these are too few.

    A kind of which enough cycles ended in shutters is a stratum of its own; the others share that of their
    octave of duration, which each part of the job has for itself. `order` sorts the kinds seen in co-run by
    part and stratum; a stratum begins at each of `starts` there, and a part at the strata `part_starts`.
    """

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    part_starts: NDArray[np.intp]
    parts: NDArray[np.int64]
    is_own: NDArray[np.bool_]
    total_s: Array
    corun_s: Array
    whole_s: Array

    def by_stratum(self, values: Array) -> Array:
        """Sums over the kinds of each stratum: the last axis."""
        result: Array = np.add.reduceat(values[..., self.order], self.starts, axis=-1)
        return result

    def by_part(self, values: Array) -> Array:
        """Sums over the strata of each part: the last axis."""
        result: Array = np.add.reduceat(values, self.part_starts, axis=-1)
        return result

    @property
    def part_of(self) -> NDArray[np.intp]:
        """The part of each stratum, as an index into `parts`."""
        n_strata = np.diff(np.append(self.part_starts, len(self.starts)))
        result: NDArray[np.intp] = np.repeat(np.arange(len(self.parts)), n_strata)
        return result


def kinds_of(cells: Cells, part: NDArray[np.int64] | None = None) -> Kinds:
    """Strata and co-run durations from the sums over all groups; `part` of each kind: none, all in one."""
    n, total_s = cells.n_corun.sum(axis=1), cells.x_corun.sum(axis=1)
    known = n > 0
    total_s = np.where(known, total_s, 0.0)
    corun_s = total_s / np.where(known, n, 1.0)
    n_whole, whole_s = cells.n_whole.sum(axis=1), cells.whole.sum(axis=1)
    # Where shutters cut nearly all of them, the others are the short ones.
    whole_s = np.where(n_whole > MIN_WHOLE * n, whole_s / np.maximum(n_whole, 1.0), np.nan)
    octave = np.clip(np.log2(np.maximum(corun_s, 1e-9)) + N_OCTAVES // 2, 0, N_OCTAVES - 1)
    # By what its time in shutters would usually hold: choosing by what it did hold would favour luck.
    own = known & (cells.x_solo.sum(axis=1) >= MIN_STRATUM * corun_s) & (cells.n_solo.sum(axis=1) >= MIN_SEEN)
    stratum = np.where(own, N_OCTAVES + np.arange(len(n)), octave.astype(np.int64))
    part = np.zeros(len(n), np.int64) if part is None else part
    order = np.lexsort((stratum, part))
    order = order[known[order]]
    steps = (np.diff(part[order], prepend=-1) != 0) | (np.diff(stratum[order], prepend=-1) != 0)
    starts = np.flatnonzero(steps)
    firsts = part[order][starts]
    part_starts = np.flatnonzero(np.diff(firsts, prepend=-1) != 0)
    return Kinds(
        order, starts, part_starts, firsts[part_starts], own[order][starts], total_s, corun_s, whole_s
    )
