"""Flags -q and -v: how much goes to standard error, and whether progress bars are shown."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpicoloc import messages
from mpicoloc.cli import arguments
from mpicoloc.core import progress
from mpicoloc.messages import NORMAL, QUIET, VERBOSE

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID


DELAY_S = 0.5
"""Work that ends within this time shows no bar, because the bar would only flicker."""
WIDE_COLUMNS = 72
"""Terminals narrower than this get shorter bars."""


@dataclass
class _Part:
    what: str
    total: float | None
    unit: str
    began_s: float
    done: float = 0.0
    row: TaskID | None = None


class Watch:
    """The `core.progress.Watcher` of the command line.

    Parameters
    ----------
    has_bars : bool
        Whether to show progress bars, which need a terminal as standard error.
    tell : callable, optional
        Called with a line on the time that a part took, when the part ends.
    clock : callable
        Returns the time in seconds.
    """

    def __init__(
        self,
        *,
        has_bars: bool,
        tell: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._has_bars, self._tell, self._clock = has_bars, tell, clock
        self._parts: dict[int, _Part] = {}
        self._n_begun = 0
        self._bars: Progress | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()
        self._pid = os.getpid()

    @property
    def _is_other(self) -> bool:
        """Whether this is a forked child. It must not take the lock, which may be held there for ever."""
        return os.getpid() != self._pid

    def begin(self, what: str, total: float | None, unit: str) -> int:
        """Register a part; its bar appears after `DELAY_S`."""
        if self._is_other:
            return 0
        with self._lock:
            self._n_begun += 1
            self._parts[self._n_begun] = part = _Part(what, total, unit, self._clock())
            if self._bars is not None:
                self._add(self._bars, part)
            elif self._has_bars and self._timer is None:
                self._timer = threading.Timer(DELAY_S, self._show)
                self._timer.daemon = True
                self._timer.start()
            return self._n_begun

    def advance(self, part: int, n: float) -> None:
        """Move the bar."""
        if not self._is_other:
            with self._lock:
                self._moved(self._parts[part], n)

    def count(self, unit: str, n: float) -> None:
        """Advance the innermost bar of this unit."""
        if not self._is_other:
            with self._lock:
                found = [part for part in self._parts.values() if part.unit == unit]
                if found:
                    self._moved(found[-1], n)

    def end(self, part: int) -> None:
        """Remove the part's bar and report its time; after the last part, stop the display."""
        if self._is_other:
            return
        with self._lock:
            ended = self._parts.pop(part)
            if self._bars is not None and ended.row is not None:
                self._bars.remove_task(ended.row)
            if not self._parts:
                self._hide()
        if self._tell is not None:
            number = f", {ended.done:,.0f} {ended.unit}" if ended.unit and ended.done else ""
            self._tell(f"{ended.what}{number}: {self._clock() - ended.began_s:.2f} s")

    def line(self, words: str) -> None:
        """Print a line above the bars."""
        with self._lock:
            if self._bars is None or self._is_other:
                print(words, file=sys.stderr)
            else:
                self._bars.console.print(words, markup=False, highlight=False, soft_wrap=True)

    def _moved(self, part: _Part, n: float) -> None:
        part.done += n
        if self._bars is not None and part.row is not None:
            self._bars.update(part.row, completed=part.done)

    def _show(self) -> None:
        """Show the bars; runs in the timer's thread."""
        bars = _new_bars()
        with self._lock:
            # Before this thread got the lock, the parts may have ended, and others may have started a timer.
            if self._timer is not threading.current_thread() or self._bars is not None or not self._parts:
                return
            self._bars = bars
            for part in self._parts.values():
                self._add(bars, part)
            bars.start()

    def _hide(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _add(self, bars: Progress, part: _Part) -> None:
        part.row = bars.add_task(part.what, total=part.total, completed=int(part.done), unit=part.unit)


def _new_bars() -> Progress:
    # Imported here because most commands end before a bar is due.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column
    from rich.text import Text

    class Count(ProgressColumn):
        def render(self, task: Task) -> Text:
            total = "" if task.total is None else f" of {task.total:,.0f}"
            done = f"{task.completed:,.0f}" if total or task.completed else ""
            return Text(f"{done}{total} {task.fields['unit']}" if task.fields["unit"] else "")

    console = Console(stderr=True)
    is_wide = console.width >= WIDE_COLUMNS
    columns: list[ProgressColumn] = [BarColumn(20 if is_wide else 8), Count()]
    columns.insert(0, TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)))
    columns += [TimeRemainingColumn()] if is_wide else []
    # Do not redirect standard output: it belongs to the command's results.
    return Progress(*columns, console=console, transient=True, redirect_stdout=False)


_QUIET_FLAGS, _VERBOSE_FLAGS = ("-q", "--quiet"), ("-v", "--verbose")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags -q and -v to a verb and to its subcommands."""
    how = parser.add_mutually_exclusive_group()
    # SUPPRESS, because the default of a subcommand would overwrite a flag that was given before it.
    words: dict[str, Any] = {"action": "store_const", "dest": "level", "default": argparse.SUPPRESS}
    how.add_argument(
        *_QUIET_FLAGS, const=QUIET, help="print errors and results only: no notes or progress bars", **words
    )
    how.add_argument(
        *_VERBOSE_FLAGS, const=VERBOSE, help="print each step and its time, and more results", **words
    )
    for child in arguments.actions_of(parser).values():
        add_flags(child)


def leading(argv: Sequence[str]) -> tuple[int, list[str]]:
    """The level set by -q and -v before the verb, and the remaining words."""
    level, rest = NORMAL, list(argv)
    while rest and rest[0] in (*_QUIET_FLAGS, *_VERBOSE_FLAGS):
        level = QUIET if rest.pop(0) in _QUIET_FLAGS else VERBOSE
    return level, rest


@contextlib.contextmanager
def at(level: int, what: str) -> Iterator[None]:
    """Report at this level on the work in the block, which is named `what`."""
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

    return Watch(has_bars=has_bars, tell=messages.detail if level >= VERBOSE else None)


def flags() -> list[str]:
    """The flag that passes the current level on to another call of the command."""
    return {QUIET: ["--quiet"], VERBOSE: ["--verbose"]}.get(messages.level(), [])
