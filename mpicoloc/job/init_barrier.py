"""Detects, without using MPI, that the application on this node is about to start MPI."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from mpicoloc import config
from mpicoloc.job import blind_ranks
from mpicoloc.pmpi import contract

OFF = "off"
"""Suffix of the empty file by which a rank announces that it has switched mpicoloc off."""
POLL_S = 0.02
SCAN_EVERY_S = 1.0
START_WITHIN_S = 3.0
"""Time limit, s, for a rank to reach `mpicoloc.wrap`; `GONE_FOR_S` later, the rank counts as ended."""
GONE_FOR_S = 2.0
CONNECT_S = 1.0
"""Time for ranks to load MPI and connect to the launcher. The launcher of Open MPI 4 may hang if a rank dies
earlier."""
LEFT_POLL_S = 1e-3
WORD_WITHIN_S = 1.0
"""Longest time between a rank's creation of its announcement file and the write to it."""


def wait_for_init(
    key: str,
    announcement: str,
    n_ranks: int,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until a rank of this node begins MPI_Init or MPI_Session_init; returns False if no rank will.

    Raises `EnvironmentFault` if ranks have begun MPI without the library: they hang until the job is ended.
    """
    if not _can_make(announcement):
        return True
    parent = os.getppid()
    lookout = blind_ranks.Lookout(key, clock)
    started_s = gone_since_s = scanned_s = clock()
    n_most = 0
    while not os.path.exists(announcement):
        now_s = clock()
        if now_s - scanned_s >= SCAN_EVERY_S:
            scanned_s = now_s
            processes = blind_ranks.processes()
            lookout.check(processes)
            n_now = len(pids(key)) or len(processes)
            n_most = max(n_most, n_now)
            is_starting = n_most < n_ranks and (now_s - started_s < START_WITHIN_S or any_at_wrap())
            if n_now or is_starting:
                gone_since_s = now_s
            if now_s - gone_since_s >= GONE_FOR_S or os.getppid() != parent:
                return False
        sleep(POLL_S)
    return True


def any_is_off(key: str) -> bool:
    """Whether a rank of this node has switched mpicoloc off, and so has no segment."""
    return os.path.exists(contract.shm_path(key, OFF))


def announced(announcement: str) -> list[tuple[str, int]]:
    """For each process that has begun MPI: the kind of its start, "init" or "session", and the round.

    A file that stays empty, because memory is full, counts as the first MPI_Init.
    """
    deadline_s = time.monotonic() + WORD_WITHIN_S
    while os.path.exists(announcement):
        with contextlib.suppress(OSError, ValueError), contract.open_shared(announcement) as file:
            if words := [line.decode().split() for line in file]:
                return [(how, int(i_round)) for how, i_round in words]
        if time.monotonic() >= deadline_s:
            return [("init", 0)]
        time.sleep(POLL_S)
    return []


class Record:
    """The coordinator's record in the announcement file; `csrc/guest/world/launch.c` writes the ranks'."""

    def __init__(self, announcement: str) -> None:
        self._path = announcement
        self._place = -1

    def begin(self, i_round: int) -> None:
        """Record that this process has ended all earlier rounds, and wait until all processes here have."""
        how_len = contract.MC_HOW_LEN
        line = f"{'wrap':{how_len}}{i_round:{contract.MC_RECORD_LEN - how_len - 1}}\n".encode()
        with contextlib.suppress(OSError):
            self._write(line)
        deadline_s = time.monotonic() + contract.MC_ROUND_WAIT_MS * 1e-3
        while any(last < i_round for _, last in announced(self._path)) and time.monotonic() < deadline_s:
            time.sleep(LEFT_POLL_S)

    def _write(self, line: bytes) -> None:
        flags = os.O_WRONLY | (os.O_APPEND if self._place < 0 else 0)
        with contract.open_shared(self._path, flags) as file:
            if self._place >= 0:
                os.pwrite(file.fileno(), line, self._place)
            elif file.write(line) == len(line):
                self._place = file.tell() - len(line)


def _can_make(path: str) -> bool:
    try:
        contract.open_shared(path + "-probe", os.O_CREAT | os.O_WRONLY).close()
        os.unlink(path + "-probe")
    except OSError:
        return False
    return True


def pids(key: str) -> list[int]:
    """Processes of this user's ranks of job `key` on this node, with their children."""
    wanted = {f"{config.KEY_ENV}={key}".encode(), f"{config.COORDINATOR_ENV}=1".encode()}
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and wanted <= set(entries(name, "environ"))
    ]


def end_all(key: str, n_ranks: int, announcement: str) -> None:
    """End the ranks on this node once all have started, because they would wait in MPI_Init forever."""
    deadline_s = time.monotonic() + START_WITHIN_S
    while len(pids(key)) < n_ranks and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
    time.sleep(CONNECT_S)
    with contextlib.suppress(OSError):
        os.unlink(announcement)  # first, because the launcher may end this process with a rank
    for pid in pids(key):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)


def any_at_wrap() -> bool:
    """Whether a rank is not yet the application; ranks of other jobs count, which only delays the end."""
    python = _executable("self")
    # Comparing executables excludes the launcher, whose arguments contain the same words.
    return any(
        name.isdigit() and b"mpicoloc.wrap" in entries(name, "cmdline") and _executable(name) == python
        for name in os.listdir("/proc")
    )


def _executable(pid: str) -> str | None:
    """The executable of a process; None if the process is gone or another user's."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def entries(pid: str, what: str) -> list[bytes]:
    """Words of the file "cmdline" or "environ" of a process in /proc; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []
