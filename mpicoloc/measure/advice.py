"""Advice to users and operators; each sentence states the measured numbers that support it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpicoloc.core.profile import Estimate, Profile
from mpicoloc.core.units import counted, seconds
from mpicoloc.measure import processor

MIN_WALL_S = 30.0
"""Start-up and shutdown dominate short jobs, whose runs differ by more than any advice would gain."""
MIN_SHUTTERS = 30
"""Estimates need 8 shutters, but among so few, one outlier moves the ends of the interval."""
MIN_COVERAGE_FRAC = 0.8
"""Below this coverage the slowdown may be that of one phase of the program."""
LARGE_SLOWDOWN = 1.10
"""Repeated runs of a program can differ by nearly 10 %."""
SMALL_SLOWDOWN = 1.0 + processor.NOTABLE_FRAC
"""Runs of one program differ by this much even without co-runners."""
MIN_MIGRATIONS_PER_S = 100.0
"""Refilling a core's caches of 1 to 2 MiB takes 0.2 to 0.5 ms, so this rate may cost 2 to 5 % of the time."""
_ONE_THREAD_CPU = 1.1
"""Largest ratio of processor time to wall time at which a rank is taken to have one busy thread."""
MOSTLY_MPI_FRAC = 0.75
"""With this part of the time in MPI, half of the ranks take up to 1.25 times as long, at 2/3 of the price."""
HALF_MPI_FRAC = 0.5
"""If less than this part of the time is in MPI, waiting for the slowest rank cannot be most of the time."""
EVEN_FRAC, UNEVEN_FRAC = 0.8, 0.5
"""Mean computation time of the ranks over the longest: above the first value, the load is even; below the
second, most ranks wait."""
MIN_RANKS = 4
"""With fewer ranks, half of them would hardly be a parallel program."""


def advice(profile: Profile) -> tuple[str, ...]:
    """Advice, one sentence per finding, which begins with the remedy; no advice if the evidence is weak.

    Parameters
    ----------
    profile : Profile
        Profile of a finished job; partial profiles, and jobs shorter than `MIN_WALL_S`, get no advice.

    Returns
    -------
    tuple of str
        In the order of `RULES`.
    """
    if profile.partial or profile.job.wall_s < MIN_WALL_S:
        return ()
    return tuple(sentence for rule in RULES if (sentence := rule(profile)) is not None)


def _delayed(profile: Profile) -> str | None:
    """Advise if the ranks wait for processors that no co-runner uses."""
    found, frac = profile.interference, processor.notable_frac(profile)
    if frac is None:
        return None
    lost = f"the ranks had no processor for {frac:.0%} of the time that they were ready to run"
    still = "no job under mpicoloc was beside it"
    if not _is_alone(found.slowdown):
        # Only shutters, in which co-runners stand still, can show that other processes use the processors.
        foreign, low, high = processor.foreign_ends(found)
        if foreign is None or low is None or high is None or low < processor.NOTABLE_FRAC:
            return None
        still = (
            f"none for {foreign:.0%} ({low:.0%} to {high:.0%}) of the time that all co-runners stood still"
        )
    crowd = processor.most_crowded(profile)
    if crowd is not None:
        n_ranks, n_cpus = crowd
        return (
            f"give each rank a processor of its own (Slurm: --ntasks={profile.job.n_ranks} and no "
            f"--overcommit; mpirun: --bind-to core), or start {counted(n_cpus, 'rank')} per node: {n_ranks} "
            f"ranks share {counted(n_cpus, 'processor')} of their node, and {lost}"
        )
    return (
        "look for processes without mpicoloc on the job's nodes, give each thread of a rank a processor "
        "(Slurm: --cpus-per-task), or raise the limit on processor time of its container: "
        f"{lost}, and {still}"
    )


def _unbound(profile: Profile) -> str | None:
    """Advise to bind ranks that migrate between processors although nothing competes for processors."""
    found, ranks = profile.interference, profile.tables["ranks"]
    # Binding would put all threads of a rank on one core, so only ranks with one thread count.
    has_one_thread = (ranks["cpu_s"] > 0) & (ranks["cpu_s"] <= _ONE_THREAD_CPU * profile.job.wall_s)
    known = ranks[~np.isnan(ranks["migrations"]) & has_one_thread & (ranks["n_cores"] > 1)]
    delay_frac = processor.run_delay_frac(found.cpu_s, found.run_delay_s)
    is_known = 0 < len(known) == len(ranks)
    if not is_known or delay_frac is None or delay_frac >= processor.NOTABLE_FRAC:
        return None
    per_s = float(known["migrations"].sum() / known["cpu_s"].sum())
    if per_s < MIN_MIGRATIONS_PER_S:
        return None
    return (
        f"bind the ranks (mpirun: --bind-to core; Slurm: --cpu-bind=cores): they migrated {per_s:.0f} times "
        "per second of processor time, which may cost 2 to 5 %, while others delayed them for only "
        f"{delay_frac:.1%} of the time that they were ready to run"
    )


def _slowed(profile: Profile) -> str | None:
    """Advise if co-runners certainly cost much."""
    slowdown = _certain_slowdown(profile)
    if slowdown is None or slowdown.low <= LARGE_SLOWDOWN:
        return None
    alone_s = profile.job.wall_s / slowdown.value
    remedy = "if time matters more than the price, ask for whole nodes (Slurm: --exclusive)"
    if processor.notable_frac(profile) is not None:
        remedy = (
            "give each job processors of its own (Slurm: a partition without OverSubscribe; mpirun: "
            "--bind-to none, or other processors for each job), or ask for whole nodes"
        )
    return (
        f"{remedy}: beside co-runners the job took {_times(slowdown)}, so alone it "
        f"would take about {seconds(alone_s)} instead of {seconds(profile.job.wall_s)}"
        f"{_whole_nodes(profile, alone_s)}"
    )


def _unharmed(profile: Profile) -> str | None:
    """Advise if co-runners certainly cost little."""
    slowdown, shared_s = _certain_slowdown(profile), profile.interference.shared_s or 0.0
    # The slowdown is an average over the whole run. If the job was alone for most of it, a large slowdown in
    # the shared time would not show.
    is_short = shared_s < max(MIN_WALL_S, MIN_COVERAGE_FRAC * profile.job.wall_s)
    if slowdown is None or slowdown.high >= SMALL_SLOWDOWN or is_short:
        return None
    return (
        f"share nodes again (Slurm: without --exclusive): in {seconds(shared_s)} beside co-runners the job "
        f"took {_times(slowdown)}{_whole_nodes(profile, profile.job.wall_s / slowdown.value)}"
    )


def _evenly_in_mpi(profile: Profile) -> str | None:
    """Advise if there are more ranks than the work keeps busy."""
    frac, balance = profile.mpi.time_frac or 0.0, _balance(profile)
    if balance is None or frac < MOSTLY_MPI_FRAC or balance < EVEN_FRAC:
        return None
    longer = 2.0 - frac
    return (
        f"ask for half of the ranks: all {profile.job.n_ranks} spent {frac:.0%} of their time in MPI, so "
        f"half of them would take about {longer:.2f} times as long at {longer / 2:.0%} of the price, if the "
        "time in MPI stays the same"
    )


def _unevenly(profile: Profile) -> str | None:
    """Advise if most ranks wait for the ranks with the most work."""
    frac, balance = profile.mpi.time_frac or 0.0, _balance(profile)
    if balance is None or frac < HALF_MPI_FRAC or balance > UNEVEN_FRAC:
        return None
    ranks = profile.tables["ranks"]
    longest = ranks[int(np.argmax(ranks["comp_ns"]))]
    longest_s = float(longest["comp_ns"]) * 1e-9
    return (
        f"give all ranks equal work: rank {longest['rank']} computed for {seconds(longest_s)} and the ranks "
        f"on average for {seconds(balance * longest_s)}, while {frac:.0%} of their time went into MPI"
    )


RULES: tuple[Callable[[Profile], str | None], ...] = (
    _delayed,
    _unbound,
    _slowed,
    _unharmed,
    _evenly_in_mpi,
    _unevenly,
)


def _is_alone(slowdown: Estimate | None) -> bool:
    return slowdown is not None and slowdown.method == processor.ALONE


def _certain_slowdown(profile: Profile) -> Estimate | None:
    """The slowdown, if enough shutters cover most of the time; else None."""
    slowdown, coverage_frac = profile.interference.slowdown, profile.interference.coverage_frac
    if slowdown is None or _is_alone(slowdown) or slowdown.n < MIN_SHUTTERS or not slowdown.has_interval:
        return None
    return None if coverage_frac is not None and coverage_frac < MIN_COVERAGE_FRAC else slowdown


def _times(slowdown: Estimate) -> str:
    ends = f"{slowdown.low:.3f} to {slowdown.high:.3f}, 95 %"
    return f"{slowdown.value:.3f} times as long as alone ({ends}, {counted(slowdown.n, 'shutter')})"


def _whole_nodes(profile: Profile, alone_s: float) -> str:
    """Text on the price of whole nodes and of the job's cores; empty if prices are unknown or the same."""
    price, n_cpus = profile.price, float(profile.tables["nodes"]["n_cpus"].sum())
    if price is None or price.rate_su <= 0 or not n_cpus > profile.job.n_cores:
        return ""
    whole_su = price.rate_su * n_cpus * alone_s / 3600
    return (
        f"; whole nodes ({counted(int(n_cpus), 'processor')}) would cost {whole_su:.4g} SU at the same rate, "
        f"the job's {counted(profile.job.n_cores, 'core')} cost {price.fair_su:.4g} SU"
    )


def _balance(profile: Profile) -> float | None:
    """Mean over longest computation time of the ranks; None if ranks are few or may have been delayed."""
    found, comp_ns = profile.interference, profile.tables["ranks"]["comp_ns"]
    delay_frac = processor.run_delay_frac(found.cpu_s, found.run_delay_s)
    is_delayed = delay_frac is None or delay_frac >= processor.NOTABLE_FRAC
    slowdown = found.slowdown if _is_alone(found.slowdown) else _certain_slowdown(profile)
    if is_delayed or slowdown is None or slowdown.high >= SMALL_SLOWDOWN or len(comp_ns) < MIN_RANKS:
        return None
    longest_ns = float(comp_ns.max())
    return float(comp_ns.mean(dtype=float)) / longest_ns if longest_ns > 0 else None
