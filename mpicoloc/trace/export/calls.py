"""The MPI calls of a job on one clock, track by track: the common input of all trace formats."""

from __future__ import annotations

import functools
import heapq
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from mpicoloc.core.network import Floats
from mpicoloc.core.profile import Array, Bools, Ints, Profile, Table, text
from mpicoloc.core.progress import stage
from mpicoloc.errors import DataError
from mpicoloc.network.traffic.job_traffic import node_offsets_s, rank_offsets_s
from mpicoloc.trace.reader import MAX_RANKS, MESSAGES, Trace

if TYPE_CHECKING:
    from mpicoloc.profile.frames import Frames


STATES = (
    "Idle", "Running", "Not created", "Waiting a message", "Blocking Send", "Synchronization", "Test/Probe",
    "Scheduling and Fork/Join", "Wait/WaitAll", "Blocked", "Immediate Send", "Immediate Receive", "I/O",
    "Group Communication", "Tracing Disabled", "Others", "Send Receive",
)  # fmt: skip
_GROUP = r"Bcast|Reduce.*|Allreduce|Alltoall[vw]?|Gatherv?|Scatterv?|Allgatherv?|(Ex)?scan|Neighbor_.*"
_KINDS = tuple(
    (re.compile(f"I?({pattern})(_init)?", re.IGNORECASE | re.DOTALL), (type_, STATES.index(state)))
    for pattern, type_, state in (
        ("I[bsr]?send", 50000001, "Immediate Send"),
        ("[bsr]?send", 50000001, "Blocking Send"),
        ("IM?recv", 50000001, "Immediate Receive"),
        ("M?recv", 50000001, "Waiting a message"),
        ("Barrier", 50000002, "Synchronization"),
        (_GROUP, 50000002, "Group Communication"),
        ("Sendrecv(_replace)?", 50000001, "Send Receive"),
        ("M?probe", 50000001, "Test/Probe"),
        ("Test(all|any|some)?", 50000003, "Test/Probe"),
        ("Wait(all|any|some)?", 50000001, "Wait/WaitAll"),
        ("File_.*", 50000005, "I/O"),
        ("Win_.*|R?(Put|Get|Accumulate|Get_accumulate)|Fetch_and_op|Compare_and_swap", 50000004, "Others"),
        ("Cancel", 50000001, "Others"),
        (".*", 50000003, "Others"),
    )
)


def event_of(name: str) -> tuple[int, int]:
    """Paraver event type and state of a function."""
    return next(event for pattern, event in _KINDS if pattern.fullmatch(bare(name)))


def is_communication(name: str) -> bool:
    """Whether the time in a function is the network's or the partners', not the rank's own."""
    type_, state = event_of(name)
    return type_ in (50000001, 50000002) or STATES[state] == "Test/Probe"


def is_one_sided(name: str) -> bool:
    """Whether messages of a function have no receive."""
    return event_of(name)[0] == 50000004


def bare(name: str) -> str:
    """A function's name without the prefix ``MPI_`` and the suffix of large counts."""
    return name.removeprefix("MPI_").removesuffix("_c")


_LONGEST_NS = 1 << 61


N_AT_ONCE = 1 << 15
"""Number of calls in a piece, and of rows that are converted to Python numbers at a time; Python numbers take
ten times the memory."""


@dataclass(frozen=True)
class TimedRows:
    """Columns of equal length; `peer` -1: none or unknown."""

    begin_ns: Ints
    end_ns: Ints
    bytes: Ints
    peer: Ints

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, one after the other."""
        names = [column.name for column in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def since(self, origin_ns: int) -> Self:
        """The same rows with times relative to an origin."""
        return replace(self, begin_ns=self.begin_ns - origin_ns, end_ns=self.end_ns - origin_ns)

    def take(self, rows: Array | slice) -> Self:
        """Some of the rows."""
        return type(self)(*(getattr(self, column.name)[rows] for column in fields(self)))

    def rows(self) -> Iterator[tuple[int, ...]]:
        """The columns of each row."""
        for i in range(0, len(self.begin_ns), N_AT_ONCE):
            part = self.take(slice(i, i + N_AT_ONCE))
            columns = [getattr(part, column.name).tolist() for column in fields(part)]
            yield from zip(*columns, strict=True)


@dataclass(frozen=True)
class Calls(TimedRows):
    """Calls of one track in order of time; `call` is an index into the names of functions."""

    call: Ints


def bounded(numbers: Array) -> Ints:
    """Untrusted numbers, clipped so that the sum of any two does not overflow."""
    return np.minimum(numbers, np.uint64(_LONGEST_NS)).astype(np.int64)


def common(times_ns: Array, offsets_s: Floats) -> Ints:
    """Times of several clocks converted to the common clock; absurd values are clipped."""
    offsets_ns = np.rint(np.clip(offsets_s * 1e9, -_LONGEST_NS, _LONGEST_NS))
    return bounded(times_ns) - offsets_ns.astype(np.int64)


@dataclass(frozen=True)
class Side(TimedRows):
    """Sends or receives of messages, with data of the call. A rank's rows are in order of time."""

    rank: Array
    track: Array


@dataclass(frozen=True)
class Messages:
    """Row `i` of `sent` and row `i` of `received` are message `i`; messages are in order of their sends.

    `unreceived` are the sends without a known receive, in order of their begins.
    """

    sent: Side
    received: Side
    unreceived: Side

    def __len__(self) -> int:
        return len(self.sent.rank)

    @property
    def n_sent(self) -> int:
        """Number of all sends, with or without a known receive."""
        return len(self) + len(self.unreceived.rank)

    def rows(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each message, the columns of `Side` where it was sent, and those where it was received."""
        return zip(self.sent.rows(), self.received.rows(), strict=True)

    def since(self, origin_ns: int) -> Messages:
        """The same messages with times relative to an origin."""
        return Messages(*(side.since(origin_ns) for side in (self.sent, self.received, self.unreceived)))

    def of(self, rank: int) -> tuple[Ints, Ints]:
        """Indices of the messages that a rank sent, and of those that it received."""
        sent, received = (
            # Use the column's own type: with another type, searchsorted would first copy the whole column.
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
        """For each message, the number of earlier messages between the same two ranks in this direction."""
        return ordinals(self.sent.rank.astype(np.int64) << 32 | self.sent.peer)


def ordinals(keys: Ints) -> Ints:
    """For each key, the number of equal keys before it; keys are 0 or more."""
    order = np.argsort(keys, kind="stable")
    is_first = np.diff(keys[order], prepend=-1) != 0
    rows = np.arange(len(order))
    place = np.empty_like(rows)
    place[order] = rows - np.maximum.accumulate(np.where(is_first, rows, 0))
    return place


def matched(sent: Side, received: Side, n_ranks: int, is_cut: bool, is_whole: bool = False) -> Messages:
    """Pair sends and receives between the same ranks with the same number of bytes, in order of time.

    MPI keeps the order of messages with the same communicator and tag. A trace has neither, but messages of
    one size hardly ever overtake each other. If the numbers of sends and receives differ, the last ones are
    paired if the trace `is_cut` (the first calls are missing). If the trace `is_whole` (the job was killed,
    or never received the other messages), the first ones are paired. Otherwise none are paired. Pairs
    received before they are sent are dropped.
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
    """Rows of the last or first `n` of the `n_of` members of each group, in order of group and time."""
    order = np.lexsort((time_ns, group))
    from_end = np.cumsum(n_of)[group[order]] - np.arange(len(order))
    place = from_end if is_last else 1 + n_of[group[order]] - from_end
    return order[place <= n[group[order]]]


_SENT, _RECEIVED, _PUT, _GOT = map(MESSAGES.index, ("sent", "received", "put", "got"))
_COLUMNS = ("rank", "peer", "bytes", "begin_ns", "end_ns")
_NO_ROWS = np.zeros(0, np.int64)


class Recording:
    """A job's recorded calls. Times are ns since its first call or shutter.

    A subclass sets the attributes without default, and provides calls and messages by the first node's clock.

    Attributes
    ----------
    names
        Names of functions; `Calls.call` is an index of this sequence.
    tracks
        Rank and number of each track, in order. A rank has as many tracks as it had concurrent calls.
    span_ns
        The begin of the first call and the end of the last call, by the first node's clock.
    is_cut
        Whether calls are missing: at least the first calls.
    is_whole
        Whether no call or message is missing, except after the job was killed.
    notes
        Sentences on missing data.
    """

    names: Sequence[str]
    tracks: Sequence[tuple[int, int]]
    span_ns: tuple[int, int]
    is_cut = False
    is_whole = False
    notes: Sequence[str] = ()

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def _calls(self, rank: int, track: int) -> Iterator[Calls]:
        """The calls of a track, piece by piece."""
        raise NotImplementedError

    def _ends(self) -> tuple[Side, Side]:
        """The sends and the receives with a known peer."""
        raise NotImplementedError

    @functools.cached_property
    def origin_ns(self) -> int:
        """Begin of the first call or shutter, by the first node's clock."""
        return min([self.span_ns[0], *self._shutters_ns("t0_ns").tolist()])

    @property
    def n_ranks(self) -> int:
        """Ranks of the job."""
        return self.profile.job.n_ranks

    @property
    def end_ns(self) -> int:
        """The last call's end."""
        return self.span_ns[1] - self.origin_ns

    @property
    def nodes(self) -> dict[int, int]:
        """Row of each rank's node in the table `nodes`; the number of nodes if it is not known."""
        ranks, n_nodes = self.profile.tables["ranks"], len(self.profile.tables["nodes"])
        known = dict.fromkeys((rank for rank, _ in self.tracks), n_nodes)
        is_known = (ranks["i_node"] >= 0) & (ranks["i_node"] < n_nodes)
        rows = ranks[is_known & (ranks["rank"] >= 0) & (ranks["rank"] < self.n_ranks)]
        return known | dict(zip(rows["rank"].tolist(), rows["i_node"].tolist(), strict=True))

    def shutters_ns(self, column: str) -> Ints:
        """One of the times of each shutter, on the same clock and origin as the calls."""
        return self._shutters_ns(column) - self.origin_ns

    def _shutters_ns(self, column: str) -> Ints:
        rows = self.profile.tables["shutters"]
        return common(rows[column], node_offsets_s(self.profile, rows))

    def calls(self, rank: int, track: int) -> Iterator[Calls]:
        """The calls of a track, piece by piece, in order: each begins after the previous one has ended.

        Raises `DataError` if calls overlap, because the file is damaged then.
        """
        last_ns = None
        for piece in self._calls(rank, track):
            begins, ends = piece.begin_ns, piece.end_ns
            if (begins[1:] < ends[:-1]).any() or (last_ns is not None and begins[0] < last_ns):
                raise DataError(f"calls of a thread of rank {rank} overlap: the trace is damaged")
            last_ns = int(ends[-1])
            yield piece.since(self.origin_ns)

    def in_order(self, rank: int) -> Iterator[tuple[int, ...]]:
        """The rows of a rank's calls from all tracks, in the order in which they began."""
        return heapq.merge(*(self._rows(*key) for key in self.tracks if key[0] == rank))

    def _rows(self, rank: int, track: int) -> Iterator[tuple[int, ...]]:
        for piece in self.calls(rank, track):
            yield from piece.rows()

    @functools.cached_property
    def messages(self) -> Messages:
        """All messages, in memory. Messages with two known ends are in the order in which they were sent."""
        found = matched(*self._ends(), self.n_ranks, self.is_cut, self.is_whole)
        return found.since(self.origin_ns)


class FullTrace(Recording):
    """A trace of every call; a track is a thread of a rank.

    Raises
    ------
    DataError
        If it is damaged, or has ranks that the job does not have.
    """

    def __init__(self, profile: Profile, trace: Trace) -> None:
        super().__init__(profile)
        self._trace = trace
        self.is_whole = not trace.incomplete
        self.notes = trace.notes
        first_ns, last_ns, tracks, used = [], [], set(), set()
        for piece in _all(trace):
            first_ns.append(int(piece["t_ns"].min()))
            last_ns.append(int((piece["t_ns"] + piece["duration_ns"]).max()))
            rank = int(piece["rank"][0])
            tracks |= {(rank, int(lane)) for lane in np.unique(piece["lane"])}
            used |= set(np.unique(piece["call"]).tolist())
        # The files name all MPI functions; keep only the functions that were called.
        self.names = [trace.names[i] for i in sorted(used)]
        self._number = np.full(len(trace.names), -1, np.int64)
        self._number[sorted(used)] = range(len(used))
        if not tracks:
            raise DataError("the trace has no call: the job was killed before the first one was written")
        self.tracks = sorted(tracks)
        if not 0 <= self.tracks[0][0] <= self.tracks[-1][0] < self.n_ranks:
            raise DataError(f"the trace names ranks that a job of {self.n_ranks} does not have")
        self.span_ns = (min(first_ns), max(last_ns))

    def _calls(self, rank: int, track: int) -> Iterator[Calls]:
        for piece in self._trace.pieces(ranks=[rank]):
            own = piece["lane"] == track
            if own.any():
                begin_ns, duration_ns, n_bytes, peer = (
                    piece[name][own].astype(np.int64) for name in ("t_ns", "duration_ns", "bytes", "peer")
                )
                yield Calls(begin_ns, begin_ns + duration_ns, n_bytes, peer, self._number[piece["call"][own]])

    def _ends(self) -> tuple[Side, Side]:
        """The sends and the receives; in this trace, every message has its own peer and bytes."""
        with stage("reading the messages", self._trace.n_events, "events"):
            parts = self._columns_of((_SENT, _RECEIVED), are_one_sided=False)
        sent, received = map(self._side, parts)
        return sent, received

    def one_sided(self) -> dict[str, Array]:
        """One-sided puts and gets: rank, peer, bytes, begin_ns and is_got."""
        put, got = self._columns_of((_PUT, _GOT), are_one_sided=True)
        columns = {
            name: np.concatenate([_NO_ROWS, *put[name], *got[name]]).astype(np.int64)
            for name in ("rank", "peer", "bytes", "begin_ns")
        }
        n_put = sum(map(len, put["rank"]))
        return columns | {"is_got": (np.arange(len(columns["rank"])) >= n_put).astype(np.int64)}

    def _columns_of(self, kinds: Sequence[int], are_one_sided: bool) -> list[dict[str, list[Array]]]:
        """Pieces of the columns of messages between known ranks, for each kind."""
        parts = [{name: list[Array]() for name in _COLUMNS} for _ in kinds]
        is_wanted = np.array([is_one_sided(name) == are_one_sided for name in self._trace.names])
        for i, clock in enumerate(self._trace.clocks):
            for found in self._trace.messages_of(i, clock):
                is_known = (found["peer"] >= 0) & (found["peer"] < self.n_ranks) & is_wanted[found["call"]]
                for kind, columns in zip(kinds, parts, strict=True):
                    rows = np.flatnonzero(is_known & (found["message"] == kind))
                    for name, pieces in columns.items():
                        pieces.append(found[name][rows])
        return parts

    def _side(self, parts: dict[str, list[Array]]) -> Side:
        """One side of messages, joined column by column, so that the pieces are released early."""
        columns = {name: np.concatenate(parts.pop(name)) for name in _COLUMNS}
        return Side(track=self._tracks_of(columns["rank"], columns["begin_ns"]), **columns)

    def _tracks_of(self, rank: Array, begin_ns: Array) -> Array:
        """The track of each call; `rank` and `begin_ns` identify the calls."""
        lanes: dict[int, list[int]] = {}
        for one, lane in self.tracks:
            lanes.setdefault(one, []).append(lane)
        first = np.zeros(self.n_ranks, np.int8)
        first[list(lanes)] = [own[0] for own in lanes.values()]
        found = first[rank]
        for one, own in lanes.items():
            rows = np.flatnonzero(rank == one) if len(own) > 1 else _NO_ROWS
            for lane in own[1:]:
                begins = np.concatenate([piece.begin_ns for piece in self._calls(one, lane)])
                found[rows[np.isin(begin_ns[rows], begins)]] = lane
        return found


def _all(trace: Trace) -> Iterator[dict[str, Array]]:
    """All pieces of the trace that have calls."""
    with stage("looking at the calls", trace.n_events, "events"):
        yield from (piece for piece in trace.pieces() if len(piece["rank"]))


_SENDS = re.compile(r"MPI_(I?[bsr]?send|Start)(_c)?", re.IGNORECASE)
_RECEIVES = re.compile(r"MPI_(M?recv|(Wait|Test)(all|any|some)?)(_c)?", re.IGNORECASE)


class EventRing(Recording):
    """The table `events`; overlapping calls are put on separate tracks.

    Raises
    ------
    DataError
        If it has ranks that the job does not have.
    """

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        events, n_ranks = profile.tables["events"], self.n_ranks
        if not 0 <= events["rank"].min() <= events["rank"].max() < n_ranks:
            raise DataError(
                f"the trace names ranks that a job of {n_ranks} does not have: the file is damaged"
            )
        known, call = np.unique(events["call"], return_inverse=True)
        begin_ns = common(events["t_ns"], rank_offsets_s(profile)[events["rank"]])
        self.names = [*map(text, known)]
        self._pieces = dict(_pieces(events, begin_ns, call.astype(np.int64)))
        self.tracks = sorted(self._pieces)
        self.is_cut = bool(profile.tables["ranks"]["n_events_dropped"].any())
        last_ns = max(int(piece.end_ns[-1]) for piece in self._pieces.values())
        self.span_ns = (int(begin_ns.min()), last_ns)

    def _calls(self, rank: int, track: int) -> Iterator[Calls]:
        piece = self._pieces[rank, track]
        for i in range(0, len(piece.call), N_AT_ONCE):
            yield piece.take(slice(i, i + N_AT_ONCE))

    def _ends(self) -> tuple[Side, Side]:
        """The sends and receives; of a call with several messages, only the bytes' sum and the last peer."""
        sent, received = (
            self._side(np.array([pattern.fullmatch(name) is not None for name in self.names]))
            for pattern in (_SENDS, _RECEIVES)
        )
        return sent, received

    def _side(self, is_wanted: Bools) -> Side:
        parts = []
        for key, piece in self._pieces.items():
            own = piece.take(is_wanted[piece.call] & (piece.peer >= 0) & (piece.peer < self.n_ranks))
            place = (np.full(len(own.call), number) for number in key)
            parts.append(Side(own.begin_ns, own.end_ns, own.bytes, own.peer, *place))
        return Side.joined(parts)


def _pieces(events: Table, begin_ns: Ints, call: Ints) -> Iterator[tuple[tuple[int, int], Calls]]:
    order = np.lexsort((begin_ns, events["rank"]))
    limits = np.flatnonzero(np.diff(events["rank"][order])) + 1
    for rows in np.split(order, limits):
        own = events[rows]
        end_ns = begin_ns[rows] + bounded(own["duration_ns"])
        peer = own["peer"].astype(np.int64)
        found = Calls(begin_ns[rows], end_ns, bounded(own["bytes"]), peer, call[rows])
        track = tracks_of(found.begin_ns, end_ns)
        for i in range(int(track.max()) + 1):
            yield (int(own["rank"][0]), i), found.take(track == i)


def tracks_of(begin_ns: Ints, end_ns: Ints) -> Ints:
    """The lowest track that is free when each call begins; calls of different threads may overlap."""
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


def recording(job: Frames) -> Recording:
    """The recorded calls of `job`: the last calls if it ran with ``--trace N``, else all calls.

    Raises `DataError` if it has no trace, or the trace has ranks that the job does not have.
    """
    profile = job.profile
    if not 0 < profile.job.n_ranks <= MAX_RANKS:
        raise DataError(f"the profile has {profile.job.n_ranks} ranks: it is damaged")
    if not len(profile.tables["events"]) and not job.is_traced:
        remedy = "the trace files that were written beside the profile are missing: copy them too"
        if not profile.tables["ranks"]["n_events"].any():
            remedy = "the profile has no trace: run the job with --trace all"
        raise DataError(f"{remedy}, or choose json, parquet or prometheus, which need no trace")
    # Events in the profile come first, because a trace folder beside it may be of an earlier run.
    return EventRing(profile) if len(profile.tables["events"]) else FullTrace(profile, job.trace)
