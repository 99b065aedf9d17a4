"""What part of the time that a job's ranks were ready to run they had no processor."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicoloc.core.tables import Table

ALONE = "alone"
"""Method of the slowdown of a job without co-runners."""
NOTEWORTHY_FRAC = 0.05
"""Below this part no note is made, because kernel threads and daemons take the processor from every job now
and then, and runs of one program on one machine differ by some per cent anyway. Who shares a processor with
one other process loses half of the time."""


def used(ranks: Table) -> dict[str, Any]:
    """`cpu_s`, `run_delay_s` and `involuntary_switches` of an `Interference`, from the table of ranks.

    They are of the same ranks: of those that told their run delay, else of all.
    """
    told = ranks[~np.isnan(ranks["run_delay_s"])]
    known = told if len(told) else ranks
    sums = {name: _sum(known[name]) for name in ("cpu_s", "run_delay_s", "involuntary_switches")}
    switches = sums["involuntary_switches"]
    return sums | {"involuntary_switches": None if switches is None else int(switches)}


def _sum(column: np.ndarray) -> float | None:
    return None if np.isnan(column).all() else float(np.nansum(column))


def run_delay_frac(cpu_s: float | None, run_delay_s: float | None) -> float | None:
    """Run delay over the time that the ranks' threads were ready to run; None: not known.

    The part of the processor time asked for that was not given; independent of threads and of sleep.
    """
    if cpu_s is None or run_delay_s is None:
        return None
    ready_s = cpu_s + run_delay_s
    return run_delay_s / ready_s if ready_s > 0 else 0.0


def noteworthy_run_delay_frac(
    method: str | None, wall_s: float, n_ranks: float, cpu_s: float | None, run_delay_s: float | None
) -> float | None:
    """`run_delay_frac` of a job that had no co-runner under mpicoloc, if it is worth a word; else None.

    Of jobs with co-runners the slowdown, which is by `method`, has it. A job that slept nearly all the time
    may have lost a large part of very little: it must be `NOTEWORTHY_FRAC` of its wall time too.
    """
    frac = run_delay_frac(cpu_s, run_delay_s)
    if method != ALONE or frac is None or run_delay_s is None:
        return None
    of_wall = run_delay_s / (wall_s * n_ranks) if wall_s * n_ranks > 0 else 0.0
    return frac if min(frac, of_wall) >= NOTEWORTHY_FRAC else None


def crowded(ranks: Table, cpus_of_nodes: list[int]) -> tuple[int, int] | None:
    """Ranks and processors of the node where most ranks share each processor, if it has fewer than ranks.

    Parameters
    ----------
    ranks : Table
        Of a profile.
    cpus_of_nodes : list of int
        Number of processors that the job's ranks may run on, by node; 0: not known.
    """
    n_ranks = [int((ranks["i_node"] == i_node).sum()) for i_node in range(len(cpus_of_nodes))]
    nodes = [pair for pair in zip(n_ranks, cpus_of_nodes, strict=True) if 0 < pair[1] < pair[0]]
    return max(nodes, key=lambda pair: pair[0] / pair[1], default=None)
