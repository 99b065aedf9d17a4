"""Simulated batch systems as Parquet files: jobs, events, runs and policies; of a sweep one row a run."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mpicoloc.batch import metrics, sharing_figures
from mpicoloc.batch.comparison import Case, Centre, SharedRun
from mpicoloc.batch.job_log import JobLog
from mpicoloc.batch.metrics import Outcome
from mpicoloc.batch.sharing_figures import PolicyFigures, as_json
from mpicoloc.batch.study import Result
from mpicoloc.core.units import seconds
from mpicoloc.job import sweep
from mpicoloc.show import outputs
from mpicoloc.show.table import Column, console, listing, word_columns, write_parquet


def show(outcome: Outcome, wall_s: float) -> None:
    """Figures of one schedule, and how long the simulation took, s."""
    slowdown, is_long = outcome.bounded_slowdown_mean, outcome.completion_s >= 86400
    rows = [
        ("jobs", f"{outcome.n_jobs:,}"),
        ("completion", f"{_days(outcome.completion_s)} days" if is_long else seconds(outcome.completion_s)),
        ("nodes with a job", f"{outcome.utilisation_frac:.1%}"),
        ("wait, mean", _wait(outcome.wait_mean_s)),
        ("wait, mean, in the log", _wait(outcome.log_wait_mean_s)),
        ("wait, median", _wait(outcome.wait_median_s)),
        ("wait, 95 %", _wait(outcome.wait_p95_s)),
        ("wait of jobs that fit a switch, mean", _wait(outcome.small_wait_mean_s)),
        ("wait of larger jobs, mean", _wait(outcome.big_wait_mean_s)),
        ("bounded slowdown, mean", "-" if slowdown is None else f"{slowdown:,.3g}"),
        ("jobs that share the network", f"{outcome.sharing_jobs_frac:.1%}"),
        ("jobs with which one shares it, mean", f"{outcome.sharing_jobs_mean:.3g}"),
        *((f"pairs that share links of level {i}", f"{n:,}") for i, n in outcome.pairs_by_level.items()),
        *(
            (f"subtrees of level {level} of a job, mean", f"{mean:.3g}")
            for level, mean in enumerate(outcome.subtrees_mean, 1)
        ),
        ("simulated in", seconds(wall_s)),
    ]
    console().print(listing(word_columns(("figure", "value")), rows, "Simulated batch system"))


def _days(value_s: float) -> str:
    return f"{value_s / 86400:,.2f}"


def _wait(value_s: float | None) -> str:
    return "-" if value_s is None else seconds(value_s)


def show_sharing(found: Sequence[PolicyFigures]) -> None:
    """The policies side by side, and what sharing would have saved."""
    head, *rows = sharing_figures.table(found)
    console().print(listing(word_columns(("figure", *head[1:])), rows, "Sharing of nodes"))
    for line in sharing_figures.sentences(found):
        console().print(line)


def show_sweep(rows: Sequence[dict[str, Any]]) -> None:
    """Figures of each row of a sweep; `rows` are what ``mpicoloc batch --sweep --json`` prints."""
    columns = [
        *(Column(flag, functools.partial(_setting, flag=flag), is_name=True) for flag in rows[0]["settings"]),
        Column("completion, days", "completion_s", _days),
        Column("nodes with a job", "utilisation_frac", ".1%"),
        Column("wait, mean", "wait_mean_s", seconds),
        Column("wait, 95 %", "wait_p95_s", seconds, left_out=1),
        Column("share the network", "sharing_jobs_frac", ".1%"),
    ]
    if any("policies" in row for row in rows):
        columns.append(Column("saved of the machine", _saved_frac, ".1%"))
    console().print(listing(columns, rows, "Sweep"))


def _setting(row: dict[str, Any], flag: str) -> str:
    return str(row["settings"][flag])


def _saved_frac(row: dict[str, Any]) -> float | None:
    """What the last policy saved, if there is something to compare it with."""
    saved = row["policies"][-1]["saved_frac"] if "policies" in row else None
    return None if saved is None else float(saved["value"])


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
