"""The slowdown that each co-runner causes: by its time on the job's processors, where jobs take turns, and
from shutters in which some co-runners are not paused.
"""

from __future__ import annotations

import numpy as np

from mpicoloc.core.profile import VERDICTS, Estimate, Floats, Job, Table, text
from mpicoloc.measure.burst import t_quantile
from mpicoloc.measure.count import Paces, paces
from mpicoloc.measure.job_scaling import Tables
from mpicoloc.measure.meter_choice import pass_ns

MIN_SHUTTERS = 6
"""Least number of shutters for an estimate."""
MAX_HALF_WIDTH = 0.15, 0.5
"""Largest half width of the interval of a reported slowdown: a constant, plus a part of abs(slowdown of the
job - 1)."""
SHARE_ERROR_FRAC, REST_ERROR_FRAC, SHARE_ERROR = 0.1, 0.5, 0.02
"""Standard error of a cost by processor time: parts of slowdown - 1 and of what waiting does not explain of
it, and a constant."""
MIN_EXPLAINED, LITTLE_FRAC = 0.3, 0.05
"""Least part of slowdown - 1 that waiting must explain; part of another co-runner's processor time that is
hardly any."""
TIME_SLICE_S = 0.004
"""Length of the kernel's time slices, s: about that of Linux on several processors."""
LEAST_SPREAD = 1e-6
"""Least variance of the pace in a shutter, times its length in s."""
METHOD = "partial"
_VALID, _PARTIAL = VERDICTS.index("valid"), VERDICTS.index("partial")


def with_slowdowns(job: Job, tables: Tables, slowdown: Estimate | None) -> Table:
    """The table of co-runners with the slowdown that each causes; their excesses over 1 add up to the job's.

    The model is additive: a cost that two co-runners cause only together is divided between them. Jobs on
    several nodes have no partial shutters.
    """
    rows = tables["corunners"].copy()
    if slowdown is None or not len(rows):
        return rows
    if len(set(rows["job_id"].tolist())) == 1:
        return _filled(rows, slowdown.value, slowdown.low, slowdown.high)
    if job.n_nodes > 1 or job.wall_s <= 0:
        return rows
    found = _paces_of_all(tables)
    sliced_s = _sliced_s(tables["ranks"], rows["cpu_s"], slowdown.value)
    gains = _gains(found, rows["number"], sliced_s) if found is not None else None
    known = []
    if (by_time := _by_processor_time(tables["ranks"], rows["cpu_s"], slowdown.value - 1)) is not None:
        known.append(by_time)
    if gains is not None:
        known.append(_measured(*gains, rows["overlap_s"] / job.wall_s, slowdown))
    if not known:
        return rows
    n_shutters = None if found is None or gains is None else len(found)
    cost, half = _costs(*_combined(known), slowdown, n_shutters)
    is_told = half <= MAX_HALF_WIDTH[0] + MAX_HALF_WIDTH[1] * abs(slowdown.value - 1)
    return _filled(rows, *(np.where(is_told, 1 + end, 0.0) for end in (cost, cost - half, cost + half)))


def _by_processor_time(ranks: Table, cpu_s: Floats, total: float) -> tuple[Floats, Floats] | None:
    """Each co-runner's cost by the time that it had this job's processors, and the covariance of the costs.

    A rank that waits for a processor waits for the jobs that have it, and other ranks for that rank, so the
    time waited counts twice; but once if a co-runner has had hardly any of these processors, as it may slow
    the job by other means. What waiting does not explain is uncertain by half of its size. None: it explains
    little.
    """
    waited, ran = (float(np.nan_to_num(ranks[name]).sum()) for name in ("run_delay_s", "cpu_s"))
    if cpu_s.sum() <= 0 or ran <= 0 or total <= 0:
        return None
    times = 2.0 if cpu_s.min() > LITTLE_FRAC * cpu_s.max() else 1.0
    explained = min(times * waited / ran / total, 1.0)
    if explained < MIN_EXPLAINED:
        return None
    error = SHARE_ERROR + total * np.hypot(SHARE_ERROR_FRAC, REST_ERROR_FRAC * (1 - explained))
    return total * cpu_s / cpu_s.sum(), np.eye(len(cpu_s)) * error**2


def _combined(known: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Mean of independent estimates of the costs, weighted by their precision, and its covariance."""
    if len(known) == 1:
        return known[0]
    weights = [np.linalg.pinv(covariance) for _, covariance in known]
    covariance = np.linalg.pinv(sum(weights))
    weighted = sum(weight @ mean for weight, (mean, _) in zip(weights, known, strict=True))
    return covariance @ weighted, covariance


def _filled(rows: Table, value: Floats | float, low: Floats | float, high: Floats | float) -> Table:
    rows["slowdown"], rows["slowdown_low"], rows["slowdown_high"] = value, low, high
    return rows


def _paces_of_all(tables: Tables) -> Paces | None:
    """Paces at all shutters with counts, including partial ones; None if there are too few."""
    shutters = tables["shutters"].copy()
    is_partial = (shutters["verdict"] == _PARTIAL) & (shutters["spared"] > 0)
    shutters["verdict"][is_partial] = _VALID
    found = paces(shutters, tables["counts"], cost_ns=pass_ns(tables))
    # Leave out shutters that are crowded for another reason: the job waited for its own threads, or a bubble
    # ran.
    found = found.select(found.is_good.all(axis=1) & (~found.crowded | (found.spared > 0)))
    return found if len(found) >= MIN_SHUTTERS else None


def _gains(found: Paces, numbers: Table, sliced_s: Floats) -> tuple[Floats, Floats] | None:
    """Relative gain in speed from pausing each co-runner, and the covariance of the gains.

    A fit by least squares: the pace in a shutter over the mean pace beside the same co-runners is 1 plus the
    gains of the paused co-runners. `sliced_s` is the variance that each co-runner adds to a shutter in which
    it is spared, times the length of the shutter, s. Returns None if some co-runners were always paused
    together, so that their gains cannot be separated.
    """
    spared, present = (
        (words[:, None] >> numbers.astype(np.uint64) & np.uint64(1)).astype(float)
        for words in (found.spared, found.present)
    )
    columns, n_free = present - spared, len(found) - len(numbers)
    if np.linalg.matrix_rank(columns) < len(numbers) or n_free < 1:
        return None
    _, group = np.unique(
        np.stack([found.stratum.astype(np.uint64), found.present], axis=1), axis=0, return_inverse=True
    )
    group = group.ravel()
    before_s, during_s = found.near_s[:, 0], found.near_s[:, 1]
    mean = np.bincount(group, before_s * found.before) / np.bincount(group, before_s)
    gain, extra = found.during / mean[group] - 1, spared @ sliced_s
    gains, _ = _fitted(columns, gain, 1.0 / during_s)
    spread = float(((gain - columns @ gains) ** 2 * during_s).sum()) / n_free
    spread = max(spread - float(extra.mean()), LEAST_SPREAD)
    return _fitted(columns, gain, (spread + extra) / during_s)


def _fitted(columns: Floats, values: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Factors of the columns by least squares, and their covariance; `variance` is that of each value."""
    covariance = np.asarray(np.linalg.inv((columns / variance[:, None]).T @ columns), float)
    return covariance @ (columns.T @ (values / variance)), covariance


def _sliced_s(ranks: Table, cpu_s: Floats, value: float) -> Floats:
    """Variance of the pace in a shutter that each spared co-runner adds by its time slices, times s.

    In a shutter of n slices, a co-runner with the part q of the processors gets a part with the variance
    q (1 - q) / n.
    """
    part = cpu_s / np.maximum(float(np.nan_to_num(ranks["cpu_s"]).sum()) + cpu_s, 1e-9)
    return np.asarray(value**2 * TIME_SLICE_S * part * (1.0 - part))


def _measured(
    gains: Floats, covariance: Floats, overlap_frac: Floats, slowdown: Estimate
) -> tuple[Floats, Floats]:
    """Each co-runner's cost by the gains in speed from pausing it, and the covariance of the costs.

    The cost of a co-runner is proportional to the time that it was present.
    """
    usual = 1 + float(gains @ overlap_frac) / max(float(overlap_frac.max()), 1e-9)
    scale = slowdown.value * overlap_frac / max(usual, 0.1)
    return gains * scale, covariance * np.outer(scale, scale)


def _costs(cost: Floats, spread: Floats, slowdown: Estimate, n_shutters: int | None) -> tuple[Floats, Floats]:
    """Each co-runner's part of (slowdown - 1), with the half width of its 95 % interval.

    The parts are adjusted to add up to slowdown - 1, uncertain parts more than others. `n_shutters` is None
    without partial shutters: then the errors are known, not estimated.
    """
    total = slowdown.value - 1
    total_variance = ((slowdown.high - slowdown.low) / 2 / 1.96) ** 2
    towards = spread.sum(axis=1) / max(float(spread.sum()), 1e-12)
    cost = cost + towards * (total - cost.sum())
    variance = np.diag(spread) - towards * spread.sum(axis=1) + towards**2 * total_variance
    quantile = 1.96 if n_shutters is None else t_quantile(max(n_shutters - len(cost), 2))
    return cost, quantile * np.sqrt(np.maximum(variance, 0.0))


def slowdown_by_job(rows: Table) -> dict[str, Estimate]:
    """The slowdown that each co-runner causes, by job id, on the node where it is largest.

    Co-runners whose effect could not be separated are left out.
    """
    found: dict[str, Estimate] = {}
    for row in rows[rows["slowdown"] > 0]:
        name = text(row["job_id"])
        value, low, high = (float(row[f"slowdown{end}"]) for end in ("", "_low", "_high"))
        one = Estimate(value, low, high, 0, "1", METHOD)
        if name not in found or one.value > found[name].value:
            found[name] = one
    return found
