"""The MPI calls of a job on one clock, track by track: all that the formats of traces read."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Profile
from mpicoloc.errors import DataError
from mpicoloc.profile.frames import Frames
from mpicoloc.profile.recording.call_chunks import Calls, common, node_offsets_ns
from mpicoloc.profile.recording.event_ring import EventRing
from mpicoloc.profile.recording.full_trace import FullTrace
from mpicoloc.profile.recording.messages import Messages, Side, matched
from mpicoloc.trace.trace import MAX_RANKS

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

        Raises
        ------
        DataError
            If they do not: the file is damaged.
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

    Raises
    ------
    DataError
        If it has no trace, or one that names ranks that the job does not have.
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
