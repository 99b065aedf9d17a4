"""The jobs of a folder as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.markup import escape

from mpicoloc.core.tables import printable
from mpicoloc.core.units import counted, seconds
from mpicoloc.measure import processor
from mpicoloc.report.terminal.listing import Listing
from mpicoloc.report.terminal.output import console

_COMMAND_LETTERS = 40
_TITLES = ("began", "job", "command", "ranks", "nodes", "time", "slowdown", "95 %", "run delay", "fair SU")
_LESSER = ("nodes", "95 %", "command", "fair SU", "ranks", "began", "run delay")
_RUN_DELAY = (
    "run delay: part of the time that the ranks were ready to run but had no processor; without a co-runner "
    "under mpicoloc no slowdown has it"
)


def show(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows of `profile.history.history`, a line for each that could be read."""
    known = [job for job in jobs if job["trouble"] is None]
    table = Listing(counted(len(known), "job"), _TITLES, names=("job", "command"), lesser=_LESSER)
    for job in known:
        table.add_row(*map(escape, _cells(job)))
    if any(_run_delay(job) for job in known):
        table.caption = _RUN_DELAY
    console().print(table)


def _when(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s).isoformat(" ", "minutes")
    except (OverflowError, OSError, ValueError):  # of a stranger's profile
        return "?"


def _run_delay(job: Mapping[str, Any]) -> str:
    """The part of its time that a job lost, where no slowdown tells of it."""
    names = ("slowdown_method", "wall_s", "n_ranks", "cpu_s", "run_delay_s")
    frac = processor.notable_run_delay_frac(*(job[name] for name in names))
    return "" if frac is None else f"{frac:.0%}"


def _cells(job: Mapping[str, Any]) -> list[str]:
    is_known = job["slowdown"] is not None
    interval = f"{job['slowdown_low']:.2f} to {job['slowdown_high']:.2f}" if is_known else ""
    is_alone = job["slowdown_method"] == processor.ALONE
    return [
        _when(job["start_unix_s"]),
        printable(job["job"]) + (" (partial)" if job["partial"] else ""),
        printable(job["command"])[:_COMMAND_LETTERS],
        f"{job['n_ranks']:,.0f}",
        f"{job['n_nodes']:,.0f}",
        seconds(job["wall_s"]),
        "1" if is_alone else f"{job['slowdown']:.3f}" if is_known else "-",
        "no co-runner" if is_alone else interval,
        _run_delay(job),
        "-" if job["fair_su"] is None else f"{job['fair_su']:.4g}",
    ]
