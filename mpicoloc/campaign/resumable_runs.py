"""Runs of which each is noted when it has ended, so that a series that was interrupted goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.sweep import row_log

TimeOf = Callable[[Sequence[float]], float]
"""Time of a run with bubbles of these levels on the nodes, s."""


def resumable(time_s: TimeOf, path: str, settings: Mapping[str, Any]) -> TimeOf:
    """The same runs, each noted in a file; those that it has are not made again.

    Parameters
    ----------
    time_s : callable
        Makes a run.
    path : str
        File of rows (`sweep.row_log`), made if there is none. Rows of other settings stay in it.
    settings : mapping
        What the times depend on besides the levels; as JSON has it.

    Returns
    -------
    callable
        The n-th run with some levels has the n-th noted time of these.

    Raises
    ------
    DataError
        If the file has something else than such rows.
    EnvironmentFault
        If it cannot be written.
    """
    rows = row_log.recover(path)
    try:
        with open(path, "a", encoding="utf-8"):
            pass
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be written: {error.strerror}; name another file") from error
    n_runs: Counter[tuple[float, ...]] = Counter()

    def noted_time_s(levels: Sequence[float]) -> float:
        own = tuple(map(float, levels))
        n_runs[own] += 1
        key = json.dumps([settings, own, n_runs[own]], sort_keys=True)
        if key not in rows:
            rows[key] = {"key": key, "seconds": time_s(levels)}
            row_log.append(path, rows[key])
        seconds = rows[key].get("seconds")
        if not isinstance(seconds, float):
            raise DataError(f"{path}: no seconds in the row {key}: remove that line to make the run again")
        return seconds

    return noted_time_s
