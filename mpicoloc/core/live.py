"""A job that runs, as it is seen from outside."""

from __future__ import annotations

from dataclasses import dataclass

from mpicoloc.core.estimate import Estimate


@dataclass(frozen=True)
class Counts:
    """What the ranks of a job on this node have done since they began, at one instant.

    `t_s` is CLOCK_MONOTONIC; `mpi_s` is of all ranks together, `n_ranks` of them.
    """

    t_s: float
    n_ranks: int
    n_calls: int
    mpi_s: float
    sent_bytes: int


@dataclass(frozen=True)
class LiveJob:
    """One job on this node.

    `counts`, `command`, `slowdown`, `n_shutters` and `paused_frac` are known of this user's jobs only.
    `owner` tells jobs of one id apart: who has the slot on the node's board, as a number.
    `reason` says why there is no slowdown.
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
