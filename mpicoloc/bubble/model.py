"""A slowdown model that needs no measured pairs, only the curve and the score of each program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from mpicoloc.core.bubbles import MAX_LEVEL, METHOD, ProgramPressure, SensitivityCurve, pressure_score
from mpicoloc.core.profile import Estimate, Floats
from mpicoloc.core.slowdown import JobFeatures, Machine, PairSlowdowns, alone, machine_from_values
from mpicoloc.errors import DataError, UsageError

Array = np.ndarray[Any, Any]

LEAST_WIDTH = 1e-3
"""An interval narrower than this is weighted as if it had this width, or it would outweigh all others."""


def monotone(curve: SensitivityCurve) -> tuple[SensitivityCurve, str]:
    """The nearest curve that never falls and is never below 1; and a note on the change, "" if there is none.

    The method is isotonic regression. Value and both ends of the interval are fitted with the same weights,
    so the interval still holds the value.
    """
    from scipy.optimize import isotonic_regression  # imported here because most commands need no curve

    ends = [np.maximum(part, 1.0) for part in (curve.slowdown, curve.low, curve.high)]
    weights = 1 / np.maximum(curve.high - curve.low, LEAST_WIDTH) ** 2
    risen = [np.maximum(isotonic_regression(part, weights=weights).x, 1.0) for part in ends]
    value, low, high = risen
    low, high = np.minimum(low, value), np.maximum(high, value)
    # The slowdown at level 0 is 1 by definition, but the regression may have added a rounding error.
    value[0] = low[0] = high[0] = 1.0
    changed = SensitivityCurve(curve.program, curve.levels, value, low, high, curve.n, curve.source)
    return changed, _fall(curve)


def _fall(curve: SensitivityCurve) -> str:
    """A note on the largest fall of a curve; "" if it does not fall."""
    before = np.maximum.accumulate(np.maximum(curve.slowdown, 1.0))
    fall = before - np.maximum(curve.slowdown, 1.0)
    i = int(fall.argmax())
    if fall[i] <= 0:
        return ""
    is_noise = curve.high[i] >= before[i] - (before[i] - 1) * 1e-9
    why = (
        "which is within its interval and treated as noise"
        if is_noise
        else "which is more than its interval: measure it again with `mpicoloc bubble sensitivity`"
    )
    return (
        f"curve of {curve.program} falls by {fall[i]:.3f} up to level {curve.levels[i]:g}, {why}; "
        "it was flattened where it falls"
    )


Rule = Callable[[Floats], Floats]
"""Maps the pressures of n co-runners to their combined pressure; an empty slot has pressure 0.

Shapes: pressures (..., n), result (...).
"""


def capped_sum(pressures: Floats) -> Floats:
    """Pressures add up until memory is saturated: min(sum, MAX_LEVEL)."""
    return np.minimum(pressures.sum(axis=-1), MAX_LEVEL)


def saturating(pressures: Floats) -> Floats:
    """Each co-runner takes its fraction of what others leave: MAX_LEVEL (1 - prod(1 - p / MAX_LEVEL))."""
    left = 1 - np.minimum(pressures, MAX_LEVEL) / MAX_LEVEL
    return np.asarray(MAX_LEVEL * (1 - left.prod(axis=-1)))


def largest(pressures: Floats) -> Floats:
    """Only the co-runner with the largest pressure counts."""
    return np.minimum(pressures.max(axis=-1, initial=0.0), MAX_LEVEL)


RULES: Mapping[str, Rule] = MappingProxyType(
    {"capped-sum": capped_sum, "saturating": saturating, "largest": largest}
)
DEFAULT_RULE = "capped-sum"


def rule(name: str) -> Rule:
    """The rule of this name.

    Raises `UsageError` if there is no such rule.
    """
    if name not in RULES:
        raise UsageError(f"unknown rule {name!r} for pressures: the rules are {', '.join(RULES)}")
    return RULES[name]


ENDS = ("value", "low", "high")


@dataclass(frozen=True)
class BubbleModel:
    """A `SlowdownModel` from one curve and one score of each program.

    Parameters
    ----------
    programs : mapping of str to ProgramPressure
        Curve and score of each program, by name (`JobFeatures.program`).
    combine : str
        Rule that combines the pressures of several co-runners: a name in `RULES`.
    machine : Machine or None
        Machine on which the curves were measured.
    card : mapping
        Model card: plain data that describe the model to readers.

    Notes
    -----
    Han et al. 2016, section 2, after Mars et al. 2011: the slowdown of A beside B is A's curve at B's score.
    The interval runs from the curve's lower end at the score's lower end to the curve's upper end at the
    score's upper end. A falling curve is replaced by the nearest one that does not fall, with an entry in
    `notes`.
    """

    programs: Mapping[str, ProgramPressure]
    combine: str = DEFAULT_RULE
    machine: Machine | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    kind: str = field(default=METHOD, init=False)
    notes: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        rule(self.combine)
        risen = {name: monotone(one.curve) for name, one in self.programs.items()}
        object.__setattr__(self, "programs", dict(self.programs))
        object.__setattr__(self, "_curves", {name: curve for name, (curve, _) in risen.items()})
        object.__setattr__(self, "notes", tuple(note for _, note in risen.values() if note))

    @property
    def n_rows(self) -> int:
        """Number of programs that the model knows."""
        return len(self.programs)

    def curve(self, program: str) -> SensitivityCurve:
        """The rising curve of a program.

        Raises
        ------
        DataError
            If the model has no curve of the program.
        """
        self._check([program])
        found: SensitivityCurve = self._curves[program]  # type: ignore[attr-defined]
        return found

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Slowdown of `target`; see `SlowdownModel`.

        Raises
        ------
        DataError
            If a program has no curve.
        """
        if not co_runners:
            return alone(METHOD)
        names = [job.program for job in (target, *co_runners)]
        self._check(names)
        curve, scores = self.curve(target.program), [self.programs[name].score for name in names[1:]]
        combined = rule(self.combine)
        ends = [_levels([getattr(score, end) for score in scores]) for end in ENDS]
        value, low, high = (
            float(np.interp(combined(levels), curve.levels, slowdown))
            for levels, slowdown in zip(ends, _ends(curve), strict=True)
        )
        return Estimate(value, low, high, min(curve.n, *(score.n for score in scores)), "1", METHOD)

    def predict_pairs(self, jobs: Sequence[JobFeatures]) -> PairSlowdowns:
        """All ordered pairs of `jobs`; see `core.slowdown.pair_slowdowns`."""
        names = list(dict.fromkeys(job.program for job in jobs))
        self._check(names)
        found = np.ones((3, len(names), len(names)))
        for i, end in enumerate(ENDS):
            scores = _levels([getattr(self.programs[name].score, end) for name in names])
            for row, name in zip(found[i], names, strict=True):
                curve = self.curve(name)
                row[:] = np.interp(scores, curve.levels, _ends(curve)[i])
        place = {name: i for i, name in enumerate(names)}
        rows = np.array([place[job.program] for job in jobs], np.int64)
        return PairSlowdowns(*(ends[np.ix_(rows, rows)] for ends in found))

    def _check(self, names: Sequence[str]) -> None:
        unknown = next((name for name in names if name not in self.programs), None)
        if unknown is not None:
            raise DataError(
                f"no curve of program {unknown!r}: measure it with `mpicoloc bubble sensitivity` and "
                "`mpicoloc bubble score`, or leave its jobs out"
            )


def pairs_of_programs(model: BubbleModel) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Slowdown and ends of its interval for all ordered pairs of a model's programs, by program names."""
    jobs = [JobFeatures(name, name, 1.0, 1, 1) for name in model.programs]
    found = model.predict_pairs(jobs)
    return {
        (one.program, other.program): (
            float(found.value[i, j]),
            float(found.low[i, j]),
            float(found.high[i, j]),
        )
        for i, one in enumerate(jobs)
        for j, other in enumerate(jobs)
    }


def _levels(scores: Sequence[float]) -> Floats:
    """Scores as levels, clipped to the range of bubbles because the ends of an interval can lie outside."""
    return np.clip(np.array(scores, float), 0, MAX_LEVEL)


def _ends(curve: SensitivityCurve) -> tuple[Floats, Floats, Floats]:
    return curve.slowdown, curve.low, curve.high


_COLUMNS = ("levels", "slowdown", "low", "high")


def to_document(model: BubbleModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """Plain values and arrays of a model.

    An array of curves holds the curves of all programs one after the other; an array of scores has one row
    for each program.
    """
    programs = list(model.programs.values())
    told = {
        "kind": METHOD,
        "combine": model.combine,
        "programs": [one.program for one in programs],
        "policies": [one.policy for one in programs],
        "sources": [one.curve.source for one in programs],
        "machine": None if model.machine is None else dataclasses.asdict(model.machine),
        "n_rows": model.n_rows,
        "band": {},
        "card": dict(model.card),
    }
    arrays: dict[str, Array] = {
        f"curve.{name}": np.concatenate([getattr(one.curve, name) for one in programs] or [np.empty(0)])
        for name in _COLUMNS
    }
    arrays["curve.length"] = np.array([len(one.curve.levels) for one in programs], np.int64)
    arrays["curve.n"] = np.array([one.curve.n for one in programs], np.int64)
    scores = [(one.score.value, one.score.low, one.score.high) for one in programs]
    arrays["score.ends"] = np.array(scores, np.float64).reshape(len(programs), 3)
    arrays["score.n"] = np.array([one.score.n for one in programs], np.int64)
    return told, arrays


def from_document(told: Mapping[str, Any], arrays: Mapping[str, Array]) -> BubbleModel:
    """The model from the result of `to_document`.

    Raises `DataError` if the parts do not match. Raises `LookupError`, `ValueError`, `TypeError` if parts are
    missing or have another type.
    """
    names = list(map(str, told["programs"]))
    columns = [arrays[f"curve.{name}"].astype(np.float64, casting="same_kind") for name in _COLUMNS]
    length, n, n_score = (
        arrays[name].astype(np.int64, casting="same_kind") for name in ("curve.length", "curve.n", "score.n")
    )
    scores = arrays["score.ends"].astype(np.float64, casting="same_kind")
    if scores.shape != (len(names), 3) or any(a.shape != (len(names),) for a in (length, n, n_score)):
        raise DataError("the numbers of programs, curves and scores differ")
    if (length < 2).any() or any(column.shape != (length.sum(),) for column in columns):
        raise DataError("curves are missing or too short")
    ends = np.cumsum(length)
    found = {}
    rows = zip(names, told["policies"], told["sources"], ends - length, ends, strict=True)
    for i, (name, policy, source, start, end) in enumerate(rows):
        levels, slowdown, low, high = (column[start:end] for column in columns)
        curve = SensitivityCurve(name, levels, slowdown, low, high, int(n[i]), str(source))
        value, low_end, high_end = map(float, scores[i])
        score = pressure_score(value, low_end, high_end, int(n_score[i]))
        found[name] = ProgramPressure(name, curve, score, None if policy is None else str(policy))
    if len(found) < len(names):
        raise DataError("a program appears twice")
    machine = machine_from_values(told["machine"])
    return BubbleModel(found, str(told["combine"]), machine=machine, card=dict(told["card"]))
