"""Messages and calls with their times, from the trace in a profile or the trace of every call beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mpicoloc.core.network import Rounds, TimedCalls, TimedMessages
from mpicoloc.core.profile import Profile
from mpicoloc.core.units import amount
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import job_traffic
from mpicoloc.network.traffic.job_traffic import collective_of
from mpicoloc.trace.node_file import folder_of

if TYPE_CHECKING:
    from mpicoloc.trace.reader import Trace

MOST_TRACE_BYTES = 1 << 26
"""Largest trace that is read for drawings: about four million events, which take some seconds."""
NO_TRACE = "the profile has no trace: run the job with --trace all"
T = TypeVar("T")
_CALL_COLUMNS = ("call", "rank", "t_ns", "duration_ns", "bytes")


def of_trace(read: Callable[[str, Profile], T], file: str | None, profile: Profile) -> T | str:
    """The result of `read` for a profile's trace, or a sentence that says why there is nothing to draw."""
    if len(profile.tables["events"]):
        return read(file or "", profile)
    if file is None or not has_all_calls(file):
        return NO_TRACE
    n_bytes = trace_bytes(file)
    if n_bytes > MOST_TRACE_BYTES:
        most = amount(MOST_TRACE_BYTES)
        return f"its trace has {amount(n_bytes)}, but at most {most} can be drawn: see mpicoloc export"
    try:
        return read(file, profile)
    except DataError as error:
        return f"its trace cannot be read: {error}"


def timed_messages(file: str, profile: Profile) -> TimedMessages:
    """The messages of a profile's trace, or of the trace of every call beside it.

    Raises `DataError` if there is neither, or it is damaged.
    """
    if len(profile.tables["events"]) or not has_all_calls(file):
        return job_traffic.timed_messages(profile)
    messages = _all_events(file, profile).messages()
    rows = messages[messages["message"].isin(["sent", "put", "got"]) & (messages["peer"] >= 0)]
    is_got = (rows["message"] == "got").to_numpy()
    own, peer, n_bytes = (rows[name].to_numpy("int64") for name in ("rank", "peer", "bytes"))
    src, dst = np.where(is_got, peer, own), np.where(is_got, own, peer)
    start_s, end_s = (rows[name].to_numpy("float64") * 1e-9 for name in ("begin_ns", "end_ns"))
    return TimedMessages(src, dst, start_s, end_s, n_bytes)


def collective_calls(file: str, profile: Profile, by_call: Mapping[str, Rounds]) -> list[TimedCalls]:
    """Collective calls of the same trace with their shares of traffic. For `by_call`, see `JobTraffic`.

    Raises `DataError` if the trace is damaged.
    """
    rows = all_calls(file, profile, lambda name: collective_of(name) in by_call)
    return job_traffic.timed_calls(rows, by_call, profile.tables["call_sites"], profile.job.n_ranks)


def all_calls(
    file: str, profile: Profile, is_wanted: Callable[[str], bool] = lambda name: True
) -> job_traffic.CallRows:
    """The calls of the same trace; from a trace of every call, only the calls of the wanted functions.

    Raises `DataError` if the trace is damaged.
    """
    if len(profile.tables["events"]) or not has_all_calls(file):
        return job_traffic.call_rows(profile)
    found = _all_events(file, profile)
    is_kept = np.array([is_wanted(name) for name in found.names])
    parts = [[np.zeros(0, np.int64)] * len(_CALL_COLUMNS)]
    for piece in found.pieces():
        kept = is_kept[piece["call"]] & (piece["rank"] < profile.job.n_ranks)
        parts.append([piece[name][kept].astype(np.int64) for name in _CALL_COLUMNS])
    kind, rank, t_ns, duration_ns, n_bytes = map(np.concatenate, zip(*parts, strict=True))
    return job_traffic.CallRows(found.names, kind, rank, t_ns * 1e-9, (t_ns + duration_ns) * 1e-9, n_bytes)


def _all_events(file: str, profile: Profile) -> Trace:
    # Imported here: pandas loads slowly, and most profiles have no trace of every call.
    from mpicoloc.trace import reader

    return reader.aligned(reader.read(file, profile))


def has_all_calls(file: str) -> bool:
    """Whether a trace of every call is beside a profile."""
    return os.path.isdir(folder_of(file))


def trace_bytes(file: str) -> int:
    """Total size of the trace's files."""
    with os.scandir(folder_of(file)) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())
