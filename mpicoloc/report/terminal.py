"""Where tables are printed."""

from __future__ import annotations

import sys

from rich.console import Console

from mpicoloc.core.tables import printable

WIDTH = 120
"""Columns in a pipe or a batch log, where there is no terminal to measure."""


class _Output(Console):
    """Standard output, whose reader may go away: that is no failure of the command."""

    def on_broken_pipe(self) -> None:
        """Leave it to `cli.main`; rich would exit with code 1, which is an answer of some verbs."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output."""
    return _Output(width=None if sys.stdout.isatty() else WIDTH, highlight=False)


def write(text: str) -> None:
    """Lines for a program, as they are; on a terminal without what of a foreign file it would obey."""
    if sys.stdout.isatty():
        text = "\n".join(map(printable, text.split("\n")))
    sys.stdout.write(text)
