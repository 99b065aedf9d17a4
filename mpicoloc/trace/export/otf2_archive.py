"""OTF2 archives for Vampir, Scalasca and Score-P's tools, with a location for each track."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import otf2
from otf2.enums import GroupType, Paradigm, RegionRole, Type

from mpicoloc.core.profile import text
from mpicoloc.profile.frames import Frames
from mpicoloc.show import outputs
from mpicoloc.trace.export import calls
from mpicoloc.trace.export.calls import Messages, Recording

_NS_PER_S = 10**9
_BUFFERS = {"chunk_size_events": 1 << 18, "chunk_size_definitions": 1 << 18}
"""Sizes of the buffers that each track holds until the archive is closed, bytes: the library's minimum."""
_ROLES = tuple(
    (re.compile(f"MPI_I?({pattern})(_init)?(_c)?", re.IGNORECASE), role)
    for pattern, role in (
        ("barrier", RegionRole.BARRIER),
        ("bcast|scatterv?", RegionRole.COLL_ONE2ALL),
        ("reduce|gatherv?", RegionRole.COLL_ALL2ONE),
        ("all(reduce|gatherv?|toall[vw]?)|reduce_scatter(_block)?", RegionRole.COLL_ALL2ALL),
        ("(ex)?scan|neighbor_.*", RegionRole.COLL_OTHER),
        ("[bsr]?send|m?recv|sendrecv(_replace)?|m?probe", RegionRole.POINT2POINT),
        ("file_.*", RegionRole.FILE_IO),
        ("win_.*|r?(put|get|accumulate|get_accumulate)|fetch_and_op|compare_and_swap", RegionRole.RMA),
    )
)
Ends = Mapping[int, list[tuple[bool, int, int]]]
"""Ends of messages on a track, by the begin of their call: whether the end is a send, its partner, its
bytes."""


def write(job: Frames, out: str) -> Sequence[str]:
    """Write the trace of `job` as an archive to the folder `out`; tools open its file ``traces.otf2``.

    Result: sentences on data that the trace lacks.
    """
    recording = calls.recording(job)
    with outputs.folder(out) as folder:
        # The library requires that the archive's folder does not exist.
        os.rmdir(folder)
        with otf2.writer.open(folder, timer_resolution=_NS_PER_S, **_BUFFERS) as archive:
            archive.creator = "mpicoloc"
            archive.description = _text(recording.profile.job.command)
            _write_tracks(recording, archive)
    return recording.notes


def _write_tracks(recording: Recording, archive: Any) -> None:
    names = archive.definitions
    locations = _locations(recording, names)
    # The communicator has a member for each rank, including ranks without a call.
    members = [locations[rank, 0] for rank in range(recording.n_ranks)]
    everybody = names.group(
        "MPI locations", group_type=GroupType.COMM_LOCATIONS, paradigm=Paradigm.MPI, members=members
    )
    group = names.group(
        "MPI_COMM_WORLD", group_type=GroupType.COMM_GROUP, paradigm=Paradigm.MPI, members=everybody.members
    )
    world = names.comm("MPI_COMM_WORLD", group=group)
    regions = [
        names.region(_text(name), region_role=_role(name), paradigm=Paradigm.MPI) for name in recording.names
    ]
    n_bytes = names.attribute("bytes", "Bytes that the call moved", Type.UINT64)
    for key in recording.tracks:
        writer = archive.event_writer_from_location(locations[key])
        _write_track(recording, key, writer, (regions, n_bytes, world))


def _write_track(
    recording: Recording, key: tuple[int, int], writer: Any, names: tuple[list[Any], Any, Any]
) -> None:
    """Write each call as a region. Its messages are sent at its begin and received at its end."""
    regions, attribute, world = names
    ends = _ends(recording.messages, *key)
    for piece in recording.calls(*key):
        for begin_ns, end_ns, n_bytes, _, call in piece.rows():
            writer.enter(begin_ns, regions[call], {attribute: n_bytes})
            for is_sent, partner, size in sorted(ends.get(begin_ns, ()), reverse=True):
                if is_sent:
                    writer.mpi_send(begin_ns, partner, world, 0, size)
                else:
                    writer.mpi_recv(end_ns, partner, world, 0, size)
            writer.leave(end_ns, regions[call])


def _ends(messages: Messages, rank: int, track: int) -> Ends:
    found: dict[int, list[tuple[bool, int, int]]] = defaultdict(list)
    sides = (messages.sent, messages.received)
    for is_sent, side, rows in zip((True, False), sides, messages.of(rank), strict=True):
        for begin_ns, _, size, peer, _, own in side.take(rows).rows():
            if own == track:
                found[begin_ns].append((is_sent, peer, size))
    return found


def _locations(recording: Recording, names: Any) -> dict[tuple[int, int], Any]:
    """Define machine, nodes, ranks and tracks; returns the location of each track."""
    root = names.system_tree_node("machine", class_name="machine")
    hosts = [_text(text(row["hostname"])) for row in recording.profile.tables["nodes"]]
    of_rank = dict.fromkeys(range(recording.n_ranks), len(hosts)) | recording.nodes
    hosts += ["unknown"] if len(hosts) in of_rank.values() else []
    nodes = [names.system_tree_node(host, class_name="node", parent=root) for host in hosts]
    tracks = sorted({*recording.tracks, *((rank, 0) for rank in range(recording.n_ranks))})
    groups = [
        names.location_group(f"rank {rank}", system_tree_parent=nodes[of_rank[rank]])
        for rank in range(recording.n_ranks)
    ]
    return {(rank, track): names.location(f"thread {track}", group=groups[rank]) for rank, track in tracks}


def _role(name: str) -> Any:
    return next((role for pattern, role in _ROLES if pattern.fullmatch(name)), RegionRole.FUNCTION)


def _text(words: str) -> str:
    """A text without zero bytes, which end a string in C."""
    return words.replace("\0", "?").encode("utf-8", "replace").decode()
