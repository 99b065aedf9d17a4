"""Lanes of jobs and weights of lanes, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from mpicoloc.core.tables import printable
from mpicoloc.network import utilisation
from mpicoloc.network.characterise import Case
from mpicoloc.replay.qos.opensm import VARIABLES, job_environment, pkey
from mpicoloc.replay.qos.policy import NO_LIMIT, Demands, Policy
from mpicoloc.replay.qos.search import SearchResult
from mpicoloc.replay.report import signed
from mpicoloc.show.figures import Figure, Row
from mpicoloc.show.listing import Listing
from mpicoloc.show.table import console

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def contention(jobs: Sequence[str], found: SearchResult) -> Figure:
    """Contention of each job under each policy, on top of each other, as Figures 5.12 to 5.17 of the
    thesis.
    """
    names = [printable(job) for job in jobs]
    labels = [tried.trial.name for tried in found.tried]
    times_s = [tried.contention_s for tried in found.tried]

    def draw(picture: Picture) -> None:
        from mpicoloc.show import plots

        plots.stacked(picture, labels, names, times_s, labels.index(found.best.trial.name))

    header = ("trial", *(f"contention_{name}_s" for name in names), "total_contention_s")
    rows: tuple[Row, ...] = tuple(
        (label, *tried.contention_s, tried.total_contention_s)
        for label, tried in zip(labels, found.tried, strict=True)
    )
    text = (
        "T_sharing - T_alone of each job, simulated, by the packets that each lane may send in its turn; "
        "from favouring the lane that sends most to favouring the one that sends least. A line is at the "
        "sweet spot, "
        f"{found.best.trial.name} (Jokanovic 2014, Figures 5.12 to 5.17)."
    )
    size = (6.0, 3.8)
    return Figure("contention", "Contention by weights of lanes", text, header, rows, draw, size)


def as_json(
    cases: Sequence[Case], demands: Demands, policy: Policy, tried: SearchResult | None
) -> dict[str, Any]:
    """The keys of ``mpicoloc qos --json``."""
    ports = policy.ports
    return {
        "ports": {"n_lanes": ports.n_lanes, "mtu_bytes": ports.mtu_bytes, "n_rows": ports.n_rows},
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
        "trials": [
            {
                "name": tried.trial.name,
                "weights": list(tried.trial.policy.weights),
                "high_lanes": list(tried.trial.policy.high_lanes),
                "lane_of_job": list(tried.trial.policy.lane_of_job),
                "sharing_s": list(tried.sharing_s),
                "contention_s": list(tried.contention_s),
                "total_contention_s": tried.total_contention_s,
                "mean_slowdown": tried.mean_slowdown,
            }
            for tried in found.tried
        ],
    }


def _members(cases: Sequence[Case], policy: Policy, lane: int) -> list[str]:
    return [case.job.id for case, own in zip(cases, policy.lane_of_job, strict=True) if own == lane]


def _demand(demands: Demands, policy: Policy, lane: int) -> float:
    own = [demand for demand, of in zip(demands.demand_frac, policy.lane_of_job, strict=True) if of == lane]
    return float(sum(own))


def show(cases: Sequence[Case], demands: Demands, policy: Policy, tried: SearchResult | None) -> None:
    """Print lanes, jobs, what each job sets, and what a search has tried."""
    output = console()
    if tried is not None:
        output.print(_search_table([case.job.id for case in cases], tried))
    output.print(_lanes_table(cases, demands, policy))
    output.print(_jobs_table(cases, demands, policy))
    for line in (*_goal(tried), *_remarks(policy)):
        output.print(line, style="dim", soft_wrap=not output.is_terminal)


def _lanes_table(cases: Sequence[Case], demands: Demands, policy: Policy) -> Listing:
    grid = Listing("lanes", ("lane", "jobs", "used", "packets a turn", "priority"), names=("jobs",))
    for lane, weight in enumerate(policy.weights):
        jobs = ", ".join(_members(cases, policy, lane)) or "no job"
        priority = "high" if lane in policy.high_lanes else "low"
        used = f"{_demand(demands, policy, lane):.2%}"
        grid.add_row(f"VL{lane}", escape(printable(jobs)), used, str(weight), priority)
    return grid


def _jobs_table(cases: Sequence[Case], demands: Demands, policy: Policy) -> Listing:
    columns = ("job", "demand", "used", "meets", "service level", "sets")
    grid = Listing("jobs", columns, names=("job", "meets", "sets"), lesser=("used", "meets"))
    for i, case in enumerate(cases):
        level = policy.lane_of_job[i]
        meets = ", ".join(cases[j].job.id for j in demands.meeting[i].nonzero()[0]) or "nobody"
        grid.add_row(
            escape(printable(case.job.id)),
            utilisation.demand_class(case.levels) or "unknown",
            f"{demands.demand_frac[i]:.2%}",
            escape(printable(meets)),
            str(level),
            f"UCX_IB_SL={level}",
        )
    return grid


def _search_table(jobs: Sequence[str], found: SearchResult) -> Listing:
    """Contention of each job and of all under each policy; the sweet spot is marked."""
    names = [escape(printable(job)) for job in jobs]
    grid = Listing(
        "contention, T_sharing - T_alone",
        ("packets a turn", *names, "all", "to equal weights", "mean slowdown"),
        lesser=names,
    )
    before_s = found.reference.total_contention_s
    for tried in found.tried:
        total_s = tried.total_contention_s
        change = f"{total_s / before_s - 1:+.1%}" if before_s > 0 else "-"
        mark = " *" if tried is found.best else ""
        times = [signed(time_s) for time_s in (*tried.contention_s, total_s)]
        grid.add_row(tried.trial.name + mark, *times, change, f"{tried.mean_slowdown:.3f}")
    return grid


def _goal(found: SearchResult | None) -> list[str]:
    if found is None:
        return []
    least = "contention of all jobs (Jokanovic 2014, Eq. 5.4)" if found.goal == "time" else "mean slowdown"
    return [f"* sweet spot: least {least}."]


def _remarks(policy: Policy) -> Iterator[str]:
    names = [name for name in VARIABLES if name != "UCX_IB_SL"]
    yield f"Without UCX: {' and '.join(names)}, of the same value; librdmacm: the lane's partition."
    yield (
        f"Switched on: {policy.n_operational} of {policy.ports.n_lanes} lanes. A turn counts packets of "
        f"{policy.ports.mtu_bytes} bytes. Programs that set no service level use VL0."
    )
    if policy.high_lanes and policy.high_limit == NO_LIMIT:
        yield "High priority without limit: lanes of low priority wait for as long as it sends."
