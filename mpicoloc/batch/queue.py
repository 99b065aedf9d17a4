"""Jobs that wait, and when those that run are expected to end: sorted columns that change in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Columns:
    """Rows of several columns which are inserted and removed one by one.

    Parameters
    ----------
    dtypes : mapping of str to dtype
        Of each column.

    Attributes
    ----------
    n_removed : int
        Rows that were taken out so far.
    """

    def __init__(self, dtypes: Mapping[str, DTypeLike]) -> None:
        self._columns = {name: np.empty(1024, dtype) for name, dtype in dtypes.items()}
        self._n = 0
        self.n_removed = 0

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, name: str) -> NDArray[Any]:
        """One column; valid until the next change."""
        return self._columns[name][: self._n]

    def insert(self, place: int, **row: float) -> None:
        """A row before that at `place`."""
        n = self._n
        for name, column in self._columns.items():
            if n == len(column):
                column = self._columns[name] = np.concatenate((column, np.empty_like(column)))
            column[place + 1 : n + 1] = column[place:n]
            column[place] = row[name]
        self._n += 1

    def append(self, **row: float) -> None:
        """A row behind all others."""
        self.insert(self._n, **row)

    def remove(self, place: int) -> None:
        """Take a row out."""
        n = self._n
        for column in self._columns.values():
            column[place : n - 1] = column[place + 1 : n]
        self._n -= 1
        self.n_removed += 1


def waiting() -> Columns:
    """Jobs that wait, in order of arrival; times in s."""
    return Columns({"job": np.int64, "n_nodes": np.int64, "estimate_s": np.float64, "arrival_s": np.float64})


def releases() -> Columns:
    """Jobs that run, in order of the ends that the batch system expects: s, job, nodes that become free."""
    return Columns({"end_s": np.float64, "job": np.int64, "n_nodes": np.int64})


def insert_release(rows: Columns, end_s: float, job: int, n_nodes: int) -> None:
    """A job that begins, behind those with the same expected end."""
    place = int(np.searchsorted(rows["end_s"], end_s, side="right"))
    rows.insert(place, end_s=end_s, job=job, n_nodes=n_nodes)


def remove_release(rows: Columns, end_s: float, job: int) -> None:
    """A job that ended."""
    low, high = (int(np.searchsorted(rows["end_s"], end_s, side=side)) for side in ("left", "right"))
    rows.remove(low + int(np.flatnonzero(rows["job"][low:high] == job)[0]))
