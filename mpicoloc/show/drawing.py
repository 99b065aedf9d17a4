"""The look of all figures, and pictures of them. Kinds of figures are in `plots`.

Nothing of it touches a screen, the network or matplotlib's global state.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from mpicoloc.core.units import amount, byte_unit, rate, seconds
from mpicoloc.show.figures import Figure

INK, FAINT, PAPER = "#1b1b1d", "#c9c9cc", "#ffffff"
SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c44", "#7f7f86")
"""Okabe and Ito's colours, which people see apart who do not see all colours; yellow and black made mild."""
ON_ANY_PAPER = (
    "#1f88c7", "#ebaa18", "#11b083", "#d382b0", "#6bbeee", "#e16a17", "#9e9e52", "#8d8d95"
)  # fmt: skip
"""Likewise for pictures made of dots, whose colours cannot change with the page: seen on light and dark."""
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
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None, "Title": figure.title}
    text = _saved(figure, "svg", titled, metadata=metadata, transparent=not titled).decode()
    # Verdana, which other machines have, has letters of the same widths.
    return text.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")


def png(figure: Figure) -> bytes:
    """The figure as PNG."""
    return _saved(figure, "png", True, dpi=160, metadata={"Software": None, "Title": figure.title})


def _saved(figure: Figure, format_: str, titled: bool, **how: Any) -> bytes:
    out = io.BytesIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": figure.name}), warnings.catch_warnings():
        # No warning of letters that the font lacks, nor of a damaged profile's numbers that do not fit.
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
    """A legend of what these axes show, below all plots."""
    picture.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=n_columns)


def legend_below(picture: Picture, handles: Sequence[Artist], words: Sequence[str]) -> None:
    """A legend below the plots, in as many columns as the longest word leaves room for."""
    letter_in, handle_in = 0.62 * 9 / 72, 0.6  # 9 points high; the mark before a word and the gaps around it
    longest_in = letter_in * max((len(word) for word in words), default=0) + handle_in
    n_columns = max(1, min(len(words), int(picture.get_figwidth() / longest_in)))
    picture.legend(handles, words, loc="outside lower center", ncols=n_columns)


def value_axis(axes: Axes, unit: str) -> None:
    """Numbers with their unit: bytes by 1024, seconds, percent, or counts with prefixes of thousands."""
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
    """Marks at round numbers of the unit that suits the axis, which by 1024 are no round numbers of bytes."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        n_bytes, _ = byte_unit(max(abs(vmin), abs(vmax)))
        return np.asarray(super().tick_values(vmin / n_bytes, vmax / n_bytes)) * n_bytes


def byte_axis(axis: Axis, word: Callable[[float], str]) -> None:
    """Marks for bytes, or bytes per second: `word` writes one."""
    low, high = axis.get_view_interval()
    # A logarithmic axis that does not reach far has few powers of 2, or none.
    is_far = axis.get_scale() == "log" and high > 8 * low
    axis.set_major_locator(LogLocator(2, numticks=6) if is_far else _ByteLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: word(value).replace(" ", "\N{NO-BREAK SPACE}")))
    axis.set_minor_locator(NullLocator())


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
