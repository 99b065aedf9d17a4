"""Lines on standard error: problems are always printed, notes unless -q was given, details only with -v."""

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
    """Print lines of this level and below while the block runs."""
    global _level, _print
    before = _level, _print
    _level, _print = level, print_line
    try:
        yield
    finally:
        _level, _print = before


def level() -> int:
    """The current level."""
    return _level


def is_verbose() -> bool:
    """Whether -v was given. Verbs then also print their results in full."""
    return _level >= VERBOSE


def is_wanted() -> bool:
    """Whether somebody wants to read notes: -v was given, or standard error is a terminal and -q was not."""
    return _level >= VERBOSE or (_level > QUIET and sys.stderr.isatty())


def detail(words: str) -> None:
    """Print a line on the work in progress, if -v was given."""
    if is_verbose():
        trouble(words)


def note(words: str) -> None:
    """Print a line that readers of the results should see, unless -q was given."""
    if _level > QUIET:
        trouble(words)


def trouble(words: str) -> None:
    """Print a line on a problem.

    Control characters are replaced: the words may come from an untrusted file, and must not control the
    terminal.
    """
    words = printable(words)
    # A closed pipe or a full disk must neither end the command nor change its exit code.
    with contextlib.suppress(OSError):
        if _print is None:
            print(f"mpicoloc: {words}", file=sys.stderr)
        else:
            _print(f"mpicoloc: {words}")
