"""The jobs of a node now, as a table and as JSON."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from rich.live import Live
from rich.markup import escape

from mpicoloc.core.live import Counts, LiveJob
from mpicoloc.core.tables import printable
from mpicoloc.core.units import amount, counted, seconds
from mpicoloc.report.terminal.listing import Listing
from mpicoloc.report.terminal.output import console

_TITLES = (
    *("job", "user", "ranks", "cores", "time", "slowdown", "95 %"),
    *("in MPI", "sent/s", "shutters", "paused"),
)
_LESSER = ("cores", "paused", "sent/s", "95 %", "user", "shutters", "time", "ranks")


@dataclass(frozen=True)
class Rates:
    """What a job did per second between two looks; None: not known."""

    mpi_frac: float | None = None
    calls_per_s: float | None = None
    sent_bps: float | None = None


def rates(job: LiveJob, before: Mapping[int, Counts]) -> Rates:
    """Rates since the look before, or since the job began if there was none."""
    now = job.counts
    if now is None:
        return Rates()
    first = before.get(job.owner) or Counts(now.t_s - job.age_s, now.n_ranks, 0, 0.0, 0)
    time_s = now.t_s - first.t_s
    # Ranks that ended meanwhile took their numbers along.
    if time_s <= 0 or now.n_ranks == 0 or now.n_ranks != first.n_ranks:
        return Rates()
    return Rates(
        mpi_frac=min(max(now.mpi_s - first.mpi_s, 0.0) / (time_s * now.n_ranks), 1.0),
        calls_per_s=max(now.n_calls - first.n_calls, 0) / time_s,
        sent_bps=max(now.sent_bytes - first.sent_bytes, 0) / time_s,
    )


def table(jobs: Sequence[LiveJob], before: Mapping[int, Counts]) -> Listing:
    """One line for each job."""
    listing = Listing(
        f"{counted(len(jobs), 'job')} on this node", _TITLES, names=("job", "cores"), lesser=_LESSER
    )
    for job in jobs:
        listing.add_row(*(escape(printable(cell)) for cell in _cells(job, rates(job, before))))
    reasons = [f"{job.id}: {job.reason}" for job in jobs if job.reason and job.slowdown is None]
    listing.caption = "\n".join(escape(printable(reason)) for reason in reasons)
    return listing


def _cells(job: LiveJob, now: Rates) -> list[str]:
    found = job.slowdown
    return [
        job.id,
        _user(job.uid),
        str(job.n_ranks),
        _cores(job.cores),
        seconds(job.age_s),
        "-" if found is None else f"{found.value:.3f}",
        "" if found is None else f"{found.low:.2f} to {found.high:.2f}",
        "-" if now.mpi_frac is None else f"{now.mpi_frac:.0%}",
        "-" if now.sent_bps is None else amount(now.sent_bps),
        "-" if job.n_shutters is None else str(job.n_shutters),
        "-" if job.paused_frac is None else f"{job.paused_frac:.2%}",
    ]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _cores(cores: Sequence[int]) -> str:
    """As ranges: 0-3,8."""
    ranges: list[list[int]] = []
    for core in cores:
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def as_json(jobs: Sequence[LiveJob], before: Mapping[int, Counts]) -> list[dict[str, Any]]:
    """The rows of ``mpicoloc top --json``; what is not known is None."""
    rows = []
    for job in jobs:
        now, found = rates(job, before), job.slowdown
        slowdown = found and {name: getattr(found, name) for name in ("value", "low", "high", "n", "method")}
        rows.append(
            {
                **{name: getattr(job, name) for name in ("id", "uid", "n_ranks", "age_s", "command")},
                "cores": list(job.cores),
                "slowdown": slowdown,
                "n_shutters": job.n_shutters,
                "paused_frac": job.paused_frac,
                **{name: getattr(now, name) for name in ("mpi_frac", "calls_per_s", "sent_bps")},
            }
        )
    return rows


def watch(look: Callable[[], Sequence[LiveJob]], interval_s: float, most_frac: float) -> NoReturn:
    """Show the jobs of the node on the whole screen, again and again.

    Parameters
    ----------
    look : callable
        Finds the jobs.
    interval_s : float
        Time between two looks.
    most_frac : float
        Part of a processor that looking may take: a slow look makes the next one later.
    """
    before: dict[int, Counts] = {}
    with Live(console=console(), screen=True, auto_refresh=False) as screen:
        while True:
            started_s = time.monotonic()
            found = look()
            screen.update(table(found, before), refresh=True)
            before = {job.owner: job.counts for job in found if job.counts is not None}
            time.sleep(max(interval_s, (time.monotonic() - started_s) / most_frac))
