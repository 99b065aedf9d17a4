"""Programs of the ranks of a recorded job, for the packet simulator."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from mpicoloc.core.profile import Array, Profile
from mpicoloc.core.progress import steps
from mpicoloc.errors import DataError
from mpicoloc.network.traffic import job_traffic
from mpicoloc.network.traffic.collective import Library
from mpicoloc.profile.frames import Frames, open_profile
from mpicoloc.replay.programs import recorded, recorded_collectives
from mpicoloc.replay.programs.builder import Chosen, RankPrograms, of_each
from mpicoloc.replay.programs.recorded import (
    LEAST_DELAY_FRAC,
    OneSided,
    PlacedCollective,
    RankCalls,
    RecordedMessages,
    Tempo,
    running_frac,
)
from mpicoloc.replay.programs.recorded_collectives import (
    LEFT_OUT,
    NAME,
    CollectiveBlocks,
    CollectiveCalls,
    IntercommBlocks,
    align,
    groups_of,
    is_blocking,
    n_calls_of,
    pairs_of,
    persistent_bytes,
)
from mpicoloc.replay.programs.sources import Choices, check_matched
from mpicoloc.trace.export import calls as recordings
from mpicoloc.trace.export.calls import FullTrace, Recording

_N_TAGS = 1 << 30
_LEFT_OUT_MAX_FRAC = 0.01
"""Largest fraction of a job's bytes that a replay leaves out with only a note."""


@dataclass(frozen=True)
class RecordedJob:
    """A recorded job, from which programs are made for any placement.

    Attributes
    ----------
    recording : Recording
    calls : list of RankCalls
        Calls of each rank.
    bytes : list of ndarray of int
        Bytes that each of these calls moved, by rank.
    """

    path: str
    choices: Choices
    recording: Recording
    calls: list[RankCalls]
    bytes: list[Array]

    @property
    def profile(self) -> Profile:
        """The job's profile."""
        return self.recording.profile

    def hostnames(self) -> list[str]:
        """Name of the host where each rank ran."""
        return job_traffic.hostnames(self.profile)

    def programs(self, hosts: Array) -> RankPrograms:
        """The programs of the ranks on these hosts.

        Raises `DataError` if the trace lacks data, or messages lack their receives; see
        `sources.check_matched`.
        """
        choices = self.choices
        functions = recorded.Functions(self.recording.names)
        deeds = recorded.empty_deeds(len(self.calls))
        notes = list(self.recording.notes)
        notes += self._unmatched_notes()
        calls, messages, transfers = self.calls, _messages(self.recording), _one_sided(self.recording)
        collectives, notes_of_collectives = _all_collectives(self, np.asarray(hosts), choices)
        notes += notes_of_collectives
        part = choices.part(min(int(own.begin_ns[0]) for own in calls))
        if part is not None:
            calls, messages, collectives, note = recorded.taken_part(part, calls, messages, collectives)
            transfers = part.one_sided(transfers, calls)
            notes.append(f"{self.path}: {note}")
        recorded.add_messages(deeds, calls, functions, messages)
        recorded.add_one_sided(deeds, calls, functions, transfers)
        recorded.add_collectives(deeds, calls, collectives)
        n_ranks = len(calls)
        running = np.ones(n_ranks) if choices.is_wall_time else _running(self.profile, n_ranks)
        notes += _running_notes(running)
        tempos = [Tempo(choices.cpu_speed, part) for part in running.tolist()]
        made = recorded.programs(self.recording.names, calls, deeds, tempos)
        return of_each(_name(self.path), made, tuple(notes))

    def _unmatched_notes(self) -> list[str]:
        """A note on unmatched messages that are left out; raises DataError unless the user allowed them."""
        messages = self.recording.messages
        lost = messages.unreceived
        if not len(lost.rank):
            return []
        rank, begin_ns = int(lost.rank[0]), int(lost.begin_ns[0])
        own = self.calls[rank]
        call = self.recording.names[int(own.function[int(own.at(np.array(begin_ns)))])]
        first = f"{call} of {int(lost.bytes[0]):,} bytes from rank {rank} to rank {int(lost.peer[0])}"
        first += f" at {begin_ns / 1e9:.6f} s"
        return check_matched(self.path, self.choices, len(lost.rank), messages.n_sent, first)


def read(path: str, choices: Choices | None = None) -> RecordedJob:
    """The job that the profile at `path` recorded with ``--trace all``.

    Raises `DataError` if the trace is incomplete.
    """
    job = open_profile(path)
    _check(job, path)
    recording = recordings.recording(job)
    _check_complete(recording, path)
    calls, n_bytes = [], []
    for rank in steps(range(recording.n_ranks), f"reading {_name(path)}", unit="ranks"):
        rows = np.array(list(recording.in_order(rank)), np.int64).reshape(-1, 5)
        calls.append(RankCalls(rows[:, 0], rows[:, 1], rows[:, 4]))
        n_bytes.append(rows[:, 2])
    silent = [rank for rank, own in enumerate(calls) if not len(own)]
    if silent:
        raise DataError(f"{path}: the trace has no call of rank {silent[0]}: run the job with --trace all")
    return RecordedJob(path, choices or Choices(), recording, calls, n_bytes)


def _name(path: str) -> str:
    return os.path.basename(path).removesuffix(".h5")


def _check(job: Frames, path: str) -> None:
    ranks = job.profile.tables["ranks"]
    n_lost = int(ranks["n_collective_overflow"].sum())
    if n_lost:
        raise DataError(
            f"{path}: the members of {n_lost:,} collectives are unknown (the profile's table was full, or "
            "there were ranks outside the job), so it cannot be replayed"
        )
    if not job.is_traced and not len(job.profile.tables["events"]):
        raise DataError(f"{path} has no trace of its calls: run the job with --trace all")


def _check_complete(recording: Recording, path: str) -> None:
    dropped = int(recording.profile.tables["ranks"]["n_events_dropped"].sum())
    if dropped or recording.is_cut:
        raise DataError(
            f"{path}: the trace is incomplete: {dropped:,} events were dropped; run the job again with "
            "--trace all and a larger --trace-ring"
        )
    if isinstance(recording, FullTrace) and not recording.is_whole:
        raise DataError(f"{path}: {recording.notes[0]}: an incomplete trace cannot be replayed")


def _messages(recording: Recording) -> RecordedMessages:
    messages = recording.messages
    sent, received = messages.sent, messages.received
    tags = messages.place % _N_TAGS
    return RecordedMessages(sent.rank, sent.peer, sent.bytes, sent.begin_ns, received.begin_ns, tags)


def _one_sided(recording: Recording) -> OneSided:
    if not isinstance(recording, FullTrace):
        return OneSided(*np.zeros((5, 0), np.int64))
    transfers = recording.one_sided()
    transfers["begin_ns"] = transfers["begin_ns"] - recording.origin_ns
    return OneSided(**transfers)


def _all_collectives(
    job: RecordedJob, hosts: Array, choices: Choices
) -> tuple[list[PlacedCollective], list[str]]:
    """The collectives, and notes on collectives that are left out."""
    recorded_library, notes = job_traffic.library_of(job.profile.job.mpi_library)
    notes += _persistent_notes(job)
    placed, notes_of_neighbours = _neighbours(job)
    placed += _collectives(job, hosts, choices, recorded_library)
    return placed, notes + notes_of_neighbours


def _persistent_notes(job: RecordedJob) -> list[str]:
    """A note on persistent collectives that are left out; raises DataError if they moved too many bytes."""
    names = ", ".join(sorted(name for name in job.recording.names if LEFT_OUT.fullmatch(name)))
    if not names:
        return []
    tables = job.profile.tables
    n_bytes = persistent_bytes(
        tables["collectives"], job_traffic.members_of(tables["groups"], len(job.calls))
    )
    all_bytes = sum(int(own.sum()) for own in job.bytes)
    if n_bytes > _LEFT_OUT_MAX_FRAC * all_bytes and not job.choices.is_unmatched_left_out:
        raise DataError(
            f"{job.path}: a trace does not show which MPI_Start began {names} ({n_bytes:,} of "
            f"{all_bytes:,} bytes): record the program without persistent collectives, or leave them out "
            "with --allow-unmatched"
        )
    return [f"left out: {names}, {n_bytes:,} bytes"]


def _collectives(
    job: RecordedJob, hosts: Array, choices: Choices, recorded_library: Library
) -> list[PlacedCollective]:
    """Collectives within groups, and between two groups."""
    names, tables = job.recording.names, job.profile.tables
    is_known = np.array([NAME.fullmatch(name) is not None for name in names], bool)
    if not is_known.any():
        return []
    members = job_traffic.members_of(tables["groups"], len(job.calls))
    if not any(len(ranks) == len(job.calls) for ranks in members.values()):
        members[0] = np.arange(len(job.calls))
    pairs = pairs_of(tables["collectives"], members)
    called = groups_of(tables, names, members, pairs)
    members |= {i: np.concatenate([members[group] for group in pair]) for i, pair in pairs.items()}
    inter = IntercommBlocks(tables["collectives"], pairs, members, recorded_library, hosts)
    library = Chosen(recorded_library, dict(choices.algorithms)) if choices.algorithms else recorded_library
    blocks = CollectiveBlocks(tables, members, library, hosts, inter)
    n_known = n_calls_of(tables["collectives"], pairs)
    instances = align(_collective_calls(job, is_known), members, called, blocks.is_known_size, n_known)
    blocks.add(instances)
    return [
        PlacedCollective(
            members[instance.group],
            instance.i_call,
            instance.begin_ns,
            is_blocking(instance.function),
            blocks.of(instance),
        )
        for instance in steps(instances, "collectives", unit="calls")
    ]


def _neighbours(job: RecordedJob) -> tuple[list[PlacedCollective], list[str]]:
    """Neighbourhood collectives, or a note that they are left out."""
    names = job.recording.names
    is_neighbours = np.array(
        [recorded_collectives.NEIGHBOUR_NAME.fullmatch(name) is not None for name in names], bool
    )
    own = _collective_calls(job, is_neighbours)
    rank = next((rank for rank, calls in enumerate(own) if len(calls.function)), None)
    if rank is None:
        return [], []
    others = [name for name in names if recorded_collectives.SHARES_PARTS.fullmatch(name)]
    if not others:
        try:
            return recorded_collectives.placed(own, job.profile.tables["parts"]), []
        except DataError as error:
            if not job.choices.is_unmatched_left_out:
                raise DataError(f"{job.path}: {error}, or leave them out with --allow-unmatched") from None
            return [], [f"left out: neighbourhood collectives: {error}"]
    note = (
        f"left out: {own[rank].function[0]} (call {int(own[rank].i_call[0])} of rank {rank}) and other "
        f"neighbourhood collectives: the profile has their bytes only together with those of {others[0]}"
    )
    return [], [note]


def _collective_calls(job: RecordedJob, is_known: Array) -> list[CollectiveCalls]:
    names = job.recording.names
    own = []
    for calls, n_bytes in zip(job.calls, job.bytes, strict=True):
        rows = np.flatnonzero(is_known[calls.function])
        function = [names[i] for i in calls.function[rows]]
        own.append(CollectiveCalls(rows, function, calls.begin_ns[rows], calls.end_ns[rows], n_bytes[rows]))
    return own


def _running(profile: Profile, n_ranks: int) -> Array:
    """Fraction of its time for which each rank had a processor; 1 if unknown."""
    running = np.ones(n_ranks)
    for row in profile.tables["ranks"]:
        if 0 <= row["rank"] < n_ranks:
            running[row["rank"]] = running_frac(float(row["cpu_s"]), float(row["run_delay_s"]))
    return running


def _running_notes(running: Array) -> list[str]:
    if running.min() >= 1 - LEAST_DELAY_FRAC:
        return []
    return [
        f"the ranks had a processor for {running.mean():.0%} of the time in which they could run: their "
        "computation is replayed as the processor time that this leaves"
    ]
