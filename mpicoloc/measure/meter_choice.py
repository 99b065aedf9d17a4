"""The choice of the meter for a job, and the slowdown of the co-run phase."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mpicoloc.core.profile import UNIT_SITE, VERDICTS, Estimate, MeterResult, Table, text, valid_shutters
from mpicoloc.measure import burst
from mpicoloc.measure.burst import PhaseSlowdown
from mpicoloc.measure.job_scaling import RankSlowdowns, Tables

if TYPE_CHECKING:
    Rng = np.random.Generator | Callable[[], np.random.Generator]

RANKS_WAIT_DIFFERENTLY = (
    "some of its ranks wait long for others, but places are counted for all ranks together; "
    f"{burst.MARK_UNITS}"
)

CHOSEN = "option meter is"
"""First words of `meter_reason` if the user chose the meter (csrc/agent/meters/meter.c)."""

MUCH_WIDER = 3.0
"""The burst estimate replaces that of counts if the interval of counts is wider by this factor. The factor is
large because the intervals of bursts contain the truth less often."""


def weakest_meter(nodes: Table) -> tuple[str, str]:
    """The weakest meter among the nodes, and the reason why its node has no better meter."""
    order = ("none", "count", "burst", "ipc")
    rank = [order.index(name) if (name := text(meter)) in order else 0 for meter in nodes["meter"]]
    i_weakest = int(np.argmin(rank))
    return order[rank[i_weakest]], text(nodes["meter_reason"][i_weakest])


def corun_slowdown(
    meter: str, tables: Tables, slowdowns: RankSlowdowns, rng: np.random.Generator
) -> PhaseSlowdown:
    """Slowdown of the co-run phase, from the weakest `meter` of the nodes and the tables of critical ranks.

    Units of work that the application marks take precedence over all meters.
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
        why = next(filter(None, map(text, nodes["meter_reason"])), "the node agent gave no reason")
        if why.startswith(CHOSEN):
            why, remedy = "--meter none was given", "leave it out"
        else:
            remedy = "run `mpicoloc check` on that node to see what works"
        found = PhaseSlowdown(None, f"no meter: {why}; {remedy}")
    elif meter == "burst":
        found = by_burst
    else:
        was_chosen = any(text(node["meter_reason"]).startswith(CHOSEN) for node in nodes)
        found = choose(tried[-1], counted, by_burst, was_chosen)
    return dataclasses.replace(found, meters=tuple(tried))


def choose(
    of_meter: MeterResult, counted: tuple[Estimate, ...], by_burst: PhaseSlowdown, was_chosen: bool
) -> PhaseSlowdown:
    """Choose between the estimate from bursts and that of the meter `count` or `ipc`.

    `counted` has all estimates of `ipc`, the best first. `was_chosen` tells whether the user named the meter.
    Estimates are not averaged: all meters use the same shutters, so the errors of the estimates are
    correlated, and the interval of an average would be too narrow.
    """
    of_burst, coverage_frac = by_burst.slowdown, by_burst.coverage_frac
    if of_meter.meter == "count":
        counted = () if of_meter.slowdown is None else (of_meter.slowdown,)
        is_burst_better = not counted or (not was_chosen and _is_much_wider(of_meter.slowdown, of_burst))
    else:
        # A program that polls in its own loops retires instructions without progress; this does not affect
        # bursts.
        is_burst_better = not was_chosen
    if of_burst is not None and is_burst_better:
        return dataclasses.replace(by_burst, alternatives=counted)
    bursts = () if of_burst is None else (of_burst,)
    if of_meter.slowdown is None:
        return PhaseSlowdown(None, of_meter.reason, coverage_frac, counted + bursts)
    covered = None if of_meter.meter == "count" else coverage_frac
    return PhaseSlowdown(of_meter.slowdown, "", covered, counted[1:] + bursts)


def _is_much_wider(counted: Estimate | None, of_burst: Estimate | None) -> bool:
    from mpicoloc.measure.count import half_width  # imported here: most profiles do not need it

    return MUCH_WIDER * half_width(of_burst) < half_width(counted) < np.inf


def _by_units(
    cycles: Table, shutters: Table, slowdowns: RankSlowdowns, rng: np.random.Generator
) -> PhaseSlowdown | None:
    """Slowdown from units of work that the application marks; None if there are none or too few."""
    units = cycles[cycles["from_site"] == UNIT_SITE]
    if not len(units):
        return None
    found = _matched(units[np.isin(units["rank"], slowdowns.critical_ranks)], shutters, rng)
    if found.slowdown is None:
        return None
    return dataclasses.replace(found, slowdown=dataclasses.replace(found.slowdown, method="pcontrol"))


def _by_instructions(shutters: Table, rng: np.random.Generator) -> tuple[MeterResult, tuple[Estimate, ...]]:
    """The result of the meter `ipc`, and all estimates from hardware counts."""
    from mpicoloc.measure import ipc  # imported here: most profiles do not need it

    counted = tuple(ipc.estimates(shutters, rng=rng))
    # The unmodified Eq. 6 is only for comparison, because it counts the polling of a waiting rank as work.
    if counted and counted[0].method != ipc.UNMODIFIED:
        return MeterResult("ipc", counted[0], ""), counted
    n_known = len(ipc.work(shutters))
    reason = f"{n_known} shutters have counts outside MPI that agree, {ipc.MIN_SHUTTERS} needed"
    return MeterResult("ipc", None, f"{reason}; {burst.SHARE_LONGER}"), counted


def _by_places(tables: Tables, ranks_wait_alike: bool) -> MeterResult:
    """The result of the meter `count`, which sums passes over all ranks."""
    from mpicoloc.measure import count  # imported here: most profiles do not need it

    if not ranks_wait_alike:
        return MeterResult("count", None, RANKS_WAIT_DIFFERENTLY)
    found = count.slowdown(tables["shutters"], tables["counts"], cost_ns=pass_ns(tables))
    return MeterResult("count", found.slowdown, found.reason)


def n_running_threads(ranks: Table, wall_s: float) -> float:
    """Mean number of running threads, but at least one per rank, because ranks wait for each other."""
    used_s = float(np.nansum(ranks["cpu_s"]))
    return max(len(ranks), used_s / wall_s if wall_s > 0 else 0.0, 1.0)


def pass_ns(tables: Tables) -> float:
    """Time that counting a pass costs the job, ns: less than it costs a thread; threads count in parallel."""
    nodes, ranks = tables["nodes"], tables["ranks"]
    n_passes = float(nodes["n_hits"].sum())
    of_thread_ns = float(nodes["counting_s"].sum()) * 1e9 / n_passes if n_passes else 0.0
    wall_s = float(ranks["wall_s"].max()) if len(ranks) else 0.0
    return of_thread_ns * len(nodes) / n_running_threads(ranks, wall_s)


def counting_frac(tables: Tables) -> float:
    """Part of the time in valid shutters that the job lost to the counting of places."""
    shutters, counts = valid_shutters(tables["shutters"]), tables["counts"]
    if not len(counts) or not len(shutters):
        return 0.0
    names = [node.astype(np.uint64) << np.uint64(48) ^ t0 for node, t0 in
             ((table["i_node"], table["t0_ns"]) for table in (shutters, counts))]  # fmt: skip
    n_during = float(counts["n_during"][np.isin(names[1], names[0])].sum())
    time_ns = float((shutters["t1_ns"] - shutters["t0_ns"]).sum())
    return min(n_during * pass_ns(tables) / time_ns, 0.5)


def _without_counting(found: PhaseSlowdown, frac: float) -> PhaseSlowdown:
    """Correct the burst estimate for counting, which lengthens bursts in shutters but few other bursts."""
    one = found.slowdown
    if one is None or frac == 0.0:
        return found
    value, low, high = (x / (1 - frac) for x in (one.value, one.low, one.high))
    return dataclasses.replace(found, slowdown=dataclasses.replace(one, value=value, low=low, high=high))


def _matched(cycles: Table, shutters: Table, rng: np.random.Generator) -> PhaseSlowdown:
    """The matched estimate; if too few shutters are valid, its reason lists the others' verdicts."""
    n_windows, window_s = burst.valid_windows(shutters)
    result = burst.matched(cycles, n_windows=n_windows, window_s=window_s, rng=rng)
    if result.reason and n_windows < burst.MIN_SHUTTERS:
        counts = np.bincount(shutters["verdict"], minlength=len(VERDICTS))
        refused = ", ".join(
            f"{n} {name}" for n, name in zip(counts, VERDICTS, strict=False) if n and name != "valid"
        )
        return PhaseSlowdown(None, burst.too_few(n_windows, refused))
    return result
