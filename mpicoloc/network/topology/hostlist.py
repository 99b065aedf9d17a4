"""Slurm's hostlists, for example ``n[0-3,08-10]r1,login``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from mpicoloc.core.network import shown
from mpicoloc.errors import DataError

# No library fits: the licence of python-hostlist differs, and ClusterShell reads the site's configuration and
# does not limit the number of names.

MAX_NAMES = 1_000_000
"""Largest number of names in a list: a longer one is probably a typing mistake, and could exhaust memory."""

_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})", re.ASCII | re.DOTALL)
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)


def expand(text: str, where: str) -> list[str]:
    """Names in a hostlist, in its order.

    Raises `DataError` if a bracket or range is malformed, or there are more than `MAX_NAMES` names.
    """
    names: list[str] = []
    for item in _items(text, where):
        parts = [_choices(match, text, where) for match in _PART.finditer(item)]
        if not parts or sum(len(match.group()) for match in _PART.finditer(item)) != len(item):
            raise DataError(f"{where}: {shown(text)} is not a hostlist: write it like n[0-15],m[01-04]")
        number = 1
        for part in parts:
            number *= len(part)
        if len(names) + number > MAX_NAMES:
            raise DataError(f"{where}: {shown(text)} has more than {MAX_NAMES} names: give a shorter list")
        names.extend("".join(words) for words in product(*parts))
    return names


def _items(text: str, where: str) -> Iterator[str]:
    """The items of a list, separated by commas outside brackets."""
    depth, start = 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            break
        if letter == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if depth:
        raise DataError(f"{where}: {shown(text)} has unbalanced brackets: write it like n[0-15]")
    yield text[start:].strip()


def _choices(match: re.Match[str], text: str, where: str) -> list[str]:
    if match.group(1) is None:
        return [match.group(2)]
    words: list[str] = []
    for part in match.group(1).split(","):
        limits = _RANGE.fullmatch(part.strip())
        if not limits:
            raise DataError(f"{where}: {shown(part)} in {shown(text)} is not a range: write it like n[0-15]")
        low, high = limits.group(1), limits.group(2) or limits.group(1)
        first, last = int(low), int(high)
        if last < first or last - first >= MAX_NAMES - len(words):
            raise DataError(
                f"{where}: range {part} in {shown(text)} must ascend and have at most {MAX_NAMES} names"
            )
        words.extend(str(number).zfill(len(low)) for number in range(first, last + 1))
    return words


def fold(names: Iterable[str]) -> str:
    """The hostlist of these names, in their order; consecutive numbers at the ends of names become ranges.

    >>> fold(["n8", "n9", "n10", "login", "a01", "a03"])
    'n[8-10],login,a[01,03]'
    """
    heads: list[tuple[str, list[list[str]]]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        head, digits = (match.group(1), match.group(2)) if match else (name, "")
        if not digits or not heads or heads[-1][0] != head or not heads[-1][1]:
            heads.append((head, [[digits, digits]] if digits else []))
            continue
        runs = heads[-1][1]
        last = runs[-1][1]
        if digits == str(int(last) + 1).zfill(len(runs[-1][0])):
            runs[-1][1] = digits
        else:
            runs.append([digits, digits])
    return ",".join(_folded(head, runs) for head, runs in heads)


def _folded(head: str, runs: Sequence[Sequence[str]]) -> str:
    if not runs:
        return head
    words = ["-".join(dict.fromkeys(run)) for run in runs]
    return f"{head}{words[0]}" if words == [runs[0][0]] else f"{head}[{','.join(words)}]"
