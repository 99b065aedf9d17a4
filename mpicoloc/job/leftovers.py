"""Finds shared-memory files of jobs whose processes and keeper are gone, and removes them on request.

A job's keeper removes its files; they are left behind only if the keeper was killed too, or never started.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mpicoloc import config
from mpicoloc.errors import MpicolocError
from mpicoloc.job import init_barrier
from mpicoloc.pmpi import contract
from mpicoloc.profile import machine
from mpicoloc.profile.machine import is_running

_NAME = re.compile(
    r"mpicoloc\.(.+)\.(?:\d+\.seg|\d+\.(?:here|in[012])|node|log|init|off|init-probe|checkpoint)"
)
_BOARD = re.compile(r"mpicoloc\.abi\d+\.board")
_OLD_BOARD = "mpicoloc.board"
"""Name of the board in all layout versions before 14."""
_BOARD_BYTES_MAX = 1 << 20
_MARK = re.compile(r"\.(\d+)\.(?:here|in[012])$")
"""Names of files that exist as long as their process does."""
QUIET_S = 60.0
"""Grace period, s: files whose owner gave a sign of life in this period are kept, because the owner's
processes may be in another PID namespace, such as a container."""


@dataclass(frozen=True)
class Leftover:
    """The files of one job of this user; the job has no living process."""

    key: str
    paths: tuple[str, ...]

    def remove(self) -> int:
        """Delete the files; returns the number that still existed."""
        n = 0
        for path in self.paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                n += 1
        return n


def find(folder: str, key: str | None = None, quiet_s: float = QUIET_S) -> list[Leftover]:
    """Files in `folder` of this user's jobs that have ended, in the order of the jobs' keys.

    Unreadable files, files of other versions of mpicoloc or of other users, and boards (see `boards`) are
    left out. Raises `OSError` if the folder cannot be read.
    """
    jobs = files(folder, key)
    if not jobs:
        return []
    # All arguments and environment entries of the processes that this user may look into.
    words = set().union(*map(_words_of, _pids()))
    gone = {k: paths for k, paths in jobs.items() if not _is_named(k, words) and _is_over(paths, quiet_s)}
    return [Leftover(k, tuple(paths)) for k, paths in gone.items()]


def boards(folder: str) -> list[Leftover]:
    """Boards of this user in `folder`, of any version of mpicoloc, that have no living job."""
    paths = {name: os.path.join(folder, name) for name in sorted(os.listdir(folder))}
    return [Leftover(name, (path,)) for name, path in paths.items() if _is_board_over(name, path)]


def _is_board_over(name: str, path: str) -> bool:
    """Whether a file is a board of this user that has no living job."""
    with contextlib.suppress(MpicolocError, OSError):
        if _BOARD.fullmatch(name) and contract.is_own_file(path):
            return contract.n_on_board(path, QUIET_S) == 0
        return name == _OLD_BOARD and contract.is_own_file(path) and _is_old_board_over(path)
    return False


def foreign_boards(folder: str) -> list[str]:
    """Paths of boards in `folder` of other versions of mpicoloc, of any user."""
    own = os.path.basename(contract.board_path())
    names = (name for name in sorted(os.listdir(folder)) if _BOARD.fullmatch(name) or name == _OLD_BOARD)
    return [os.path.join(folder, name) for name in names if name != own]


def _is_old_board_over(path: str) -> bool:
    """Whether an old board has no living job, whatever the layout of its version.

    A slot holds its agent's process, encoded as by `mc_board_owner`, and the time of the last sign of life.
    So the board has no living job if no word of the file can be such a time or process.
    """
    with contract.open_shared(path) as file:
        content = file.read(_BOARD_BYTES_MAX)
        if len(content) == _BOARD_BYTES_MAX or content[:4] != contract.MC_MAGIC.to_bytes(4, sys.byteorder):
            return False
    words = set(memoryview(content)[: len(content) // 8 * 8].cast("Q"))
    now_ns = time.monotonic_ns()
    if any(now_ns - QUIET_S * 1e9 < word <= now_ns for word in words):
        return False
    return words.isdisjoint(map(_owner, _pids()))


def _owner(pid: str) -> int:
    fields = machine.stat_fields(pid)
    return int(pid) << 32 | int(fields[19]) & 0xFFFFFFFF if fields else -1


def processes(jobs: Mapping[str, Iterable[str]]) -> set[int]:
    """Living processes of jobs, given by key and files: ranks, coordinators, keepers, writers.

    Reads all of /proc, so do not call it frequently.
    """
    found = {_rank_of(path) for paths in jobs.values() for path in paths if path.endswith(".seg")}
    for pid in _pids():
        words = _words_of(pid)
        if any(_is_named(key, words) for key in jobs):
            found.add(int(pid))
    return found - {0}


def _rank_of(path: str) -> int:
    """The process of a segment, or 0 if it has ended; used if the process's environment cannot be read."""
    with contextlib.suppress(MpicolocError, OSError):
        segment = contract.read_file(path)
        return int(segment["pid"]) if is_running(segment) else 0
    return 0


def files(folder: str, key: str | None = None) -> dict[str, list[str]]:
    """Files in `folder` by job key: those of all jobs of this user, ended or not, or of job `key` alone."""
    found: dict[str, list[str]] = {}
    for name in sorted(os.listdir(folder)):
        match = _NAME.fullmatch(name)
        path = os.path.join(folder, name)
        if match and key in (None, match[1]) and contract.is_own_file(path):
            found.setdefault(match[1], []).append(path)
    return found


def _pids() -> list[str]:
    return list(filter(str.isdigit, os.listdir("/proc")))


def _words_of(pid: str) -> set[bytes]:
    return {word for what in ("cmdline", "environ") for word in init_barrier.entries(pid, what)}


def _is_named(key: str, words: set[bytes]) -> bool:
    """Whether a process's arguments or environment name the job, as those of its processes do."""
    return key.encode() in words or f"{config.KEY_ENV}={key}".encode() in words


def _is_over(paths: Iterable[str], quiet_s: float) -> bool:
    try:
        return all(_is_quiet(path, quiet_s) for path in paths)
    except (MpicolocError, OSError):
        return False


def _is_quiet(path: str, quiet_s: float) -> bool:
    if time.time() - os.stat(path).st_mtime < quiet_s:
        return False
    if path.endswith(".seg"):
        segment = contract.read_file(path)
        if is_running(segment):
            return False
        signs = [
            *(segment[name] for name in ("t_init", "t_last", "t_finalize")),
            contract.latest_call_ns(segment),
        ]
    elif mark := _MARK.search(path):
        return not os.path.exists(f"/proc/{mark[1]}")
    elif path.endswith(".node"):
        signs = [contract.read_file(path)["t_last"]]
    else:
        return True
    # The times in the files are of the same clock, CLOCK_MONOTONIC.
    return time.monotonic() - max(int(sign) for sign in signs) * 1e-9 >= quiet_s
