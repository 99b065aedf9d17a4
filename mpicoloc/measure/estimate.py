"""The cost of co-runners to a job, from the job's tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mpicoloc.core.profile import Estimate, Interference, Job, Table, table, text, valid_shutters
from mpicoloc.measure import processor
from mpicoloc.measure.job_scaling import (
    RankSlowdowns,
    Tables,
    job_scale,
    of_critical_ranks,
    rank_slowdowns,
    split_wall,
)
from mpicoloc.measure.meter_choice import corun_slowdown, n_running_threads, weakest_meter

if TYPE_CHECKING:
    Rng = np.random.Generator | Callable[[], np.random.Generator]


UNWATCHED_FRAC = 0.1
"""Part of the job's time on a node that the agent may miss; if it misses more, co-runners are unknown."""

UNWATCHED_S = 1.0
"""The agent may always miss this time, s, plus two periods, because it starts after the ranks and looks once
a period."""

SEE_CHECK = "run `mpicoloc check` on that node to see why"


def interference(
    job: Job, tables: Tables, *, rng: Rng, slowdowns: RankSlowdowns | None = None
) -> Interference:
    """Slowdown of the whole job, and the way in which it was measured.

    Parameters
    ----------
    job : Job
        Its `wall_s` is T_co.
    tables : mapping of str to Table
        Tables of a profile; absent tables count as empty.
    rng : numpy.random.Generator or callable
        Generator for the bootstrap, or a function that returns one, called only if needed; seed it to get
        the same interval again.
    slowdowns : RankSlowdowns, optional
        Slowdowns of the ranks (`rank_slowdowns`), if they were computed before.
    """
    names = ("ranks", "nodes", "cycles", "shutters", "counts")
    tables = {name: tables[name] if name in tables else table(name) for name in names}
    nodes, ranks, shutters = tables["nodes"], tables["ranks"], tables["shutters"]
    if not len(nodes):
        reason = f"no node agent watched the job; {SEE_CHECK}"
        return Interference(reason=reason, **processor.processor_use(ranks))
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
        **processor.foreign_delay(shutters),
    )
    if reason := unwatched_reason(nodes, ranks):
        return dataclasses.replace(found, reason=reason)
    if shared_s <= 0:
        alone = Estimate(1.0, 1.0, 1.0, 0, "1", processor.ALONE)
        return dataclasses.replace(found, slowdown=alone, reason="never shared its nodes")
    if job.n_nodes > 1 and np.isnan(nodes["clock_offset_s"]).any():
        reason = "its nodes could not agree on shutters, as always with LD_PRELOAD alone; start it with "
        reason += "`mpicoloc run` or `python -m mpicoloc.wrap`"
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
    """Part of the job's time in which it was paused for others or counting took place."""
    if not len(ranks) or job.wall_s <= 0:
        return None
    # `paused_ns` is the time of one thread per rank; `counting_s` is a sum over all threads.
    paused_s = float(ranks["paused_ns"].sum()) * 1e-9 / len(ranks)
    counting_s = float(nodes["counting_s"].sum()) / n_running_threads(ranks, job.wall_s)
    return (paused_s + counting_s) / job.wall_s


def unwatched_reason(nodes: Table, ranks: Table) -> str:
    """Why the agents saw too little of the job to know its co-runners; empty if they saw enough."""
    if (ranks["i_node"] < 0).any():
        return f"on some of its nodes no node agent watched the job; {SEE_CHECK}"
    for i_node, node in enumerate(nodes):
        ends_s = (ranks["init_s"] + ranks["wall_s"])[ranks["i_node"] == i_node]
        wall_s = float(ends_s.max()) if len(ends_s) else 0.0
        watched_s, period_s = float(node["watched_s"]), float(node["shutter_period_s"])
        if np.isnan(watched_s):
            return f"co-runners may have been out of sight on {text(node['hostname'])}; {SEE_CHECK}"
        if wall_s - watched_s > max(UNWATCHED_FRAC * wall_s, UNWATCHED_S + 2 * period_s):
            seen = f"{watched_s:.1f} of {wall_s:.1f} s on {text(node['hostname'])}"
            return f"the node agent watched {seen}; do not kill mpicoloc-keeper while the job runs"
    return ""
