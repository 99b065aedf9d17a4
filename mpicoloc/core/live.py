"""A running job as another process sees it."""

from __future__ import annotations

from dataclasses import dataclass

from mpicoloc.core.estimate import Estimate


@dataclass(frozen=True)
class Counts:
    """What the `n_ranks` ranks of a job on this node have done since they began, at the instant `t_s`.

    `t_s` is CLOCK_MONOTONIC. `n_calls`, `mpi_s` and `sent_bytes` are sums over the ranks.
    """

    t_s: float
    n_ranks: int
    n_calls: int
    mpi_s: float
    sent_bytes: int


@dataclass(frozen=True)
class LiveJob:
    """One job on this node.

    `counts`, `command`, `slowdown`, `n_shutters` and `paused_frac` are known only of jobs of the caller's
    user. `owner` is the number of the process that has the job's slot on the node's board; it tells jobs
    of one id apart. `reason` says why there is no slowdown.
    """

    id: str
    uid: int
    n_ranks: int
    cores: tuple[int, ...]
    age_s: float
    owner: int
    command: str | None = None
    counts: Counts | None = None
    slowdown: Estimate | None = None
    reason: str = ""
    n_shutters: int | None = None
    paused_frac: float | None = None
