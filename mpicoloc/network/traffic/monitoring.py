"""Reader of the files of Open MPI's ``monitoring``, which have every message of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from mpicoloc.core.traffic import Traffic
from mpicoloc.errors import DataError

_LINE = re.compile(r"([EISR])\t(\d{1,9})\t(\d{1,9})\t(\d{1,18}) bytes\t(\d{1,18}) msgs")
"""E, I: messages of the program, and of the library; S, R: one-sided, put into and got from the other."""


def read(files: Iterable[tuple[str, str]], n_ranks: int) -> Traffic:
    """Traffic of a job from the files that its ranks wrote.

    Parameters
    ----------
    files : iterable of (str, str)
        Name and content of each.
    n_ranks : int
        Ranks of the job. On one node the next rank may be mpicoloc's own, which is left out.

    Returns
    -------
    Traffic

    Raises
    ------
    DataError
        If a file has another format, or ranks that the job lacks.
    """
    rows = [row for name, content in files for row in _rows(name, content)]
    last = max((max(row[:2]) for row in rows), default=0)
    if last > n_ranks:
        raise DataError(
            f"the monitoring has rank {last}, the job has {n_ranks} ranks: start it with LD_PRELOAD, "
            "so that there are no ranks of mpicoloc's own"
        )
    inside = np.array([row for row in rows if max(row[:2]) < n_ranks], dtype=np.int64).reshape(-1, 4)
    return Traffic.of(n_ranks, *inside.T)


def _rows(name: str, content: str) -> Iterable[tuple[int, int, int, int]]:
    if not content.startswith("# POINT TO POINT"):
        raise DataError(f"{name} is no file of Open MPI's monitoring: it must begin with '# POINT TO POINT'")
    for i, line in enumerate(content.splitlines(), 1):
        if line[:2] not in ("E\t", "I\t", "S\t", "R\t"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise DataError(
                f"{name}, line {i}: expected 'E <rank> <rank> <n> bytes <n> msgs', got {line[:60]!r}"
            )
        src, dst, n_bytes, n = (int(word) for word in match.groups()[1:])
        yield (dst, src, n_bytes, n) if match.group(1) == "R" else (src, dst, n_bytes, n)
