"""Sensitivity curve and score of a job, from shutters in which a bubble or the probe ran, or from turns.

In a shutter all co-runners are paused, so a bubble that runs there is the only cause of the job's slowdown.
If the probe runs there instead, the job is the only cause of the probe's slowdown. If a co-runner works and
rests in turns, the progress in each turn is compared only with that in the rests just before and after it,
because any other change of the machine then affects the turn and these rests alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.bubble.calibration import score_of
from mpicoloc.core.bubbles import LEVELS, MAX_LEVEL, SensitivityCurve, pressure_score
from mpicoloc.core.profile import VERDICTS, Bools, Estimate, Floats, Profile, Table, table, text
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError
from mpicoloc.measure.burst import t_quantile
from mpicoloc.measure.count import COUNT_MODEL_ERROR, MAX_PACE, Paces, crowded, instants, paces
from mpicoloc.measure.meter_choice import pass_ns

METHOD = "bubble-turns"
MIN_TURNS = 4
"""Least number of turns at a level from which an interval is computed."""
MIN_BUSY_FRAC = 0.03
"""Least fraction of a turn for which the measured process must have had its processor."""
TRIM_FRAC = 0.2
QUIET_FRAC = 0.9
"""Replaces `MIN_BUSY_FRAC` where turns that other programs disturbed must not count."""


@dataclass(frozen=True)
class Progress:
    """Cumulative progress at each time.

    Parameters
    ----------
    time_s : ndarray, shape (n,)
        Increasing times, by the same clock as the turns.
    work : ndarray, shape (n,)
        Units of work done by each time; never decreases.
    busy_s : ndarray, shape (n,)
        Time spent on this work by each time, s: processor time, or `time_s`.
    """

    time_s: Floats
    work: Floats
    busy_s: Floats


@dataclass(frozen=True)
class Turns:
    """Turns in order of time. In a turn of level 0 the co-runner rests.

    Parameters
    ----------
    begin_s, end_s, level : ndarray, shape (n,)
    """

    begin_s: Floats
    end_s: Floats
    level: Floats

    def disturbed(self, co_runner: Progress) -> Bools:
        """Turns in which the co-runner should work, but has its processor for less than `QUIET_FRAC`."""
        _, busy_s = turn_paces(co_runner, self)
        return (self.level > 0) & (busy_s < QUIET_FRAC * (self.end_s - self.begin_s))

    def without(self, chosen: Bools) -> Turns:
        """The same turns, but the chosen ones have level -1 and so count neither as rest nor as work."""
        return Turns(self.begin_s, self.end_s, np.where(chosen, -1.0, self.level))

    def without_beginnings(self, guard_s: float) -> Turns:
        """Cut off the beginning of each turn, in which caches still hold data of the previous turn."""
        return Turns(np.minimum(self.begin_s + guard_s, self.end_s), self.end_s, self.level)


def turn_paces(
    progress: Progress, turns: Turns, min_busy_frac: float = MIN_BUSY_FRAC
) -> tuple[Floats, Floats]:
    """For each turn: the work per busy second (NaN if not measured), and the busy seconds."""
    work, busy_s = (
        np.interp(turns.end_s, progress.time_s, done) - np.interp(turns.begin_s, progress.time_s, done)
        for done in (progress.work, progress.busy_s)
    )
    seen = (turns.begin_s >= progress.time_s[0]) & (turns.end_s <= progress.time_s[-1])
    length_s = np.maximum(turns.end_s - turns.begin_s, 1e-9)
    is_measured = seen & (busy_s > min_busy_frac * length_s) & (work > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(is_measured, work / busy_s, np.nan), busy_s


def relative_paces(
    progress: Progress, turns: Turns, min_busy_frac: float = MIN_BUSY_FRAC
) -> tuple[Floats, Floats]:
    """For each turn: its pace over that of the adjacent rests (NaN for a rest), and its busy seconds."""
    pace, busy_s = turn_paces(progress, turns, min_busy_frac)
    around = np.pad(np.where(turns.level == 0, pace, np.nan), 1, constant_values=np.nan)
    before, after = around[:-2], around[2:]
    alone = np.where(np.isnan(before), after, np.where(np.isnan(after), before, (before + after) / 2))
    return np.where(turns.level > 0, pace / alone, np.nan), busy_s


def slowdown_of(relative: Floats, busy_s: Floats) -> Estimate:
    """Slowdown over several turns, with a jackknife interval over the turns.

    Shapes: `relative`, `busy_s` (n,). Result: T_co / T_solo, the time over the time that the same work would
    take alone. Raises `DataError` if there are fewer than `MIN_TURNS` turns.
    """
    n = len(relative)
    if n < MIN_TURNS:
        raise DataError(f"{n} turns were measured, but {MIN_TURNS} are needed: let it run longer")
    alone_s = relative * busy_s
    value = float(busy_s.sum() / alone_s.sum())
    left = np.log((busy_s.sum() - busy_s) / (alone_s.sum() - alone_s))
    spread = math.sqrt((n - 1) / n * float(np.sum((left - left.mean()) ** 2)))
    half = t_quantile(n - 1) * spread
    return Estimate(value, value * math.exp(-half), value * math.exp(half), n, "1", METHOD)


def steady_slowdown_of(relative: Floats) -> Estimate:
    """Slowdown over turns that differ only by noise: mean of the logarithms, trimmed by a fifth at each end.

    Shapes: `relative` (n,). Raises `DataError` if there are fewer than `MIN_TURNS` turns.

    The interval of this mean comes from the Winsorized variance (Tukey and McLaughlin 1963).
    """
    from scipy.stats.mstats import trimmed_mean, trimmed_mean_ci

    n = len(relative)
    if n < MIN_TURNS:
        raise DataError(f"{n} turns were measured, but {MIN_TURNS} are needed: let it run longer")
    logs, trim = -np.log(relative), (TRIM_FRAC, TRIM_FRAC)
    value = math.exp(float(trimmed_mean(logs, limits=trim)))
    low, high = (math.exp(end) for end in trimmed_mean_ci(logs, limits=trim, alpha=0.05))
    return Estimate(value, min(low, value), max(high, value), n, "1", METHOD)


def slowdowns(
    progress: Progress,
    turns: Turns,
    min_busy_frac: float = MIN_BUSY_FRAC,
    *,
    is_steady: bool = False,
) -> Mapping[float, Estimate]:
    """Slowdown at each level above 0 that has enough turns, in the order of the levels."""
    relative, busy_s = relative_paces(progress, turns, min_busy_frac)
    found = {}
    for level in np.unique(turns.level[turns.level > 0]):
        chosen = (turns.level == level) & ~np.isnan(relative)
        if np.count_nonzero(chosen) >= MIN_TURNS:
            of_level = relative[chosen]
            found[float(level)] = (
                steady_slowdown_of(of_level) if is_steady else slowdown_of(of_level, busy_s[chosen])
            )
    return found


def curve(program: str, found: Mapping[float, Estimate]) -> SensitivityCurve:
    """A program's curve from its slowdowns at increasing levels above 0."""
    rows = [(1.0, 1.0, 1.0), *((one.value, one.low, one.high) for one in found.values())]
    slowdown, low, high = np.array(rows).T
    levels = np.array([0.0, *found])
    return SensitivityCurve(program, levels, slowdown, low, high, sum(one.n for one in found.values()))


def rising(values: Floats) -> Floats:
    """The mean of two curves that never fall: the closest one above these values, and the closest one below.

    True slowdown never falls with pressure; a measured curve can fall through noise.
    """
    above = np.maximum.accumulate(values)
    below = np.minimum.accumulate(values[::-1])[::-1]
    return (above + below) / 2


BENDS = (0.01, 0.03, 0.06, 0.12, 0.25)
"""Scales of the random walk in the slope of log(slowdown), per level: from nearly a line to strong bends."""
SLOPE = 0.15
"""Prior standard deviation of log(slowdown) per level: one deviation at level 8 is a slowdown of 3.3."""
_TO_95 = 1.96


def smoothed(measured: SensitivityCurve, common: float = 0.0) -> SensitivityCurve:
    """A smooth curve through slowdowns measured at single levels.

    The result has the same levels. Like the measured curve, it can fall, and can be below 1.

    It is a cubic smoothing spline through 1 at level 0, computed as the mean of a Gaussian process (Wahba
    1978) in which log(slowdown) is the integral of a random walk. The scale of the walk is not fitted.
    Instead, the results for the scales in `BENDS` are averaged, each weighted by its likelihood, and the
    intervals include the differences between these results.
    """
    level = measured.levels[1:]
    value, low, high = (np.log(ends[1:]) for ends in (measured.slowdown, measured.low, measured.high))
    variance = ((high - low) / (2 * _TO_95)) ** 2
    noise = np.diag(np.maximum(variance - common**2, 1e-12)) + common**2
    fits = [_posterior(_prior(level, bend), noise, value) for bend in BENDS]
    means, variances = (np.array([fit[i] for fit in fits]) for i in (0, 1))
    evidence = np.array([fit[2] for fit in fits])
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    mean = weight @ means
    half = _TO_95 * np.sqrt(weight @ (variances + (means - mean) ** 2))
    value, low, high = (np.append(1.0, np.exp(one)) for one in (mean, mean - half, mean + half))
    return replace(measured, slowdown=value, low=low, high=high)


def _prior(level: Floats, bend: float) -> Floats:
    """Covariance of log(slowdown) between levels, for a random slope plus the integral of a random walk."""
    least, most = np.minimum.outer(level, level), np.maximum.outer(level, level)
    return SLOPE**2 * np.outer(level, level) + bend**2 * least**2 * (3 * most - least) / 6


def _posterior(prior: Floats, noise: Floats, value: Floats) -> tuple[Floats, Floats, float]:
    """Posterior mean and variances given the measured `value`, and the log evidence."""
    solved = np.linalg.solve(prior + noise, np.column_stack([value, prior]))
    evidence = -(float(value @ solved[:, 0]) + np.linalg.slogdet(prior + noise)[1]) / 2
    return prior @ solved[:, 0], np.diag(prior - prior @ solved[:, 1:]), evidence


MIN_SOLO, MIN_BUBBLED = 6, 6
"""Least numbers of shutters for a curve: of those without a bubble, and of those with one of any level."""
_MIN_FREE = 4
"""Least degrees of freedom of the spread between shutters for a curve."""
MIN_PROBES = 6
"""Least number of shutters with the probe for a score."""
BUBBLED = VERDICTS.index("bubbled")
_BEFORE, _DURING = 0, 1


@dataclass(frozen=True)
class Bubbled:
    """Curve and score of a job. `n_taken` is the number of shutters that had a bubble or the probe.

    `n_used` of these shutters count for `curve`, which is the curve `measured` after smoothing. If `curve` or
    `score` is None, `reason` or `score_reason` says why.
    """

    curve: SensitivityCurve | None
    reason: str = ""
    n_taken: int = 0
    n_used: int = 0
    score: Estimate | None = None
    score_reason: str = ""
    measured: SensitivityCurve | None = None

    def slowdown_at(self, level: float) -> Estimate | None:
        """The slowdown beside a bubble of this level; None if it was not measured."""
        if self.curve is None or level not in self.curve.levels:
            return None
        return self.curve.at(level)


def ran_any(shutters: Table) -> bool:
    """Whether a bubble or the probe ran in any of the shutters, on any node."""
    ran = (shutters["bubble_level"] > 0) | (shutters["probe_slowdown"] > 0)
    return bool((ran & (shutters["verdict"] == BUBBLED)).any())


def bubbled_slowdowns(program: str, shutters: Table, counts: Table, *, cost_ns: float = 0.0) -> Bubbled:
    """Slowdown of a job beside bubbles of each level that ran in its shutters.

    The slowdown at a level is the pace (work per time) in shutters without a bubble over the pace at the same
    places in shutters with a bubble of that level (Eq. 6 of Breslow et al. 2013). The spread between shutters
    is assumed to be the same at all levels, so that levels with few shutters get an interval too. Then the
    curve is smoothed (`smoothed`). If the job is on several nodes, a shutter is one sample, and counts only
    if the bubble ran on all of the nodes.
    """
    is_bubbled = shutters["verdict"] == BUBBLED
    rows = shutters.copy()
    rows["bubble_level"] = level_on_all_nodes(shutters)
    rows["verdict"][is_bubbled & (rows["bubble_level"] > 0)] = VERDICTS.index("valid")
    rows = rows[~crowded(rows)]
    found = paces(rows, counts, cost_ns=cost_ns)
    found = found.select((found.stratum > 0) & found.is_good[:, _DURING] & (found.during > 0))
    level = found.bubble_level
    relative, sigma_solo = _relative_to_solo(found, level)
    is_known = np.isfinite(relative) & (level > 0)
    _, first, of_instant = np.unique(found.instant[is_known], return_index=True, return_inverse=True)
    level = level[is_known][first]
    relative, sigma_solo = (
        np.bincount(of_instant, values[is_known]) / np.bincount(of_instant)
        for values in (relative, sigma_solo)
    )
    if not ran_any(shutters):
        return Bubbled(None, "no bubble ran in its shutters")
    n_taken = len(np.unique(instants(shutters)[_has_run_on_all(shutters)]))
    if not n_taken:
        return Bubbled(None, "bubbles ran on some of its nodes in a shutter, but never on all")
    if not is_known.any():
        why = (
            f"no shutter with a bubble has counts, or fewer than {MIN_SOLO} without a bubble have co-runners"
        )
        return Bubbled(None, why, n_taken)
    return _curve(program, relative, level, sigma_solo, n_taken)


def _on_all_nodes(shutters: Table, column: str) -> Bools:
    """For each row: whether the column is above 0 on all nodes of the row's shutter."""
    instant = instants(shutters)
    return ~np.isin(instant, instant[~(shutters[column] > 0)])


def _has_run_on_all(shutters: Table) -> Bools:
    """For each row: whether bubble or probe had its processors to itself on all nodes in that shutter."""
    ran = _on_all_nodes(shutters, "bubble_level") | _on_all_nodes(shutters, "probe_slowdown")
    return ran & (shutters["verdict"] == BUBBLED)


def level_on_all_nodes(shutters: Table) -> Floats:
    """Level of the bubble beside the job; 0 if the bubble did not run on all nodes of the shutter."""
    return np.where(_on_all_nodes(shutters, "bubble_level"), shutters["bubble_level"], 0.0)


def _means(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """Mean of the values in each group."""
    _, group = np.unique(groups, return_inverse=True)
    return np.bincount(group, values) / np.bincount(group)


def _relative_to_solo(found: Paces, level: Floats) -> tuple[Floats, Floats]:
    """Pace in each shutter over the mean pace without a bubble at its node and places; error of that mean.

    Both paces are corrected for changes that also show in the windows before the shutters. If the job has no
    co-runners, these windows themselves give the pace without a bubble.
    """
    relative, error = np.full(len(level), np.nan), np.full(len(level), np.nan)
    is_paired = found.alone & found.is_good[:, _BEFORE] & (found.before > 0)
    relative[is_paired] = found.during[is_paired] / found.before[is_paired]
    error[is_paired] = 0.0
    keys = found.node * (found.stratum.max(initial=0) + 1) + found.stratum
    for key in np.unique(keys):
        same = (keys == key) & ~found.alone
        if (same & (level == 0)).sum() < MIN_SOLO:
            continue
        pace = _without_shared_changes(found.select(same))
        solo = pace[level[same] == 0]
        mean = float(solo.mean())
        relative[same] = pace / mean
        error[same] = solo.std(ddof=1) / np.sqrt(len(solo)) / mean
    return relative, error


def _without_shared_changes(found: Paces) -> Floats:
    """Paces in shutters, corrected for changes that also show in the windows before.

    Such changes are phases of the job and changes of the host's speed. The pace in those windows serves as a
    control variate: no bubble runs there, so for the same number of co-runners, their mean pace does not
    depend on the level. A regression of the logarithms, within each level and number of co-runners, gives the
    correction. For six real programs, it reduces the spread between shutters from 20-28 % to 12-16 %.
    """
    has_before = found.is_good[:, _BEFORE] & (found.before > 0)
    if not has_before.any():
        return found.during
    log_before = np.log(found.before, out=np.zeros(len(found)), where=has_before)
    middle, most = np.median(log_before[has_before]), np.log(MAX_PACE)
    log_before = np.clip(log_before, middle - most, middle + most)
    company = found.n_corunners[has_before]
    _, cell = np.unique(np.stack([company, found.bubble_level[has_before]]), axis=1, return_inverse=True)
    own = _from_means(np.log(found.during[has_before]), cell.ravel())
    shared = _from_means(log_before[has_before], cell.ravel())
    variance = float(shared @ shared)
    if has_before.sum() < MIN_SOLO + len(np.unique(cell)) or variance <= 0:
        return found.during
    beyond = np.zeros(len(found))
    beyond[has_before] = _from_means(log_before[has_before], company)
    follows = min(max(float(own @ shared) / variance, 0.0), 1.0)
    return found.during * np.exp(-follows * beyond)


def _from_means(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """The deviation of each value from the mean of its group."""
    _, group = np.unique(groups, return_inverse=True)
    return values - _means(values, groups)[group]


def _curve(program: str, relative: Floats, level: Floats, solo_error: Floats, n_taken: int) -> Bubbled:
    levels, member, n = np.unique(level, return_inverse=True, return_counts=True)
    n_free = len(relative) - len(levels) - 1
    if len(relative) < MIN_BUBBLED or n_free < _MIN_FREE:
        needed = max(MIN_BUBBLED, len(levels) + 1 + _MIN_FREE)
        reason = f"{len(relative)} shutters with bubbles of {len(levels)} levels, {needed} needed"
        return Bubbled(None, reason, n_taken, len(relative))
    mean = np.bincount(member, relative) / n
    spread = np.sqrt((((relative - mean[member]) / mean[member]) ** 2).sum() / n_free)
    shared = np.bincount(member, solo_error) / n
    quantile = t_quantile(n_free)
    half = np.hypot(quantile * np.hypot(spread / np.sqrt(n), shared), 1.96 * COUNT_MODEL_ERROR)
    rows = np.column_stack([levels, 1 / mean, np.exp(-half) / mean, np.exp(half) / mean])
    known, value, low, high = np.vstack([[0.0, 1.0, 1.0, 1.0], rows]).T
    measured = SensitivityCurve(program, known, value, low, high, len(relative), "production")
    curve = smoothed(measured, common=quantile / 1.96 * float(shared.mean()))
    return Bubbled(curve, "", n_taken, len(relative), measured=measured)


def probe_score(shutters: Table, bubble_levels: Table) -> tuple[Estimate | None, str]:
    """The job's pressure score, or None with the reason.

    Han et al. 2016, section 2. The probe's pace alone comes from the calibration, so if the machine has
    changed since then, the change counts as an effect of the job. If the job is on several nodes, a shutter
    is one sample, the mean pace, and counts only if the probe ran on all of the nodes.
    """
    probed = shutters[(shutters["verdict"] == BUBBLED) & _on_all_nodes(shutters, "probe_slowdown")]
    relative = _means(1 / probed["probe_slowdown"], instants(probed))
    n, curve = len(relative), bubble_levels[: len(LEVELS)]
    if n < MIN_PROBES:
        return None, f"the probe ran in {counted(n, 'shutter')}, {MIN_PROBES} needed"
    if curve["level"].tolist() != list(LEVELS):
        return None, "the profile lacks the slowdown of the probe beside bubbles"
    names = ("probe_slowdown", "probe_low", "probe_high")
    by_node = (bubble_levels[bubble_levels["i_node"] == i] for i in np.unique(bubble_levels["i_node"]))
    if any((of_node[list(names)] != curve[list(names)]).any() for of_node in by_node):
        return None, "the nodes have different calibrations: name one file with --bubble-calibration"
    value, low, high = (curve[name] for name in names)
    slowdown = slowdown_of(relative, np.ones(n))
    return score_of(slowdown, SensitivityCurve("the probe", curve["level"], value, low, high)), ""


_NOT_YET = "no shutter had counts yet"
"""Beginning of the reason that an agent gives while it only waits (csrc/agent/bubbles/bubbling.c)."""


def why_none(profile: Profile) -> str:
    """The reason that no bubble ran in the job's shutters; "" if none was requested or at least one ran."""
    nodes = profile.tables["nodes"]
    reasons = [(text(node["hostname"]), reason) for node in nodes if (reason := text(node["bubble_reason"]))]
    if reasons:
        # A reason on one node keeps bubbles off all nodes. The others report only that none has run yet.
        host, reason = next((one for one in reasons if not one[1].startswith(_NOT_YET)), reasons[0])
        return f"{host}: {reason}" if len(nodes) > 1 else reason
    shutters = profile.tables["shutters"]
    n_told = len(np.unique(instants(shutters)[shutters["verdict"] == BUBBLED]))
    if n_told and not ran_any(shutters):
        return (
            f"bubbles were requested in {n_told} shutters, but none began in time on free processors: other "
            "programs used these, or the co-runner that was to run the bubbles could not"
        )
    return ""


def from_job(tables: Mapping[str, Table]) -> Bubbled | None:
    """The result of `from_tables` at the end of a job; None if the node's calibration is invalid."""
    try:
        return from_tables(tables, "")
    except DataError:  # because of this error the job must not lose its profile
        return None


def interference_fields(bubbled: Bubbled) -> dict[str, Any]:
    """Those fields of `Interference` that come from bubbles and are known."""
    found = {"bubble_score": bubbled.score, "bubble_slowdown": bubbled.slowdown_at(MAX_LEVEL)}
    ends = (("", "value"), ("_low", "low"), ("_high", "high"))
    return {
        f"{name}{end}": float(getattr(one, part))
        for name, one in found.items()
        if one is not None
        for end, part in ends
    }


def lost_s(bubbled: Bubbled, shutters: Table) -> float:
    """Time that the job has lost to bubbles, s."""
    if bubbled.curve is None:
        return 0.0
    level = level_on_all_nodes(shutters)
    _, first = np.unique(instants(shutters), return_index=True)
    pressed_s = (shutters["t1_ns"][first] - shutters["epoch"][first]).astype(float) * 1e-9
    known = zip(bubbled.curve.levels[1:], bubbled.curve.slowdown[1:], strict=True)
    return sum(
        float(pressed_s[level[first] == one].sum()) * max(0.0, 1 - 1 / slowdown) for one, slowdown in known
    )


def sensitivity_table(bubbled: Bubbled) -> Table:
    """The profile's table "sensitivity"; empty if there is no curve."""
    if bubbled.curve is None:
        return table("sensitivity")
    names = {"level": "levels", "slowdown": "slowdown", "low": "low", "high": "high"}
    return table("sensitivity", {column: getattr(bubbled.curve, name) for column, name in names.items()})


def from_tables(tables: Mapping[str, Table], program: str) -> Bubbled:
    """Curve and score of a job from the tables of its profile. `program` becomes the name of the curve."""
    found = bubbled_slowdowns(program, tables["shutters"], tables["counts"], cost_ns=pass_ns(tables))
    score, reason = probe_score(tables["shutters"], tables["bubble_levels"])
    return replace(found, score=score, score_reason=reason)


_LEAST_HALF_LEVEL = 0.25
"""An interval with a smaller half-width counts as this wide in a score's weight: intervals of scores are cut
off at 0 and 8, and so may look too narrow."""


def merge_runs(runs: Sequence[Bubbled]) -> Bubbled:
    """Curve and score of one program from one or more runs."""
    curves = [one.measured for one in runs if one.measured is not None]
    measured = mean_curve(curves) if curves else None
    scores = [one.score for one in runs if one.score is not None]
    return Bubbled(
        None if measured is None else smoothed(measured),
        n_taken=sum(one.n_taken for one in runs),
        n_used=sum(one.n_used for one in runs),
        score=mean_score(scores) if scores else None,
        measured=measured,
    )


def mean_score(scores: Sequence[Estimate]) -> Estimate:
    """Mean of the scores from one or more runs of a program."""
    value, low, high = (np.array([getattr(one, name) for one in scores]) for name in ("value", "low", "high"))
    mean, half = _weighted_mean(value, np.maximum((high - low) / 2, _LEAST_HALF_LEVEL))
    return pressure_score(
        mean, max(0.0, mean - half), min(MAX_LEVEL, mean + half), sum(one.n for one in scores)
    )


def mean_curve(curves: Sequence[SensitivityCurve]) -> SensitivityCurve:
    """Mean of the curves from several runs of a program."""
    rows = []
    for level in sorted({float(level) for one in curves for level in one.levels if level > 0}):
        has = [one for one in curves if level in one.levels]
        ends = np.array([[values[one.levels == level][0] for values in (one.slowdown, one.low, one.high)]
                         for one in has])  # fmt: skip
        value, low, high = np.log(ends).T
        mean, half = _weighted_mean(value, (high - low) / 2)
        rows.append([level, *np.exp([mean, mean - half, mean + half])])
    levels, value, low, high = np.array([[0.0, 1.0, 1.0, 1.0], *rows]).T
    first = curves[0]
    return SensitivityCurve(
        first.program, levels, value, low, high, sum(one.n for one in curves), first.source
    )


def _weighted_mean(value: Floats, half: Floats) -> tuple[float, float]:
    """Mean over runs, and half-width of its interval, wider if the runs differ too much (Birge's ratio)."""
    half = np.maximum(half, 1e-6)
    weight = 1 / half**2
    mean = float(weight @ value / weight.sum())
    chi_square = float((((value - mean) / half * 1.96) ** 2).sum())
    birge = max(1.0, np.sqrt(chi_square / max(len(value) - 1, 1)))
    return mean, float(birge / np.sqrt(weight.sum()))
