"""All tables as Arrow's own files (IPC, also called Feather 2), which are mapped into memory as they are."""

from __future__ import annotations

import pyarrow as pa

from mpicoloc.profile.frames import Frames
from mpicoloc.report.export import columnar


def write(job: Frames, out: str) -> list[str]:
    """Write the tables of `job` to the folder `out`; what it returns is what is missing, in words."""
    return columnar.write(job, out, ".arrow", pa.ipc.new_file)
