"""One node's part of a job, as its checkpoint and the writer of the profile get it."""

import sample

from mpicoloc.core.profile import COLUMNS, table
from mpicoloc.profile.bundle import NodePart, pack_part

START_S = 1.7e9


def part(first=0, n_ranks=4, n_nodes=2, out="job.h5", **facts):
    """A node with two ranks, of a job of two such nodes."""
    found = {name: table(name) for name in COLUMNS} | sample.tables(n_shutters=3)
    ranks = found["ranks"].copy()
    ranks["rank"] += first
    found["ranks"] = ranks
    common = {"job_id": "42", "command": "app", "mpi_library": "Open MPI v4", "out_path": str(out),
              "world_rank": first, "world_size": n_ranks, "n_nodes": n_nodes, "n_cores": 2, "mode": "wrap",
              "user": "someone", "batch_name": "", "start_unix_s": START_S, "until_unix_s": 0.0,
              "not_finalized": [first, first + 1], "notes": [f"of {first}"]}  # fmt: skip
    return NodePart(found, {**common, **facts})


WRITE = """
import sys
from mpicoloc.profile import assemble
from mpicoloc.profile.bundle import unpack_part
assemble.write([unpack_part(open(sys.argv[1], "rb").read())])
print(*sys.modules)
"""


def packed(folder):
    """Path of a packed part, from which the writer of the profile makes `job.h5` in this folder."""
    found = {**sample.tables(shared_s=0.0), "cycles": table("cycles")}
    made = part(n_ranks=2, n_nodes=1, out=folder / "job.h5", not_finalized=[])
    path = folder / "packed"
    path.write_bytes(b"".join(pack_part(NodePart({**made.tables, **found}, made.facts))))
    return str(path)
