"""Drawing with matplotlib: the look of all figures, and the kinds that several of them share.

Nothing of it touches a screen, the network or matplotlib's global state.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mpicoloc.report.figures import Figure

INK, FAINT, PAPER = "#1b1b1d", "#c9c9cc", "#ffffff"
SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c44", "#7f7f86")
"""Okabe and Ito's colours, which people see apart who do not see all colours; yellow and black made mild."""
HATCHES = ("", "////", "....", "xxxx")
"""For the series after the last colour."""

STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "hatch.color": PAPER,
    "hatch.linewidth": 0.8,
    "svg.fonttype": "none",
    "text.parse_math": False,
}


def svg(figure: Figure, *, titled: bool = True) -> str:
    """The figure as SVG, the same for the same data; without its title where a page has that."""
    out = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": figure.name}):
        picture = _drawn(figure, titled)
        FigureCanvasSVG(picture)
        metadata = {"Date": None, "Creator": None, "Format": None, "Type": None, "Title": figure.title}
        picture.savefig(out, format="svg", metadata=metadata, transparent=not titled)
    return out.getvalue()


def png(figure: Figure) -> bytes:
    """The figure as PNG."""
    out = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        picture = _drawn(figure, True)
        FigureCanvasAgg(picture)
        picture.savefig(out, format="png", dpi=160, metadata={"Software": None, "Title": figure.title})
    return out.getvalue()


def _drawn(figure: Figure, titled: bool) -> Picture:
    picture = Picture(figsize=figure.size, layout="constrained", facecolor=PAPER)
    figure.draw(picture)
    if titled:
        picture.suptitle(figure.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return picture


def colour(i: int) -> dict[str, Any]:
    """Colour and hatch of the i-th series."""
    turn, place = divmod(i, len(SERIES))
    return {"color": SERIES[place], "hatch": HATCHES[turn % len(HATCHES)]}


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
        log_axis(axes[0], "y", min([*known, *limits.values()]) / 3, max([*known, *limits.values()]) * 2)
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
        value_axis(panel, unit)
    n_groups = len(panels[0].groups)
    room = max(0, 3 - n_groups) / 2
    axes[-1].set_xlim(-0.5 - room, n_groups - 0.5 + room)
    axes[-1].set_xticks(range(n_groups), panels[0].groups)
    turn_if_crowded(axes[-1], panels[0].groups)
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
        panel.bar(x, heights, width * 0.92, label=name, edgecolor=PAPER, linewidth=0, **colour(i))
        for at, row in zip(x, part.values, strict=True):
            if not row[i]:  # a bar of no height would be read as forgotten
                word = "?" if row[i] is None else "0"
                panel.annotate(word, (at, low), (0, 2), textcoords="offset points", ha="center", fontsize=8)


def value_axis(axes: Axes, unit: str) -> None:
    """Numbers with prefixes of thousands, or percent."""
    if not unit:
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    elif unit == "%":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:g} %"))
    else:
        axes.yaxis.set_major_formatter(EngFormatter(unit, sep="\N{NO-BREAK SPACE}"))
    axes.yaxis.minorticks_off()


def log_axis(axes: Axes, which: str, low: float, high: float) -> None:
    """A logarithmic axis with a few marks, however far it reaches."""
    wide = np.log10(high / low) > 2.5
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=6))
    axis.minorticks_off()


def turn_if_crowded(axes: Axes, words: Sequence[str], room: int = 60) -> None:
    """Labels that would touch each other stand upright."""
    if sum(len(word) + 1 for word in words) > room:
        axes.tick_params(axis="x", rotation=45)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


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
    log_axis(axes, "x", left, right)
    for at, value in zip(y, values, strict=True):
        word = "unknown" if value is None else f"{value * 100:.3g} %"
        axes.barh(at, (value or left) - left, 0.7, left, **colour(0))
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
            panel.fill_between([], [], label=way, **colour(i))
        if not any(ends[0] is not None for side in sides for ends in side):
            panel.annotate("no link has bytes", (0.5, 0.4), xycoords="axes fraction", ha="center", fontsize=9)
            panel.set_yticks([])
        else:
            known = [end for side in sides for ends in side for end in ends if end is not None]
            log_axis(panel, "y", min(known) / 1.5, max(known) * 1.5)
        panel.set_title(title, loc="left")
        value_axis(panel, "B")
    axes[-1].set_xticks(range(len(labels)), labels)
    axes[-1].set_xlim(-0.6 - max(0, 3 - len(labels)) / 2, len(labels) - 0.4 + max(0, 3 - len(labels)) / 2)
    turn_if_crowded(axes[-1], labels)
    handles, words = axes[0].get_legend_handles_labels()
    picture.legend(handles, words, loc="outside lower center", ncols=2)


def windows(picture: Picture, window_s: float, rates: Any, in_transit: Any, mean: float) -> None:
    """Rates of each level and bytes in transit, in windows one after the other."""
    above, below = picture.subplots(2, 1, sharex=True)
    edges = np.arange(len(in_transit) + 1) * window_s
    for level, rate in enumerate(rates.T):
        above.stairs(rate, edges, label=f"L{level}", color=SERIES[level % len(SERIES)], linewidth=1.4,
                     linestyle=("-", "--", ":", "-.")[level % 4])  # fmt: skip
    above.set_title("leaves subtrees of each level", loc="left")
    value_axis(above, "B/s")
    below.stairs(in_transit, edges, color=SERIES[0], linewidth=1.4)
    below.axhline(mean, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    below.annotate("mean", (1.0, mean), (-2, 2), xycoords=("axes fraction", "data"),
                   textcoords="offset points", ha="right", fontsize=8)  # fmt: skip
    below.set_title("on its way", loc="left")
    value_axis(below, "B")
    below.set_xlabel("time since the first message, s")
    for panel in (above, below):
        panel.set_ylim(bottom=0)
    handles, words = above.get_legend_handles_labels()
    picture.legend(handles, words, loc="outside lower center", ncols=min(8, len(words)))
