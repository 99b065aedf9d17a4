"""From the slowdown of the co-run phase to that of the whole job."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.profile import Estimate, Job, Table, valid_shutters
from mpicoloc.measure.critical_ranks import RankSlowdowns

Tables = Mapping[str, Table]


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
