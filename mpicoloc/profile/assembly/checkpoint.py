"""Copies what this node knows of a running job to disk.

    python -m mpicoloc.profile.assembly.checkpoint KEY

Started now and then by the node's keeper, with time that nobody wants. If the node dies, `mpicoloc recover`
makes a partial profile of the nodes' last copies.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from mpicoloc.errors import MpicolocError
from mpicoloc.pmpi import contract, shared_files
from mpicoloc.profile.assembly import checkpoint_files
from mpicoloc.profile.assembly.collect import CHECKPOINT_TROUBLE, collect
from mpicoloc.profile.assembly.node_part import NodePart, pack


def save(part: NodePart, until_unix_s: float) -> str:
    """Write the part beside where the profile will be; returns its file.

    Parameters
    ----------
    part : NodePart
        What this node knows.
    until_unix_s : float
        When it was collected, s since 1970, if the job went on; else 0.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    told = replace(part, facts={**part.facts, "until_unix_s": until_unix_s})
    return checkpoint_files.write(part.facts["out_path"], part.facts["world_rank"], pack(told))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of the command; returns its exit code. ``--last``: the ranks have ended, and left no profile."""
    key, *options = sys.argv[1:] if arguments is None else arguments
    is_last = "--last" in options
    trouble = contract.shm_path(key, CHECKPOINT_TROUBLE)
    try:
        now_s = time.time()
        # The last calls may be as large as all of the job's memory, and cost no disk while it runs.
        save(collect(key, has_events=is_last), 0.0 if is_last else now_s)
    except (MpicolocError, OSError) as error:
        # Of OSError: the file and what the system said, without a number.
        reason = ": ".join(filter(None, (getattr(error, name, "") for name in ("filename", "strerror"))))
        # Nobody reads what it says now: the profile will tell.
        with (
            contextlib.suppress(OSError),
            shared_files.open_shared(trouble, os.O_WRONLY | os.O_CREAT) as file,
        ):
            file.truncate()
            file.write((reason or str(error)).encode(errors="replace"))
        return 4
    with contextlib.suppress(FileNotFoundError):
        os.unlink(trouble)
    return 0


if __name__ == "__main__":
    sys.exit(main())
