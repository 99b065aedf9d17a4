"""A sweep of replays as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from mpicoloc.core.tables import printable
from mpicoloc.core.units import seconds
from mpicoloc.report.terminal.listing import Listing
from mpicoloc.report.terminal.output import console


def show(rows: Sequence[dict[str, Any]]) -> None:
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
