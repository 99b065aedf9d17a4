"""Key numbers of a finished job for portals, named as `mpicoloc exporter` names those of running jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mpicoloc.core.profile import Profile
from mpicoloc.measure import processor
from mpicoloc.profile.summary import co_runners

MAX_UNIX_S = 2.0**33
"""Latest plausible time, in 2242: 64-bit nanoseconds since 1970 overflow soon after it."""


def job_metrics(profile: Profile) -> Mapping[str, float | None]:
    """Numbers that hold for the whole job, so that portals may average them over the job's parts. An unknown
    number is None.
    """
    found = profile.interference
    slowdown = {
        f"slowdown{end and '_'}{end}": getattr(found.slowdown, end or "value", None)
        for end in ("", "low", "high")
    }
    values = slowdown | {
        "co_runners": len(co_runners(profile)),
        "overhead_frac": found.overhead_frac,
        "mpi_frac": profile.mpi.time_frac,
        "run_delay_frac": processor.run_delay_frac(found.cpu_s, found.run_delay_s),
        "foreign_delay_frac": found.foreign_delay_frac,
        "discount_frac": None if found.slowdown is None else getattr(profile.price, "discount_frac", None),
    }
    return {name: value if value is None or math.isfinite(value) else None for name, value in values.items()}


def end_unix_s(profile: Profile) -> int | None:
    """End of the job, in whole seconds since 1970; None: not known."""
    end_s = profile.job.start_unix_s + profile.job.wall_s
    return int(end_s) if profile.job.start_unix_s > 0 and end_s < MAX_UNIX_S else None
