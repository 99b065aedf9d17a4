"""Programs of ranks from their recorded calls.

The time of a rank between its messages and collectives becomes computation. A trace shows which messages a
call sent and received, but not which request each message belongs to. So each received message is assigned to
an earlier call that posted a receive to which no message is assigned yet. The replay waits for a send at the
call where the recorded run waited, but not before the point at which the recorded run had posted the matching
receive. So everything that a replay waits for began earlier in the recorded run, and a replay cannot
deadlock.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Array
from mpicoloc.core.progress import steps
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError
from mpicoloc.replay.native import SYNCHRONOUS, Operation
from mpicoloc.replay.programs.builder import Program, ProgramBuilder
from mpicoloc.trace.export.calls import is_communication

LEAST_DELAY_FRAC = 0.02
"""A rank counts as never interrupted if it lacked a processor for a smaller fraction of its time."""
TURN_NS = 2_000_000
"""Typical time slice: Linux runs a process for about 1 to 4 ms while other processes wait."""


def running_frac(cpu_s: float, run_delay_s: float) -> float:
    """Fraction of a rank's runnable time for which it had a processor; 1 if unknown."""
    if not (np.isfinite(cpu_s) and np.isfinite(run_delay_s)) or cpu_s <= 0 or run_delay_s <= 0:
        return 1.0
    return cpu_s / (cpu_s + run_delay_s)


def processor_ns(burst_ns: Array, kind: Array, running: float) -> NDArray[np.int64]:
    """Estimate the processor time of each burst of one rank from its wall time between two MPI calls.

    If more ranks than processors ran, a rank waited for a processor for some of that time, during whole time
    slices of other processes. The system reports only the total waiting time of the run, and most of it falls
    into MPI calls, where ranks wait busily. So bursts between the same two calls are compared with each
    other. Most short bursts were not interrupted; an interrupted one is longer by a time slice of another
    process. Bursts longer than a time slice were all interrupted, and had the processor for the same fraction
    of their time as the rank on average.

    Shapes: `burst_ns` (n,), `kind` (n,), result (n,). Result: no burst gets longer.

    In a kind whose median is below `TURN_NS`, the median replaces every burst that is longer than both twice
    the median and the median plus half a time slice. Bursts of other kinds are multiplied by `running`.
    """
    bursts = np.asarray(burst_ns, np.int64)
    if running >= 1 - LEAST_DELAY_FRAC or not len(bursts):
        return bursts.copy()
    _, which = np.unique(kind, return_inverse=True)
    median = _medians(bursts, which)[which]
    is_interrupted = bursts > np.maximum(2 * median, median + TURN_NS // 2)
    of_short = np.where(is_interrupted, median, bursts)
    return np.where(median < TURN_NS, of_short, np.rint(running * bursts)).astype(np.int64)


def _medians(values: Array, which: Array) -> Array:
    """The lower median of the values of each kind."""
    order = np.lexsort((values, which))
    n = np.bincount(which)
    return values[order][np.cumsum(n) - n + (n - 1) // 2]


_WAITS = re.compile(r"MPI_(Wait|Test)(all|any|some)?", re.IGNORECASE)
_POSTS = re.compile(r"MPI_(Im?recv|Isendrecv(_replace)?|Start(all)?)(_c)?", re.IGNORECASE)
_STARTS = re.compile(r"MPI_Start", re.IGNORECASE)
_BLOCKING_SENDS = re.compile(r"MPI_([srb]?send|sendrecv(_replace)?)(_c)?", re.IGNORECASE)
_EXCHANGES = re.compile(r"MPI_(sendrecv(?:_replace)?)(?:_c)?", re.IGNORECASE)
_SYNCHRONOUS = re.compile(r"MPI_I?ssend(_c)?", re.IGNORECASE)
_WINDOW_CALLS = re.compile(
    r"MPI_Win_(fence|start|complete|post|wait|test|(un)?lock.*|flush.*|sync|free)", re.IGNORECASE
)
ONE_SIDED = -1
"""Communicator number for one-sided transfers."""


@dataclass(frozen=True)
class RankCalls:
    """The MPI calls of one rank in order of their starts; `function` indexes the names of a trace.

    `lead_ns` and `tail_ns` are computation before the first and after the last call.
    """

    begin_ns: Array
    end_ns: Array
    function: Array
    lead_ns: int = 0
    tail_ns: int = 0

    def __len__(self) -> int:
        return len(self.begin_ns)

    def at(self, begin_ns: Array) -> Array:
        """Index of the call that began at each of these times."""
        return np.searchsorted(self.begin_ns, begin_ns)


@dataclass(frozen=True)
class RecordedMessages:
    """Messages with both ends known, in the order of their sends; arrays of shape (n_messages,).

    `send_ns` and `take_ns` are the starts of the calls that sent and received the message. `tag`
    distinguishes messages between the same two ranks.
    """

    src: Array
    dst: Array
    n_bytes: Array
    send_ns: Array
    take_ns: Array
    tag: Array


@dataclass(frozen=True)
class Part:
    """The part of a recorded run to replay: calls that began at `begin_ns` or later, and before `end_ns`."""

    begin_ns: int
    end_ns: int

    def holds(self, *at_ns: Array) -> NDArray[np.bool_]:
        """Whether all of these times are in the part; arrays of one shape."""
        return np.all([(self.begin_ns <= at) & (at < self.end_ns) for at in at_ns], axis=0)

    def calls(self, own: RankCalls) -> RankCalls:
        """The calls that begin in the part, with the rank's computation there before and after them."""
        first, last = np.searchsorted(own.begin_ns, [self.begin_ns, self.end_ns]).tolist()

        def free_ns(n: int) -> int:
            """The later of the end of the rank's first `n` calls and the start of the part, ns."""
            return max(self.begin_ns, int(own.end_ns[:n].max(initial=self.begin_ns)))

        lead_ns = int(own.begin_ns[first]) - free_ns(first) if 0 < first < last else 0
        tail_ns = min(self.end_ns, int(own.begin_ns[last])) - free_ns(last) if 0 < last < len(own) else 0
        kept = slice(first, last)
        columns = own.begin_ns[kept], own.end_ns[kept], own.function[kept]
        return RankCalls(*columns, max(lead_ns, 0), max(tail_ns, 0))

    def messages(self, all_of_them: RecordedMessages) -> RecordedMessages:
        """The messages that are both sent and received in the part."""
        keep = self.holds(all_of_them.send_ns, all_of_them.take_ns)
        return RecordedMessages(*(column[keep] for column in vars(all_of_them).values()))

    def collectives(
        self, all_of_them: Sequence[PlacedCollective], calls: Sequence[RankCalls]
    ) -> list[PlacedCollective]:
        """The collectives that all members call in the part; `calls` are the calls of the whole run."""
        first = np.array([np.searchsorted(own.begin_ns, self.begin_ns) for own in calls])
        return [
            replace(one, i_call=one.i_call - first[one.members])
            for one in all_of_them
            if self.holds(one.begin_ns).all()
        ]

    def one_sided(self, all_of_them: OneSided, calls: Sequence[RankCalls]) -> OneSided:
        """The transfers that begin in the part; a transfer is left out if its target has no `calls` in the
        part.
        """
        keep = self.holds(all_of_them.begin_ns) & np.array([len(own) > 0 for own in calls])[all_of_them.peer]
        return OneSided(*(column[keep] for column in vars(all_of_them).values()))


def taken_part(
    part: Part,
    calls: Sequence[RankCalls],
    messages: RecordedMessages,
    collectives: Sequence[PlacedCollective],
) -> tuple[list[RankCalls], RecordedMessages, list[PlacedCollective], str]:
    """Calls, messages and collectives in a part of a run, and a note on those that cross its edges.

    Raises `DataError` if the part has no call.
    """
    kept, sent = [part.calls(own) for own in calls], part.messages(messages)
    placed = part.collectives(collectives, calls)
    n_calls = sum(map(len, kept))
    if not n_calls:
        begins = np.concatenate([own.begin_ns for own in calls])
        raise DataError(
            "no MPI call begins between --from-s and --until-s: the last call begins "
            f"{np.ptp(begins) / 1e9:g} s after the first"
        )
    n_messages = int((part.holds(messages.send_ns) | part.holds(messages.take_ns)).sum()) - len(sent.src)
    n_collectives = sum(bool(part.holds(one.begin_ns).any()) for one in collectives) - len(placed)
    note = (
        f"{n_calls:,} of {counted(sum(map(len, calls)), 'call')} are replayed; left out, as they cross "
        f"the edges of the part: {counted(n_messages, 'message')}, {counted(n_collectives, 'collective')}"
    )
    return kept, sent, placed, note


class Functions:
    """Effects of a trace's functions on requests, by function number."""

    def __init__(self, names: Sequence[str]) -> None:
        self.waits, self.posts, self.starts, self.blocks, self.synchronous, self.windows = (
            np.array([pattern.fullmatch(name) is not None for name in names], bool)
            for pattern in (_WAITS, _POSTS, _STARTS, _BLOCKING_SENDS, _SYNCHRONOUS, _WINDOW_CALLS)
        )


def _by_call() -> defaultdict[int, list[Any]]:
    return defaultdict(list)


@dataclass
class Deeds:
    """The operations of a rank at each of its calls, by the call's index.

    Parameters
    ----------
    waited_before : mapping of int to list
        Keys of requests to wait for before posts.
    posted : mapping of int to list
        Operations to start: (kind, peer, bytes, tag, comm, flags, key).
    waited : mapping of int to list
        Keys of requests to wait for after posts.
    blocks_before, blocks_between, blocks : mapping of int to list
        Operations of collectives, done first, between posts and waits, and last.
    """

    blocks_before: defaultdict[int, list[Program]] = field(default_factory=_by_call)
    blocks_between: defaultdict[int, list[Program]] = field(default_factory=_by_call)
    waited_before: defaultdict[int, list[Any]] = field(default_factory=_by_call)
    posted: defaultdict[int, list[tuple[Any, ...]]] = field(default_factory=_by_call)
    waited: defaultdict[int, list[Any]] = field(default_factory=_by_call)
    blocks: defaultdict[int, list[Program]] = field(default_factory=_by_call)

    def calls(self) -> set[int]:
        """Indexes of calls with operations."""
        blocks = (*self.blocks_before, *self.blocks_between, *self.blocks)
        return {*blocks, *self.waited_before, *self.posted, *self.waited}


def posting_calls(
    calls: RankCalls, functions: Functions, taken_at: Array, sent_at: Array | None = None
) -> Array:
    """Index of the call that posted the receive of each message.

    Shapes: `taken_at` (n,).

    A receive that a wait or test completed is assigned to the oldest open post. If a rank posted more
    receives than it completed, some had no partner or were cancelled: then the latest open post is taken.
    """
    posts = np.flatnonzero(functions.posts[calls.function])
    if sent_at is not None:
        posts = posts[~(functions.starts[calls.function[posts]] & np.isin(posts, sent_at))]
    posted_at = np.asarray(taken_at).copy()
    is_later = functions.waits[calls.function[posted_at]] if len(posted_at) else np.zeros(0, bool)
    is_exact = len(posts) == int(is_later.sum())
    open_posts: list[int] = []
    i_post = 0
    first_open = 0
    for k in np.flatnonzero(is_later).tolist():
        while i_post < len(posts) and posts[i_post] < posted_at[k]:
            open_posts.append(int(posts[i_post]))
            i_post += 1
        if first_open < len(open_posts):
            if is_exact:
                posted_at[k], first_open = open_posts[first_open], first_open + 1
            else:
                posted_at[k] = open_posts.pop()
    return posted_at


def waiting_calls(calls: RankCalls, functions: Functions, begun_at: Array, possible_ns: Array) -> Array:
    """Calls at which a rank waits for its requests, which complete at `possible_ns` at the earliest.

    Shapes: result (n, 2). Result: the index of a call (`len(calls)` means the end of the program), and 1 if
    the call itself waits, or 0 if the rank waits before the call.
    """
    waits = np.flatnonzero(functions.waits[calls.function])
    i_wait = np.maximum(
        np.searchsorted(waits, begun_at, "right"),
        np.searchsorted(np.maximum.accumulate(calls.end_ns[waits]), possible_ns),
    )
    by_wait = np.append(waits, len(calls))[i_wait]
    by_any = np.maximum(begun_at + 1, np.searchsorted(calls.begin_ns, possible_ns))
    return np.stack([np.minimum(by_wait, by_any), by_wait <= by_any], axis=1)


def add_messages(
    deeds: Sequence[Deeds], calls: Sequence[RankCalls], functions: Functions, messages: RecordedMessages
) -> None:
    """Add messages to the ranks' operations."""
    posted_ns = _add_receives(deeds, calls, functions, messages)
    order = np.argsort(messages.src, kind="stable")
    for rank, rows in _rows_of(messages.src, order):
        own = calls[rank]
        begun_at = own.at(messages.send_ns[rows])
        blocks = functions.blocks[own.function[begun_at]] & (own.end_ns[begun_at] >= posted_ns[rows])
        ends = waiting_calls(own, functions, begun_at, posted_ns[rows])
        flags = np.where(functions.synchronous[own.function[begun_at]], SYNCHRONOUS, 0)
        for k, row in enumerate(rows.tolist()):
            i, key = int(begun_at[k]), ("sent", row)
            operation = (Operation.ISEND, *_columns(messages, row, "dst"), int(flags[k]), key)
            deeds[rank].posted[i].append(operation)
            if blocks[k]:
                deeds[rank].waited[i].append(key)
            else:
                at, is_wait = ends[k].tolist()
                (deeds[rank].waited if is_wait else deeds[rank].waited_before)[at].append(key)


def _add_receives(
    deeds: Sequence[Deeds], calls: Sequence[RankCalls], functions: Functions, messages: RecordedMessages
) -> Array:
    """Add receives. Returns the time at which each receive was posted in the recorded run."""
    posted_ns = np.zeros(len(messages.src), np.int64)
    sent_rows = dict(_rows_of(messages.src, np.argsort(messages.src, kind="stable")))
    order = np.lexsort((messages.take_ns, messages.dst))
    for rank, rows in _rows_of(messages.dst, order):
        own = calls[rank]
        taken_at = own.at(messages.take_ns[rows])
        sent_at = own.at(messages.send_ns[sent_rows[rank]]) if rank in sent_rows else None
        begun_at = posting_calls(own, functions, taken_at, sent_at)
        posted_ns[rows] = own.begin_ns[begun_at]
        for k, row in enumerate(rows.tolist()):
            key = ("received", row)
            operation = (Operation.IRECV, *_columns(messages, row, "src"), 0, key)
            deeds[rank].posted[int(begun_at[k])].append(operation)
            deeds[rank].waited[int(taken_at[k])].append(key)
    return posted_ns


@dataclass(frozen=True)
class OneSided:
    """Data that ranks put into other ranks' memory or got from it (`is_got` 1); arrays of shape (n,)."""

    rank: Array
    peer: Array
    bytes: Array
    begin_ns: Array
    is_got: Array


def add_one_sided(
    deeds: Sequence[Deeds], calls: Sequence[RankCalls], functions: Functions, transfers: OneSided
) -> None:
    """Add one-sided transfers. They become messages for which the target makes no call.

    The target posts its side at its last call before the transfer, and waits at its next call on a window;
    the origin waits at its own next window call. Messages of the window calls themselves are left out.
    """
    windows = [np.flatnonzero(functions.windows[own.function]) for own in calls]
    ends = [np.maximum.accumulate(own.end_ns[rows]) for own, rows in zip(calls, windows, strict=True)]
    order = np.argsort(transfers.begin_ns, kind="stable")
    for row in order.tolist():
        origin, target = int(transfers.rank[row]), int(transfers.peer[row])
        if origin == target:
            continue
        at_ns, n_bytes = int(transfers.begin_ns[row]), int(transfers.bytes[row])
        kinds = (
            (Operation.IRECV, Operation.ISEND)
            if transfers.is_got[row]
            else (Operation.ISEND, Operation.IRECV)
        )
        for kind, own, other in zip(kinds, (origin, target), (target, origin), strict=True):
            key = ("one-sided", row, own)
            at = max(int(np.searchsorted(calls[own].begin_ns, at_ns, "right")) - 1, 0)
            # Each transfer has its row as tag, because many transfers can be in flight at once.
            deeds[own].posted[at].append((kind, other, n_bytes, row, ONE_SIDED, 0, key))
            k = max(np.searchsorted(windows[own], at, "right"), np.searchsorted(ends[own], at_ns))
            later = windows[own][k] if k < len(windows[own]) else len(calls[own])
            deeds[own].waited_before[int(later)].append(key)


def _columns(messages: RecordedMessages, row: int, peer: str) -> tuple[int, int, int, int]:
    return (
        int(getattr(messages, peer)[row]),
        int(messages.n_bytes[row]),
        int(messages.tag[row]),
        0,
    )


def _rows_of(ranks: Array, order: Array) -> list[tuple[int, Array]]:
    """Each rank that has rows, with its rows in this order."""
    if not len(order):
        return []
    pieces = np.split(order, np.flatnonzero(np.diff(ranks[order])) + 1)
    return [(int(ranks[piece[0]]), piece) for piece in pieces]


@dataclass(frozen=True)
class Tempo:
    """The pace at which computation is replayed.

    Parameters
    ----------
    cpu_speed : float
        Speed relative to the recorded run.
    running : float
        Fraction of its runnable time for which the rank had a processor.
    """

    cpu_speed: float = 1.0
    running: float = 1.0


def programs(
    names: Sequence[str], calls: Sequence[RankCalls], deeds: Sequence[Deeds], tempos: Sequence[Tempo]
) -> list[Program]:
    """The program of each rank; `names` are the names of functions."""
    is_waiting = np.array([is_communication(name) for name in names], bool)
    ranks = steps(range(len(calls)), "programs of the ranks", unit="ranks")
    exchanges = {
        i: f"MPI_{match[1].capitalize()}"
        for i, name in enumerate(names)
        if (match := _EXCHANGES.fullmatch(name))
    }
    return [program(calls[rank], is_waiting, deeds[rank], tempos[rank], exchanges) for rank in ranks]


def program(
    calls: RankCalls, is_waiting: Array, deeds: Deeds, tempo: Tempo, exchanges: Mapping[int, str]
) -> Program:
    """The program of one rank; `exchanges` maps numbers of send-receive functions to their names."""
    done = np.array(sorted(i for i in deeds.calls() if i < len(calls)), np.int64)
    kept = np.union1d(done, np.flatnonzero(is_waiting[calls.function]))
    if len(calls):
        kept = np.union1d(kept, [0])
    bursts = _bursts(calls, kept, tempo)
    builder = ProgramBuilder()
    requests: dict[Any, int] = {}
    for k, i in enumerate(kept.tolist()):
        builder.compute(int(bursts[k]))
        _do(builder, requests, deeds, i, exchanges.get(int(calls.function[i]), ""))
    builder.compute(int(bursts[-1]))
    builder.wait_all([*requests.values()])
    return builder.build()


def _bursts(calls: RankCalls, kept: Array, tempo: Tempo) -> Array:
    """Computation before each of the calls `kept`, and after the last, ns."""
    ends = np.maximum.accumulate(calls.end_ns[kept])
    between = np.maximum(calls.begin_ns[kept][1:] - ends[:-1], 0)
    wall = np.concatenate([[calls.lead_ns] * min(len(kept), 1), between, [calls.tail_ns]])
    function = calls.function[kept].astype(np.int64)
    kind = np.concatenate([[0], function[:-1]])[: len(function)] * (int(function.max(initial=0)) + 1)
    kind = np.append(kind + function, -1)
    return np.rint(processor_ns(wall, kind, tempo.running) / tempo.cpu_speed).astype(np.int64)


def _do(builder: ProgramBuilder, requests: dict[Any, int], deeds: Deeds, i: int, exchange: str) -> None:
    """Add the operations of call `i`; `exchange` is the call's name if it is a send-receive, else ""."""
    for block in deeds.blocks_before.get(i, ()):
        builder.extend(block)
    builder.wait_all([requests.pop(key) for key in deeds.waited_before.get(i, ())])
    posted, waited = deeds.posted.get(i, []), deeds.waited.get(i, [])
    between = deeds.blocks_between.get(i, ())
    with builder.call("" if between else exchange):
        if len(posted) == 1 and waited == [posted[0][-1]] and not between:
            kind, *columns = posted[0][:-1]
            (builder.send if kind == Operation.ISEND else builder.recv)(*columns)
        else:
            for kind, peer, n_bytes, tag, comm, flags, key in sorted(
                posted, key=lambda operation: operation[0], reverse=True
            ):
                begin = builder.isend if kind == Operation.ISEND else builder.irecv
                requests[key] = begin(peer, n_bytes, tag, comm, flags)
            for block in between:
                builder.extend(block)
            builder.wait_all([requests.pop(key) for key in waited])
    for block in deeds.blocks.get(i, ()):
        builder.extend(block)


def empty_deeds(n_ranks: int) -> list[Deeds]:
    """Empty operations for each rank."""
    return [Deeds() for _ in range(n_ranks)]


@dataclass(frozen=True)
class PlacedCollective:
    """A collective with the call of each member; arrays are in the order of members.

    `is_blocking` is False if the calls only start it.
    """

    members: Array
    i_call: Array
    begin_ns: Array
    is_blocking: bool
    blocks: Sequence[Program]


def add_collectives(
    deeds: Sequence[Deeds], calls: Sequence[RankCalls], collectives: Sequence[PlacedCollective]
) -> None:
    """Add collectives to the ranks' operations.

    All ranks execute a non-blocking collective at the instant of the recorded run at which the last rank
    started it. A rank that was inside a call at that instant executes the collective between the call's posts
    and waits; any other rank executes it before its next call. If the call was itself a blocking collective,
    the collective that all ranks had started first comes first.
    """
    all_begun_ns: list[dict[int, int]] = [{} for _ in calls]
    for call in collectives:
        if call.is_blocking:
            last_ns = int(call.begin_ns.max())
            for rank, i, block in zip(call.members.tolist(), call.i_call.tolist(), call.blocks, strict=True):
                deeds[rank].blocks[i].append(block)
                all_begun_ns[rank][i] = last_ns
    begun = [call for call in collectives if not call.is_blocking]
    for call in sorted(begun, key=lambda call: int(call.begin_ns.max())):
        at_ns = int(call.begin_ns.max())
        for rank, i, block in zip(call.members.tolist(), call.i_call.tolist(), call.blocks, strict=True):
            _add_at(deeds[rank], calls[rank], (i, at_ns), all_begun_ns[rank], block)


def _add_at(
    deeds: Deeds, calls: RankCalls, begun: tuple[int, int], all_begun_ns: Mapping[int, int], block: Program
) -> None:
    """Add a collective that a call started, at the instant at which all ranks execute it."""
    i_begun, at_ns = begun
    following = max(int(np.searchsorted(calls.begin_ns, at_ns)), i_begun + 1)
    current = following - 1
    is_inside = current > i_begun and calls.end_ns[current] > at_ns
    if is_inside and current not in all_begun_ns:
        deeds.blocks_between[current].append(block)
    elif is_inside and all_begun_ns[current] >= at_ns:
        deeds.blocks_before[current].append(block)
    elif following < len(calls):
        deeds.blocks_before[following].append(block)
    else:
        deeds.blocks[current].append(block)
