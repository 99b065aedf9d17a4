"""The MPI calls of a job on one clock, track by track: all that the formats of traces read."""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import Table, text
from mpicoloc.errors import DataError
from mpicoloc.report.export.messages import Messages, Side, matched
from mpicoloc.store.frames import Frames

Ints = NDArray[np.int64]
N_AT_ONCE = 1 << 15
"""Calls of a piece."""
MAX_RANKS = 1 << 24
_LONGEST_NS = 1 << 61
_SENDS = re.compile(r"MPI_(I?[bsr]?send|Start)(_c)?", re.IGNORECASE)
_RECEIVES = re.compile(r"MPI_(M?recv|(Wait|Test)(all|any|some)?)(_c)?", re.IGNORECASE)


@dataclass(frozen=True)
class Calls:
    """Calls of one track in their order: none begins before the one before has ended.

    Times are ns from the recording's beginning, on the first node's clock; `call` is an index of
    `Recording.names`; `peer` -1: none, or unknown.
    """

    begin_ns: Ints
    end_ns: Ints
    bytes: Ints
    peer: Ints
    call: Ints

    def rows(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Begin, end, bytes, peer and call of each."""
        columns = (self.begin_ns, self.end_ns, self.bytes, self.peer, self.call)
        return zip(*(column.tolist() for column in columns), strict=True)


@dataclass(frozen=True)
class Recording:
    """What a job recorded of its calls.

    Attributes
    ----------
    profile : Profile
    names : list of str
        Of the functions.
    tracks : list of (int, int)
        Rank and number of each of its tracks: a rank has as many as it had calls at the same time.
    is_cut : bool
        Calls are missing, the first ones at least.
    """

    profile: Profile
    names: list[str]
    tracks: list[tuple[int, int]]
    is_cut: bool
    origin_ns: int
    _pieces: Mapping[tuple[int, int], Calls]

    @property
    def n_ranks(self) -> int:
        """Ranks of the job."""
        return self.profile.job.n_ranks

    @property
    def n_calls(self) -> int:
        """Calls of all tracks."""
        return sum(len(piece.call) for piece in self._pieces.values())

    @property
    def end_ns(self) -> int:
        """The last call's end."""
        return max(int(piece.end_ns[-1]) for piece in self._pieces.values())

    @property
    def nodes(self) -> dict[int, int]:
        """Row of each rank's node in the table `nodes`; one row behind the last where it is not known."""
        ranks, n_nodes = self.profile.tables["ranks"], len(self.profile.tables["nodes"])
        known = dict.fromkeys((rank for rank, _ in self.tracks), n_nodes)
        rows = ranks[(ranks["i_node"] >= 0) & (ranks["i_node"] < n_nodes)]
        return known | dict(zip(rows["rank"].tolist(), rows["i_node"].tolist(), strict=True))

    def shutters_ns(self, column: str) -> Ints:
        """A time of each shutter, like those of the calls."""
        rows = self.profile.tables["shutters"]
        return _common(rows[column], node_offsets_ns(self.profile, rows)) - self.origin_ns

    def calls(self, rank: int, track: int) -> Iterator[Calls]:
        """The calls of a track, piece by piece."""
        piece = self._pieces[rank, track]
        for i in range(0, len(piece.call), N_AT_ONCE):
            part = slice(i, i + N_AT_ONCE)
            yield Calls(piece.begin_ns[part], piece.end_ns[part], piece.bytes[part], piece.peer[part],
                        piece.call[part])  # fmt: skip

    def in_order(self, rank: int) -> Iterator[tuple[int, int, int, int, int]]:
        """The rows of a rank's calls in the order in which they began, its tracks together."""
        tracks = [self._rows(*track) for track in self.tracks if track[0] == rank]
        return heapq.merge(*tracks)

    def _rows(self, rank: int, track: int) -> Iterator[tuple[int, int, int, int, int]]:
        for piece in self.calls(rank, track):
            yield from piece.rows()

    @functools.cached_property
    def messages(self) -> Messages:
        """The messages of which both ends are known, in the order in which they were sent."""
        received = self._ends(np.array([_RECEIVES.fullmatch(name) is not None for name in self.names]))
        return matched(self._sent, received, self.n_ranks, self.is_cut)

    @property
    def n_sent(self) -> int:
        """Messages sent, whether or not their receive is known."""
        return len(self._sent.rank)

    @functools.cached_property
    def _sent(self) -> Side:
        return self._ends(np.array([_SENDS.fullmatch(name) is not None for name in self.names]))

    def _ends(self, is_wanted: NDArray[np.bool_]) -> Side:
        parts: list[list[Ints]] = [[], [], [], [], [], []]
        for (rank, track), piece in self._pieces.items():
            rows = np.flatnonzero(is_wanted[piece.call] & (piece.peer >= 0) & (piece.peer < self.n_ranks))
            own = (np.full(len(rows), rank), np.full(len(rows), track))
            columns = (piece.peer, piece.bytes, piece.begin_ns, piece.end_ns)
            for part, column in zip(parts, [*own, *(column[rows] for column in columns)], strict=True):
                part.append(column)
        return Side(*(np.concatenate(part) for part in parts))


def recording(job: Frames) -> Recording:
    """What `job` recorded of its calls: the only place that knows where a trace lies.

    Raises
    ------
    DataError
        If it has no trace, or one that names ranks that the job does not have.
    """
    profile = job.profile
    events, offsets_ns = profile.tables["events"], rank_offsets_ns(profile)
    if not len(events) and job.is_traced:
        events, offsets_ns = job.trace.table(), np.zeros_like(offsets_ns)
    if not len(events):
        raise DataError(
            "the profile has no trace, which this format is made of: run the job with --trace all, "
            "or export json, parquet or prometheus"
        )
    n_ranks = profile.job.n_ranks
    if not 0 < n_ranks <= MAX_RANKS or not 0 <= events["rank"].min() <= events["rank"].max() < n_ranks:
        raise DataError(f"the trace names ranks that a job of {n_ranks} does not have: the file is damaged")
    begin_ns = _common(events["t_ns"], offsets_ns[events["rank"]])
    shutters = profile.tables["shutters"]
    shutter_ns = _common(shutters["t0_ns"], node_offsets_ns(profile, shutters))
    first_ns = min([int(begin_ns.min()), *shutter_ns.tolist()])
    known, call = np.unique(events["call"], return_inverse=True)
    pieces = dict(_pieces(events, begin_ns - first_ns, call.astype(np.int64)))
    is_cut = bool(profile.tables["ranks"]["n_events_dropped"].any())
    return Recording(profile, [*map(text, known)], sorted(pieces), is_cut, first_ns, pieces)


def _common(times_ns: NDArray[Any], offsets_ns: Ints) -> Ints:
    """Times of several clocks on one; what is beyond all reason is cut there."""
    return np.minimum(times_ns, np.uint64(_LONGEST_NS)).astype(np.int64) - offsets_ns


def _pieces(events: Table, begin_ns: Ints, call: Ints) -> Iterator[tuple[tuple[int, int], Calls]]:
    order = np.lexsort((begin_ns, events["rank"]))
    limits = np.flatnonzero(np.diff(events["rank"][order])) + 1
    for rows in np.split(order, limits):
        begin = begin_ns[rows]
        end = begin + np.minimum(events["duration_ns"][rows], np.uint64(_LONGEST_NS)).astype(np.int64)
        n_bytes = np.minimum(events["bytes"][rows], np.uint64(_LONGEST_NS)).astype(np.int64)
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


def rank_offsets_ns(profile: Profile) -> Ints:
    """Clock of each rank's node against the first's; 0 where it is not known."""
    offsets_ns = np.zeros(profile.job.n_ranks, np.int64)
    ranks = profile.tables["ranks"]
    rows = ranks[(ranks["rank"] >= 0) & (ranks["rank"] < len(offsets_ns))]
    offsets_ns[rows["rank"]] = node_offsets_ns(profile, rows)
    return offsets_ns


def node_offsets_ns(profile: Profile, rows: Table) -> Ints:
    """Clock of the node of each of these rows against the first's; 0 where it is not known."""
    offsets_ns = np.append(np.nan_to_num(profile.tables["nodes"]["clock_offset_s"]) * 1e9, 0)
    is_known = (rows["i_node"] >= 0) & (rows["i_node"] < len(offsets_ns) - 1)
    found = offsets_ns[np.where(is_known, rows["i_node"], -1)]
    return np.rint(np.clip(found, -_LONGEST_NS, _LONGEST_NS)).astype(np.int64)
