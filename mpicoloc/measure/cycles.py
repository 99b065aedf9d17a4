"""Cycles of a job (a burst and the MPI call that ends it) by kind, and the strata that pool kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import N_SHUTTER_GROUPS, PHASES, Table

MIN_STRATUM = 30
"""Solo time, in co-run durations, that a kind of cycle needs for a stratum of its own."""
MIN_SEEN = 8
"""Solo completions that it needs too, so that one long wait of a short cycle is not all that is known."""
MIN_UNCUT = 0.1
"""Part of the cycles of a kind that no shutter cut, below which the uncut ones are not typical."""
N_OCTAVES = 64
"""Other kinds are pooled by octaves of duration, so that long cycles do not outweigh short ones."""

_SITES = 1 << 12
_LANES = 1 << 5
_KEY = (("rank", 1), ("lane", _LANES), ("from_site", _SITES), ("to_site", _SITES), ("size_class", 1 << 8))
"""Columns that tell kinds of cycles apart, and the number of values that each may have."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """Number and time (s) of cycles, co-run and solo, per kind of cycle (row) and group of shutters (column).

    `n_start` cycles of the kind began in solo windows. Those that ended there took `before_s` until the pause
    began, and `done_s` after that. `n_uncut` cycles, which took `uncut_s`, met no shutter. `thread` has the
    thread of each kind.
    """

    n_corun: Array
    corun_s: Array
    n_solo: Array
    solo_s: Array
    n_start: Array
    done_s: Array
    before_s: Array
    n_uncut: Array
    uncut_s: Array
    thread: NDArray[np.int64]

    def transform(self, change: Callable[[Array], Array]) -> Cells:
        """The cells with `change` applied to each array of numbers or times."""
        names = [field.name for field in fields(self) if field.name != "thread"]
        return Cells(**{name: change(getattr(self, name)) for name in names}, thread=self.thread)

    def weighted_sums(self, weights: Array) -> Cells:
        """Sums over groups that each count `weights[replicate, group]` times; shape (replicate, kind)."""
        return self.transform(lambda values: weights @ values.T)

    @property
    def n_groups(self) -> int:
        """Groups of shutters."""
        return self.n_corun.shape[1]


def kind_keys(cycles: Table) -> NDArray[np.uint64]:
    """A number for each row that is the same for cycles of one kind."""
    key = np.zeros(len(cycles), dtype=np.uint64)
    for name, n_values in _KEY:
        key *= np.uint64(n_values)
        key += cycles[name].astype(np.uint64)
    return key


def threads_of(rows: Table) -> NDArray[np.int64]:
    """The thread of each row, as a number."""
    return rows["rank"].astype(np.int64) * _LANES + rows["lane"]


def cells_of(cycles: Table, n_windows: int) -> Cells:
    """The cells of a profile's table "cycles".

    Cycles of one kind have rank, thread, call sites and size class in common. The solo cycles are
    from `n_windows` valid shutters.
    """
    shared = cycles["phase"] != PHASES.index("alone")
    used = cycles if shared.all() else cycles[shared]
    _, first, kind = np.unique(kind_keys(used), return_index=True, return_inverse=True)
    shape = (2, len(first), N_SHUTTER_GROUPS)
    # PHASES begins with co-run and solo, so the phase is the first index.
    cell = (used["phase"].astype(np.int64) * len(first) + kind) * N_SHUTTER_GROUPS + used[
        "group"
    ] % N_SHUTTER_GROUPS
    spent_ns = np.zeros(len(used))
    spent_ns += used["comp_ns"]
    spent_ns += used["mpi_ns"]
    n = np.bincount(cell, used["n"], minlength=int(np.prod(shape))).reshape(shape)
    x = np.bincount(cell, spent_ns, minlength=int(np.prod(shape))).reshape(shape) * 1e-9
    starts = _starts(used[first], n.sum(axis=(0, 2)), n[1])
    # A window cuts one cycle at each edge, so starts and ends of a kind differ by one per window at most.
    n_most = -(-n_windows // N_SHUTTER_GROUPS)
    starts = n[1] + np.clip(starts - n[1], -n_most, n_most)
    n_cut, cut_ns, done_ns = (
        np.bincount(cell, used[name], minlength=n.size).reshape(shape)
        for name in ("n_cut", "cut_ns", "done_ns")
    )
    uncut = np.maximum(n[0] - n_cut[0], 0.0), np.maximum(x[0] - cut_ns[0] * 1e-9, 0.0)
    ended = done_ns[1] * 1e-9, cut_ns[1] * 1e-9
    return Cells(n[0], x[0], n[1], x[1], starts, *ended, *uncut, threads_of(used[first]))


def _starts(kinds: Table, n_total: Array, n_solo: Array) -> Array:
    """Cycles begun in solo windows, by kind and group.

    As many cycles leave a call site as arrive there; they are divided among kinds as in the whole run.
    """
    thread = threads_of(kinds)
    sites = np.concatenate([thread * _SITES + kinds["from_site"], thread * _SITES + kinds["to_site"]])
    unique, site = np.unique(sites, return_inverse=True)
    from_site, to_site = site[: len(kinds)], site[len(kinds) :]
    leaving = np.bincount(from_site, n_total, minlength=len(unique))
    share = n_total / np.maximum(leaving[from_site], 1)
    arrived = np.zeros((len(unique), N_SHUTTER_GROUPS))
    np.add.at(arrived, to_site, n_solo)
    return arrived[from_site] * share[:, None]


@dataclass(frozen=True)
class Strata:
    """Strata of kinds of cycles, in the scope of each estimate: a thread, or the whole job.

    A kind of which enough cycles ended in shutters is a stratum of its own (`is_own`). Each scope pools its
    other kinds by octaves of duration. `order` sorts the kinds seen in co-run by scope and stratum; there a
    stratum begins at each of `starts`, and a scope at the strata `scope_starts`. By kind: `total_corun_s` and
    `mean_corun_s` of all co-run cycles, and `mean_uncut_s` of those that met no shutter, which is NaN if
    these are too few.
    """

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    scope_starts: NDArray[np.intp]
    scopes: NDArray[np.int64]
    is_own: NDArray[np.bool_]
    total_corun_s: Array
    mean_corun_s: Array
    mean_uncut_s: Array

    def by_stratum(self, values: Array) -> Array:
        """Sums over the kinds of each stratum: the last axis."""
        return np.add.reduceat(values[..., self.order], self.starts, axis=-1)

    def by_scope(self, values: Array) -> Array:
        """Sums over the strata of each scope: the last axis."""
        return np.add.reduceat(values, self.scope_starts, axis=-1)

    @property
    def scope_of(self) -> NDArray[np.intp]:
        """The scope of each stratum, as an index into `scopes`."""
        n_strata = np.diff(np.append(self.scope_starts, len(self.starts)))
        return np.repeat(np.arange(len(self.scopes)), n_strata)


def strata_of(cells: Cells, scope: NDArray[np.int64] | None = None) -> Strata:
    """Strata of kinds, from sums over all groups; `scope` is that of each kind, by default one for all."""
    n, total_corun_s = cells.n_corun.sum(axis=1), cells.corun_s.sum(axis=1)
    known = n > 0
    total_corun_s = np.where(known, total_corun_s, 0.0)
    mean_corun_s = total_corun_s / np.where(known, n, 1.0)
    n_uncut, mean_uncut_s = cells.n_uncut.sum(axis=1), cells.uncut_s.sum(axis=1)
    # If shutters cut nearly all cycles, only the short ones are uncut.
    mean_uncut_s = np.where(n_uncut > MIN_UNCUT * n, mean_uncut_s / np.maximum(n_uncut, 1.0), np.nan)
    octave = np.clip(np.log2(np.maximum(mean_corun_s, 1e-9)) + N_OCTAVES // 2, 0, N_OCTAVES - 1)
    # By what the solo time would usually hold: a threshold on what it did hold would select lucky samples.
    own = (
        known
        & (cells.solo_s.sum(axis=1) >= MIN_STRATUM * mean_corun_s)
        & (cells.n_solo.sum(axis=1) >= MIN_SEEN)
    )
    stratum = np.where(own, N_OCTAVES + np.arange(len(n)), octave.astype(np.int64))
    scope = np.zeros(len(n), np.int64) if scope is None else scope
    order = np.lexsort((stratum, scope))
    order = order[known[order]]
    steps = (np.diff(scope[order], prepend=-1) != 0) | (np.diff(stratum[order], prepend=-1) != 0)
    starts = np.flatnonzero(steps)
    firsts = scope[order][starts]
    scope_starts = np.flatnonzero(np.diff(firsts, prepend=-1) != 0)
    return Strata(
        order,
        starts,
        scope_starts,
        firsts[scope_starts],
        own[order][starts],
        total_corun_s,
        mean_corun_s,
        mean_uncut_s,
    )
