"""Profiles of two jobs on two nodes, the topology of their cluster, and other hosts for their ranks."""

from dataclasses import replace

import numpy as np
import sample

from mpicoloc.core.profile import table
from mpicoloc.profile import hdf5

SLURM = "SwitchName=a Nodes=n[0-3]\nSwitchName=b Nodes=n[4-7]\nSwitchName=top Switches=a,b\n"


def profile(job_id, n_bytes, hostnames=("n0", "n4")):
    """Two ranks on two nodes; rank 0 sends to rank 1, and something to nobody knows whom."""
    made = sample.profile()
    peers = table(
        "peers", {"src": [0, 0, 0], "dst": [1, 1, -1], "n": [2, 1, 9], "bytes": [n_bytes - 100, 100, 999]}
    )
    nodes = table("nodes", {"hostname": list(hostnames)})
    ranks = made.tables["ranks"].copy()
    ranks["i_node"] = [0, 1]
    # Half of the bytes in the first second, by two calls; a receive and an unknown peer do not count.
    events = table(
        "events",
        {
            "rank": [0, 0, 0, 1, 0],
            "t_ns": np.array([5, 5, 7, 5, 6]) * 10**9,
            "duration_ns": [10**9, 0, 2 * 10**9, 10**9, 10**9],
            "bytes": [n_bytes // 4, n_bytes // 4, n_bytes // 2, 9999, 9999],
            "peer": [1, 1, 1, 0, -1],
            "call": ["MPI_Send", "MPI_Isend", "MPI_Sendrecv", "MPI_Recv", "MPI_Send"],
        },
    )
    tables = {**made.tables, "peers": peers, "nodes": nodes, "ranks": ranks, "events": events}
    found = replace(made.interference, slowdown=None)
    return replace(made, job=sample.job(id=job_id, wall_s=2.0), tables=tables, interference=found)


def write(folder):
    """Profiles `one.h5` and `two.h5`, the topology, and two lists of hosts."""
    hdf5.write(profile("1", 1000), folder / "one.h5")
    hdf5.write(profile("2", 4000), folder / "two.h5")
    (folder / "topology.conf").write_text(SLURM)
    (folder / "hosts").write_text("n1  # rank 0\nn6\n")
    (folder / "numbers").write_text("2, 5\n")
