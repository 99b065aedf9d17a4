"""Style of all figures, and a function for each kind: bars, boxes, lines over time or ranks, pairs of ranks.

No function here uses a display, the network or matplotlib's global state.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import ListedColormap, LogNorm, to_rgb
from matplotlib.figure import Figure as Picture
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from mpicoloc.core.units import amount, byte_unit, rate, seconds
from mpicoloc.show.figures import Bars, Figure

INK, FAINT, PAPER = "#1b1b1d", "#c9c9cc", "#ffffff"
SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c44", "#7f7f86")
"""Okabe and Ito's colours for colour-blind readers, with softer replacements for yellow and black."""
ON_ANY_PAPER = (
    "#1f88c7", "#ebaa18", "#11b083", "#d382b0", "#6bbeee", "#e16a17", "#9e9e52", "#8d8d95"
)  # fmt: skip
"""Colours for raster images. They are visible on light and dark backgrounds, because a raster image cannot
adapt to the page."""
HATCHES = ("", "////", "....", "xxxx")
"""Hatches that distinguish series once all colours are used."""

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
    """The figure as SVG, reproducible for the same data; `titled=False` for pages that have the title."""
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None, "Title": figure.title}
    text = _saved(figure, "svg", titled, metadata=metadata, transparent=not titled).decode()
    # Verdana has the same letter widths, and is present on machines without DejaVu Sans.
    return text.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")


def png(figure: Figure) -> bytes:
    """The figure as PNG."""
    return _saved(figure, "png", True, dpi=160, metadata={"Software": None, "Title": figure.title})


def _saved(figure: Figure, format_: str, titled: bool, **how: Any) -> bytes:
    out = io.BytesIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": figure.name}), warnings.catch_warnings():
        # Silence warnings about letters that the font lacks, and about huge numbers of a damaged profile.
        warnings.filterwarnings("ignore", "Glyph |constrained_layout not applied")
        picture = Picture(figsize=figure.size, layout="constrained", facecolor=PAPER)
        figure.draw(picture)
        if titled:
            picture.suptitle(figure.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        picture.savefig(out, format=format_, **how)
    return out.getvalue()


def colour(i: int) -> dict[str, Any]:
    """Colour and hatch of the i-th series."""
    turn, place = divmod(i, len(SERIES))
    return {"color": SERIES[place], "hatch": HATCHES[turn % len(HATCHES)]}


def legend(picture: Picture, axes: Axes, n_columns: int) -> None:
    """Add a legend for these axes below all plots."""
    picture.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=n_columns)


def legend_below(picture: Picture, handles: Sequence[Artist], words: Sequence[str]) -> None:
    """Add a legend below the plots, in as many columns as fit the longest label."""
    letter_in, handle_in = 0.62 * 9 / 72, 0.6  # inches: a letter of 9 points; a label's marker with its gaps
    longest_in = letter_in * max((len(word) for word in words), default=0) + handle_in
    n_columns = max(1, min(len(words), int(picture.get_figwidth() / longest_in)))
    picture.legend(handles, words, loc="outside lower center", ncols=n_columns)


def ink_on(background: Any) -> str:
    """Light or dark text colour for a background, given as red, green and blue from 0 to 1."""
    light = float(np.dot((0.2126, 0.7152, 0.0722), np.asarray(background)[:3] ** 2.2))
    return INK if light > 0.18 else PAPER


def value_axis(axes: Axes, unit: str) -> None:
    """Format the y axis by unit: bytes in powers of 1024, seconds, percent, or counts with SI prefixes."""
    if not unit:
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    elif unit == "%":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:g} %"))
    elif unit == "s":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))
    else:
        byte_axis(axes.yaxis, amount if unit == "B" else rate)
    axes.yaxis.minorticks_off()


class _ByteLocator(MaxNLocator):
    """Ticks at round numbers of the axis's unit, such as MiB, which are not round numbers of bytes."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        n_bytes, _ = byte_unit(max(abs(vmin), abs(vmax)))
        return np.asarray(super().tick_values(vmin / n_bytes, vmax / n_bytes)) * n_bytes


def byte_axis(axis: Axis, word: Callable[[float], str]) -> None:
    """Set ticks for bytes, or bytes per second; `word` formats one."""
    low, high = axis.get_view_interval()
    # A logarithmic axis over a small range has few or no powers of 2, so it gets linear ticks.
    is_far = axis.get_scale() == "log" and high > 8 * low
    axis.set_major_locator(LogLocator(2, numticks=6) if is_far else _ByteLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: word(value).replace(" ", "\N{NO-BREAK SPACE}")))
    axis.set_minor_locator(NullLocator())


def log_axis(axes: Axes, which: str, low: float, high: float) -> None:
    """Make an axis logarithmic, with few ticks whatever its range."""
    wide = np.log10(high / low) > 2.5
    axes.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=6))
    axis.minorticks_off()


def turn_if_crowded(axes: Axes, words: Sequence[str], room: int = 60) -> None:
    """Rotate the labels by 45 degrees if they would overlap."""
    if sum(len(word) + 1 for word in words) > room:
        axes.tick_params(axis="x", rotation=45)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
            label.set_rotation_mode("anchor")


def panels_of_bars(
    picture: Picture,
    panels: Sequence[Bars],
    *,
    unit: str,
    label: str = "",
    log: bool = False,
    limits: Mapping[str, float] | None = None,
) -> None:
    """Bars in one panel for each part. The panels are stacked vertically, with a common y axis and legend,
    and lines at limits.
    """
    limits = limits or {}
    picture.supylabel(label, fontsize=9)
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
    _word_axis(axes[-1], panels[0].groups)
    if len(panels[0].series) > 1:
        legend(picture, axes[0], min(6, len(panels[0].series)))


def _bars(panel: Axes, part: Bars) -> None:
    n = len(part.series)
    width = 0.8 / n
    low = panel.get_ylim()[0] if panel.get_yscale() == "log" else 0.0
    for i, name in enumerate(part.series):
        x = np.arange(len(part.groups)) + (i - (n - 1) / 2) * width
        heights = [row[i] or 0.0 for row in part.values]
        panel.bar(x, heights, width * 0.92, label=name, edgecolor=PAPER, linewidth=0, **colour(i))
        for at, row in zip(x, part.values, strict=True):
            if not row[i]:  # without a label, a bar of height 0 would look like a missing one
                word = "?" if row[i] is None else "0"
                panel.annotate(word, (at, low), (0, 2), textcoords="offset points", ha="center", fontsize=8)


def ranked(
    picture: Picture,
    labels: Sequence[str],
    values: Sequence[Any],
    limits: Sequence[float],
    classes: Sequence[str],
) -> None:
    """Horizontal bars, the largest on top, with the names of the classes between the limits."""
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
    _row_axis(axes, labels)
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
    """Two boxes of five quantiles, up and down, for each label; one panel per part."""
    picture.supylabel("bytes on a link", fontsize=9)
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
    _word_axis(axes[-1], labels)
    legend(picture, axes[0], 2)


def lying(picture: Picture, labels: Sequence[str], times_s: Sequence[float]) -> None:
    """Horizontal bars of times, the first on top, each labelled with its time."""
    axes = picture.subplots()
    y = np.arange(len(labels))
    axes.barh(y, times_s, 0.7, **colour(0))
    for at, time_s in zip(y, times_s, strict=True):
        axes.annotate(seconds(time_s), (time_s, at), (4, 0), textcoords="offset points", va="center",
                      fontsize=8)  # fmt: skip
    _row_axis(axes, labels)
    axes.set_xlim(0, 1.25 * max([*times_s, 1e-9]))
    axes.grid(True, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds(value)))


def histogram(
    picture: Picture, labels: Sequence[str], panels: Sequence[tuple[str, str, Sequence[float]]]
) -> None:
    """A bar for each label, in one panel for each tuple of title, unit and values."""
    axes = np.atleast_1d(picture.subplots(len(panels), 1, sharex=True))
    for panel, (title, unit, numbers) in zip(axes, panels, strict=True):
        values = np.asarray(numbers, float)
        panel.bar(range(len(labels)), values, 0.85, **colour(0))
        panel.set_title(title, loc="left")
        panel.set_ylim(0, 1.1 * max([*values, 1]))
        value_axis(panel, unit)
    _word_axis(axes[-1], labels, 6)


def stacked(
    picture: Picture,
    labels: Sequence[str],
    series: Sequence[str],
    times_s: Sequence[Sequence[float]],
    marked: int,
) -> None:
    """Stacked bars of times: a bar for each label, with a part for each series.

    Negative parts point downwards. One bar is marked.
    """
    axes = picture.subplots()
    values = np.asarray(times_s, float)
    x = np.arange(len(labels))
    for i, name in enumerate(series):
        own, before = values[:, i], values[:, :i]
        bottom = np.where(
            own >= 0, np.clip(before, 0, None).sum(axis=1), np.clip(before, None, 0).sum(axis=1)
        )
        axes.bar(x, own, 0.75, bottom, label=name, edgecolor=PAPER, linewidth=0, **colour(i))
    axes.axhline(0, color=INK, linewidth=0.8)
    total_s = values[marked].sum()
    axes.axhline(total_s, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.annotate("sweet spot", (marked, max(total_s, 0)), (0, 3), textcoords="offset points", ha="center",
                  fontsize=8)  # fmt: skip
    axes.set(xticks=x, xticklabels=labels, xlim=(-0.6, len(labels) - 0.4))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: seconds(value) if value >= 0 else f"-{seconds(-value)}")
    )
    axes.tick_params(axis="x", rotation=45)
    legend_below(picture, *axes.get_legend_handles_labels())


DASHES = (0, (4, 3))
LEAST_SEEN = 0.005
"""A part of a bar below this fraction of the figure's height is invisible, so the legend leaves it out."""
MANY_POINTS = 32
"""Largest number of ranks whose intervals are drawn as bars; with more ranks, the intervals become a band."""
MIN_RATIO = 2.0
"""Minimum ratio between the ends of a colour scale. It makes almost equal values look alike."""


def windows(picture: Picture, window_s: float, rates: Any, in_transit: Any, mean: float, title: str) -> None:
    """Rates of each level, and bytes in transit, in consecutive windows."""
    above, below = picture.subplots(2, 1, sharex=True)
    x = _corners(np.arange(len(in_transit) + 1) * window_s)
    for level, rate_bps in enumerate(rates.T):
        above.plot(x, np.repeat(rate_bps, 2), label=f"L{level}", color=SERIES[level % len(SERIES)],
                   linewidth=1.4, linestyle=("-", "--", ":", "-.")[level % 4])  # fmt: skip
    above.set_title(title, loc="left")
    value_axis(above, "B/s")
    below.plot(x, np.repeat(in_transit, 2), color=SERIES[0], linewidth=1.4)
    below.axhline(mean, color=INK, linewidth=0.9, linestyle=DASHES)
    below.annotate("mean", (1.0, mean), (-2, 2), xycoords=("axes fraction", "data"),
                   textcoords="offset points", ha="right", fontsize=8)  # fmt: skip
    below.set_title("on its way", loc="left")
    value_axis(below, "B")
    below.set_xlabel("time since the first message, s")
    for panel in (above, below):
        panel.set_ylim(bottom=0)
    n_levels = rates.shape[1]
    if n_levels > 1:
        legend(picture, above, min(8, n_levels))


def settling(picture: Picture, rows: Sequence[tuple[float, float, float, float]], label: str) -> None:
    """An estimate and its interval over the number of observations, with a line at the last estimate."""
    n, value, low, high = (np.array(column) for column in zip(*rows, strict=True))
    axes = picture.subplots()
    axes.fill_between(n, low, high, color=SERIES[4], alpha=0.45, linewidth=0, label="95 % interval")
    axes.plot(n, value, color=SERIES[0], marker="o", markersize=3.5, linewidth=1.4, label="estimate")
    axes.axhline(value[-1], color=INK, linewidth=0.9, linestyle=DASHES)
    axes.annotate(f"{value[-1]:.3f}", (1.0, value[-1]), (3, 0), xycoords=("axes fraction", "data"),
                  textcoords="offset points", va="center", fontsize=9)  # fmt: skip
    axes.set(xlabel=label, ylabel="T_co / T_solo")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    if len(rows) == 1:
        axes.errorbar(n, value, [value - low, high - value], color=SERIES[0], capsize=3)
        axes.set_xlim(0, 2 * n[0])
    legend(picture, axes, 2)


def with_intervals(
    picture: Picture, rows: Sequence[tuple[float, float, float, float]], across: str, up: str
) -> None:
    """Values with intervals over an independent variable; `across` and `up` are the axes' labels."""
    at, value, low, high = (np.array(column) for column in zip(*rows, strict=True))
    axes = picture.subplots()
    axes.errorbar(
        at, value, [value - low, high - value], color=SERIES[0], marker="o", markersize=4, capsize=3
    )
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle=DASHES)
    axes.set(xlabel=across, ylabel=up)


def dots(picture: Picture, labels: Sequence[str], places: Sequence[Sequence[float]], raster: bool) -> None:
    """Marks at instants, in a row for each label; `raster` if there are too many for vector graphics."""
    axes = picture.subplots()
    for i, at in enumerate(places):
        axes.plot(
            at, np.full(len(at), i), "|", color=SERIES[i % len(SERIES)], markersize=14, rasterized=raster
        )
    _row_axis(axes, labels)
    axes.set_xlabel("time since the first shutter, s")


def stacked_by_rank(
    picture: Picture, first: Any, parts: Sequence[tuple[str, Any]], mean: float | None = None
) -> None:
    """Stacked times of each rank, or block of ranks that begins at `first`, with a line at `mean`."""
    axes = picture.subplots()
    edges = _edges(first)
    below = np.zeros(len(first))
    height = max(float(sum(np.nan_to_num(values) for _, values in parts).max(initial=0)), 1e-9)
    for i, (name, values) in enumerate(parts):
        top = below + np.nan_to_num(values)
        is_seen = float((top - below).max(initial=0)) >= LEAST_SEEN * height
        look = {"label": name if is_seen else "_hidden", "linewidth": 0, **colour(i)}
        axes.fill_between(_corners(edges), np.repeat(below, 2), np.repeat(top, 2), **look)
        below = top
    if mean is not None:
        axes.axhline(mean, color=INK, linewidth=0.9, linestyle=DASHES, label=f"mean {parts[0][0]}")
    _rank_axis(axes, edges)
    axes.set_ylim(0, 1.05 * height)
    value_axis(axes, "s")
    legend_below(picture, *axes.get_legend_handles_labels())


def interval_by_rank(picture: Picture, first: Any, value: Any, low: Any, high: Any, label: str) -> None:
    """A value with interval for each rank or block of ranks: as bars, or as a band for many ranks."""
    axes = picture.subplots()
    edges = _edges(first)
    middles = (edges[:-1] + edges[1:]) / 2
    words = "95 % interval"
    if len(first) <= MANY_POINTS:
        axes.vlines(middles, low, high, color=SERIES[0], linewidth=1.4, label=words)
        for ends in (low, high):
            axes.plot(middles, ends, "_", color=SERIES[0], markersize=6)
    else:
        look: dict[str, Any] = {"color": SERIES[4], "alpha": 0.45, "linewidth": 0, "label": words}
        axes.fill_between(_corners(edges), np.repeat(low, 2), np.repeat(high, 2), **look)
    size = 1.5 if len(first) > 100 else 4
    axes.plot(middles, value, "o", color=SERIES[0], markersize=size, label="estimate")
    _rank_axis(axes, edges)
    axes.set_ylabel(label)
    legend(picture, axes, 2)


def lanes(picture: Picture, first: Any, shares: Any, names: Sequence[str], window_s: float) -> None:
    """A row for each rank or block of ranks, coloured by function; `shares` is block x window x function."""
    axes = picture.subplots()
    edges = _edges(first)
    colours = np.array([to_rgb(word) for word in ON_ANY_PAPER])
    longest = shares.argmax(axis=2)
    opacity = np.clip(shares.sum(axis=2), 0.0, 1.0)
    image = np.concatenate([colours[longest], opacity[:, :, None]], axis=2)
    ends = (0.0, shares.shape[1] * window_s, edges[-1], edges[0])
    axes.imshow(image, extent=ends, aspect="auto", interpolation="none", origin="upper")
    axes.set(xlabel="time since the first call, s", ylabel="rank")
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.grid(False)
    seen = np.unique(longest[opacity >= 0.1])
    handles = [Patch(color=ON_ANY_PAPER[i], label=names[i]) for i in seen.tolist()]
    if handles:
        picture.legend(handles=handles, loc="outside lower center", ncols=3)


def _row_axis(axes: Axes, labels: Sequence[str]) -> None:
    """Make the y axis a row for each label, the first on top."""
    axes.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.4, -0.6))
    axes.grid(False, axis="y")


def _word_axis(axes: Axes, labels: Sequence[str], least: int = 3) -> None:
    """Make the x axis a column for each label; columns are never wider than with `least` labels."""
    room = max(0, least - len(labels)) / 2
    xlim = (-0.6 - room, len(labels) - 0.4 + room)
    axes.set(xticks=range(len(labels)), xticklabels=labels, xlim=xlim)
    turn_if_crowded(axes, labels)


def _edges(first: Any) -> Any:
    size = first[1] - first[0] if len(first) > 1 else 1
    return np.append(first, first[-1] + size) - 0.5


def _corners(edges: Any) -> Any:
    """The x coordinates of a staircase of values: inner edges twice. Matplotlib's steps are much slower."""
    return np.repeat(edges, 2)[1:-1]


def _rank_axis(axes: Axes, edges: Any) -> None:
    axes.set(xlim=(edges[0], edges[-1]), xlabel="rank")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))


def heat(picture: Picture, values: Any, labels: Sequence[str], what: str) -> None:
    """Bytes from each group (row) to each group (column), logarithmic; cells without bytes are empty."""
    picture.set_layout_engine("compressed")  # "constrained" cuts off the labels of a square plot
    axes = picture.subplots()
    shown = np.ma.masked_less_equal(values, 0)
    least, most = float(shown.min()), float(shown.max())
    # The darkest colours are left out: they cannot be distinguished from a dark page.
    colours = ListedColormap(colormaps["viridis"](np.linspace(0.15, 0.97, 200)))
    if least == most:
        colours = ListedColormap(ON_ANY_PAPER[:1])
    wider = max(1.05, (MIN_RATIO * least / most) ** 0.5)
    norm_ends = (least / wider, most * wider)
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
    if least == most:
        word = Patch(color=ON_ANY_PAPER[0], label=f"{amount(most)} each")
        axes.legend(handles=[word], loc="lower left", bbox_to_anchor=(0.0, 1.0))
        return
    bar = picture.colorbar(image, ax=axes, shrink=0.8)
    log_axis(bar.ax, "y", *norm_ends)
    byte_axis(bar.ax.yaxis, amount)
    bar.outline.set_visible(False)
