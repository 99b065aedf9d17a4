"""From the tables of a job to what its co-runners cost it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.profile import Interference, Job
from mpicoloc.core.tables import VERDICTS, Table, table, text
from mpicoloc.measure import burst as matched
from mpicoloc.measure import critical_ranks as from_ranks
from mpicoloc.measure import processor

if TYPE_CHECKING:  # NumPy imports it when it is named, which takes 5 ms
    Rng = np.random.Generator | Callable[[], np.random.Generator]

Tables = Mapping[str, Table]
UNIT_SITE = 0xFFF
"""Call site of cycles that are units of work of the application (MC_UNIT_SITE)."""
NOT_ALIKE = "some of its ranks wait long for others, and the counted place is passed by all together"
UNWATCHED_FRAC = 0.1
"""A larger part of a node's time without its agent's eyes: nothing is known of the job's company."""
UNWATCHED_S = 1.0
"""And longer than this and two periods: the agent starts after the ranks and looks once a period."""


@dataclass(frozen=True)
class Split:
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
    names = ("ranks", "nodes", "cycles", "shutters")
    full = {name: tables[name] if name in tables else table(name) for name in names}
    suffered = from_ranks.suffered(bursts(full["cycles"]), *windows(full["shutters"]))
    return interference_of_ranks(job, full, suffered, rng)


def interference_of_ranks(job: Job, tables: Tables, suffered: from_ranks.Suffered, rng: Rng) -> Interference:
    """Slowdown of the job; `suffered` is what its ranks suffered (`critical_ranks.suffered`)."""
    nodes, ranks, shutters = tables["nodes"], tables["ranks"], tables["shutters"]
    if not len(nodes):
        return Interference(reason="no node agent watched the job", **processor.used(ranks))
    meter, meter_reason = _meter(nodes)
    facts: dict[str, Any] = processor.used(ranks) | {
        "meter": meter,
        "meter_reason": meter_reason,
        "n_taken": int(nodes["n_taken"].sum()),
        "n_used": int((shutters["verdict"] == VERDICTS.index("valid")).sum()),
        "overhead_frac": _overhead(job, nodes, ranks),
        "shared_s": split_wall(job.wall_s, nodes, shutters).shared_s,
    }
    gap = unwatched(nodes, ranks)
    if gap:
        return Interference(reason=gap, **facts)
    if facts["shared_s"] <= 0:
        alone = Estimate(1.0, 1.0, 1.0, 0, "1", processor.ALONE)
        return Interference(slowdown=alone, reason="never shared its nodes", **facts)
    if job.n_nodes > 1 and np.isnan(nodes["clock_offset_s"]).any():
        return Interference(
            reason="its nodes could not agree on shutters, as always with LD_PRELOAD alone", **facts
        )
    measured = of_waited_for(tables, suffered)
    phase, others, reason, coverage = _corun_slowdown(
        meter, measured, suffered, rng() if callable(rng) else rng
    )
    split, least_s = parts_of_job(job, tables, suffered)
    whole = None if phase is None else over_job(phase, split, least_s)
    kept = tuple(over_job(other, split, least_s) for other in others)
    return Interference(slowdown=whole, reason=reason, coverage_frac=coverage, alternatives=kept, **facts)


def of_waited_for(tables: Tables, suffered: from_ranks.Suffered) -> dict[str, Table]:
    """The tables without nodes and shutters of ranks that nobody waits for: their time is not the job's."""
    nodes, ranks, shutters = tables["nodes"], tables["ranks"], tables["shutters"]
    i_nodes = np.unique(ranks["i_node"][np.isin(ranks["rank"], suffered.waited_for)])
    if len(i_nodes):
        nodes, shutters = nodes[i_nodes], shutters[np.isin(shutters["i_node"], i_nodes)]
    return {**tables, "nodes": nodes, "shutters": shutters}


def parts_of_job(
    job: Job, tables: Tables, suffered: from_ranks.Suffered
) -> tuple[Split, tuple[float, float, float]]:
    """What `over_job` needs beside the slowdown of the co-run phase."""
    measured, shared_s = of_waited_for(tables, suffered), tables["nodes"]["shared_s"]
    alone_s = {int(r["rank"]): max(0.0, job.wall_s - float(shared_s[r["i_node"]])) for r in tables["ranks"]}
    return split_wall(job.wall_s, measured["nodes"], measured["shutters"]), suffered.least_s(alone_s)


def _overhead(job: Job, nodes: Table, ranks: Table) -> float | None:
    """The part of its time that the job stood still for others, or was slowed by the counting."""
    if not len(ranks) or job.wall_s <= 0:
        return None
    # Pauses are known of each rank's first thread, counting of all threads together.
    paused_s = float(ranks["paused_ns"].sum()) * 1e-9 / len(ranks)
    counting_s = float(nodes["counting_s"].sum()) / max(job.n_cores, len(ranks))
    return (paused_s + counting_s) / job.wall_s


def unwatched(nodes: Table, ranks: Table) -> str:
    """Why the agents did not see enough of the job to say anything of its company; empty when they did."""
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


def split_wall(wall_s: float, nodes: Table, shutters: Table) -> Split:
    """Share out the wall time as the node agents saw it."""
    valid = shutters[shutters["verdict"] == VERDICTS.index("valid")]
    solo_s = float((valid["t1_ns"] - valid["t0_ns"]).sum()) * 1e-9 / len(nodes)
    shared_s = min(wall_s, float(nodes["shared_s"].mean()))
    solo_s = min(solo_s, shared_s)
    paused_s = min(float(nodes["paused_s"].mean()), shared_s - solo_s)
    return Split(wall_s - shared_s, shared_s - solo_s - paused_s, solo_s, paused_s)


def over_job(phase: Estimate, split: Split, least_s: tuple[float, float, float] = (0, 0, 0)) -> Estimate:
    """Slowdown of the job from that of its co-run phase: T_co / (T_alone + T_solo + T_corun / s).

    Time alone and time in its own shutters ran at full speed; time paused for others is lost entirely. The
    job undisturbed would have taken `least_s` at least (value, at the lower and at the upper end), which
    counts where it surely is more: the largest of many uncertain times is too large.
    """
    total_s = split.alone_s + split.shared_s
    full_speed_s = split.alone_s + split.solo_s
    slowdowns = (phase.value, phase.low, phase.high)
    times_s = [full_speed_s + split.corun_s / s for s in slowdowns]
    if least_s[2] > times_s[0]:
        times_s = [max(time_s, min(least, total_s)) for time_s, least in zip(times_s, least_s, strict=True)]
    value, low, high = (
        total_s / time_s if time_s > 0 else s for time_s, s in zip(times_s, slowdowns, strict=True)
    )
    return Estimate(value, min(low, value), max(high, value), phase.n, phase.unit, phase.method)


def _meter(nodes: Table) -> tuple[str, str]:
    """The meter all nodes have in common; a mixed job falls back to the weaker one."""
    order = ("none", "loop", "burst", "ipc")
    rank = [order.index(name) if (name := text(meter)) in order else 0 for meter in nodes["meter"]]
    i_weakest = int(np.argmin(rank))
    return order[rank[i_weakest]], text(nodes["meter_reason"][i_weakest])


def _is_asked_for(node: np.void) -> bool:
    """Whether the meter is what the user wanted, not what is there."""
    return text(node["meter_reason"]).startswith("option meter is")


def bursts(cycles: Table) -> Table:
    """Cycles that are no units of work."""
    return cycles[cycles["from_site"] != UNIT_SITE]


def windows(shutters: Table) -> tuple[int, float]:
    """Valid shutters of the node that has most, and their mean length, s."""
    valid = shutters[shutters["verdict"] == VERDICTS.index("valid")]
    if not len(valid):
        return 0, 0.0
    return int(np.bincount(valid["i_node"]).max()), float((valid["t1_ns"] - valid["t0_ns"]).mean()) * 1e-9


def _corun_slowdown(
    meter: str, tables: Tables, suffered: from_ranks.Suffered, rng: np.random.Generator
) -> tuple[Estimate | None, list[Estimate], str, float | None]:
    """Slowdown of the co-run phase, the other estimates, why there is none, and the coverage."""
    # Here: the profiles of most jobs need neither.
    from mpicoloc.measure import ipc, loop

    cycles, shutters = tables["cycles"], tables["shutters"]
    burst = _burst(suffered.that_count(bursts(cycles), windows(shutters)[1]), shutters, rng)
    units_of_work = cycles[cycles["from_site"] == UNIT_SITE]
    if len(units_of_work):
        units = _burst(units_of_work[np.isin(units_of_work["rank"], suffered.waited_for)], shutters, rng)
        if units.slowdown is not None:
            marked = dataclasses.replace(units.slowdown, method="pcontrol")
            return marked, [burst.slowdown] if burst.slowdown else [], "", units.coverage_frac
    if meter == "ipc":
        counted = ipc.estimates(shutters, rng=rng)
        # Instructions are progress unless a program waits in loops of its own, which bursts see through.
        if burst.slowdown is not None and not any(map(_is_asked_for, tables["nodes"])):
            return burst.slowdown, counted, "", burst.coverage_frac
        beside = [burst.slowdown] if burst.slowdown else []
        # Eq. 6 of all counts is only for comparison: a rank that polls would be thought to work.
        if counted and counted[0].method != ipc.UNMODIFIED:
            return counted[0], counted[1:] + beside, "", burst.coverage_frac
        n_known = len(ipc.work(shutters))
        reason = f"{n_known} shutters have counts outside MPI that agree, {ipc.MIN_SHUTTERS} needed"
        return None, counted + beside, reason, burst.coverage_frac
    if meter == "loop":
        rates = loop.rates(shutters, rng=rng) if suffered.are_alike else loop.Rates(None, NOT_ALIKE)
        if rates.slowdown is None:  # in a job that calls MPI often enough, bursts may tell all the same
            return burst.slowdown, [], rates.reason if burst.slowdown is None else "", burst.coverage_frac
        return rates.slowdown, [burst.slowdown] if burst.slowdown else [], "", None
    if meter == "burst":
        return burst.slowdown, [], burst.reason, burst.coverage_frac
    return None, [], "no meter: " + _because(tables["nodes"]), None


def _burst(cycles: Table, shutters: Table, rng: np.random.Generator) -> matched.Matched:
    n_windows, window_s = windows(shutters)
    result = matched.matched(cycles, n_windows=n_windows, window_s=window_s, rng=rng)
    if result.reason and n_windows < matched.MIN_SHUTTERS:
        counts = np.bincount(shutters["verdict"], minlength=len(VERDICTS))
        refused = ", ".join(
            f"{n} {name}" for n, name in zip(counts, VERDICTS, strict=False) if n and name != "valid"
        )
        return matched.Matched(None, result.reason + (f" (not valid: {refused})" if refused else ""))
    return result


def _because(nodes: Table) -> str:
    return next((text(reason) for reason in nodes["meter_reason"] if text(reason)), "switched off")
