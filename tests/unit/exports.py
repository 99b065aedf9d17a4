"""Profiles of which exports are made."""

import numpy as np

from mpicoloc.core.profile import Job
from mpicoloc.core.tables import table
from mpicoloc.model.interference import complete
from mpicoloc.store.frames import Frames

HOSTILE = "a\"b'c\\d\n<script>alert(1)</script>\t{}:,;%s\u2028é"


def job_of(command="app", job_id="1234", **columns):
    """A profile with these columns of its tables, complete."""
    tables = {name: table(name, values) for name, values in columns.items()}
    n_ranks = len(tables["ranks"])
    job = Job(job_id, command, n_ranks, max(1, len(tables.get("nodes", ()))), n_ranks, "an MPI", 2.0)
    return Frames(complete(job, tables, rng=np.random.default_rng(0)))
