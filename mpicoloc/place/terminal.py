"""A placement of jobs on nodes, as JSON and as a table."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpicoloc.core.plain_values import plain_prediction
from mpicoloc.core.units import counted
from mpicoloc.errors import printable
from mpicoloc.place.place import Placed
from mpicoloc.show.figures import Figure, Row, short
from mpicoloc.show.table import Column, console, interval, interval_notes, listing

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


MOST_NODES = 64
"""With more nodes than this, the figure has no room for names of jobs."""


def placement(placed: Placed, hosts: Sequence[str]) -> Figure:
    """Jobs in the slots of each node; darker means slower."""
    jobs = placed.problem.jobs
    names = [printable(job.id) for job in jobs]
    slowdowns = [found.value for found in placed.slowdowns]
    rows: tuple[Row, ...] = tuple(
        (hosts[node], slot, names[job], jobs[job].program, slowdowns[job])
        for node, taken in enumerate(placed.slots.tolist())
        for slot, job in enumerate(taken)
        if job >= 0
    )

    draw = functools.partial(_draw, placed=placed, hosts=hosts, names=names, slowdowns=slowdowns)
    size = (min(4.0 + 0.25 * len(hosts), 16.0), 1.6 + 0.6 * placed.problem.n_slots)
    text = (
        "Jobs in the slots of each node; darker jobs have larger slowdowns. "
        f"Largest slowdown {max(slowdowns):.3f}, mean {sum(slowdowns) / len(slowdowns):.3f}."
    )
    header = ("node", "slot", "job", "program", "slowdown")
    return Figure("placement", "Jobs on nodes", text, header, rows, draw, size)


def _draw(
    picture: Picture, placed: Placed, hosts: Sequence[str], names: Sequence[str], slowdowns: Sequence[float]
) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    from mpicoloc.show import drawing

    axes = picture.subplots()
    slots = placed.slots.T
    value = np.append(slowdowns, np.nan)[slots]
    colours = LinearSegmentedColormap.from_list("slowdown", [drawing.PAPER, drawing.SERIES[0]])
    mesh = axes.pcolormesh(
        value,
        cmap=colours,
        vmin=1.0,
        vmax=max(max(slowdowns), 1.001),
        edgecolors=drawing.FAINT,
        linewidth=0.8,
    )
    picture.colorbar(mesh, ax=axes, label="slowdown")
    axes.grid(visible=False)
    axes.set(xlabel="node", ylabel="slot", yticks=np.arange(len(slots)) + 0.5, yticklabels=range(len(slots)))
    if len(hosts) > MOST_NODES:
        return
    words = [short(host, 12) for host in hosts]
    axes.set(xticks=np.arange(len(hosts)) + 0.5, xticklabels=words)
    drawing.turn_if_crowded(axes, words)
    for (slot, node), job in np.ndenumerate(slots):
        if job >= 0:
            ink = drawing.ink_on(mesh.cmap(mesh.norm(value[slot, node])))
            word = short(names[int(job)], 8)
            axes.text(node + 0.5, slot + 0.5, word, ha="center", va="center", fontsize=8, color=ink)


_WORDS = {"sum": "sum of slowdowns", "speedup": "weighted speed-up", "worst": "largest slowdown"}


def as_json(placed: Placed, hosts: Sequence[str | int], wall_s: float, seed: int) -> dict[str, Any]:
    """A placement for JSON."""
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
        "n_link_pairs": placed.n_link_pairs,
        "slowdowns": {
            job.id: plain_prediction(slowdown) for job, slowdown in zip(jobs, placed.slowdowns, strict=True)
        },
    }


def show(placed: Placed, hosts: Sequence[str], wall_s: float) -> None:
    """Print a row for each job, then the objective and its gap to the bound."""
    columns = [
        Column("job", lambda i: placed.problem.jobs[i].id),
        Column("program", lambda i: placed.problem.jobs[i].program),
        Column("slowdown", placed.slowdowns.__getitem__, ".3f"),
        Column("95 % interval", placed.slowdowns.__getitem__, interval),
        Column("nodes", lambda i: ", ".join(hosts[node] for node in placed.nodes_of(i))),
    ]
    out = console()
    out.print(listing(columns, range(len(placed.problem.jobs)), notes=interval_notes(placed.slowdowns)))
    how_good = (
        "the best of all placements"
        if placed.method == "exhaustive"
        else f"at most {100 * placed.gap_frac:.2f} % from the best possible"
    )
    line = f"{_WORDS[placed.objective]} {placed.value:.4f}, {how_good}; found in {wall_s:.2f} s"
    out.print(line, soft_wrap=not out.is_terminal, markup=False)
    if placed.n_link_pairs is not None:
        out.print(f"{counted(placed.n_link_pairs, 'pair')} of jobs share links")
