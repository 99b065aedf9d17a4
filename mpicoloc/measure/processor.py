"""Processor time of a job's ranks, and the time that they were ready to run without a processor."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpicoloc.core.profile import Estimate, Table

ALONE = "alone"
"""Method of the slowdown of a job without co-runners."""
ALONE_WORDS = "1 (no co-runner under mpicoloc)"
"""That slowdown in words: it was not measured, and processes without mpicoloc may have been there."""
NOTABLE_FRAC = 0.05
"""Run delay, as part of the time ready to run, from which a note is made. Kernel threads and daemons take the
processor from every job now and then, and runs of one program differ by some per cent anyway. A process that
shares its processor with one other loses half of the time."""


def slowdown_words(slowdown: Estimate | None) -> str:
    """A job's slowdown in a few words."""
    if slowdown is None:
        return "not measured"
    if slowdown.method == ALONE:
        return ALONE_WORDS
    return f"{slowdown.value:.3f} ({slowdown.low:.3f} to {slowdown.high:.3f})"


def processor_use(ranks: Table) -> dict[str, Any]:
    """`cpu_s`, `run_delay_s` and `involuntary_switches` of an `Interference`, from the table of ranks.

    All three are sums over the ranks whose run delay is known; if there is none, over all ranks.
    """
    with_run_delay = ranks[~np.isnan(ranks["run_delay_s"])]
    rows = with_run_delay if len(with_run_delay) else ranks
    sums = {name: _sum(rows[name]) for name in ("cpu_s", "run_delay_s", "involuntary_switches")}
    switches = sums["involuntary_switches"]
    return sums | {"involuntary_switches": None if switches is None else int(switches)}


def _sum(column: np.ndarray) -> float | None:
    return None if np.isnan(column).all() else float(np.nansum(column))


def run_delay_frac(cpu_s: float | None, run_delay_s: float | None) -> float | None:
    """Run delay over the time that the ranks' threads were ready to run or ran; None: not known.

    It does not depend on the number of threads, nor on the time that they sleep.
    """
    if cpu_s is None or run_delay_s is None:
        return None
    ready_s = cpu_s + run_delay_s
    return run_delay_s / ready_s if ready_s > 0 else 0.0


def notable_run_delay_frac(
    method: str | None, wall_s: float, n_ranks: float, cpu_s: float | None, run_delay_s: float | None
) -> float | None:
    """`run_delay_frac` of a job without co-runner under mpicoloc, if it deserves a note; else None.

    The slowdown of a job with co-runners (`method` is not `ALONE`) includes the run delay. A job that slept
    nearly all the time may have lost a large part of very little, so the run delay must also be
    `NOTABLE_FRAC` of the wall time.
    """
    frac = run_delay_frac(cpu_s, run_delay_s)
    if method != ALONE or frac is None or run_delay_s is None:
        return None
    of_wall = run_delay_s / (wall_s * n_ranks) if wall_s * n_ranks > 0 else 0.0
    return frac if min(frac, of_wall) >= NOTABLE_FRAC else None


def most_crowded_node(ranks: Table, cpus_of_nodes: list[int]) -> tuple[int, int] | None:
    """Ranks and processors of the node with most ranks per processor; None if no node has more than one."""
    n_ranks = [int((ranks["i_node"] == i_node).sum()) for i_node in range(len(cpus_of_nodes))]
    nodes = [pair for pair in zip(n_ranks, cpus_of_nodes, strict=True) if 0 < pair[1] < pair[0]]
    return max(nodes, key=lambda pair: pair[0] / pair[1], default=None)
