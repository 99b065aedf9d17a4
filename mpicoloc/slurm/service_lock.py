"""One pairing service at a time: two would send each other's jobs about."""

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


def _let_go() -> None:
    for file in _HELD:
        file.close()


# A process that reads a profile for the service may hang and outlive it, and keeps no new one out.
os.register_at_fork(after_in_child=_let_go)


@contextlib.contextmanager
def only_one(partitions: Partitions) -> Iterator[None]:
    """While this user's only service of these partitions of this Slurm works; it ends with the process.

    Without a place for the lock, or where the file system knows none, nobody is kept out.

    Raises
    ------
    EnvironmentFault
        If another one is at work.
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
