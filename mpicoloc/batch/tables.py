"""Simulated batch systems as Parquet files: jobs, events, runs and policies; of a sweep one row a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpicoloc.batch import metrics
from mpicoloc.batch.comparison import Case, Centre, SharedRun
from mpicoloc.batch.job_log import JobLog
from mpicoloc.batch.sharing_figures import as_json
from mpicoloc.batch.study import Result
from mpicoloc.job import sweep
from mpicoloc.show import outputs
from mpicoloc.show.table import write_parquet

POLICIES = "policies.parquet"
"""Of a sweep: a row for each combination, sharing policy and figure; not there where no jobs share nodes."""
_NOT_FIGURES = ("notes", "settings", "policies", "n_seeds", "sentences")


def write(found: Result, out: str) -> None:
    """Write a file for each table to the folder `out`, which must be new or empty.

    Raises `UsageError` if something is there. Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    centre, of_seed = found.study.centre, {case.seed: case for case in found.study.cases}
    tables = {
        "jobs": pa.concat_tables([_jobs(centre, of_seed[run.seed], run) for run in found.runs]),
        "events": pa.concat_tables([_events(run) for run in found.runs]),
    }
    rows = {
        "runs": [
            {"sharing": run.sharing, "seed": run.seed, **_flat(vars(run.outcome)), **vars(run.costs)}
            for run in found.runs
        ],
        "policies": _policies(as_json(found.figures)["policies"]),
    }
    with outputs.folder(out) as folder:
        for name, table in tables.items():
            pq.write_table(table, os.path.join(folder, f"{name}.parquet"), compression="zstd")
        for name, own in rows.items():
            write_parquet(own, os.path.join(folder, f"{name}.parquet"))


def write_sweep(rows: Sequence[dict[str, Any]], folder: str) -> None:
    """Write what ``mpicoloc batch --sweep --json`` prints to a folder, in place of earlier tables.

    Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    sweep.replace_table([{**row["settings"], **_flat(row)} for row in rows], folder)
    policies = [
        {**row["settings"], **figure} for row in rows for figure in _policies(row.get("policies", ()))
    ]
    if policies:
        sweep.replace_table(policies, folder, POLICIES)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, POLICIES))  # of other rows


def _jobs(centre: Centre, case: Case, run: SharedRun) -> pa.Table:
    work, schedule = centre.workload, run.schedule
    log, n = work.log, len(work)
    names = np.array(case.names, object)
    return pa.table(
        {
            "sharing": [run.sharing] * n,
            "seed": np.full(n, run.seed),
            "job": log.number,
            "user": _named(log, "user"),
            "executable": _named(log, "program"),
            "program": pa.array(names[case.programs] if len(names) else [None] * n, pa.string()),
            "n_nodes": work.n_nodes,
            "submit_s": schedule.arrival_s,
            "begin_s": schedule.start_s,
            "end_s": schedule.end_s,
            "wait_s": schedule.start_s - schedule.arrival_s,
            "run_alone_s": log.run_s,
            "estimate_s": work.estimate_s,
            "slowdown": metrics.slowdowns(work, schedule),
            "nodes": [_nodes(runs) for runs in run.record.runs],
            "beside_jobs": pa.array(
                [log.number[sorted(run.record.beside.get(job, ()))].tolist() for job in range(n)],
                pa.list_(pa.int64()),
            ),
            "n_network_sharers": run.links.n_sharers,
        }
    )


def _named(log: JobLog, column: str) -> pa.Array:
    """Names of users or programs where the log tells them, else their numbers."""
    numbers, names = getattr(log, column), log.names.get(column)
    if names is None:
        return pa.array(numbers)
    return pa.array([names.get(number) for number in numbers.tolist()], pa.string())


def _nodes(runs: Sequence[tuple[int, int]]) -> str:
    """Numbers of nodes as Slurm writes lists: ``0-15,18``."""
    return ",".join(str(first) if n == 1 else f"{first}-{first + n - 1}" for first, n in runs)


def _events(run: SharedRun) -> pa.Table:
    """The state after each instant at which a job began or ended."""
    time_s, busy = (np.array(column) for column in zip(*run.record.busy, strict=True))
    is_last = np.append(np.diff(time_s) > 0, True)
    time_s, busy = time_s[is_last], busy[is_last]
    arrived, begun, ended = (
        np.searchsorted(np.sort(times_s), time_s, side="right")
        for times_s in (run.schedule.arrival_s, run.schedule.start_s, run.schedule.end_s)
    )
    return pa.table(
        {
            "sharing": [run.sharing] * len(time_s),
            "seed": np.full(len(time_s), run.seed),
            "time_s": time_s,
            "n_busy_nodes": busy,
            "n_waiting_jobs": arrived - begun,
            "n_running_jobs": begun - ended,
        }
    )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of one run as columns: ``pairs_level_1`` and ``subtrees_level_1`` for the first level."""
    told = {name: value for name, value in row.items() if name not in _NOT_FIGURES}
    pairs, subtrees = told.pop("pairs_by_level"), told.pop("subtrees_mean")
    told |= {f"pairs_level_{level}": n for level, n in pairs.items()}
    return told | {f"subtrees_level_{level}": mean for level, mean in enumerate(subtrees, 1)}


def _policies(policies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Figures of policies over seeds, one a row; what was not measured is left out."""
    found = []
    for policy in policies:
        charged = {f"charged_su {name}": value for name, value in policy["charged_su"].items()}
        for figure, value in {**policy, **charged}.items():
            if isinstance(value, dict) and "low" in value:
                found.append({"sharing": policy["sharing"], "figure": figure, **value})
    return found
