"""Who does the work of a sweep: processes on all cores of this machine, or the ranks that mpirun started."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor

from mpicoloc.coordinator import mpi_pool
from mpicoloc.launch import launch_env


def is_under_mpirun() -> bool:
    """Whether a launcher started this process as one of several ranks."""
    return mpi_pool.n_ranks(os.environ) > 1


@contextlib.contextmanager
def workers(n_processes: int | None = None) -> Iterator[Executor | None]:
    """What runs the cases of a sweep.

    Under mpirun rank 0 hands the work out and the other ranks do it, through `mpi4py.futures`. Otherwise the
    processes of this machine do it.

    Parameters
    ----------
    n_processes : int, optional
        Processes on this machine; one for each core where it is not given. Under mpirun its ranks count.

    Yields
    ------
    concurrent.futures.Executor or None
        None in a rank that has done its part: it has nothing else to do.

    Raises
    ------
    EnvironmentFault
        If the launcher's MPI cannot be loaded.
    """
    if is_under_mpirun():
        with mpi_pool.ranks(launch_env.place(os.environ).family) as executor:
            yield executor
        return
    n = n_processes or len(os.sched_getaffinity(0))
    # Forked processes would have locks of this one's threads.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(n, mp_context=context, initializer=_live_with_parent)
    try:
        yield executor
    except BaseException:
        # Nobody wants the results of what is running any more.
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _live_with_parent() -> None:
    """End with the process that hands out the work, also if that is killed; leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_await_end, args=(parent.sentinel,), daemon=True).start()


def _await_end(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
