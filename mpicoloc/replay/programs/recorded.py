"""Programs of ranks from the calls that they recorded.

What a rank did between its messages and collectives becomes computation. A trace tells which messages a call
sent and took, not of which request: a receive is posted where the rank began one that is still open, and a
send is waited for where the recorded run waited, but never before its receive was posted there. So what a
replay waits for has always begun earlier in the recorded run, and no replay can come to a standstill.
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
"""A rank that stood without processor for less of its time counts as never interrupted."""
TURN_NS = 2_000_000
"""A process that Linux lets run keeps the processor for about 1 to 4 ms while others wait."""


def running_frac(cpu_s: float, run_delay_s: float) -> float:
    """Part of the time in which a rank could run that it had a processor; 1 if that is not known."""
    if not (np.isfinite(cpu_s) and np.isfinite(run_delay_s)) or cpu_s <= 0 or run_delay_s <= 0:
        return 1.0
    return cpu_s / (cpu_s + run_delay_s)


def processor_ns(burst_ns: Array, kind: Array, running: float) -> NDArray[np.int64]:
    """Processor time of each burst of one rank, of which only the time between two MPI calls was recorded.

    Where more ranks than processors ran, a rank stood ready without one for part of that time, in whole turns
    of other processes. The system tells how long over the whole run only, and most of that is in MPI calls,
    where ranks wait busily. So bursts between the same two calls are compared: of short ones most were not
    interrupted, and one that was is as long as the others and a turn of another process. Bursts longer than a
    turn were all interrupted, and had the processor for the same part of their time as the rank on the whole.

    Shapes: `burst_ns` (n,), `kind` (n,), result (n,). Result: no burst gets longer.

    Of a kind with a median below `TURN_NS`, a burst that exceeds it by half a turn and by the median itself
    becomes the median. Bursts of the other kinds are multiplied by `running`.
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
"""Communicator of what one rank puts into another or gets from it."""


@dataclass(frozen=True)
class RankCalls:
    """The MPI calls of one rank in the order of their begins; `function` indexes the names of a trace.

    `lead_ns` and `tail_ns` are computation before the first and after the last of them.
    """

    begin_ns: Array
    end_ns: Array
    function: Array
    lead_ns: int = 0
    tail_ns: int = 0

    def __len__(self) -> int:
        return len(self.begin_ns)

    def at(self, begin_ns: Array) -> Array:
        """Number of the call that began at each of these times."""
        return np.searchsorted(self.begin_ns, begin_ns)


@dataclass(frozen=True)
class RecordedMessages:
    """Messages of which both ends are known, in the order of their sends; arrays of shape (n_messages,).

    `send_ns` and `take_ns` are the begins of the calls that sent and took it. `tag` tells messages between
    the same two ranks apart.
    """

    src: Array
    dst: Array
    n_bytes: Array
    send_ns: Array
    take_ns: Array
    tag: Array


@dataclass(frozen=True)
class Part:
    """The part of a recorded run that is replayed: what began at `begin_ns` or later, and before `end_ns`."""

    begin_ns: int
    end_ns: int

    def holds(self, *at_ns: Array) -> NDArray[np.bool_]:
        """Whether all of these are in it; arrays of one shape."""
        return np.all([(self.begin_ns <= at) & (at < self.end_ns) for at in at_ns], axis=0)

    def calls(self, own: RankCalls) -> RankCalls:
        """The calls that begin in it, and what the rank computes there before and after them."""
        first, last = np.searchsorted(own.begin_ns, [self.begin_ns, self.end_ns]).tolist()

        def free_ns(n: int) -> int:
            """The later of the end of the rank's first `n` calls and the begin of the part, in ns."""
            return max(self.begin_ns, int(own.end_ns[:n].max(initial=self.begin_ns)))

        lead_ns = int(own.begin_ns[first]) - free_ns(first) if 0 < first < last else 0
        tail_ns = min(self.end_ns, int(own.begin_ns[last])) - free_ns(last) if 0 < last < len(own) else 0
        kept = slice(first, last)
        columns = own.begin_ns[kept], own.end_ns[kept], own.function[kept]
        return RankCalls(*columns, max(lead_ns, 0), max(tail_ns, 0))

    def messages(self, all_of_them: RecordedMessages) -> RecordedMessages:
        """The messages that are sent and taken in it."""
        keep = self.holds(all_of_them.send_ns, all_of_them.take_ns)
        return RecordedMessages(*(column[keep] for column in vars(all_of_them).values()))

    def collectives(
        self, all_of_them: Sequence[PlacedCollective], calls: Sequence[RankCalls]
    ) -> list[PlacedCollective]:
        """The collectives that all members call in it; `calls` are those of the whole run."""
        first = np.array([np.searchsorted(own.begin_ns, self.begin_ns) for own in calls])
        return [
            replace(one, i_call=one.i_call - first[one.members])
            for one in all_of_them
            if self.holds(one.begin_ns).all()
        ]

    def one_sided(self, all_of_them: OneSided, calls: Sequence[RankCalls]) -> OneSided:
        """The transfers that begin in it; `calls` are those in it, of which the target needs one."""
        keep = self.holds(all_of_them.begin_ns) & np.array([len(own) > 0 for own in calls])[all_of_them.peer]
        return OneSided(*(column[keep] for column in vars(all_of_them).values()))


def taken_part(
    part: Part,
    calls: Sequence[RankCalls],
    messages: RecordedMessages,
    collectives: Sequence[PlacedCollective],
) -> tuple[list[RankCalls], RecordedMessages, list[PlacedCollective], str]:
    """Calls of a run that are in a part of it, and a note of what is cut.

    Raises `DataError` if no call is in it.
    """
    kept, sent = [part.calls(own) for own in calls], part.messages(messages)
    placed = part.collectives(collectives, calls)
    n_calls = sum(map(len, kept))
    if not n_calls:
        begins = np.concatenate([own.begin_ns for own in calls])
        raise DataError(
            "no MPI call begins in the part from --from-s to --until-s: the last one begins "
            f"{np.ptp(begins) / 1e9:g} s after the first"
        )
    n_messages = int((part.holds(messages.send_ns) | part.holds(messages.take_ns)).sum()) - len(sent.src)
    n_collectives = sum(bool(part.holds(one.begin_ns).any()) for one in collectives) - len(placed)
    note = (
        f"{n_calls:,} of {counted(sum(map(len, calls)), 'call')} are replayed; left out as they cross the "
        f"edges: {counted(n_messages, 'message')}, {counted(n_collectives, 'collective')}"
    )
    return kept, sent, placed, note


class Functions:
    """The effects of the functions of a trace on requests, by their numbers."""

    def __init__(self, names: Sequence[str]) -> None:
        self.waits, self.posts, self.starts, self.blocks, self.synchronous, self.windows = (
            np.array([pattern.fullmatch(name) is not None for name in names], bool)
            for pattern in (_WAITS, _POSTS, _STARTS, _BLOCKING_SENDS, _SYNCHRONOUS, _WINDOW_CALLS)
        )


def _by_call() -> defaultdict[int, list[Any]]:
    return defaultdict(list)


@dataclass
class Deeds:
    """The operations of a rank at each of its calls, by the call's number.

    Parameters
    ----------
    waited_before : mapping of int to list
        Keys of requests that must be complete before anything else is done.
    posted : mapping of int to list
        Operations that begin: (kind, peer, bytes, tag, comm, flags, key).
    waited : mapping of int to list
        Keys of requests that are waited for then.
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
        """Calls at which something is done."""
        blocks = (*self.blocks_before, *self.blocks_between, *self.blocks)
        return {*blocks, *self.waited_before, *self.posted, *self.waited}


def posting_calls(
    calls: RankCalls, functions: Functions, taken_at: Array, sent_at: Array | None = None
) -> Array:
    """Number of the call in which each received message's receive was posted.

    Shapes: `taken_at` (n,).

    A receive that a wait or test completed was posted by the oldest call that is still open. Where a rank
    posted more than it completed, some posts were of no partner or cancelled: then it is the latest one.
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
    """Where a rank waits for what it began, which others made possible at `possible_ns`.

    Shapes: result (n, 2). Result: number of the call (that of all calls: the end), and 1 if it is one that
    waits, 0 if it is waited before another call.
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
    """Enter messages into what the ranks do."""
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
    """Enter receives; returns when each was posted in the recorded run."""
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
    """Data that ranks put into others or got from them (`is_got` 1); arrays of shape (n,)."""

    rank: Array
    peer: Array
    bytes: Array
    begin_ns: Array
    is_got: Array


def add_one_sided(
    deeds: Sequence[Deeds], calls: Sequence[RankCalls], functions: Functions, transfers: OneSided
) -> None:
    """Enter one-sided transfers, as messages for which the target makes no call.

    The target is ready for one since its call before, and has it at its next call of the window's. The origin
    waits at its own next one. What the window's calls send themselves is left out.
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
            # A transfer is told from others by its number, for many may be on their way at once.
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
    """Rows of each rank that has any, in this order."""
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
        Times as fast as it was recorded.
    running : float
        Part of its time in which the rank had a processor.
    """

    cpu_speed: float = 1.0
    running: float = 1.0


def programs(
    names: Sequence[str], calls: Sequence[RankCalls], deeds: Sequence[Deeds], tempos: Sequence[Tempo]
) -> list[Program]:
    """The program of each rank; `names` are those of functions."""
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
    """Computation before each of these calls, and after the last, ns."""
    ends = np.maximum.accumulate(calls.end_ns[kept])
    between = np.maximum(calls.begin_ns[kept][1:] - ends[:-1], 0)
    wall = np.concatenate([[calls.lead_ns] * min(len(kept), 1), between, [calls.tail_ns]])
    function = calls.function[kept].astype(np.int64)
    kind = np.concatenate([[0], function[:-1]])[: len(function)] * (int(function.max(initial=0)) + 1)
    kind = np.append(kind + function, -1)
    return np.rint(processor_ns(wall, kind, tempo.running) / tempo.cpu_speed).astype(np.int64)


def _do(builder: ProgramBuilder, requests: dict[Any, int], deeds: Deeds, i: int, exchange: str) -> None:
    """Add the operations of call `i`; `exchange`: its name if it is a send-receive, else empty."""
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
    """Nothing yet, of each rank."""
    return [Deeds() for _ in range(n_ranks)]


@dataclass(frozen=True)
class PlacedCollective:
    """A collective in the calls of its members; arrays in their order.

    `is_blocking` is False if the calls only begin it.
    """

    members: Array
    i_call: Array
    begin_ns: Array
    is_blocking: bool
    blocks: Sequence[Program]


def add_collectives(
    deeds: Sequence[Deeds], calls: Sequence[RankCalls], collectives: Sequence[PlacedCollective]
) -> None:
    """Enter collectives into what the ranks do.

    What is only begun is done at one instant of the recorded run in all ranks, when the last has begun it:
    before each one's next call. A rank that was in a call then does it after that call's posts and before its
    waits; if the call was a collective that all had begun, after that.
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
    """Enter what was begun in a call and is done at an instant."""
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
