"""Flags -q and -v: how much goes to standard error, and whether bars do."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mpicoloc.cli import helping
from mpicoloc.core import messages, progress
from mpicoloc.core.messages import NORMAL, QUIET, VERBOSE

if TYPE_CHECKING:
    from mpicoloc.report.terminal.progress import Watch

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
    began_s = time.monotonic()
    watch = _new_watch(level)
    with messages.at_level(level, watch.line if watch else None):
        with progress.watched(watch):
            yield
        messages.detail(f"{what}: {time.monotonic() - began_s:.2f} s in all")


def _new_watch(level: int) -> Watch | None:
    has_bars = level > QUIET and sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    if not has_bars and level < VERBOSE:
        return None
    from mpicoloc.report.terminal.progress import Watch

    return Watch(has_bars=has_bars, tell=messages.detail if level >= VERBOSE else None)


def flags() -> list[str]:
    """The flag by which another call of the command tells as much."""
    return {QUIET: ["--quiet"], VERBOSE: ["--verbose"]}.get(messages.level(), [])
