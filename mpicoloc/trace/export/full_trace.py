"""All calls of a job that was run with ``--trace all``, read from its files as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Profile
from mpicoloc.core.progress import stage
from mpicoloc.errors import DataError
from mpicoloc.trace.event_messages import MESSAGES
from mpicoloc.trace.export.call_chunks import Calls
from mpicoloc.trace.export.functions import is_one_sided
from mpicoloc.trace.export.messages import Side
from mpicoloc.trace.reader import Trace

Ints = NDArray[np.int64]
Array = NDArray[Any]
_SENT, _RECEIVED = MESSAGES.index("sent"), MESSAGES.index("received")
_GOT = MESSAGES.index("got")
_APART = (MESSAGES.index("put"), _GOT)
_COLUMNS = ("rank", "peer", "bytes", "begin_ns", "end_ns")
_NO_ROWS = np.zeros(0, np.int64)


class FullTrace:
    """A trace of every call; a track is a thread of a rank.

    Raises
    ------
    DataError
        If it is damaged, or names ranks that the job does not have.
    """

    is_cut = False

    def __init__(self, profile: Profile, trace: Trace) -> None:
        self._trace = trace
        self._n_ranks = profile.job.n_ranks
        self.is_whole = not trace.incomplete
        self.notes = trace.notes
        self.n_calls = 0
        first_ns, last_ns, tracks, used = [], [], set(), set()
        for piece in _all(trace):
            first_ns.append(int(piece["t_ns"].min()))
            last_ns.append(int((piece["t_ns"] + piece["duration_ns"]).max()))
            rank = int(piece["rank"][0])
            tracks |= {(rank, int(lane)) for lane in np.unique(piece["lane"])}
            used |= set(np.unique(piece["call"]).tolist())
            self.n_calls += len(piece["rank"])
        # The files name every function of MPI.
        self.names = [trace.names[i] for i in sorted(used)]
        self._number = np.full(len(trace.names), -1, np.int64)
        self._number[sorted(used)] = range(len(used))
        if not tracks:
            raise DataError("the trace has no call: the job was killed before the first one was written")
        self.tracks = sorted(tracks)
        if not 0 <= self.tracks[0][0] <= self.tracks[-1][0] < self._n_ranks:
            raise DataError(f"the trace names ranks that a job of {self._n_ranks} does not have")
        self.span_ns = (min(first_ns), max(last_ns))

    def calls(self, rank: int, track: int) -> Iterator[Calls]:
        """The calls of a thread, piece by piece."""
        for piece in self._trace.pieces(ranks=[rank]):
            own = piece["lane"] == track
            if own.any():
                begin_ns, duration_ns, n_bytes, peer = (
                    piece[name][own].astype(np.int64) for name in ("t_ns", "duration_ns", "bytes", "peer")
                )
                yield Calls(begin_ns, begin_ns + duration_ns, n_bytes, peer, self._number[piece["call"][own]])

    def ends(self) -> tuple[Side, Side]:
        """Every message has its own peer and bytes."""
        parts = {kind: {name: list[Array]() for name in _COLUMNS} for kind in (_SENT, _RECEIVED)}
        is_apart = np.array([is_one_sided(name) for name in self._trace.names])
        with stage("reading the messages", self._trace.n_events, "events"):
            for found in self._messages():
                peer, kind = found["peer"], found["message"]
                is_known = (peer >= 0) & (peer < self._n_ranks) & ~is_apart[found["call"]]
                for wanted, columns in parts.items():
                    rows = np.flatnonzero(is_known & (kind == wanted))
                    for name, pieces in columns.items():
                        pieces.append(found[name][rows])
        sent, received = (self._side(columns) for columns in parts.values())
        return sent, received

    def one_sided(self) -> dict[str, Array]:
        """What ranks put into others or got from them: rank, peer, bytes, begin_ns and is_got."""
        names = ("rank", "peer", "bytes", "begin_ns")
        parts: dict[str, list[Array]] = {name: [_NO_ROWS] for name in (*names, "is_got")}
        is_apart = np.array([is_one_sided(name) for name in self._trace.names])
        for found in self._messages():
            is_known = (found["peer"] >= 0) & (found["peer"] < self._n_ranks)
            rows = np.flatnonzero(is_known & is_apart[found["call"]] & np.isin(found["message"], _APART))
            for name in names:
                parts[name].append(found[name][rows])
            parts["is_got"].append(found["message"][rows] == _GOT)
        return {name: np.concatenate(pieces).astype(np.int64) for name, pieces in parts.items()}

    def _messages(self) -> Iterator[dict[str, Array]]:
        for i, clock in enumerate(self._trace.clocks):
            yield from self._trace.messages_of(i, clock)

    def _side(self, parts: dict[str, list[Array]]) -> Side:
        """Column after column, of which the pieces are forgotten."""
        columns = {name: np.concatenate(parts.pop(name)) for name in _COLUMNS}
        return Side(track=self._tracks_of(columns["rank"], columns["begin_ns"]), **columns)

    def _tracks_of(self, rank: Array, begin_ns: Array) -> Array:
        """Track of the call of a rank that began at this time."""
        lanes: dict[int, list[int]] = {}
        for one, lane in self.tracks:
            lanes.setdefault(one, []).append(lane)
        first = np.zeros(self._n_ranks, np.int8)
        first[list(lanes)] = [own[0] for own in lanes.values()]
        found = first[rank]
        for one, own in lanes.items():
            rows = np.flatnonzero(rank == one) if len(own) > 1 else _NO_ROWS
            for lane in own[1:]:
                begins = np.concatenate([piece.begin_ns for piece in self.calls(one, lane)])
                found[rows[np.isin(begin_ns[rows], begins)]] = lane
        return found


def _all(trace: Trace) -> Iterator[dict[str, Array]]:
    """Pieces of the whole trace that have calls."""
    with stage("looking at the calls", trace.n_events, "events"):
        yield from (piece for piece in trace.pieces() if len(piece["rank"]))
