"""Numbers of processors as Linux lists them: ``0-3,8``."""

from __future__ import annotations

from collections.abc import Iterable

MAX_CPUS = 1 << 14
"""More than any node has."""


def written(numbers: Iterable[int]) -> str:
    """The list of these processors.

    >>> written([8, 0, 1, 2, 3])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def numbers(text: str) -> frozenset[int]:
    """The processors of a list; none if it is no such list: it may be a stranger's.

    >>> sorted(numbers("0-2,8"))
    [0, 1, 2, 8]
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (_is_number(first) and _is_number(last)):
            return frozenset()
        found.update(range(int(first), int(last) + 1))
    return frozenset(found)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and int(text) < MAX_CPUS
