"""Named regions and units of work of a Python application, for the profile of its job.

In a job without mpicoloc the functions do nothing, so the calls can stay in the program. MPI must be
initialized before the first call, for example by ``from mpi4py import MPI``. This module needs only the
standard library. ``mpicoloc/include/mpicoloc_app.h`` has the same functions for C.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Levels of MPI_Pcontrol, as in mpicoloc_app.h; a test compares the two.
UNITS, BEGIN, END = 0x6D630002, 0x6D630003, 0x6D630004


def units(n: int = 1) -> None:
    """Mark that `n` units of work are done: steps, samples, or other pieces of equal work.

    The rate of units then measures the job's progress (``pcontrol``), in place of the time between MPI calls.
    """
    _pcontrol(UNITS, ctypes.c_ulong(n))


@contextmanager
def region(name: str) -> Iterator[None]:
    """Time the ``with`` block as region `name` of the profile's table ``regions``. Regions can be nested."""
    text = ctypes.c_char_p(name.encode())
    _pcontrol(BEGIN, text)
    try:
        yield
    finally:
        _pcontrol(END, text)


def _pcontrol(level: int, argument: Any) -> None:
    call = _function()
    if call is not None:
        call(ctypes.c_int(level), argument)


@functools.cache
def _function() -> Any:
    """MPI_Pcontrol of the preloaded library, which comes first in the global scope; None without mpicoloc."""
    everything = ctypes.CDLL(None)
    if getattr(everything, "mc_is_mpicoloc", None) is None:
        return None
    return getattr(everything, "MPI_Pcontrol", None)
