"""A bound for the memory of verbs that read files of others."""

from __future__ import annotations

import functools
import resource
from argparse import Namespace
from collections.abc import Callable
from typing import TypeVar

from mpicoloc.errors import DataError

T = TypeVar("T")


def bounded(run: Callable[[Namespace], T]) -> Callable[[Namespace], T]:
    """Let a verb take at most `profile.sandbox.MEMORY_BYTES` more than it has at its begin.

    The processes in which it reads files have the same bound, each for itself.
    """

    @functools.wraps(run)
    def within(args: Namespace) -> T:
        from mpicoloc.profile import sandbox

        before = resource.getrlimit(resource.RLIMIT_AS)
        most = sandbox.address_space_bytes() + sandbox.MEMORY_BYTES
        # Only the soft limit: the caller of `main` may be a program with work of its own.
        is_lower = before[0] == resource.RLIM_INFINITY or most < before[0]
        resource.setrlimit(resource.RLIMIT_AS, (most, before[1]) if is_lower else before)
        try:
            return run(args)
        except MemoryError as error:
            raise DataError(
                f"what was read takes more than {sandbox.MEMORY_BYTES >> 20} MiB of memory: give fewer "
                "files, or a part of the trace; no profile takes as much"
            ) from error
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    return within
