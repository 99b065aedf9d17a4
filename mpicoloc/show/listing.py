"""Tables that stay readable on narrow terminals: lesser columns go first, and no number is cut."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

NARROW_LETTERS = 12
"""Names of things fold, and headers wrap, at this width where there is little room."""


class Listing(Table):
    """A table with a column of names and columns of numbers.

    Where it is too wide, its headers wrap, then lesser columns are left out and named below it, and what is
    too wide even then is shown record after record.

    Parameters
    ----------
    title : str
        Markup.
    columns : sequence of str
        Headers.
    names : sequence of str, optional
        Those that stand to the left and may fold; default the first one.
    lesser : sequence of str
        Those that can be left out, the least first.
    """

    def __init__(
        self,
        title: str | None,
        columns: Sequence[str],
        *,
        names: Sequence[str] | None = None,
        lesser: Sequence[str] = (),
    ) -> None:
        super().__init__(
            title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
        )
        self.caption_justify = "left"
        self._lesser = list(lesser)
        for name in columns:
            is_name = name in (columns[:1] if names is None else names)
            self.add_column(
                Text(name), justify="left" if is_name else "right", overflow="fold", no_wrap=not is_name
            )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Rich asks for the lines of it."""
        if _fits(self, console, options):
            yield from super().__rich_console__(console, options)
            return
        kept = list(self.columns)
        for gone in [None, *self._lesser]:
            kept = [column for column in kept if str(column.header) != gone]
            narrow = self._with(kept)
            if _fits(narrow, console, options):
                yield from Table.__rich_console__(narrow, console, options)
                return
        yield from self._records(console, options)

    def _with(self, columns: Sequence[Column]) -> Table:
        """The same with these columns, their headers wrapped."""
        narrow = copy.copy(self)
        narrow.padding = (0, 1, 0, 0)
        narrow.columns = [
            replace(column, header=Text(textwrap.fill(str(column.header), NARROW_LETTERS)), _index=i)
            for i, column in enumerate(columns)
        ]
        gone = [str(column.header) for column in self.columns if column not in columns]
        if gone:
            line = f"no room here for: {'; '.join(gone)}"
            narrow.caption = f"{self.caption}\n{line}" if self.caption else line
        return narrow

    def _records(self, console: Console, options: ConsoleOptions) -> Iterator[Table | Text | str]:
        if self.title:
            yield Text.from_markup(str(self.title), style="bold")
        first, *others = self.columns
        cells = list(zip(*(column.cells for column in others), strict=True))
        for name, row in zip(first.cells, cells, strict=True):
            yield Text.from_markup(str(name), overflow="fold")
            record = Table(box=None, show_header=False, pad_edge=False)
            record.add_column(style="dim", overflow="fold", max_width=options.max_width // 2)
            record.add_column(overflow="fold")
            for column, cell in zip(others, row, strict=True):
                if cell:
                    record.add_row(Text(f"  {column.header}"), cell)
            yield record
        if self.caption:
            yield Text.from_markup(str(self.caption), style="dim")


def _fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Whether only names must fold, and those not below `NARROW_LETTERS`."""
    tried = copy.copy(table)
    tried.title = tried.caption = None
    tried.columns = [
        column if column.no_wrap else replace(column, max_width=NARROW_LETTERS) for column in table.columns
    ]
    wide = options.update(max_width=10_000)
    return Measurement.get(console, wide, _plain(tried)).maximum <= options.max_width


def _plain(table: Table) -> Table:
    """A table of Rich's own class."""
    plain = copy.copy(table)
    plain.__class__ = Table
    return plain
