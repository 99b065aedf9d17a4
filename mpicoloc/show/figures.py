"""A figure is its data, words for those who do not see it, and a way to draw it.

Three readers use it: picture files, CSV files, and the page of `mpicoloc report`. What a profile does not
have becomes a `Gap` that says why, never a figure of zeros.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpicoloc.core.progress import steps
from mpicoloc.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FORMATS = ("svg", "png", "csv")
WIDTH = 5.0
"""Inches: letters of 9 points are just large enough where a telephone shows all of it."""
Cell = str | int | float | None
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Figure:
    """One figure.

    Parameters
    ----------
    name : str
        Of its files, without a suffix.
    title, description : str
        What it is of, and what it shows, in words.
    header : tuple of str
        Names of the columns, with their units as suffixes.
    rows : tuple of tuple
        What is drawn, nothing else; None: not known.
    draw : callable
        Draws it into an empty figure of matplotlib's.
    size : tuple of float
        Width and height, inches.
    """

    name: str
    title: str
    description: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    draw: Callable[[Picture], None]
    size: tuple[float, float] = (WIDTH, 3.4)


@dataclass(frozen=True)
class Gap:
    """A figure that cannot be made, with the reason and the remedy."""

    name: str
    title: str
    reason: str


@dataclass(frozen=True)
class Bars:
    """Bars in groups: `values[group][series]`; None: not known."""

    title: str
    groups: Sequence[str]
    series: Sequence[str]
    values: Sequence[Sequence[float | None]]


def plot(kind: str, *data: Any, **how: Any) -> Callable[[Picture], None]:
    """A way to draw: function `kind` of `show.drawing`, which imports matplotlib when it is called."""

    def draw(picture: Picture) -> None:
        from mpicoloc.show import drawing

        getattr(drawing, kind)(picture, *data, **how)

    return draw


def csv_text(figure: Figure) -> str:
    """The data of a figure as CSV; an unknown number is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(figure.header)
    writer.writerows(figure.rows)
    return out.getvalue()


def formats_of(text: str | None) -> tuple[str, ...]:
    """The formats that a flag names, all of them if it was not given.

    Raises `UsageError` if one is unknown.
    """
    words = FORMATS if text is None else tuple(word.strip().lower() for word in text.split(","))
    for word in words:
        if word not in FORMATS:
            raise UsageError(f"--format {word!r} is none of {', '.join(FORMATS)}; give one or more of them")
    return words


def save(figures: Iterable[Figure], folder: str, formats: Sequence[str]) -> list[str]:
    """Write each figure in each format to a folder, which is made if there is none.

    Result: the files written. Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    written = []
    try:
        os.makedirs(folder, exist_ok=True)
        for figure in steps(figures, "drawing", unit="figures"):
            for name in formats:
                path = os.path.join(folder, f"{figure.name}.{name}")
                with open(path, "wb") as file:
                    file.write(_content(figure, name))
                written.append(path)
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write figures to {folder}: {error.strerror}; choose another folder with --figures"
        ) from None
    return written


def _content(figure: Figure, format_: str) -> bytes:
    if format_ == "csv":
        return csv_text(figure).encode()
    from mpicoloc.show import drawing

    return drawing.svg(figure).encode() if format_ == "svg" else drawing.png(figure)
