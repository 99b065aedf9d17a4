"""The first process of a Slurm lab: ``python -m mpicoloc.lab.slurm_server PLAN``, PLAN in JSON.

Process 1 of a PID namespace with munged, slurmctld and one slurmd per node in it, each slurmd with a mount
table, host name, System V IPC and /dev/shm of its own. When it ends, by whatever cause, the kernel ends all
the others. A daemon that ends is started again a second later, as systemd would do it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

from mpicoloc.errors import EnvironmentFault
from mpicoloc.lab import slurm_files

READY_S = 30.0
_AGAIN_S = 1.0
_NODE = """hostname "$0"; mount -t tmpfs -o mode=1777 none /dev/shm; mount --bind "$1/hosts" /etc/hosts
exec slurmd -D -N "$0" -f "$1/slurm.conf"
"""


def socket_name(name: str) -> bytes:
    """Name of the abstract socket that tells who process 1 of a Slurm lab is."""
    return b"\0mpicoloc-slurm/" + name.encode()


def prepare(plan: slurm_files.Plan) -> None:
    """Make the cluster's folder with its files and its munge key, which only root can read."""
    shutil.rmtree(plan.folder, ignore_errors=True)
    for folder in ("state", "log", "munge", *(f"spool/{node}" for node in plan.nodes)):
        os.makedirs(f"{plan.folder}/{folder}", mode=0o755)
    for name, text in slurm_files.texts(plan).items():
        with open(f"{plan.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    os.chmod(f"{plan.folder}/task_prolog", 0o755)
    fd = os.open(f"{plan.folder}/munge/key", os.O_WRONLY | os.O_CREAT, 0o400)
    with open(fd, "wb") as key:
        key.write(os.urandom(128))


def commands(plan: slurm_files.Plan) -> dict[str, list[str]]:
    """The daemons, in the order in which they start: name -> command."""
    munge, conf = f"{plan.folder}/munge", f"{plan.folder}/slurm.conf"
    kinds = [f"--{what}={munge}/{name}" for what, name in _MUNGE.items()]
    space = ["unshare", "--mount", "--uts", "--ipc", "sh", "-ec", _NODE]
    return {
        "munged": ["munged", "--foreground", "--num-threads=2", *kinds],
        "slurmctld": ["slurmctld", "-D", "-f", conf],
        **{node: [*space, node, plan.folder] for node in plan.nodes},
    }


_MUNGE = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}


class Daemons:
    """All daemons of the cluster by name."""

    def __init__(self, plan: slurm_files.Plan):
        self.plan, self.commands = plan, commands(plan)
        self.pids: dict[int, str] = {}
        self.due_s: dict[str, float] = {}

    def start(self, name: str) -> None:
        """Start one; Slurm's write ``<name>.log`` themselves, and all but munged say the same here again."""
        with open(f"{self.plan.folder}/log/{name}.out", "ab") as log:
            process = subprocess.Popen(
                self.commands[name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, "SLURM_CONF": f"{self.plan.folder}/slurm.conf"},
                start_new_session=True,
            )
        self.pids[process.pid] = name
        process.returncode = 0  # `reap` waits for it

    def reap(self) -> None:
        """Take what has ended, whoever's child it was, and start the daemons among it again."""
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                if pid in self.pids:
                    self.due_s[self.pids.pop(pid)] = time.monotonic() + _AGAIN_S
        for name in [name for name, due_s in self.due_s.items() if due_s <= time.monotonic()]:
            del self.due_s[name]
            self.start(name)

    def begin(self) -> None:
        """Start all and wait until every node can take a job.

        Raises `EnvironmentFault` if that takes longer than `READY_S`.
        """
        deadline_s = time.monotonic() + READY_S
        self.start("munged")
        while not os.path.exists(f"{self.plan.folder}/munge/socket") and time.monotonic() < deadline_s:
            time.sleep(0.01)
        for name in self.commands:
            if name != "munged":
                self.start(name)
        while time.monotonic() < deadline_s:
            if self._states() == ["idle"] * self.plan.n_nodes:
                return
            time.sleep(0.05)
        raise EnvironmentFault(
            f"the daemons of Slurm do not come up in {READY_S:.0f} s: see {self.plan.folder}/log"
        )

    def _states(self) -> list[str]:
        env = {**os.environ, "SLURM_CONF": f"{self.plan.folder}/slurm.conf"}
        command = ["sinfo", "-h", "-N", "-p", "whole", "-o", "%T"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=READY_S)
        return done.stdout.split()


def main(text: str) -> int:
    """Make the cluster, say "ready", and keep it up."""
    plan = slurm_files.Plan(**json.loads(text))
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.bind(socket_name(plan.name))
        except OSError:
            print(
                f"there is a Slurm lab {plan.name} already: end it with `mpicoloc slurm down --name "
                f"{plan.name}`, or make another one with --name"
            )
            return 4
        door.listen()
        prepare(plan)
        daemons = Daemons(plan)
        try:
            daemons.begin()
        except EnvironmentFault as error:
            print(error)
            return 4
        try:
            print("ready", flush=True)
        except BrokenPipeError:
            return 0  # who asked for it is gone
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it ends the sleep
        while True:
            daemons.reap()
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
