"""Profiles of which exports are made."""

import numpy as np
import traces

from mpicoloc.core.profile import Job, table
from mpicoloc.profile import hdf5
from mpicoloc.profile.frames import Frames
from mpicoloc.profile.merge import complete
from mpicoloc.trace import node_file

HOSTILE = "a\"b'c\\d\n<script>alert(1)</script>\t{}:,;%s\u2028é"


def job_of(command="app", job_id="1234", **columns):
    """A profile with these columns of its tables, complete."""
    tables = {name: table(name, values) for name, values in columns.items()}
    n_ranks = len(tables["ranks"])
    job = Job(job_id, command, n_ranks, max(1, len(tables.get("nodes", ()))), n_ranks, "an MPI", 2.0)
    return Frames(complete(job, tables, rng=np.random.default_rng(0)))


def ring_of(path, n_ranks, n_rounds, n_nodes=4, ahead_ns=0):
    """A profile at `path` with a trace of every call: in each round all send on, receive, and meet.

    Clocks of nodes but the first are `ahead_ns`, which the profile does not know.
    """
    n_own = -(-n_ranks // n_nodes)
    i_node = np.arange(n_ranks) // n_own
    nodes = {"hostname": [f"n{i}" for i in range(n_nodes)]}
    calls = np.tile(
        [traces.SEND | node_file.SENT, traces.RECV | node_file.RECEIVED, traces.BARRIER], n_rounds
    )
    begins = 1000 + 10_000 * np.arange(n_rounds)[:, None] + [0, 3000, 6000]
    n_events = np.full(n_ranks, 3 * n_rounds)
    job = job_of(nodes=nodes, ranks={"rank": np.arange(n_ranks), "i_node": i_node, "n_events": n_events})
    hdf5.write(job.profile, path)
    folder = path.with_suffix(".trace")
    folder.mkdir()
    for node in range(n_nodes):
        content = [traces.head(b"1234", f"n{node}".encode(), n_ranks), traces.names()]
        for rank in np.flatnonzero(i_node == node).tolist():
            peers = np.tile([(rank + 1) % n_ranks, (rank - 1) % n_ranks, -1], n_rounds)
            n_bytes = np.tile([8 + rank % 3, 8 + (rank - 1) % n_ranks % 3, 0], n_rounds)
            columns = (begins.ravel() + rank + ahead_ns * (node > 0), 2000, n_bytes, peers, calls)
            for i in range(0, len(peers), node_file.MAX_EVENTS):
                part = slice(i, i + node_file.MAX_EVENTS)
                content.append(traces.events(rank, *(np.broadcast_to(c, len(peers))[part] for c in columns)))
        (folder / f"{node}.mct").write_bytes(b"".join(content))
