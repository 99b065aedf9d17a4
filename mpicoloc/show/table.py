"""Tables for the terminal: columns described once, for rows that are dicts, dataclasses or NumPy records.

On narrow terminals the less important columns are left out first, and numbers are never cut.
"""

from __future__ import annotations

import copy
import math
import operator
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, TextIO, cast

import numpy as np
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column as RichColumn, Table
from rich.text import Text

from mpicoloc.core.profile import Estimate, text
from mpicoloc.core.units import ends
from mpicoloc.errors import printable

NARROW_LETTERS, HEADER_LETTERS = 16, 12
"""Widths at which names fold and headers wrap on a narrow terminal."""


class Listing(Table):
    """A table with a column of names and columns of numbers.

    If it is too wide, its headers wrap; then less important columns are left out and named below the table;
    if it is still too wide, it is shown as one record per row.

    Parameters
    ----------
    title : str
        Title, as markup.
    columns : sequence of str
        Headers.
    names : sequence of str, optional
        Headers of the left-aligned columns, which can fold; default: the first one.
    lesser : sequence of str
        Headers of the columns that can be left out, the least important first.
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
        """Yield the lines; rich calls this method."""
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

    def _with(self, columns: Sequence[RichColumn]) -> Table:
        """The same table with only these columns, and wrapped headers."""
        narrow = copy.copy(self)
        narrow.padding = (0, 1, 0, 0)
        narrow.columns = [
            replace(column, header=_wrapped(str(column.header)), _index=i) for i, column in enumerate(columns)
        ]
        gone = [str(column.header) for column in self.columns if column not in columns]
        if gone:
            line = f"columns left out: {'; '.join(gone)}"
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


def _wrapped(header: str) -> Text:
    return Text(textwrap.fill(header, HEADER_LETTERS, break_long_words=False))


def _fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Whether the table fits if names fold at `NARROW_LETTERS`."""
    tried = copy.copy(table)
    tried.title = tried.caption = None
    tried.columns = [
        column if column.no_wrap else replace(column, max_width=NARROW_LETTERS) for column in table.columns
    ]
    wide = options.update(max_width=10_000)
    return Measurement.get(console, wide, _plain(tried)).maximum <= options.max_width


def _plain(table: Table) -> Table:
    """The table as an instance of rich's own class."""
    plain = copy.copy(table)
    plain.__class__ = Table
    return plain


WIDTH = 120
"""Columns of output to a pipe or a batch log, which have no width of their own."""


class _Output(Console):
    """Standard output; a reader that closes the pipe is not an error."""

    def on_broken_pipe(self) -> None:
        """Raise the error for `cli.main`; rich would exit with code 1, which some verbs use as a result."""
        raise BrokenPipeError


class _Trimmed:
    """A pipe or file that drops the blanks with which rich pads the ends of lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text without blanks at the ends of lines."""
        return self._stream.write(re.sub(r" +\n", "\n", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console() -> Console:
    """A console for standard output."""
    if sys.stdout.isatty():
        return _Output(highlight=False)
    return _Output(width=WIDTH, highlight=False, file=cast("IO[str]", _Trimmed(sys.stdout)))


def write(text: str) -> None:
    """Write machine-readable text; on a terminal without control characters, which foreign files can have."""
    if sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    sys.stdout.write(text)


@dataclass(frozen=True)
class Column:
    """One column of a table for the terminal.

    Parameters
    ----------
    header : str
        Header of the column.
    value : str or callable
        Key or attribute of a row with the value, or a function of the row; default: the header.
    form : str or callable
        Format specification (for an `Estimate`, of its value), or a function that returns the text.
    is_name : bool
        Whether the column is left-aligned and can fold. If no column is a name, the first one becomes one.
    left_out : int
        0: the column is always shown. Otherwise, it can be left out on a narrow terminal; 1 is left out
        first.
    missing : str
        Text for None and NaN.
    """

    header: str
    value: str | Callable[[Any], Any] = ""
    form: str | Callable[[Any], str] = ""
    is_name: bool = False
    left_out: int = 0
    missing: str = "-"

    def of(self, row: Any) -> Any:
        """The value in a row."""
        if callable(self.value):
            return self.value(row)
        key = self.value or self.header
        return row[key] if isinstance(row, Mapping | np.void) else getattr(row, key)

    def text(self, row: Any) -> str:
        """The cell's text in a row, without control characters."""
        value = self.of(row)
        if isinstance(value, bytes):
            value = text(value)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return self.missing
        if callable(self.form):
            return printable(self.form(value))
        return printable(format(value.value if isinstance(value, Estimate) else value, self.form))


def word_columns(header: Iterable[str]) -> list[Column]:
    """Columns for rows that are sequences of texts, in order of the header."""
    return [Column(name, operator.itemgetter(i)) for i, name in enumerate(header)]


def interval(found: Estimate, form: str = ".3f") -> str:
    """The ends of an estimate's interval; ``-`` if there is none, or if both ends round to the same."""
    return ends(found.low, found.high, form) or "-"


def interval_notes(slowdowns: Iterable[Estimate]) -> list[str]:
    """A note that explains ``-``, if a predicted slowdown has no interval."""
    has_all = all(ends(found.low, found.high) for found in slowdowns)
    return [] if has_all else ["-: the job is alone, or the file has no low and high ends"]


def with_interval(found: Estimate, form: str) -> str:
    """An estimate's value, and its interval if it has one."""
    interval = ends(found.low, found.high, form)
    return f"{found.value:{form}}" + (f" ({interval})" if interval else "")


def listing(
    columns: Sequence[Column], rows: Iterable[Any], title: str | None = None, notes: Iterable[str] = ()
) -> Listing:
    """The rows as a table for a terminal; `title` is markup, `notes` are lines of plain text below it."""
    from rich.markup import escape

    lesser = sorted((column for column in columns if column.left_out), key=lambda column: column.left_out)
    table = Listing(
        title,
        [column.header for column in columns],
        names=[column.header for column in columns if column.is_name] or None,
        lesser=[column.header for column in lesser],
    )
    for row in rows:
        table.add_row(*(escape(column.text(row)) for column in columns))
    table.caption = "\n".join(escape(printable(note)) for note in notes)
    return table


def write_parquet(
    rows: Sequence[Mapping[str, Any]] | Mapping[str, Any], path: str | os.PathLike[str]
) -> None:
    """Write rows, or columns by name, as a Parquet file; values that a row lacks become null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(rows, Mapping):
        table = pa.table(dict(rows))
    else:
        names = dict.fromkeys(name for row in rows for name in row)
        table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
    pq.write_table(table, path, compression="zstd")
