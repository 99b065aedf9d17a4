"""Simulated batch systems on a terminal."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from mpicoloc.batch import sharing_figures
from mpicoloc.batch.metrics import Outcome
from mpicoloc.batch.sharing_figures import PolicyFigures
from mpicoloc.core.units import seconds
from mpicoloc.show.listing import Listing
from mpicoloc.show.output import console
from mpicoloc.show.table import Column, listing


def show(outcome: Outcome, wall_s: float) -> None:
    """Figures of one schedule, and how long the simulation took, s."""
    slowdown, is_long = outcome.bounded_slowdown_mean, outcome.completion_s >= 86400
    table = Listing("Simulated batch system", ["figure", "value"], names=["figure"])
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
    for row in rows:
        table.add_row(*row)
    console().print(table)


def _days(value_s: float) -> str:
    return f"{value_s / 86400:,.2f}"


def _wait(value_s: float | None) -> str:
    return "-" if value_s is None else seconds(value_s)


def show_sharing(found: Sequence[PolicyFigures]) -> None:
    """The policies side by side, and what sharing would have saved."""
    head, *rows = sharing_figures.table(found)
    table = Listing("Sharing of nodes", ["figure", *head[1:]], names=["figure"])
    for row in rows:
        table.add_row(*row)
    console().print(table)
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
