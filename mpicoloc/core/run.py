"""One run of a job as a slowdown model needs it: a few numbers of its profile, small enough for thousands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.machine import Machine, machine_from


@dataclass(frozen=True)
class Moments:
    """Number, mean, least and largest of some values, and the sum of their squared deviations."""

    n: int
    mean: float
    least: float
    largest: float
    squares: float

    def __add__(self, other: Moments) -> Moments:
        n = self.n + other.n
        step = other.mean - self.mean
        return Moments(
            n,
            self.mean + step * other.n / n,
            min(self.least, other.least),
            max(self.largest, other.largest),
            self.squares + other.squares + step**2 * self.n * other.n / n,
        )

    @property
    def sd(self) -> float | None:
        """Standard deviation; None of one value."""
        return math.sqrt(self.squares / (self.n - 1)) if self.n > 1 else None


def moments(values: ArrayLike) -> Moments | None:
    """Of the finite ones of some values; None: there is none."""
    known = np.atleast_1d(np.asarray(values, float))
    known = known[np.isfinite(known)]
    if not len(known):
        return None
    mean, least, largest = float(known.mean()), float(known.min()), float(known.max())
    return Moments(len(known), mean, least, largest, float(((known - mean) ** 2).sum()))


@dataclass(frozen=True)
class Run:
    """One run of a job.

    `co_runners` has the id of each other job on its nodes and how long both were there, s. `seen` are its
    quantities (`slowdown.quantities`), those that were measured. `was_alone`: nearly all of the time, and
    it is known. `owner` is the user whose file the profile is. `cpus` has for each node that is known the
    processors that it could run on there (`core.cpu_list`).
    """

    id: str
    command: str
    n_ranks: int
    n_nodes: int
    n_cores: int
    start_unix_s: float
    wall_s: float
    solo_s: float
    shared_s: float | None
    was_alone: bool
    partial: bool
    slowdown: Estimate | None = None
    co_runners: tuple[tuple[str, float], ...] = ()
    machine: Machine | None = None
    seen: Mapping[str, Moments] = field(default_factory=dict)
    owner: int | None = None
    cpus: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> tuple[str, int, int]:
        """Runs of one command at one size are taken to behave alike."""
        return self.command, self.n_ranks, self.n_nodes


def as_json(run: Run) -> dict[str, Any]:
    """The run as plain values."""
    return asdict(run)


def from_json(told: Mapping[str, Any]) -> Run:
    """The run that `as_json` made plain values of.

    Raises
    ------
    TypeError, KeyError, DataError
        If it is none.
    """
    given = dict(told)
    given["slowdown"] = Estimate(**given["slowdown"]) if given["slowdown"] else None
    given["machine"] = machine_from(given["machine"])
    given["co_runners"] = tuple((str(name), float(s)) for name, s in given["co_runners"])
    given["seen"] = {name: Moments(**values) for name, values in given["seen"].items()}
    given["cpus"] = {str(name): str(cpus) for name, cpus in given["cpus"].items()}
    return Run(**given)
