"""What a campaign has measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rich.markup import escape

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.tables import printable
from mpicoloc.report.terminal.listing import Listing
from mpicoloc.report.terminal.output import console
from mpicoloc.report.terminal.slowdowns import as_row
from mpicoloc.slowdown import corun


class Measured(Protocol):
    """An experiment that was made."""

    @property
    def runs(self) -> Sequence[corun.TimedRun]:
        """Its runs."""


class Planned(Protocol):
    """An experiment that would be made."""

    @property
    def kind(self) -> str:
        """Alone or a pair."""

    @property
    def i_round(self) -> int:
        """Its round."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its programs."""


def show_plan(todo: Sequence[Planned], expected_s: Sequence[float | None], *, is_json: bool) -> None:
    """Print the experiments that would be made; as JSON with the times that they are expected to take, s."""
    if not is_json:
        for each in todo:
            print(f"{each.i_round} {each.kind} {' '.join(each.names)}")
        return
    rows = [
        {"round": each.i_round, "names": each.names, "expected_s": time_s}
        for each, time_s in zip(todo, expected_s, strict=True)
    ]
    print(json.dumps({"experiments": rows}, indent=2, allow_nan=False))


def slowdowns(done: Iterable[Measured], names: Sequence[str]) -> list[corun.Slowdown]:
    """Slowdowns of the programs of these names beside each other."""
    found = corun.slowdowns([each.runs for each in done])
    return [each for each in found if {each.target, each.co_runner} <= set(names)]


def as_json(found: Sequence[corun.Slowdown], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Every slowdown with its interval, and with programs and sizes (`JobFeatures.kind`) that are known."""
    rows = [
        as_row(
            (each.target, kinds.get(each.target)),
            [(each.co_runner, kinds.get(each.co_runner))],
            each.slowdown,
        )
        for each in found
    ]
    return {"slowdowns": rows}


def show(found: Sequence[corun.Slowdown], names: Sequence[str]) -> None:
    """Print a row for each program: its slowdown beside each other one."""
    by_names = {(each.target, each.co_runner): each.slowdown for each in found}
    shown = [escape(printable(name)) for name in names]
    table = Listing("slowdown, 95 %", ("beside", *map(printable, names)))
    for name, target in zip(shown, names, strict=True):
        cells = [by_names.get((target, co_runner)) for co_runner in names]
        table.add_row(name, *("-" if cell is None else _text(cell) for cell in cells))
    console().print(table)


def _text(cell: Estimate) -> str:
    return f"{cell.value:.2f} ({cell.low:.2f}-{cell.high:.2f})"


def unknown(done: Iterable[Measured], found: Sequence[corun.Slowdown], names: Sequence[str]) -> list[str]:
    """In words: pairs that were run and of which no slowdown is known."""
    known = {(each.target, each.co_runner) for each in found}
    made = {(run.program, other.program) for each in done for run in each.runs for other in each.runs
            if run.place != other.place}  # fmt: skip
    wanted = {pair for pair in made - known if set(pair) <= set(names)}
    return [f"{target} beside {co_runner}: not known" for target, co_runner in sorted(wanted)]
