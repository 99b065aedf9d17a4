"""What a profile recorded: where its ranks ran, and messages with their times."""

from __future__ import annotations

import re

import numpy as np

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import text
from mpicoloc.errors import DataError
from mpicoloc.network.windows import TimedMessages

_SENDS = re.compile(r"MPI_(I?[bsr]?send|I?sendrecv(_replace)?|R?put)(_c)?", re.IGNORECASE)


def hostnames(profile: Profile) -> list[str]:
    """Name of the node of each rank.

    Raises
    ------
    DataError
        If it is not known of every rank.
    """
    ranks = np.sort(profile.tables["ranks"], order="rank")
    names = [text(row["hostname"]) for row in profile.tables["nodes"]]
    known = ranks[(ranks["i_node"] >= 0) & (ranks["i_node"] < len(names))]
    if known["rank"].tolist() != list(range(profile.job.n_ranks)):
        n_ranks = profile.job.n_ranks
        raise DataError(f"the profile knows the nodes of {len(known)} of {n_ranks} ranks: give --placement")
    return [names[i] for i in known["i_node"]]


def timed_messages(profile: Profile) -> TimedMessages:
    """The messages of a profile's trace, each on its way while the call that sends it lasts.

    Times are those of the first node's clock.

    Raises
    ------
    DataError
        If the profile has no trace.
    """
    events = profile.tables["events"]
    if not len(events):
        raise DataError(
            "the profile has no trace, so nothing is known of times: run the job with --trace all"
        )
    calls, kind = np.unique(events["call"], return_inverse=True)
    sends = np.array([_SENDS.fullmatch(text(call)) is not None for call in calls])
    rows = events[sends[kind] & (events["peer"] >= 0)]
    if len(rows) and not 0 <= rows["rank"].min() <= rows["rank"].max() < profile.job.n_ranks:
        raise DataError(
            f"the trace names ranks that a job of {profile.job.n_ranks} does not have: the file is damaged"
        )
    start_s = rows["t_ns"] * 1e-9 - _offsets_s(profile)[rows["rank"]]
    return TimedMessages(
        rows["rank"].astype(np.int64),
        rows["peer"].astype(np.int64),
        start_s,
        start_s + rows["duration_ns"] * 1e-9,
        rows["bytes"].astype(np.float64),
    )


def _offsets_s(profile: Profile) -> np.ndarray:
    """Clock of each rank's node against the first's; 0 where it is not known."""
    offsets_s = np.zeros(profile.job.n_ranks)
    of_node = np.nan_to_num(profile.tables["nodes"]["clock_offset_s"])
    for row in profile.tables["ranks"]:
        if 0 <= row["rank"] < len(offsets_s) and 0 <= row["i_node"] < len(of_node):
            offsets_s[row["rank"]] = of_node[row["i_node"]]
    return offsets_s
