"""Lists of numbers as options have them: levels of bubbles, and processors as Linux lists them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

MAX_CPUS = 1 << 14
"""No node has so many processors."""


def format_cpus(numbers: Iterable[int]) -> str:
    """The list of these processors as text.

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
    """The processors of a list; none if the text is no such list, as it may be from an untrusted file.

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


class _Lists:
    """The values of an option as a collection, of which help tells the `words`."""

    words = ""

    def __iter__(self) -> Iterator[str]:
        yield self.words

    def __len__(self) -> int:
        return 1


class LevelLists(_Lists):
    """The values of ``--bubble-levels``: levels above 0, up to 8, with commas."""

    words = "levels above 0 and up to 8, with commas, as 2,4,6,8"

    def __contains__(self, text: object) -> bool:
        return all(map(_is_level, str(text).split(",")))


class CpuLists(_Lists):
    """The values of ``--bubble-cores``: lists of processors."""

    words = "a list of processors, as 0-3,8"

    def __contains__(self, text: object) -> bool:
        return -1 < max(parse_cpus(str(text)), default=-1) < N_CPUS_MAX


def _is_level(word: str) -> bool:
    try:
        return word == word.strip() and 0 < float(word) <= 8
    except ValueError:
        return False
