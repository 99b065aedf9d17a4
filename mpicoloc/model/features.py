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
from numpy.typing import NDArray

from mpicoloc.core.features import JobFeatures
from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import PHASES
from mpicoloc.errors import DataError
from mpicoloc.model import quantities

Array = NDArray[np.float64]
STATISTICS = ("mean", "min", "max", "sd")
ALONE_FRAC = 0.99
"""Part of its time without company from which on a run counts as one alone."""
_INTERPRETERS = ("python", "perl", "ruby", "julia", "Rscript", "bash", "sh", "java")


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


def job_features(profiles: Sequence[Profile], job_id: str | None = None) -> JobFeatures:
    """Features of one job from the profiles of its runs.

    Parameters
    ----------
    profiles : sequence of Profile
        Runs of one program at one size, the latest last. If there are runs alone, only these count; else
        those with a measured slowdown; else all.
    job_id : str, optional
        How the user knows the job; the last profile's id if left out.

    Returns
    -------
    JobFeatures
        Its time alone is the mean over the runs that count, each run's time over its slowdown.

    Raises
    ------
    DataError
        If there is no profile of a run that came to its end.
    """
    whole = [profile for profile in profiles if not profile.partial and profile.job.wall_s > 0]
    if not whole:
        raise DataError(
            f"none of {len(profiles)} profiles is of a run that came to its end; run the job once"
        )
    best = max(map(_worth, whole))
    counted = [profile for profile in whole if _worth(profile) == best]
    job = counted[-1].job
    return JobFeatures(
        id=job.id if job_id is None else job_id,
        program=program_name(job.command),
        runtime_s=float(np.mean([solo_s(profile) for profile in counted])),
        n_cores=max(job.n_cores, 1),
        n_ranks=max(job.n_ranks, 1),
        values=_values(counted),
    )


def solo_s(profile: Profile) -> float:
    """Time that the run would have taken alone, s; its own time where nobody knows."""
    slowdown = profile.interference.slowdown
    return profile.job.wall_s / (max(slowdown.value, 1.0) if slowdown is not None else 1.0)


def was_alone(profile: Profile) -> bool:
    """Nearly all of the run was without company, and it is known."""
    shared_s = profile.interference.shared_s
    return shared_s is not None and shared_s <= (1 - ALONE_FRAC) * profile.job.wall_s


def _worth(profile: Profile) -> int:
    return 2 if was_alone(profile) else int(profile.interference.slowdown is not None)


def program_name(command: str) -> str:
    """Name of the program in a command line: of the script, where an interpreter runs one."""
    words = command.split() or ["unknown"]
    name = words[0].rpartition("/")[2]
    if name.rstrip("0123456789.") in _INTERPRETERS:
        scripts = [word for word in words[1:] if not word.startswith("-")]
        name = scripts[0].rpartition("/")[2] if scripts else name
    return name or "unknown"


def _values(profiles: Iterable[Profile]) -> dict[str, float]:
    seen: dict[str, list[Array]] = {}
    for profile in profiles:
        found = quantities.of_run(profile, solo_s(profile), _phases(profile), was_alone(profile))
        for name, values in found.items():
            seen.setdefault(name, []).append(np.atleast_1d(np.asarray(values, float)))
    result: dict[str, float] = {}
    for name, parts in seen.items():
        known = np.concatenate(parts)
        known = known[np.isfinite(known)]
        if len(known):
            result |= {f"{name}_mean": known.mean(), f"{name}_min": known.min(), f"{name}_max": known.max()}
        if len(known) > 1:
            result[f"{name}_sd"] = known.std(ddof=1)
    return {name: float(value) for name, value in result.items()}


def _phases(profile: Profile) -> tuple[int, ...]:
    """Phases of the cycles that tell of the job alone; all of them, where it never was."""
    solo = tuple(PHASES.index(name) for name in ("solo", "alone"))
    return solo if np.isin(profile.tables["cycles"]["phase"], solo).any() else tuple(range(len(PHASES)))
