"""Lines on standard error: troubles, notes unless -q was given, details with -v."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from mpicoloc.errors import printable

QUIET, NORMAL, VERBOSE = -1, 0, 1
_level = NORMAL
_print: Callable[[str], None] | None = None


@contextlib.contextmanager
def at_level(level: int, print_line: Callable[[str], None] | None = None) -> Iterator[None]:
    """Write lines of this level and below while the block runs.

    Parameters
    ----------
    level : int
        `QUIET`, `NORMAL` or `VERBOSE`.
    print_line : callable, optional
        Prints a line where progress bars stand on the terminal.
    """
    global _level, _print
    before = _level, _print
    _level, _print = level, print_line
    try:
        yield
    finally:
        _level, _print = before


def level() -> int:
    """The level now."""
    return _level


def is_verbose() -> bool:
    """Whether -v was given; then results, too, are printed in full."""
    return _level >= VERBOSE


def is_wanted() -> bool:
    """Whether notes are read: -v was given, or standard error is a terminal and -q was not given."""
    return _level >= VERBOSE or (_level > QUIET and sys.stderr.isatty())


def detail(words: str) -> None:
    """One line of what is done, with -v."""
    if is_verbose():
        trouble(words)


def note(words: str) -> None:
    """One line that a reader of the results should know."""
    if _level > QUIET:
        trouble(words)


def trouble(words: str) -> None:
    """One line of what went wrong.

    Control characters are escaped: the words may come from a foreign file, which no terminal must obey.
    """
    words = printable(words)
    # The work goes on, with its own exit code, where nobody listens any more or the disk is full.
    with contextlib.suppress(OSError):
        if _print is None:
            print(f"mpicoloc: {words}", file=sys.stderr)
        else:
            _print(f"mpicoloc: {words}")
