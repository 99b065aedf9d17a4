"""Read foreign files in child processes: a file that crashes the HDF5 library then crashes only the child.

The child's answer comes back as bytes, which the caller reads as data, never as code. If the caller is root,
the child's files are opened first, and then the child gives up all rights, so that a file that exploits a bug
gains no rights. If the caller is another user, the child keeps that user's rights: this protects against
damaged files, but not against exploits.
"""

from __future__ import annotations

import contextlib
import ctypes
import encodings.ascii  # noqa: F401 (imported here: the child needs it, but may have no right to read its file)
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
"""Limits on processor time for a file, s: a base, to which each MiB of the file adds 1 s, and the maximum."""
MEMORY_BYTES = min(12 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
"""Memory limit of a child, three times the largest profile: the file, a copy, and the answer."""
WAIT_S = 900.0
"""Longest wait for an answer, s: three times the maximum processor time, because the child may also sleep."""
END_S = 5.0
"""Longest wait for a killed process to end, s: a process in an uninterruptible kernel call, such as to a dead
file server, does not end before the call returns."""
NOBODY = 65534
"""User and group without any rights."""

_LEFT: list[int] = []
_GOOD, _BAD, _END = b"+", b"-", b"."
_PIPE_BYTES = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_PRCTL = ((38, 1), (4, 0), (1, 9))
"""PR_SET_NO_NEW_PRIVS; PR_SET_DUMPABLE: other processes of that user cannot trace this one;
PR_SET_PDEATHSIG: the kernel kills this process when the thread that waits for its answer dies."""
_ERRORS = {kind.__name__: kind for kind in (Refused, UsageError, DataError, EnvironmentFault)}


class Child:
    """A child process that works on a file, and its answer so far.

    `files` are the open files that the child needs. If `files` is a generator, the child opens them itself
    before it gives up its rights.
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
        """Time spent waiting for the child's answer."""
        self._most_bytes = most_bytes + len(_GOOD + _END)
        self._answer = bytearray()
        self._has_ended = False
        self._reader, writer = os.pipe()
        with contextlib.suppress(OSError):  # the user's limit on pipe buffers may be reached
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._reader)
            most_memory_bytes = MEMORY_BYTES if memory_bytes is None else memory_bytes
            _work(path, work, writer, None if keeps_rights else (uid, files), most_memory_bytes)
        os.close(writer)

    @property
    def is_late(self) -> bool:
        """Whether the child has not answered within `WAIT_S`."""
        return not self._has_ended and self.waited_s >= WAIT_S

    def end(self) -> None:
        """Kill the child in any state: the last byte of its answer shows whether the answer is complete."""
        os.close(self._reader)
        end(self._pid)

    def answer(self, read: Callable[[memoryview], T]) -> T:
        """The child's answer, parsed by `read`; raises the errors of `run_in_child`."""
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
        """Wait until a child sends something; returns the children that have answered or are late."""
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
    """Run `work` in a child and parse its answer with `read`; raises a `MpicolocError` that `work` raises.

    `limits` are parameters of `Child`. Raises `DataError` if the child dies early or its answer is invalid,
    `EnvironmentFault` if it cannot give up its rights.
    """
    child = Child(path, work, **limits)
    try:
        while not Child.first([child]):
            pass
    finally:
        child.end()
    return child.answer(read)


def end(child: int) -> None:
    """Kill a process and wait for its end; if that takes longer than `END_S`, a later call reaps it."""
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
    except ChildProcessError:  # already reaped elsewhere
        return True


def damage(path: str) -> DataError:
    """The error for a file that crashed its reader."""
    return DataError(
        f"{path} is damaged: reading it crashes or does not end; copy it again, or run the job again"
    )


def error(path: str, answer: bytes | bytearray) -> MpicolocError:
    """The error that `error_as_json` encoded."""
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
    """Run in the child: answer through the pipe, and exit without running the parent's exit handlers."""
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
                    DataError(f"{path} is not read, as it takes more than {most} of memory: leave it out")
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
    """Become this user for good, and close all files but `kept`; call `confine` first.

    Raises the errors of `run_in_child`.
    """
    uid = uid or NOBODY
    try:
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in (0, 1, 2, *kept):
                with contextlib.suppress(OSError):
                    os.close(int(name))
        for std in {0, 1}.difference(kept):
            os.dup2(2, std)  # `confine` has redirected 2 to /dev/null
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
            f"cannot take the rights of user {uid} ({fault}), so nothing is read: "
            "run this as a user other than root, or with CAP_SETUID and CAP_SETGID"
        ) from None


def _is_user_here(uid: int) -> bool:
    """Whether this user namespace has the user.

    In a container whose only user is root, root has only the rights of the user who started it.
    """
    with open("/proc/self/uid_map") as file:
        ranges = [tuple(map(int, line.split())) for line in file]
    return any(first <= uid < first + n for first, _, n in ranges)


def error_as_json(fault: MpicolocError) -> bytes:
    """An error as JSON."""
    return json.dumps([type(fault).__name__, str(fault)]).encode()


def address_space_bytes() -> int:
    """The current size of this process's address space, as counted by ``RLIMIT_AS``."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _size_bytes(path: str) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0


def confine(memory_bytes: int | None = None) -> None:
    """Limit this process's memory, and silence it: a crash must not print between the parent's lines."""
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
    """Limit further processor time according to the bytes to read: damage can make HDF5 loop endlessly."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + 1 + min(CPU_S[0] + (n_bytes >> 20), CPU_S[1])
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
