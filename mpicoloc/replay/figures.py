"""Figures of a replay: contention by job, links over time, and calls of ranks over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpicoloc.core.profile import Array
from mpicoloc.core.units import counted
from mpicoloc.errors import printable
from mpicoloc.profile.figures import longest_functions
from mpicoloc.replay import timeline
from mpicoloc.replay.experiment import Experiment
from mpicoloc.show.figures import WIDTH, Cell, Figure, of_ranks, plot, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


_MOST_LABELS = 60


def slowdowns(rows: Sequence[dict[str, Any]]) -> Figure:
    """T_sharing of each job divided by T_base, or divided by T_alone if T_base is unknown in any row.

    `rows` are those that ``mpicoloc replay --sweep --json`` prints. A job's position in the list sets its
    colour.
    """
    is_based = all(job["normalised"] is not None for row in rows for job in row["jobs"])
    column, unit = ("normalised", "T_base") if is_based else ("slowdown", "T_alone")
    labels = [" ".join(printable(value) for value in row["settings"].values()) for row in rows]
    flags = tuple(rows[0]["settings"])
    data = tuple(
        (*row["settings"].values(), printable(job["name"]), job[column])
        for row in rows
        for job in row["jobs"]
    )

    def draw(picture: Picture) -> None:
        from mpicoloc.show import drawing

        axes = picture.subplots()
        for i in range(max(len(row["jobs"]) for row in rows)):
            at = [k for k, row in enumerate(rows) if i < len(row["jobs"])]
            names = dict.fromkeys(printable(rows[k]["jobs"][i]["name"]) for k in at)
            name = short(next(iter(names))) if len(names) == 1 else f"job {i + 1}"
            values = [rows[k]["jobs"][i][column] for k in at]
            axes.plot(at, values, "o", label=name, color=drawing.colour(i)["color"])
        axes.set_ylabel(f"T_sharing / {unit}")
        step = -(-len(rows) // _MOST_LABELS)
        shown = [short(label) for label in labels[::step]]
        axes.set_xticks(range(0, len(rows), step), shown)
        drawing.turn_if_crowded(axes, shown)
        axes.set_xlabel(", ".join(flags))
        drawing.legend_below(picture, *axes.get_legend_handles_labels())

    description = f"Time of each job beside the others, relative to {unit}, by {', '.join(flags)}."
    size = (max(WIDTH, min(2 + 0.25 * len(rows), 14.0)), 3.8)
    return Figure("sweep", "Sweep", description, (*flags, "job", column), data, draw, size)


N_WINDOWS = 256
_MOST_LINKS = 64
"""Largest number of rows of a level in the figure of links. If the level has more links, each row shows the
busiest link of a block of links."""


def figures(found: Experiment) -> list[Figure]:
    """All figures of an experiment.

    The figure of ranks is made only if the run had marks, and the figure of links only if it had windows.
    """
    made = [contention(found)]
    if len(found.sharing.window_bytes):
        made.append(links(found))
    if len(found.sharing.marks):
        made.append(ranks(found))
    return made


def contention(found: Experiment) -> Figure:
    """Time of each job alone, and the time that other jobs add, divided by T_base if T_base is known."""
    times = found.times
    is_based = all(job.base_s for job in times)
    rows = tuple(
        (job.name, job.base_s, job.alone_s, job.sharing_s, job.intra_s, job.inter_s) for job in times
    )

    def draw(picture: Picture) -> None:
        from mpicoloc.show import drawing

        axes = picture.subplots()
        below = np.zeros(len(times))
        for i, (name, values) in enumerate(_components(found, is_based)):
            axes.bar(range(len(times)), values, bottom=below, label=name, width=0.7, **drawing.colour(i))
            below = below + values
        axes.set_xticks(range(len(times)), [short(job.name) for job in times])
        drawing.turn_if_crowded(axes, [short(job.name) for job in times])
        if is_based:
            axes.set_ylabel("time / T_base")
        else:
            drawing.value_axis(axes, "s")
        drawing.legend_below(picture, *axes.get_legend_handles_labels())

    scale = "in units of T_base, its time on one switch (Jokanovic 2014, Eq. 3.1)" if is_based else "s"
    description = f"Time of each job on the network, {scale}: alone, and what other jobs add."
    header = ("job", "t_base_s", "t_alone_s", "t_sharing_s", "t_intra_s", "t_inter_s")
    return Figure("contention", "What jobs cost each other", description, header, rows, draw)


def _components(found: Experiment, is_based: bool) -> list[tuple[str, Array]]:
    """The stacked parts of each job's bar. A negative T_inter counts as 0, because a bar cannot show it."""
    times = found.times
    inter = np.array([max(job.inter_s, 0.0) for job in times])
    alone = np.array([job.alone_s for job in times])
    if not is_based:
        return [("alone", alone), ("other jobs (T_inter)", inter)]
    base = np.array([job.base_s or 0.0 for job in times])
    return [
        ("T_base", np.ones_like(base)),
        ("network (T_intra)", np.maximum(alone - base, 0) / base),
        ("other jobs (T_inter)", inter / base),
    ]


def links(found: Experiment) -> Figure:
    """Utilisation of each link over time, by level and direction."""
    run = found.sharing
    panels, rows = _panels_of_links(found)

    def draw(picture: Picture) -> None:
        axes = np.atleast_1d(picture.subplots(len(panels), 1, sharex=True))
        for panel, (name, values) in zip(axes, panels, strict=True):
            ends = (0.0, values.shape[1] * run.window_s, len(values) - 0.5, -0.5)
            image = panel.imshow(
                values, "viridis", vmin=0, vmax=1, extent=ends, aspect="auto", interpolation="none"
            )
            panel.set_ylabel(name)
            panel.set_yticks([])
            panel.grid(False)
        axes[-1].set_xlabel("simulated time, s")
        picture.colorbar(image, ax=list(axes), label="part of the link's rate")

    joined = "" if len(rows) == 0 or all(len(values) < _MOST_LINKS for _, values in panels) else (
        "; where links are many, the busiest of each block of neighbours"
    )  # fmt: skip
    description = (
        f"Bytes that each link sends in {len(run.window_bytes)} windows of {run.window_s:.3g} s, relative to "
        f"what it could carry, by level from the hosts (L0) up{joined}."
    )
    header = ("level", "way", "link", "begin_s", "utilisation_frac")
    size = (WIDTH + 1, 1.2 + 1.0 * len(panels))
    return Figure("links", "Links over time", description, header, tuple(rows), draw, size)


def _panels_of_links(found: Experiment) -> tuple[list[tuple[str, Array]], list[tuple[Cell, ...]]]:
    """The panel of each level and direction, and its data as rows."""
    run, network = found.sharing, found.network
    used = run.utilisation_frac(network.link_bps)
    panels: list[tuple[str, Array]] = []
    rows: list[tuple[Cell, ...]] = []
    is_up = network.link_from < network.link_to
    for level in range(network.n_levels):
        for way, wanted in (("up", is_up), ("down", ~is_up)):
            of_way = np.flatnonzero((network.link_level == level) & wanted)
            if not len(of_way):
                continue
            values, first = _busiest(used[:, of_way])
            panels.append((f"L{level} {way}", values))
            for i, row in enumerate(values):
                begins = np.flatnonzero(row > 0)
                rows += [
                    (level, way, int(of_way[first[i]]), j * run.window_s, float(row[j]))
                    for j in begins.tolist()
                ]
    return panels, rows


def _busiest(used: Array) -> tuple[Array, Array]:
    """Utilisation of each link or block of links (row) in each window, and the first link of each row."""
    n = used.shape[1]
    first = np.arange(0, n, -(-n // _MOST_LINKS))
    return np.maximum.reduceat(used, first, axis=1).T, first


def ranks(found: Experiment) -> Figure:
    """The call that each rank is in, over time. White means that the rank computes, or has ended."""
    n_windows = N_WINDOWS
    window_s = max(found.sharing.end_s / n_windows, 1e-12)
    parts, first_rank = [], 0
    for i, job in enumerate(found.jobs):
        own, _ = timeline.whole_calls(timeline.spans(found.sharing, i, job.programs))
        parts.append((own.rank + first_rank, own))
        first_rank += job.programs.n_ranks
    blocks = of_ranks(np.arange(first_rank), first_rank)
    total_ns = sum(np.bincount(own.call, own.end_ns - own.begin_ns, len(timeline.NAMES)) for _, own in parts)
    names, place = longest_functions(timeline.NAMES, np.asarray(total_ns))
    shares = np.zeros((len(blocks.first), n_windows, len(names)))
    for numbers, own in parts:
        _add_shares(shares, numbers // blocks.size, replace(own, call=place[own.call]), window_s * 1e9)
    shares /= blocks.size
    shares /= np.maximum(shares.sum(axis=2, keepdims=True), 1)  # calls of a graph overlap
    at = np.argwhere(shares > 0)
    rows = tuple(
        (int(blocks.first[i]), j * window_s, names[k], float(shares[i, j, k])) for i, j, k in at.tolist()
    )
    draw = plot("lanes", blocks.first, shares, names, window_s)
    words = ", ".join(f"{job.name}: {counted(job.programs.n_ranks, 'rank')}" for job in found.jobs)
    description = (
        f"The call that each simulated rank is in, with the ranks of all jobs below each other ({words}); "
        f"white: the rank computes, or has ended its first run{blocks.words('means')}."
    )
    header = ("rank", "begin_s", "call", "part_frac")
    return Figure("ranks", "What the ranks do", description, header, rows, draw, (WIDTH + 1, 4.0))


def _add_shares(shares: Array, block: Array, own: timeline.Spans, window_ns: float) -> None:
    """Add the fraction of each window that calls take; a long call spans many windows."""
    begin, end = own.begin_ns / window_ns, own.end_ns / window_ns
    n_windows = shares.shape[1]
    first, last = begin.astype(int), np.minimum(end.astype(int), n_windows - 1)
    for step in range(int((last - first).max(initial=-1)) + 1):
        at = first + step
        is_in = at <= last
        part = np.minimum(end, at + 1) - np.maximum(begin, at)
        np.add.at(shares, (block[is_in], at[is_in], own.call[is_in]), np.maximum(part[is_in], 0))
