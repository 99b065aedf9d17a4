"""Nodes of a cluster on one machine: namespaces, each with its network, host name, /dev/shm and clock."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jobs

CLOCK_STEP_S = 5000
"""Node i was booted so much longer ago than node i - 1."""
_HOLD = """set -e; hostname $1; mount -t tmpfs none /dev/shm; mount --bind "$2" /etc/hosts
ip link set lo up; touch "$3"; exec sleep 600"""
_NAMESPACES = ["--net", "--uts", "--mount", "--ipc"]


def can_be_made():
    """Whether this machine lets us make namespaces of all these kinds."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    command = ["unshare", *_NAMESPACES, "--time", "--fork", "true"]
    return subprocess.run(command, capture_output=True, timeout=jobs.LIMIT_S).returncode == 0


class Cluster:
    """So many nodes, node0 and on, each linked to the first; what runs on them ends with the with block."""

    def __init__(self, folder, n_nodes=2):
        self.folder = folder
        self.names = [f"node{i}" for i in range(n_nodes)]
        self._holders = []

    def __enter__(self):
        addresses = [f"10.77.0.{i + 1} {name}\n" for i, name in enumerate(self.names)]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(addresses))
        try:
            for i, name in enumerate(self.names):
                self._boot(i, name)
            for i in range(1, len(self.names)):
                self._link(i)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for holder, name in zip(self._holders, self.names, strict=False):
            if (self.folder / name).exists():
                _kill_all_in(f"/proc/{(self.folder / name).read_text()}/ns/uts")
            holder.kill()
            holder.wait(jobs.LIMIT_S)

    def _boot(self, i, name):
        is_up = self.folder / f"{name}.up"
        clock = ["--time", "--monotonic", str(i * CLOCK_STEP_S), "--boottime", str(i * CLOCK_STEP_S)]
        command = ["unshare", *_NAMESPACES, *clock, "--fork", "--kill-child"]
        self._holders.append(
            subprocess.Popen([*command, "sh", "-c", _HOLD, "sh", name, self.folder / "hosts", is_up])
        )
        jobs.wait_until(is_up.exists, f"{name} to be up")
        children = Path(f"/proc/{self._holders[-1].pid}/task/{self._holders[-1].pid}/children").read_text()
        (self.folder / name).write_text(children.split()[0])

    def _link(self, i):
        """Nodes of this test are few, so each has an interface of the first for itself."""
        ends = [(0, f"to{i}"), (i, "to0")]
        pids = [(self.folder / self.names[node]).read_text() for node, _ in ends]
        command = ["ip", "link", "add", ends[0][1], "netns", pids[0], "type", "veth"]
        _run([*command, "peer", "name", ends[1][1], "netns", pids[1]])
        for (node, interface), pid in zip(ends, pids, strict=True):
            for words in (
                ["addr", "add", f"10.77.0.{node + 1}/24", "dev", interface],
                ["link", "set", interface, "up"],
            ):
                _run(["nsenter", "-t", pid, "--net", "ip", *words])

    def enter(self, name):
        """What stands before a command that is to run on a node."""
        pid = (self.folder / name).read_text()
        return ["nsenter", "-t", pid, *_NAMESPACES, "--time"]

    def _agent(self):
        """Stands in for ssh: agent HOST COMMAND..."""
        path = self.folder / "agent"
        options = " ".join([*_NAMESPACES, "--time"])
        line = f'exec nsenter -t "$(cat "{self.folder}/$host")" {options} sh -c "$*"'
        path.write_text(f"#!/bin/sh\nhost=$1; shift\n{line}\n")
        path.chmod(0o755)
        return path

    def start(self, mpi, name, nodes, command, **options):
        """Start a job under `mpicoloc.wrap` with one rank on each of these nodes; returns a `jobs.Job`."""
        env = {"MPICOLOC_OUT": self.folder / f"{name}.h5", "MPICOLOC_JOB_ID": name}
        env |= {"MPICOLOC_PYTHON": sys.executable, **options}
        log = self.folder / f"{name}.log"
        launch = [
            *self.enter(nodes[0]), mpi.mpirun, *mpi.flags, "--bind-to", "none",
            "--mca", "plm_rsh_agent", self._agent(), "--mca", "btl", "tcp,self",
            *(word for key in env for word in ("-x", key)),
            "--host", ",".join(f"{node}:2" for node in nodes), "-n", str(2 * len(nodes)),
            sys.executable, "-m", "mpicoloc.wrap", *command,
        ]  # fmt: skip
        with open(log, "wb") as file:
            process = subprocess.Popen(
                list(map(str, launch)),
                env={**os.environ, **{key: str(value) for key, value in env.items()}},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return jobs.Job(process, self.folder / f"{name}.h5", log)

    def coordinator_of(self, job_id, name):
        """Process id of a job's coordinator on a node, waited for until it is in MPI."""
        namespace = os.stat(f"/proc/{(self.folder / name).read_text()}/ns/uts").st_ino

        def find():
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    is_one = b"mpicoloc.run.coordinator" in (folder / "cmdline").read_bytes()
                    here = os.stat(folder / "ns" / "uts").st_ino == namespace
                    if (
                        is_one
                        and here
                        and f"MPICOLOC_JOB_ID={job_id}".encode()
                        in (folder / "environ").read_bytes().split(b"\0")
                    ):
                        return int(folder.name)
            return None

        return jobs.wait_until(find, f"the coordinator of {job_id} on {name}")


def stop(job):
    """End a job as its user would: its launcher ends the ranks on all nodes."""
    os.killpg(job.process.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + 10
    while job.process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    job.kill()


def _kill_all_in(namespace):
    inode = os.stat(namespace).st_ino
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended by itself
            if os.stat(folder / "ns" / "uts").st_ino == inode:
                os.kill(int(folder.name), signal.SIGKILL)


def _run(command):
    subprocess.run(command, check=True, capture_output=True, timeout=jobs.LIMIT_S)
