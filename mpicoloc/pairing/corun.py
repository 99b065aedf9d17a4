"""Slowdowns from timed runs of programs alone and together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from scipy import stats

from mpicoloc.core.profile import Estimate

CONFIDENCE = 0.95
LEAST_OVERLAP_FRAC = 0.5
"""Smallest fraction of a run that must overlap with the co-runner to give a slowdown."""
LEAST_WORK_FRAC = 0.5
"""Smallest fraction of a run's work that counts as done beside the co-runner. A smaller computed fraction is
replaced by this one, because it would mostly reflect the error of the time alone."""
METHOD = "co-run time over solo time"


@dataclass(frozen=True)
class TimedRun:
    """One run of a program in an experiment, from MPI_Init to MPI_Finalize.

    `is_whole` is False if the run was stopped early, like the last run of the shorter program.
    """

    program: str
    place: int
    begin_unix_s: float
    wall_s: float
    is_whole: bool
    profile: str = ""


@dataclass(frozen=True)
class Slowdown:
    """A program's slowdown beside another program: T_co / T_solo."""

    target: str
    co_runner: str
    slowdown: Estimate


def overlap_s(run: TimedRun, others: Iterable[TimedRun]) -> float:
    """Time during `run` in which one of `others` also ran, s. The others must not overlap each other."""
    end_s = run.begin_unix_s + run.wall_s
    both = (
        min(end_s, other.begin_unix_s + other.wall_s) - max(run.begin_unix_s, other.begin_unix_s)
        for other in others
    )
    return min(run.wall_s, sum(part for part in both if part > 0))


def of_time(wall_s: float, beside_s: float, solo_s: float) -> float | None:
    """Slowdown during the overlap with the co-runner, for a run that was alone part of the time.

    The work that the run did without the co-runner took as long as it takes in a run alone. The rest of the
    work took `beside_s`. (In Zacarias et al. 2021, Eq. 1, the overlap is the whole run.)
    """
    if beside_s < LEAST_OVERLAP_FRAC * wall_s:
        return None
    return beside_s / max(solo_s - (wall_s - beside_s), LEAST_WORK_FRAC * solo_s)


def slowdowns(experiments: Sequence[Sequence[TimedRun]]) -> list[Slowdown]:
    """Slowdown of each program beside each other program, for pairs that ran both alone and together.

    A run beside another program is compared with the program's runs alone on the same place, because one
    place may be slower. If there are none, it is compared with all of the program's runs alone.

    The spread of run times is assumed to be proportional to the time. Two or three runs of a pair do not
    suffice to estimate the spread, so it is pooled over all programs, separately for runs alone and for runs
    beside others. Even a pair that ran only once therefore has an interval.

    Result: sorted by names; empty if no program ran twice, because the spread is then unknown.
    """
    alone = _Alone(experiments)
    beside = _beside(experiments, alone)
    solo_sd, n_solo = _scatter(alone.times)
    co_sd, n_co = _scatter(beside)
    freedom = min((n for n in (n_solo, n_co) if n), default=0)
    if not freedom:
        return []
    # If runs alone, or runs beside others, were never repeated, use the spread of the other group.
    solo_sd, co_sd = (solo_sd if n_solo else co_sd), (co_sd if n_co else solo_sd)
    width = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
    result = []
    for (target, co_runner), by_place in sorted(beside.items()):
        found = [value for values in by_place.values() for value in values]
        shares = {place: len(values) / len(found) for place, values in by_place.items()}
        value = math.exp(np.log(found).mean())
        scatter = math.hypot(co_sd / len(found) ** 0.5, solo_sd * alone.variance(target, shares) ** 0.5)
        factor = math.exp(width * scatter)
        estimate = Estimate(value, value / factor, value * factor, len(found), "1", METHOD)
        result.append(Slowdown(target, co_runner, estimate))
    return result


class _Alone:
    """Times of complete runs of programs alone, s: ``times[program][place]``."""

    def __init__(self, experiments: Iterable[Sequence[TimedRun]]) -> None:
        self.times: dict[str, dict[int, list[float]]] = {}
        for runs in experiments:
            if len({run.place for run in runs}) == 1:
                for run in runs:
                    if run.is_whole:
                        self.times.setdefault(run.program, {}).setdefault(run.place, []).append(run.wall_s)

    def of(self, program: str, place: int) -> list[float]:
        """Times on one place, or on all places if the program never ran alone on that place."""
        by_place = self.times.get(program, {})
        return by_place.get(place) or [wall_s for times in by_place.values() for wall_s in times]

    def variance(self, program: str, shares: Mapping[int, float]) -> float:
        """Variance of the mean time alone, relative to the variance of the time of a single run.

        In the mean, the places have the weights `shares`.
        """
        by_place = self.times[program]
        n = sum(map(len, by_place.values()))
        rest = sum(share for place, share in shares.items() if place not in by_place)
        return sum(
            len(times) * (shares.get(place, 0.0) / len(times) + rest / n) ** 2
            for place, times in by_place.items()
        )


def _beside(
    experiments: Iterable[Sequence[TimedRun]], alone: _Alone
) -> dict[tuple[str, str], dict[int, list[float]]]:
    """Slowdowns by pair of programs and place. The runs of one experiment are averaged."""
    result: dict[tuple[str, str], dict[int, list[float]]] = {}
    for runs in experiments:
        for place in {run.place for run in runs}:
            mine = [run for run in runs if run.place == place]
            others = [run for run in runs if run.place != place]
            times_s = alone.of(mine[0].program, place)
            if not others or not times_s:
                continue
            solo_s = math.exp(np.log(times_s).mean())
            found = [of_time(run.wall_s, overlap_s(run, others), solo_s) for run in mine if run.is_whole]
            known = [value for value in found if value is not None]
            if known:
                of_pair = result.setdefault((mine[0].program, others[0].program), {})
                of_pair.setdefault(place, []).append(math.exp(np.log(known).mean()))
    return result


def _scatter(found: Mapping[Any, Mapping[int, Sequence[float]]]) -> tuple[float, int]:
    """Pooled standard deviation of the logarithms, and its degrees of freedom.

    If runs were repeated on a place, the deviation is computed within places. Otherwise the differences
    between places count as spread, too.
    """
    within = _pooled_sd([values for by_place in found.values() for values in by_place.values()])
    return within if within[1] else _pooled_sd([[*chain(*by_place.values())] for by_place in found.values()])


def _pooled_sd(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Standard deviation of the logarithms within groups, and its degrees of freedom."""
    freedom = sum(len(values) - 1 for values in groups)
    if not freedom:
        return 0.0, 0
    squares = sum(float(np.var(np.log(values)) * len(values)) for values in groups)
    return (squares / freedom) ** 0.5, freedom
