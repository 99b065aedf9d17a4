"""Which program each job of a log runs: by the log's own numbers, by a table, or drawn from a mix."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.batch.logs.job_log import JobLog
from mpicoloc.errors import DataError, UsageError

Ints = NDArray[np.int64]

ANY = "*"
"""Executable number in a table that stands for all others."""


@dataclass(frozen=True)
class Programs:
    """The program of each job.

    Parameters
    ----------
    names : tuple of str
        Of all programs.
    of_job : ndarray of int, shape (n_jobs,)
        Index of each job's program in `names`.
    """

    names: tuple[str, ...]
    of_job: Ints


def mix(text: str, known: Sequence[str], figures: str = "slowdowns") -> dict[str, float]:
    """Parts of programs in a mix, as ``lu=3,heat2d=1`` gives them; empty: all alike.

    `figures` says what is known of the `known` programs.

    Result: parts by program, which add up to 1. Raises `UsageError` if a word is no NAME=PART, a part is not
    above 0, or a program is unknown or named twice.
    """
    parts: dict[str, float] = {}
    for word in filter(None, text.split(",")):
        name, equals, number = word.rpartition("=")
        try:
            part = float(number)
        except ValueError:
            part = -1.0
        if not (equals and name and 0 < part < np.inf):
            raise UsageError(f"--mix {word!r} is no NAME=PART with a part above 0, for example {known[0]}=2")
        if name not in known or name in parts:
            why = "is named twice" if name in parts else f"has no {figures}; there are {', '.join(known)}"
            raise UsageError(f"--mix: program {name} {why}")
        parts[name] = part
    parts = parts or dict.fromkeys(known, 1.0)
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def draw(log: JobLog, parts: Mapping[str, float], rng: np.random.Generator) -> Programs:
    """Programs drawn from a mix: one for each executable of a user where the log tells it, else one a job."""
    names = tuple(parts)
    is_known = log.program >= 0
    _, which = np.unique(
        np.stack([log.user, log.program, np.where(is_known, -1, np.arange(len(log)))]),
        axis=1,
        return_inverse=True,
    )
    drawn = rng.choice(len(names), int(which.max()) + 1, p=np.array(list(parts.values())))
    return Programs(names, drawn[which.ravel()].astype(np.int64))


def by_table(log: JobLog, table: Mapping[str, str], source: str) -> Programs:
    """Programs by a table from executable numbers of the log, or names of its jobs, to names.

    Raises `DataError` if a job has an executable that is not there.
    """
    numbers, which = np.unique(log.program, return_inverse=True)
    keys = [str(log.name("program", number)) for number in numbers.tolist()]
    found = [table.get(key, table.get(ANY)) for key in keys]
    if None in found:
        i = found.index(None)
        n_jobs = int((which == i).sum())
        raise DataError(
            f"{source}: executable {keys[i]} of {n_jobs:,} jobs is not there: add a row for it, or for {ANY}"
        )
    names = tuple(dict.fromkeys(name for name in found if name is not None))
    places = np.array([names.index(name) for name in found if name is not None], np.int64)
    return Programs(names, places[which])


def by_job_names(log: JobLog) -> Programs:
    """Programs that have the names of the jobs, of a log with names."""
    return by_table(log, {name: name for name in log.names["program"].values()}, "names of jobs")


def check_job_names(log: JobLog, known: Collection[str]) -> None:
    """See to it that the names of all jobs are programs.

    Raises `DataError` if a job's name is none of them.
    """
    names = log.names["program"]
    numbers, n_jobs = np.unique(log.program, return_counts=True)
    unknown = [i for i, number in enumerate(numbers.tolist()) if names.get(number) not in known]
    if unknown:
        i = max(unknown, key=lambda i: int(n_jobs[i]))
        raise DataError(
            f"{len(unknown):,} names of jobs are no program with slowdowns, the most frequent is "
            f"{log.name('program', int(numbers[i]))} of {n_jobs[i]:,} jobs: name the program of each in "
            "--programs FILE, or draw them with --mix"
        )
