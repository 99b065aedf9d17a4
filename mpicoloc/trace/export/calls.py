"""The MPI calls of a job on one clock, track by track: all that the formats of traces read."""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import Table, text
from mpicoloc.errors import DataError
from mpicoloc.profile.frames import Frames
from mpicoloc.trace.export.call_chunks import Calls, bounded, common, node_offsets_ns, rank_offsets_ns
from mpicoloc.trace.export.full_trace import FullTrace
from mpicoloc.trace.export.messages import Messages, Side, matched
from mpicoloc.trace.reader import MAX_RANKS

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


Ints = NDArray[np.int64]


class Source(Protocol):
    """Where calls come from. Times are those of the first node's clock."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the functions."""

    @property
    def tracks(self) -> Sequence[tuple[int, int]]:
        """Rank and number of each track, in order."""

    @property
    def span_ns(self) -> tuple[int, int]:
        """The first call's begin and the last one's end."""

    @property
    def n_calls(self) -> int:
        """Calls of all tracks."""

    @property
    def is_cut(self) -> bool:
        """Calls are missing, the first ones at least."""

    @property
    def is_whole(self) -> bool:
        """No call and no message is missing, but those after the job was killed."""

    @property
    def notes(self) -> Sequence[str]:
        """What is missing, in words."""

    def calls(self, rank: int, track: int) -> Iterator[Calls]:
        """The calls of a track, piece by piece."""

    def ends(self) -> tuple[Side, Side]:
        """The sends and the receives, as far as their peer is known."""


@dataclass(frozen=True)
class Recording:
    """What a job recorded of its calls. Times are ns from its first call or shutter on."""

    profile: Profile
    source: Source
    origin_ns: int

    @property
    def names(self) -> Sequence[str]:
        """Names of the functions; `Calls.call` is an index of it."""
        return self.source.names

    @property
    def tracks(self) -> Sequence[tuple[int, int]]:
        """Rank and number of each of its tracks: a rank has as many as it had calls at the same time."""
        return self.source.tracks

    @property
    def is_cut(self) -> bool:
        """Calls are missing, the first ones at least."""
        return self.source.is_cut

    @property
    def notes(self) -> list[str]:
        """What is missing, in words."""
        return list(self.source.notes)

    @property
    def n_ranks(self) -> int:
        """Ranks of the job."""
        return self.profile.job.n_ranks

    @property
    def n_calls(self) -> int:
        """Calls of all tracks."""
        return self.source.n_calls

    @property
    def end_ns(self) -> int:
        """The last call's end."""
        return self.source.span_ns[1] - self.origin_ns

    @property
    def nodes(self) -> dict[int, int]:
        """Row of each rank's node in the table `nodes`; one row behind the last where it is not known."""
        ranks, n_nodes = self.profile.tables["ranks"], len(self.profile.tables["nodes"])
        known = dict.fromkeys((rank for rank, _ in self.tracks), n_nodes)
        is_known = (ranks["i_node"] >= 0) & (ranks["i_node"] < n_nodes)
        rows = ranks[is_known & (ranks["rank"] >= 0) & (ranks["rank"] < self.n_ranks)]
        return known | dict(zip(rows["rank"].tolist(), rows["i_node"].tolist(), strict=True))

    def shutters_ns(self, column: str) -> Ints:
        """A time of each shutter, like those of the calls."""
        rows = self.profile.tables["shutters"]
        return common(rows[column], node_offsets_ns(self.profile, rows)) - self.origin_ns

    def calls(self, rank: int, track: int) -> Iterator[Calls]:
        """The calls of a track, piece by piece, in order: none begins before the last has ended.

        Raises `DataError` if they do not: the file is damaged.
        """
        last_ns = None
        for piece in self.source.calls(rank, track):
            begins, ends = piece.begin_ns, piece.end_ns
            if (begins[1:] < ends[:-1]).any() or (last_ns is not None and begins[0] < last_ns):
                raise DataError(f"calls of a thread of rank {rank} overlap: the trace is damaged")
            last_ns = int(ends[-1])
            yield piece.since(self.origin_ns)

    def in_order(self, rank: int) -> Iterator[tuple[int, int, int, int, int]]:
        """The rows of a rank's calls in the order in which they began, its tracks together."""
        return heapq.merge(*(self._rows(*key) for key in self.tracks if key[0] == rank))

    def _rows(self, rank: int, track: int) -> Iterator[tuple[int, int, int, int, int]]:
        for piece in self.calls(rank, track):
            yield from piece.rows()

    @functools.cached_property
    def messages(self) -> Messages:
        """The messages of which both ends are known, in the order in which they were sent; all in memory."""
        found = matched(*self.source.ends(), self.n_ranks, self.is_cut, self.source.is_whole)
        return found.since(self.origin_ns)


def recording(job: Frames) -> Recording:
    """What `job` recorded of its calls: those of ``--trace all``, else the last ones of ``--trace N``.

    Raises `DataError` if it has no trace, or one that names ranks that the job does not have.
    """
    profile = job.profile
    if not 0 < profile.job.n_ranks <= MAX_RANKS:
        raise DataError(f"a job of {profile.job.n_ranks} ranks: the profile is damaged")
    if not len(profile.tables["events"]) and not job.is_traced:
        remedy = "the files of its trace, which lay beside the profile, are not there: copy them too"
        if not profile.tables["ranks"]["n_events"].any():
            remedy = "the profile has no trace: run the job with --trace all"
        raise DataError(f"{remedy}; this format needs it, json, parquet and prometheus do not")
    # A folder that lies there may be of an earlier run.
    source: Source = EventRing(profile) if len(profile.tables["events"]) else FullTrace(profile, job.trace)
    shutters = profile.tables["shutters"]
    shutter_ns = common(shutters["t0_ns"], node_offsets_ns(profile, shutters)).tolist()
    return Recording(profile, source, min([source.span_ns[0], *shutter_ns]))
