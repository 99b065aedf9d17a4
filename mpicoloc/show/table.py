"""Columns of tables, described once for rows that are dicts, dataclasses or rows of a profile's tables."""

from __future__ import annotations

import math
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

import numpy as np
from rich.console import Console

from mpicoloc.core.profile import Estimate, text
from mpicoloc.errors import printable

if TYPE_CHECKING:
    from mpicoloc.show.listing import Listing


WIDTH = 120
"""Columns in a pipe or a batch log, where there is no terminal to measure."""


class _Output(Console):
    """Standard output, whose reader may go away: that is no failure of the command."""

    def on_broken_pipe(self) -> None:
        """Leave it to `cli.main`; rich would exit with code 1, which is an answer of some verbs."""
        raise BrokenPipeError


class _Trimmed:
    """A pipe or a file without the blanks with which rich fills its lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write whole lines."""
        return self._stream.write(re.sub(r" +\n", "\n", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console() -> Console:
    """Standard output."""
    if sys.stdout.isatty():
        return _Output(highlight=False)
    return _Output(width=WIDTH, highlight=False, file=cast("IO[str]", _Trimmed(sys.stdout)))


def write(text: str) -> None:
    """Lines for a program, as they are; on a terminal without what of a foreign file it would obey."""
    if sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    sys.stdout.write(text)


@dataclass(frozen=True)
class Column:
    """One column of a terminal's table.

    Parameters
    ----------
    header : str
        Words above it.
    value : str or callable
        Key or attribute of a row that holds the value, or a function of the row; default the header.
    form : str or callable
        A format specification, which an `Estimate` applies to its value, or a function that makes text.
    is_name : bool
        It stands to the left and may fold. Where no column does, the first one is a name.
    left_out : int
        On a narrow terminal columns above 0 can be left out, 1 first.
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
        """The cell of a row, without characters that a terminal would obey."""
        value = self.of(row)
        if isinstance(value, bytes):
            value = text(value)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return self.missing
        if callable(self.form):
            return printable(self.form(value))
        return printable(format(value.value if isinstance(value, Estimate) else value, self.form))


def word_columns(header: Iterable[str]) -> list[Column]:
    """Columns for rows that are texts in the order of the header."""
    return [Column(name, operator.itemgetter(i)) for i, name in enumerate(header)]


def interval(found: Estimate, form: str = ".2f") -> str:
    """The ends of an estimate's interval."""
    return f"{found.low:{form}} to {found.high:{form}}"


def listing(
    columns: Sequence[Column], rows: Iterable[Any], title: str | None = None, notes: Iterable[str] = ()
) -> Listing:
    """The rows as a table for a terminal; `title` is markup, `notes` are lines below it, as they are."""
    from rich.markup import escape

    from mpicoloc.show.listing import Listing

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
    """Rows, or columns by name, as a Parquet file; what a row lacks is null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(rows, Mapping):
        table = pa.table(dict(rows))
    else:
        names = dict.fromkeys(name for row in rows for name in row)
        table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
    pq.write_table(table, path, compression="zstd")
