"""Progress of an unmodified program, by the ends of its MPI calls.

A step ends with each call; steps that end with the same two call sites are of one kind and count as the same
work. A step over several turns is divided by the time that it would have taken alone, not by time, as the
latter would pull all slowdowns towards 1. For that the slowdowns must be known, so they are found in rounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from mpicoloc.bubble.turns import Floats, Progress, Turns, slowdowns
from mpicoloc.core.estimate import Estimate

MIN_KNOWN_FRAC = 0.8
"""Part of the time in steps of known work, below which there is no slowdown: the rest would look even."""
MIN_OF_KIND = 8
"""Steps below which the time of a kind is not known: each of them counts as the work that it took."""
MIN_STEPS_OF_TURN = 1.0
"""Steps in a turn, on average, below which there is no slowdown: longer ones hide what a turn did."""
N_ROUNDS = 30
NEAR = 1e-5


def classify_steps(sites: NDArray[np.int64]) -> NDArray[np.int64]:
    """Kind of the step that ends with each call: a number for the call sites that it lies between."""
    before = np.concatenate([[-1], sites[:-1]])
    return np.unique(np.stack([before, sites]), axis=1, return_inverse=True)[1].ravel()


def _pieces(ends_s: Floats, turns: Turns) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Edges of the pieces that steps and turns cut time into, and the step and the turn of each piece."""
    edges = np.unique(np.concatenate([ends_s, turns.begin_s, turns.end_s]))
    edges = edges[(edges >= ends_s[0]) & (edges <= ends_s[-1])]
    middle = (edges[1:] + edges[:-1]) / 2
    turn = np.searchsorted(turns.begin_s, middle) - 1
    return edges, np.searchsorted(ends_s, middle), turn


def _alone(turn: NDArray[np.int64], turns: Turns, found: Mapping[float, Estimate]) -> Floats:
    """Solo seconds per second in each piece."""
    speed = np.array([1 / found[level].value if level in found else 1.0 for level in turns.level.tolist()])
    return np.where(turn >= 0, speed[np.maximum(turn, 0)], 1.0)


def step_slowdowns(
    ends_s: Floats, kinds: NDArray[np.int64], turns: Turns, guard_s: float
) -> Mapping[float, Estimate]:
    """Slowdown at each level.

    Shapes: `ends_s` (n,), `kinds` (n,).
    """
    if not len(turns.level) or len(ends_s) < max(2.0, MIN_STEPS_OF_TURN * len(turns.level)):
        return {}
    if _known_frac(ends_s, kinds) < MIN_KNOWN_FRAC:
        return {}
    edges, step, turn = _pieces(ends_s, turns)
    inner = turns.without_beginnings(guard_s)
    found: Mapping[float, Estimate] = {}
    for _ in range(N_ROUNDS):
        before = found
        alone_s = np.diff(edges) * _alone(turn, turns, before)
        of_step = np.bincount(step, alone_s, len(ends_s)).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = _work(of_step, kinds) / of_step
        work = np.concatenate([[0.0], np.cumsum(alone_s * scale[step])])
        found = dict(slowdowns(Progress(edges, work, edges), inner))
        if before and all(abs(found[level].value - before[level].value) < NEAR for level in found):
            break
    return found


def _known_frac(ends_s: Floats, kinds: NDArray[np.int64]) -> float:
    """Part of the time that lies in steps of frequent kinds."""
    is_frequent = np.bincount(kinds[1:])[kinds[1:]] >= MIN_OF_KIND
    lasted_s = np.diff(ends_s)
    return float(lasted_s[is_frequent].sum() / max(lasted_s.sum(), 1e-9))


def _work(alone_s: Floats, kinds: NDArray[np.int64]) -> Floats:
    """Work of each step: the mean solo time of its kind, or its own where that is not known."""
    kind, measured = kinds[1:], alone_s[1:]
    n = np.bincount(kind, minlength=int(kinds.max()) + 1)
    mean = np.bincount(kind, measured, len(n)) / np.maximum(n, 1)
    return np.concatenate([[0.0], np.where(n[kind] >= MIN_OF_KIND, mean[kind], measured)])
