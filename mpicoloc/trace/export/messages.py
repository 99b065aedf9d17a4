"""Which send belongs to which receive."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Array = NDArray[Any]
N_AT_ONCE = 1 << 15
"""Messages that are Python's numbers at a time: these take ten times the memory."""


@dataclass(frozen=True)
class Side:
    """The sends, or the receives: what the call that did it knows. A rank's rows are in order of time."""

    rank: Array
    track: Array
    peer: Array
    bytes: Ints
    begin_ns: Ints
    end_ns: Ints

    def since(self, origin_ns: int) -> Side:
        """The same, with times from an origin on."""
        times = (self.begin_ns - origin_ns, self.end_ns - origin_ns)
        return Side(self.rank, self.track, self.peer, self.bytes, *times)

    def take(self, rows: Ints) -> Side:
        """Some of the rows."""
        return Side(*(getattr(self, column.name)[rows] for column in fields(self)))

    def rows(self) -> Iterator[tuple[int, ...]]:
        """The columns of each row."""
        for i in range(0, len(self.rank), N_AT_ONCE):
            columns = (getattr(self, column.name)[i : i + N_AT_ONCE] for column in fields(self))
            yield from zip(*(column.tolist() for column in columns), strict=True)


@dataclass(frozen=True)
class Messages:
    """Message `i` was sent by `sent` row `i` and taken by `received` row `i`; in order of their sends.

    `unreceived` are the sends of which the receive is not known, in the order of their begins.
    """

    sent: Side
    received: Side
    unreceived: Side

    def __len__(self) -> int:
        return len(self.sent.rank)

    @property
    def n_sent(self) -> int:
        """All sends, also those of which the receive is not known."""
        return len(self) + len(self.unreceived.rank)

    def rows(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Columns of `Side` of each message, as sent and as received."""
        return zip(self.sent.rows(), self.received.rows(), strict=True)

    def since(self, origin_ns: int) -> Messages:
        """The same, with times from an origin on."""
        return Messages(*(side.since(origin_ns) for side in (self.sent, self.received, self.unreceived)))

    def of(self, rank: int) -> tuple[Ints, Ints]:
        """Numbers of the messages that a rank sent, and of those that it received."""
        sent, received = (
            # Numbers of another type would let all ranks be copied first.
            order[
                slice(*np.searchsorted(side.rank, np.array([rank, rank + 1], side.rank.dtype), sorter=order))
            ]
            for side, order in zip((self.sent, self.received), self._orders, strict=True)
        )
        return sent, received

    @functools.cached_property
    def _orders(self) -> tuple[Ints, Ints]:
        return (
            np.argsort(self.sent.rank, kind="stable"),
            np.argsort(self.received.rank, kind="stable"),
        )

    @functools.cached_property
    def place(self) -> Ints:
        """How many messages went from the same rank to the same rank before each."""
        pair = self.sent.rank.astype(np.int64) << 32 | self.sent.peer
        order = np.argsort(pair, kind="stable")
        is_first = np.diff(pair[order], prepend=-1) != 0
        rows = np.arange(len(order))
        place = np.empty_like(rows)
        place[order] = rows - np.maximum.accumulate(np.where(is_first, rows, 0))
        return place


def matched(sent: Side, received: Side, n_ranks: int, is_cut: bool, is_whole: bool = False) -> Messages:
    """Pair sends and receives: those between the same ranks, of as many bytes, in the order of time.

    MPI keeps the order of messages of one communicator and tag, which a trace does not tell; messages of
    one size hardly ever come in another. Where the numbers of both differ, the last ones are paired if the
    trace `is_cut` (the first calls are missing), the first ones if it `is_whole` (the job was killed, or
    never received the others), else none. What would be received before it is sent is no pair.
    """
    n_bytes = np.unique(np.concatenate([sent.bytes, received.bytes]))
    keys = [
        (src.astype(np.int64) * n_ranks + dst) * len(n_bytes) + np.searchsorted(n_bytes, side.bytes)
        for side, src, dst in ((sent, sent.rank, sent.peer), (received, received.peer, received.rank))
    ]
    known, both = np.unique(np.concatenate(keys), return_inverse=True)
    groups = [both[: len(keys[0])], both[len(keys[0]) :]]
    n_sent, n_received = (np.bincount(group, minlength=len(known)) for group in groups)
    n = np.where((n_sent == n_received) | is_cut | is_whole, np.minimum(n_sent, n_received), 0)
    rows_sent = _some(groups[0], sent.begin_ns, n_sent, n, is_cut)
    rows_received = _some(groups[1], received.end_ns, n_received, n, is_cut)
    is_possible = received.end_ns[rows_received] >= sent.begin_ns[rows_sent]
    rows_sent, rows_received = rows_sent[is_possible], rows_received[is_possible]
    order = np.argsort(sent.begin_ns[rows_sent], kind="stable")
    rest = np.setdiff1d(np.arange(len(sent.rank)), rows_sent)
    rest = rest[np.argsort(sent.begin_ns[rest], kind="stable")]
    return Messages(sent.take(rows_sent[order]), received.take(rows_received[order]), sent.take(rest))


def _some(group: Ints, time_ns: Ints, n_of: Ints, n: Ints, is_last: bool) -> Ints:
    """Rows of the last, or first, `n` of the `n_of` members of each group, in order of group and time."""
    order = np.lexsort((time_ns, group))
    from_end = np.cumsum(n_of)[group[order]] - np.arange(len(order))
    place = from_end if is_last else 1 + n_of[group[order]] - from_end
    return order[place <= n[group[order]]]
