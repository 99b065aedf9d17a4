"""Results of a replay as Parquet files in one folder: jobs, ranks, links, windows of links, waits."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpicoloc.replay.experiment import Experiment
from mpicoloc.show import outputs


def write(found: Experiment, out: str) -> None:
    """Write a file for each table to the folder `out`, which must be new or empty.

    Raises `UsageError` if something is there. Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    with outputs.folder(out) as folder:
        for name, columns in _tables(found).items():
            pq.write_table(pa.table(columns), os.path.join(folder, f"{name}.parquet"), compression="zstd")


def _tables(found: Experiment) -> dict[str, dict[str, Any]]:
    return {
        "jobs": _jobs(found),
        "ranks": _ranks(found),
        "links": _links(found),
        "windows": _windows(found),
        "waits": _waits(found),
        "blocked": _blocked(found),
    }


def _jobs(found: Experiment) -> dict[str, Any]:
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
