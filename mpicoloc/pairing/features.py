"""Features of a job from its profiles: what it does to the machine, as far as it was measured.

Counters where there is a PMU; MPI, bursts, memory, network and software events everywhere (Zacarias et al.
2021, Tables 1 and 3). Rates are per second of the job alone and per core: totals say how long it ran. Of a
run that shared its nodes, what windows alone (shutters) tell is taken from them, and amounts are spread over
the time that it would have taken alone. A feature that was not measured is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.features import JobFeatures, program_name
from mpicoloc.core.machine import machine_of
from mpicoloc.core.profile import Profile
from mpicoloc.core.run import Moments, Run, moments
from mpicoloc.core.tables import PHASES, text
from mpicoloc.errors import DataError
from mpicoloc.pairing import quantities

STATISTICS = ("mean", "min", "max", "sd")
ALONE_FRAC = 0.99
"""Part of its time without company from which on a run counts as one alone."""


@dataclass(frozen=True)
class Feature:
    """One feature: stable name, unit, meaning."""

    name: str
    unit: str
    meaning: str


_OF = {"mean": "mean", "min": "least", "max": "largest", "sd": "standard deviation"}
FEATURES: Mapping[str, Feature] = {
    f"{base.name}_{statistic}": Feature(
        f"{base.name}_{statistic}", base.unit, f"{base.meaning}; {_OF[statistic]} over {base.over}"
    )
    for base in quantities.QUANTITIES
    for statistic in STATISTICS
}
"""All features by name. A job has those that its profiles tell."""


def run_of(profile: Profile) -> Run:
    """What a profile tells of its run."""
    job, interference = profile.job, profile.interference
    shared_s = interference.shared_s
    was_alone = shared_s is not None and shared_s <= (1 - ALONE_FRAC) * job.wall_s
    solo_s = _solo_s(profile)
    found = quantities.of_run(profile, solo_s, _phases(profile), was_alone) if solo_s > 0 else {}
    known = {name: moments(values) for name, values in found.items()}
    return Run(
        id=job.id,
        command=job.command,
        n_ranks=job.n_ranks,
        n_nodes=job.n_nodes,
        n_cores=job.n_cores,
        start_unix_s=job.start_unix_s,
        wall_s=job.wall_s,
        solo_s=solo_s,
        shared_s=shared_s,
        was_alone=was_alone,
        partial=profile.partial,
        slowdown=interference.slowdown,
        co_runners=_co_runners(profile),
        machine=machine_of(profile),
        seen={name: values for name, values in known.items() if values is not None},
        cpus={text(row["hostname"]): text(row["cpus"]) for row in profile.tables["nodes"] if row["cpus"]},
    )


def _co_runners(profile: Profile) -> tuple[tuple[str, float], ...]:
    """On several nodes a co-runner counts as long as on the one where it was longest."""
    found: dict[str, float] = {}
    for row in profile.tables["corunners"]:
        name = text(row["job_id"])
        found[name] = max(found.get(name, 0.0), float(row["overlap_s"]))
    return tuple(found.items())


def job_features(runs: Sequence[Profile | Run], job_id: str | None = None) -> JobFeatures:
    """Features of one job from its runs.

    Parameters
    ----------
    runs : sequence of Profile or Run
        Of one program at one size, the latest last. If there are runs alone, only these count; else those
        with a measured slowdown; else all.
    job_id : str, optional
        How the user knows the job; the last run's id if left out.

    Returns
    -------
    JobFeatures
        Its time alone is the mean over the runs that count, each run's time over its slowdown.

    Raises
    ------
    DataError
        If there is no run that came to its end.
    """
    found = [run_of(run) if isinstance(run, Profile) else run for run in runs]
    whole = [run for run in found if not run.partial and run.solo_s > 0]
    if not whole:
        raise DataError(f"none of {len(runs)} profiles is of a run that came to its end; run the job once")
    best = max(map(_run_weight, whole))
    counted = [run for run in whole if _run_weight(run) == best]
    last = counted[-1]
    return JobFeatures(
        id=last.id if job_id is None else job_id,
        program=program_name(last.command),
        runtime_s=sum(run.solo_s for run in counted) / len(counted),
        n_cores=max(last.n_cores, 1),
        n_ranks=max(last.n_ranks, 1),
        values=_values(counted),
    )


def _solo_s(profile: Profile) -> float:
    """Time that the run would have taken alone, s; its own time where nobody knows."""
    slowdown = profile.interference.slowdown
    return profile.job.wall_s / (max(slowdown.value, 1.0) if slowdown is not None else 1.0)


def _run_weight(run: Run) -> int:
    return 2 if run.was_alone else int(run.slowdown is not None)


def _values(runs: Iterable[Run]) -> dict[str, float]:
    seen: dict[str, Moments] = {}
    for run in runs:
        for name, found in run.seen.items():
            seen[name] = seen[name] + found if name in seen else found
    values: dict[str, float] = {}
    for name, found in seen.items():
        values |= {f"{name}_mean": found.mean, f"{name}_min": found.least, f"{name}_max": found.largest}
        if found.sd is not None:
            values[f"{name}_sd"] = found.sd
    return values


def _phases(profile: Profile) -> tuple[int, ...]:
    """Phases of the cycles that tell of the job alone; all of them, where it never was."""
    solo = tuple(PHASES.index(name) for name in ("solo", "alone"))
    return solo if np.isin(profile.tables["cycles"]["phase"], solo).any() else tuple(range(len(PHASES)))
