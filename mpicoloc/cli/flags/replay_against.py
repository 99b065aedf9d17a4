"""`mpicoloc replay --against`: a result of the same jobs under another policy."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    from mpicoloc.network.replay.experiment import PlacedJob


@dataclass(frozen=True)
class EarlierResult:
    """What another replay printed with ``--json``.

    Parameters
    ----------
    path : str
    jobs : tuple of (str, int)
        Name and number of hosts of each job.
    lost_host_s : float
        Time of hosts that the jobs lost to each other, host seconds.
    """

    path: str
    jobs: tuple[tuple[str, int], ...]
    lost_host_s: float


def read(path: str) -> EarlierResult:
    """The result that was printed to a file.

    Raises
    ------
    UsageError
        If it cannot be read, or is no such result.
    """
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        jobs = tuple((str(job["name"]), int(job["n_hosts"])) for job in result["jobs"])
        return EarlierResult(path, jobs, _finite(result["j_inter_host_s"]))
    except OSError as error:
        raise UsageError(f"--against {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            f"--against {path} is no output of mpicoloc replay --json: give what it printed under the other "
            "policy"
        ) from None


def _finite(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(value)
    return number


def lost_host_s(before: EarlierResult, jobs: Sequence[PlacedJob]) -> float:
    """What the same jobs lost to each other before, host seconds.

    Raises
    ------
    UsageError
        If that result is of other jobs.
    """
    now = tuple((job.name, job.n_hosts) for job in jobs)
    if sorted(now) != sorted(before.jobs):
        raise UsageError(
            f"--against {before.path} is of jobs {_words(before.jobs)}, and these are {_words(now)}: give a "
            "result of the same jobs on as many hosts"
        )
    return before.lost_host_s


def _words(jobs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} (hosts: {n_hosts})" for name, n_hosts in jobs) or "none"
