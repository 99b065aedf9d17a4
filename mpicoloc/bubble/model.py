"""The slowdown model that needs no pairs: curves and scores of programs, one run of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.bubble.combining import DEFAULT_RULE, rule
from mpicoloc.bubble.curves import monotone
from mpicoloc.core.bubbles import MAX_LEVEL, METHOD, ProgramPressure, SensitivityCurve, pressure_score
from mpicoloc.core.estimate import Estimate
from mpicoloc.core.features import JobFeatures
from mpicoloc.core.machine import Machine, machine_from_values
from mpicoloc.core.slowdown import PairSlowdowns, SlowdownModel, alone
from mpicoloc.errors import DataError

Floats = NDArray[np.float64]
ENDS = ("value", "low", "high")


@dataclass(frozen=True)
class BubbleModel:
    """A `SlowdownModel` from one curve and one score of each program.

    Parameters
    ----------
    programs : mapping of str to ProgramPressure
        By the programs' names (`JobFeatures.program`).
    combine : str
        How pressures of several co-runners become one: a name of `combining.RULES`.
    otherwise : SlowdownModel, optional
        Asked where a program has no curve.
    machine : Machine or None
        Where the curves were measured.
    card : mapping
        Plain data for people.

    Notes
    -----
    Han et al. 2016, section 2, after Mars et al. 2011: the slowdown of A beside B is A's curve at B's score.
    The interval goes from the curve's lower end at the score's lower end to the upper one at the upper one.
    A curve that falls is made even, and `notes` tell it.
    """

    programs: Mapping[str, ProgramPressure]
    combine: str = DEFAULT_RULE
    otherwise: SlowdownModel | None = None
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
        """Programs that the model knows."""
        return len(self.programs)

    def curve(self, program: str) -> SensitivityCurve:
        """The rising curve of a program.

        Raises
        ------
        DataError
            If it has none.
        """
        self._check([program])
        found: SensitivityCurve = self._curves[program]  # type: ignore[attr-defined]
        return found

    def predict(self, target: JobFeatures, co_runners: Sequence[JobFeatures]) -> Estimate:
        """Slowdown of `target`; see `SlowdownModel`.

        Raises
        ------
        DataError
            If a program has no curve, and there is no other model to ask.
        """
        if not co_runners:
            return alone(METHOD)
        names = [job.program for job in (target, *co_runners)]
        if self.otherwise is not None and not self.programs.keys() >= set(names):
            return self.otherwise.predict(target, co_runners)
        self._check(names)
        curve, scores = self.curve(target.program), [self.programs[name].score for name in names[1:]]
        combined = rule(self.combine)
        ends = [_levels([getattr(score, end) for score in scores]) for end in ENDS]
        value, low, high = (
            float(np.interp(combined(levels), curve.levels, slowdown))
            for levels, slowdown in zip(ends, _ends(curve), strict=True)
        )
        n = min(curve.n, *(score.n for score in scores))
        return Estimate(value, low, high, n, "1", METHOD)

    def predict_pairs(self, jobs: Sequence[JobFeatures]) -> PairSlowdowns:
        """All ordered pairs of `jobs`; see `core.slowdown.pair_slowdowns`."""
        names = list(dict.fromkeys(job.program for job in jobs))
        if self.otherwise is not None and not self.programs.keys() >= set(names):
            return self._one_by_one(jobs)
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

    def _one_by_one(self, jobs: Sequence[JobFeatures]) -> PairSlowdowns:
        found = [[self.predict(job, [other]) for other in jobs] for job in jobs]
        ends = np.array([[[getattr(one, end) for one in row] for row in found] for end in ENDS])
        return PairSlowdowns(*ends)

    def _check(self, names: Sequence[str]) -> None:
        unknown = next((name for name in names if name not in self.programs), None)
        if unknown is not None:
            raise DataError(
                f"no curve of program {unknown!r}: measure it by `mpicoloc bubble sensitivity` and "
                "`mpicoloc bubble score`, or leave its jobs out"
            )


def pairs_of_programs(model: BubbleModel) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Value, low and high for all ordered pairs of the programs that a model knows, by their names."""
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
    """Scores as levels: of an interval's ends, which may lie outside, the part that bubbles have."""
    return np.clip(np.array(scores, float), 0, MAX_LEVEL)


def _ends(curve: SensitivityCurve) -> tuple[Floats, Floats, Floats]:
    return curve.slowdown, curve.low, curve.high


Array = np.ndarray[Any, Any]
_COLUMNS = ("levels", "slowdown", "low", "high")


def to_document(model: BubbleModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """Plain values and arrays of a model; of `otherwise` nothing is kept.

    Curves stand one after the other in each array, scores one row each.
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
    """The model that `to_document` took apart.

    Raises `DataError` if it is none. Raises `LookupError`, `ValueError`, `TypeError` if parts are missing or
    of another kind.
    """
    names = list(map(str, told["programs"]))
    columns = [arrays[f"curve.{name}"].astype(np.float64, casting="same_kind") for name in _COLUMNS]
    length, n, n_score = (
        arrays[name].astype(np.int64, casting="same_kind") for name in ("curve.length", "curve.n", "score.n")
    )
    scores = arrays["score.ends"].astype(np.float64, casting="same_kind")
    if scores.shape != (len(names), 3) or any(a.shape != (len(names),) for a in (length, n, n_score)):
        raise DataError("curves and scores of other programs")
    if (length < 2).any() or any(column.shape != (length.sum(),) for column in columns):
        raise DataError("curves that are not there")
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
        raise DataError("a program that is there twice")
    machine = machine_from_values(told["machine"])
    return BubbleModel(found, str(told["combine"]), machine=machine, card=dict(told["card"]))
