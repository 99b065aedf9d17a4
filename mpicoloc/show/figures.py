"""Figures: each has its data, a description for readers who cannot see it, and a function that draws it.

Image files, CSV files and the page of `mpicoloc report` are made from them. A quantity that a profile lacks
becomes a `Gap` with the reason, never a figure of zeros. Long names and many ranks are shortened to fit.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mpicoloc.core.profile import Array, Profile, text
from mpicoloc.core.progress import steps
from mpicoloc.errors import EnvironmentFault, UsageError, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


FORMATS = ("svg", "png", "csv")
WIDTH = 5.0
"""Width in inches: letters of 9 points are just readable if a telephone shows the whole figure."""
Cell = str | int | float | None
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Figure:
    """One figure.

    Parameters
    ----------
    name : str
        Name of the figure's files, without a suffix.
    title, description : str
        Subject of the figure, and its content in words.
    header : tuple of str
        Names of the columns, with their units as suffixes.
    rows : tuple of tuple
        Exactly the data that are drawn; an unknown value is None.
    draw : callable
        Draws the figure into an empty matplotlib figure.
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
    """A missing figure, with the reason and the remedy."""

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
    """A function that draws with the function `kind` of `show.drawing`; only its call imports matplotlib."""

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
    """The formats in a flag's value; all formats if the flag was not given.

    Raises `UsageError` if one is unknown.
    """
    words = FORMATS if text is None else tuple(word.strip().lower() for word in text.split(","))
    for word in words:
        if word not in FORMATS:
            raise UsageError(f"--format {word!r} is none of {', '.join(FORMATS)}; give one or more of them")
    return words


def save(figures: Iterable[Figure], folder: str, formats: Sequence[str]) -> list[str]:
    """Write each figure in each format to a folder, which is created if missing.

    Result: the names of the files. Raises `EnvironmentFault` if they cannot be written.
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


MOST = 512
"""Largest number of ranks or nodes to show one by one."""
LONGEST = 24
"""Largest number of letters of a name beside an axis."""
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Blocks:
    """Blocks of `size` ranks. `of[i]` is the block of row i; `first` has the first rank of each block."""

    of: Array
    first: Array
    size: int

    def means(self, values: ArrayLike) -> Array:
        """Mean over the rows of each block."""
        n = np.bincount(self.of, minlength=len(self.first))
        sums = np.bincount(self.of, np.asarray(values, float), len(self.first))
        return np.divide(sums, n, out=np.full(len(n), np.nan), where=n > 0)

    def least(self, values: ArrayLike) -> Array:
        """Smallest value of each block's rows; NaN for a block without values."""
        out = np.full(len(self.first), np.inf)
        np.fmin.at(out, self.of, np.asarray(values, float))
        return np.where(np.isfinite(out), out, np.nan)

    def most(self, values: ArrayLike) -> Array:
        """Largest value of each block's rows; NaN for a block without values."""
        return -self.least(-np.asarray(values, float))

    def words(self, what: str) -> str:
        """The remark on blocks for a description; empty if each block is one rank."""
        return "" if self.size == 1 else f"; {what} of blocks of {self.size} ranks"


def of_ranks(ranks: Array, n_ranks: int | None = None) -> Blocks:
    """Divide a job of `n_ranks` into at most `MOST` blocks; `ranks` has the rank of each row."""
    n = int(ranks.max(initial=-1)) + 1 if n_ranks is None else n_ranks
    size = max(1, -(-n // MOST))
    return Blocks(ranks.astype(np.int64) // size, np.arange(0, max(n, 1), size), size)


def hosts(profile: Profile) -> dict[int, str]:
    """Names of the nodes by row; nodes with the same name get a number."""
    names = [printable(text(row["hostname"])) for row in profile.tables["nodes"]]
    return {i: name if names.count(name) == 1 else f"{name} #{i}" for i, name in enumerate(names)}


def short(word: str, longest: int = LONGEST) -> str:
    """A text of a profile, cut to the letters that fit a figure."""
    word = printable(word)
    return word if len(word) <= longest else word[: longest - 1] + ELLIPSIS


def short_place(word: str, longest: int = LONGEST) -> str:
    """A call site cut to the letters that fit: without its function's argument types, and cut at the left.

    C++ names begin with namespaces and classes, which many call sites have in common.
    """
    word = _without_arguments(printable(word))
    return word if len(word) <= longest else ELLIPSIS + word[len(word) - longest + 1 :]


def _without_arguments(word: str) -> str:
    """``a::f(int) f.cpp:7`` as ``a::f f.cpp:7``."""
    end = word.rfind(")")
    depth = 0
    for i in range(end, 0, -1):
        depth += (word[i] == ")") - (word[i] == "(")
        if not depth:
            is_name = word[:i].endswith("operator") or word[i - 1] == ":"
            return word if is_name or end < 0 else word[:i] + word[end + 1 :]
    return word
