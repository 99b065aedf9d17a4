"""The jobs on this node now, from the board and, for this user's jobs, from the jobs' own files.

This module only reads files, so it does not disturb the jobs.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from rich.live import Live

from mpicoloc.core.number_lists import format_cpus
from mpicoloc.core.plain_values import plain
from mpicoloc.core.profile import Estimate, rank_time_s
from mpicoloc.core.units import amount, counted, seconds
from mpicoloc.errors import EnvironmentFault, MpicolocError
from mpicoloc.measure.processor import run_delay_frac
from mpicoloc.pmpi import contract
from mpicoloc.profile import machine
from mpicoloc.profile.collect import collect
from mpicoloc.profile.merge import merge
from mpicoloc.profile.summary import CoRunner, co_runners
from mpicoloc.show.table import Column, console, interval, listing

if TYPE_CHECKING:
    from mpicoloc.show.table import Listing

_NOT_PRINTED = ("owner", "reason", "counts")
"""Fields of `LiveJob` that JSON output leaves out."""


@dataclass(frozen=True)
class Counts:
    """Counts of the `n_ranks` ranks of a job on this node, from their start to the instant `t_s`.

    `t_s` is CLOCK_MONOTONIC. `n_calls`, `mpi_s`, `rank_s` (the ranks' time) and `sent_bytes` are sums over
    the ranks.
    """

    t_s: float
    n_ranks: int
    n_calls: int
    rank_s: float
    mpi_s: float
    sent_bytes: int


@dataclass(frozen=True)
class LiveJob:
    """One job on this node.

    Fields after `owner` are known only for jobs of the caller's user. `owner` distinguishes jobs with the
    same id: its upper 32 bits are the number of the process that holds the job's slot on the node's board.
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
    n_co_runners: int | None = None
    co_runners: tuple[CoRunner, ...] | None = None
    overhead_frac: float | None = None
    run_delay_frac: float | None = None
    foreign_delay_frac: float | None = None


@dataclass(frozen=True)
class Rates:
    """A job's rates between two readings, per second; None if unknown."""

    mpi_frac: float | None = None
    calls_per_s: float | None = None
    sent_bps: float | None = None


def rates(job: LiveJob, before: Mapping[int, Counts]) -> Rates:
    """Rates since the previous reading, or since the job began if there was none."""
    now = job.counts
    if now is None:
        return Rates()
    first = before.get(job.owner) or Counts(now.t_s - job.age_s, now.n_ranks, 0, 0.0, 0.0, 0)
    time_s = now.t_s - first.t_s
    # The counts of ranks that ended since the previous reading are missing from the sums.
    if time_s <= 0 or now.n_ranks == 0 or now.n_ranks != first.n_ranks:
        return Rates()
    return Rates(
        mpi_frac=min(max(now.mpi_s - first.mpi_s, 0.0) / max(now.rank_s - first.rank_s, 1e-9), 1.0),
        calls_per_s=max(now.n_calls - first.n_calls, 0) / time_s,
        sent_bps=max(now.sent_bytes - first.sent_bytes, 0) / time_s,
    )


_COLUMNS = (
    Column("job", "id", is_name=True),
    Column("user", "uid", machine.user, left_out=5),
    Column("ranks", "n_ranks", left_out=8),
    Column("cores", form=format_cpus, is_name=True, left_out=1),
    Column("time", "age_s", seconds, left_out=7),
    Column("slowdown", form=".3f"),
    Column("95 %", "slowdown", interval, left_out=4, missing=""),
    Column("in MPI", "mpi_frac", ".0%"),
    Column("sent/s", "sent_bps", amount, left_out=3),
    Column("shutters", "n_shutters", left_out=6),
    Column("paused", "paused_frac", ".2%", left_out=2),
)


def _row(job: LiveJob, before: Mapping[int, Counts]) -> dict[str, Any]:
    return vars(job) | vars(rates(job, before))


def table(jobs: Sequence[LiveJob], before: Mapping[int, Counts]) -> Listing:
    """One line for each job."""
    rows = [_row(job, before) for job in jobs]
    reasons = [f"{job.id}: {job.reason}" for job in jobs if job.reason and job.slowdown is None]
    return listing(_COLUMNS, rows, f"{counted(len(jobs), 'job')} on this node", reasons)


def as_json(jobs: Sequence[LiveJob], before: Mapping[int, Counts]) -> list[dict[str, Any]]:
    """The rows of ``mpicoloc top --json``; unknown values are None."""
    rows = [{"pid": job.owner >> 32} | _row(job, before) for job in jobs]
    return [plain({name: row[name] for name in row if name not in _NOT_PRINTED}) for row in rows]


def watch(interval_s: float) -> NoReturn:
    """Show the jobs of the node on the whole screen, refreshed every `interval_s`."""
    before: dict[int, Counts] = {}
    with Live(console=console(), screen=True, auto_refresh=False) as screen:
        while True:
            started_s = time.monotonic()
            found = jobs()
            screen.update(table(found, before), refresh=True)
            before = {job.owner: job.counts for job in found if job.counts is not None}
            time.sleep(max(interval_s, (time.monotonic() - started_s) / MOST_FRAC))


MOST_FRAC = 0.05
"""Largest part of one processor's time that `watch` may use."""
SILENT_S = 10.0
"""A job whose agent gave no sign of life for this time, s, has ended without leaving the board."""


def jobs() -> list[LiveJob]:
    """The jobs on this node, oldest first, from the files in the folder of option `shm_dir`.

    Raises `EnvironmentFault` if the folder does not exist, or the board cannot be read.
    """
    folder = os.path.dirname(contract.board_path())
    if not os.path.isdir(folder):
        raise EnvironmentFault(f"the shared-memory folder {folder} does not exist: set MPICOLOC_SHM_DIR")
    keys = dict(_own(folder))
    found = [_job(slot, keys) for slot in _slots()]
    return sorted(found, key=lambda job: -job.age_s)


def _slots() -> Iterator[np.void]:
    try:
        board = contract.read_board()
    except FileNotFoundError:
        return
    except (OSError, MpicolocError) as error:
        raise EnvironmentFault(f"cannot read the board of this node: {error}") from error
    for slot in board["slots"]:
        if slot["owner"] and time.monotonic() - int(slot["heartbeat"]) * 1e-9 < SILENT_S:
            yield slot


def _own(folder: str) -> Iterator[tuple[tuple[int, str], str]]:
    """The key of each job of this user, by agent process and job id, because several jobs may share an id."""
    for name in os.listdir(folder):
        match = re.fullmatch(r"mpicoloc\.(.+)\.node", name)
        # The job may end while it is read, or belong to another user.
        with contextlib.suppress(FileNotFoundError, PermissionError, MpicolocError):
            if match and os.lstat(os.path.join(folder, name)).st_uid == os.geteuid():
                heads = contract.segment_heads(match[1])
                if heads:
                    agent_pid = contract.read_file(os.path.join(folder, name))["agent_pid"]
                    yield (int(agent_pid), heads[0].job_id), match[1]


def _job(slot: np.void, keys: Mapping[tuple[int, str], str]) -> LiveJob:
    name = contract.text(slot["job_id"])
    age_s = time.monotonic() - int(slot["t_joined"]) * 1e-9
    bits = np.unpackbits(slot["cpu_mask"].view(np.uint8), bitorder="little")
    cores = tuple(np.flatnonzero(bits).tolist())
    owner = int(slot["owner"])
    job = LiveJob(name, int(slot["uid"]), int(slot["n_ranks"]), cores, age_s, owner)
    own = (owner >> 32, name)
    # The job may end while it is read.
    with contextlib.suppress(MpicolocError, OSError):
        # Another user's job may have the same name.
        return _with_own(job, keys[own]) if own in keys and job.uid == os.geteuid() else job
    return job


def _with_own(job: LiveJob, key: str) -> LiveJob:
    """The job, with the slowdown and overhead that its profile would have if the job ended now."""
    profile = merge([collect(key, has_events=False)], partial=True)
    ranks, nodes, found = profile.tables["ranks"], profile.tables["nodes"], profile.interference
    ranks = ranks[ranks["state"] == b"running"]
    counts = Counts(
        time.monotonic(),
        len(ranks),
        n_calls=int(ranks["n_calls"].sum()),
        rank_s=float(rank_time_s(ranks).sum()),
        mpi_s=float(ranks["mpi_ns"].sum()) * 1e-9,
        sent_bytes=int(ranks["sent_bytes"].sum()),
    )
    return replace(
        job,
        command=profile.job.command,
        counts=counts,
        slowdown=found.slowdown,
        reason=found.reason,
        n_shutters=found.n_taken,
        paused_frac=float(nodes["paused_s"].sum() / max(np.nansum(nodes["watched_s"]), 1e-9)),
        n_co_runners=len(profile.tables["corunners"]),
        co_runners=tuple(co_runners(profile)),
        overhead_frac=found.overhead_frac,
        run_delay_frac=run_delay_frac(found.cpu_s, found.run_delay_s),
        foreign_delay_frac=found.foreign_delay_frac,
    )
