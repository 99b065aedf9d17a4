"""A placement of jobs on nodes, as JSON and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from mpicoloc.core.estimate import estimate_json
from mpicoloc.core.tables import printable
from mpicoloc.report.terminal.listing import Listing
from mpicoloc.report.terminal.output import console
from mpicoloc.schedule.placement.place import Placed

_WORDS = {"sum": "sum of slowdowns", "speedup": "weighted speed-up", "worst": "largest slowdown"}


def as_json(placed: Placed, hosts: Sequence[str | int], wall_s: float, seed: int) -> dict[str, Any]:
    """The placement.

    Parameters
    ----------
    placed : Placed
    hosts : sequence of str or int
        Name of each node, or its number.
    wall_s : float
        How long it took to find, s.
    seed : int
        Of the random state.
    """
    jobs = placed.problem.jobs
    return {
        "objective": placed.value,
        "bound": placed.bound,
        "gap_frac": placed.gap_frac,
        "wall_s": wall_s,
        "placement": {job.id: [hosts[node] for node in placed.nodes_of(i)] for i, job in enumerate(jobs)},
        "objective_is": placed.objective,
        "method": placed.method,
        "seed": seed,
        "n_nodes": placed.problem.n_nodes,
        "n_slots": placed.problem.n_slots,
        "slowdowns": {
            job.id: estimate_json(slowdown) for job, slowdown in zip(jobs, placed.slowdowns, strict=True)
        },
    }


def show(placed: Placed, hosts: Sequence[str], wall_s: float) -> None:
    """Print a row for each job, and what the placement is worth."""
    table = Listing(None, ("job", "program", "slowdown", "95 % interval", "nodes"))
    for i, (job, found) in enumerate(zip(placed.problem.jobs, placed.slowdowns, strict=True)):
        names = escape(printable(job.id)), escape(printable(job.program))
        nodes = escape(", ".join(hosts[node] for node in placed.nodes_of(i)))
        table.add_row(*names, f"{found.value:.3f}", f"{found.low:.3f} to {found.high:.3f}", nodes)
    out = console()
    out.print(table)
    out.print(_summary(placed, wall_s), soft_wrap=True, markup=False)


def _summary(placed: Placed, wall_s: float) -> str:
    how_good = (
        "the best of all placements"
        if placed.method == "exhaustive"
        else f"at most {100 * placed.gap_frac:.2f} % from the best possible"
    )
    return f"{_WORDS[placed.objective]} {placed.value:.4f}, {how_good}; found in {wall_s:.2f} s"
