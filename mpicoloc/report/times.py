"""Messages with their times, from whatever trace a profile has."""

from __future__ import annotations

import os

from mpicoloc.core.profile import Profile
from mpicoloc.network import recorded
from mpicoloc.network.windows import TimedMessages
from mpicoloc.store.trace_file import folder_of


def timed_messages(file: str, profile: Profile) -> TimedMessages:
    """The messages of a profile's trace, or of the trace of every call beside it.

    Raises
    ------
    DataError
        If there is neither, or it is damaged.
    """
    if len(profile.tables["events"]) or not has_all_calls(file):
        return recorded.timed_messages(profile)
    # Imported here: pandas takes long, and most profiles have no such trace.
    from mpicoloc.store import trace, trace_clocks

    messages = trace_clocks.aligned(trace.read(file, profile)).messages()
    rows = messages[messages["message"].isin(["sent", "put"]) & (messages["peer"] >= 0)]
    src, dst, n_bytes = (rows[name].to_numpy("int64") for name in ("rank", "peer", "bytes"))
    start_s, end_s = (rows[name].to_numpy("float64") * 1e-9 for name in ("begin_ns", "end_ns"))
    return TimedMessages(src, dst, start_s, end_s, n_bytes)


def has_all_calls(file: str) -> bool:
    """Whether a trace of every call stands beside a profile."""
    return os.path.isdir(folder_of(file))


def trace_bytes(file: str) -> int:
    """Length of the files of that trace."""
    with os.scandir(folder_of(file)) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())
