"""The workers of a sweep: processes on all cores of this machine, or the ranks that mpirun started."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from typing import cast

from mpicoloc import config
from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.job import target, wrap

_SIZES = ("OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def n_ranks(env: Mapping[str, str]) -> int:
    """Number of ranks of the job that this process belongs to; 1 if no launcher started the process."""
    place = wrap.place_of(env)
    if place.launcher is None:
        return 1
    sizes = [env[name] for name in _SIZES if env.get(name, "").isdigit()]
    return max(int(sizes[0]) if sizes else place.local_size, 1)


@contextlib.contextmanager
def ranks(family: str | None) -> Iterator[Executor | None]:
    """In rank 0, yield the executor whose work the other ranks do. In the other ranks, yield None when the
    work is done.

    Before MPI is loaded, the process executes itself again if mpi4py would not find the launcher's library.

    Raises `EnvironmentFault` if mpi4py cannot load an MPI of that family.
    """
    _find_libmpi(family)
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except (ImportError, RuntimeError, OSError) as error:
        raise EnvironmentFault(
            f"mpi4py cannot load the launcher's MPI ({error}): see `mpicoloc check`"
        ) from None
    world, n = MPI.COMM_WORLD, n_ranks(os.environ)
    # Under mpicoloc the launcher's ranks include coordinators.
    if world.Get_size() == 1 < n and config.KEY_ENV not in os.environ:
        raise EnvironmentFault(
            f"the launcher started {n} ranks, and mpi4py sees one: set MPI4PY_LIBMPI to the launcher's libmpi"
        )
    with MPICommExecutor(world, root=0) as entered:
        executor = cast("Executor | None", entered)  # its annotations lack None
        try:
            yield executor
        finally:
            if executor is not None:
                executor.shutdown(wait=True, cancel_futures=True)


def _find_libmpi(family: str | None) -> None:
    """Make mpi4py load the launcher's MPI, by exec because LD_LIBRARY_PATH is read only at the start."""
    if os.environ.pop(config.RESTARTED_ENV, None):
        return
    try:
        found = target.find([sys.executable], os.environ, family)
    except UsageError as error:
        raise EnvironmentFault(str(error)) from None
    env = {**os.environ, config.RESTARTED_ENV: "1"}
    wrap.let_mpi4py_load(found.libmpi, wrap.libmpi_alias(found), env)
    if any(env.get(name) != os.environ.get(name) for name in ("MPI4PY_LIBMPI", "LD_LIBRARY_PATH")):
        os.execve(sys.executable, sys.orig_argv, env)


def is_under_mpirun() -> bool:
    """Whether a launcher started this process as one of several ranks."""
    return n_ranks(os.environ) > 1


@contextlib.contextmanager
def workers(n_processes: int | None = None) -> Iterator[Executor | None]:
    """The pool that runs the cases of a sweep.

    Under mpirun rank 0 distributes the work to the other ranks through `mpi4py.futures`. Otherwise processes
    on this machine do the work.

    Result: None in a rank that has finished its share of the work and must do nothing else. Raises
    `EnvironmentFault` if the launcher's MPI cannot be loaded.
    """
    if is_under_mpirun():
        with ranks(wrap.place_of(os.environ).family) as executor:
            yield executor
        return
    n = n_processes or len(os.sched_getaffinity(0))
    # Forked processes would inherit locks held by threads of this one.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(n, mp_context=context, initializer=_live_with_parent)
    try:
        yield executor
    except BaseException:
        # The results of running cases are not needed any more.
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _live_with_parent() -> None:
    """End when the parent process ends, even if it is killed; leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_await_end, args=(parent.sentinel,), daemon=True).start()


def _await_end(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
