"""What goes to standard error: notes, troubles, with -v what is done, and bars. With -q only troubles."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mpicoloc.cli import helping
from mpicoloc.core import progress

if TYPE_CHECKING:
    from mpicoloc.report.terminal.progress import Watch

QUIET, NORMAL, VERBOSE = -1, 0, 1
_level = NORMAL
_watch: Watch | None = None
_QUIET_FLAGS, _VERBOSE_FLAGS = ("-q", "--quiet"), ("-v", "--verbose")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags -q and -v of a verb, and of the words that may follow it."""
    how = parser.add_mutually_exclusive_group()
    # Suppressed where it is not given, so that an action does not undo what stood before it.
    words: dict[str, Any] = {"action": "store_const", "dest": "level", "default": argparse.SUPPRESS}
    how.add_argument(*_QUIET_FLAGS, const=QUIET, help="errors and results only: no notes, no bars", **words)
    how.add_argument(
        *_VERBOSE_FLAGS, const=VERBOSE, help="print each step, its time, and more results", **words
    )
    for child in helping.actions_of(parser).values():
        add_flags(child)


def leading(argv: Sequence[str]) -> tuple[int, list[str]]:
    """The level that flags before the verb ask for, and the rest of the words."""
    level, rest = NORMAL, list(argv)
    while rest and rest[0] in (*_QUIET_FLAGS, *_VERBOSE_FLAGS):
        level = QUIET if rest.pop(0) in _QUIET_FLAGS else VERBOSE
    return level, rest


@contextlib.contextmanager
def at(level: int, what: str) -> Iterator[None]:
    """Tell as much as this level says of the work in the block, which is `what`."""
    global _level, _watch
    before = _level, _watch
    began_s = time.monotonic()
    _level, _watch = level, _new_watch(level)
    try:
        with progress.watched(_watch):
            yield
        detail(f"{what}: {time.monotonic() - began_s:.2f} s in all")
    finally:
        _level, _watch = before


def _new_watch(level: int) -> Watch | None:
    has_bars = level > QUIET and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    if not has_bars and level < VERBOSE:
        return None
    from mpicoloc.report.terminal.progress import Watch

    return Watch(has_bars=has_bars, tell=detail if level >= VERBOSE else None)


def flags() -> list[str]:
    """The flag by which another call of the command tells as much."""
    return {QUIET: ["--quiet"], VERBOSE: ["--verbose"]}.get(_level, [])


def is_verbose() -> bool:
    """Whether -v was given: results, too, are told in full."""
    return _level >= VERBOSE


def is_asked() -> bool:
    """Whether somebody wants to know of more than troubles: asked for it, or looks on."""
    return _level >= VERBOSE or (_level > QUIET and sys.stderr.isatty())


def detail(words: str) -> None:
    """One line of what is done."""
    if is_verbose():
        trouble(words)


def note(words: str) -> None:
    """One line that a reader of the results should know."""
    if _level > QUIET:
        trouble(words)


def trouble(words: str) -> None:
    """One line of what went wrong. The last net for what a foreign file says, which no terminal must obey."""
    if not words.isprintable():
        # NumPy comes with it, and most messages need not wait for that.
        from mpicoloc.core.tables import printable

        # A compiler's answer has lines.
        words = "\n".join(map(printable, words.expandtabs().split("\n")))
    # The work goes on, with its own exit code, where nobody listens any more or the disk is full.
    with contextlib.suppress(OSError):
        if _watch is None:
            print(f"mpicoloc: {words}", file=sys.stderr)
        else:
            _watch.line(f"mpicoloc: {words}")
