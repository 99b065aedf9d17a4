"""Where tables are printed."""

from __future__ import annotations

import re
import sys
from typing import IO, Any, TextIO, cast

from rich.console import Console

from mpicoloc.core.tables import printable

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
