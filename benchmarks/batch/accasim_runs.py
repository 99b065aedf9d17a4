"""Runs of AccaSim on the jobs that mpicoloc simulates, if a Python has it: see `in_accasim.py`."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import log_files
from measured import run_measured

NAME = "accasim 1.1.3"
SCRIPT = Path(__file__).with_name("in_accasim.py")
VARIABLE = "MPICOLOC_ACCASIM_PYTHON"
"""Names a Python that has AccaSim, as of a virtual environment; else this one is asked."""


@functools.cache
def python():
    """A Python with AccaSim, or None."""
    found = os.environ.get(VARIABLE, sys.executable)
    if shutil.which(found) is None:
        return None
    test = [found, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('accasim') is None)"]
    return found if subprocess.run(test).returncode == 0 else None


def write_log(workload, path):
    """The jobs in Standard Workload Format, one processor a node, with the limits that mpicoloc counts on."""
    log = workload.log
    assert (log.previous < 0).all(), "AccaSim knows no job that waits for the end of another"
    log_files.write(path, log.number, log.submit_s, log.run_s, workload.estimate_s, workload.n_nodes)


def run(workload, n_nodes, order, *, is_one_node=False):
    """Begins of the jobs, s, by number; time, s, and memory, bytes, that AccaSim took.

    Parameters
    ----------
    workload : Workload
    n_nodes : int
    order : str
        fcfs, easy or easy-mended: see `in_accasim.py`.
    is_one_node : bool
        As many cores of one node; AccaSim's schedule is the same, and it is faster.
    """
    machine = (1, n_nodes) if is_one_node else (n_nodes, 1)
    with tempfile.TemporaryDirectory() as folder:
        log, out = Path(folder) / "log.swf", Path(folder) / "out.json"
        write_log(workload, log)
        command = [python(), "-W", "ignore", str(SCRIPT), str(log), *map(str, machine), order, str(out)]
        max_rss_bytes = run_measured(command, subprocess.DEVNULL)
        found = json.loads(out.read_text())
    starts_s = {int(number): start_s for number, start_s in found["starts_s"].items()}
    return starts_s, found["wall_s"], max_rss_bytes
