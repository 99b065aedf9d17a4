"""Load of jobs on a fat-tree, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.markup import escape

from mpicoloc.core.network import Topology
from mpicoloc.core.plain_values import plain
from mpicoloc.core.units import amount, link_rate, rate
from mpicoloc.errors import printable
from mpicoloc.network import utilisation
from mpicoloc.network.characterise import Case, Shared
from mpicoloc.network.utilisation import most_sharing_jobs
from mpicoloc.show.table import Column, Listing, console, listing, with_interval


def as_json(cases: Sequence[Case], shared: Shared | None) -> dict[str, Any]:
    """The content of ``mpicoloc network --json``; unknown values are None."""
    out: dict[str, Any] = {"cases": [_case_json(case) for case in cases], "sharing": None}
    if shared is not None:
        n_jobs = shared.sharing.n_jobs()
        out["sharing"] = [
            {
                "file": case.file,
                "n_sharing_jobs": n_jobs[:, i].tolist(),
                "slowdown": shared.slowdowns and plain(shared.slowdowns[i]),
                "with": [_pair_json(cases, shared, i, pair) for pair in shared.links if i in pair],
            }
            for i, case in enumerate(cases)
        ]
    return out


def _pair_json(cases: Sequence[Case], shared: Shared, i: int, pair: tuple[int, int]) -> dict[str, Any]:
    """The links that job i shares with the other job of a pair."""
    j = pair[0] + pair[1] - i
    ends = [
        {"level": link.level, "link": link.link, "way": link.way, "bytes": link.n_bytes[pair.index(i)]}
        for link in shared.links[pair]
    ]
    return {"file": cases[j].file, "n_links": shared.sharing.n_links[:, i, j].tolist(), "links": ends}


def _case_json(case: Case) -> dict[str, Any]:
    return {
        "file": case.file,
        "job": {"id": case.job.id, "n_ranks": case.job.n_ranks, "wall_s": case.job.wall_s},
        "topology": str(case.topology),
        "capacity_bps": list(case.topology.capacity_bps),
        "assumed_levels": list(case.assumed_levels),
        "assumes_up_links": case.assumes_up_links,
        "placement": case.placement_name,
        "n_hosts": len(case.placement.distinct_hosts()),
        "duration_s": case.duration_s,
        "duration_by": case.duration_by,
        "partial": case.partial,
        "dropped_bytes": case.dropped_bytes,
        "levels": plain(case.levels),
        "utilisation_wall_frac": [case.by_wall_time(row) for row in case.levels],
        "demand_class": utilisation.demand_class(case.levels),
        "links": [
            {
                "level": row.level,
                "routing": case.routing,
                "n_links": len(case.loads.up[row.level]),
                "most_up_bytes": float(case.loads.up[row.level].max()),
                "most_down_bytes": float(case.loads.down[row.level].max()),
            }
            for row in case.levels
        ],
        "most_sharing_jobs": most_sharing_jobs(case.topology, case.placement).tolist(),
        "windows": case.windows
        and {
            "window_s": case.windows.window_s,
            "injection_bps": case.windows.injection_bps.tolist(),
            "in_transit_bytes": case.windows.in_transit_bytes.tolist(),
        },
    }


def show(cases: Sequence[Case], shared: Shared | None) -> None:
    """Print the cases, and the links that they share."""
    output = console()
    for case in cases:
        output.print(_case_table(case))
    if shared is not None:
        output.print(_shared_table(cases, shared))
        if shared.links:
            output.print(_pairs_table(cases, shared))
    for line in _remarks(cases, shared):
        # Do not wrap lines in a pipe.
        output.print(line, style="dim", soft_wrap=not output.is_terminal)


def _remarks(cases: Sequence[Case], shared: Shared | None) -> Iterator[str]:
    yield "Traffic: messages, one-sided calls and collectives of the profile."
    for case in {case.job.id: case for case in cases}.values():
        name = escape(printable(f"job {case.job.id}"))
        if (words := duration_words(case)) is not None:
            yield words
        if case.partial:
            yield f"{name}: partial, so these are lower bounds."
        if case.dropped_bytes:
            yield f"{name}: {amount(case.dropped_bytes)} to or from unknown ranks are left out."
    if cases[0].assumes_up_links:
        remedy = " (set --up-links)" if isinstance(cases[0].topology, Topology) else ""
        yield f"Assumed{remedy}: one link up from each switch, {cases[0].topology}."
    assumed = cases[0].assumed_levels
    if assumed:
        rates = sorted({cases[0].topology.capacity_bps[level] for level in assumed})
        levels = ", ".join(f"L{level}" for level in assumed)
        yield f"Assumed (set --link-rate): links of {link_rate(rates[0])} on {levels}."
    if shared is not None and shared.slowdowns is not None:
        yield (
            "Slowdowns: if jobs wait for their most loaded link, links serve the hosts that send in turn, "
            "jobs send independently of each other (bounds: never, or always at the same time), and nothing "
            "else meets."
        )


def duration_words(case: Case) -> str | None:
    """A sentence on the time by which a job's bytes are divided to give rates."""
    name = escape(printable(f"job {case.job.id}"))
    if case.duration_s is None:
        return None
    return f"{name}: rates are bytes over {case.duration_s:.4g} s, {case.duration_by}."


def _case_table(case: Case) -> Listing:
    partial = " (partial)" if case.partial else ""
    name = escape(printable(f"job {case.job.id}{partial}: {case.topology}, {case.placement_name}"))
    grade = utilisation.demand_class(case.levels) or "unknown"
    by_wall = Column("by wall time", case.by_wall_time, ".2%", left_out=4)
    columns = [
        Column("level", "level", "L{}".format),
        Column("bytes", "sent_bytes", amount, left_out=3),
        Column("injection", lambda row: rate(row.injection_bps)),
        Column("available", lambda row: rate(row.available_bps), left_out=6),
        Column("used", "utilisation_frac", ".2%", missing="unknown"),
        *([by_wall] if any(case.by_wall_time(row) for row in case.levels) else []),
        Column("most up", lambda row: float(case.loads.up[row.level].max()), amount, left_out=2),
        Column("most down", lambda row: float(case.loads.down[row.level].max()), amount, left_out=1),
    ]
    if (found := case.windows) is not None:
        peaks_bps = found.injection_bps.max(axis=0)
        columns.append(Column("peak", lambda row: rate(float(peaks_bps[row.level])), left_out=5))
    return listing(columns, case.levels, f"{name}, demand {grade}")


def _shared_table(cases: Sequence[Case], shared: Shared) -> Listing:
    n_jobs, slowdowns = shared.sharing.n_jobs(), shared.slowdowns
    columns = [Column("job", lambda i: cases[i].job.id)]
    for level, row in enumerate(n_jobs):
        columns.append(Column(f"jobs on L{level}", row.__getitem__, left_out=level + 1))
    cost = Column(
        "slowdown, first estimate",
        lambda i: slowdowns and slowdowns[i],
        lambda found: with_interval(found, ".3f"),
        missing="unknown",
    )
    return listing([*columns, cost], range(len(cases)), "links shared")


def _pairs_table(cases: Sequence[Case], shared: Shared) -> Listing:
    """Number of links that each pair of jobs shares, and the link with the largest sum of their bytes."""

    def most_loaded(pair: tuple[int, int]) -> str:
        link = shared.links[pair][0]
        ends = [escape(printable(end)) for end in cases[0].topology.end_names(link.level, link.link)]
        return " to ".join(ends if link.way == "up" else ends[::-1])

    columns = [Column("jobs", lambda pair: ", ".join(cases[i].job.id for i in pair))]
    for level, counts in enumerate(shared.sharing.n_links):
        columns.append(Column(f"L{level}", counts.__getitem__, left_out=level + 1))
    columns += [
        Column("most loaded link", most_loaded),
        Column("bytes of each", lambda pair: ", ".join(map(amount, shared.links[pair][0].n_bytes))),
    ]
    return listing(columns, shared.links, "shared by")
