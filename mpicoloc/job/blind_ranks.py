"""Detects ranks that use MPI without mpicoloc's library: they would hang in MPI_Init with the coordinator."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping

from mpicoloc.errors import EnvironmentFault
from mpicoloc.job.processes import DAEMONS, stat
from mpicoloc.pmpi import contract

PAST = "past"
"""Suffix of the empty file by which a rank announces that it opened a second MPI by dlmopen
(`mc_announce_trouble`)."""
PATIENCE_S = 3.0
"""A process that has had MPI but not the library for this time, s, is a rank and not a tool of a script."""
FOREIGN_PATIENCE_S = 15.0
"""The same time for processes of another user, whose libraries are not visible."""
_LIBRARY = b"/libmpicoloc-"
_SHMEM = b"/liboshmem.so"
_MPI = re.compile(rb"/lib(p?mpi|mpich)(_abi|\.so)")
_LOADER = b"/ld-"
READY, WITH_LIBRARY, BLIND, FOREIGN, OTHER = "ready", "with library", "blind", "foreign", "other"


def processes() -> dict[int, int]:
    """Descendants of the launcher's process on this node, each with its parent; parents come before children.

    The branch that contains this process is left out.
    """
    names: dict[int, str] = {}
    parents: dict[int, int] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        fields = stat(pid)
        if fields and fields[1] != "Z":
            names[int(pid)], parents[int(pid)] = fields[0], int(fields[2])
    branch = os.getpid()
    while (parent := parents.get(branch, 0)) > 1 and not names.get(parent, "").startswith(DAEMONS):
        branch = parent
    if parent <= 1:  # the launcher is not visible: its ranks are siblings of this process
        branch, parent = os.getpid(), os.getppid()
    parents.pop(branch, None)
    return _below(parent, parents)


def _below(top: int, parents: Mapping[int, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    n_before = -1
    while len(found) > n_before:
        n_before = len(found)
        found |= {pid: above for pid, above in parents.items() if above == top or above in found}
    return found


def look(pid: int) -> str:
    """The state of a process: whether it has loaded MPI, the library, or both.

    A process with OpenSHMEM is `BLIND`, because OpenSHMEM starts MPI unseen by the library.
    """
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            maps = file.read()
        if _SHMEM in maps:
            return BLIND
        if _LIBRARY in maps:
            return READY if _MPI.search(maps) else WITH_LIBRARY
        if maps and (_MPI.search(maps) or (_LOADER not in maps and _contains_mpi(f"/proc/{pid}/exe"))):
            return BLIND
    except PermissionError:
        return FOREIGN
    except (OSError, ValueError):
        pass  # it has ended
    return OTHER


def _contains_mpi(program: str) -> bool:
    """Whether a program is linked statically with MPI, and so contains MPI's messages with function names."""
    with open(program, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
        return image.find(b"MPI_Init") >= 0


class Lookout:
    """Detects that this node's ranks can never begin MPI under mpicoloc."""

    def __init__(self, key: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._past = contract.shm_path(key, PAST)
        self._clock = clock
        self._since_s: dict[str, float] = {}

    def check(self, found: Mapping[int, int]) -> None:
        """Look at the processes in `found`, which maps each to its parent; call this at every check of ranks.

        Raises `EnvironmentFault` if the job must be ended.
        """
        states = {pid: look(pid) for pid in found}
        is_begun = READY in states.values() and not os.path.exists(self._past)
        blind = next((pid for pid, state in states.items() if state == BLIND), None)
        leaves = {states[pid] for pid in found.keys() - set(found.values())}
        if self._lasts("past", os.path.exists(self._past), PATIENCE_S):
            raise EnvironmentFault(
                "a rank loads MPI by dlmopen, so mpicoloc cannot keep the coordinator out of its world: "
                f"{ENDED}"
            )
        if self._lasts("blind", blind is not None and not is_begun, PATIENCE_S):
            raise EnvironmentFault(
                f"{_name(blind)} (process {blind}) starts MPI unseen by mpicoloc's library: it is "
                "linked statically, uses OpenSHMEM, or LD_PRELOAD was changed before it started: "
                f"{ENDED}"
            )
        is_foreign = FOREIGN in leaves and not leaves & {READY, WITH_LIBRARY}
        if self._lasts("foreign", is_foreign, FOREIGN_PATIENCE_S):
            raise EnvironmentFault(
                f"this node's ranks run as another user, without mpicoloc's library: {ENDED}"
            )

    def _lasts(self, what: str, is_so: bool, patience_s: float) -> bool:
        if not is_so:
            self._since_s.pop(what, None)
            return False
        return self._clock() - self._since_s.setdefault(what, self._clock()) >= patience_s


ENDED = (
    "the job is ended; start it with its own mpirun, and set LD_PRELOAD=$(mpicoloc preload APP) just "
    "before APP"
)


def _name(pid: int | None) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return "a program"


def end_all() -> None:
    """End the ranks of this node, which would wait in MPI_Init forever."""
    found: list[int] = []
    # Stop all processes first: a child forked in the meantime would outlive its rank and keep the launcher
    # waiting.
    while new := [pid for pid in processes() if pid not in found]:
        _signal(new, signal.SIGSTOP)
        found += new
    # Signal children before parents: as soon as one rank ends, the launcher ends this process, which could
    # then not signal the rest.
    _signal(found[::-1], signal.SIGTERM)
    _signal(found[::-1], signal.SIGCONT)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
