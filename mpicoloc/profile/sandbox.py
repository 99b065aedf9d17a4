"""Work on a file of somebody else in its own process: what crashes the HDF5 library crashes only that one.

Its answer comes back as bytes, which the caller reads as data and never as code. Root's process gives up all
rights first, so that a file that takes it over has won nothing; what it reads was opened before. Anybody
else's is one of the same user: this protects from damage, and is no wall against what takes the process over.
"""

from __future__ import annotations

import contextlib
import ctypes
import encodings.ascii  # noqa: F401 (imported now: the child that needs it may not be allowed to read the file)
import faulthandler
import fcntl
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, BinaryIO, NoReturn, TypeVar

from mpicoloc.errors import MALFORMED, DataError, EnvironmentFault, MpicolocError, Refused, UsageError

T = TypeVar("T")
Pieces = Iterable[bytes | memoryview]
CPU_S = (30, 300)
"""Longest processor time for reading a file, s, to which each of its MiB adds one; and the longest of all."""
MEMORY_BYTES = min(12 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
"""Most memory that it may take, three times the most that a profile has: the file's, a copy, the answer."""
WAIT_S = 900.0
"""Longest wait for an answer, s: three times the processor time that it may take, as it could sleep."""
END_S = 5.0
"""Longest wait for the end of a process that was killed, s: one that sleeps in the kernel, as in a call to a
server that is gone, ends only when that answers."""
NOBODY = 65534
"""User and group who may do nothing."""

_LEFT: list[int] = []
_GOOD, _BAD, _END = b"+", b"-", b"."
_PIPE_BYTES = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_PRCTL = ((38, 1), (4, 0), (1, 9))
"""PR_SET_NO_NEW_PRIVS; PR_SET_DUMPABLE: no other process of that user can look into this one;
PR_SET_PDEATHSIG: it is killed when the thread that waits for its answer is."""
_ERRORS = {kind.__name__: kind for kind in (Refused, UsageError, DataError, EnvironmentFault)}


class Child:
    """A process at work on a file, and what it has answered so far.

    `files` are those that it needs, open; of a generator they are opened in the process, with all rights.
    """

    def __init__(
        self,
        path: str,
        work: Callable[[], Pieces],
        *,
        files: Iterable[BinaryIO] = (),
        uid: int = NOBODY,
        keeps_rights: bool = False,
        most_bytes: int = MEMORY_BYTES,
        memory_bytes: int | None = None,
    ) -> None:
        self.path = path
        self.waited_s = 0.0
        """Time for which we have waited for its answer."""
        self._most_bytes = most_bytes + len(_GOOD + _END)
        self._answer = bytearray()
        self._has_ended = False
        self._reader, writer = os.pipe()
        with contextlib.suppress(OSError):  # a user may have too many of them
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._reader)
            most_memory_bytes = MEMORY_BYTES if memory_bytes is None else memory_bytes
            _work(path, work, writer, None if keeps_rights else (uid, files), most_memory_bytes)
        os.close(writer)

    @property
    def is_late(self) -> bool:
        """It has not answered in `WAIT_S`."""
        return not self._has_ended and self.waited_s >= WAIT_S

    def end(self) -> None:
        """Whatever it does by now: its answer says whether it came to the end."""
        os.close(self._reader)
        end(self._pid)

    def answer(self, read: Callable[[memoryview], T]) -> T:
        """Its answer, as `read` reads it; errors as of `run_in_child`."""
        if self.is_late or not self._answer.endswith(_END):
            raise damage(self.path)
        content = memoryview(self._answer)[1:-1]
        if self._answer[:1] == _BAD:
            raise error(self.path, bytes(content))
        if self._answer[:1] != _GOOD:
            raise damage(self.path)
        try:
            return read(content)
        except (MpicolocError, *MALFORMED) as fault:
            raise damage(self.path) from fault

    @staticmethod
    def first(children: Sequence[Child]) -> list[Child]:
        """Those that have answered, or are late, after a wait for anything that one of them says."""
        poll, began_s = select.poll(), time.monotonic()
        for child in children:
            poll.register(child._reader, select.POLLIN)
        left_s = WAIT_S - max(child.waited_s for child in children)
        ready = dict(poll.poll(1e3 * max(0.0, left_s)))
        waited_s = time.monotonic() - began_s
        for child in children:
            child.waited_s += waited_s
            if child._reader in ready:
                child._listen()
        return [child for child in children if child._has_ended or child.is_late]

    def _listen(self) -> None:
        piece = os.read(self._reader, 1 << 20)
        self._answer += piece
        self._has_ended = not piece
        if len(self._answer) > self._most_bytes:
            self._has_ended, self._answer = True, bytearray()


def run_in_child(path: str, work: Callable[[], Pieces], read: Callable[[memoryview], T], **limits: Any) -> T:
    """The answer of `work`, as `read` reads it; raises the error of `work` if that is one of ours.

    `limits` as of `Child`. Raises `DataError` if the process did not live to the end of it, or its answer is
    none. Raises `EnvironmentFault` if it cannot give up its rights.
    """
    child = Child(path, work, **limits)
    try:
        while not Child.first([child]):
            pass
    finally:
        child.end()
    return child.answer(read)


def end(child: int) -> None:
    """Kill a process and wait for its end; one that does not end in `END_S` is left, and waited for later."""
    os.kill(child, signal.SIGKILL)
    _LEFT[:] = [pid for pid in _LEFT if not _has_ended(pid)]
    deadline_s, nap_s = time.monotonic() + END_S, 1e-4
    while not _has_ended(child):
        if time.monotonic() > deadline_s:
            _LEFT.append(child)
            return
        time.sleep(nap_s)
        nap_s = min(2 * nap_s, 0.05)


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:  # somebody else has waited for it
        return True


def damage(path: str) -> DataError:
    """The error of a file that a process did not survive."""
    return DataError(
        f"{path} is damaged: its reader crashes or does not end; copy it again, or run the job again"
    )


def error(path: str, answer: bytes | bytearray) -> MpicolocError:
    """The error that `error_as_json` made bytes of."""
    try:
        kind, words = json.loads(answer)
        return _ERRORS[kind](str(words))
    except MALFORMED:
        return damage(path)


def _work(
    path: str,
    work: Callable[[], Pieces],
    writer: int,
    rights: tuple[int, Iterable[BinaryIO]] | None,
    memory_bytes: int,
) -> NoReturn:
    """In the child: answer through the pipe, and leave without the parent's goodbyes."""
    try:
        try:
            confine(memory_bytes)
            grant_time(_size_bytes(path))
            if rights is not None:
                uid, files = rights
                renounce(uid, [writer, *(file.fileno() for file in files)])
            answer = [_GOOD, *work()]
        except MemoryError:
            most = f"{memory_bytes >> 20} MiB"
            answer = [
                _BAD,
                error_as_json(
                    DataError(f"{path} takes more than {most} of memory, so it is not read: leave it out")
                ),
            ]
        except MpicolocError as fault:
            answer = [_BAD, error_as_json(fault)]
        with open(writer, "wb") as pipe:
            for piece in answer:
                pipe.write(piece)
            pipe.write(_END)
    finally:
        os._exit(0)


def renounce(uid: int, kept: Collection[int]) -> None:
    """Become that user for good, with nothing open but `kept`, after `confine`; errors as of
    `run_in_child`.
    """
    uid = uid or NOBODY
    try:
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in (0, 1, 2, *kept):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        for std in {0, 1}.difference(kept):
            os.dup2(2, std)  # /dev/null by now
        if os.geteuid() == 0 and _is_user_here(uid):
            for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
                resource.setrlimit(kind, (0, 0))
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(uid, uid, uid)
        for option, value in _PRCTL:
            if _LIBC.prctl(option, value, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")
    except OSError as fault:
        raise EnvironmentFault(
            f"the rights of user {uid} cannot be assumed ({fault}), so nothing is read: "
            "call this as another user than root, or with CAP_SETUID and CAP_SETGID"
        ) from None


def _is_user_here(uid: int) -> bool:
    """In a container that has no user but root, root is the user who made it, with no other's rights."""
    with open("/proc/self/uid_map") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    return any(first <= uid < first + n for first, _, n in ranges)


def error_as_json(fault: MpicolocError) -> bytes:
    """An error as JSON."""
    return json.dumps([type(fault).__name__, str(fault)]).encode()


def address_space_bytes() -> int:
    """This process's address space now, as ``RLIMIT_AS`` counts."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _size_bytes(path: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0


def confine(memory_bytes: int | None = None) -> None:
    """Limit this process, whose crash nobody else shall write about between the lines of ours."""
    faulthandler.disable()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: address_space_bytes() + (MEMORY_BYTES if memory_bytes is None else memory_bytes),
    }
    for kind, most in wanted.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def grant_time(n_bytes: int) -> None:
    """Limit processor time from now on to what so much may take: damage can make HDF5 turn in circles."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + 1 + min(CPU_S[0] + (n_bytes >> 20), CPU_S[1])
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
