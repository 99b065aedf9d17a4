"""Slowdown of a whole job by interference on some of its nodes: a matrix, and ways to fill it with few runs.

Han et al. 2016, sections 3.2 and 4.1. A row of the matrix is for one pressure, a column for one number of
disturbed nodes. The four policies of section 3.3 replace different pressures on a job's nodes by one pressure
on some of the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.bubbles import MAX_LEVEL, POLICIES, PropagationMatrix
from mpicoloc.core.profile import Bools, Floats, Ints
from mpicoloc.errors import DataError, UsageError

POLICY_NUMBERS = {name: i for i, name in enumerate(POLICIES)}
SIMILAR_LEVELS = 0.5
"""Pressures that are within this distance of the largest pressure count as equal to it."""
DEFAULT_POLICY = "n-plus-1-max"
"""Default policy: the best one for 7 of the 12 programs of Table 2."""
N_SAME = 6
"""A policy is chosen when it has been the best one after this many consecutive runs."""


def even_pressures(pressures: Floats, has_node: Bools, policies: Ints) -> tuple[Floats, Ints]:
    """Even pressures of many jobs: for each job one level, and the number of nodes that the level disturbs.

    Shapes: `pressures` (n_jobs, n_nodes), `policies` (n_jobs,), `level` (n_jobs,), `n_disturbed` (n_jobs,).

    Han et al. 2016, section 3.3 and Figure 4. With "interpolate", the level is the mean over all nodes of the
    job, where a node without pressure counts as 0, and it applies to all nodes.
    """
    pressures = np.where(has_node, pressures, 0.0)
    top = pressures.max(axis=1, initial=0.0)
    n_nodes = has_node.sum(axis=1)
    is_top = has_node & (pressures >= top[:, None] - SIMILAR_LEVELS) & (pressures > 0)
    n_top = is_top.sum(axis=1)
    has_others = ((pressures > 0) & ~is_top).any(axis=1)
    is_mean = policies == POLICY_NUMBERS["interpolate"]
    level = np.where(is_mean, pressures.sum(axis=1) / np.maximum(n_nodes, 1), top)
    n = np.where(policies == POLICY_NUMBERS["n-plus-1-max"], n_top + has_others, n_top)
    n = np.where(is_mean | (policies == POLICY_NUMBERS["all-max"]), n_nodes, n)
    return level, np.where(top > 0, n, 0)


def slowdown_under(matrix: PropagationMatrix, policy: str, pressures: Sequence[float]) -> float:
    """Slowdown of a program with these pressures on its nodes, by one of `POLICIES`.

    Raises
    ------
    DataError
        If the policy disturbs more nodes than the matrix has, or there is no such policy.
    """
    if policy not in POLICIES:
        raise DataError(f"policy must be one of {', '.join(POLICIES)}, got {policy!r}")
    row = np.array(pressures, float)[None]
    level, n = even_pressures(row, np.ones(row.shape, bool), np.array([POLICY_NUMBERS[policy]]))
    return matrix.at(float(level[0]), int(n[0]))


@dataclass(frozen=True)
class Sample:
    """One run with uneven pressures: the level of the bubble on each node, and the measured slowdown."""

    pressures: tuple[float, ...]
    slowdown: float


@dataclass(frozen=True)
class PolicyChoice:
    """The policy of a program (Han et al. 2016, Table 2).

    Parameters
    ----------
    policy : str
        The policy with the smallest mean error.
    error, sd : dict of str to float
        Mean and standard deviation of abs(predicted / measured - 1) over the samples, by policy.
    n_samples : int
    is_stable : bool
        Whether this policy was the best after each of the last `N_SAME` samples.
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
        If there is no sample, or a sample has more nodes than the matrix.
    """
    if not samples:
        raise DataError("no policy can be chosen without runs with uneven pressures")
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
    """Draw the levels of the bubbles on the nodes of one run; 0: no bubble. At least two levels differ.

    Raises `UsageError` if there are fewer than two nodes, or the number of levels is not in 1 to 8.
    """
    if n_nodes < 2 or not 1 <= n_pressures <= MAX_LEVEL:
        raise UsageError(
            f"uneven pressures need >= 2 nodes and 1 to 8 levels, got {n_nodes} and {n_pressures}"
        )
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
    """Run the program with uneven pressures until the choice of policy is stable.

    Parameters
    ----------
    matrix : PropagationMatrix
    measure : callable
        Measures the slowdown of the program with bubbles of these levels on its nodes.
    rng : Generator
        Draws the settings.
    max_runs : int
        After this many runs the best policy so far is chosen, whether it is stable or not.

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


Profile = Callable[[int, int], float]
"""`profile(k, j)`: time of the program with bubbles of level k on j of its nodes, s; (0, 0): no bubble."""
THRESHOLD = 0.05
"""Differences of normalised times below this are not refined by further runs (threshold_d, Algorithm 3)."""
METHODS = ("binary-optimized", "binary-brute", "random-30", "random-50")
"""Ways to choose the settings to run, the default first. For example, random-30 runs 30 % of all settings."""


def mean_error(found: PropagationMatrix, truth: Floats) -> float:
    """Mean of abs(T / truth - 1) over all settings with disturbed nodes (section 4.1, Table 3)."""
    return float(np.abs(found.times[:, 1:] / truth[:, 1:] - 1).mean())


class _Filling:
    """A matrix that is being filled. It profiles each setting at most once."""

    def __init__(self, profile: Profile, n_pressures: int, n_nodes: int) -> None:
        if n_pressures < 1 or n_nodes < 1:
            raise UsageError(
                f"propagation: needs at least one pressure and one node, got {n_pressures} and {n_nodes}"
            )
        self._profile = profile
        self._base_s = profile(0, 0)
        if not (math.isfinite(self._base_s) and self._base_s > 0):
            raise DataError(f"propagation: the time without interference must be above 0, got {self._base_s}")
        self.times = np.full((n_pressures, n_nodes + 1), np.nan)
        self.times[:, 0] = 1.0
        self.is_measured = np.zeros(self.times.shape, bool)

    def ask(self, i: int, j: int) -> None:
        """Profile level i + 1 on j nodes, unless that was done before."""
        if not self.is_measured[i, j]:
            self.times[i, j] = self._profile(i + 1, j) / self._base_s
            self.is_measured[i, j] = True

    def split(
        self, ask: Callable[[int], None], line: Floats, first: int, last: int, threshold: float
    ) -> None:
        """Algorithm 3 along a row or column: bisect while the ends differ by more than the threshold.

        This differs from the paper in two ways. The recursion ends at adjacent entries. And the absolute
        difference of the ends counts, so that a row or column that falls through noise is refined as well.
        """
        if last - first > 1 and abs(line[last] - line[first]) > threshold:
            middle = math.ceil((first + last) / 2)
            ask(middle)
            self.split(ask, line, first, middle, threshold)
            self.split(ask, line, middle, last, threshold)

    def row(self, i: int, threshold: float) -> None:
        """Profile one row from its ends inwards, and interpolate the entries that were not profiled."""
        self._line(lambda j: self.ask(i, j), self.times[i], threshold)

    def column(self, j: int, threshold: float) -> None:
        """Profile one column from its ends inwards, and interpolate the entries that were not profiled."""
        self._line(lambda i: self.ask(i, j), self.times[:, j], threshold)

    def _line(self, ask: Callable[[int], None], line: Floats, threshold: float) -> None:
        self.split(ask, line, 0, len(line) - 1, threshold)
        _interpolate(line)

    def done(self) -> PropagationMatrix:
        """The filled matrix."""
        return PropagationMatrix(self.times, self.is_measured)


def _interpolate(line: Floats) -> None:
    """Fill the NaN entries of a row or column by linear interpolation between known entries."""
    known = np.flatnonzero(~np.isnan(line))
    line[:] = np.interp(np.arange(len(line)), known, line[known])


def binary_brute(
    profile: Profile, n_pressures: int, n_nodes: int, threshold: float = THRESHOLD
) -> PropagationMatrix:
    """Profile each pressure separately, and bisect the range of numbers of nodes while times differ.

    Parameters
    ----------
    profile : Profile
    n_pressures, n_nodes : int
        n and m of the paper.
    threshold : float
        Entries between two others whose normalised times differ by at most this are interpolated.

    Returns
    -------
    PropagationMatrix

    Notes
    -----
    Han et al. 2016, Algorithms 1 and 3.
    """
    filling = _Filling(profile, n_pressures, n_nodes)
    for i in range(n_pressures):
        filling.ask(i, n_nodes)
        filling.row(i, threshold)
    return filling.done()


def binary_optimized(
    profile: Profile,
    n_pressures: int,
    n_nodes: int,
    threshold: float = THRESHOLD,
    column_threshold: float | None = None,
) -> PropagationMatrix:
    """Profile the row of the largest pressure, and the column of all nodes. Other rows get the row's shape.

    Parameters
    ----------
    profile : Profile
    n_pressures, n_nodes : int
        n and m of the paper.
    threshold, column_threshold : float
        As in `binary_brute`, along the row and along the column (default: `threshold`).

    Returns
    -------
    PropagationMatrix

    Notes
    -----
    Han et al. 2016, Algorithms 2 to 4. If the largest pressure on all nodes causes no slowdown, Algorithm 4
    divides by 0. In that case, the other rows here grow linearly with the number of nodes.
    """
    filling = _Filling(profile, n_pressures, n_nodes)
    last = n_pressures - 1
    filling.ask(0, n_nodes)
    filling.ask(last, n_nodes)
    filling.row(last, threshold)
    filling.column(n_nodes, threshold if column_threshold is None else column_threshold)
    top, column = filling.times[last], filling.times[:, n_nodes]
    even = np.arange(n_nodes + 1) / n_nodes
    shape = (top - 1) / (top[-1] - 1) if top[-1] != 1 else even
    filling.times[:last, 1:n_nodes] = 1 + np.outer(column[:last] - 1, shape[1:n_nodes])
    return filling.done()


def random_settings(
    profile: Profile, n_pressures: int, n_nodes: int, frac: float, rng: np.random.Generator
) -> PropagationMatrix:
    """Profile settings drawn at random; interpolate the others along their rows.

    Parameters
    ----------
    profile : Profile
    n_pressures, n_nodes : int
    frac : float
        Fraction of all settings to profile, in (0, 1]. The run without interference and each pressure on all
        nodes are always profiled (section 4.1).
    rng : Generator

    Returns
    -------
    PropagationMatrix

    Raises
    ------
    UsageError
        If `frac` is out of its range.
    """
    if not 0 < frac <= 1:
        raise UsageError(f"the fraction of settings to profile must be in (0, 1], got {frac}")
    filling = _Filling(profile, n_pressures, n_nodes)
    for i in range(n_pressures):
        filling.ask(i, n_nodes)
    free = [(i, j) for i in range(n_pressures) for j in range(1, n_nodes)]
    n = max(int(frac * (n_pressures * n_nodes + 1)) - n_pressures - 1, 0)
    for k in rng.permutation(len(free))[:n]:
        filling.ask(*free[k])
    for row in filling.times:
        _interpolate(row)
    return filling.done()


def fill(
    method: str,
    profile: Profile,
    n_pressures: int,
    n_nodes: int,
    rng: np.random.Generator,
    threshold: float = THRESHOLD,
) -> PropagationMatrix:
    """Fill a matrix by one of `METHODS`.

    Raises `UsageError` if there is no such method.
    """
    if method == "binary-optimized":
        return binary_optimized(profile, n_pressures, n_nodes, threshold)
    if method == "binary-brute":
        return binary_brute(profile, n_pressures, n_nodes, threshold)
    if method not in METHODS:
        raise UsageError(f"propagation: the method must be one of {', '.join(METHODS)}, got {method!r}")
    return random_settings(profile, n_pressures, n_nodes, float(method.removeprefix("random-")) / 100, rng)
