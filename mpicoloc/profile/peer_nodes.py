"""The nodes of a job that has no coordinators, or has them no more, tell each other their parts by files.

Each keeper's writer leaves the last part of its node. The one of rank 0's node waits for the others a moment
and writes the profile; where a node has died, its last checkpoint is there.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable

from mpicoloc.errors import MpicolocError
from mpicoloc.profile import checkpoints
from mpicoloc.profile.checkpoints import save
from mpicoloc.profile.node_part import NodePart
from mpicoloc.profile.recover import PartFile, of_one_run, read_part

WITHIN_S = 3.0
"""Wait so long for the last parts of other nodes: rank 0 may be waiting too."""
_POLL_S = 0.1


def gather(
    own: NodePart,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[NodePart]:
    """The parts that this node is to make a profile of, its own first; none where another node does that."""
    if own.facts["n_nodes"] == 1:
        return [own]
    try:
        path = save(own, 0.0)
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
    """All nodes told their last part."""
    n_nodes = found[0].facts["n_nodes"] if found else 0
    return len(found) == n_nodes and not any(part.facts["until_unix_s"] for part in found)


def _beside(own: NodePart, own_path: str) -> list[NodePart]:
    files = [PartFile(own_path, own)]
    for path in checkpoints.files(own_path.rpartition("/")[0]):
        # Others may write into the folder, or have made it.
        with contextlib.suppress(OSError, MpicolocError):
            status = os.lstat(path)
            if path != own_path and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                files.append(PartFile(path, read_part(path)))
    # The own one is of the latest run, whatever the clocks of other nodes say.
    return [file.part for file in of_one_run(files, files[0])[0]]
