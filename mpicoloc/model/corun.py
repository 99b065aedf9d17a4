"""Slowdowns from runs of programs alone and at the same time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from mpicoloc.core.estimate import Estimate

CONFIDENCE = 0.95
LEAST_OVERLAP_FRAC = 0.5
"""A run of which less was beside the co-runner says nothing of it."""
METHOD = "co-run time over solo time"


@dataclass(frozen=True)
class TimedRun:
    """One run of a program in an experiment, from MPI_Init to MPI_Finalize.

    `is_whole` is False if it was ended before its end, as the last run of the shorter program is.
    """

    program: str
    place: int
    begin_unix_s: float
    wall_s: float
    is_whole: bool
    profile: str = ""


@dataclass(frozen=True)
class Slowdown:
    """What a program suffers beside another one: T_co / T_solo."""

    target: str
    co_runner: str
    slowdown: Estimate


def overlap_s(run: TimedRun, others: Iterable[TimedRun]) -> float:
    """How long one of `others`, which run one after the other, was there during `run`, s."""
    end_s = run.begin_unix_s + run.wall_s
    both = (
        min(end_s, other.begin_unix_s + other.wall_s) - max(run.begin_unix_s, other.begin_unix_s)
        for other in others
    )
    return min(run.wall_s, sum(part for part in both if part > 0))


def of_time(wall_s: float, beside_s: float, solo_s: float) -> float | None:
    """Slowdown while the co-runner was there, of a run during part of which it was not.

    Alone the run goes at full speed, so that part of the work takes as long as alone; the rest of it took
    `beside_s` (Zacarias et al. 2021, Eq. 1, where the co-runner is there all the time).

    Parameters
    ----------
    wall_s, beside_s, solo_s : float
        The run's time, the part with the co-runner, and the time of a run alone, s.

    Returns
    -------
    float or None
        T_co / T_solo; None where too little of the run was beside the co-runner.
    """
    work_s = solo_s - (wall_s - beside_s)
    if beside_s < LEAST_OVERLAP_FRAC * wall_s or work_s <= 0:
        return None
    return beside_s / work_s


def solo_times(experiments: Iterable[Sequence[TimedRun]]) -> dict[str, list[float]]:
    """Time of each whole run of the experiments with one program, s."""
    times: dict[str, list[float]] = defaultdict(list)
    for runs in experiments:
        if len({run.place for run in runs}) == 1:
            for run in runs:
                if run.is_whole:
                    times[run.program].append(run.wall_s)
    return dict(times)


def slowdowns(experiments: Sequence[Sequence[TimedRun]]) -> list[Slowdown]:
    """Slowdown of each program beside each other one, where both ran alone and together.

    Runs scatter in proportion to their time. How far is told by all programs together, alone and beside
    others apart, because two or three runs of one pair cannot tell; so a single run of a pair has an
    interval too.

    Parameters
    ----------
    experiments : sequence of sequence of TimedRun
        The runs of each experiment: of one place, a program alone; of two, programs at the same time.

    Returns
    -------
    list of Slowdown
        Sorted by names. Empty where no program ran twice, for then nothing tells how far runs scatter.
    """
    alone = solo_times(experiments)
    solo_s = {name: math.exp(np.log(times).mean()) for name, times in alone.items()}
    beside = _beside(experiments, solo_s)
    solo_sd, n_solo = _pooled_sd(alone)
    co_sd, n_co = _pooled_sd(beside)
    freedom = min((n for n in (n_solo, n_co) if n), default=0)
    if not freedom:
        return []
    # Where the runs of one kind never were repeated, those of the other kind tell.
    solo_sd, co_sd = (solo_sd if n_solo else co_sd), (co_sd if n_co else solo_sd)
    width = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
    result = []
    for (target, co_runner), found in sorted(beside.items()):
        value = math.exp(np.log(found).mean())
        factor = math.exp(width * math.hypot(co_sd / len(found) ** 0.5, solo_sd / len(alone[target]) ** 0.5))
        estimate = Estimate(value, value / factor, value * factor, len(found), "1", METHOD)
        result.append(Slowdown(target, co_runner, estimate))
    return result


def _beside(
    experiments: Iterable[Sequence[TimedRun]], solo_s: Mapping[str, float]
) -> dict[tuple[str, str], list[float]]:
    """Slowdowns of single runs, by target and co-runner; those of one experiment are one, their mean."""
    result: dict[tuple[str, str], list[float]] = defaultdict(list)
    for runs in experiments:
        for place in {run.place for run in runs}:
            mine = [run for run in runs if run.place == place]
            others = [run for run in runs if run.place != place]
            if not others or mine[0].program not in solo_s:
                continue
            found = [
                of_time(run.wall_s, overlap_s(run, others), solo_s[run.program])
                for run in mine
                if run.is_whole
            ]
            known = [value for value in found if value is not None]
            if known:
                key = (mine[0].program, others[0].program)
                result[key].append(math.exp(np.log(known).mean()))
    return dict(result)


def _pooled_sd(groups: Mapping[Any, Sequence[float]]) -> tuple[float, int]:
    """Standard deviation of the logarithms within groups, and its degrees of freedom."""
    freedom = sum(len(values) - 1 for values in groups.values())
    if not freedom:
        return 0.0, 0
    squares = sum(float(np.var(np.log(values)) * len(values)) for values in groups.values())
    return (squares / freedom) ** 0.5, freedom
