"""Progress of long work, reported to a watcher such as bars on a terminal.

A long-running function reports its progress with `stage` or `steps`. The functions that it calls report
finished work with `count`, without knowing the stage. No function knows how progress is shown. Without a
watcher a report costs next to nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")


class Watcher(Protocol):
    """Receiver of progress. Stages may be nested; `begin` returns the number that identifies a stage."""

    def begin(self, what: str, total: float | None, unit: str) -> int:
        """A stage begins. It has `total` units; None: not known. Returns the number of the stage."""

    def advance(self, stage: int, n: float) -> None:
        """`n` more units of a stage are done."""

    def count(self, unit: str, n: float) -> None:
        """`n` more units of the innermost stage with this unit are done, if there is one."""

    def end(self, stage: int) -> None:
        """A stage has ended, successfully or not."""


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watched(watcher: Watcher | None) -> Iterator[None]:
    """Report the work inside the block to `watcher`. If `watcher` is None, report to nobody."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


@contextlib.contextmanager
def stage(what: str, total: float | None = None, unit: str = "") -> Iterator[Callable[[float], None]]:
    """One stage of long work.

    Yields a function to call with the number of units that were done since its last call.
    """
    watcher = _watcher.get()
    if watcher is None:
        yield lambda n: None
        return
    number = watcher.begin(what, total, unit)
    try:
        yield lambda n: watcher.advance(number, n)
    finally:
        watcher.end(number)


def steps(items: Iterable[T], what: str, total: float | None = None, unit: str = "") -> Iterator[T]:
    """Yield items, each as a unit of a `stage` with these parameters; `total`: for items without length."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with stage(what, total, unit) as advance:
        for item in items:
            yield item
            advance(1)


def count(unit: str, n: float) -> None:
    """Report `n` more units to the innermost stage with this unit."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher.count(unit, n)
