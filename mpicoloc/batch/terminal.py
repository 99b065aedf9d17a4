"""Simulated batch systems on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from mpicoloc.batch import sharing_figures
from mpicoloc.batch.metrics import Outcome, Waits
from mpicoloc.batch.sharing_figures import PolicyFigures
from mpicoloc.core.tables import printable
from mpicoloc.core.units import seconds
from mpicoloc.show.listing import Listing
from mpicoloc.show.output import console


def show(outcome: Outcome, wall_s: float) -> None:
    """Figures of one schedule, and how long the simulation took, s."""
    table = Listing("Simulated batch system", ["figure", "value"], names=["figure"])
    rows = [
        ("jobs", f"{outcome.n_jobs:,}"),
        ("completion", _completion(outcome.completion_s)),
        ("nodes with a job", f"{outcome.utilisation_frac:.1%}"),
        ("wait, mean", _wait(outcome.waits.mean_s)),
        ("wait, mean, in the log", _wait(outcome.log_wait_mean_s)),
        ("wait, median", _wait(outcome.waits.median_s)),
        ("wait, 95 %", _wait(outcome.waits.p95_s)),
        ("wait of jobs that fit a switch, mean", _wait(outcome.small_waits.mean_s)),
        ("wait of larger jobs, mean", _wait(outcome.big_waits.mean_s)),
        ("bounded slowdown, mean", _number(outcome.waits)),
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


def _completion(value_s: float) -> str:
    return f"{value_s / 86400:,.2f} days" if value_s >= 86400 else seconds(value_s)


def _wait(value_s: float | None) -> str:
    return "-" if value_s is None else seconds(value_s)


def _number(waits: Waits) -> str:
    return "-" if waits.bounded_slowdown is None else f"{waits.bounded_slowdown:,.3g}"


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
    flags = list(rows[0]["settings"])
    columns = ["completion, days", "nodes with a job", "wait, mean", "wait, 95 %", "share the network"]
    has_policies = any("policies" in row for row in rows)
    saved = ["saved of the machine"] if has_policies else []
    table = Listing("Sweep", [*flags, *columns, *saved], names=flags, lesser=("wait, 95 %",))
    for row in rows:
        words = [escape(printable(row["settings"][flag])) for flag in flags]
        cells = [
            f"{row['completion_s'] / 86400:,.2f}",
            f"{row['utilisation_frac']:.1%}",
            _wait(row["wait_mean_s"]),
            _wait(row["wait_p95_s"]),
            f"{row['sharing_jobs_frac']:.1%}",
        ]
        table.add_row(*words, *cells, *([_saved(row)] if has_policies else []))
    console().print(table)


def _saved(row: dict[str, Any]) -> str:
    """What the last policy saved, if there is something to compare it with."""
    saved = row["policies"][-1]["saved_frac"] if "policies" in row else None
    return "-" if saved is None else f"{saved['value']:.1%}"
