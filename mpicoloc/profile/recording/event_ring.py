"""The last calls of each rank, which the table `events` of a profile keeps."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import Table, text
from mpicoloc.errors import DataError
from mpicoloc.profile.recording.call_chunks import Calls, bounded, common, rank_offsets_ns
from mpicoloc.profile.recording.messages import Side

Ints = NDArray[np.int64]
N_AT_ONCE = 1 << 15
"""Calls of a piece."""
_SENDS = re.compile(r"MPI_(I?[bsr]?send|Start)(_c)?", re.IGNORECASE)
_RECEIVES = re.compile(r"MPI_(M?recv|(Wait|Test)(all|any|some)?)(_c)?", re.IGNORECASE)


class EventRing:
    """The table `events`, whose calls that overlap are put on tracks of their own.

    Raises
    ------
    DataError
        If it names ranks that the job does not have.
    """

    notes = ()
    is_whole = False

    def __init__(self, profile: Profile) -> None:
        events = profile.tables["events"]
        n_ranks = profile.job.n_ranks
        if not 0 <= events["rank"].min() <= events["rank"].max() < n_ranks:
            raise DataError(
                f"the trace names ranks that a job of {n_ranks} does not have: the file is damaged"
            )
        known, call = np.unique(events["call"], return_inverse=True)
        begin_ns = common(events["t_ns"], rank_offsets_ns(profile)[events["rank"]])
        self.names = [*map(text, known)]
        self._pieces = dict(_pieces(events, begin_ns, call.astype(np.int64)))
        self.tracks = sorted(self._pieces)
        self.is_cut = bool(profile.tables["ranks"]["n_events_dropped"].any())
        last_ns = max(int(piece.end_ns[-1]) for piece in self._pieces.values())
        self.span_ns = (int(begin_ns.min()), last_ns)
        self.n_calls = len(events)
        self._n_ranks = n_ranks

    def calls(self, rank: int, track: int) -> Iterator[Calls]:
        """The calls of a track, piece by piece."""
        piece = self._pieces[rank, track]
        for i in range(0, len(piece.call), N_AT_ONCE):
            part = slice(i, i + N_AT_ONCE)
            columns = (piece.begin_ns, piece.end_ns, piece.bytes, piece.peer, piece.call)
            yield Calls(*(column[part] for column in columns))

    def ends(self) -> tuple[Side, Side]:
        """Of a call with several messages only the sum is known, and only the last peer."""
        sent, received = (
            self._ends(np.array([pattern.fullmatch(name) is not None for name in self.names]))
            for pattern in (_SENDS, _RECEIVES)
        )
        return sent, received

    def _ends(self, is_wanted: NDArray[np.bool_]) -> Side:
        parts: list[list[Ints]] = [[], [], [], [], [], []]
        for (rank, track), piece in self._pieces.items():
            rows = np.flatnonzero(is_wanted[piece.call] & (piece.peer >= 0) & (piece.peer < self._n_ranks))
            own = (np.full(len(rows), rank), np.full(len(rows), track))
            columns = (piece.peer, piece.bytes, piece.begin_ns, piece.end_ns)
            for part, column in zip(parts, [*own, *(column[rows] for column in columns)], strict=True):
                part.append(column)
        return Side(*(np.concatenate(part) for part in parts))


def _pieces(events: Table, begin_ns: Ints, call: Ints) -> Iterator[tuple[tuple[int, int], Calls]]:
    order = np.lexsort((begin_ns, events["rank"]))
    limits = np.flatnonzero(np.diff(events["rank"][order])) + 1
    for rows in np.split(order, limits):
        begin = begin_ns[rows]
        end = begin + bounded(events["duration_ns"][rows])
        n_bytes = bounded(events["bytes"][rows])
        columns = (begin, end, n_bytes, events["peer"][rows].astype(np.int64), call[rows])
        track = tracks_of(begin, end)
        for i in range(int(track.max()) + 1):
            yield (int(events["rank"][rows[0]]), i), Calls(*(column[track == i] for column in columns))


def tracks_of(begin_ns: Ints, end_ns: Ints) -> Ints:
    """Number of the first track that is free when each call begins: calls of threads may overlap."""
    track = np.zeros(len(begin_ns), np.int64)
    if (begin_ns[1:] >= end_ns[:-1]).all():
        return track
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    for i, (begin, end) in enumerate(zip(begin_ns.tolist(), end_ns.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        track[i] = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (end, int(track[i])))
    return track
