"""From the tables of a job to what its co-runners cost it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.profile import Interference, Job, MeterResult
from mpicoloc.core.tables import UNIT_SITE, VERDICTS, Table, table, text, valid_shutters
from mpicoloc.measure import burst, critical_ranks, processor
from mpicoloc.measure.critical_ranks import RankSlowdowns

if TYPE_CHECKING:  # NumPy imports it when it is named, which takes 5 ms
    from mpicoloc.measure.count import Counted
    from mpicoloc.measure.loop import Rates

    Rng = np.random.Generator | Callable[[], np.random.Generator]

Tables = Mapping[str, Table]
RANKS_WAIT_DIFFERENTLY = (
    "some of its ranks wait long for others, and the counted place is passed by all together"
)
MUCH_WIDER = 3.0
"""Counts stand back if their interval is so many times as wide as that of bursts, which holds less often."""
UNWATCHED_FRAC = 0.1
"""Part of a node's time that its agent may miss; above it the job's co-runners are unknown."""
UNWATCHED_S = 1.0
"""Time that may be missed besides two periods, s: an agent starts after the ranks and looks once a period."""


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


def interference(job: Job, tables: Tables, *, rng: np.random.Generator) -> Interference:
    """Slowdown of the whole job and how it was found.

    Parameters
    ----------
    job : Job
        Its `wall_s` is T_co.
    tables : mapping of str to Table
        Tables of a profile; those left out count as empty.
    rng : numpy.random.Generator
        For the bootstrap; seed it by the caller to get the same interval again.
    """
    names = ("ranks", "nodes", "cycles", "shutters", "counts")
    full = {name: tables[name] if name in tables else table(name) for name in names}
    slowdowns = critical_ranks.rank_slowdowns(burst_cycles(full["cycles"]), *valid_windows(full["shutters"]))
    return interference_of_ranks(job, full, slowdowns, rng)


def interference_of_ranks(job: Job, tables: Tables, slowdowns: RankSlowdowns, rng: Rng) -> Interference:
    """Slowdown of the job; `slowdowns` are those of its ranks (`critical_ranks.rank_slowdowns`)."""
    nodes, ranks, shutters = tables["nodes"], tables["ranks"], tables["shutters"]
    if not len(nodes):
        return Interference(reason="no node agent watched the job", **processor.processor_use(ranks))
    meter, meter_reason = _meter(nodes)
    facts: dict[str, Any] = processor.processor_use(ranks) | {
        "meter": meter,
        "meter_reason": meter_reason,
        "n_taken": int(nodes["n_taken"].sum()),
        "n_used": len(valid_shutters(shutters)),
        "overhead_frac": _overhead(job, nodes, ranks),
        "shared_s": split_wall(job.wall_s, nodes, shutters).shared_s,
    }
    reason = unwatched_reason(nodes, ranks)
    if reason:
        return Interference(reason=reason, **facts)
    if facts["shared_s"] <= 0:
        alone = Estimate(1.0, 1.0, 1.0, 0, "1", processor.ALONE)
        return Interference(slowdown=alone, reason="never shared its nodes", **facts)
    if job.n_nodes > 1 and np.isnan(nodes["clock_offset_s"]).any():
        return Interference(
            reason="its nodes could not agree on shutters, as always with LD_PRELOAD alone", **facts
        )
    measured = of_critical_ranks(tables, slowdowns)
    corun = _corun_slowdown(meter, measured, slowdowns, rng() if callable(rng) else rng)
    split, min_solo_s = job_split(job, tables, slowdowns)
    of_job = None if corun.slowdown is None else job_slowdown(corun.slowdown, split, min_solo_s)
    alternatives = tuple(job_slowdown(other, split, min_solo_s) for other in corun.alternatives)
    return Interference(
        slowdown=of_job,
        reason=corun.reason,
        coverage_frac=corun.coverage_frac,
        alternatives=alternatives,
        meters=tuple(
            MeterResult(one.meter, one.slowdown and job_slowdown(one.slowdown, split, min_solo_s), one.reason)
            for one in corun.meters
        ),
        **facts,
    )


def of_critical_ranks(tables: Tables, slowdowns: RankSlowdowns) -> dict[str, Table]:
    """The tables without the nodes and shutters on which only ranks run that no other rank waits for.

    The time of such ranks is not the job's.
    """
    nodes, ranks, shutters = tables["nodes"], tables["ranks"], tables["shutters"]
    i_nodes = np.unique(ranks["i_node"][np.isin(ranks["rank"], slowdowns.critical_ranks)])
    if len(i_nodes):
        nodes, shutters = nodes[i_nodes], shutters[np.isin(shutters["i_node"], i_nodes)]
    return {**tables, "nodes": nodes, "shutters": shutters}


def job_split(
    job: Job, tables: Tables, slowdowns: RankSlowdowns
) -> tuple[WallTimeSplit, tuple[float, float, float]]:
    """How the wall time is split, and the least solo time of the job, s: arguments of `job_slowdown`."""
    measured, shared_s = of_critical_ranks(tables, slowdowns), tables["nodes"]["shared_s"]
    alone_s = {int(r["rank"]): max(0.0, job.wall_s - float(shared_s[r["i_node"]])) for r in tables["ranks"]}
    return split_wall(job.wall_s, measured["nodes"], measured["shutters"]), slowdowns.min_solo_s(alone_s)


def _overhead(job: Job, nodes: Table, ranks: Table) -> float | None:
    """Part of its time that the job stood still for others, or that counting took from it."""
    if not len(ranks) or job.wall_s <= 0:
        return None
    # Pauses are recorded for the first thread of each rank, counting for all threads together.
    paused_s = float(ranks["paused_ns"].sum()) * 1e-9 / len(ranks)
    counting_s = float(nodes["counting_s"].sum()) / _n_running(ranks, job.wall_s)
    return (paused_s + counting_s) / job.wall_s


def _n_running(ranks: Table, wall_s: float) -> float:
    """Threads that ran, on average; at least one a rank, as ranks wait for each other."""
    used_s = float(np.nansum(ranks["cpu_s"]))
    return max(len(ranks), used_s / wall_s if wall_s > 0 else 0.0, 1.0)


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


def _meter(nodes: Table) -> tuple[str, str]:
    """The weakest meter of all nodes, and why that node has no better one."""
    order = ("none", "loop", "count", "burst", "ipc")
    rank = [order.index(name) if (name := text(meter)) in order else 0 for meter in nodes["meter"]]
    i_weakest = int(np.argmin(rank))
    return order[rank[i_weakest]], text(nodes["meter_reason"][i_weakest])


def _meter_was_chosen(node: np.void) -> bool:
    """Whether the user chose the meter; otherwise it is the best that works on the node."""
    return text(node["meter_reason"]).startswith("option meter is")


def burst_cycles(cycles: Table) -> Table:
    """The cycles that are bursts, and not units of work that the application marks."""
    return cycles[cycles["from_site"] != UNIT_SITE]


def valid_windows(shutters: Table) -> tuple[int, float]:
    """Number of valid shutters of the node that has most, and the mean length of all valid ones, s."""
    valid = valid_shutters(shutters)
    if not len(valid):
        return 0, 0.0
    return int(np.bincount(valid["i_node"]).max()), float((valid["t1_ns"] - valid["t0_ns"]).mean()) * 1e-9


@dataclass(frozen=True)
class _CorunSlowdown:
    """Slowdown of the co-run phase, or why there is none; and the results of the other estimators."""

    slowdown: Estimate | None
    alternatives: tuple[Estimate, ...] = ()
    reason: str = ""
    coverage_frac: float | None = None
    meters: tuple[MeterResult, ...] = ()


def _corun_slowdown(
    meter: str, tables: Tables, slowdowns: RankSlowdowns, rng: np.random.Generator
) -> _CorunSlowdown:
    cycles, shutters = tables["cycles"], tables["shutters"]
    window_s = valid_windows(shutters)[1]
    by_burst = _matched(slowdowns.critical_cycles(burst_cycles(cycles), window_s), shutters, rng)
    by_burst = _without_counting(by_burst, counting_frac(tables))
    tried = _tried(meter, tables, by_burst, slowdowns.ranks_wait_alike, rng)
    units = cycles[cycles["from_site"] == UNIT_SITE]
    if len(units):
        by_units = _matched(units[np.isin(units["rank"], slowdowns.critical_ranks)], shutters, rng)
        if by_units.slowdown is not None:
            slowdown = dataclasses.replace(by_units.slowdown, method="pcontrol")
            beside = tuple(one.slowdown for one in tried if one.slowdown is not None)
            return _CorunSlowdown(slowdown, beside, "", by_units.coverage_frac, tried)
    if meter == "none":
        return _CorunSlowdown(None, (), f"no meter: {_no_meter_reason(tables['nodes'])}", None, tried)
    was_chosen = any(map(_meter_was_chosen, tables["nodes"]))
    if meter == "ipc":
        found = _by_instructions(shutters, by_burst, was_chosen, rng)
    else:
        found = best_of(meter, was_chosen, tried, by_burst)
    return dataclasses.replace(found, meters=tried)


def _tried(
    meter: str, tables: Tables, by_burst: burst.Matched, ranks_wait_alike: bool, rng: np.random.Generator
) -> tuple[MeterResult, ...]:
    """What each meter says that was in use, or left numbers."""
    shutters, counts = tables["shutters"], tables["counts"]
    tried = [MeterResult("burst", by_burst.slowdown, by_burst.reason)]
    if meter == "count" or len(counts):
        from mpicoloc.measure import count  # the profiles of most jobs do not need these

        counted = count.slowdown(shutters, counts, cost_ns=pass_ns(tables)) if ranks_wait_alike else None
        tried.append(_result("count", counted))
    if meter == "loop" or (shutters["entry"] > 0).any():
        from mpicoloc.measure import loop

        tried.append(_result("loop", loop.rates(shutters, rng=rng) if ranks_wait_alike else None))
    if meter == "ipc":
        by_ipc = _by_instructions(shutters, burst.Matched(None), True, rng)
        tried.append(MeterResult("ipc", by_ipc.slowdown, by_ipc.reason))
    return tuple(tried)


def pass_ns(tables: Tables) -> float:
    """What one pass of a counted place takes of the node's time, ns: several threads may count at once."""
    nodes, ranks = tables["nodes"], tables["ranks"]
    n_passes = float(nodes["n_hits"].sum())
    of_thread_ns = float(nodes["counting_s"].sum()) * 1e9 / n_passes if n_passes else 0.0
    wall_s = float(ranks["wall_s"].max()) if len(ranks) else 0.0
    return of_thread_ns * len(nodes) / _n_running(ranks, wall_s)


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


def _without_counting(found: burst.Matched, frac: float) -> burst.Matched:
    """Bursts in shutters last longer by what counting takes; co-run ones are nearly all without it."""
    one = found.slowdown
    if one is None or frac == 0.0:
        return found
    value, low, high = (x / (1 - frac) for x in (one.value, one.low, one.high))
    return dataclasses.replace(found, slowdown=dataclasses.replace(one, value=value, low=low, high=high))


def _result(meter: str, found: Counted | Rates | None) -> MeterResult:
    """The result of a meter that counts all ranks together; None: the ranks wait differently."""
    if found is None:
        return MeterResult(meter, None, RANKS_WAIT_DIFFERENTLY)
    return MeterResult(meter, found.slowdown, found.reason)


def best_of(
    meter: str, was_chosen: bool, tried: tuple[MeterResult, ...], by_burst: burst.Matched
) -> _CorunSlowdown:
    """The number of the meter that the user chose, or of another one if it has none.

    Without a choice it is that of `count`, then of `loop`, then of `burst`; of `burst` first if the interval
    of `count` is much wider. All see the same shutters, so their errors are not independent: an average would
    not be better by as much as its interval says.
    """
    by_meter = {one.meter: one for one in tried}
    of_meter = by_meter[meter]
    places = [by_meter[name].slowdown for name in ("count", "loop") if name in by_meter]
    order = [*([of_meter.slowdown] if was_chosen else []), *places, by_burst.slowdown]
    if "count" in by_meter and not was_chosen:
        from mpicoloc.measure.count import half_width

        if MUCH_WIDER * half_width(by_burst.slowdown) < half_width(by_meter["count"].slowdown) < np.inf:
            order.insert(0, by_burst.slowdown)
    known = list(dict.fromkeys(one for one in order if one is not None))
    if meter == "burst":
        return _CorunSlowdown(by_burst.slowdown, (), by_burst.reason, by_burst.coverage_frac)
    if not known:
        return _CorunSlowdown(None, (), of_meter.reason, by_burst.coverage_frac)
    is_burst = known[0] is by_burst.slowdown
    return _CorunSlowdown(known[0], tuple(known[1:]), "", by_burst.coverage_frac if is_burst else None)


def _by_instructions(
    shutters: Table, by_burst: burst.Matched, was_chosen: bool, rng: np.random.Generator
) -> _CorunSlowdown:
    """From counts of instructions; from bursts if these have an estimate and the user chose no meter."""
    from mpicoloc.measure import ipc  # the profiles of most jobs do not need it

    counted, coverage_frac = tuple(ipc.estimates(shutters, rng=rng)), by_burst.coverage_frac
    # A program that waits in loops of its own counts instructions without progress; bursts see through that.
    if by_burst.slowdown is not None and not was_chosen:
        return _CorunSlowdown(by_burst.slowdown, counted, "", coverage_frac)
    alternatives = (by_burst.slowdown,) if by_burst.slowdown else ()
    # Eq. 6 of all counts is only for comparison: a rank that polls would count as working.
    if counted and counted[0].method != ipc.UNMODIFIED:
        return _CorunSlowdown(counted[0], counted[1:] + alternatives, "", coverage_frac)
    n_known = len(ipc.work(shutters))
    reason = f"{n_known} shutters have counts outside MPI that agree, {ipc.MIN_SHUTTERS} needed"
    return _CorunSlowdown(None, counted + alternatives, reason, coverage_frac)


def _matched(cycles: Table, shutters: Table, rng: np.random.Generator) -> burst.Matched:
    """The matched estimate; if valid shutters are too few, its reason names the verdicts of the others."""
    n_windows, window_s = valid_windows(shutters)
    result = burst.matched(cycles, n_windows=n_windows, window_s=window_s, rng=rng)
    if result.reason and n_windows < burst.MIN_SHUTTERS:
        counts = np.bincount(shutters["verdict"], minlength=len(VERDICTS))
        refused = ", ".join(
            f"{n} {name}" for n, name in zip(counts, VERDICTS, strict=False) if n and name != "valid"
        )
        return burst.Matched(None, result.reason + (f" (not valid: {refused})" if refused else ""))
    return result


def _no_meter_reason(nodes: Table) -> str:
    return next((text(reason) for reason in nodes["meter_reason"] if text(reason)), "switched off")
