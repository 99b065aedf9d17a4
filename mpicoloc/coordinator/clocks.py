"""How far the clocks of a job's nodes are apart: Cristian's method over MPI.

Each node has its own CLOCK_MONOTONIC, which began when the node was booted. The first coordinator exchanges
messages with each other one in turn; the quickest exchange bounds the error by half of its way. Who waits for
a message looks often for some milliseconds, sleeping between, and then gives up until its next step: a
coordinator has other duties, and its partner may stand still.
"""

from __future__ import annotations

import array
import time
from collections.abc import Generator
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
_END = 0
_LOOK_S, _LOOKS = 0.00003, 700
"""Between two looks for a message, and so many of them: longer than two steps of a coordinator are apart."""
_NAP_S = 0.0005

Steps = Generator[None, None, "Offset"]


class Offset(NamedTuple):
    """This node's clock minus that of the first, as it was found at `t_ns`, give or take `error_ns`."""

    offset_ns: int
    error_ns: int
    t_ns: int
    drift: float = DRIFT

    def bound_ns(self, at_ns: int) -> int:
        """How wrong it may be at another time."""
        return self.error_ns + int(abs(at_ns - self.t_ns) * self.drift)

    def better(self, new: Offset, at_ns: int) -> Offset:
        """This one or a new one: on a crowded node an older one may still be the better one."""
        is_contradicted = abs(new.offset_ns - self.offset_ns) > self.bound_ns(new.t_ns) + new.error_ns
        return new if is_contradicted or new.bound_ns(at_ns) <= self.bound_ns(at_ns) else self


FIRST = Offset(0, 0, 0, 0.0)
"""Of the first node, by definition."""


def now_ns() -> int:
    """CLOCK_MONOTONIC, as in all of mpicoloc."""
    return time.monotonic_ns()


def offset(comm: MPI.Comm) -> Steps:
    """This node's offset; all of `comm` takes part, whose first rank is on the first node."""
    if comm.Get_rank() > 0:
        return (yield from _answer(comm))
    for other in range(1, comm.Get_size()):
        yield from _measure(comm, other)
    return FIRST


def _measure(comm: MPI.Comm, other: int) -> Generator[None, None, None]:
    back = array.array("q", [0, 0])
    best = Offset(0, UNKNOWN_NS, 0)
    for i in range(1, N_MAX + 1):
        t0 = now_ns()
        comm.Send(array.array("q", [i, 0]), other, TAG)
        while not _is_there(comm, other, _LOOKS if i > 1 else 1):
            yield
        comm.Recv(back, other, TAG)
        t1 = now_ns()
        best = min(best, Offset(back[1] - (t0 + t1) // 2, (t1 - t0 + 1) // 2, 0), key=lambda o: o.error_ns)
        if i >= N_MIN:
            if best.error_ns <= GOOD_NS:
                break
            time.sleep(_NAP_S)  # whoever was in the way may be gone
    comm.Send(array.array("q", [_END, 0]), other, TAG)
    comm.Send(array.array("q", [best.offset_ns, best.error_ns]), other, TAG)


def _answer(comm: MPI.Comm) -> Steps:
    message = array.array("q", [_END, 0])
    n_looks = 1
    while True:
        while not _is_there(comm, 0, n_looks):
            yield
        n_looks = _LOOKS
        comm.Recv(message, 0, TAG)
        if message[0] == _END:
            break
        comm.Send(array.array("q", [message[0], now_ns()]), 0, TAG)
    comm.Recv(message, 0, TAG)
    return Offset(message[0], message[1], now_ns())


def _is_there(comm: MPI.Comm, source: int, n_looks: int) -> bool:
    """A message; without spinning: who spins on a full node has to give up its processor just then."""
    for i in range(n_looks):
        if i:
            time.sleep(_LOOK_S)
        if comm.Iprobe(source, TAG):
            return True
    return False
