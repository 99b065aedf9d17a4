"""Results of a run whose co-runner was stopped at times, for the time beside it alone."""

import dataclasses
import math

import numpy as np
from progress_ratio import GUARD_S

from mpicoloc.core.profile import valid_shutters
from mpicoloc.measure.co_runners import MIN_SHUTTERS
from mpicoloc.measure.count import paces
from mpicoloc.measure.estimate import interference
from mpicoloc.measure.job_scaling import split_wall
from mpicoloc.measure.meter_choice import pass_ns

EDGE_S = 0.01
"""Between a shutter's pause and the windows beside it lies less."""
RESUME_S = 0.0012
"""From the end of a shutter's window until the others run again."""
OF_SHUTTERS = ("count", "ipc")
"""Meters that look at each shutter by itself. For the others the stopped time is part of the co-run."""


def _time_inside(edges):
    """Time inside the intervals whose begins and ends are the edges, in turn, until each edge."""
    return np.cumsum(np.diff(edges, prepend=edges[:1]) * (np.arange(len(edges)) % 2))


def pauses_s(shutters):
    """Rows of begin and end of the pauses that these shutters asked of the others, in order, s."""
    begin, end = shutters["epoch"] / 1e9, shutters["t1_ns"] / 1e9 + RESUME_S
    return np.column_stack([begin, end])[np.argsort(begin)]


@dataclasses.dataclass(frozen=True)
class Seen:
    """Profiles of the program and its co-runners, and rows of begin, end, beside (s, CLOCK_MONOTONIC)."""

    profile: object
    co_profiles: list
    switched: np.ndarray

    def active(self, run):
        """The run on a clock that stands still while the program is paused for its co-runner."""
        taken = [valid_shutters(one.tables["shutters"]) for one in self.co_profiles]
        edges = np.maximum.accumulate(pauses_s(np.concatenate(taken)).ravel()) if taken else np.empty(0)

        def clock(times_s):
            """Less what was paused until then."""
            paused_s = np.interp(times_s, edges, _time_inside(edges)) if len(edges) else 0.0
            return times_s - paused_s

        own = pauses_s(self.profile.tables["shutters"])
        windows = run.windows.copy()
        windows[:, :2] = clock(windows[:, :2])
        return dataclasses.replace(run, events=clock(run.events), windows=windows, solo=clock(own))

    def stopped_frac(self):
        """Part of the co-run time in which the co-runner was stopped."""
        stopped = self.switched[self.switched[:, 2] == 0]
        parts = self.wall_split(self.profile.tables)
        return float(np.sum(stopped[:, 1] - stopped[:, 0]) / (parts.corun_s + parts.solo_s + parts.paused_s))

    def wall_split(self, tables):
        return split_wall(self.profile.job.wall_s, tables["nodes"], tables["shutters"])

    def tables_beside(self):
        """Without the shutters near a time in which the co-runner was stopped."""
        tables = dict(self.profile.tables)
        rows = tables["shutters"]
        t0 = (rows["epoch"] - rows["before_window_ns"].astype(float)) / 1e9 - EDGE_S
        t1 = (rows["t1_ns"] + rows["after_window_ns"].astype(float)) / 1e9 + EDGE_S
        begin = self.switched[self.switched[:, 2] == 0, 0]
        end = self.switched[self.switched[:, 2] == 0, 1] + GUARD_S
        near = ((t1[:, None] > begin) & (t0[:, None] < end)).any(axis=1)
        earlier = np.concatenate([[-np.inf], rows["t1_ns"][:-1] / 1e9])  # rows are in the order of time
        since = np.maximum(earlier, t0 - 2 * rows["since_ns"] / 1e9)
        is_mixed = ((t0[:, None] > begin) & (since[:, None] < end)).any(axis=1)
        rows = rows.copy()
        rows["since_ns"][is_mixed] = 0
        tables["shutters"] = rows[~near]
        return tables

    def estimates(self):
        """Of each meter, the slowdown of the time beside the running co-runner, or why there is none.

        "result" is that of the meter which the profile chose for the whole run.
        """
        rng, whole, some = np.random.default_rng(1), self.profile.tables, self.tables_beside()
        each, mixed = ({one.meter: one for one in interference(self.profile.job, tables, rng=rng).meters}
                       for tables in (some, whole))  # fmt: skip
        found = {
            name: self.beside_estimate(one, some, 0.0) for name, one in each.items() if name in OF_SHUTTERS
        }
        found |= {name: self.beside_estimate(one, whole, self.stopped_frac()) for name, one in mixed.items()
                  if name not in OF_SHUTTERS}  # fmt: skip
        return {"result": self.result_of(found), **found}

    def filtered(self):
        """The counted pace in shutters over that before, of shutters in which it rose; None: too few.

        Breslow et al. 2013, Algorithm 4, without its comparison of both sides.
        """
        some = self.tables_beside()
        found = paces(some["shutters"], some["counts"], cost_ns=pass_ns(some))
        found = found.select(
            found.is_good.all(axis=1) & ~found.crowded & ~found.alone & (found.during > found.before)
        )
        return float(found.during.sum() / found.before.sum()) if len(found) >= MIN_SHUTTERS else None

    def result_of(self, found):
        """The estimate of the meter that the whole profile's result is of; else what another one has."""
        slowdown = self.profile.interference.slowdown
        method = slowdown.method if slowdown is not None else ""
        order = sorted(found.values(), key=lambda one: (one.get("method") != method, "value" not in one))
        return next((one for one in order if "value" in one), order[0])

    def beside_estimate(self, one, tables, stopped_frac):
        """Value and interval of one meter, and of what they are."""
        if one.slowdown is None:
            return {"reason": one.reason}
        parts = self.wall_split(tables)
        ends = (one.slowdown.value, one.slowdown.low, one.slowdown.high)
        values = [without_stopped(corun_slowdown(x, parts), stopped_frac) for x in ends]
        if not np.isfinite(values).all():
            return {"reason": f"{one.slowdown.value:.2f} of all the time leaves none beside the co-runner"}
        return {"value": values[0], "low": values[1], "high": values[2], "n": one.slowdown.n,
                "method": one.slowdown.method}  # fmt: skip


def corun_slowdown(of_job, parts):
    """Slowdown of the co-run phase, from the job's and its wall time's split; infinite if none is left."""
    solo_s = (parts.alone_s + parts.shared_s) / of_job - parts.alone_s - parts.solo_s
    return parts.corun_s / solo_s if solo_s > 0 else math.inf


def without_stopped(mixed, stopped_frac):
    """Slowdown of the part of the time in which the co-runner ran, if the other part was not slowed."""
    solo = 1 / mixed - stopped_frac
    return (1 - stopped_frac) / solo if solo > 0 else math.inf
