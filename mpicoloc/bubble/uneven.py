"""Nodes of a job that suffer different pressures: the even pressure that is like them.

Han et al. 2016, section 3.3: four policies turn pressures of a job's nodes into one pressure on some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.bubbles import MAX_LEVEL, POLICIES, PropagationMatrix
from mpicoloc.errors import DataError, UsageError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
POLICY_NUMBERS = {name: i for i, name in enumerate(POLICIES)}
SIMILAR_LEVELS = 0.5
"""Pressures this near to the largest one count as just as large."""
DEFAULT_POLICY = "n-plus-1-max"
"""The best one for 7 of the 12 programs of Table 2."""
N_SAME = 6
"""A policy that is the best after as many runs in a row is taken."""


def even_pressures(
    pressures: Floats, has_node: Bools, policies: Ints, similar: float = SIMILAR_LEVELS
) -> tuple[Floats, Ints]:
    """The even pressures of many jobs at once.

    Shapes: `pressures` (n_jobs, n_nodes), `policies` (n_jobs,), `level` (n_jobs,), `n_disturbed` (n_jobs,).

    Han et al. 2016, section 3.3 and Figure 4. For "interpolate" nodes without pressure count with 0: the mean
    is over all nodes of the job, to which it is then applied.
    """
    pressures = np.where(has_node, pressures, 0.0)
    top = pressures.max(axis=1, initial=0.0)
    n_nodes = has_node.sum(axis=1)
    is_top = has_node & (pressures >= top[:, None] - similar) & (pressures > 0)
    n_top = is_top.sum(axis=1)
    has_others = ((pressures > 0) & ~is_top).any(axis=1)
    is_mean = policies == POLICY_NUMBERS["interpolate"]
    level = np.where(is_mean, pressures.sum(axis=1) / np.maximum(n_nodes, 1), top)
    n = np.where(policies == POLICY_NUMBERS["n-plus-1-max"], n_top + has_others, n_top)
    n = np.where(is_mean | (policies == POLICY_NUMBERS["all-max"]), n_nodes, n)
    return level, np.where(top > 0, n, 0)


def slowdown_under(matrix: PropagationMatrix, policy: str, pressures: Sequence[float]) -> float:
    """Slowdown of a program whose nodes suffer these pressures, by one of `POLICIES`.

    Raises
    ------
    DataError
        If the matrix is of fewer nodes, or there is no such policy.
    """
    if policy not in POLICIES:
        raise DataError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    row = np.array(pressures, float)[None]
    level, n = even_pressures(row, np.ones(row.shape, bool), np.array([POLICY_NUMBERS[policy]]))
    return matrix.at(float(level[0]), int(n[0]))


@dataclass(frozen=True)
class Sample:
    """One run with uneven pressures: level of the bubble on each node, and the slowdown that was measured."""

    pressures: tuple[float, ...]
    slowdown: float


@dataclass(frozen=True)
class PolicyChoice:
    """The policy of a program (Han et al. 2016, Table 2).

    Parameters
    ----------
    policy : str
        That with the smallest mean error.
    error, sd : dict of str to float
        Mean and standard deviation of abs(predicted / measured - 1) over the samples, by policy.
    n_samples : int
    is_stable : bool
        Whether it was the best one after each of the last `N_SAME` samples.
    """

    policy: str
    error: dict[str, float]
    sd: dict[str, float]
    n_samples: int
    is_stable: bool


def choose_policy(matrix: PropagationMatrix, samples: Sequence[Sample]) -> PolicyChoice:
    """The policy that fits the samples best.

    Raises
    ------
    DataError
        If there is no sample, or one is of more nodes than the matrix.
    """
    if not samples:
        raise DataError("no runs with uneven pressures: nothing to choose a policy by")
    off = np.array(
        [
            [abs(slowdown_under(matrix, name, one.pressures) / one.slowdown - 1) for name in POLICIES]
            for one in samples
        ]
    )
    running = np.cumsum(off, axis=0) / np.arange(1, len(off) + 1)[:, None]
    best = running.argmin(axis=1)
    names = list(POLICIES)
    return PolicyChoice(
        policy=names[best[-1]],
        error=dict(zip(names, map(float, off.mean(axis=0)), strict=True)),
        sd=dict(zip(names, map(float, off.std(axis=0)), strict=True)),
        n_samples=len(samples),
        is_stable=len(best) >= N_SAME and bool((best[-N_SAME:] == best[-1]).all()),
    )


def draw_pressures(n_nodes: int, n_pressures: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Levels of bubbles on the nodes of one run, 0 for none; at least two differ.

    Raises `UsageError` if there are no two nodes.
    """
    if n_nodes < 2 or not 1 <= n_pressures <= MAX_LEVEL:
        raise UsageError(f"uneven pressures need 2 nodes and 1 to 8 levels, got {n_nodes} and {n_pressures}")
    while True:
        found = tuple(map(int, rng.integers(0, n_pressures + 1, n_nodes)))
        if len(set(found)) > 1:
            return found


def choose_by_runs(
    matrix: PropagationMatrix,
    measure: Callable[[tuple[int, ...]], float],
    rng: np.random.Generator,
    max_runs: int = 40,
) -> PolicyChoice:
    """As few runs as give a stable choice.

    Parameters
    ----------
    matrix : PropagationMatrix
    measure : callable
        The slowdown of the program with bubbles of these levels on its nodes.
    rng : Generator
        Draws the settings.
    max_runs : int
        After as many runs the best policy so far is taken, stable or not.

    Returns
    -------
    PolicyChoice
    """
    samples: list[Sample] = []
    while True:
        pressures = draw_pressures(matrix.n_nodes, matrix.n_pressures, rng)
        samples.append(Sample(pressures, measure(pressures)))
        choice = choose_policy(matrix, samples)
        if choice.is_stable or len(samples) >= max_runs:
            return choice
