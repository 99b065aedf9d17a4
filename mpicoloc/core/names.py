"""Unique names of jobs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def names_apart(names: Sequence[str]) -> list[str]:
    """Make names unique: the second NAME becomes NAME-2, or the next free number."""
    taken, seen, found = set(names), set[str](), list[str]()
    for name in names:
        new = name
        if name in seen:
            new = next(free for n in itertools.count(2) if (free := f"{name}-{n}") not in taken)
            taken.add(new)
        seen.add(name)
        found.append(new)
    return found
