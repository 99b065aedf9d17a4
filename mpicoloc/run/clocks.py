"""How far the clocks of a job's nodes are apart: Cristian's method over MPI.

Each node has its own CLOCK_MONOTONIC, which began when the node was booted. The first coordinator sends each
other one its messages there and back; the quickest of them bounds the error by half of its way.
"""

from __future__ import annotations

import array
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mpi4py import MPI

N_MIN, N_MAX = 8, 48
"""Exchanges with each node."""
GOOD_NS = 100_000
"""A way so short that more exchanges are not worth it."""
TAG = 77
DRIFT = 50e-6
"""Two clocks of computers run apart by less than this, s per s."""
UNKNOWN_NS = 1 << 60
_NAP_S = 0.0005
_LOOK_S = 0.00003
_ASK, _END = 0, 1


class Offset(NamedTuple):
    """This node's clock minus that of the first, as it was found at `t_ns`, give or take `error_ns`."""

    offset_ns: int
    error_ns: int
    t_ns: int

    def bound_ns(self, at_ns: int) -> int:
        """How wrong it may be at a later time."""
        return self.error_ns + int((at_ns - self.t_ns) * DRIFT)


def now_ns() -> int:
    """CLOCK_MONOTONIC, as in all of mpicoloc."""
    return time.monotonic_ns()


def offset(comm: MPI.Comm) -> Offset:
    """This node's offset; collective over `comm`, whose first rank is on the first node."""
    if comm.Get_rank() > 0:
        return _answer(comm)
    for other in range(1, comm.Get_size()):
        _measure(comm, other)
    return Offset(0, 0, now_ns())


def _measure(comm: MPI.Comm, other: int) -> None:
    back = array.array("q", [0, 0])
    best = Offset(0, UNKNOWN_NS, 0)
    for i in range(N_MAX):
        if i >= N_MIN:
            if best.error_ns <= GOOD_NS:
                break
            time.sleep(_NAP_S)  # whoever was in the way may be gone
        t0 = now_ns()
        comm.Send(array.array("q", [_ASK, 0]), other, TAG)
        _receive(comm, back, other)
        t1 = now_ns()
        best = min(best, Offset(back[0] - (t0 + t1) // 2, (t1 - t0 + 1) // 2, 0), key=lambda o: o.error_ns)
    comm.Send(array.array("q", [_END, 0]), other, TAG)
    comm.Send(array.array("q", [best.offset_ns, best.error_ns]), other, TAG)


def _answer(comm: MPI.Comm) -> Offset:
    message = array.array("q", [_ASK, 0])
    while True:
        _receive(comm, message, 0)
        if message[0] == _END:
            break
        comm.Send(array.array("q", [now_ns(), 0]), 0, TAG)
    comm.Recv(message, 0, TAG)
    return Offset(message[0], message[1], now_ns())


def _receive(comm: MPI.Comm, message: array.array[int], source: int) -> None:
    """Receive without spinning: who spins on a full node has to give up its processor just then."""
    while not comm.Iprobe(source, TAG):
        time.sleep(_LOOK_S)
    comm.Recv(message, source, TAG)
