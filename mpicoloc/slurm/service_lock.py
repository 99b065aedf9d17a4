"""A lock for the pairing service: two services would move each other's jobs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from typing import TextIO

from mpicoloc.errors import EnvironmentFault
from mpicoloc.schedule.sharing_plan import Partitions

_HELD: list[TextIO] = []


def _close_locks() -> None:
    for file in _HELD:
        file.close()


# A child that reads a profile may hang and outlive the service; it must not keep the lock.
os.register_at_fork(after_in_child=_close_locks)


@contextlib.contextmanager
def hold_lock(partitions: Partitions) -> Iterator[None]:
    """Hold the lock of these partitions; the system lets go of it when the process ends.

    Without a place for the lock, or on a file system without locks, there is none.

    Raises
    ------
    EnvironmentFault
        If another service holds it.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    words = "\0".join((os.environ.get("SLURM_CONF", ""), partitions.alone, partitions.shared))
    name = f"pair-{hashlib.sha256(words.encode(errors='surrogateescape')).hexdigest()[:16]}.lock"
    path = os.path.join(cache, "mpicoloc", name)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = stack.enter_context(open(path, "a", encoding="utf-8"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EnvironmentFault(
                    f"another `mpicoloc pair --watch` steers {partitions.alone} and {partitions.shared} "
                    f"({path} is locked): end it first, or look with --dry-run"
                ) from None
            _HELD.append(file)
            stack.callback(_HELD.remove, file)
        yield
