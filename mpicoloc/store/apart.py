"""Work on a file of somebody else in its own process: what crashes the HDF5 library crashes only that one.

Its answer comes back as bytes, which the caller reads as data and never as code. The process is one of the
same user: this protects from damage, and is no wall against what takes the process over.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
import resource
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from mpicoloc.core.bundle import STRANGE
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, Refused, UsageError

T = TypeVar("T")
Pieces = Iterable[bytes | memoryview]
CPU_S = (30, 300)
"""Longest processor time for reading a file, s, to which each of its MiB adds one; and the longest of all."""
MEMORY_BYTES = min(12 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
"""Most memory that it may take, three times the most that a profile has: the file's, a copy, the answer."""

_GOOD, _BAD = b"+", b"-"
_PIPE_BYTES = 1 << 20
_ERRORS = {kind.__name__: kind for kind in (Refused, UsageError, DataError, EnvironmentFault)}


def apart(path: str, work: Callable[[], Pieces], read: Callable[[memoryview], T]) -> T:
    """What `work` answers, as `read` reads it; or what it raises, if that is an error of ours.

    Parameters
    ----------
    path : str
        The file, for messages.
    work : callable
        Done in the process of its own; its answer, in pieces.
    read : callable
        Done here with all of the answer, which it must not trust.

    Raises
    ------
    DataError
        If the process did not live to the end of it, or its answer is none.
    """
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):  # a user may have too many of them
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(path, work, writer)
    os.close(writer)
    answer = bytearray()
    with open(reader, "rb", buffering=0) as pipe:
        while len(answer) <= MEMORY_BYTES and (piece := pipe.read(1 << 20)):
            answer += piece
    is_whole = os.waitpid(child, 0)[1] == 0
    if is_whole and answer[:1] == _BAD:
        raise error(path, answer[1:])
    if not is_whole or answer[:1] != _GOOD:
        raise damage(path)
    try:
        return read(memoryview(answer)[1:])
    except (MpicolocError, *STRANGE) as fault:
        raise damage(path) from fault


def damage(path: str) -> DataError:
    """The error of a file that a process did not survive."""
    return DataError(
        f"{path} is damaged: what reads it crashes or does not end; copy it again, or run the job again"
    )


def error(path: str, answer: bytes | bytearray) -> MpicolocError:
    """The error that `told` made bytes of."""
    try:
        kind, words = json.loads(answer)
        return _ERRORS[kind](str(words))
    except STRANGE:
        return damage(path)


def _work(path: str, work: Callable[[], Pieces], writer: int) -> NoReturn:
    """In the child: answer through the pipe, and leave without the parent's goodbyes."""
    code = 1
    try:
        try:
            confine()
            grant_time(path)
            answer = [_GOOD, *work()]
        except MemoryError:
            most = f"{MEMORY_BYTES >> 20} MiB"
            answer = [_BAD, told(DataError(f"{path} takes more than {most}; no profile does"))]
        except MpicolocError as fault:
            answer = [_BAD, told(fault)]
        with open(writer, "wb") as pipe:
            for piece in answer:
                pipe.write(piece)
        code = 0
    finally:
        os._exit(code)


def told(fault: MpicolocError) -> bytes:
    """An error as JSON."""
    return json.dumps([type(fault).__name__, str(fault)]).encode()


def address_space_bytes() -> int:
    """What this process has of it now, as ``RLIMIT_AS`` counts."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def confine() -> None:
    """Limit this process, whose crash nobody else shall write about between the lines of ours."""
    faulthandler.disable()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: address_space_bytes() + MEMORY_BYTES,
    }
    for kind, most in wanted.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def grant_time(*paths: str) -> None:
    """Limit processor time from now on to what these files may take: damage can make HDF5 turn in circles."""
    n_mib = 0
    for path in paths:
        with contextlib.suppress(OSError):
            n_mib += os.stat(path).st_size >> 20
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + 1 + min(CPU_S[0] + n_mib, CPU_S[1])
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
