"""Runs side by side, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape

from mpicoloc.core.tables import printable
from mpicoloc.core.units import amount, seconds
from mpicoloc.report.comparison import UNITS
from mpicoloc.report.terminal.listing import Listing
from mpicoloc.report.terminal.output import console
from mpicoloc.slowdown.statistics import Comparison

N_SHOWN = len(UNITS) + 8
N_SIDE_BY_SIDE = 4
"""Groups in one table, which is to have no more than 80 columns."""


def as_json(
    groups: Mapping[str, Sequence[str]],
    found: Mapping[str, Sequence[Comparison]],
    regressions: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """The keys of ``mpicoloc compare --json``; `regressions` are names of a group and of a quantity."""
    rows = [
        {
            **asdict(row),
            "verdict": row.verdict,
            "group": name,
            "is_regression": (name, row.name) in regressions,
        }
        for name, rows in found.items()
        for row in rows
    ]
    return {
        "groups": [{"name": name, "files": list(files)} for name, files in groups.items()],
        "quantities": rows,
        "regressions": list(dict.fromkeys(quantity for _, quantity in regressions)),
    }


def show(found: Mapping[str, Sequence[Comparison]], first: str) -> None:
    """Print the comparisons of groups of runs with the first."""
    output = console()
    if len(found) == 1:
        [(name, rows)] = found.items()
        output.print(_pair(rows, (first, name)))
    else:
        names = list(found)
        for i in range(0, len(names), N_SIDE_BY_SIDE):
            output.print(_side_by_side({name: found[name] for name in names[i : i + N_SIDE_BY_SIDE]}, first))
    judged = [row for rows in found.values() for row in rows if row.is_judged]
    if not any(row.name != "slowdown" for row in judged):
        rows = [row for rows in found.values() for row in rows]
        is_single = all(max(row.n_before, row.n_after) <= 1 for row in rows)
        output.print(f"no verdict: {'one run each' if is_single else 'too few runs'}, give at least 3")
    elif len(found) > 1:
        output.print(
            f"verdicts by Holm, {len(found)} comparisons with {escape(first)}: if a quantity is alike in "
            "all, the chance of any other verdict is 5 %. Intervals: --json"
        )


def _pair(rows: Sequence[Comparison], titles: tuple[str, str]) -> Listing:
    table = _listing(rows, (*titles, "ratio", "95 %", "verdict"), lesser=("95 %", "verdict"))
    for row in rows[:N_SHOWN]:
        ends = f"{row.low:.3f} to {row.high:.3f}" if row.is_judged else ""
        numbers = [_number(row.before, row.unit), _number(row.after, row.unit)]
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        word = "" if row.ratio is None else row.verdict
        table.add_row(escape(printable(row.name)), *numbers, ratio, ends, word)
    return table


def _side_by_side(found: Mapping[str, Sequence[Comparison]], first: str) -> Listing:
    """The value of the first group, and the ratio of each other one to it."""
    columns = list(found.values())
    table = _listing(columns[0], (first, *found))
    for rows in list(zip(*columns, strict=True))[:N_SHOWN]:
        before = _number(rows[0].before, rows[0].unit)
        table.add_row(escape(printable(rows[0].name)), before, *map(_ratio, rows))
    return table


def _ratio(row: Comparison) -> str:
    if row.ratio is None:
        return _number(row.after, row.unit)
    return f"{row.ratio:.3f} {row.verdict}" if row.is_judged else f"{row.ratio:.3f}"


def _listing(rows: Sequence[Comparison], columns: Sequence[str], lesser: Sequence[str] = ()) -> Listing:
    table = Listing(None, ("quantity", *columns), lesser=lesser)
    if len(rows) > N_SHOWN:
        table.caption = f"{len(rows) - N_SHOWN} more functions (--json)"
    return table


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return seconds(value)
    return amount(value) if unit == "bytes" else f"{value:.4g}" if value < 1e3 else f"{value:,.0f}"
