"""Figures of bars and boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mpicoloc.core.units import seconds
from mpicoloc.show import drawing
from mpicoloc.show.drawing import INK, PAPER, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Bars:
    """Bars in groups: `values[group][series]`; None: not known."""

    title: str
    groups: Sequence[str]
    series: Sequence[str]
    values: Sequence[Sequence[float | None]]


def panels_of_bars(
    picture: Picture,
    panels: Sequence[Bars],
    *,
    unit: str,
    log: bool = False,
    limits: Mapping[str, float] | None = None,
) -> None:
    """One panel for each part, below each other, with one axis of values, one legend, and lines at limits."""
    limits = limits or {}
    axes = np.atleast_1d(picture.subplots(len(panels), 1, sharex=True, sharey=True))
    known = [value for part in panels for row in part.values for value in row if value and value > 0]
    if log and known:
        drawing.log_axis(
            axes[0], "y", min([*known, *limits.values()]) / 3, max([*known, *limits.values()]) * 2
        )
    else:
        axes[0].set_ylim(0, 1.1 * max([*known, 1]))
    for panel, part in zip(axes, panels, strict=True):
        _bars(panel, part)
        panel.set_title(part.title, loc="left")
        for name, limit in limits.items():
            panel.axhline(limit, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
            side = "top" if name == next(iter(limits)) else "bottom"
            panel.annotate(name, (1.0, limit), (3, 0), xycoords=("axes fraction", "data"), fontsize=8,
                           textcoords="offset points", va=side)  # fmt: skip
        drawing.value_axis(panel, unit)
    n_groups = len(panels[0].groups)
    room = max(0, 3 - n_groups) / 2
    axes[-1].set_xlim(-0.5 - room, n_groups - 0.5 + room)
    axes[-1].set_xticks(range(n_groups), panels[0].groups)
    drawing.turn_if_crowded(axes[-1], panels[0].groups)
    if len(panels[0].series) > 1:
        handles, labels = axes[0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))


def _bars(panel: Axes, part: Bars) -> None:
    n = len(part.series)
    width = 0.8 / n
    low = panel.get_ylim()[0] if panel.get_yscale() == "log" else 0.0
    for i, name in enumerate(part.series):
        x = np.arange(len(part.groups)) + (i - (n - 1) / 2) * width
        heights = [row[i] or 0.0 for row in part.values]
        panel.bar(x, heights, width * 0.92, label=name, edgecolor=PAPER, linewidth=0, **drawing.colour(i))
        for at, row in zip(x, part.values, strict=True):
            if not row[i]:  # a bar of no height would be read as forgotten
                word = "?" if row[i] is None else "0"
                panel.annotate(word, (at, low), (0, 2), textcoords="offset points", ha="center", fontsize=8)


def ranked(
    picture: Picture,
    labels: Sequence[str],
    values: Sequence[Any],
    limits: Sequence[float],
    classes: Sequence[str],
) -> None:
    """Lying bars, the largest on top, with the classes that limits divide them into."""
    axes = picture.subplots()
    y = np.arange(len(labels))
    known = [value for value in values if value]
    left, right = min([*known, *limits]) / 3, max([*known, *limits]) * 4
    drawing.log_axis(axes, "x", left, right)
    for at, value in zip(y, values, strict=True):
        word = "unknown" if value is None else f"{value * 100:.3g} %"
        axes.barh(at, (value or left) - left, 0.7, left, **drawing.colour(0))
        axes.annotate(word, (value or left, at), (4, 0), textcoords="offset points", va="center", fontsize=8,
                      bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1})  # fmt: skip
    axes.set_yticks(y, labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:g} %"))
    axes.set_xlabel("largest utilisation above L0")
    for limit in limits:
        axes.axvline(limit, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    for name, low, high in zip(classes, (left, *limits), (*limits, right), strict=True):
        middle = float(np.sqrt(low * high))
        axes.annotate(name, (middle, 1.0), (0, 3), xycoords=("data", "axes fraction"),
                      textcoords="offset points", ha="center", fontsize=9)  # fmt: skip


def boxes(
    picture: Picture, labels: Sequence[str], panels: Sequence[tuple[str, Sequence[Any], Sequence[Any]]]
) -> None:
    """For each label two boxes, up and down, of five quantiles; a panel for each part."""
    axes = np.atleast_1d(picture.subplots(len(panels), 1, sharex=True))
    names = ("whislo", "q1", "med", "q3", "whishi")
    for panel, (title, *sides) in zip(axes, panels, strict=True):
        for i, (way, side) in enumerate(zip(("up", "down"), sides, strict=True)):
            there = [(at, ends) for at, ends in enumerate(side) if ends[0] is not None]
            stats = [{**dict(zip(names, ends, strict=True)), "fliers": []} for _, ends in there]
            look = {"facecolor": SERIES[i], "edgecolor": SERIES[i], "linewidth": 1.4}
            line = {"color": SERIES[i], "linewidth": 1.4}
            panel.bxp(stats, [at + (i - 0.5) * 0.36 for at, _ in there], widths=0.3, showfliers=False,
                      patch_artist=True, manage_ticks=False, boxprops=look, whiskerprops=line, capprops=line,
                      medianprops={"color": INK, "linewidth": 1.2})  # fmt: skip
            panel.fill_between([], [], label=way, **drawing.colour(i))
        if not any(ends[0] is not None for side in sides for ends in side):
            panel.annotate("no link has bytes", (0.5, 0.4), xycoords="axes fraction", ha="center", fontsize=9)
            panel.set_yticks([])
        else:
            known = [end for side in sides for ends in side for end in ends if end is not None]
            drawing.log_axis(panel, "y", min(known) / 1.5, max(known) * 1.5)
        panel.set_title(title, loc="left")
        drawing.value_axis(panel, "B")
    axes[-1].set_xticks(range(len(labels)), labels)
    axes[-1].set_xlim(-0.6 - max(0, 3 - len(labels)) / 2, len(labels) - 0.4 + max(0, 3 - len(labels)) / 2)
    drawing.turn_if_crowded(axes[-1], labels)
    handles, words = axes[0].get_legend_handles_labels()
    picture.legend(handles, words, loc="outside lower center", ncols=2)


def lying(picture: Picture, labels: Sequence[str], times_s: Sequence[float]) -> None:
    """Lying bars of times, the first on top, each with its number."""
    axes = picture.subplots()
    y = np.arange(len(labels))
    axes.barh(y, times_s, 0.7, **drawing.colour(0))
    for at, time_s in zip(y, times_s, strict=True):
        axes.annotate(seconds(time_s), (time_s, at), (4, 0), textcoords="offset points", va="center",
                      fontsize=8)  # fmt: skip
    axes.set_yticks(y, labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlim(0, 1.25 * max([*times_s, 1e-9]))
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))


def histogram(
    picture: Picture, labels: Sequence[str], panels: Sequence[tuple[str, str, Sequence[float]]]
) -> None:
    """A bar for each label, in a panel for each title, unit and values."""
    axes = np.atleast_1d(picture.subplots(len(panels), 1, sharex=True))
    for panel, (title, unit, numbers) in zip(axes, panels, strict=True):
        values = np.asarray(numbers, float)
        panel.bar(range(len(labels)), values, 0.85, **drawing.colour(0))
        panel.set_title(title, loc="left")
        panel.set_ylim(0, 1.1 * max([*values, 1]))
        drawing.value_axis(panel, unit)
    room = max(0, 6 - len(labels)) / 2
    axes[-1].set_xlim(-0.6 - room, len(labels) - 0.4 + room)
    axes[-1].set_xticks(range(len(labels)), labels)
    drawing.turn_if_crowded(axes[-1], labels)


def stacked(
    picture: Picture,
    labels: Sequence[str],
    series: Sequence[str],
    times_s: Sequence[Sequence[float]],
    marked: int,
) -> None:
    """A bar of times for each label, of one part for each series; parts below 0 hang down. One is marked."""
    axes = picture.subplots()
    values = np.asarray(times_s, float)
    x = np.arange(len(labels))
    for i, name in enumerate(series):
        own, before = values[:, i], values[:, :i]
        bottom = np.where(
            own >= 0, np.clip(before, 0, None).sum(axis=1), np.clip(before, None, 0).sum(axis=1)
        )
        axes.bar(x, own, 0.75, bottom, label=name, edgecolor=PAPER, linewidth=0, **drawing.colour(i))
    axes.axhline(0, color=INK, linewidth=0.8)
    total_s = values[marked].sum()
    axes.axhline(total_s, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.annotate("sweet spot", (marked, max(total_s, 0)), (0, 3), textcoords="offset points", ha="center",
                  fontsize=8)  # fmt: skip
    axes.set_xticks(x, labels)
    axes.set_xlim(-0.6, len(labels) - 0.4)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: seconds(value) if value >= 0 else f"-{seconds(-value)}")
    )
    axes.tick_params(axis="x", rotation=45)
    drawing.legend_below(picture, *axes.get_legend_handles_labels())
