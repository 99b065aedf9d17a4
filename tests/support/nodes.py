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

from mpicoloc.errors import DataError
from mpicoloc.lab import agent, control, server
from mpicoloc.pmpi import contract, paths

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
        before = {
            "wrap": [sys.executable, "-m", "mpicoloc.wrap"],
            "preload": ["env", f"LD_PRELOAD={paths.find_shim(mpi.name)}"],
        }
        n_slots = 2 if way == "wrap" else 1
        env = {"MPICOLOC_OUT": self.folder / f"{name}.h5", "MPICOLOC_JOB_ID": name}
        env |= {"MPICOLOC_PYTHON": sys.executable, **options}
        log = self.folder / f"{name}.log"
        launch = [
            mpi.mpirun, *mpi.flags, "--bind-to", "none",
            "--mca", "plm_rsh_agent", server.AGENT, "--mca", "btl", "tcp,self",
            *(word for key in env for word in ("-x", key)),
            "--host", ",".join(f"{node}:{n_slots}" for node in nodes), "-n", str(n_slots * len(nodes)),
            *before[way], *command,
        ]  # fmt: skip
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-SE", agent.__file__, self.lab, nodes[0], shlex.join(map(str, launch))],
                env={**os.environ, **{key: str(value) for key, value in env.items()}},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return jobs.Job(process, self.folder / f"{name}.h5", log)

    def processes_on(self, name):
        """Process ids on a node."""
        pid = control.ask(self.lab, "describe")["pids"][name]
        first = control.first_process(self.lab)
        namespace = os.stat(f"/proc/{first}/root/proc/{pid}/ns/uts").st_ino
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.stat(folder / "ns" / "uts").st_ino == namespace:
                    found.add(int(folder.name))
        return found

    def coordinator_of(self, job_id, name):
        """Process id of a job's coordinator on a node, waited for until it is in MPI."""

        def find():
            for pid in self.processes_on(name):
                with contextlib.suppress(OSError):
                    is_one = b"mpicoloc.job.coordinator" in Path(f"/proc/{pid}/cmdline").read_bytes()
                    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    if is_one and f"MPICOLOC_JOB_ID={job_id}".encode() in environ:
                        return pid
            return None

        return jobs.wait_until(find, f"the coordinator of {job_id} on {name}")


def node_file(coordinator):
    """What a coordinator, given by its process id, and the ranks of its node share, as it changes."""
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
