"""Make a partial profile from the checkpoints that the nodes of a job wrote."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy.random

from mpicoloc.core.profile import COLUMNS, Profile
from mpicoloc.errors import MALFORMED, MpicolocError, Refused
from mpicoloc.measure import count, ipc
from mpicoloc.profile import bundle, checkpoints, hdf5
from mpicoloc.profile.bundle import NodePart, unpack_part
from mpicoloc.profile.job_network import on_network
from mpicoloc.profile.merge import merge
from mpicoloc.profile.sandbox import Pieces, grant_time, run_in_child

_NEEDED = (hashlib, numpy.random, count, ipc)
"""Modules that `merge` imports only when it needs them. This module imports them first, because the child
process can no longer read files."""
_SAME_START_S = 60.0
"""Largest difference between the start times that a run's nodes report, s; their clocks may differ."""


@dataclass(frozen=True)
class PartFile:
    """A part and its file."""

    path: str
    part: NodePart

    @property
    def run(self) -> tuple[str, int]:
        """Job id and number of ranks. Both are the same on all nodes of a run."""
        return self.part.facts["job_id"], self.part.facts["world_size"]

    @property
    def start_s(self) -> float:
        """Start of the part's first rank, s since 1970."""
        return float(self.part.facts["start_unix_s"])

    @property
    def ranks(self) -> set[int]:
        """Ranks of the part's node."""
        return set(self.part.tables["ranks"]["rank"].tolist())


def recover(places: Sequence[str]) -> tuple[Profile, list[str]]:
    """Make the partial profile of a job from these parts, in a separate process.

    Raises `DataError` if there are no parts or one is damaged, `EnvironmentFault` if they cannot be opened.
    """
    found = {path: checkpoints.content(path) for place in places for path in checkpoints.files(place)}

    def read(content: memoryview) -> tuple[Profile, list[str]]:
        profile, more = bundle.unpack_profile(content)
        return profile, [str(line) for line in more["left_out"]]

    return run_in_child(next(iter(found)) if len(found) == 1 else places[0], lambda: _recovered(found), read)


def _recovered(content: Mapping[str, bytes]) -> Pieces:
    grant_time(n_bytes=sum(map(len, content.values())))
    found = [PartFile(path, read_part(path, packed)) for path, packed in content.items()]
    kept, left_out = of_one_run(found, max(found, key=lambda file: file.start_s))
    try:
        profile = on_network(merge([file.part for file in kept], partial=True))
    except MALFORMED as error:
        raise checkpoints.damage(kept[0].path, error) from error
    return bundle.pack_profile(replace(profile, tables=dict(profile.tables)), {"left_out": left_out})


def read_part(path: str, packed: bytes | None = None) -> NodePart:
    """Read and check a part, which may be of another user; parameters as for `checkpoints.read`.

    Raises `DataError` if the file is missing or damaged, `EnvironmentFault` if it cannot be opened.
    """
    try:
        part = unpack_part(checkpoints.read(path, packed))
        for name, table in part.tables.items():
            for column in COLUMNS[name]:
                hdf5.check(name, column, table[column.name])
        if not len(part.tables["ranks"]):
            raise ValueError("it has no ranks")
    except MpicolocError:
        raise
    except MALFORMED as error:
        raise checkpoints.damage(path, error) from error
    return part


def of_one_run(files: Sequence[PartFile], first: PartFile) -> tuple[list[PartFile], list[str]]:
    """The files of the same run as `first`, in order of ranks, and a reason for each other file."""
    kept: list[PartFile] = []
    left_out = []
    for file in sorted(files, key=lambda file: (file is not first, -file.start_s)):
        if file.run != first.run:
            left_out.append(f"{file.path} is of another job")
        elif abs(first.start_s - file.start_s) > _SAME_START_S or any(
            file.ranks & other.ranks for other in kept
        ):
            left_out.append(f"{file.path} is from another run, or is another copy of a node's part")
        else:
            kept.append(file)
    return sorted(kept, key=lambda file: min(file.ranks)), left_out


def check_replaces(path: str, old: Profile, new: Profile) -> None:
    """Check that a recovered profile may replace the old one at `path`.

    Raises `Refused` if the old profile is complete, of another job, or has more calls.
    """
    reason = ""
    if not old.partial:
        reason = "is complete"
    elif old.job.id != new.job.id:
        reason = f"is of another job, {old.job.id}"
    elif (old.mpi.n_calls or 0) > (new.mpi.n_calls or 0):
        reason = f"has {old.mpi.n_calls:,} calls, but the checkpoints only {new.mpi.n_calls or 0:,}"
    if reason:
        raise Refused(f"the profile {path} {reason}; write the recovered one elsewhere with --out FILE")


# A job that has no coordinators, or has lost them, joins the parts of its nodes through files. Each
# keeper's writer saves the last part of its node. The writer on rank 0's node waits briefly for the last
# parts of the other nodes, then writes the profile; for a node that has died it uses the last checkpoint.
WITHIN_S = 3.0
"""Time limit for the last parts of other nodes; it is short, because rank 0 may be waiting too."""
_POLL_S = 0.1


def gather(
    own: NodePart,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[NodePart]:
    """The parts from which this node writes the profile; empty if another node writes it."""
    try:
        path = checkpoints.save(own, 0.0)
    except OSError:
        return [own]
    if own.facts["world_rank"] != 0:
        return []
    deadline_s = clock() + WITHIN_S
    found = _beside(own, path)
    while not is_whole(found) and clock() < deadline_s:
        sleep(_POLL_S)
        found = _beside(own, path)
    return found


def is_whole(found: list[NodePart]) -> bool:
    """Whether the final parts of all nodes are there."""
    n_nodes = found[0].facts["n_nodes"] if found else 0
    return len(found) == n_nodes and not any(part.facts["until_unix_s"] for part in found)


def _beside(own: NodePart, own_path: str) -> list[NodePart]:
    files = [PartFile(own_path, own)]
    for path in checkpoints.files(own_path.rpartition("/")[0]):
        # Take only regular files of this user, because other users may be able to write into the folder.
        with contextlib.suppress(OSError, MpicolocError):
            status = os.lstat(path)
            if path != own_path and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                files.append(PartFile(path, read_part(path)))
    # The run is that of this node's part, which is the latest run, whatever the other nodes' clocks say.
    return [file.part for file in of_one_run(files, files[0])[0]]
