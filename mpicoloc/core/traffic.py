"""The traffic of a job: who sends how much to whom; sparse, and lazy where even that is too large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpicoloc.core.profile import Array, Floats, Ints
from mpicoloc.errors import DataError

Round = tuple[Array, Array, Array]
"""Sources, destinations and bytes of some pairs of ranks; no pair comes twice in a round."""


class Rounds(Protocol):
    """A job's traffic that can be read piece by piece: `Traffic`, `Exchange` and `TrafficSum`."""

    @property
    def n_ranks(self) -> int:
        """Ranks of the job."""

    def rounds(self) -> Iterator[Round]:
        """Yield pieces that add up to the traffic. A pair of ranks may be in several of them."""


@dataclass(frozen=True)
class Traffic:
    """Bytes and messages between ranks: one row per ordered pair that has any, sorted by (src, dst).

    Parameters
    ----------
    n_ranks : int
        Ranks of the job; sources and destinations are below it.
    src, dst : ndarray of int64
        The pair; never the same rank, because what a rank sends to itself uses no network.
    n_bytes, n_messages : ndarray of int64 or float64
        What `src` sends to `dst`.

    Notes
    -----
    Build it with `Traffic.of`, which sorts pairs and adds up those that occur several times.
    """

    n_ranks: int
    src: Array
    dst: Array
    n_bytes: Array
    n_messages: Array

    def __post_init__(self) -> None:
        """Check the arrays and make them read-only."""
        columns = (self.src, self.dst, self.n_bytes, self.n_messages)
        shapes = {column.shape for column in columns}
        if len(shapes) != 1 or self.src.ndim != 1:
            raise DataError(f"traffic: columns must be 1-D and of one length, got {sorted(shapes)}")
        for column in columns:
            column.flags.writeable = False

    @classmethod
    def of(
        cls, n_ranks: int, src: ArrayLike, dst: ArrayLike, n_bytes: ArrayLike, n_messages: ArrayLike = 1
    ) -> Traffic:
        """The sum of messages.

        Raises `DataError` if a rank is not in the range [0, n_ranks), or a number is negative.
        """
        columns = np.broadcast_arrays(*(np.atleast_1d(x) for x in (src, dst, n_bytes, n_messages)))
        ranks = [column.ravel().astype(np.int64) for column in columns[:2]]
        numbers = [_number(column.ravel()) for column in columns[2:]]
        for column in ranks:
            if len(column) and not 0 <= column.min() <= column.max() < n_ranks:
                got = f"{column.min()} to {column.max()}"
                raise DataError(f"traffic: ranks must be in the range [0, {n_ranks}), got {got}")
        for column in numbers:
            if len(column) and not column.min() >= 0:
                raise DataError(f"traffic: bytes and messages must be >= 0, got {column.min()}")
        keep = (ranks[0] != ranks[1]) & ((numbers[0] > 0) | (numbers[1] > 0))
        return _summed(n_ranks, ranks[0][keep] * n_ranks + ranks[1][keep], numbers[0][keep], numbers[1][keep])

    @classmethod
    def empty(cls, n_ranks: int) -> Traffic:
        """No traffic."""
        return cls.of(n_ranks, [], [], [])

    def __add__(self, other: Traffic) -> Traffic:
        """The sum of both, which must be of the same job."""
        return total(self.n_ranks, [self, other])

    def __mul__(self, times: float) -> Traffic:
        """The same traffic, `times` over."""
        return Traffic(self.n_ranks, self.src, self.dst, self.n_bytes * times, self.n_messages * times)

    __rmul__ = __mul__

    def __len__(self) -> int:
        """Pairs of ranks with traffic."""
        return len(self.src)

    def sent_bytes(self) -> Array:
        """Bytes that each rank sends."""
        return np.bincount(self.src, weights=self.n_bytes, minlength=self.n_ranks)

    def recv_bytes(self) -> Array:
        """Bytes that each rank receives."""
        return np.bincount(self.dst, weights=self.n_bytes, minlength=self.n_ranks)

    def matrix(self) -> Array:
        """Bytes by source and destination, shape (n_ranks, n_ranks); for small jobs."""
        dense = np.zeros((self.n_ranks, self.n_ranks), dtype=self.n_bytes.dtype)
        dense[self.src, self.dst] = self.n_bytes
        return dense

    def renumbered(self, ranks: ArrayLike, n_ranks: int) -> Traffic:
        """The same traffic with rank i as rank `ranks[i]` of a job of `n_ranks`."""
        names = np.asarray(ranks, dtype=np.int64)
        return Traffic.of(n_ranks, names[self.src], names[self.dst], self.n_bytes, self.n_messages)

    def rounds(self) -> Iterator[Round]:
        """Yield all of it at once."""
        yield self.src, self.dst, self.n_bytes


@dataclass(frozen=True)
class Exchange:
    """Every member sends the same number of bytes to every other one: p(p-1) pairs that need no memory.

    Parameters
    ----------
    n_ranks : int
        Ranks of the job.
    members : ndarray of int64
        The p ranks that take part, each once.
    n_bytes, n_messages : float
        From each to each other.
    """

    n_ranks: int
    members: Array
    n_bytes: float
    n_messages: float = 1

    def __post_init__(self) -> None:
        """Make the members read-only."""
        self.members.flags.writeable = False

    def rounds(self) -> Iterator[Round]:
        """Yield p-1 permutations: in the i-th, each member sends to the i-th member after it."""
        n_bytes = np.full(len(self.members), self.n_bytes)
        for i in range(1, len(self.members)):
            yield self.members, np.roll(self.members, -i), n_bytes

    def traffic(self) -> Traffic:
        """All p(p-1) pairs, in memory."""
        p = len(self.members)
        src, step = np.divmod(np.arange(p * (p - 1), dtype=np.int64), max(p - 1, 1))
        dst = self.members[(src + step + 1) % max(p, 1)]
        return Traffic.of(self.n_ranks, self.members[src], dst, self.n_bytes, self.n_messages)


@dataclass(frozen=True)
class TrafficSum:
    """Several parts of one job's traffic, not added up."""

    n_ranks: int
    parts: tuple[Traffic | Exchange, ...]

    def rounds(self) -> Iterator[Round]:
        """Yield the rounds of one part after the other."""
        for part in self.parts:
            yield from part.rounds()

    def traffic(self) -> Traffic:
        """The sum, in memory."""
        parts = [part.traffic() if isinstance(part, Exchange) else part for part in self.parts]
        return total(self.n_ranks, parts)


def total(n_ranks: int, parts: list[Traffic]) -> Traffic:
    """The sum of parts of one job's traffic.

    Raises `DataError` if a part is of a job with another number of ranks.
    """
    for part in parts:
        if part.n_ranks != n_ranks:
            raise DataError(f"traffic of {part.n_ranks} and of {n_ranks} ranks cannot be added up")
    if not parts:
        return Traffic.empty(n_ranks)
    keys = np.concatenate([part.src * n_ranks + part.dst for part in parts])
    n_bytes = np.concatenate([part.n_bytes for part in parts])
    return _summed(n_ranks, keys, n_bytes, np.concatenate([part.n_messages for part in parts]))


def _number(column: Array) -> Array:
    return column.astype(np.float64 if column.dtype.kind == "f" and len(column) else np.int64)


def _summed(n_ranks: int, keys: Array, n_bytes: Array, n_messages: Array) -> Traffic:
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    src, dst = np.divmod(keys[first], max(n_ranks, 1))
    if len(first) == 0:
        return Traffic(n_ranks, src, dst, n_bytes, n_messages)
    sums = [np.add.reduceat(column[order], first) for column in (n_bytes, n_messages)]
    return Traffic(n_ranks, src, dst, *sums)


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

    src: Ints
    dst: Ints
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
    rank: Ints
    start_s: Floats
    end_s: Floats
    share: Floats
