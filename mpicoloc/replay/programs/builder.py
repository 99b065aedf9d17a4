"""Programs of ranks, written operation by operation."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpicoloc.replay.native import ABSOLUTE, OP, SHIFT, Operation

Program = NDArray[np.void]
_N_AT_ONCE = 1 << 15
_Row = tuple[int, int, int, int, int, int, int, int, int]


@dataclass(frozen=True)
class RankPrograms:
    """What the ranks of a job do.

    Parameters
    ----------
    name : str
        Of the job.
    programs : tuple of ndarray
        Programs, each of one or more ranks.
    program_of_rank : ndarray of int, shape (n_ranks,)
        Index of each rank's program.
    notes : tuple of str
        What is assumed, and what is missing.
    """

    name: str
    programs: tuple[Program, ...]
    program_of_rank: NDArray[np.int32]
    notes: tuple[str, ...] = ()

    @property
    def n_ranks(self) -> int:
        """Ranks of the job."""
        return len(self.program_of_rank)


class ProgramBuilder:
    """One program, to which operations are added; times are whole ns, sizes bytes.

    A request is a slot in the rank's table; `free_slot` is the lowest above all that are in use.
    """

    def __init__(self) -> None:
        self._chunks: list[Program] = []
        self._rows: list[_Row] = []
        self._in_use: set[int] = set()
        self._free: list[int] = []
        self._n_slots = 0

    def compute(self, duration_ns: int) -> None:
        """Compute for some time."""
        if duration_ns > 0:
            self.raw(Operation.COMPUTE, value=duration_ns)

    def send(self, peer: int, n_bytes: int, tag: int = 0, comm: int = 0, flags: int = 0) -> None:
        """Send, and go on when MPI lets a sender go on."""
        self.raw(Operation.SEND, peer=peer, tag=tag, comm=comm, value=n_bytes, flags=flags)

    def recv(self, peer: int, n_bytes: int, tag: int = 0, comm: int = 0, flags: int = 0) -> None:
        """Receive, and go on when the message is there."""
        self.raw(Operation.RECV, peer=peer, tag=tag, comm=comm, value=n_bytes, flags=flags)

    def isend(self, peer: int, n_bytes: int, tag: int = 0, comm: int = 0, flags: int = 0) -> int:
        """Begin to send; returns the request."""
        slot = self._claim()
        self.raw(Operation.ISEND, peer=peer, tag=tag, comm=comm, request=slot, value=n_bytes, flags=flags)
        return slot

    def irecv(self, peer: int, n_bytes: int, tag: int = 0, comm: int = 0, flags: int = 0) -> int:
        """Begin to receive; returns the request."""
        slot = self._claim()
        self.raw(Operation.IRECV, peer=peer, tag=tag, comm=comm, request=slot, value=n_bytes, flags=flags)
        return slot

    def wait_all(self, requests: Sequence[int]) -> None:
        """Wait for requests; those with neighbouring slots in one operation."""
        slots = np.unique(np.asarray(requests, np.int64))
        for run in np.split(slots, np.flatnonzero(np.diff(slots) != 1) + 1):
            if len(run) == 1:
                self.raw(Operation.WAIT, request=int(run[0]))
            elif len(run):
                self.raw(Operation.WAITALL, request=int(run[0]), n=len(run))
        for slot in slots.tolist():
            self._release(slot)

    @contextlib.contextmanager
    def loop(self, n: int) -> Iterator[None]:
        """Repeat what is added inside `n` times."""
        self.raw(Operation.LOOP, n=n)
        yield
        self.raw(Operation.END)

    def extend(self, block: Program) -> None:
        """Add operations whose requests are numbered from 0 and free again at their end."""
        if not len(block):
            return
        base = max(self._in_use, default=-1) + 1
        if base:
            block = block.copy()
            block["request"] += base
        self._flush()
        self._chunks.append(block)

    def build(self) -> Program:
        """All operations that were added."""
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
        """Add any operation; its fields by their names in `native.OP`."""
        self._rows.append((kind, peer_mode, flags, peer, tag, comm, request, n, value))
        if len(self._rows) >= _N_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._chunks.append(np.array(self._rows, OP))
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
    """A job whose ranks have a program each."""
    return RankPrograms(name, tuple(programs), np.arange(len(programs), dtype=np.int32), notes)


def shift_fields(offset: int, step: int = 0) -> dict[str, Any]:
    """Fields of an operation whose peer is `offset` + `step` times the loop's counter ranks further on."""
    return {"peer_mode": SHIFT, "peer": offset, "n": step}
