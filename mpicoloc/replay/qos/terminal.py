"""Lanes of jobs and weights of lanes, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mpicoloc.core.plain_values import plain
from mpicoloc.errors import printable
from mpicoloc.network import utilisation
from mpicoloc.network.characterise import Case
from mpicoloc.network.terminal import duration_words
from mpicoloc.replay.network import NO_LIMIT
from mpicoloc.replay.qos.policy import VARIABLES, Demands, Policy, job_environment, pkey
from mpicoloc.replay.qos.search import SearchResult, Tried
from mpicoloc.replay.report import signed
from mpicoloc.show.figures import Figure, Row, plot
from mpicoloc.show.table import Column, Listing, console, listing


def contention(jobs: Sequence[str], found: SearchResult) -> Figure:
    """Contention of each job under each policy as stacked bars, as in Figures 5.12 to 5.17 of the
    thesis.
    """
    names = [printable(job) for job in jobs]
    labels = [tried.trial.name for tried in found.tried]
    times_s = [tried.contention_s for tried in found.tried]
    draw = plot("stacked", labels, names, times_s, labels.index(found.best.trial.name))
    header = ("trial", *(f"contention_{name}_s" for name in names), "total_contention_s")
    rows: tuple[Row, ...] = tuple(
        (label, *tried.contention_s, tried.total_contention_s)
        for label, tried in zip(labels, found.tried, strict=True)
    )
    text = (
        "Simulated T_sharing - T_alone of each job, by the packets that each lane may send in its turn, "
        "from favouring the lane that sends most to favouring the one that sends least. A line marks the "
        "sweet spot, "
        f"{found.best.trial.name} (Jokanovic 2014, Figures 5.12 to 5.17)."
    )
    size = (6.0, 3.8)
    return Figure("contention", "Contention by weights of lanes", text, header, rows, draw, size)


def as_json(
    cases: Sequence[Case], demands: Demands, policy: Policy, tried: SearchResult | None
) -> dict[str, Any]:
    """The content of ``mpicoloc qos --json``."""
    return {
        "ports": plain(policy.ports),
        "n_operational": policy.n_operational,
        "high_limit": policy.high_limit,
        "lane_of_level": list(policy.lane_of_level),
        "high_rows": [list(row) for row in policy.high_rows],
        "low_rows": [list(row) for row in policy.low_rows],
        "lanes": [
            {
                "lane": lane,
                "jobs": _members(cases, policy, lane),
                "demand_frac": _demand(demands, policy, lane),
                "weight_packets": weight,
                "is_high": lane in policy.high_lanes,
            }
            for lane, weight in enumerate(policy.weights)
        ],
        "jobs": [
            {
                "file": case.file,
                "id": case.job.id,
                "demand_frac": float(demands.demand_frac[i]),
                "demand_wall_frac": utilisation.by_wall_time(
                    float(demands.demand_frac[i]), case.duration_s, case.job.wall_s
                ),
                "duration_s": case.duration_s,
                "duration_by": case.duration_by,
                "demand_class": utilisation.demand_class(case.levels),
                "meets": [cases[j].job.id for j in demands.meeting[i].nonzero()[0]],
                "lane": policy.lane_of_job[i],
                "service_level": policy.lane_of_job[i],
                "environment": job_environment(policy.lane_of_job[i]),
                "pkey": pkey(policy.lane_of_job[i]),
            }
            for i, case in enumerate(cases)
        ],
        "search": tried and _search_json(tried),
    }


def _search_json(found: SearchResult) -> dict[str, Any]:
    return {
        "alone_s": list(found.alone_s),
        "goal": found.goal,
        "best": found.best.trial.name,
        "gain_frac": found.gain_frac,
        "groupings": [_tried_json(tried) for tried in found.groupings],
        "trials": [_tried_json(tried) for tried in found.tried],
    }


def _tried_json(tried: Tried) -> dict[str, Any]:
    return {
        "name": tried.trial.name,
        "weights": list(tried.trial.policy.weights),
        "high_lanes": list(tried.trial.policy.high_lanes),
        "lane_of_job": list(tried.trial.policy.lane_of_job),
        "sharing_s": list(tried.sharing_s),
        "contention_s": list(tried.contention_s),
        "total_contention_s": tried.total_contention_s,
        "mean_slowdown": tried.mean_slowdown,
    }


def _members(cases: Sequence[Case], policy: Policy, lane: int) -> list[str]:
    return [case.job.id for case, own in zip(cases, policy.lane_of_job, strict=True) if own == lane]


def _demand(demands: Demands, policy: Policy, lane: int) -> float:
    own = [demand for demand, of in zip(demands.demand_frac, policy.lane_of_job, strict=True) if of == lane]
    return float(sum(own))


_LANE_COLUMNS = (
    Column("lane", form="VL{}".format),
    Column("jobs", form=lambda jobs: ", ".join(jobs) or "no job", is_name=True),
    Column("used", "demand_frac", ".2%"),
    Column("packets a turn", "weight_packets"),
    Column("priority", "is_high", lambda is_high: "high" if is_high else "low"),
)
_BY_WALL_TIME = Column("by wall time", "demand_wall_frac", ".2%", left_out=3)
_JOB_COLUMNS = (
    Column("job", "id", is_name=True),
    Column("demand", "demand_class", missing="unknown"),
    Column("used", "demand_frac", ".2%", left_out=1),
    _BY_WALL_TIME,
    Column("meets", form=lambda ids: ", ".join(ids) or "nobody", is_name=True, left_out=2),
    Column("service level", "service_level"),
    Column("sets", "service_level", "UCX_IB_SL={}".format, is_name=True),
)


def show(cases: Sequence[Case], demands: Demands, policy: Policy, tried: SearchResult | None) -> None:
    """Print lanes, jobs, the variables that jobs set, and the trials of a search."""
    output, found = console(), as_json(cases, demands, policy, tried)
    if tried is not None:
        names = [case.job.id for case in cases]
        if len(tried.groupings) > 1:
            output.print(_groupings_listing(names, tried))
        output.print(_search_listing(names, tried))
    output.print(listing(_LANE_COLUMNS, found["lanes"], "lanes"))
    by_wall = any(job["demand_wall_frac"] for job in found["jobs"])
    columns = [column for column in _JOB_COLUMNS if by_wall or column is not _BY_WALL_TIME]
    output.print(listing(columns, found["jobs"], "jobs"))
    durations = filter(None, map(duration_words, cases))
    for line in (*_goal(tried), *durations, *_remarks(policy)):
        output.print(line, style="dim", soft_wrap=not output.is_terminal)


def _contention_of(i: int) -> Callable[[Tried], float]:
    return lambda tried: tried.contention_s[i]


_N_GROUPINGS = 8
"""Number of groupings in the table."""


def _groupings_listing(jobs: Sequence[str], found: SearchResult) -> Listing:
    """Contention of each job and of all jobs under the best groupings, before the search of weights."""
    mine = found.best.trial.policy.lane_of_job
    columns = [
        Column(
            "lanes",
            lambda one: one.trial.name + (" *" if one.trial.policy.lane_of_job == mine else ""),
            is_name=True,
        ),
        *_contention_columns(jobs),
        Column("packets a turn", lambda one: ":".join(map(str, one.trial.policy.weights)), left_out=1),
    ]
    n = len(found.groupings)
    title = f"groupings, the best {min(n, _N_GROUPINGS)} of {n}: contention, T_sharing - T_alone"
    return listing(columns, found.groupings[:_N_GROUPINGS], title)


def _contention_columns(jobs: Sequence[str]) -> list[Column]:
    columns = [
        Column(printable(job), _contention_of(i), signed, left_out=i + 1) for i, job in enumerate(jobs)
    ]
    return [
        *columns,
        Column("all", "total_contention_s", signed),
        Column("mean slowdown", "mean_slowdown", ".3f"),
    ]


def _search_listing(jobs: Sequence[str], found: SearchResult) -> Listing:
    """Contention of each job and of all jobs under each policy; the sweet spot is marked."""
    before_s = found.reference.total_contention_s
    columns = [
        Column("packets a turn", lambda one: one.trial.name + (" *" if one is found.best else "")),
        *_contention_columns(jobs),
        Column(
            "to equal weights",
            lambda one: one.total_contention_s / before_s - 1 if before_s > 0 else None,
            "+.1%",
        ),
    ]
    return listing(columns, found.tried, "contention, T_sharing - T_alone")


def _goal(found: SearchResult | None) -> list[str]:
    least = {"time": "contention of all jobs (Jokanovic 2014, Eq. 5.4)", "slowdown": "mean slowdown"}
    if found is None:
        return ["Chosen by demands, not simulated: --search replays the jobs under other lanes and weights."]
    return [f"* sweet spot: least {least[found.goal]}."]


def _remarks(policy: Policy) -> Iterator[str]:
    names = [name for name in VARIABLES if name != "UCX_IB_SL"]
    yield f"Without UCX, give {' and '.join(names)} the same value; with librdmacm, use the lane's partition."
    yield (
        f"Switched on: {policy.n_operational} of {policy.ports.n_lanes} lanes. A turn counts packets of "
        f"{policy.ports.mtu_bytes} bytes. Programs that set no service level use VL0."
    )
    if policy.high_lanes and policy.high_limit == NO_LIMIT:
        yield "High priority without limit: lanes of low priority wait while those of high priority send."
