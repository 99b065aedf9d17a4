"""The jobs of a folder as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.markup import escape

from mpicoloc.core.tables import printable
from mpicoloc.report.listing import Listing
from mpicoloc.report.table import counted, seconds
from mpicoloc.report.terminal import console

_COMMAND_LETTERS = 40
_TITLES = ("began", "job", "command", "ranks", "nodes", "time", "slowdown", "95 %", "fair SU")
_LESSER = ("nodes", "95 %", "command", "fair SU", "ranks", "began")


def show(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows of `store.history.history`, a line for each that could be read."""
    known = [job for job in jobs if job["trouble"] is None]
    table = Listing(counted(len(known), "job"), _TITLES, names=("job", "command"), lesser=_LESSER)
    for job in known:
        table.add_row(*map(escape, _cells(job)))
    console().print(table)


def _when(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s).isoformat(" ", "minutes")
    except (OverflowError, OSError, ValueError):  # of a stranger's profile
        return "?"


def _cells(job: Mapping[str, Any]) -> list[str]:
    is_known = job["slowdown"] is not None
    return [
        _when(job["start_unix_s"]),
        printable(job["job"]) + (" (partial)" if job["partial"] else ""),
        printable(job["command"])[:_COMMAND_LETTERS],
        f"{job['n_ranks']:,.0f}",
        f"{job['n_nodes']:,.0f}",
        seconds(job["wall_s"]),
        f"{job['slowdown']:.3f}" if is_known else "-",
        f"{job['slowdown_low']:.2f} to {job['slowdown_high']:.2f}" if is_known else "",
        "-" if job["fair_su"] is None else f"{job['fair_su']:.4g}",
    ]
