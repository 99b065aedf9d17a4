"""Results of a replay as tables, as JSON and as Parquet files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpicoloc.core.units import counted, seconds
from mpicoloc.errors import printable
from mpicoloc.replay import experiment
from mpicoloc.replay.experiment import Experiment
from mpicoloc.show import outputs
from mpicoloc.show.table import Column, Listing, console, listing, write_parquet


def signed(time_s: float) -> str:
    """A time as text; the time may be negative."""
    return f"-{seconds(-time_s)}" if time_s < 0 else seconds(time_s)


_TIMES = ("base_s", "alone_s", "sharing_s", "intra_s", "inter_s")
_TIME_COLUMNS = tuple(Column(f"T_{name[:-2]}", f"t_{name}", signed) for name in _TIMES)
_SLOWDOWN = Column("slowdown", form=".3f")
_JOB_COLUMNS = (
    Column("job", "name"),
    Column("ranks", "n_ranks", ",", left_out=2),
    Column("hosts", "n_hosts", ",", left_out=1),
    *_TIME_COLUMNS,
    _SLOWDOWN,
)
_TERMS = ("head_s", "size_s", "contention_s", "behind_sent_s", "behind_queued_s", "blocked_s")
_TERM_COLUMNS = (
    Column("job", "name"),
    Column("head", "head_s", seconds, left_out=1),
    Column("size over bandwidth", "size_s", seconds, left_out=1),
    Column("contention", "contention_s", seconds),
    Column("waits: transfer", "behind_sent_s", seconds),
    Column("congestion", "behind_queued_s", seconds),
    Column("blocking", "blocked_s", seconds),
)
_WAIT_COLUMNS = (
    Column("level", "level", "L{}".format),
    Column("job", is_name=True),
    Column("lane"),
    Column("packets that waited", "n", ","),
    Column("mean wait", lambda row: row["wait_s"] / row["n"], seconds),
)


def _job_rows(found: Experiment) -> list[dict[str, Any]]:
    return [
        {"name": job.name, "n_ranks": job.n_ranks, "n_hosts": job.n_hosts}
        | {f"t_{name}": getattr(job, name) for name in _TIMES}
        | {"normalised": job.normalised, "slowdown": job.slowdown}
        for job in found.times
    ]


def _term_rows(found: Experiment) -> list[dict[str, Any]]:
    """Times of messages and waits of packets, each summed over the job's first run.

    A packet's wait has three parts (Jokanovic 2014, Eq. 1.2 and 1.3): while the packet already on the link is
    sent, while other packets are sent, and while no packet is sent.
    """
    run = found.sharing
    transfer_s, waits_s = run.transfer_by_s.sum(axis=1), run.blocked_by_s
    terms = (
        run.head_s,
        run.serial_s,
        np.maximum(run.message_s - run.head_s - run.serial_s, 0.0),
        transfer_s,
        np.maximum(waits_s[:, :-1].sum(axis=1) - transfer_s, 0.0),
        np.maximum(waits_s[:, -1], 0.0),
    )
    rows = np.transpose(terms).tolist()
    return [
        {"name": job.name, **dict(zip(_TERMS, row, strict=True))}
        for job, row in zip(run.jobs, rows, strict=True)
    ]


def _wait_rows(found: Experiment) -> list[dict[str, Any]]:
    """Waits of packets by level, job and lane, without rows of 0."""
    run = found.sharing
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


def write_tables(found: Experiment, out: str) -> None:
    """Write a file for each table to the folder `out`, which must be new or empty.

    Raises `UsageError` if the folder has files. Raises `EnvironmentFault` if it cannot be written.
    """
    jobs = [{name.removeprefix("t_"): row[name] for name in row} for row in _job_rows(found)]
    tables = {
        "jobs": {name: [row[name] for row in jobs] for name in jobs[0] if name != "normalised"},
        "ranks": _ranks(found),
        "links": _links(found),
        "windows": _windows(found),
        "waits": _waits(found),
        "blocked": _blocked(found),
    }
    with outputs.folder(out) as folder:
        for name, columns in tables.items():
            write_parquet(columns, os.path.join(folder, f"{name}.parquet"))


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
    """Windows in which a link sent data."""
    run = found.sharing
    window, link = np.nonzero(run.window_bytes)
    return {
        "begin_s": window * run.window_s,
        "link": link,
        "sent_bytes": run.window_bytes[window, link],
        "utilisation_frac": run.utilisation_frac(found.network.link_bps)[window, link],
    }


def _waits(found: Experiment) -> dict[str, Any]:
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


def _blocked(found: Experiment) -> dict[str, Any]:
    """Time that packets of a job waited while another job's packets, or no packets (null), were sent."""
    run = found.sharing
    names: list[str | None] = [job.name for job in run.jobs]
    waiter, sent = np.indices(run.blocked_by_s.shape)
    behind = [*names, None]
    return {
        "job": [names[i] for i in waiter.ravel()],
        "behind": [behind[i] for i in sent.ravel()],
        "wait_s": run.blocked_by_s.ravel(),
        "transfer_s": np.pad(run.transfer_by_s, ((0, 0), (0, 1))).ravel(),
    }


def show_sweep(rows: Sequence[dict[str, Any]]) -> None:
    """Print the times of each job in each row of ``mpicoloc replay --sweep --json``."""
    flags = [Column(flag, is_name=True) for flag in rows[0]["settings"]]
    times = [replace(column, left_out=(1, 2, 0)[i]) for i, column in enumerate(_TIME_COLUMNS[:3])]
    columns = [*flags, Column("job", "name", is_name=True), *times, _SLOWDOWN]
    console().print(listing(columns, [row["settings"] | job for row in rows for job in row["jobs"]], "Sweep"))


def as_json(
    result: Experiment,
    wall_s: float,
    before_host_s: float | None = None,
    host_gflops: float | None = None,
) -> dict[str, Any]:
    """The content of ``mpicoloc replay --json``; values that were not simulated are None.

    `before_host_s` is the host time that jobs lose to each other without the policy (`j_inter_host_s`).
    """
    run, times = result.sharing, result.times
    return {
        "jobs": _job_rows(result),
        "j_inter_host_s": experiment.j_inter_host_s(times),
        "efficiency": experiment.efficiency(before_host_s, experiment.j_inter_host_s(times)),
        "total_contention_s": experiment.total_contention_s(times),
        "lost_gflop": None if host_gflops is None else experiment.lost_gflop(times, host_gflops),
        "routing": "tables" if result.network.has_tables else result.network.routing,
        "n_packet_hops": run.n_packet_hops,
        "n_packets": run.n_packets,
        "n_messages": run.n_messages,
        "n_events": run.n_events,
        "simulated_s": run.end_s,
        "wall_s": wall_s,
        "peak_bytes": run.peak_bytes,
        "waits": _wait_rows(result),
        "blocked_by_s": run.blocked_by_s.tolist(),
        "transfer_by_s": run.transfer_by_s.tolist(),
        "terms": _term_rows(result),
    }


def show(
    result: Experiment,
    wall_s: float,
    before_host_s: float | None = None,
    host_gflops: float | None = None,
) -> None:
    """Print the times of the jobs, and the waits of their packets by place and by cause."""
    out, run = console(), result.sharing
    out.print(listing(_JOB_COLUMNS, _job_rows(result), "Times"))
    if run.n_packets:
        title = "Messages and waits of their packets, summed over all (Jokanovic 2014, Eq. 1.2 and 1.3)"
        out.print(listing(_TERM_COLUMNS, _term_rows(result), title))
    if len(result.jobs) > 1:
        out.print(_blocked_listing(result))
    if run.n_waits.any():
        out.print(listing(_WAIT_COLUMNS, _wait_rows(result), "Where packets waited"))
    rate = f", {run.n_packet_hops / wall_s / 1e6:.3g} million a second" if wall_s > 0 else ""
    out.print(
        f"{counted(run.n_packet_hops, 'packet-hop')} in {seconds(wall_s)}{rate}; jobs lose "
        f"{experiment.j_inter_host_s(result.times):.4g} host seconds to each other",
        highlight=False,
    )
    if host_gflops is not None:
        lost = experiment.lost_gflop(result.times, host_gflops)
        out.print(f"in which hosts of {host_gflops:g} GFLOPS could compute {lost:.4g} GFLOP", highlight=False)
    efficiency = experiment.efficiency(before_host_s, experiment.j_inter_host_s(result.times))
    if before_host_s is not None:
        words = "no time is lost with it" if efficiency is None else f"E(P) = {efficiency:.4g}"
        out.print(f"before: {before_host_s:.4g} host seconds; {words}", highlight=False)


def _blocked_listing(result: Experiment) -> Listing:
    """Time that a job's packets waited while another job's packets were sent, summed over packets."""
    names, waits_s = [job.name for job in result.jobs], result.sharing.blocked_by_s
    columns = [Column("job", names.__getitem__)]
    for j, name in enumerate([*names, "none"]):
        columns.append(Column(f"behind {printable(name)}", waits_s[:, j].__getitem__, seconds))
    return listing(columns, range(len(names)), "Waits of packets, summed over all of them")
