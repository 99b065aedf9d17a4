"""Lists of numbers in options: levels of bubbles, and processors in Linux's notation."""

from __future__ import annotations

from collections.abc import Iterable

MAX_CPUS = 1 << 14
"""Upper bound of processor numbers, larger than the number of processors of any node."""


def format_cpus(numbers: Iterable[int]) -> str:
    """Processor numbers as text in Linux's notation.

    >>> format_cpus([8, 0, 1, 2, 3])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def parse_cpus(text: str) -> frozenset[int]:
    """The processors of a list. A malformed text gives an empty set, as it may be from an untrusted file.

    >>> sorted(parse_cpus("0-2,8"))
    [0, 1, 2, 8]
    """
    cpus: set[int] = set()
    for cpu_range in text.split(","):
        first, dash, last = cpu_range.partition("-")
        last = last if dash else first
        if not (_is_number(first) and _is_number(last) and int(first) <= int(last)):
            return frozenset()
        cpus.update(range(int(first), int(last) + 1))
    return frozenset(cpus)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and int(text) < MAX_CPUS


N_CPUS_MAX = 1024
"""CPU_SETSIZE of the C library."""


def is_level_list(text: str) -> bool:
    """Whether a text lists levels above 0, up to 8, separated by commas."""
    return all(map(_is_level, text.split(",")))


def is_cpu_list(text: str) -> bool:
    """Whether a text lists processors."""
    return -1 < max(parse_cpus(text), default=-1) < N_CPUS_MAX


def _is_level(word: str) -> bool:
    try:
        return word == word.strip() and 0 < float(word) <= 8
    except ValueError:
        return False
