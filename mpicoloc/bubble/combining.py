"""The pressure of several co-runners on one node, from the score of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from mpicoloc.bubble.curves import monotone
from mpicoloc.core.bubbles import MAX_LEVEL, ProgramPressure
from mpicoloc.errors import DataError, UsageError

Floats = NDArray[np.float64]
Rule = Callable[[Floats], Floats]
"""Pressures (..., n) of n co-runners, 0 where there is none, to that of all (...)."""


def capped_sum(pressures: Floats) -> Floats:
    """Bubbles add up until memory can serve no more: min(sum, MAX_LEVEL)."""
    return np.minimum(pressures.sum(axis=-1), MAX_LEVEL)


def saturating(pressures: Floats) -> Floats:
    """Each co-runner takes its part of what the others leave: MAX_LEVEL (1 - prod(1 - p / MAX_LEVEL))."""
    left = 1 - np.minimum(pressures, MAX_LEVEL) / MAX_LEVEL
    return np.asarray(MAX_LEVEL * (1 - left.prod(axis=-1)))


def largest(pressures: Floats) -> Floats:
    """The worst co-runner counts alone."""
    return np.minimum(pressures.max(axis=-1, initial=0.0), MAX_LEVEL)


RULES: Mapping[str, Rule] = MappingProxyType(
    {"capped-sum": capped_sum, "saturating": saturating, "largest": largest}
)
DEFAULT_RULE = "capped-sum"


def rule(name: str) -> Rule:
    """The rule of this name.

    Raises `UsageError` if there is none.
    """
    if name not in RULES:
        raise UsageError(f"no rule {name!r} for pressures; there are {', '.join(RULES)}")
    return RULES[name]


@dataclass(frozen=True)
class MeasuredGroup:
    """The slowdown that a program was measured to suffer beside several co-runners at once."""

    target: str
    co_runners: tuple[str, ...]
    slowdown: float


def rule_errors(
    programs: Mapping[str, ProgramPressure], measured: Sequence[MeasuredGroup]
) -> dict[str, float]:
    """How far each rule is from measured slowdowns beside several co-runners.

    Result: mean of abs(predicted / measured - 1) by rule, the best rule first. Raises `DataError` if nothing
    was measured, or a program has no curve.
    """
    if not measured:
        raise DataError("no slowdowns beside several co-runners: nothing to choose a rule by")
    unknown = {name for one in measured for name in (one.target, *one.co_runners)} - programs.keys()
    if unknown:
        raise DataError(f"no curve of {min(unknown)}: measure it, or leave its groups out")
    curves = {one.target: monotone(programs[one.target].curve)[0] for one in measured}
    errors = {}
    for name, combine in RULES.items():
        found = [
            curves[one.target].at(
                float(combine(np.array([programs[other].score.value for other in one.co_runners])))
            )
            for one in measured
        ]
        off = [abs(each.value / one.slowdown - 1) for each, one in zip(found, measured, strict=True)]
        errors[name] = float(np.mean(off))
    return dict(sorted(errors.items(), key=lambda item: item[1]))
