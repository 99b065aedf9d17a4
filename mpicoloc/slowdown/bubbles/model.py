"""The slowdown model that needs no pairs: curves and scores of programs, one run of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.bubbles import MAX_LEVEL, METHOD, ProgramPressure, SensitivityCurve
from mpicoloc.core.estimate import Estimate
from mpicoloc.core.features import JobFeatures
from mpicoloc.core.machine import Machine
from mpicoloc.errors import DataError
from mpicoloc.slowdown.bubbles.combining import DEFAULT_RULE, rule
from mpicoloc.slowdown.bubbles.curves import monotone
from mpicoloc.slowdown.slowdown import PairSlowdowns, SlowdownModel, alone

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
        """All ordered pairs of `jobs`; see `slowdown.slowdown.pair_slowdowns`."""
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
