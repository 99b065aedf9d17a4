"""From the tables of a job to what its co-runners cost it.

The time of the critical ranks, which the others wait for, is the job's. So interference in a few ranks does
not slow a job in proportion (Han et al. 2016, section 3.2). A thread with many short waits for another thread
is slowed like that one, and shutters show it. A thread that waits longer than a shutter lasts, or has ended,
does not show how long the job would have taken alone: the threads that it waits for do. Derivation and
validation: docs/explain/estimators.md.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import (
    PHASES,
    UNIT_SITE,
    VERDICTS,
    Estimate,
    Floats,
    Interference,
    Job,
    MeterResult,
    Table,
    frozen,
    table,
    text,
    valid_shutters,
)
from mpicoloc.measure import burst, processor
from mpicoloc.measure.burst import (
    MIN_SEEN,
    PhaseSlowdown,
    ThreadSlowdowns,
    burst_cycles,
    by_thread,
    kind_keys,
    threads_of,
    valid_windows,
)

if TYPE_CHECKING:
    Rng = np.random.Generator | Callable[[], np.random.Generator]

CRITICAL_MARGIN = 0.02
"""A thread is critical if its part of long waits is within this of the smallest."""
MAX_WAIT_SPREAD = 0.1
"""Largest difference of long waits, as part of the job's time, with which ranks are measured together."""


@dataclass(frozen=True)
class ThreadWaits:
    """How long the threads of a job (rows) waited; those that were seen in any phase.

    `wait_frac` is the part of the job's time that a thread spent in waits too long for shutters, or after its
    end. `spent_s` is all its time, and `busy_s` its time outside MPI, by phase (columns).
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
        """Whether each thread is one of those that wait least, among the threads with a co-runner."""
        least = self.wait_frac[self.had_co_runner].min(initial=np.inf)
        return self.had_co_runner & (self.wait_frac <= least + CRITICAL_MARGIN)

    @property
    def wait_long_for_others(self) -> bool:
        """Whether even the critical threads wait long, for threads that never had a co-runner."""
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
    """Whether each row is of a kind that mostly waits, longer than a shutter, and seldom ended in one."""
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
    """Slowdown of each thread in the co-run phase; `slowdowns` may lack threads that `waits` has."""

    waits: ThreadWaits
    slowdowns: ThreadSlowdowns

    @property
    def critical_ranks(self) -> NDArray[np.int64]:
        """Ranks with a critical thread: their time is the job's."""
        # Without an index NumPy would import numpy.ma, for 10 ms at the end of every job.
        return np.unique(self.waits.rank[self.waits.is_critical], return_index=True)[0]

    @property
    def ranks_wait_alike(self) -> bool:
        """Whether all ranks with a co-runner wait about as long, so that they may be measured together."""
        waits = self.waits
        best = {int(rank): 1.0 for rank in waits.rank[waits.had_co_runner]}
        for rank, wait in zip(
            waits.rank[waits.had_co_runner], waits.wait_frac[waits.had_co_runner], strict=True
        ):
            best[int(rank)] = min(best[int(rank)], float(wait))
        return not best or max(best.values()) - min(best.values()) <= MAX_WAIT_SPREAD

    def min_solo_s(self, alone_s_of_rank: Mapping[int, float]) -> tuple[float, float, float]:
        """Least time that the job needs without co-runners, s: the most work of a rank that is not critical.

        Work is the time outside MPI, divided by the rank's slowdown while it had a co-runner. Co-run time
        without a measured slowdown counts as no work.

        Result: the time at the value, at the lower and at the upper end of the slowdown.
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
        """Table "ranks" with waits and slowdowns of ranks filled in; NaN for what is not known."""
        result = ranks.copy()
        columns = {
            "wait_frac": self.waits.wait_frac,
            "slowdown": self._of_all_threads(self.slowdowns.value),
            "slowdown_low": self._of_all_threads(self.slowdowns.low),
            "slowdown_high": self._of_all_threads(self.slowdowns.high),
        }
        result["counts"] = np.isin(ranks["rank"], self.critical_ranks)
        # The thread that waits least stands for its rank.
        order = np.lexsort((self.waits.wait_frac, self.waits.rank))
        rank, first = np.unique(self.waits.rank[order], return_index=True)
        place = np.searchsorted(rank, ranks["rank"]).clip(max=max(len(rank) - 1, 0))
        for name, values in columns.items():
            result[name] = np.nan
            if len(rank):
                result[name] = np.where(rank[place] == ranks["rank"], values[order][first][place], np.nan)
        return frozen(result)

    def _of_all_threads(self, values: Floats) -> Floats:
        """A column of `slowdowns` for every thread; NaN for a thread without slowdown."""
        result = np.full(len(self.waits.thread), np.nan)
        result[np.searchsorted(self.waits.thread, self.slowdowns.thread)] = values
        return result


def rank_slowdowns(tables: Mapping[str, Table]) -> RankSlowdowns:
    """Waits and slowdowns of the threads of a job, from its tables "cycles" and "shutters"."""
    cycles = burst_cycles(tables["cycles"])
    n_windows, window_s = valid_windows(tables["shutters"])
    short = cycles[~is_long_wait(cycles, window_s)]
    return RankSlowdowns(
        thread_waits(cycles, window_s), by_thread(short, n_windows=n_windows, window_s=window_s)
    )


@dataclass(frozen=True)
class WallTimeSplit:
    """Where the wall time went, s, mean over nodes: alone, co-run, solo in shutters, paused for others."""

    alone_s: float
    corun_s: float
    solo_s: float
    paused_s: float

    @property
    def shared_s(self) -> float:
        """Time with a co-runner."""
        return self.corun_s + self.solo_s + self.paused_s


def of_critical_ranks(tables: Tables, slowdowns: RankSlowdowns) -> dict[str, Table]:
    """The tables without the nodes and shutters on which only ranks run that no other rank waits for.

    The time of such ranks is not the job's.
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
    """Where the wall time of `wall_s` seconds went, as the node agents saw it."""
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

    The job ran at full speed while it was alone and in its own shutters, and not at all in pauses for others.
    `min_solo_s` is the least time that the job needs without co-runners: its value, and that at the lower and
    at the upper end of the slowdown. It counts only if its whole interval is above the time that follows from
    `phase`, because the largest of many uncertain times is biased upwards.
    """
    total_s = split.alone_s + split.shared_s
    full_speed_s = split.alone_s + split.solo_s
    slowdowns = (phase.value, phase.low, phase.high)
    times_s = [full_speed_s + split.corun_s / s for s in slowdowns]
    if min_solo_s[2] > times_s[0]:
        times_s = [
            max(time_s, min(least, total_s)) for time_s, least in zip(times_s, min_solo_s, strict=True)
        ]
    value, low, high = (
        total_s / time_s if time_s > 0 else s for time_s, s in zip(times_s, slowdowns, strict=True)
    )
    return Estimate(value, min(low, value), max(high, value), phase.n, phase.unit, phase.method)


RANKS_WAIT_DIFFERENTLY = (
    "some of its ranks wait long for others, and the counted place is passed by all together"
)
MUCH_WIDER = 3.0
"""Counts stand back if their interval is so many times as wide as that of bursts, which holds less often."""


def weakest_meter(nodes: Table) -> tuple[str, str]:
    """The weakest meter of all nodes, and why that node has no better one."""
    order = ("none", "count", "burst", "ipc")
    rank = [order.index(name) if (name := text(meter)) in order else 0 for meter in nodes["meter"]]
    i_weakest = int(np.argmin(rank))
    return order[rank[i_weakest]], text(nodes["meter_reason"][i_weakest])


def corun_slowdown(
    meter: str, tables: Tables, slowdowns: RankSlowdowns, rng: np.random.Generator
) -> PhaseSlowdown:
    """Slowdown of the co-run phase; `meter`: the weakest of the nodes, `tables`: those of critical ranks.

    Units of work that the application marks come before all meters.
    """
    cycles, shutters, nodes = tables["cycles"], tables["shutters"], tables["nodes"]
    bursts = slowdowns.critical_cycles(burst.burst_cycles(cycles), burst.valid_windows(shutters)[1])
    by_burst = _without_counting(_matched(bursts, shutters, rng), counting_frac(tables))
    tried = [MeterResult("burst", by_burst.slowdown, by_burst.reason)]
    counted: tuple[Estimate, ...] = ()
    if meter == "count" or len(tables["counts"]):
        tried.append(_by_places(tables, slowdowns.ranks_wait_alike))
    if meter == "ipc":
        of_ipc, counted = _by_instructions(shutters, rng)
        tried.append(of_ipc)
    by_units = _by_units(cycles, shutters, slowdowns, rng)
    if by_units is not None:
        beside = tuple(one.slowdown for one in tried if one.slowdown is not None)
        found = dataclasses.replace(by_units, alternatives=beside)
    elif meter == "none":
        reasons = filter(None, map(text, nodes["meter_reason"]))
        found = PhaseSlowdown(None, f"no meter: {next(reasons, 'switched off')}")
    elif meter == "burst":
        found = by_burst
    else:
        was_chosen = any(text(node["meter_reason"]).startswith("option meter is") for node in nodes)
        found = choose(tried[-1], counted, by_burst, was_chosen)
    return dataclasses.replace(found, meters=tuple(tried))


def choose(
    of_meter: MeterResult, counted: tuple[Estimate, ...], by_burst: PhaseSlowdown, was_chosen: bool
) -> PhaseSlowdown:
    """The number of the meter `count` or `ipc`, or that of bursts.

    `counted` are all estimates of `ipc`, the best first. `was_chosen`: the user named the meter. All meters
    see the same shutters, so their errors are not independent: an average would not be better by as much as
    its interval says.
    """
    of_burst, coverage_frac = by_burst.slowdown, by_burst.coverage_frac
    if of_meter.meter == "count":
        counted = () if of_meter.slowdown is None else (of_meter.slowdown,)
        is_burst_better = not counted or (not was_chosen and _is_much_wider(of_meter.slowdown, of_burst))
    else:
        # A program that waits in loops of its own counts instructions without progress; bursts see through.
        is_burst_better = not was_chosen
    if of_burst is not None and is_burst_better:
        return dataclasses.replace(by_burst, alternatives=counted)
    bursts = () if of_burst is None else (of_burst,)
    if of_meter.slowdown is None:
        return PhaseSlowdown(None, of_meter.reason, coverage_frac, counted + bursts)
    covered = None if of_meter.meter == "count" else coverage_frac
    return PhaseSlowdown(of_meter.slowdown, "", covered, counted[1:] + bursts)


def _is_much_wider(counted: Estimate | None, of_burst: Estimate | None) -> bool:
    from mpicoloc.measure.count import half_width  # the profiles of most jobs do not need it

    return MUCH_WIDER * half_width(of_burst) < half_width(counted) < np.inf


def _by_units(
    cycles: Table, shutters: Table, slowdowns: RankSlowdowns, rng: np.random.Generator
) -> PhaseSlowdown | None:
    """From the units of work that the application marks; None: there are none, or they tell nothing."""
    units = cycles[cycles["from_site"] == UNIT_SITE]
    if not len(units):
        return None
    found = _matched(units[np.isin(units["rank"], slowdowns.critical_ranks)], shutters, rng)
    if found.slowdown is None:
        return None
    return dataclasses.replace(found, slowdown=dataclasses.replace(found.slowdown, method="pcontrol"))


def _by_instructions(shutters: Table, rng: np.random.Generator) -> tuple[MeterResult, tuple[Estimate, ...]]:
    """From counts of instructions: the result, and all estimates."""
    from mpicoloc.measure import ipc  # the profiles of most jobs do not need it

    counted = tuple(ipc.estimates(shutters, rng=rng))
    # Eq. 6 of all counts is only for comparison: a rank that polls would count as working.
    if counted and counted[0].method != ipc.UNMODIFIED:
        return MeterResult("ipc", counted[0], ""), counted
    n_known = len(ipc.work(shutters))
    reason = f"{n_known} shutters have counts outside MPI that agree, {ipc.MIN_SHUTTERS} needed"
    return MeterResult("ipc", None, reason), counted


def _by_places(tables: Tables, ranks_wait_alike: bool) -> MeterResult:
    """From counts of places, which all ranks pass together."""
    from mpicoloc.measure import count  # the profiles of most jobs do not need it

    if not ranks_wait_alike:
        return MeterResult("count", None, RANKS_WAIT_DIFFERENTLY)
    found = count.slowdown(tables["shutters"], tables["counts"], cost_ns=pass_ns(tables))
    return MeterResult("count", found.slowdown, found.reason)


def n_running_threads(ranks: Table, wall_s: float) -> float:
    """Threads that ran, on average; at least one a rank, as ranks wait for each other."""
    used_s = float(np.nansum(ranks["cpu_s"]))
    return max(len(ranks), used_s / wall_s if wall_s > 0 else 0.0, 1.0)


def pass_ns(tables: Tables) -> float:
    """What one pass of a counted place takes of the node's time, ns: several threads may count at once."""
    nodes, ranks = tables["nodes"], tables["ranks"]
    n_passes = float(nodes["n_hits"].sum())
    of_thread_ns = float(nodes["counting_s"].sum()) * 1e9 / n_passes if n_passes else 0.0
    wall_s = float(ranks["wall_s"].max()) if len(ranks) else 0.0
    return of_thread_ns * len(nodes) / n_running_threads(ranks, wall_s)


def counting_frac(tables: Tables) -> float:
    """Part of the time in valid shutters that counting places took from the job."""
    shutters, counts = valid_shutters(tables["shutters"]), tables["counts"]
    if not len(counts) or not len(shutters):
        return 0.0
    names = [node.astype(np.uint64) << np.uint64(48) ^ t0 for node, t0 in
             ((table["i_node"], table["t0_ns"]) for table in (shutters, counts))]  # fmt: skip
    n_during = float(counts["n_during"][np.isin(names[1], names[0])].sum())
    time_ns = float((shutters["t1_ns"] - shutters["t0_ns"]).sum())
    return min(n_during * pass_ns(tables) / time_ns, 0.5)


def _without_counting(found: PhaseSlowdown, frac: float) -> PhaseSlowdown:
    """Bursts in shutters last longer by what counting takes; co-run ones are nearly all without it."""
    one = found.slowdown
    if one is None or frac == 0.0:
        return found
    value, low, high = (x / (1 - frac) for x in (one.value, one.low, one.high))
    return dataclasses.replace(found, slowdown=dataclasses.replace(one, value=value, low=low, high=high))


def _matched(cycles: Table, shutters: Table, rng: np.random.Generator) -> PhaseSlowdown:
    """The matched estimate; if valid shutters are too few, its reason names the verdicts of the others."""
    n_windows, window_s = burst.valid_windows(shutters)
    result = burst.matched(cycles, n_windows=n_windows, window_s=window_s, rng=rng)
    if result.reason and n_windows < burst.MIN_SHUTTERS:
        counts = np.bincount(shutters["verdict"], minlength=len(VERDICTS))
        refused = ", ".join(
            f"{n} {name}" for n, name in zip(counts, VERDICTS, strict=False) if n and name != "valid"
        )
        return PhaseSlowdown(None, result.reason + (f" (not valid: {refused})" if refused else ""))
    return result


Tables = Mapping[str, Table]
UNWATCHED_FRAC = 0.1
"""Part of a node's time that its agent may miss; above it the job's co-runners are unknown."""
UNWATCHED_S = 1.0
"""Time that may be missed besides two periods, s: an agent starts after the ranks and looks once a period."""


def interference(
    job: Job, tables: Tables, *, rng: Rng, slowdowns: RankSlowdowns | None = None
) -> Interference:
    """Slowdown of the whole job and how it was found.

    Parameters
    ----------
    job : Job
        Its `wall_s` is T_co.
    tables : mapping of str to Table
        Tables of a profile; those left out count as empty.
    rng : numpy.random.Generator or callable
        For the bootstrap, or what makes one if it is needed; seed it to get the same interval again.
    slowdowns : RankSlowdowns, optional
        Those of the ranks (`rank_slowdowns`), if they are known already.
    """
    names = ("ranks", "nodes", "cycles", "shutters", "counts")
    tables = {name: tables[name] if name in tables else table(name) for name in names}
    nodes, ranks, shutters = tables["nodes"], tables["ranks"], tables["shutters"]
    if not len(nodes):
        return Interference(reason="no node agent watched the job", **processor.processor_use(ranks))
    meter, meter_reason = weakest_meter(nodes)
    shared_s = split_wall(job.wall_s, nodes, shutters).shared_s
    found = Interference(
        meter=meter,
        meter_reason=meter_reason,
        n_taken=int(nodes["n_taken"].sum()),
        n_used=len(valid_shutters(shutters)),
        overhead_frac=_overhead(job, nodes, ranks),
        shared_s=shared_s,
        **processor.processor_use(ranks),
    )
    if reason := unwatched_reason(nodes, ranks):
        return dataclasses.replace(found, reason=reason)
    if shared_s <= 0:
        alone = Estimate(1.0, 1.0, 1.0, 0, "1", processor.ALONE)
        return dataclasses.replace(found, slowdown=alone, reason="never shared its nodes")
    if job.n_nodes > 1 and np.isnan(nodes["clock_offset_s"]).any():
        reason = "its nodes could not agree on shutters, as always with LD_PRELOAD alone"
        return dataclasses.replace(found, reason=reason)
    slowdowns = slowdowns or rank_slowdowns(tables)
    corun = corun_slowdown(
        meter, of_critical_ranks(tables, slowdowns), slowdowns, rng() if callable(rng) else rng
    )
    to_job = job_scale(job, tables, slowdowns)
    return dataclasses.replace(
        found,
        slowdown=corun.slowdown and to_job(corun.slowdown),
        reason=corun.reason,
        coverage_frac=corun.coverage_frac,
        alternatives=tuple(map(to_job, corun.alternatives)),
        meters=tuple(
            dataclasses.replace(one, slowdown=one.slowdown and to_job(one.slowdown)) for one in corun.meters
        ),
    )


def _overhead(job: Job, nodes: Table, ranks: Table) -> float | None:
    """Part of its time that the job stood still for others, or that counting took from it."""
    if not len(ranks) or job.wall_s <= 0:
        return None
    # Pauses are recorded for the first thread of each rank, counting for all threads together.
    paused_s = float(ranks["paused_ns"].sum()) * 1e-9 / len(ranks)
    counting_s = float(nodes["counting_s"].sum()) / n_running_threads(ranks, job.wall_s)
    return (paused_s + counting_s) / job.wall_s


def unwatched_reason(nodes: Table, ranks: Table) -> str:
    """Why the agents saw too little of the job to know its co-runners; empty if they saw enough."""
    if (ranks["i_node"] < 0).any():
        return "on some of its nodes no node agent watched the job"
    for i_node, node in enumerate(nodes):
        ends_s = (ranks["init_s"] + ranks["wall_s"])[ranks["i_node"] == i_node]
        wall_s = float(ends_s.max()) if len(ends_s) else 0.0
        watched_s, period_s = float(node["watched_s"]), float(node["shutter_period_s"])
        if wall_s - watched_s > max(UNWATCHED_FRAC * wall_s, UNWATCHED_S + 2 * period_s):
            seen = f"{watched_s:.1f} of {wall_s:.1f} s on {text(node['hostname'])}"
            return f"the node agent watched {seen}: was its keeper killed?"
    return ""
