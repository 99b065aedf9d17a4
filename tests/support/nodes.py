"""Nodes of a cluster on one machine: a lab whose hosts have clocks of their own."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jobs
import processes

from mpicoloc.errors import DataError
from mpicoloc.lab import agent, control, server
from mpicoloc.pmpi import contract

CLOCK_STEP_S = 5000
"""Node i was booted so much longer ago than node i - 1."""


def can_be_made():
    """Whether this machine lets us make namespaces of all these kinds."""
    if os.geteuid() != 0 or not all(map(shutil.which, control.TOOLS)):
        return False
    command = ["unshare", "--net", "--uts", "--mount", "--ipc", "--time", "--pid", "--fork", "true"]
    return subprocess.run(command, capture_output=True, timeout=jobs.LIMIT_S).returncode == 0


class Cluster:
    """The hosts h0, h1 and on of a lab, below one switch; what runs on them ends with the with block."""

    def __init__(self, folder, n_nodes=2):
        self.folder = folder
        self.names = [f"h{i}" for i in range(n_nodes)]
        self.lab = f"nodes-{os.getpid()}"

    def __enter__(self):
        control.start(self.lab, f"XGFT(1;{len(self.names)};1)", "10Gbit", CLOCK_STEP_S)
        return self

    def __exit__(self, *_):
        control.stop(self.lab)

    def start(self, mpi, name, nodes, command, way="wrap", **options):
        """Start a job, "wrap" or "preload", with one rank on each of these nodes; returns a `jobs.Job`."""
        before = [sys.executable, "-m", "mpicoloc.wrap"]
        if way == "preload":
            before = ["env", f"LD_PRELOAD={mpi.shim}"]
        n_slots = 2 if way == "wrap" else 1
        given = ("MPICOLOC_OUT", "MPICOLOC_JOB_ID", "MPICOLOC_PYTHON", *options)
        launch = [
            mpi.mpirun, *mpi.flags, "--bind-to", "none",
            "--mca", "plm_rsh_agent", server.AGENT, "--mca", "btl", "tcp,self",
            *(word for key in given for word in ("-x", key)),
            "--host", ",".join(f"{node}:{n_slots}" for node in nodes), "-n", str(n_slots * len(nodes)),
            *before, *command,
        ]  # fmt: skip
        inside = [sys.executable, "-SE", agent.__file__, self.lab, nodes[0], shlex.join(map(str, launch))]
        return jobs.launch(inside, self.folder, name, env=options)

    def processes_on(self, name):
        """Process ids on a node."""
        pid = control.ask(self.lab, "describe")["pids"][name]
        first = control.first_process(self.lab)
        namespace = os.stat(f"/proc/{first}/root/proc/{pid}/ns/uts").st_ino
        return set(processes.matching(lambda one: os.stat(one / "ns" / "uts").st_ino == namespace))

    def coordinator_of(self, job_id, name):
        """Process id of a job's coordinator on a node, waited for until it is in MPI."""

        def find():
            own = {
                "cmdline": [b"mpicoloc.job.coordinator"],
                "environ": [f"MPICOLOC_JOB_ID={job_id}".encode()],
            }
            return next(iter(self.processes_on(name) & {*processes.matching(**own)}), None)

        return jobs.wait_until(find, f"the coordinator of {job_id} on {name}")


def node_file(coordinator):
    """Node file of a coordinator, given by its process id; it is mapped, so it follows changes."""
    words = Path(f"/proc/{coordinator}/environ").read_text().split("\0")
    key = next(word.partition("=")[2] for word in words if word.startswith("MPICOLOC_KEY="))

    def find():
        with contextlib.suppress(DataError, OSError):  # not there or not complete yet
            return contract.map_file(f"/proc/{coordinator}/root/dev/shm/mpicoloc.{key}.node")

    return jobs.wait_until(lambda: [found] if (found := find()) is not None else [], "the node's file")[0]


def stop(job):
    """End a job as its user would: its launcher ends the ranks on all nodes."""
    os.killpg(job.process.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + 10
    while job.process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    job.kill()
