"""How far long work has come, told to whoever watches: bars on a terminal, or nobody.

Whoever works says so with `part` or `steps`; layers below say with `count` what they have done, and need not
know of what. None of them knows what is shown, and without a watcher nothing costs anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sized
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")


class Watcher(Protocol):
    """Who is told. Parts may lie in each other; each has the number that `begin` gave it."""

    def begin(self, what: str, total: float | None, unit: str) -> int:
        """A part begins, of `total` units if that is known."""

    def advance(self, part: int, n: float) -> None:
        """So many units more of a part are done."""

    def count(self, unit: str, n: float) -> None:
        """The same of the innermost part of this unit, if there is one."""

    def end(self, part: int) -> None:
        """A part has ended, well or not."""


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watched(watcher: Watcher | None) -> Iterator[None]:
    """Tell `watcher` of the work inside the block; None: nobody."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


@contextlib.contextmanager
def part(what: str, total: float | None = None, unit: str = "") -> Iterator[Callable[[float], None]]:
    """One part of long work.

    Parameters
    ----------
    what : str
        In words: "reading profiles".
    total : float, optional
        How many units it has, if that is known.
    unit : str
        What they are: "profiles".

    Yields
    ------
    callable
        To be called with the number of units that were done since the call before.
    """
    watcher = _watcher.get()
    if watcher is None:
        yield _nobody
        return
    number = watcher.begin(what, total, unit)
    try:
        yield lambda n: watcher.advance(number, n)
    finally:
        watcher.end(number)


def steps(items: Iterable[T], what: str, total: float | None = None, unit: str = "") -> Iterator[T]:
    """The items, each a unit of a part; parameters as of `part`, `total` for items without a length."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with part(what, total, unit) as advance:
        for item in items:
            yield item
            advance(1)


def count(unit: str, n: float) -> None:
    """So many units more were done, of whatever part counts them."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher.count(unit, n)


def _nobody(n: float) -> None:
    pass
