"""A partial profile from what the nodes of a job wrote while it ran."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy.random

from mpicoloc.core.profile import Profile
from mpicoloc.core.tables import COLUMNS
from mpicoloc.errors import MALFORMED, MpicolocError, Refused
from mpicoloc.measure import ipc, loop
from mpicoloc.profile import profile_ipc, rows
from mpicoloc.profile.assembly import checkpoint_files
from mpicoloc.profile.assembly.job_network import on_network
from mpicoloc.profile.assembly.merge import merge
from mpicoloc.profile.assembly.node_part import NodePart, unpack
from mpicoloc.profile.sandbox import Pieces, grant_time, run_in_child

_NEEDED = (hashlib, numpy.random, ipc, loop)
"""What `merge` imports when it needs it, where no module can be read any more."""
_SAME_START_S = 60.0
"""All nodes of a run begin within this time, by clocks that differ."""


@dataclass(frozen=True)
class PartFile:
    """A part, and where it was found."""

    path: str
    part: NodePart

    @property
    def run(self) -> tuple[str, int]:
        """What is the same on all nodes."""
        return self.part.facts["job_id"], self.part.facts["world_size"]

    @property
    def start_s(self) -> float:
        """When its first rank began, s since 1970."""
        return float(self.part.facts["start_unix_s"])

    @property
    def ranks(self) -> set[int]:
        """Ranks of its node."""
        return set(self.part.tables["ranks"]["rank"].tolist())


def recover(places: Sequence[str]) -> tuple[Profile, list[str]]:
    """The partial profile of a job whose nodes left these parts, read in a process of its own.

    Parameters
    ----------
    places : sequence of str
        Profiles that are not there, folders of parts, or parts (`profile.assembly.checkpoint_files.files`).

    Returns
    -------
    profile : Profile
        Always partial; its notes tell until when it knows the job.
    left_out : list of str
        Why a part is not in it, in a line each.

    Raises
    ------
    DataError
        If there are no parts, or one is damaged.
    EnvironmentFault
        If the system refuses to read them.
    """
    found = {
        path: checkpoint_files.content(path) for place in places for path in checkpoint_files.files(place)
    }

    def read(content: memoryview) -> tuple[Profile, list[str]]:
        profile, more = profile_ipc.unpack(content)
        return profile, [str(line) for line in more["left_out"]]

    return run_in_child(next(iter(found)) if len(found) == 1 else places[0], lambda: _recovered(found), read)


def _recovered(content: Mapping[str, bytes]) -> Pieces:
    grant_time(n_bytes=sum(map(len, content.values())))
    found = [PartFile(path, read_part(path, packed)) for path, packed in content.items()]
    kept, left_out = of_one_run(found, max(found, key=lambda file: file.start_s))
    try:
        profile = on_network(merge([file.part for file in kept], partial=True))
    except MALFORMED as error:
        raise checkpoint_files.damage(kept[0].path, error) from error
    return profile_ipc.pack(replace(profile, tables=dict(profile.tables)), {"left_out": left_out})


def read_part(path: str, packed: bytes | None = None) -> NodePart:
    """The part in a file, whoever wrote it; parameters as of `parts.read`.

    Raises
    ------
    DataError
        If there is no such file, or it is damaged.
    EnvironmentFault
        If the system refuses to read it.
    """
    try:
        part = unpack(checkpoint_files.read(path, packed))
        for name, table in part.tables.items():
            for column in COLUMNS[name]:
                rows.known(name, column, table[column.name])
        if not len(part.tables["ranks"]):
            raise ValueError("it has no ranks")
    except MpicolocError:
        raise
    except MALFORMED as error:
        raise checkpoint_files.damage(path, error) from error
    return part


def of_one_run(files: Sequence[PartFile], first: PartFile) -> tuple[list[PartFile], list[str]]:
    """Those of the run of `first`, that of rank 0 first, and why the others are none of it."""
    kept: list[PartFile] = []
    left_out = []
    for file in sorted(files, key=lambda file: (file is not first, -file.start_s)):
        if file.run != first.run:
            left_out.append(f"{file.path} is of another job")
        elif abs(first.start_s - file.start_s) > _SAME_START_S or any(
            file.ranks & other.ranks for other in kept
        ):
            left_out.append(f"{file.path} is of another run, or another copy of a node's part")
        else:
            kept.append(file)
    return sorted(kept, key=lambda file: min(file.ranks)), left_out


def check_replaces(path: str, old: Profile, new: Profile) -> None:
    """Whether a recovered profile may take the place of the one that lies there.

    Raises
    ------
    Refused
        If that one is whole, of another job, or knows more.
    """
    reason = ""
    if not old.partial:
        reason = "is whole"
    elif old.job.id != new.job.id:
        reason = f"is of another job, {old.job.id}"
    elif (old.mpi.n_calls or 0) > (new.mpi.n_calls or 0):
        reason = f"has more: {old.mpi.n_calls:,} calls, the checkpoints {new.mpi.n_calls or 0:,}"
    if reason:
        raise Refused(f"the profile {path} {reason}; write the recovered one elsewhere with --out FILE")
