"""The slowdown that each co-runner causes, from shutters in which some co-runners are not paused."""

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
    found = _paces_of_all(tables) if job.n_nodes == 1 and job.wall_s > 0 else None
    gains = _gains(found, rows["number"]) if found is not None else None
    if found is None or gains is None:
        return rows
    cost, half = _costs(*gains, rows["overlap_s"] / job.wall_s, slowdown, len(found))
    is_told = half <= MAX_HALF_WIDTH[0] + MAX_HALF_WIDTH[1] * abs(slowdown.value - 1)
    return _filled(rows, *(np.where(is_told, 1 + end, 0.0) for end in (cost, cost - half, cost + half)))


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


def _gains(found: Paces, numbers: Table) -> tuple[Floats, Floats] | None:
    """Relative gain in speed from pausing each co-runner, and the covariance of the gains.

    A fit by least squares: the pace in a shutter over the mean pace beside the same co-runners is 1 plus the
    gains of the paused co-runners. The covariance is by jackknife. Returns None if some co-runners were
    always paused together, so that their gains cannot be separated.
    """
    paused = found.present & ~found.spared
    columns = ((paused[:, None] >> numbers.astype(np.uint64)) & np.uint64(1)).astype(float)
    if np.linalg.matrix_rank(columns) < len(numbers):
        return None
    whole = _fitted(found, columns)
    blocks, parts = np.unique(found.group), []
    for block in blocks:
        kept = found.group != block
        if np.linalg.matrix_rank(columns[kept]) < len(numbers):
            return None
        parts.append(_fitted(found.select(kept), columns[kept]))
    off = np.array(parts) - np.mean(parts, axis=0)
    return whole, (len(blocks) - 1) / len(blocks) * off.T @ off


def _fitted(found: Paces, columns: Floats) -> Floats:
    """The gains, relative to the mean pace before the shutters that have the same places and co-runners."""
    _, group = np.unique(
        np.stack([found.stratum.astype(np.uint64), found.present], axis=1), axis=0, return_inverse=True
    )
    group = group.ravel()
    before_s = found.near_s[:, 0]
    mean = np.bincount(group, before_s * found.before) / np.bincount(group, before_s)
    root = np.sqrt(found.near_s[:, 1])
    gain = found.during / mean[group] - 1
    return np.asarray(np.linalg.lstsq(columns * root[:, None], gain * root, rcond=None)[0], float)


def _costs(
    gains: Floats, covariance: Floats, overlap_frac: Floats, slowdown: Estimate, n_shutters: int
) -> tuple[Floats, Floats]:
    """Each co-runner's part of (slowdown - 1), with the half width of its 95 % interval.

    The cost of a co-runner is proportional to the time that it was present. The parts are adjusted to add up
    to slowdown - 1, uncertain parts more than others.
    """
    usual = 1 + float(gains @ overlap_frac) / max(float(overlap_frac.max()), 1e-9)
    scale = slowdown.value * overlap_frac / max(usual, 0.1)
    cost, spread = gains * scale, covariance * np.outer(scale, scale)
    total = slowdown.value - 1
    total_variance = ((slowdown.high - slowdown.low) / 2 / 1.96) ** 2
    towards = spread.sum(axis=1) / max(float(spread.sum()), 1e-12)
    cost = cost + towards * (total - cost.sum())
    variance = np.diag(spread) - towards * spread.sum(axis=1) + towards**2 * total_variance
    half = t_quantile(max(n_shutters - len(gains), 2)) * np.sqrt(np.maximum(variance, 0.0))
    return cost, half


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
