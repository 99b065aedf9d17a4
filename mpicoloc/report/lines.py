"""Figures over time, over ranks, and of pairs of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mpicoloc.report import drawing
from mpicoloc.report.drawing import INK, SERIES
from mpicoloc.report.units import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = (0, (4, 3))


def windows(picture: Picture, window_s: float, rates: Any, in_transit: Any, mean: float, title: str) -> None:
    """Rates of each level and bytes in transit, in windows one after the other."""
    above, below = picture.subplots(2, 1, sharex=True)
    x = _corners(np.arange(len(in_transit) + 1) * window_s)
    for level, rate in enumerate(rates.T):
        above.plot(x, np.repeat(rate, 2), label=f"L{level}", color=SERIES[level % len(SERIES)], linewidth=1.4,
                     linestyle=("-", "--", ":", "-.")[level % 4])  # fmt: skip
    above.set_title(title, loc="left")
    drawing.value_axis(above, "B/s")
    below.plot(x, np.repeat(in_transit, 2), color=SERIES[0], linewidth=1.4)
    below.axhline(mean, color=INK, linewidth=0.9, linestyle=DASHES)
    below.annotate("mean", (1.0, mean), (-2, 2), xycoords=("axes fraction", "data"),
                   textcoords="offset points", ha="right", fontsize=8)  # fmt: skip
    below.set_title("on its way", loc="left")
    drawing.value_axis(below, "B")
    below.set_xlabel("time since the first message, s")
    for panel in (above, below):
        panel.set_ylim(bottom=0)
    handles, words = above.get_legend_handles_labels()
    if len(words) > 1:
        picture.legend(handles, words, loc="outside lower center", ncols=min(8, len(words)))


def settling(picture: Picture, rows: Sequence[tuple[float, float, float, float]], label: str) -> None:
    """A number with its interval, from more and more observations, and a line at the last one."""
    n, value, low, high = (np.array(column) for column in zip(*rows, strict=True))
    axes = picture.subplots()
    axes.fill_between(n, low, high, color=SERIES[4], alpha=0.45, linewidth=0, label="95 % interval")
    axes.plot(n, value, color=SERIES[0], marker="o", markersize=3.5, linewidth=1.4, label="estimate")
    axes.axhline(value[-1], color=INK, linewidth=0.9, linestyle=DASHES)
    axes.annotate(f"{value[-1]:.3f}", (1.0, value[-1]), (3, 0), xycoords=("axes fraction", "data"),
                  textcoords="offset points", va="center", fontsize=9)  # fmt: skip
    axes.set_xlabel(label)
    axes.set_ylabel("T_co / T_solo")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    if len(rows) == 1:
        axes.errorbar(n, value, [value - low, high - value], color=SERIES[0], capsize=3)
        axes.set_xlim(0, 2 * n[0])
    picture.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def dots(picture: Picture, labels: Sequence[str], places: Sequence[Sequence[float]], raster: bool) -> None:
    """Instants in a row for each label; `raster` where they are too many to be drawn one by one."""
    axes = picture.subplots()
    for i, at in enumerate(places):
        axes.plot(
            at, np.full(len(at), i), "|", color=SERIES[i % len(SERIES)], markersize=14, rasterized=raster
        )
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.set_xlabel("time since the first shutter, s")


def stacked_by_rank(
    picture: Picture, first: Any, parts: Sequence[tuple[str, Any]], mean: float | None = None
) -> None:
    """Times of each rank, or block of ranks from `first` on, above each other; a line at a mean."""
    axes = picture.subplots()
    edges = _edges(first)
    below = np.zeros(len(first))
    for i, (name, values) in enumerate(parts):
        top = below + np.nan_to_num(values)
        look = {"label": name, "linewidth": 0, **drawing.colour(i)}
        axes.fill_between(_corners(edges), np.repeat(below, 2), np.repeat(top, 2), **look)
        below = top
    if mean is not None:
        axes.axhline(mean, color=INK, linewidth=0.9, linestyle=DASHES)
    _rank_axis(axes, edges)
    axes.set_ylim(0, 1.05 * max(float(below.max(initial=0)), 1e-9))
    drawing.value_axis(axes, "s")
    handles, words = axes.get_legend_handles_labels()
    picture.legend(handles, words, loc="outside lower center", ncols=3 if len(words) > 4 else 4)


def band_by_rank(picture: Picture, first: Any, value: Any, low: Any, high: Any, label: str) -> None:
    """A number of each rank, or block of ranks, with its interval."""
    axes = picture.subplots()
    edges = _edges(first)
    look: dict[str, Any] = {"color": SERIES[4], "alpha": 0.45, "linewidth": 0, "label": "95 % interval"}
    axes.fill_between(_corners(edges), np.repeat(low, 2), np.repeat(high, 2), **look)
    middles = (edges[:-1] + edges[1:]) / 2
    small = len(first) > 100
    axes.plot(middles, value, "o", color=SERIES[0], markersize=1.5 if small else 4, label="estimate")
    _rank_axis(axes, edges)
    axes.set_ylabel(label)
    picture.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def _edges(first: Any) -> Any:
    size = first[1] - first[0] if len(first) > 1 else 1
    return np.append(first, first[-1] + size) - 0.5


def _corners(edges: Any) -> Any:
    """Where a staircase of values, each twice, has its corners; matplotlib's own takes much longer."""
    return np.repeat(edges, 2)[1:-1]


def _rank_axis(axes: Axes, edges: Any) -> None:
    axes.set_xlim(edges[0], edges[-1])
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.set_xlabel("rank")


def heat(picture: Picture, values: Any, labels: Sequence[str], what: str) -> None:
    """Bytes from each party (row) to each (column), on a logarithmic scale; pairs without any stay empty."""
    picture.set_layout_engine("compressed")  # the other one cuts labels off beside a square
    axes = picture.subplots()
    shown = np.ma.masked_less_equal(values, 0)
    least, most = float(shown.min()), float(shown.max())
    # The darkest part of the map cannot be told from a dark page.
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.15, 0.97, 200)))
    norm_ends = (least * 0.95, most * 1.05)
    image = axes.imshow(
        shown, colours, LogNorm(*norm_ends), interpolation="none", aspect="equal", origin="upper"
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        axis.set_major_formatter(
            FuncFormatter(lambda at, _: labels[int(at)] if at in range(len(labels)) else "")
        )
    axes.set(xlabel=f"to {what}", ylabel=f"from {what}")
    axes.grid(False)
    if max(map(len, labels)) > 6:
        axes.tick_params(axis="x", rotation=45)
    bar = picture.colorbar(image, ax=axes, shrink=0.8)
    drawing.log_axis(bar.ax, "y", *norm_ends)
    drawing.byte_axis(bar.ax.yaxis, amount)
    bar.outline.set_visible(False)
