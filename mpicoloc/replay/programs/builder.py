"""Build programs of ranks from single operations or whole collectives."""

from __future__ import annotations

import contextlib
import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Array
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.traffic import mpich, openmpi
from mpicoloc.network.traffic.collective import Collective, Library, Messages
from mpicoloc.replay.native import ABSOLUTE, OP, SHIFT, Operation

Program = NDArray[np.void]
_N_AT_ONCE = 1 << 15
_NAMES = (
    *("barrier", "bcast", "reduce", "allreduce", "alltoall", "alltoallv", "alltoallw", "gather", "gatherv"),
    *("scatter", "scatterv", "allgather", "allgatherv", "reduce_scatter", "reduce_scatter_block"),
    *("scan", "exscan", "neighbor_allgather", "neighbor_allgatherv"),
    *("neighbor_alltoall", "neighbor_alltoallv", "neighbor_alltoallw"),
)
COLLECTIVES = tuple(f"MPI_{(begin + name).capitalize()}" for begin in ("", "i") for name in _NAMES)
EXCHANGES = ("MPI_Sendrecv", "MPI_Sendrecv_replace")
CALLS = COLLECTIVES + EXCHANGES
"""Calls that consist of several operations. In each of these operations, `flags` >> `CALL_SHIFT` is the
position of the call in this tuple, plus 1."""
FIRST, CALL_SHIFT = 8, 8
"""Flag of the first operation of such a call, and shift of the call's number. The simulator ignores both."""
_Row = tuple[int, int, int, int, int, int, int, int, int]


@dataclass(frozen=True)
class RankPrograms:
    """The operations of the ranks of a job.

    Parameters
    ----------
    name : str
        Name of the job.
    programs : tuple of ndarray
        Programs, each run by one or more ranks.
    program_of_rank : ndarray of int, shape (n_ranks,)
        Index of each rank's program.
    notes : tuple of str
        Assumptions, and missing data.
    """

    name: str
    programs: tuple[Program, ...]
    program_of_rank: NDArray[np.int32]
    notes: tuple[str, ...] = ()

    @property
    def n_ranks(self) -> int:
        """Number of ranks of the job."""
        return len(self.program_of_rank)


class ProgramBuilder:
    """Builds one program by adding operations; times are in whole ns, sizes in bytes.

    A request is a slot in the rank's table; `extend` puts the requests of a block above all slots in use.
    """

    def __init__(self) -> None:
        self._chunks: list[Program] = []
        self._rows: list[_Row] = []
        self._in_use: set[int] = set()
        self._free: list[int] = []
        self._n_slots = 0
        self._flags = 0

    def compute(self, duration_ns: int) -> None:
        """Compute for some time."""
        if duration_ns > 0:
            self.raw(Operation.COMPUTE, value=duration_ns)

    def send(self, peer: int, n_bytes: int, tag: int = 0, comm: int = 0, flags: int = 0) -> None:
        """Blocking send: the rank continues when MPI lets the sender go on."""
        self.raw(Operation.SEND, peer=peer, tag=tag, comm=comm, value=n_bytes, flags=flags)

    def recv(self, peer: int, n_bytes: int, tag: int = 0, comm: int = 0, flags: int = 0) -> None:
        """Blocking receive: the rank continues when the message has arrived."""
        self.raw(Operation.RECV, peer=peer, tag=tag, comm=comm, value=n_bytes, flags=flags)

    def isend(self, peer: int, n_bytes: int, tag: int = 0, comm: int = 0, flags: int = 0) -> int:
        """Start a send; returns the request."""
        slot = self._claim()
        self.raw(Operation.ISEND, peer=peer, tag=tag, comm=comm, request=slot, value=n_bytes, flags=flags)
        return slot

    def irecv(self, peer: int, n_bytes: int, tag: int = 0, comm: int = 0, flags: int = 0) -> int:
        """Start a receive; returns the request."""
        slot = self._claim()
        self.raw(Operation.IRECV, peer=peer, tag=tag, comm=comm, request=slot, value=n_bytes, flags=flags)
        return slot

    def wait_all(self, requests: Sequence[int]) -> None:
        """Wait for requests, with one operation for each run of consecutive slots."""
        slots = np.unique(np.asarray(requests, np.int64))
        for run in np.split(slots, np.flatnonzero(np.diff(slots) != 1) + 1):
            if len(run) == 1:
                self.raw(Operation.WAIT, request=int(run[0]))
            elif len(run):
                self.raw(Operation.WAITALL, request=int(run[0]), n=len(run))
        for slot in slots.tolist():
            self._release(slot)

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Mark operations added inside the block as one call of `CALLS`; an empty name marks nothing."""
        self._flags = (CALLS.index(name) + 1) << CALL_SHIFT | FIRST if name else 0
        yield
        self._flags = 0

    @contextlib.contextmanager
    def loop(self, n: int) -> Iterator[None]:
        """Repeat the operations added inside the block `n` times."""
        self.raw(Operation.LOOP, n=n)
        yield
        self.raw(Operation.END)

    def extend(self, block: Program) -> None:
        """Add operations whose requests are numbered from 0 and complete within the block."""
        if not len(block):
            return
        base = max(self._in_use, default=-1) + 1
        if base:
            block = block.copy()
            block["request"] += base
        self._flush()
        self._chunks.append(block)

    def build(self) -> Program:
        """The program of all operations added so far."""
        self._flush()
        return np.concatenate(self._chunks) if self._chunks else np.zeros(0, OP)

    def raw(
        self,
        kind: int,
        peer: int = 0,
        tag: int = 0,
        comm: int = 0,
        request: int = 0,
        n: int = 0,
        value: int = 0,
        peer_mode: int = ABSOLUTE,
        flags: int = 0,
    ) -> None:
        """Add any operation; arguments are the fields of `native.OP`."""
        flags |= self._flags
        self._flags &= ~FIRST
        self._rows.append((kind, peer_mode, flags, peer, tag, comm, request, n, value))
        if len(self._rows) >= _N_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        try:
            self._chunks.append(np.array(self._rows, OP))
        except OverflowError:
            raise DataError(
                "a number in a program is too large: keep times (ns) and messages (bytes) below 2^63, and "
                "tags below 2^31"
            ) from None
        self._rows = []

    def _claim(self) -> int:
        if self._free:
            slot = heapq.heappop(self._free)
        else:
            slot, self._n_slots = self._n_slots, self._n_slots + 1
        self._in_use.add(slot)
        return slot

    def _release(self, slot: int) -> None:
        if slot in self._in_use:
            self._in_use.remove(slot)
            heapq.heappush(self._free, slot)


def shared(name: str, program: Program, n_ranks: int, notes: tuple[str, ...] = ()) -> RankPrograms:
    """A job whose ranks all run the same program."""
    return RankPrograms(name, (program,), np.zeros(n_ranks, np.int32), notes)


def of_each(name: str, programs: Sequence[Program], notes: tuple[str, ...] = ()) -> RankPrograms:
    """A job in which each rank has its own program."""
    return RankPrograms(name, tuple(programs), np.arange(len(programs), dtype=np.int32), notes)


def shift_fields(offset: int, step: int = 0) -> dict[str, Any]:
    """Fields of an operation with the peer that is `offset` + `step` * (loop counter) ranks further on."""
    return {"peer_mode": SHIFT, "peer": offset, "n": step}


_Message = tuple[Array, Array, Array, Array]


def blocks(
    messages: Messages, members: Array, comm: int, name: str, is_blocking: bool = True
) -> list[Program]:
    """Operations of each member of a collective; `name` is a name of `Collective`.

    Messages that were added together form one round. If they form a tree, a rank receives before it sends;
    otherwise it starts both and waits for both.

    Shapes: `members` (n_ranks,). Result: one program for each rank of the communicator; requests are numbered
    from 0.

    The arithmetic of reductions takes no time.
    """
    builders = [ProgramBuilder() for _ in members]
    for row in messages.rows:
        for part in _of_equal_numbers(row):
            _add_round(part, members, comm, builders)
    return [of_collective(builder.build(), name, is_blocking) for builder in builders]


def of_collective(program: Program, name: str, is_blocking: bool) -> Program:
    """Mark operations as one call of a collective."""
    number = _NAMES.index(name) + 1 + (0 if is_blocking else len(_NAMES))
    program["flags"] |= number << CALL_SHIFT
    program["flags"][:1] |= FIRST
    return program


def _of_equal_numbers(row: _Message) -> list[_Message]:
    """The messages of a round, grouped by the number of times that they are sent."""
    src, dst, n_bytes, n = row
    is_sent = (src != dst) & (n > 0)
    numbers = np.unique(n[is_sent])
    chosen = [is_sent & (n == k) for k in numbers]
    return [(src[rows], dst[rows], n_bytes[rows], n[rows]) for rows in chosen]


def _add_round(row: _Message, members: Array, comm: int, builders: Sequence[ProgramBuilder]) -> None:
    """Add messages that are all sent `n` times; each rank repeats them in a loop."""
    src, dst, n_bytes, n = row
    n_times = int(n[0])
    after = _descendants(src, dst, len(members))
    is_ordered = after is not None
    # A rank serves its largest subtree first, as in all libraries.
    order = np.argsort(-after[dst], kind="stable") if after is not None else np.arange(len(src))
    out: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    into: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for i in order.tolist():
        out[int(src[i])].append((int(members[dst[i]]), int(n_bytes[i])))
        into[int(dst[i])].append((int(members[src[i]]), int(n_bytes[i])))
    for rank in sorted({*out, *into}):
        _add_rank(builders[rank], (into[rank], out[rank]), n_times, comm, is_ordered)


def _add_rank(
    builder: ProgramBuilder,
    ends: tuple[list[tuple[int, int]], list[tuple[int, int]]],
    n_times: int,
    comm: int,
    is_ordered: bool,
) -> None:
    """Add receives and sends of one rank in one round.

    If the bytes cannot be divided evenly between repeated messages, the first message also has the rest.
    """
    into, out = ends
    rests = [[(peer, size // n_times + size % n_times) for peer, size in side] for side in ends]
    _exchange(builder, rests[0], rests[1], comm, is_ordered)
    if n_times > 1:
        parts = [[(peer, size // n_times) for peer, size in side] for side in (into, out)]
        with builder.loop(n_times - 1):
            _exchange(builder, parts[0], parts[1], comm, is_ordered)


def _exchange(
    builder: ProgramBuilder,
    into: Sequence[tuple[int, int]],
    out: Sequence[tuple[int, int]],
    comm: int,
    is_ordered: bool,
) -> None:
    if is_ordered and len(into) == 1:
        builder.recv(*into[0], comm=comm)
        into = ()
    if is_ordered and not into and len(out) == 1:
        builder.send(*out[0], comm=comm)
        return
    requests = [builder.irecv(peer, size, comm=comm) for peer, size in into]
    if is_ordered:
        builder.wait_all(requests)
        requests = []
    requests += [builder.isend(peer, size, comm=comm) for peer, size in out]
    builder.wait_all(requests)


def _descendants(src: Array, dst: Array, p: int) -> Array | None:
    """Number of ranks in the subtree below each rank, or None if the messages form a cycle."""
    receivers: defaultdict[int, list[int]] = defaultdict(list)
    for sender, receiver in zip(src.tolist(), dst.tolist(), strict=True):
        receivers[sender].append(receiver)
    n_served = np.ones(p, np.int64)
    try:
        for rank in TopologicalSorter(receivers).static_order():
            n_served[rank] += n_served[receivers.get(rank, [])].sum()
    except CycleError:
        return None
    return n_served


class Chosen:
    """A library with algorithms chosen by the user for some collectives.

    Parameters
    ----------
    library : Library
        Library that chooses for all other collectives.
    choices : mapping of str to str
        Algorithm by collective, with the names of `algorithms`.

    Raises
    ------
    UsageError
        If there is no such algorithm.
    """

    def __init__(self, library: Library, choices: Mapping[str, str]) -> None:
        self._library = library
        self._chosen = {}
        for name, algorithm in choices.items():
            known = algorithms(name)
            if algorithm not in known:
                what = f"algorithms of {name} are" if known else "collectives with algorithms are"
                words = ", ".join(known or sorted(_names()))
                raise UsageError(f"--algorithm {name}={algorithm}: {what} {words}")
            self._chosen[name] = known[algorithm]

    def messages(self, call: Collective) -> Messages:
        """Messages of the call by the user's algorithm, or by the library's if the user chose none."""
        algorithm = self._chosen.get(call.name)
        has_bytes = call.name == "barrier" or call.parts.sum() * call.item_bytes > 0
        if algorithm is None or call.n_ranks < 2 or not has_bytes:
            return self._library.messages(call)
        return algorithm(call, self._library)

    def is_exchange(self, call: Collective) -> bool:
        """Whether each rank sends a message of the same size to each other rank."""
        return call.name not in self._chosen and self._library.is_exchange(call)


def _names() -> set[str]:
    """Collectives with known algorithms."""
    return {words.split(" ", 1)[0] for words in mpich.ALGORITHMS} | set(openmpi.ALGORITHMS)


def algorithms(name: str) -> dict[str, Any]:
    """Algorithms of a collective by name: MPICH's algorithms, and those of Open MPI as ``openmpi-N``."""
    of_mpich = {
        words.split(" ", 1)[1].replace(", ", "-"): algorithm
        for words, algorithm in mpich.ALGORITHMS.items()
        if words.startswith(f"{name} ")
    }
    of_openmpi = openmpi.ALGORITHMS.get(name, {})
    return of_mpich | {f"openmpi-{number}": algorithm for number, algorithm in of_openmpi.items()}
