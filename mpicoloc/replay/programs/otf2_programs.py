"""Programs of ranks from an OTF2 archive, as written by Score-P and other tools.

An archive has communicators, tags and roots. If it lacks the sizes of collectives, it cannot be replayed.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import otf2
from otf2.enums import CollectiveOp, GroupType, Paradigm

from mpicoloc.core.profile import Array
from mpicoloc.core.progress import stage
from mpicoloc.errors import DataError
from mpicoloc.network.traffic.algorithms import alltoall_pairs
from mpicoloc.network.traffic.collective import Collective, Messages
from mpicoloc.replay.programs import recorded
from mpicoloc.replay.programs.builder import Program, RankPrograms, blocks, of_each
from mpicoloc.replay.programs.recorded import PlacedCollective, RankCalls, RecordedMessages, Tempo
from mpicoloc.replay.programs.recorded_collectives import NAME, is_blocking, name_of
from mpicoloc.replay.programs.sources import RECORDED, Choices, Source, check_matched, foreign, library_of
from mpicoloc.trace.export.calls import ordinals

_NS_PER_S = 1e9
_CHUNK = b"\3BOTF2"
"""The first bytes of every file of an archive."""
_SENDS, _RECEIVES = ("MpiSend", "MpiIsend"), ("MpiRecv", "MpiIrecv")
_COLLECTIVES = ("MpiCollectiveEnd", "NonBlockingCollectiveComplete")
_LEFT_OUT = {
    "RmaPut": "one-sided transfers", "RmaGet": "one-sided transfers", "RmaAtomic": "one-sided transfers",
    "RmaCollectiveEnd": "collectives of one-sided communication",
    "MeasurementOnOff": "pauses of the recording, and what ran in them",
}  # fmt: skip
_Key = tuple[int, int, int, int]
"""Source and destination in the job, communicator, tag."""


@dataclass
class _Call:
    """An MPI call of a rank."""

    begin_ns: int
    function: int
    end_ns: int = 0


@dataclass
class _Rank:
    """The operations of one rank."""

    calls: list[_Call] = field(default_factory=list)
    depth: int = 0
    sends: defaultdict[_Key, deque[tuple[int, int]]] = field(default_factory=lambda: defaultdict(deque))
    """Start of the call, and bytes, of each message."""
    receives: defaultdict[_Key, deque[int]] = field(default_factory=lambda: defaultdict(deque))
    collectives: list[tuple[int, int, Any, int, int, int]] = field(default_factory=list)
    """Call, communicator, operation, root, bytes sent and bytes received; includes calls on MPI_COMM_SELF."""
    begun: dict[int, int] = field(default_factory=dict)
    """Index of the call that started each non-blocking collective, by its request."""


class _Archive:
    """The events of an archive, rank by rank."""

    def __init__(self, path: str, trace: Any) -> None:
        self.path = path
        self.functions: dict[str, int] = {}
        self._ns_per_tick = _NS_PER_S / trace.timer_resolution
        self._rank_of = _ranks(path, trace.definitions)
        self.ranks = [_Rank() for _ in range(max(self._rank_of.values()) + 1)]
        self.members: dict[int, list[int]] = {}
        self.left_out: Counter[str] = Counter()
        with stage(f"reading {os.path.basename(path)}", unit="events") as advance:
            for n, (location, event) in enumerate(trace.events, 1):
                self._take(location, event)
                if n % 4096 == 0:
                    advance(4096)

    def _take(self, location: Any, event: Any) -> None:
        rank = self._rank_of.get(location._ref)
        kind = type(event).__name__
        is_call = kind in ("Enter", "Leave") and event.region.paradigm == Paradigm.MPI
        if rank is None:
            if kind in (*_SENDS, *_RECEIVES, *_COLLECTIVES):
                self.left_out["messages and collectives of threads that are not ranks"] += 1
            return
        own = self.ranks[rank]
        if is_call and kind == "Enter":
            own.depth += 1
            if own.depth == 1:
                function = self.functions.setdefault(event.region.name, len(self.functions))
                own.calls.append(_Call(self._ns(event), function))
        elif is_call:
            own.depth -= 1
            if own.depth == 0:
                own.calls[-1].end_ns = self._ns(event)
        elif kind in _LEFT_OUT:
            self.left_out[_LEFT_OUT[kind]] += 1
        elif kind in (*_SENDS, *_RECEIVES, *_COLLECTIVES, "NonBlockingCollectiveRequest"):
            if not own.calls:
                raise DataError(
                    f"{self.path}: rank {rank} has a message before its first MPI call: give the complete "
                    "archive"
                )
            self._take_transfer(rank, own, kind, event)

    def _take_transfer(self, rank: int, own: _Rank, kind: str, event: Any) -> None:
        if kind in _SENDS:
            peer = self._world(rank, event.communicator, event.receiver)
            key = (rank, peer, event.communicator._ref, event.msg_tag)
            own.sends[key].append((own.calls[-1].begin_ns, event.msg_length))
        elif kind in _RECEIVES:
            peer = self._world(rank, event.communicator, event.sender)
            own.receives[peer, rank, event.communicator._ref, event.msg_tag].append(own.calls[-1].begin_ns)
        elif kind == "NonBlockingCollectiveRequest":
            own.begun[event.request_id] = len(own.calls) - 1
        else:
            self._world(rank, event.communicator, 0)
            call = len(own.calls) - 1
            if kind == "NonBlockingCollectiveComplete":
                call = own.begun.pop(event.request_id, call)
            sizes = (event.root, event.size_sent, event.size_received)
            own.collectives.append((call, event.communicator._ref, event.collective_op, *sizes))

    def _ns(self, event: Any) -> int:
        return round(event.time * self._ns_per_tick)

    def _world(self, own: int, communicator: Any, rank: int) -> int:
        """Job rank of a rank in a communicator that the job rank `own` uses."""
        if isinstance(communicator, otf2.definitions.InterComm):
            raise DataError(
                f"{self.path}: rank {own} uses an inter-communicator ({communicator.name!r}), which cannot "
                "be replayed from OTF2: replay a profile of the job"
            )
        if communicator.group.group_type == GroupType.COMM_SELF:
            return own
        members = self.members.get(communicator._ref)
        if members is None:
            members = [self._rank_of[location._ref] for location in communicator.group.members]
            self.members[communicator._ref] = members
        if not 0 <= rank < len(members):
            raise DataError(
                f"{self.path}: communicator {communicator.name!r} has no rank {rank}: the archive is damaged"
            )
        return members[rank]

    def notes(self) -> list[str]:
        """Notes on events of the archive that the programs leave out."""
        return [f"left out: {what} ({n:,})" for what, n in self.left_out.items()]


def _ranks(path: str, definitions: Any) -> dict[int, int]:
    """Rank of each location that makes MPI calls."""
    groups = [
        group for group in definitions.groups
        if group.group_type == GroupType.COMM_LOCATIONS and group.paradigm == Paradigm.MPI
    ]  # fmt: skip
    if not groups:
        raise DataError(f"{path} is not from an MPI job: it defines no locations of ranks")
    return {location._ref: rank for rank, location in enumerate(groups[0].members)}


def read(path: str, choices: Choices) -> Source:
    """The job of the archive with this anchor file, ``traces.otf2``.

    Raises `DataError` if it cannot be read or replayed.
    """
    # Check the format first: the library prints several lines of its own about a wrong file.
    with open(path, "rb") as file:
        if file.read(len(_CHUNK)) != _CHUNK:
            raise DataError(f"{path} is not an OTF2 archive: give its anchor file, traces.otf2")
    try:
        with otf2.reader.open(path) as trace:
            archive = _Archive(path, trace)
    except otf2.error.Error as error:
        raise DataError(f"{path} cannot be read as an OTF2 archive: {error}") from None
    return foreign(path, _programs(archive, choices), RECORDED)


def _programs(archive: _Archive, choices: Choices) -> RankPrograms:
    names = list(archive.functions)
    functions = recorded.Functions(names)
    calls = [_calls_of(archive.path, rank, own) for rank, own in enumerate(archive.ranks)]
    deeds = recorded.empty_deeds(len(calls))
    messages, unmatched = _messages(archive)
    notes = check_matched(
        archive.path,
        choices,
        len(unmatched),
        len(unmatched) + len(messages.src),
        min(unmatched)[1] if unmatched else "",
    )
    collectives = _collectives(archive, names, calls, choices)
    part = choices.part(min(int(own.begin_ns[0]) for own in calls))
    if part is not None:
        calls, messages, collectives, note = recorded.taken_part(part, calls, messages, collectives)
        notes.append(f"{archive.path}: {note}")
    recorded.add_messages(deeds, calls, functions, messages)
    recorded.add_collectives(deeds, calls, collectives)
    made = recorded.programs(names, calls, deeds, [Tempo(choices.cpu_speed)] * len(calls))
    name = os.path.basename(os.path.dirname(os.path.abspath(archive.path)))
    return of_each(name, made, (*notes, *archive.notes()))


def _calls_of(path: str, rank: int, own: _Rank) -> RankCalls:
    if not own.calls:
        raise DataError(f"{path}: rank {rank} has no MPI call: give the complete archive")
    rows = np.array([(call.begin_ns, call.end_ns, call.function) for call in own.calls], np.int64)
    return RankCalls(rows[:, 0], np.maximum(rows[:, 1], rows[:, 0]), rows[:, 2])


def _messages(archive: _Archive) -> tuple[RecordedMessages, list[tuple[int, str]]]:
    """Sends matched with receives in MPI's order; start and description of each unmatched send or receive."""
    rows: list[tuple[int, ...]] = []
    unmatched: list[tuple[int, str]] = []
    for key in sorted({key for own in archive.ranks for key in (*own.sends, *own.receives)}):
        sends = archive.ranks[key[0]].sends.get(key, deque())
        receives = archive.ranks[key[1]].receives.get(key, deque())
        n = min(len(sends), len(receives))
        for (send_ns, n_bytes), take_ns in zip(sends, receives, strict=False):
            rows.append((key[0], key[1], n_bytes, send_ns, take_ns))
        lost = [(send_ns, f"a send of {n_bytes:,} bytes") for send_ns, n_bytes in [*sends][n:]]
        lost += [(take_ns, "a receive") for take_ns in [*receives][n:]]
        where = f"from rank {key[0]} to rank {key[1]}, tag {key[3]},"
        unmatched += [(at_ns, f"{what} {where} at {at_ns / _NS_PER_S:.6f} s") for at_ns, what in lost]
    columns = np.array(rows, np.int64).reshape(-1, 5)
    columns = columns[np.argsort(columns[:, 3], kind="stable")]
    tag = ordinals(columns[:, 0] << 32 | columns[:, 1])
    return RecordedMessages(*np.vstack([columns.T, tag])), unmatched


def _collectives(
    archive: _Archive, names: Sequence[str], calls: Sequence[RankCalls], choices: Choices
) -> list[PlacedCollective]:
    """Collectives, matched by position: the k-th call on a communicator is the same in all of its members."""
    library, collectives = library_of(choices), []
    rows: defaultdict[int, defaultdict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for rank, own in enumerate(archive.ranks):
        _check_sizes(archive, rank, names)
        for row in own.collectives:
            rows[row[1]][rank].append(row)
    known: dict[Any, Sequence[Program]] = {}
    for comm, of_rank in rows.items():
        if comm not in archive.members:
            continue  # MPI_COMM_SELF
        members = archive.members[comm]
        counts = {len(of_rank[rank]) for rank in members}
        if len(counts) > 1:
            raise DataError(
                f"{archive.path}: some members of communicator {comm} called {min(counts)} collectives, "
                f"others {max(counts)}: the archive is incomplete"
            )
        # Sort by call: the archive records a non-blocking collective at its completion, not at its start.
        for same in zip(*(sorted(of_rank[rank], key=lambda row: row[0]) for rank in members), strict=True):
            i_call = np.array([row[0] for row in same])
            function = names[int(calls[members[0]].function[i_call[0]])]
            key = (comm, function, *(row[2:] for row in same))
            if key not in known:
                made = _messages_of(same, library, archive.path)
                what = name_of(function), is_blocking(function)
                known[key] = blocks(made, np.array(members), comm + 1, *what)
            begin_ns = np.array([calls[rank].begin_ns[i] for rank, i in zip(members, i_call, strict=True)])
            collectives.append(
                PlacedCollective(np.array(members), i_call, begin_ns, is_blocking(function), known[key])
            )
    return collectives


def _check_sizes(archive: _Archive, rank: int, names: Sequence[str]) -> None:
    """Check that the archive has a record of every collective call of a rank."""
    own = archive.ranks[rank]
    recorded_calls = {row[0] for row in own.collectives}
    for i, call in enumerate(own.calls):
        if NAME.fullmatch(names[call.function]) and i not in recorded_calls:
            if i in own.begun.values():
                raise DataError(
                    f"{archive.path}: rank {rank} began {names[call.function]} but never completed it: "
                    "the archive is incomplete"
                )
            raise DataError(
                f"{archive.path} lacks the data of collectives ({names[call.function]} of rank "
                f"{rank}): record the job with Score-P, or replay the profile itself"
            )


def _messages_of(rows: Sequence[Any], library: Any, path: str) -> Messages:
    """Messages of a collective, from the bytes that its members sent and received by Score-P's count."""
    p = len(rows)
    sent, received = (np.array([row[i] for row in rows], np.int64) for i in (4, 5))
    op = rows[0][2]
    name = _OPERATIONS.get(op)
    if name is None or any(row[2] != op for row in rows):
        raise DataError(
            f"{path}: members of a communicator called different collectives at once, or {op} is unknown"
        )
    root = rows[0][3] if 0 <= rows[0][3] < p else 0
    if name == "alltoallv":
        return alltoall_pairs(Collective(name, p, counts=sent // p), library)
    made = library.messages(_collective(name, p, root, sent, received))
    assert isinstance(made, Messages)
    return made


def _collective(name: str, p: int, root: int, sent: Array, received: Array) -> Collective:
    whole = {
        "bcast": received.max(), "reduce": sent.max(), "allreduce": sent.max() // p, "barrier": 0,
        "alltoall": sent.max() // p, "scan": sent.max() // p, "exscan": sent.max() // max(p - 1, 1),
    }  # fmt: skip
    if name in whole:
        return Collective(name, p, int(whole[name]), root=root)
    parts = {"gather": sent, "scatter": received, "allgather": sent // p, "reduce_scatter": received // p}[
        name
    ]
    if (parts == parts[0]).all() and name != "reduce_scatter":
        return Collective(name, p, int(parts[0]), root=root)
    return Collective(name if name == "reduce_scatter" else f"{name}v", p, 0, root=root, counts=parts)


_OPERATIONS = {
    CollectiveOp.BARRIER: "barrier", CollectiveOp.BCAST: "bcast", CollectiveOp.GATHER: "gather",
    CollectiveOp.GATHERV: "gather", CollectiveOp.SCATTER: "scatter", CollectiveOp.SCATTERV: "scatter",
    CollectiveOp.ALLGATHER: "allgather", CollectiveOp.ALLGATHERV: "allgather",
    CollectiveOp.ALLTOALL: "alltoall", CollectiveOp.ALLTOALLV: "alltoallv",
    CollectiveOp.ALLTOALLW: "alltoallv", CollectiveOp.ALLREDUCE: "allreduce",
    CollectiveOp.REDUCE: "reduce", CollectiveOp.REDUCE_SCATTER: "reduce_scatter",
    CollectiveOp.REDUCE_SCATTER_BLOCK: "reduce_scatter", CollectiveOp.SCAN: "scan",
    CollectiveOp.EXSCAN: "exscan",
}  # fmt: skip
