"""Replayed jobs as tables and as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.markup import escape

from mpicoloc.core.tables import printable
from mpicoloc.core.units import counted, seconds
from mpicoloc.replay import experiment
from mpicoloc.replay.experiment import Experiment, JobTimes
from mpicoloc.show import outputs
from mpicoloc.show.listing import Listing
from mpicoloc.show.output import console


def write_tables(found: Experiment, out: str) -> None:
    """Write a file for each table to the folder `out`, which must be new or empty.

    Raises `UsageError` if something is there. Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    with outputs.folder(out) as folder:
        for name, columns in _tables(found).items():
            pq.write_table(pa.table(columns), os.path.join(folder, f"{name}.parquet"), compression="zstd")


def _tables(found: Experiment) -> dict[str, dict[str, Any]]:
    return {
        "jobs": _jobs_columns(found),
        "ranks": _ranks(found),
        "links": _links(found),
        "windows": _windows(found),
        "waits": _waits_columns(found),
        "blocked": _blocked_columns(found),
    }


def _jobs_columns(found: Experiment) -> dict[str, Any]:
    times = found.times
    names = ("name", "n_ranks", "n_hosts", "base_s", "alone_s", "sharing_s", "intra_s", "inter_s", "slowdown")
    return {name: [getattr(job, name) for job in times] for name in names}


def _ranks(found: Experiment) -> dict[str, Any]:
    runs = found.sharing.jobs
    sizes = [len(run.rank_end_s) for run in runs]
    return {
        "job": np.repeat([run.name for run in runs], sizes),
        "rank": np.concatenate([np.arange(size) for size in sizes]),
        "host": np.concatenate([job.hosts for job in found.jobs]),
        "end_s": np.concatenate([run.rank_end_s for run in runs]),
        "compute_s": np.concatenate([run.rank_compute_s for run in runs]),
    }


def _links(found: Experiment) -> dict[str, Any]:
    network, run = found.network, found.sharing
    links = range(network.n_links)
    return {
        "link": np.arange(network.n_links),
        "name": [network.link_name(link) for link in links],
        "level": network.link_level,
        "is_up": network.link_from < network.link_to,
        "capacity_bps": network.link_bps,
        "busy_s": run.busy_s,
        "sent_bytes": run.sent_bytes.sum(axis=1),
    }


def _windows(found: Experiment) -> dict[str, Any]:
    """Windows in which a link sent anything."""
    run = found.sharing
    window, link = np.nonzero(run.window_bytes)
    return {
        "begin_s": window * run.window_s,
        "link": link,
        "sent_bytes": run.window_bytes[window, link],
        "utilisation_frac": run.utilisation_frac(found.network.link_bps)[window, link],
    }


def _waits_columns(found: Experiment) -> dict[str, Any]:
    run = found.sharing
    level, job, lane = np.nonzero(run.n_waits)
    names = np.array([one.name for one in run.jobs])
    return {
        "level": level,
        "job": names[job],
        "lane": lane,
        "n_packets": run.n_waits[level, job, lane],
        "wait_s": run.wait_s[level, job, lane],
    }


def _blocked_columns(found: Experiment) -> dict[str, Any]:
    """How long packets of a job waited while those of another were sent, or (null) none was."""
    run = found.sharing
    names: list[str | None] = [job.name for job in run.jobs]
    waiter, sent = np.indices(run.blocked_by_s.shape)
    behind = [*names, None]
    return {
        "job": [names[i] for i in waiter.ravel()],
        "behind": [behind[i] for i in sent.ravel()],
        "wait_s": run.blocked_by_s.ravel(),
    }


def show_sweep(rows: Sequence[dict[str, Any]]) -> None:
    """Print the times of each job of each row; `rows` are what ``mpicoloc replay --sweep --json`` prints."""
    flags = list(rows[0]["settings"])
    times = ("T_base", "T_alone", "T_sharing")
    table = Listing(
        "Sweep", [*flags, "job", *times, "slowdown"], names=[*flags, "job"], lesser=("T_base", "T_alone")
    )
    for row in rows:
        words = [escape(printable(row["settings"][flag])) for flag in flags]
        for job in row["jobs"]:
            values = (job["t_base_s"], job["t_alone_s"], job["t_sharing_s"])
            cells = ["-" if time_s is None else seconds(time_s) for time_s in values]
            table.add_row(*words, escape(printable(job["name"])), *cells, f"{job['slowdown']:.3f}")
    console().print(table)


def as_json(result: Experiment, wall_s: float, before_host_s: float | None = None) -> dict[str, Any]:
    """The keys of ``mpicoloc replay --json``; what was not simulated is None.

    `before_host_s` is what jobs lost to each other without the policy that is tried (`j_inter_host_s`).
    """
    run = result.sharing
    times = result.times
    return {
        "jobs": [_times_json(job) for job in times],
        "j_inter_host_s": experiment.j_inter_host_s(times),
        "efficiency": _efficiency(result, before_host_s),
        "total_contention_s": experiment.total_contention_s(times),
        "routing": "tables" if result.network.has_tables else result.network.routing,
        "n_packet_hops": run.n_packet_hops,
        "n_packets": run.n_packets,
        "n_messages": run.n_messages,
        "n_events": run.n_events,
        "simulated_s": run.end_s,
        "wall_s": wall_s,
        "peak_bytes": run.peak_bytes,
        "waits": _waits_json(result),
        "blocked_by_s": run.blocked_by_s.tolist(),
    }


def _efficiency(result: Experiment, before_host_s: float | None) -> float | None:
    if before_host_s is None:
        return None
    return experiment.efficiency(before_host_s, experiment.j_inter_host_s(result.times))


def _times_json(job: JobTimes) -> dict[str, Any]:
    return {
        "name": job.name,
        "n_ranks": job.n_ranks,
        "n_hosts": job.n_hosts,
        "t_base_s": job.base_s,
        "t_alone_s": job.alone_s,
        "t_sharing_s": job.sharing_s,
        "t_intra_s": job.intra_s,
        "t_inter_s": job.inter_s,
        "normalised": job.normalised,
        "slowdown": job.slowdown,
    }


def _waits_json(result: Experiment) -> list[dict[str, Any]]:
    """Where packets waited, by level, job and lane; without those that had none."""
    run = result.sharing
    return [
        {
            "level": level,
            "job": run.jobs[job].name,
            "lane": lane,
            "wait_s": float(run.wait_s[level, job, lane]),
            "n": int(run.n_waits[level, job, lane]),
        }
        for level, job, lane in np.argwhere(run.n_waits).tolist()
    ]


def show(result: Experiment, wall_s: float, before_host_s: float | None = None) -> None:
    """Print the times of the jobs, where packets waited, and for whom."""
    out = console()
    out.print(_times(result))
    if len(result.jobs) > 1:
        out.print(_blocked(result))
    if result.sharing.n_waits.any():
        out.print(_waits(result))
    run = result.sharing
    rate = f", {run.n_packet_hops / wall_s / 1e6:.3g} million a second" if wall_s > 0 else ""
    out.print(
        f"{counted(run.n_packet_hops, 'packet-hop')} in {seconds(wall_s)}{rate}; jobs lose "
        f"{experiment.j_inter_host_s(result.times):.4g} host seconds to each other",
        highlight=False,
    )
    efficiency = _efficiency(result, before_host_s)
    if before_host_s is not None:
        words = "nothing is lost now" if efficiency is None else f"E(P) = {efficiency:.4g}"
        out.print(f"before: {before_host_s:.4g} host seconds; {words}", highlight=False)


def _times(result: Experiment) -> Listing:
    columns = ["job", "ranks", "hosts", "T_base", "T_alone", "T_sharing", "T_intra", "T_inter", "slowdown"]
    table = Listing("Times", columns, lesser=("hosts", "ranks"))
    for job in result.times:
        times = (job.base_s, job.alone_s, job.sharing_s, job.intra_s, job.inter_s)
        cells = ["-" if time_s is None else _signed(time_s) for time_s in times]
        name = escape(printable(job.name))
        table.add_row(name, f"{job.n_ranks:,}", f"{job.n_hosts:,}", *cells, f"{job.slowdown:.3f}")
    return table


def _signed(time_s: float) -> str:
    return f"-{seconds(-time_s)}" if time_s < 0 else seconds(time_s)


def _blocked(result: Experiment) -> Listing:
    """Packet seconds that a job's packets waited while another one's were sent."""
    names = [escape(printable(job.name)) for job in result.jobs]
    headers = [f"behind {name}" for name in names]
    table = Listing("Waits of packets, summed over all of them", ["job", *headers, "behind none"])
    for name, row in zip(names, result.sharing.blocked_by_s, strict=True):
        table.add_row(name, *(seconds(float(wait_s)) for wait_s in row))
    return table


def _waits(result: Experiment) -> Listing:
    table = Listing(
        "Where packets waited", ["level", "job", "lane", "packets that waited", "mean wait"], names=["job"]
    )
    for row in _waits_json(result):
        mean_s = row["wait_s"] / row["n"]
        table.add_row(
            f"L{row['level']}",
            escape(printable(row["job"])),
            str(row["lane"]),
            f"{row['n']:,}",
            seconds(mean_s),
        )
    return table
