"""What a job suffers beside bubbles in some of its shutters, and how much it presses, without an extra run.

In a shutter all co-runners stand still, so a job beside a bubble there is slowed by the bubble alone. In
others the probe runs there instead, and is slowed by the job alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.bubbles import LEVELS, MAX_LEVEL, SensitivityCurve, pressure_score
from mpicoloc.core.estimate import Estimate
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import VERDICTS, Table, text
from mpicoloc.errors import DataError
from mpicoloc.measure.burst import t_quantile
from mpicoloc.measure.calibration import score_of
from mpicoloc.measure.count import MODEL_ERROR
from mpicoloc.measure.count_paces import Paces, crowded, paces
from mpicoloc.measure.estimate import pass_ns
from mpicoloc.measure.turns import slowdown_of

MIN_SOLO, MIN_LEVEL = 6, 3
"""Shutters without a bubble, and with a bubble of one level, below which there is no number."""
MIN_PROBES = 6
"""Shutters with the probe below which there is no score."""
_LEAST_HALF_LEVEL = 0.25
"""Half-width that a score counts with at least: at 0 and 8 both ends of an interval may be cut off."""
_BUBBLED = VERDICTS.index("bubbled")
_BEFORE, _DURING = 0, 1
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Bubbled:
    """The curve, or `reason` why there is none; `n_taken` shutters had a bubble or the probe.

    Of these `n_used` count for the curve. `score` is the level of the bubble that the job is like itself, or
    `score_reason` says why there is none.
    """

    curve: SensitivityCurve | None
    reason: str = ""
    n_taken: int = 0
    n_used: int = 0
    score: Estimate | None = None
    score_reason: str = ""

    def slowdown_at(self, level: float) -> Estimate | None:
        """The slowdown beside a bubble of this level, None where it was not measured."""
        if self.curve is None or level not in self.curve.levels:
            return None
        return self.curve.at(level)


def ran_any(profile: Profile) -> bool:
    """Whether a bubble or the probe ran in a shutter of the job."""
    return _ran_any(profile.tables["shutters"])


def _ran_any(shutters: Table) -> bool:
    return bool(_has_run(shutters).any())


def _has_run(shutters: Table) -> Flags:
    """Shutters in which a bubble or the probe had its processors to itself."""
    ran: Flags = (shutters["bubble_level"] > 0) | (shutters["probe_slowdown"] > 0)
    return ran & (shutters["verdict"] == _BUBBLED)


def why_none(profile: Profile) -> str:
    """Why no bubble ran in the job's shutters; empty where none was wanted, or some ran."""
    if reason := next(filter(None, map(text, profile.tables["nodes"]["bubble_reason"])), ""):
        return reason
    n_told = int((profile.tables["shutters"]["verdict"] == _BUBBLED).sum())
    if n_told and not ran_any(profile):
        return (
            f"in {n_told} shutters bubbles were to run, but none began in time and had its processors: other "
            "programs wanted them, or the co-runner that was asked could not press"
        )
    return ""


def of_profile(profile: Profile, program: str) -> Bubbled:
    """Curve and score of a job, by `bubbled_slowdowns` and `probe_score`; `program` is its name."""
    return of_tables(profile.tables, program)


def summary(tables: Mapping[str, Table]) -> dict[str, Any]:
    """The fields of `Interference` that bubbles fill, as far as they are known."""
    try:
        bubbled = of_tables(tables, "")
    except DataError:  # a strange calibration costs no job its profile
        return {}
    found = {"bubble_score": bubbled.score, "bubble_slowdown": bubbled.slowdown_at(MAX_LEVEL)}
    ends = (("", "value"), ("_low", "low"), ("_high", "high"))
    return {
        f"{name}{end}": float(getattr(one, part))
        for name, one in found.items()
        if one is not None
        for end, part in ends
    }


def of_tables(tables: Mapping[str, Table], program: str) -> Bubbled:
    """As `of_profile`, of a profile's tables."""
    found = bubbled_slowdowns(program, tables["shutters"], tables["counts"], cost_ns=pass_ns(tables))
    score, reason = probe_score(tables["shutters"], tables["bubble_levels"])
    return replace(found, score=score, score_reason=reason)


def probe_score(shutters: Table, bubble_levels: Table) -> tuple[Estimate | None, str]:
    """The level of the bubble that a job is like itself, or why it is not known.

    Parameters
    ----------
    shutters, bubble_levels : Table
        Of a profile.

    Returns
    -------
    score : Estimate or None
        In levels.
    reason : str
        Empty if there is a score.

    Notes
    -----
    Han et al. 2016, section 2. The probe's pace alone is that of the calibration: how the machine has changed
    since is taken for the job's doing.
    """
    is_probed = (shutters["verdict"] == _BUBBLED) & (shutters["probe_slowdown"] > 0)
    n, curve = int(is_probed.sum()), bubble_levels[: len(LEVELS)]
    if n < MIN_PROBES:
        return None, f"the probe ran in {n} shutters, {MIN_PROBES} needed"
    if curve["level"].tolist() != list(LEVELS):
        return None, "the profile does not tell how much bubbles slow the probe"
    value, low, high = (curve[f"probe_{name}"] for name in ("slowdown", "low", "high"))
    relative = 1 / shutters["probe_slowdown"][is_probed]
    slowdown = slowdown_of(relative, np.ones(n))
    return score_of(slowdown, SensitivityCurve("the probe", curve["level"], value, low, high)), ""


def of_runs(runs: Sequence[Bubbled]) -> Bubbled:
    """What several runs of one program tell together; at least one."""
    curves = [one.curve for one in runs if one.curve is not None]
    scores = [one.score for one in runs if one.score is not None]
    return Bubbled(
        together(curves) if curves else None,
        n_taken=sum(one.n_taken for one in runs),
        n_used=sum(one.n_used for one in runs),
        score=mean_score(scores) if scores else None,
    )


def mean_score(scores: Sequence[Estimate]) -> Estimate:
    """One score from those of several runs of a program; at least one."""
    value, low, high = (np.array([getattr(one, name) for one in scores]) for name in ("value", "low", "high"))
    mean, half = _weighted_mean(value, np.maximum((high - low) / 2, _LEAST_HALF_LEVEL))
    return pressure_score(
        mean, max(0.0, mean - half), min(MAX_LEVEL, mean + half), sum(one.n for one in scores)
    )


def together(curves: Sequence[SensitivityCurve]) -> SensitivityCurve:
    """One curve from those of several runs of a program.

    Parameters
    ----------
    curves : sequence of SensitivityCurve
        At least one. The new one has all levels that any of them has.

    Returns
    -------
    SensitivityCurve
        Means of the logarithms, weighted by the inverse square of their half-widths. Runs that differ by more
        than their intervals say widen the new one (Birge's ratio).
    """
    rows = []
    for level in sorted({float(level) for one in curves for level in one.levels if level > 0}):
        has = [one for one in curves if level in one.levels]
        ends = np.array([[values[one.levels == level][0] for values in (one.slowdown, one.low, one.high)]
                         for one in has])  # fmt: skip
        rows.append([level, *_mean_of_runs(*np.log(ends).T)])
    levels, value, low, high = np.array([[0.0, 1.0, 1.0, 1.0], *rows]).T
    first = curves[0]
    return SensitivityCurve(
        first.program, levels, value, low, high, sum(one.n for one in curves), first.source
    )


def _mean_of_runs(value: Array, low: Array, high: Array) -> tuple[float, float, float]:
    """Of logarithms, with their intervals: the mean slowdown and its interval."""
    mean, half = _weighted_mean(value, (high - low) / 2)
    return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))


def _weighted_mean(value: Array, half: Array) -> tuple[float, float]:
    """Mean of runs and half of its interval, wider if they differ by more than theirs say (Birge's ratio)."""
    half = np.maximum(half, 1e-6)
    weight = 1 / half**2
    mean = float(weight @ value / weight.sum())
    chi_square = float((((value - mean) / half * 1.96) ** 2).sum())
    birge = max(1.0, np.sqrt(chi_square / max(len(value) - 1, 1)))
    return mean, float(birge / np.sqrt(weight.sum()))


def bubbled_slowdowns(program: str, shutters: Table, counts: Table, *, cost_ns: float = 0.0) -> Bubbled:
    """Slowdown of a job beside bubbles of each level that ran in its shutters.

    Parameters
    ----------
    program : str
        Name of the curve.
    shutters, counts : Table
        Tables "shutters" and "counts" of a profile.
    cost_ns : float
        As of `count.slowdown`.

    Returns
    -------
    Bubbled

    Notes
    -----
    Each level's slowdown is the work per time in shutters without a bubble over that in shutters with it
    (Eq. 6 of Breslow et al. 2013), both of the same places. How much single shutters differ is taken for the
    same at all levels, so a level of few shutters borrows it from the others.
    """
    is_bubbled = shutters["verdict"] == _BUBBLED
    rows = shutters.copy()
    rows["verdict"][is_bubbled & (shutters["bubble_level"] > 0)] = VERDICTS.index("valid")
    rows = rows[~crowded(rows)]
    found = paces(rows, counts, cost_ns=cost_ns)
    has_work = (found.stratum > 0) & found.is_good[:, _DURING] & (found.during > 0)
    found = found.select(has_work)
    level = found.bubble_level
    relative, sigma_solo = _relative_to_solo(found, level)
    is_known = np.isfinite(relative) & (level > 0)
    n_taken = int(_has_run(shutters).sum())
    if not n_taken:
        return Bubbled(None, "no bubble ran in its shutters")
    if not is_known.any():
        why = (
            f"no shutter with a bubble has counts, or fewer than {MIN_SOLO} beside co-runners are without one"
        )
        return Bubbled(None, why, n_taken)
    return _curve(program, relative[is_known], level[is_known], sigma_solo[is_known], n_taken)


def _relative_to_solo(found: Paces, level: Array) -> tuple[Array, Array]:
    """Pace in each shutter over the mean without a bubble, by node and places; that mean's relative error.

    Without co-runners the pace without a bubble is that of the windows before the same shutter.
    """
    relative, error = np.full(len(level), np.nan), np.full(len(level), np.nan)
    is_paired = found.alone & found.is_good[:, _BEFORE] & (found.before > 0)
    relative[is_paired] = found.during[is_paired] / found.before[is_paired]
    error[is_paired] = 0.0
    keys = found.node * (found.stratum.max(initial=0) + 1) + found.stratum
    for key in np.unique(keys):
        same = (keys == key) & ~found.alone
        solo = found.during[same & (level == 0)]
        if len(solo) < MIN_SOLO:
            continue
        mean = float(solo.mean())
        relative[same] = found.during[same] / mean
        error[same] = solo.std(ddof=1) / np.sqrt(len(solo)) / mean
    return relative, error


def _curve(program: str, relative: Array, level: Array, solo_error: Array, n_taken: int) -> Bubbled:
    levels, member, n = np.unique(level, return_inverse=True, return_counts=True)
    mean = np.bincount(member, relative) / n
    n_free = len(relative) - len(levels)
    chosen = n >= MIN_LEVEL
    if not chosen.any():
        most = int(n.max())
        reason = f"{most} shutters beside bubbles of one level, {MIN_LEVEL} needed"
        return Bubbled(None, reason, n_taken, len(relative))
    spread = np.sqrt((((relative - mean[member]) / mean[member]) ** 2).sum() / n_free)
    shared = np.bincount(member, solo_error) / n
    half = np.hypot(t_quantile(n_free) * np.hypot(spread / np.sqrt(n), shared), 1.96 * MODEL_ERROR)
    value = (1 / mean)[chosen]
    low, high = value * np.exp(-half[chosen]), value * np.exp(half[chosen])
    n_used = int(n[chosen].sum())
    rows = np.column_stack([levels[chosen], value, low, high])
    known, value, low, high = np.vstack([[0.0, 1.0, 1.0, 1.0], rows]).T
    curve = SensitivityCurve(program, known, value, low, high, n_used, "production")
    return Bubbled(curve, "", n_taken, n_used)
