"""Logs as the benchmarks of `mpicoloc batch` read and write them."""

import gzip

import numpy as np

from mpicoloc.batch import job_log, swf


def write(path, number, submit_s, run_s, limit_s, n_nodes):
    """Write jobs in Standard Workload Format, one processor a node; each argument is a column."""
    with open(path, "w") as file:
        for i, submit, run, limit, n in zip(number, submit_s, run_s, limit_s, n_nodes, strict=True):
            file.write(f"{i} {submit:.0f} -1 {run:.0f} {n} -1 -1 {n} {limit:.0f} -1 1 1 1 1 1 1 -1 -1\n")


def workload(path, n_nodes, n_cores=None, n_jobs=None):
    """The first jobs of a log in Standard Workload Format that ran.

    Parameters
    ----------
    path : Path
        .gz too.
    n_nodes : int
        Of the machine.
    n_cores : int, optional
        Of a node; None: as the log's head says.
    n_jobs : int, optional
        None: all.
    """
    data = path.read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    log, _ = swf.parse(data.decode("utf-8", "replace").split("\n"), str(path), skip_damaged=True)
    log = job_log.select(log, job_log.ran(log))
    if n_jobs is not None:
        log = job_log.select(log, np.arange(len(log)) < n_jobs)
    return job_log.workload(log, n_cores or log.cores_per_node() or 1, n_nodes)
