"""Records of a profile: where its ranks ran, and messages and collective calls with their times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import Table, text
from mpicoloc.core.traffic import Floats, Rounds, TimedCalls, TimedMessages
from mpicoloc.errors import DataError
from mpicoloc.network.traffic.job_traffic import collective_of

_SENDS = re.compile(r"MPI_(I?[bsr]?send|I?sendrecv(_replace)?|R?put)(_c)?", re.IGNORECASE)


_GETS = re.compile(r"MPI_R?get(_c)?", re.IGNORECASE)


def hostnames(profile: Profile) -> list[str]:
    """Name of the node of each rank.

    Raises `DataError` if the node of a rank is unknown.
    """
    ranks = np.sort(profile.tables["ranks"], order="rank")
    names = [text(row["hostname"]) for row in profile.tables["nodes"]]
    known = ranks[(ranks["i_node"] >= 0) & (ranks["i_node"] < len(names))]
    if known["rank"].tolist() != list(range(profile.job.n_ranks)):
        n_ranks = profile.job.n_ranks
        raise DataError(f"the profile has nodes of only {len(known)} of {n_ranks} ranks: give --placement")
    return [names[i] for i in known["i_node"]]


def timed_messages(profile: Profile) -> TimedMessages:
    """The messages of a profile's trace, each of which is on its way while the call that sends it lasts.

    Times are those of the first node's clock.

    Raises `DataError` if the profile has no trace.
    """
    events = profile.tables["events"]
    if not len(events):
        raise DataError("the profile has no trace, so no times of messages: run the job with --trace all")
    calls, kind = np.unique(events["call"], return_inverse=True)
    is_send, is_get = (
        np.array([pattern.fullmatch(text(call)) is not None for call in calls])[kind]
        for pattern in (_SENDS, _GETS)
    )
    is_message = (is_send | is_get) & (events["peer"] >= 0)
    rows, is_got = events[is_message], is_get[is_message]
    if len(rows) and not 0 <= rows["rank"].min() <= rows["rank"].max() < profile.job.n_ranks:
        raise DataError(
            f"the trace names ranks that a job of {profile.job.n_ranks} does not have: the file is damaged"
        )
    start_s = rows["t_ns"] * 1e-9 - _offsets_s(profile)[rows["rank"]]
    own, peer = rows["rank"].astype(np.int64), rows["peer"].astype(np.int64)
    return TimedMessages(
        np.where(is_got, peer, own),
        np.where(is_got, own, peer),
        start_s,
        start_s + rows["duration_ns"] * 1e-9,
        rows["bytes"].astype(np.float64),
    )


@dataclass(frozen=True)
class CallRows:
    """MPI calls with their times, one row each; `names[kind[i]]` is the function of call i."""

    names: Sequence[str]
    kind: NDArray[np.integer]
    rank: NDArray[np.integer]
    start_s: Floats
    end_s: Floats
    n_bytes: NDArray[np.number]


def call_rows(profile: Profile) -> CallRows:
    """The calls of the job's ranks in a profile's trace, by the first node's clock."""
    events = profile.tables["events"]
    events = events[(events["rank"] >= 0) & (events["rank"] < profile.job.n_ranks)]
    calls, kind = np.unique(events["call"], return_inverse=True)
    start_s = events["t_ns"] * 1e-9 - _offsets_s(profile)[events["rank"]]
    end_s = start_s + events["duration_ns"] * 1e-9
    return CallRows([text(call) for call in calls], kind, events["rank"], start_s, end_s, events["bytes"])


def timed_calls(
    rows: CallRows, by_call: Mapping[str, Rounds], call_sites: Table, n_ranks: int
) -> list[TimedCalls]:
    """The collective calls among `rows`, with what each of them sent.

    The bytes that a rank sends in calls of one function are divided among these calls in proportion to their
    buffers. The part of calls that the trace lost is left out.
    """
    kinds = np.array([collective_of(name) for name in rows.names], dtype=object)[rows.kind]
    n_counted = {name: np.zeros(n_ranks) for name in by_call}
    for row in call_sites:
        name = collective_of(text(row["call"]))
        if name in n_counted and 0 <= row["rank"] < n_ranks:
            n_counted[name][row["rank"]] += row["n"]
    timed = []
    for name, traffic in by_call.items():
        selected = kinds == name
        rank, n_bytes = rows.rank[selected].astype(np.int64), rows.n_bytes[selected].astype(np.float64)
        n_calls, sums = np.bincount(rank, minlength=n_ranks), np.bincount(rank, n_bytes, n_ranks)
        share = np.where(
            sums[rank] > 0, n_bytes / np.maximum(sums[rank], 1), 1 / np.maximum(n_calls[rank], 1)
        )
        traced_frac = np.minimum(n_calls / np.maximum(n_counted[name], 1), 1.0)
        timed.append(
            TimedCalls(traffic, rank, rows.start_s[selected], rows.end_s[selected], share * traced_frac[rank])
        )
    return timed


def _offsets_s(profile: Profile) -> np.ndarray:
    """Clock of each rank's node minus that of the first node, s; 0 if unknown."""
    offsets_s = np.zeros(profile.job.n_ranks)
    of_node = np.nan_to_num(profile.tables["nodes"]["clock_offset_s"])
    for row in profile.tables["ranks"]:
        if 0 <= row["rank"] < len(offsets_s) and 0 <= row["i_node"] < len(of_node):
            offsets_s[row["rank"]] = of_node[row["i_node"]]
    return offsets_s
