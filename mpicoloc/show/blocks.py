"""Ranks and words for pictures, which have room for so many only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mpicoloc.core.profile import Array, Profile, text
from mpicoloc.errors import printable

MOST = 512
"""Ranks, or nodes, that are shown one by one."""
LONGEST = 24
"""Letters of a name beside an axis."""
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Blocks:
    """Blocks of `size` ranks: `of[i]` is the block of row i, `first` the first rank of each."""

    of: Array
    first: Array
    size: int

    def means(self, values: ArrayLike) -> Array:
        """Mean of the rows of each block."""
        n = np.bincount(self.of, minlength=len(self.first))
        sums = np.bincount(self.of, np.asarray(values, float), len(self.first))
        return np.divide(sums, n, out=np.full(len(n), np.nan), where=n > 0)

    def least(self, values: ArrayLike) -> Array:
        """Least of the rows of each block; NaN where there is none."""
        out = np.full(len(self.first), np.inf)
        np.fmin.at(out, self.of, np.asarray(values, float))
        return np.where(np.isfinite(out), out, np.nan)

    def most(self, values: ArrayLike) -> Array:
        """Largest of them."""
        return -self.least(-np.asarray(values, float))

    def words(self, what: str) -> str:
        """What a description says of blocks, if they are more than a rank each."""
        return "" if self.size == 1 else f"; {what} of blocks of {self.size} ranks"


def of_ranks(ranks: Array, n_ranks: int | None = None) -> Blocks:
    """Blocks for rows that are of these ranks, of a job of `n_ranks`: `MOST` blocks at most."""
    n = int(ranks.max(initial=-1)) + 1 if n_ranks is None else n_ranks
    size = max(1, -(-n // MOST))
    return Blocks(ranks.astype(np.int64) // size, np.arange(0, max(n, 1), size), size)


def hosts(profile: Profile) -> dict[int, str]:
    """Names of the nodes by their row; two of one name are told apart."""
    names = [printable(text(row["hostname"])) for row in profile.tables["nodes"]]
    return {i: name if names.count(name) == 1 else f"{name} #{i}" for i, name in enumerate(names)}


def short(word: str, longest: int = LONGEST) -> str:
    """A word of a profile with as many letters as a picture has room for."""
    word = printable(word)
    return word if len(word) <= longest else word[: longest - 1] + ELLIPSIS


def short_place(word: str, longest: int = LONGEST) -> str:
    """A call site likewise: without the types of its function's arguments, and cut at the left.

    Names of C++ begin with namespaces and classes, which many call sites have in common.
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
