"""Which files of a trace's folder are of a run, and what is missing in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mpicoloc.core.profile import Profile
from mpicoloc.trace.trace_file import TraceFile


def is_of(file: TraceFile, profile: Profile) -> bool:
    """It names the job and its number of ranks."""
    return file.job_id == profile.job.id and file.n_ranks == profile.job.n_ranks


def of_one_run(files: Iterable[TraceFile]) -> tuple[TraceFile, ...]:
    """Without those of an earlier run of this name, whose nodes had other ranks."""
    found: list[TraceFile] = []
    for file in sorted(files, key=lambda file: -file.start_ns):
        if not any(np.isin(file.index["rank"], other.index["rank"]).any() for other in found):
            found.append(file)
    return tuple(sorted(found, key=first_rank))


def is_begin_of(file: TraceFile, profile: Profile) -> bool:
    """The file of rank 0 and the profile tell the same beginning."""
    start_s = profile.job.start_unix_s
    return first_rank(file) != 0 or start_s == 0 or abs(file.start_ns * 1e-9 - start_s) < 1e-3


def first_rank(file: TraceFile) -> int:
    """The lowest rank with events in it."""
    return int(file.index["rank"].min(initial=np.iinfo(np.int32).max))


def trouble(files: Sequence[TraceFile]) -> tuple[str, ...]:
    """One line for each file that was cut short."""
    return tuple(f"{file.path} is not whole: {file.trouble}" for file in files if file.trouble)


def missing(files: Sequence[TraceFile], profile: Profile) -> dict[int, str]:
    """How much, of each rank of which less is in the files than it had to tell."""
    found: dict[int, int] = {}
    for file in files:
        ranks, which = np.unique(file.index["rank"], return_inverse=True)
        for rank, n in zip(ranks.tolist(), np.bincount(which, file.index["n"]).tolist(), strict=True):
            found[rank] = found.get(rank, 0) + int(n)
    lacking = {}
    for row in profile.tables["ranks"]:
        n_missing = int(row["n_events"]) - found.get(int(row["rank"]), 0)
        if n_missing > 0:
            dropped = f"{int(row['n_events_dropped']):,} were dropped"
            lacking[int(row["rank"])] = (
                f"{n_missing:,} of {int(row['n_events']):,} events are missing, {dropped}"
            )
    return lacking
