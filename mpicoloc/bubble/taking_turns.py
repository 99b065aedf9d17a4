"""Let something work and rest in turns, in random order, and note when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mpicoloc.bubble.turns import Turns
from mpicoloc.core.progress import stage

JITTER_FRAC = 0.3
"""Turns are longer by a random part of up to this, so that they do not keep pace with the program's steps."""


def take_turns(
    apply: Callable[[float], None],
    levels: Sequence[float],
    turn_s: float,
    is_over: Callable[[], bool],
    rng: np.random.Generator,
    seconds: float,
    what: str,
) -> Turns:
    """Apply each level in turn with a rest (level 0) before it, all levels in a new random order each time.

    Result: without the one in which it was over.
    """
    rows: list[tuple[float, float, float]] = []
    begin_s = time.monotonic()
    known = seconds if np.isfinite(seconds) else None
    with stage(what, known, "s") as advance:
        for level in _order(levels, rng):
            apply(level)
            start_s = time.monotonic()
            time.sleep(turn_s * (1 + rng.uniform(0, JITTER_FRAC)))
            end_s = time.monotonic()
            if is_over():
                break
            rows.append((start_s, end_s, level))
            advance(end_s - start_s)
            if level == 0 and end_s > begin_s + seconds:
                break
    return Turns(*np.array(rows, float).reshape(-1, 3).T)


def _order(levels: Sequence[float], rng: np.random.Generator) -> Iterator[float]:
    while True:
        for level in rng.permutation(np.array(levels, float)):
            yield 0.0
            yield float(level)
