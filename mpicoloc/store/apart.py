"""Work on a file of somebody else in its own process: what crashes the HDF5 library crashes only that one."""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
from collections.abc import Callable
from typing import NoReturn, TypeVar

from mpicoloc.errors import DataError, MpicolocError

T = TypeVar("T")
CPU_S = 300
"""Longest time that the reading of one file may take."""


def apart(path: str, work: Callable[[], T]) -> T:
    """What `work` answers, or raises if that is an error of ours.

    Parameters
    ----------
    path : str
        The file, for messages.
    work : callable
        Its answer must be plain data.

    Raises
    ------
    DataError
        If the process did not live to the end of it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(work, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read()
    if os.waitpid(child, 0)[1] != 0 or not answer:
        raise DataError(
            f"{path} is damaged: the HDF5 library crashes on it; copy it again, or run the job again"
        )
    is_good, value = pickle.loads(answer)
    if not is_good:
        raise value
    answered: T = value
    return answered


def _work(work: Callable[[], T], writer: int) -> NoReturn:
    """In the child: answer through the pipe, and leave without the parent's goodbyes."""
    code = 1
    try:
        # Nobody else shall write about the crash between the lines of ours.
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        try:
            answer: tuple[bool, object] = (True, work())
        except MpicolocError as error:
            answer = (False, error)
        with open(writer, "wb") as pipe:
            pickle.dump(answer, pipe)
        code = 0
    finally:
        os._exit(code)
