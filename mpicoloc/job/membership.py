"""The coordinator's part in the job's MPI: what the application opens, MPI_Init or a session, it opens too.

The library's start and end are collective over all processes of the launcher, coordinators included, and the
shim splits each world that it finds: every call here has its counterpart in ``csrc/guest/world/world.c`` or
``csrc/guest/world/sessions.c``.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, Any

from mpicoloc.job import init_barrier
from mpicoloc.pmpi import contract

if TYPE_CHECKING:
    from mpi4py import MPI

POLL_MS = 20
TAG = "mpicoloc"
"""Tag of the communicator that the shim's own session makes."""


class Membership:
    """The worlds that this coordinator shares with the application, from one start of MPI to its end.

    Attributes
    ----------
    comm : mpi4py.MPI.Comm
        All coordinators.
    """

    def __init__(self, mpi: Any, announcement: str, record: init_barrier.Record, i_round: int = 0) -> None:
        self.mpi = mpi
        self.announcement = announcement
        self.record = record
        self.i_round = i_round
        self.comm: MPI.Comm = mpi.COMM_NULL
        self._real: MPI.Comm = mpi.COMM_NULL
        self._session: Any = None
        self._in_world = False

    @property
    def may_grow(self) -> bool:
        """Whether MPI_Init may still come."""
        return not self._in_world

    def join(self) -> None:
        """Join the application, which begins to use MPI."""
        self.record.begin(self.i_round)
        if self._is_announced("session"):
            self._join_session()
        else:
            self._join_world()  # also where no file can be made: most applications use MPI_Init

    def look(self) -> None:
        """Join MPI_COMM_WORLD too when the application, which began with a session, calls MPI_Init."""
        if self.may_grow and self._is_announced("init"):
            self._join_world()

    def _is_announced(self, how: str) -> bool:
        return (how, self.i_round) in init_barrier.announced(self.announcement)

    def _join_world(self) -> None:
        self.mpi.Init_thread(self.mpi.THREAD_FUNNELED)
        self._in_world = True
        self._split(self.mpi.COMM_WORLD)

    def _join_session(self) -> None:
        mpi = self.mpi
        self._session = mpi.Session.Init(mpi.INFO_NULL, mpi.ERRORS_RETURN)  # waits for all processes
        if self._is_announced("init"):
            self._join_world()
            return
        group = self._session.Create_group("mpi://WORLD")
        real = mpi.Intracomm.Create_from_group(group, TAG, mpi.INFO_NULL, mpi.ERRORS_RETURN)
        group.Free()
        self._split(real)

    def _split(self, real: MPI.Comm) -> None:
        comm = real.Split(1, real.Get_rank())
        if self.comm == self.mpi.COMM_NULL:
            self.comm, self._real = comm, real
        else:
            comm.Free()

    def sleep_through(self) -> None:
        """Sleep until the ranks take their leave, where nothing is recorded any more."""
        goodbye = self._real.Ibarrier()
        while not goodbye.Test():
            self.look()
            time.sleep(POLL_MS * 1e-3)

    def leave(self) -> None:
        """End MPI with the application."""
        if self.comm != self.mpi.COMM_NULL:
            self.comm.Free()
        if self._session is not None:
            if self._real not in (self.mpi.COMM_NULL, self.mpi.COMM_WORLD):
                self._real.Free()
            self._session.Finalize()
        if self._in_world:
            self.mpi.Finalize()


# mpi4py's methods for any object set an attribute on MPI_COMM_SELF, which a session has not.


def first_with(comm: MPI.Comm, is_true: bool) -> int:
    """First rank for which it is true, 0 if for none."""
    flags = bytearray(comm.Get_size())
    comm.Allgather(bytes([is_true]), flags)
    return max(0, flags.find(1))


def gather(comm: MPI.Comm, content: bytes, root: int) -> list[bytes] | None:
    """All ranks' contents at `root`, None elsewhere."""
    sizes = array.array("q", [0] * comm.Get_size())
    comm.Allgather(array.array("q", [len(content)]), sizes)
    if comm.Get_rank() != root:
        comm.Send(content, root)
        return None
    parts = []
    for source, size in enumerate(sizes):
        part = bytearray(size)
        if source != root:
            comm.Recv(part, source)
        parts.append(content if source == root else bytes(part))
    return parts


def bcast(comm: MPI.Comm, number: int, root: int) -> int:
    """The number of `root`, everywhere."""
    told = array.array("q", [number])
    comm.Bcast(told, root)
    return told[0]


class Ranks:
    """The application's processes, of which one may start MPI again after it was ended (MPI 4)."""

    def __init__(self, key: str) -> None:
        self._fds = []
        for head in contract.segment_heads(key):
            with contextlib.suppress(OSError):  # gone already
                self._fds.append(os.pidfd_open(head.pid))

    def begin_again(self, announcement: str, i_round: int) -> bool:
        """Wait until MPI is announced for round `i_round`; False once all of them have ended."""
        parent = os.getppid()
        poll = select.poll()
        left = set(self._fds)
        for fd in left:
            poll.register(fd, select.POLLIN)
        while left and os.getppid() == parent:
            if any(last >= i_round for _, last in init_barrier.announced(announcement)):
                return True
            for fd, _ in poll.poll(POLL_MS):
                poll.unregister(fd)
                left.discard(fd)
        return False
