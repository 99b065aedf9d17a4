"""From the ranks to the job: which threads' time is the time of the job.

Interference in a few ranks does not slow a job in proportion (Han et al. 2016, section 3.2). A thread that
waits often and shortly for another is slowed like that one, and shutters show it. One that waits longer than
a shutter lasts, or has ended, tells nothing of the time that the job would have taken alone: that is the time
of those it waits for. Derivation and validation: docs/explain/estimators.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.tables import PHASES, Table, frozen
from mpicoloc.measure.burst import Parts, by_thread
from mpicoloc.measure.cycles import MIN_SEEN, kind_keys, threads_of

MARGIN = 0.02
"""Threads whose part of long waits is within this of the smallest are those that the others wait for."""
MUCH = 0.1
"""A larger part of long waits cannot be neglected where ranks are measured together."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Threads:
    """The threads of a job (rows) that were seen in any phase.

    `wait_frac` is the part of the job's time that a thread spent in waits too long for shutters, or after its
    end; `spent_s` all its time and `busy_s` that outside MPI, by phase (columns).
    """

    thread: NDArray[np.int64]
    rank: NDArray[np.int64]
    wait_frac: Array
    spent_s: Array
    busy_s: Array

    @property
    def shared(self) -> NDArray[np.bool_]:
        """Had a co-runner."""
        result: NDArray[np.bool_] = self.spent_s[:, PHASES.index("corun")] > 0
        return result

    @property
    def waited_for(self) -> NDArray[np.bool_]:
        """Those of the threads with a co-runner that wait least."""
        least = self.wait_frac[self.shared].min(initial=np.inf)
        return self.shared & (self.wait_frac <= least + MARGIN)

    @property
    def wait_for_others(self) -> bool:
        """Even these wait long, for threads that never had a co-runner."""
        least = self.wait_frac[self.waited_for].min(initial=np.inf)
        return bool((self.wait_frac < least - MARGIN).any())


def threads(cycles: Table, window_s: float) -> Threads:
    """What the cycles of a job tell of its threads.

    Parameters
    ----------
    cycles : Table
        Table "cycles" of a profile.
    window_s : float
        Mean length of the valid shutters, s.
    """
    thread, row = np.unique(threads_of(cycles), return_inverse=True)
    comp_s, mpi_s = cycles["comp_ns"] * 1e-9, cycles["mpi_ns"] * 1e-9
    busy_s, spent_s = np.zeros((2, len(thread), len(PHASES)))
    np.add.at(busy_s, (row, cycles["phase"]), comp_s)
    np.add.at(spent_s, (row, cycles["phase"]), comp_s + mpi_s)
    long_s = np.bincount(row, np.where(is_long_wait(cycles, window_s), mpi_s, 0.0), minlength=len(thread))
    total_s = spent_s.sum(axis=1)
    job_s = total_s.max(initial=0.0)
    wait_frac = (long_s + job_s - total_s) / job_s if job_s > 0 else np.zeros(len(thread))
    rank = np.zeros(len(thread), np.int64)
    rank[row] = cycles["rank"]
    return Threads(thread, rank, wait_frac, spent_s, busy_s)


def is_long_wait(cycles: Table, window_s: float) -> NDArray[np.bool_]:
    """Rows of kinds that mostly wait, longer than shutters last, and hardly ever ended in one."""
    _, kind = np.unique(kind_keys(cycles), return_inverse=True)
    is_solo = cycles["phase"] == PHASES.index("solo")
    n, n_solo, mpi_ns, comp_ns = (
        np.bincount(kind, values.astype(float))
        for values in (cycles["n"], cycles["n"] * is_solo, cycles["mpi_ns"], cycles["comp_ns"])
    )
    length_s = (mpi_ns + comp_ns) * 1e-9 / np.maximum(n, 1)
    longest_s = window_s if window_s > 0 else np.inf
    is_long: NDArray[np.bool_] = (mpi_ns > comp_ns) & (length_s > longest_s) & (n_solo < MIN_SEEN)
    return is_long[kind]


@dataclass(frozen=True)
class Suffered:
    """What each thread suffered in the co-run phase; rows of `parts` are some of those of `threads`."""

    threads: Threads
    parts: Parts

    @property
    def waited_for(self) -> NDArray[np.int64]:
        """Ranks whose time is the job's."""
        # Without an index NumPy would import numpy.ma, for 10 ms at the end of every job.
        return np.unique(self.threads.rank[self.threads.waited_for], return_index=True)[0]

    @property
    def are_alike(self) -> bool:
        """All ranks with a co-runner work about as long, so that they may be measured together."""
        found = self.threads
        best = {int(rank): 1.0 for rank in found.rank[found.shared]}
        for rank, wait in zip(found.rank[found.shared], found.wait_frac[found.shared], strict=True):
            best[int(rank)] = min(best[int(rank)], float(wait))
        return not best or max(best.values()) - min(best.values()) <= MUCH

    def least_s(self, alone_s: Mapping[int, float]) -> tuple[float, float, float]:
        """Time that the job would have taken at least, s: the most work of a rank that nobody waits for.

        Work is the time outside MPI, with a co-runner as much less as the slowdown of the rank says, or none
        where that was not measured. For the slowdown, the lower and the upper end of its interval.

        Parameters
        ----------
        alone_s : mapping of int to float
            Time without a co-runner on the node of each rank, s. Cycles that say more were not seen whole.
        """
        found, parts = self.threads, self.parts
        corun_s = found.busy_s[:, PHASES.index("corun")]
        slowdown = np.stack([self._spread_out(values) for values in (parts.value, parts.low, parts.high)])
        kept = np.nan_to_num(1 / slowdown)
        most_s = np.array([alone_s.get(int(rank), 0.0) for rank in found.rank])
        busy_alone_s = np.minimum(found.busy_s[:, PHASES.index("alone")], most_s)
        work_s = busy_alone_s + found.busy_s[:, PHASES.index("solo")] + corun_s * kept
        work_s[:, np.isin(found.rank, self.waited_for)] = 0.0
        if not work_s.size:
            return 0.0, 0.0, 0.0
        value, low, high = work_s[:, int(np.argmax(work_s[0]))]
        return float(value), float(low), float(high)

    def that_count(self, cycles: Table, window_s: float) -> Table:
        """The cycles whose slowdown is the job's; without long waits where it is known what they are for."""
        rows = cycles[np.isin(threads_of(cycles), self.threads.thread[self.threads.waited_for])]
        return rows[~is_long_wait(rows, window_s)] if self.threads.wait_for_others else rows

    def written_into(self, ranks: Table) -> Table:
        """Table "ranks" with the columns that tell of this; NaN for what is not known."""
        result = ranks.copy()
        columns = {
            "wait_frac": self.threads.wait_frac,
            "slowdown": self._spread_out(self.parts.value),
            "slowdown_low": self._spread_out(self.parts.low),
            "slowdown_high": self._spread_out(self.parts.high),
        }
        result["counts"] = np.isin(ranks["rank"], self.waited_for)
        # Of the threads of a rank the one that waits least speaks for it.
        order = np.lexsort((self.threads.wait_frac, self.threads.rank))
        rank, first = np.unique(self.threads.rank[order], return_index=True)
        place = np.searchsorted(rank, ranks["rank"]).clip(max=max(len(rank) - 1, 0))
        for name, values in columns.items():
            result[name] = np.nan
            if len(rank):
                result[name] = np.where(rank[place] == ranks["rank"], values[order][first][place], np.nan)
        return frozen(result)

    def _spread_out(self, values: Array) -> Array:
        """A column of `parts` for every thread; NaN where it has none."""
        result = np.full(len(self.threads.thread), np.nan)
        result[np.searchsorted(self.threads.thread, self.parts.thread)] = values
        return result


def suffered(cycles: Table, n_windows: int, window_s: float) -> Suffered:
    """What each thread suffered.

    Parameters
    ----------
    cycles : Table
        Table "cycles" of a profile, without units of work.
    n_windows : int
        Valid shutters behind it.
    window_s : float
        Their mean length, s.
    """
    short = cycles[~is_long_wait(cycles, window_s)]
    return Suffered(threads(cycles, window_s), by_thread(short, n_windows=n_windows, window_s=window_s))
