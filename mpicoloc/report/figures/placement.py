"""A picture of a placement: nodes from left to right, what runs in their slots from bottom to top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpicoloc.core.tables import printable
from mpicoloc.report.figures.figures import Figure, Row
from mpicoloc.schedule.placement.place import Placed

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MOST_NODES = 64
"""Nodes that have room for the name of a job."""


def placement(placed: Placed, hosts: Sequence[str]) -> Figure:
    """Jobs in the slots of each node; the slower a job, the darker it is.

    Parameters
    ----------
    placed : Placed
    hosts : sequence of str
        Name of each node.
    """
    jobs = placed.problem.jobs
    names = [printable(job.id) for job in jobs]
    slowdowns = [found.value for found in placed.slowdowns]
    rows: tuple[Row, ...] = tuple(
        (hosts[node], slot, names[job], jobs[job].program, slowdowns[job])
        for node, taken in enumerate(placed.slots.tolist())
        for slot, job in enumerate(taken)
        if job >= 0
    )

    def draw(picture: Picture) -> None:
        _draw(picture, placed, hosts, names, slowdowns)

    size = (min(4.0 + 0.25 * len(hosts), 16.0), 1.6 + 0.6 * placed.problem.n_slots)
    text = (
        "Which job is in which slot of each node; darker jobs are slowed down more. "
        f"Largest slowdown {max(slowdowns):.3f}, mean {sum(slowdowns) / len(slowdowns):.3f}."
    )
    header = ("node", "slot", "job", "program", "slowdown")
    return Figure("placement", "Jobs on nodes", text, header, rows, draw, size)


def _draw(
    picture: Picture, placed: Placed, hosts: Sequence[str], names: Sequence[str], slowdowns: Sequence[float]
) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    from mpicoloc.report.figures import drawing
    from mpicoloc.report.figures.blocks import short

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
    axes.set(ylabel="slot", yticks=np.arange(len(slots)) + 0.5, yticklabels=range(len(slots)))
    if len(hosts) > MOST_NODES:
        axes.set(xlabel="node")
        return
    words = [short(host, 12) for host in hosts]
    axes.set(xticks=np.arange(len(hosts)) + 0.5, xticklabels=words)
    drawing.turn_if_crowded(axes, words)
    for (slot, node), job in np.ndenumerate(slots):
        if job >= 0:
            axes.text(node + 0.5, slot + 0.5, short(names[int(job)], 8), ha="center", va="center", fontsize=8)
