"""Messages and collective calls of a job with their times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.traffic import Rounds
from mpicoloc.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TimedMessages:
    """Messages of a job, one row each.

    Parameters
    ----------
    src, dst : ndarray of int
        Ranks.
    start_s, end_s : ndarray of float
        When the message is on its way, by one clock for all.
    n_bytes : ndarray

    Raises
    ------
    DataError
        If the columns have different lengths, or a message ends before it begins.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    start_s: Floats
    end_s: Floats
    n_bytes: NDArray[np.number]

    def __post_init__(self) -> None:
        columns = (self.src, self.dst, self.start_s, self.end_s, self.n_bytes)
        if len({np.shape(column) for column in columns}) != 1 or np.ndim(self.src) != 1:
            raise DataError("messages: columns must be 1-D and of one length")
        if len(self.src) and not (np.isfinite(self.start_s) & (self.end_s >= self.start_s)).all():
            raise DataError("messages: each must have a time, and end no earlier than it begins")


@dataclass(frozen=True)
class TimedCalls:
    """Collective calls of a job, one row for each call of each rank.

    Parameters
    ----------
    traffic : Rounds
        What all calls together sent.
    rank : ndarray of int
    start_s, end_s : ndarray of float
        As of `TimedMessages`.
    share : ndarray of float
        Part of its rank's bytes in `traffic` that the call sent.
    """

    traffic: Rounds
    rank: NDArray[np.int64]
    start_s: Floats
    end_s: Floats
    share: Floats
