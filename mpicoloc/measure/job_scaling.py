"""The slowdown of the whole job, from that of the co-run phase of the ranks that the others wait for.

The critical ranks, for which the others wait, determine the job's time. So interference in a few ranks does
not slow a job in proportion to their number (Han et al. 2016, section 3.2). A thread that often waits briefly
for another thread is slowed like that thread, and shutters show it. A thread that waits longer than a shutter
lasts, or has ended, does not show how long the job would have taken alone; the threads that it waits for show
it. Derivation and validation: docs/explain/estimators.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import PHASES, Estimate, Floats, Job, Table, frozen, valid_shutters
from mpicoloc.measure.burst import (
    BURST_MODEL_ERROR,
    MIN_SEEN,
    ThreadSlowdowns,
    burst_cycles,
    by_thread,
    kind_keys,
    threads_of,
    valid_windows,
)

if TYPE_CHECKING:
    Rng = np.random.Generator | Callable[[], np.random.Generator]

Tables = Mapping[str, Table]
CRITICAL_MARGIN = 0.02
"""A thread is critical if its `wait_frac` is at most this much above the smallest."""

MAX_WAIT_SPREAD = 0.1
"""Ranks are measured together if their long waits differ by at most this part of the job's time."""


@dataclass(frozen=True)
class ThreadWaits:
    """Waiting times of the threads of a job (rows) that have cycles in any phase.

    `wait_frac` is the part of the job's time in which a thread had ended, or waited longer than shutters can
    show. By phase (columns), `spent_s` is all time of a thread, and `busy_s` its time outside MPI.
    """

    thread: NDArray[np.int64]
    rank: NDArray[np.int64]
    wait_frac: Floats
    spent_s: Floats
    busy_s: Floats

    @property
    def had_co_runner(self) -> NDArray[np.bool_]:
        """Whether each thread ever had a co-runner."""
        return self.spent_s[:, PHASES.index("corun")] > 0

    @property
    def is_critical(self) -> NDArray[np.bool_]:
        """Whether each thread is critical: among the threads with a co-runner that wait least."""
        least = self.wait_frac[self.had_co_runner].min(initial=np.inf)
        return self.had_co_runner & (self.wait_frac <= least + CRITICAL_MARGIN)

    @property
    def wait_long_for_others(self) -> bool:
        """Whether even the critical threads wait long, namely for threads that never had a co-runner."""
        least = self.wait_frac[self.is_critical].min(initial=np.inf)
        return bool((self.wait_frac < least - CRITICAL_MARGIN).any())


def thread_waits(cycles: Table, window_s: float) -> ThreadWaits:
    """The waits of a job's threads, from its cycles."""
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
    return ThreadWaits(thread, rank, wait_frac, spent_s, busy_s)


def is_long_wait(cycles: Table, window_s: float) -> NDArray[np.bool_]:
    """Whether the cycles of each row's kind mostly wait, outlast a shutter, and seldom end in one."""
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
class RankSlowdowns:
    """Slowdown of each thread in the co-run phase; `slowdowns` may lack some of the threads in `waits`."""

    waits: ThreadWaits
    slowdowns: ThreadSlowdowns

    @property
    def critical_ranks(self) -> NDArray[np.int64]:
        """Ranks with a critical thread: their time is the job's time."""
        # Without `return_index` NumPy would import numpy.ma, which takes 10 ms at the end of every job.
        return np.unique(self.waits.rank[self.waits.is_critical], return_index=True)[0]

    @property
    def ranks_wait_alike(self) -> bool:
        """Whether all ranks with a co-runner wait about as long, so that they can be measured together."""
        waits = self.waits
        best = {int(rank): 1.0 for rank in waits.rank[waits.had_co_runner]}
        for rank, wait in zip(
            waits.rank[waits.had_co_runner], waits.wait_frac[waits.had_co_runner], strict=True
        ):
            best[int(rank)] = min(best[int(rank)], float(wait))
        return not best or max(best.values()) - min(best.values()) <= MAX_WAIT_SPREAD

    def min_solo_s(self, alone_s_of_rank: Mapping[int, float]) -> tuple[float, float, float]:
        """Least time that the job needs without co-runners, s: the most work of a rank that is not critical.

        Work is the time outside MPI; co-run time is divided by the rank's slowdown. Co-run time without a
        measured slowdown does not count.

        Result: the time for the value, the lower end and the upper end of the slowdown.
        """
        waits, slowdowns = self.waits, self.slowdowns
        corun_s = waits.busy_s[:, PHASES.index("corun")]
        slowdown = np.stack(
            [self._of_all_threads(values) for values in (slowdowns.value, slowdowns.low, slowdowns.high)]
        )
        speed = np.nan_to_num(1 / slowdown)
        most_s = np.array([alone_s_of_rank.get(int(rank), 0.0) for rank in waits.rank])
        busy_alone_s = np.minimum(waits.busy_s[:, PHASES.index("alone")], most_s)
        work_s = busy_alone_s + waits.busy_s[:, PHASES.index("solo")] + corun_s * speed
        work_s[:, np.isin(waits.rank, self.critical_ranks)] = 0.0
        if not work_s.size:
            return 0.0, 0.0, 0.0
        value, low, high = work_s[:, int(np.argmax(work_s[0]))]
        return float(value), float(low), float(high)

    def critical_cycles(self, cycles: Table, window_s: float) -> Table:
        """The cycles of critical threads, without long waits if these are for threads without co-runners."""
        rows = cycles[np.isin(threads_of(cycles), self.waits.thread[self.waits.is_critical])]
        return rows[~is_long_wait(rows, window_s)] if self.waits.wait_long_for_others else rows

    def with_rank_slowdowns(self, ranks: Table) -> Table:
        """Table "ranks" with the columns of waits and slowdowns filled in; unknown values are NaN."""
        result = ranks.copy()
        columns = {
            "wait_frac": self.waits.wait_frac,
            "slowdown": self._of_all_threads(self.slowdowns.value),
            "slowdown_low": self._of_all_threads(self.slowdowns.low),
            "slowdown_high": self._of_all_threads(self.slowdowns.high),
        }
        result["counts"] = np.isin(ranks["rank"], self.critical_ranks)
        # The thread that waits least represents its rank.
        order = np.lexsort((self.waits.wait_frac, self.waits.rank))
        rank, first = np.unique(self.waits.rank[order], return_index=True)
        place = np.searchsorted(rank, ranks["rank"]).clip(max=max(len(rank) - 1, 0))
        for name, values in columns.items():
            result[name] = np.nan
            if len(rank):
                result[name] = np.where(rank[place] == ranks["rank"], values[order][first][place], np.nan)
        return frozen(result)

    def _of_all_threads(self, values: Floats) -> Floats:
        """A column of `slowdowns`, extended to all threads; NaN for threads without slowdown."""
        result = np.full(len(self.waits.thread), np.nan)
        result[np.searchsorted(self.waits.thread, self.slowdowns.thread)] = values
        return result


def rank_slowdowns(tables: Mapping[str, Table]) -> RankSlowdowns:
    """Waits and slowdowns of the threads of a job, from the job's tables "cycles" and "shutters"."""
    cycles = burst_cycles(tables["cycles"])
    n_windows, window_s = valid_windows(tables["shutters"])
    short = cycles[~is_long_wait(cycles, window_s)]
    return RankSlowdowns(
        thread_waits(cycles, window_s), by_thread(short, n_windows=n_windows, window_s=window_s)
    )


@dataclass(frozen=True)
class WallTimeSplit:
    """Wall time in each state, s, mean over nodes: alone, co-run, solo in shutters, paused for others."""

    alone_s: float
    corun_s: float
    solo_s: float
    paused_s: float

    @property
    def shared_s(self) -> float:
        """Time with a co-runner."""
        return self.corun_s + self.solo_s + self.paused_s


def of_critical_ranks(tables: Tables, slowdowns: RankSlowdowns) -> dict[str, Table]:
    """The tables restricted to nodes with critical ranks, and their shutters.

    Other nodes do not determine the job's time.
    """
    nodes, ranks, shutters = tables["nodes"], tables["ranks"], tables["shutters"]
    i_nodes = np.unique(ranks["i_node"][np.isin(ranks["rank"], slowdowns.critical_ranks)])
    if len(i_nodes):
        nodes, shutters = nodes[i_nodes], shutters[np.isin(shutters["i_node"], i_nodes)]
    return {**tables, "nodes": nodes, "shutters": shutters}


def job_scale(job: Job, tables: Tables, slowdowns: RankSlowdowns) -> Callable[[Estimate], Estimate]:
    """The function that turns a slowdown of the co-run phase into that of the job."""
    measured, shared_s = of_critical_ranks(tables, slowdowns), tables["nodes"]["shared_s"]
    alone_s = {int(r["rank"]): max(0.0, job.wall_s - float(shared_s[r["i_node"]])) for r in tables["ranks"]}
    split = split_wall(job.wall_s, measured["nodes"], measured["shutters"])
    return functools.partial(job_slowdown, split=split, min_solo_s=slowdowns.min_solo_s(alone_s))


def split_wall(wall_s: float, nodes: Table, shutters: Table) -> WallTimeSplit:
    """Split a wall time of `wall_s` seconds by the job's state, from the records of the node agents."""
    valid = valid_shutters(shutters)
    solo_s = float((valid["t1_ns"] - valid["t0_ns"]).sum()) * 1e-9 / len(nodes)
    shared_s = min(wall_s, float(nodes["shared_s"].mean()))
    solo_s = min(solo_s, shared_s)
    paused_s = min(float(nodes["paused_s"].mean()), shared_s - solo_s)
    return WallTimeSplit(wall_s - shared_s, shared_s - solo_s - paused_s, solo_s, paused_s)


def job_slowdown(
    phase: Estimate, split: WallTimeSplit, min_solo_s: tuple[float, float, float] = (0, 0, 0)
) -> Estimate:
    """Slowdown of the job from that of its co-run phase: T_co / (T_alone + T_solo + T_corun / s).

    The job ran at full speed while it was alone and in its own shutters, and stood still while it was paused
    for others.

    `min_solo_s` is the least time that the job needs without co-runners, for the value, the lower end and the
    upper end of the slowdown (`RankSlowdowns.min_solo_s`). The largest of many uncertain times is biased
    upwards, so `min_solo_s` counts only if its whole interval is above the time that follows from `phase`.
    The slowdown is then T_co / max(W, T_alone + T_solo + T_corun / s), with W = min(min_solo_s, T_co). At the
    ends W = min(min(min_solo_s, T_co) exp(+- 2 `BURST_MODEL_ERROR`), T_co): shutters do not measure the work
    of a rank that never had a co-runner, so that work gets the model's error.
    """
    total_s = split.alone_s + split.shared_s
    full_speed_s = split.alone_s + split.solo_s
    slowdowns = (phase.value, phase.low, phase.high)
    times_s = [full_speed_s + split.corun_s / s for s in slowdowns]
    if min_solo_s[2] > times_s[0]:
        error = 2 * BURST_MODEL_ERROR
        factors = (1.0, float(np.exp(error)), float(np.exp(-error)))
        bounds_s = [min(least, total_s) for least in min_solo_s]
        times_s = [
            max(time_s, min(bound_s * factor, total_s))
            for time_s, bound_s, factor in zip(times_s, bounds_s, factors, strict=True)
        ]
    value, low, high = (
        total_s / time_s if time_s > 0 else s for time_s, s in zip(times_s, slowdowns, strict=True)
    )
    return Estimate(value, min(low, value), max(high, value), phase.n, phase.unit, phase.method)
