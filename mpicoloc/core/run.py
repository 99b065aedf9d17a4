"""One run of a job as a slowdown model needs it: a few numbers of its profile."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpicoloc.core.estimate import Estimate
from mpicoloc.core.machine import Machine, machine_from_values
from mpicoloc.core.plain_values import dataclass_from


@dataclass(frozen=True)
class Moments:
    """Number, mean, least and largest of some values, and the sum of their squared deviations (`squares`)."""

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
    """Moments of the finite values; None if there is none."""
    known = np.atleast_1d(np.asarray(values, float))
    known = known[np.isfinite(known)]
    if not len(known):
        return None
    mean, least, largest = float(known.mean()), float(known.min()), float(known.max())
    return Moments(len(known), mean, least, largest, float(((known - mean) ** 2).sum()))


@dataclass(frozen=True)
class Run:
    """One run of a job.

    `co_runners` has the id of each other job on its nodes and how long both were there, s. `seen` has the
    quantities (`pairing.features`) that were measured. `was_alone`: it is known that it had no co-runner
    nearly all of the time. `owner` is the user id of the profile's file. `cpus` has for each known node the
    processors on which the job could run there (`core.number_lists`).
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
        """Command and size; runs that have both in common are assumed to behave alike."""
        return self.command, self.n_ranks, self.n_nodes


def as_json(run: Run) -> dict[str, Any]:
    """The run as plain values."""
    return asdict(run)


def from_json(values: Mapping[str, Any]) -> Run:
    """The run from the plain values that `as_json` returns.

    Raises `TypeError`, `KeyError`, `DataError` if they describe no run.
    """
    return dataclass_from(
        Run,
        values,
        slowdown=Estimate(**values["slowdown"]) if values["slowdown"] else None,
        machine=machine_from_values(values["machine"]),
        co_runners=tuple((str(name), float(s)) for name, s in values["co_runners"]),
        seen={name: Moments(**moments) for name, moments in values["seen"].items()},
        cpus={str(name): str(cpus) for name, cpus in values["cpus"].items()},
    )
