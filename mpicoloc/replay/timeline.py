"""Calls of each rank in a simulation with their times, from marks around the calls in programs."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.core.profile import COLUMNS, Array, Interference, Job, MpiSummary, Profile, table
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError
from mpicoloc.replay.experiment import Experiment
from mpicoloc.replay.native import ABSOLUTE, MARKED, OP, Operation
from mpicoloc.replay.programs.builder import CALL_SHIFT, CALLS, COLLECTIVES, FIRST, Program, RankPrograms
from mpicoloc.replay.simulate import SimulatedRun
from mpicoloc.trace.export.calls import Calls, Recording, Side

_KINDS = (Operation.SEND, Operation.ISEND, Operation.RECV, Operation.IRECV, Operation.WAIT, Operation.WAITALL)
_SENDS = _KINDS[:2]
_MESSAGES = ("MPI_Send", "MPI_Isend", "MPI_Recv", "MPI_Irecv", "MPI_Wait", "MPI_Waitall")
NAMES = _MESSAGES + CALLS
"""Names of the calls of a timeline, in the order of their numbers."""


def marked(job: RankPrograms) -> RankPrograms:
    """The job with a mark before (2 i) and after (2 i + 1) each call.

    i is the index of the call's operation; a collective is one call, with the index of its first operation.
    """
    return replace(job, programs=tuple(map(_marked, job.programs)))


def _marked(program: Program) -> Program:
    is_call = np.isin(program["kind"], _KINDS)
    if len(program) and program["kind"][0] == Operation.GRAPH:  # inserted rows would break its row numbers
        with_flags = program.copy()
        with_flags["flags"][is_call] |= MARKED
        return with_flags
    is_inside = _is_of_collective(program)
    is_begin = is_call & ~is_inside | is_inside & (program["flags"] & FIRST > 0)
    is_end = is_call & ~is_inside
    is_end[is_inside] = np.append(is_begin | ~is_inside, True)[1:][is_inside]
    # Each mark inserted before an operation moves it by one row.
    place = np.arange(len(program)) + np.cumsum(is_begin) + np.cumsum(is_end) - is_end
    with_marks = np.zeros(len(program) + 2 * int(is_begin.sum()), OP)
    with_marks[place] = program
    begins = np.flatnonzero(is_begin)
    for rows, value in ((place[is_begin] - 1, 2 * begins), (place[is_end] + 1, 2 * begins + 1)):
        with_marks["kind"][rows] = Operation.MARK
        with_marks["value"][rows] = value
    return with_marks


def _is_of_collective(program: Program) -> Array:
    number = program["flags"] >> CALL_SHIFT
    return (number > 0) & (number <= len(COLLECTIVES))


@dataclass(frozen=True)
class Spans(Calls):
    """Calls of a job's ranks in the first run, in order of rank and time; arrays of shape (n,).

    `call` indexes `NAMES`. `operation` is the index of the call's operation in the rank's program; for a
    collective, of its first operation. `kind` is the kind of operation, 0 for a collective. `bytes` is the
    size of the message, or the number of bytes that the rank sends in a collective. `peer` is -1 if the call
    has no fixed peer. `is_continued` tells whether the row belongs to the same call as the row before, as in
    a send-receive.
    """

    rank: Array
    operation: Array
    kind: Array
    is_continued: Array


def spans(run: SimulatedRun, i_job: int, job: RankPrograms) -> Spans:
    """The calls of a job that was simulated with marks; each operation of a send-receive is a row."""
    marks = run.marks[run.marks["job"] == i_job]
    marks = marks[np.lexsort((marks["value"] // 2, marks["rank"]))]
    begins, ends = marks[marks["value"] % 2 == 0], marks[marks["value"] % 2 == 1]
    in_order = np.lexsort((begins["t_ps"], begins["rank"]))
    begins, ends = begins[in_order], ends[in_order]
    operation = (begins["value"] // 2).astype(np.int64)
    rank = begins["rank"].astype(np.int64)
    rows = _rows(job.programs, job.program_of_rank[rank], operation)
    number = np.full(int(max(Operation)) + 1, -1)
    number[[int(kind) for kind in _KINDS]] = range(len(_KINDS))
    of_call = (rows["flags"] >> CALL_SHIFT).astype(np.int64)
    is_collective = _is_of_collective(rows)
    is_message = np.isin(rows["kind"], _KINDS[:4]) & ~is_collective
    is_named = is_message & (rows["peer_mode"] == ABSOLUTE)
    return Spans(
        begins["t_ps"] // 1000,
        ends["t_ps"] // 1000,
        np.where(is_message, rows["value"], _sent_bytes(job, rank, operation, is_collective)),
        np.where(is_named, rows["peer"], -1).astype(np.int64),
        np.where(of_call > 0, len(_MESSAGES) - 1 + of_call, number[rows["kind"]]),
        rank,
        operation,
        np.where(is_collective, 0, rows["kind"]),
        (of_call > 0) & (rows["flags"] & FIRST == 0),
    )


def whole_calls(parts: Spans) -> tuple[Spans, Array]:
    """Merge the operations of each send-receive into one call, with the bytes and peer of its send.

    Returns the calls, and the index of the call of each operation.
    """
    begins = np.flatnonzero(~parts.is_continued)
    rows = np.where(np.isin(parts.kind, _SENDS), np.arange(len(parts.kind)), -1)
    told = np.maximum(np.maximum.reduceat(rows, begins), begins) if len(begins) else begins
    ends_ns = parts.end_ns[np.append(begins, len(rows))[1:] - 1]
    columns = {"end_ns": ends_ns, "bytes": parts.bytes[told], "peer": parts.peer[told]}
    return replace(parts.take(begins), **columns), np.cumsum(~parts.is_continued) - 1


def _sent_bytes(job: RankPrograms, rank: Array, operation: Array, is_collective: Array) -> Array:
    """Bytes that each rank sends in the collective that begins at an operation; 0 for other operations."""
    sent_bytes = np.zeros(len(rank), np.int64)
    for i, program in enumerate(job.programs):
        begins = np.flatnonzero(program["flags"] & FIRST)
        if not len(begins):
            continue
        is_sent = np.isin(program["kind"], _SENDS) & _is_of_collective(program)
        sums = np.add.reduceat(np.where(is_sent, program["value"], 0) * _turns(program), begins)
        own = (job.program_of_rank[rank] == i) & is_collective
        sent_bytes[own] = sums[np.searchsorted(begins, operation[own])]
    return sent_bytes


def _turns(program: Program) -> Array:
    """Number of times that each operation of a collective is executed."""
    turns = np.ones(len(program), np.int64)
    is_loop = np.isin(program["kind"], (Operation.LOOP, Operation.END)) & (program["flags"] >> CALL_SHIFT > 0)
    open_: list[int] = []
    for i in np.flatnonzero(is_loop).tolist():
        if program["kind"][i] == Operation.LOOP:
            open_.append(i)
        else:
            first = open_.pop()
            turns[first:i] *= program["n"][first]
    return turns


def _rows(programs: Sequence[Program], which: Array, operation: Array) -> Program:
    """The operation of each call."""
    rows_of_operation = np.zeros(len(operation), OP)
    for i, program in enumerate(programs):
        own = which == i
        rows_of_operation[own] = program[operation[own]]
    return rows_of_operation


def receiving_calls(calls: Spans, job: RankPrograms) -> tuple[Array, Array]:
    """For each receive, the row of `calls` that completed it, and the row that posted it."""
    received: list[tuple[int, int]] = []
    open_: dict[tuple[int, int], int] = {}
    rows = _rows(job.programs, job.program_of_rank[calls.rank], calls.operation)
    columns = (calls.rank, calls.kind, rows["request"], rows["n"])
    for i, (rank, kind, request, n) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        if kind == Operation.RECV:
            received.append((i, i))
        elif kind == Operation.IRECV:
            open_[rank, request] = i
        elif kind in (Operation.WAIT, Operation.WAITALL):
            for slot in range(request, request + (n if kind == Operation.WAITALL else 1)):
                if (post := open_.pop((rank, slot), None)) is not None:
                    received.append((i, post))
    takes, posts = np.array(received, np.int64).reshape(-1, 2).T
    return takes, posts


class SimulatedCalls(Recording):
    """Calls of all jobs of a run with marks; ranks are numbered consecutively, job after job.

    Raises
    ------
    DataError
        If the run had no marks.
    """

    names = NAMES
    is_whole = True

    def __init__(self, found: Experiment) -> None:
        super().__init__(_profile(found))
        parts, received = [], []
        first_rank = first_row = 0
        for i, job in enumerate(found.jobs):
            own = spans(found.sharing, i, job.programs)
            received.append(np.stack(receiving_calls(own, job.programs)) + first_row)
            peer = np.where(own.peer >= 0, own.peer + first_rank, -1)
            parts.append(replace(own, rank=own.rank + first_rank, peer=peer))
            first_rank, first_row = first_rank + job.programs.n_ranks, first_row + len(own.rank)
        self._parts = Spans.joined(parts)
        self._spans, self._call_of_part = whole_calls(self._parts)
        self._takes, self._posts = np.concatenate(received, axis=1)
        self._tracks = _tracks(self._spans)
        if not len(self._spans.rank):
            raise DataError("the simulated jobs made no MPI call, so there is nothing to write")
        pairs = np.unique([self._spans.rank, self._tracks], axis=1)
        self.tracks: Sequence[tuple[int, int]] = list(zip(*pairs.tolist(), strict=True))
        self.span_ns = (0, int(self._spans.end_ns.max()))

    def _calls(self, rank: int, track: int) -> Iterator[Calls]:
        """The calls of a rank on one of its tracks."""
        first, end = np.searchsorted(self._spans.rank, [rank, rank + 1])
        own = self._spans.take(first + np.flatnonzero(self._tracks[first:end] == track))
        yield Calls(own.begin_ns, own.end_ns, own.bytes, own.peer, own.call)

    def _ends(self) -> tuple[Side, Side]:
        """The sends and the receives of messages whose partner the program names.

        Each receive is placed at the call that completed it.
        """
        own = self._parts
        sends = np.flatnonzero(np.isin(own.kind, _SENDS) & (own.peer >= 0))
        is_known = own.peer[self._posts] >= 0
        takes, posts = self._takes[is_known], self._posts[is_known]
        return self._side(sends, sends), self._side(takes, posts)

    def _side(self, rows: Array, posts: Array) -> Side:
        i_call, posted = self._call_of_part[rows], self._parts.take(posts)
        own = self._spans.take(i_call)
        return Side(own.begin_ns, own.end_ns, posted.bytes, posted.peer, own.rank, self._tracks[i_call])


def _tracks(calls: Spans) -> Array:
    """The track of each call within its rank. Calls of graphs that overlap are put on different tracks."""
    tracks = np.zeros(len(calls.rank), np.int64)
    if not ((calls.begin_ns[1:] < calls.end_ns[:-1]) & (calls.rank[1:] == calls.rank[:-1])).any():
        return tracks
    ends: list[tuple[int, int]] = []
    last = -1
    for i, (rank, begin, end) in enumerate(zip(calls.rank, calls.begin_ns, calls.end_ns, strict=True)):
        if rank != last:
            ends, last = [], rank
        is_free = bool(ends) and ends[0][0] <= begin
        tracks[i] = ends[0][1] if is_free else len(ends)
        (heapq.heapreplace if is_free else heapq.heappush)(ends, (int(end), int(tracks[i])))
    return tracks


def _profile(found: Experiment) -> Profile:
    """The parts of a profile that the formats need: host names, and the host of each rank."""
    hosts = np.concatenate([job.hosts for job in found.jobs])
    used, i_node = np.unique(hosts, return_inverse=True)
    names = [f"h{host}" for host in used.tolist()]
    tables = {name: table(name) for name in COLUMNS}
    tables["nodes"] = table("nodes", {"hostname": np.array(names, "S64")})
    tables["ranks"] = table("ranks", {"rank": np.arange(len(hosts)), "i_node": i_node})
    words = ", ".join(f"{job.name} ({counted(job.programs.n_ranks, 'rank')})" for job in found.jobs)
    job = Job("simulated", words, len(hosts), len(used), len(hosts), "simulated", found.sharing.end_s)
    return Profile(job, tables, MpiSummary(), Interference(), None)
