"""Processor time of a job's ranks, and the time in which they were ready to run but had no processor."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from mpicoloc.core.number_lists import parse_cpus
from mpicoloc.core.profile import Estimate, Interference, Profile, Table, text, valid_shutters
from mpicoloc.core.units import counted, ends

ALONE = "alone"
"""Method of the slowdown of a job without co-runners."""
ALONE_WORDS = "1 (no co-runner under mpicoloc)"
"""Text for that slowdown, which is not measured: processes without mpicoloc may have run as well."""
NOTABLE_FRAC = 0.05
"""A profile gets a note if its run delay is at least this part of the time ready to run. Kernel threads and
daemons take the processor from every job now and then, and runs of one program differ by a few per cent
anyway. A process that shares its processor with one other process loses half of the time."""
MIN_SHUTTERS = 3
"""Least number of shutters from which the run delay not due to co-runners is estimated."""


def slowdown_words(slowdown: Estimate | None) -> str:
    """A job's slowdown in a few words."""
    if slowdown is None:
        return "not measured"
    if slowdown.method == ALONE:
        return ALONE_WORDS
    interval = ends(slowdown.low, slowdown.high)
    return f"{slowdown.value:.3f}" + (f" ({interval})" if interval else "")


def processor_use(ranks: Table) -> dict[str, Any]:
    """`cpu_s`, `run_delay_s` and `involuntary_switches` of an `Interference`, from the table of ranks.

    All three are sums over the ranks with known run delay, or over all ranks if no run delay is known.
    """
    with_run_delay = ranks[~np.isnan(ranks["run_delay_s"])]
    rows = with_run_delay if len(with_run_delay) else ranks
    sums = {name: _sum(rows[name]) for name in ("cpu_s", "run_delay_s", "involuntary_switches")}
    switches = sums["involuntary_switches"]
    return sums | {"involuntary_switches": None if switches is None else int(switches)}


_FOREIGN = ("foreign_delay_frac", "foreign_delay_low_frac", "foreign_delay_high_frac")
foreign_ends: Callable[[Interference], tuple[float | None, ...]] = operator.attrgetter(*_FOREIGN)
"""`foreign_delay_frac` of an `Interference`, and the ends of its interval."""


def foreign_delay(shutters: Table) -> dict[str, Any]:
    """`foreign_delay_frac` of an `Interference` and the ends of its interval; None if unknown.

    All co-runners stand still in a shutter, so a rank that waits for a processor there waits for some other
    process. Only in few shutters do ranks of the job happen to share a
    processor with each other.
    """
    waited = valid_shutters(shutters)["waited_frac"]
    waited = waited[waited >= 0]
    if len(waited) < MIN_SHUTTERS:
        return dict.fromkeys(_FOREIGN)
    mean, half = float(waited.mean()), 2 * float(waited.std(ddof=1)) / len(waited) ** 0.5
    return dict(zip(_FOREIGN, (mean, max(0.0, mean - half), min(1.0, mean + half)), strict=True))


def _sum(column: np.ndarray) -> float | None:
    return None if np.isnan(column).all() else float(np.nansum(column))


def run_delay_frac(cpu_s: float | None, run_delay_s: float | None) -> float | None:
    """Run delay, as a part of the time that the ranks' threads ran or were ready to run; None if unknown.

    It does not depend on the number of threads, nor on the time that they sleep.
    """
    if cpu_s is None or run_delay_s is None:
        return None
    ready_s = cpu_s + run_delay_s
    return run_delay_s / ready_s if ready_s > 0 else 0.0


def notable_run_delay_frac(
    method: str | None,
    wall_s: float,
    n_ranks: float,
    cpu_s: float | None,
    run_delay_s: float | None,
    foreign_low: float | None,
) -> float | None:
    """`run_delay_frac` of a job if co-runners under mpicoloc do not explain it; else None.

    `method` is the method of the slowdown, which includes the run delay due to co-runners; `foreign_low` is
    `foreign_delay_low_frac`. In a job that slept nearly all the time, the run delay may be a large part of a
    short ready time, so the delay must also be `NOTABLE_FRAC` of the wall time.
    """
    frac = run_delay_frac(cpu_s, run_delay_s)
    is_explained = method != ALONE and foreign_low is not None and foreign_low < NOTABLE_FRAC
    if is_explained or frac is None or run_delay_s is None:
        return None
    of_wall = run_delay_s / (wall_s * n_ranks) if wall_s * n_ranks > 0 else 0.0
    return frac if min(frac, of_wall) >= NOTABLE_FRAC else None


def notable_frac(profile: Profile) -> float | None:
    """`notable_run_delay_frac` of a profile."""
    job, found = profile.job, profile.interference
    method = None if found.slowdown is None else found.slowdown.method
    amounts = (job.wall_s, job.n_ranks, found.cpu_s, found.run_delay_s, found.foreign_delay_low_frac)
    return notable_run_delay_frac(method, *amounts)


def delay_note(profile: Profile) -> str | None:
    """A sentence on the processor time that a job lost to unmeasured processes; None if this is little."""
    job, found = profile.job, profile.interference
    frac = notable_frac(profile)
    if frac is None:
        return None
    crowd = most_crowded(profile)
    why = (
        "processes without mpicoloc, the job's own threads, or a limit on processor time took it"
        if crowd is None
        else f"{crowd[0]} ranks share {counted(crowd[1], 'processor')} of their node"
    )
    still, cost = "", "what that cost the job is not measured"
    if found.slowdown is None or found.slowdown.method != ALONE:
        foreign, low, high = foreign_ends(found)
        if foreign is None:
            why = f"co-runners took an unknown part of it; for the rest, {why}"
        else:
            still = (
                f", and for {foreign:.0%} ({low:.0%} to {high:.0%}) of the time that co-runners stood still"
            )
            cost = "what that cost the job is not in its slowdown"
    of_wall = (found.cpu_s or 0.0) / (job.wall_s * job.n_ranks)
    n_taken = found.involuntary_switches
    taken = "" if n_taken is None else f", taken away {n_taken:,} times"
    return (
        f"the ranks had no processor for {frac:.0%} of the time that they were ready to run (processor time "
        f"{of_wall:.0%} of wall time{taken}){still}: {why}; {cost}"
    )


def most_crowded(profile: Profile) -> tuple[int, int] | None:
    """`most_crowded_node` of a profile, by the processors that the job's ranks may run on."""
    cpus = profile.tables["nodes"]["cpus"]
    # A list that fills its cell may have been cut off.
    n_cpus = [len(parse_cpus(text(cell))) if len(cell) < cpus.dtype.itemsize else 0 for cell in cpus]
    return most_crowded_node(profile.tables["ranks"], n_cpus)


def most_crowded_node(ranks: Table, cpus_of_nodes: list[int]) -> tuple[int, int] | None:
    """Numbers of ranks and processors of the node with most ranks per processor.

    None if no node has more ranks than processors.
    """
    n_ranks = [int((ranks["i_node"] == i_node).sum()) for i_node in range(len(cpus_of_nodes))]
    nodes = [pair for pair in zip(n_ranks, cpus_of_nodes, strict=True) if 0 < pair[1] < pair[0]]
    return max(nodes, key=lambda pair: pair[0] / pair[1], default=None)
