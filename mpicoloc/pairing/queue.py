"""What is known of the jobs that wait, and what a node has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mpicoloc.core.profile import Bools, Floats
from mpicoloc.core.slowdown import LEAST_SLOWDOWN
from mpicoloc.errors import DataError


@dataclass(frozen=True)
class Queue:
    """n jobs in order of arrival.

    Parameters
    ----------
    runtime_s : array_like, shape (n,)
        Run time alone, s, > 0.
    slowdown : array_like, shape (n, n)
        At [i, j] what job i suffers beside job j, T_co / T_solo; NaN: not known. The diagonal is not read.
        What is below 1 counts as 1 (Zacarias et al. 2021, section 3.2).
    high : array_like, shape (n, n), optional
        Upper ends of the intervals of `slowdown`; NaN: not known.
    n_cores, memory_bytes : array_like, shape (n,), optional
        What each job needs on a node.
    intensity : array_like, shape (n,), optional
        How much each job loads what is shared, in any unit, for the policy ``di``; NaN: not known.

    Raises
    ------
    DataError
        If sizes differ or a number makes no sense.
    """

    runtime_s: Floats
    slowdown: Floats
    high: Floats | None = None
    n_cores: Floats | None = None
    memory_bytes: Floats | None = None
    intensity: Floats | None = None

    def __post_init__(self) -> None:
        n = np.size(self.runtime_s)
        for field in fields(self):
            given = getattr(self, field.name)
            if given is None:
                continue
            is_matrix = field.name in ("slowdown", "high")
            array = np.array(given, np.float64)
            if array.shape != ((n, n) if is_matrix else (n,)) and array.size + n:
                need = (n, n) if is_matrix else (n,)
                raise DataError(f"queue of {n} jobs: {field.name} has shape {array.shape}, need {need}")
            array = array.reshape((n, n) if is_matrix else (n,))
            if is_matrix:
                np.fill_diagonal(array, np.nan)
            _check(field.name, array)
            if is_matrix:
                array = np.maximum(array, 1.0)
            array.flags.writeable = False
            object.__setattr__(self, field.name, array)

    def __len__(self) -> int:
        return len(self.runtime_s)

    def part(self, chosen: slice) -> Queue:
        """The queue of the jobs `chosen`."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        parts: dict[str, Any] = {
            name: array if array is None else array[chosen, chosen] if array.ndim == 2 else array[chosen]
            for name, array in given.items()
        }
        return Queue(**parts)

    def counted_on(self, *, is_cautious: bool, prior_slowdown: float | None) -> Queue:
        """The queue with the slowdowns that a decision counts on."""
        slowdown = self.slowdown
        if is_cautious and self.high is not None:
            slowdown = np.fmax(slowdown, self.high)
        if prior_slowdown is not None:
            slowdown = np.where(np.isnan(slowdown), prior_slowdown, slowdown)
        return replace(self, slowdown=slowdown)


def _check(name: str, array: Floats) -> None:
    """No number may be one that its quantity never is."""
    # NaN of a run time is none of these, as it compares false with everything.
    rules: dict[str, tuple[Callable[[Floats], Bools], str]] = {
        "runtime_s": (lambda a: (a > 0) & (a < np.inf), "a number > 0"),
        "n_cores": (lambda a: (a >= 1) & (a < np.inf), "a number >= 1"),
        "memory_bytes": (lambda a: (a >= 0) & (a < np.inf), "a number >= 0"),
        "intensity": (lambda a: ~np.isinf(a), "a number, or NaN"),
    }
    least = f"a ratio of run times >= {LEAST_SLOWDOWN}, or NaN (a degradation d is a slowdown of 1 + d)"
    is_right, need = rules.get(name, (lambda a: np.isnan(a) | ((a >= LEAST_SLOWDOWN) & (a < np.inf)), least))
    wrong = ~is_right(array)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise DataError(f"queue: {name} of job {', '.join(map(str, where))} is {array[where]}; need {need}")


@dataclass(frozen=True)
class Room:
    """What a node has for the jobs on it together; infinite: no limit.

    Raises
    ------
    DataError
        If a number is not above 0.
    """

    n_cores: float = np.inf
    memory_bytes: float = np.inf

    def __post_init__(self) -> None:
        for name in ("n_cores", "memory_bytes"):
            if not getattr(self, name) > 0:
                raise DataError(f"node: {name} must be > 0, got {getattr(self, name)}")

    def check(self, queue: Queue) -> None:
        """Raise DataError if a job does not fit a node."""
        singles = [(job,) for job in range(len(queue))]
        too_large = np.flatnonzero(~np.diag(self.fits(queue, singles)))
        if len(too_large):
            raise DataError(
                f"job {too_large[0]} does not fit a node of {self.n_cores:g} cores, "
                f"{self.memory_bytes:g} bytes: leave it out"
            )

    def fits(self, queue: Queue, groups: Sequence[Sequence[int]]) -> Bools:
        """Whether two groups fit a node together, shape (n_groups, n_groups), and each alone on the diagonal.

        A job whose size is not told fits everywhere.
        """
        fits = np.ones((len(groups), len(groups)), np.bool_)
        for needed, room in ((queue.n_cores, self.n_cores), (queue.memory_bytes, self.memory_bytes)):
            if needed is not None:
                of_group = np.array([needed[list(group)].sum() for group in groups])
                both = of_group[:, None] + of_group
                np.fill_diagonal(both, of_group)
                fits &= both <= room
        return fits
