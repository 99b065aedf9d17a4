"""Errors that a user sees: one line that says what is wrong, the value, and what to do.

    MpicolocError
    ├── Refused            exit code 1   the answer is no: too few units, a signature that does not hold
    ├── UsageError         exit code 2   a wrong option, application or value
    ├── DataError          exit code 3   a file that is damaged, foreign or of another version
    └── EnvironmentFault   exit code 4   the machine, the MPI library or a folder refuses

Raised where the cause is known, caught only in the two entries, ``mpicoloc/cli/main.py`` and
``mpicoloc/launch/wrap.py``.
"""

from __future__ import annotations

import os
import sys


class MpicolocError(Exception):
    """Base class of every error that mpicoloc raises on purpose."""

    exit_code = 1


class Refused(MpicolocError):
    """The answer is no, and nothing was changed: not enough units, a signature that does not hold."""

    exit_code = 1


class UsageError(MpicolocError):
    """The call was wrong: an unknown option, a value out of range, a file that is no MPI program."""

    exit_code = 2


class DataError(MpicolocError):
    """Data is damaged, foreign, of another version, or too little for an answer."""

    exit_code = 3


class EnvironmentFault(MpicolocError):
    """The machine does not give what is needed: a folder, an MPI library, shared memory."""

    exit_code = 4


def printable(words: str) -> str:
    """A text of a file, a name for instance, as part of one line for a terminal, which must not obey it."""
    return "".join(letter if letter.isprintable() else "?" for letter in words)


def tell(words: str) -> None:
    """One line on standard error of a job's process, whose exit code counts more than the line."""
    try:
        print(f"mpicoloc: {printable(words)}", file=sys.stderr, flush=True)
    except OSError:
        # The interpreter would try again at its end, and then exit with its own code.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the end)
