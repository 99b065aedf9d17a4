"""Starts and ends Slurm labs on this machine; this module is also the first process of a lab.

The first process is ``python -m mpicoloc.lab.slurm_cluster PLAN`` with PLAN in JSON. It is process 1 of a PID
namespace with munged, slurmctld and one slurmd per node. Each slurmd has its own mount table, host name,
System V IPC and /dev/shm. When the first process ends for any reason, the kernel kills all the others. A
daemon that ends is restarted after a second, as systemd would do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.lab import agent, control

ROOT = "/run/mpicoloc-slurm"
"""Folder of the labs, where only root can put files."""
MAX_NODES = 16
CPUS = 4
"""Default number of processors per node, independent of the machine."""
PARTITIONS = {
    "whole": "Default=YES OverSubscribe=EXCLUSIVE",
    "shared": "Default=NO OverSubscribe=FORCE:2 PriorityTier=10",
    "cores": "Default=NO OverSubscribe=NO",
}
"""`whole` runs one job per node (the default), `shared` up to two jobs per core, and `cores` one per core.
The scheduler considers `shared` first: otherwise a partner would start too late, after the jobs that wait for
whole nodes."""


@dataclass(frozen=True)
class Plan:
    """A cluster: its name, nodes, processors per node, and first of ``n_nodes + 1`` consecutive ports.

    If `is_guarded`, only root can put jobs into partition shared. `memory_mib` is the memory per node, of
    which jobs get what they request; if it is None, memory is not managed.
    """

    name: str
    n_nodes: int
    n_cpus: int
    port: int
    spank: str | None = None
    is_guarded: bool = False
    memory_mib: int | None = None

    @property
    def folder(self) -> str:
        """Folder of the cluster's files."""
        return f"{ROOT}/{self.name}"

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes, from n1."""
        return [f"n{k}" for k in range(1, self.n_nodes + 1)]


def slurm_release() -> tuple[int, ...]:
    """Slurm's release, for example (24, 11); empty if slurmd does not print it."""
    done = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=False, timeout=READY_S)
    return tuple(map(int, re.findall(r"\d+", done.stdout)[:2]))


def has_pmix() -> bool:
    """Whether this Slurm can start Open MPI. Debian's 26.05 lacks the PMIx plugin."""
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("slurmd") or "/usr/sbin/slurmd")))
    return any(glob.glob(f"{prefix}/{folder}/mpi_pmix.so") for folder in ("lib*/slurm*", "lib/*/slurm*"))


def texts(plan: Plan, release: tuple[int, ...]) -> dict[str, str]:
    """Texts of ``slurm.conf`` and of the files it refers to, by name, for a release of Slurm."""
    # Slurm's cgroup plugins need systemd or cgroup v1, which few systems mount. Older releases require such a
    # plugin.
    groups = "disabled" if release >= (24, 5) else "cgroup/v1"
    rule = Path(__file__).with_name("job_submit.lua").read_text(encoding="utf-8")
    return {
        "slurm.conf": _slurm_conf(plan),
        "topology.conf": _topology_conf(plan.n_nodes),
        "cgroup.conf": f"CgroupPlugin={groups}\n",
        # All nodes share /tmp, but each has its own /dev/shm.
        "mpi.conf": "PMIxCliTmpDirBase=/dev/shm\n",
        "plugstack.conf": f"optional {plan.spank}\n" if plan.spank else "",
        "task_prolog": _TASK_PROLOG,
        "job_submit.lua": rule if plan.is_guarded else rule.replace('"shared"', "nil", 1),
        "hosts": "127.0.0.1 localhost " + " ".join(plan.nodes) + "\n::1 localhost\n",
    }


# Open MPI excludes the loopback interface by default, but all nodes communicate through it here.
_TASK_PROLOG = """#!/bin/sh
echo export OMPI_MCA_btl_tcp_if_include=lo
echo export OMPI_MCA_oob_tcp_if_include=lo
"""


_SLURM_CONF = """ClusterName={name}
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
JobSubmitPlugins=lua
MpiDefault={mpi}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/task_prolog
SwitchType=switch/none
TopologyPlugin=topology/tree
SelectType=select/cons_tres
SelectTypeParameters={select}
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
PlugStackConfig={folder}/plugstack.conf
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobs.txt
MailProg=/bin/true
ReturnToService=2
KillWait=5
{nodes}{partitions}"""


def _slurm_conf(plan: Plan) -> str:
    select = "CR_Core"
    size = f"CPUs={plan.n_cpus} RealMemory={plan.memory_mib or 1000}"
    if plan.memory_mib:
        # Jobs that request no memory get half of a node's, so that another job can share the node.
        select = f"CR_Core_Memory\nDefMemPerCPU={max(plan.memory_mib // (2 * plan.n_cpus), 1)}"
    return _SLURM_CONF.format(
        name=plan.name,
        folder=plan.folder,
        port=plan.port,
        nodes="".join(
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={plan.port + i} {size} "
            f"Feature={node}\n"
            for i, node in enumerate(plan.nodes, 1)
        ),
        select=select,
        mpi="pmix" if has_pmix() else "pmi2",
        partitions="".join(
            f"PartitionName={name} Nodes=ALL {words} DefaultTime=10 MaxTime=60 State=UP\n"
            for name, words in PARTITIONS.items()
        ),
    )


def _topology_conf(n_nodes: int) -> str:
    """Two switch levels: leaf switches with two nodes (four in a larger cluster), and one top switch."""
    width = 2 if n_nodes <= 4 else 4
    leaves = [range(at, min(at + width, n_nodes + 1)) for at in range(1, n_nodes + 1, width)]
    lines = [f"SwitchName=s{k} Nodes=n[{leaf[0]}-{leaf[-1]}]" for k, leaf in enumerate(leaves, 1)]
    return "\n".join([*lines, f"SwitchName=top Switches=s[1-{len(leaves)}]"]) + "\n"


PREFIX = "mpicoloc-slurm/"
"""Prefix of the abstract socket that identifies process 1 of a Slurm lab."""
READY_S = 30.0
_AGAIN_S = 1.0
_CONTROLLER = """hostname localhost; mount --bind "$0/hosts" /etc/hosts
exec slurmctld -D -f "$0/slurm.conf"
"""
_NODE = """hostname "$0"; mount -t tmpfs -o mode=1777 none /dev/shm; : > /dev/shm/.mpicoloc-whole-node
mount --bind "$1/hosts" /etc/hosts
exec slurmd -D -N "$0" -f "$1/slurm.conf"
"""


def prepare(plan: Plan) -> None:
    """Create the cluster's folder with its files, and a munge key that only root can read."""
    shutil.rmtree(plan.folder, ignore_errors=True)
    for folder in ("state", "log", "munge", *(f"spool/{node}" for node in plan.nodes)):
        os.makedirs(f"{plan.folder}/{folder}", mode=0o755)
    for name, text in texts(plan, slurm_release()).items():
        with open(f"{plan.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    os.chmod(f"{plan.folder}/task_prolog", 0o755)
    fd = os.open(f"{plan.folder}/munge/key", os.O_WRONLY | os.O_CREAT, 0o400)
    with open(fd, "wb") as key:
        key.write(os.urandom(128))


def commands(plan: Plan) -> dict[str, list[str]]:
    """Commands of the daemons by name, in order of start."""
    munge = f"{plan.folder}/munge"
    kinds = [f"--{what}={munge}/{name}" for what, name in _MUNGE.items()]
    # slurmctld gets its own /etc/hosts. Without one, slurmctld 24.11 and later takes 10 s to resolve the name
    # of a node that runs srun.
    controller = ["unshare", "--mount", "--uts", "sh", "-ec", _CONTROLLER, plan.folder]
    space = ["unshare", "--mount", "--uts", "--ipc", "sh", "-ec", _NODE]
    return {
        "munged": ["munged", "--foreground", "--num-threads=2", *kinds],
        "slurmctld": controller,
        **{node: [*space, node, plan.folder] for node in plan.nodes},
    }


_MUNGE = {"key-file": "key", "socket": "socket", "pid-file": "pid", "seed-file": "seed"}


class Daemons:
    """Starts and restarts the daemons of a cluster."""

    def __init__(self, plan: Plan):
        self.plan, self.commands = plan, commands(plan)
        self.pids: dict[int, str] = {}
        self.due_s: dict[str, float] = {}

    def start(self, name: str) -> None:
        """Start a daemon, with output to ``<name>.out``. Slurm's daemons also write ``<name>.log``."""
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
        """Reap all ended processes, including orphans, and restart daemons that ended."""
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                if pid in self.pids:
                    self.due_s[self.pids.pop(pid)] = time.monotonic() + _AGAIN_S
        for name in [name for name, due_s in self.due_s.items() if due_s <= time.monotonic()]:
            del self.due_s[name]
            self.start(name)

    def begin(self) -> None:
        """Start all daemons, and wait until every node can run a job.

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
            f"Slurm's daemons did not come up within {READY_S:.0f} s: see {self.plan.folder}/log"
        )

    def _states(self) -> list[str]:
        env = {**os.environ, "SLURM_CONF": f"{self.plan.folder}/slurm.conf"}
        command = ["sinfo", "-h", "-N", "-p", "whole", "-o", "%T"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=READY_S)
        return done.stdout.split()


def main(text: str) -> int:
    """Make the cluster, print "ready", and keep the cluster up."""
    plan = Plan(**json.loads(text))
    with socket.socket(socket.AF_UNIX) as door:
        try:
            door.bind(agent.socket_name(plan.name, PREFIX))
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
            return 0  # the caller has ended
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # `reap` needs this if SIG_IGN was inherited
        while True:
            daemons.reap()
            time.sleep(0.2)


TOOLS = {
    "unshare": "util-linux",
    "mount": "mount",
    "munged": "munge",
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "sinfo": "slurm-wlm",
}
"""Programs that a Slurm lab needs, and the package of each."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,29}")
_PORTS = range(27600, 29600, 20)


def start(
    name: str,
    n_nodes: int,
    n_cpus: int = CPUS,
    spank: str | None = None,
    *,
    is_guarded: bool = False,
    memory_mib: int | None = None,
) -> Plan:
    """Make a Slurm cluster, which stays until `stop`, or until its first process is killed.

    Result: the cluster's plan; ``slurm.conf`` is in its `folder`. Raises `UsageError` if an argument is
    invalid. Raises `EnvironmentFault` if the lab exists, or if the machine does not allow labs.
    """
    checked(name)
    if not 1 <= n_nodes <= MAX_NODES:
        raise UsageError(f"a Slurm lab has 1 to {MAX_NODES} nodes, got {n_nodes}")
    if not 1 <= n_cpus <= 1024:
        raise UsageError(f"a node has 1 to 1024 processors, got {n_cpus}")
    if memory_mib is not None and not 1 <= memory_mib <= 1 << 30:
        raise UsageError(f"a node has 1 to {1 << 30} MiB of memory, got {memory_mib}")
    control.check_tools("Slurm lab", TOOLS)
    plan = Plan(name, n_nodes, n_cpus, _free_ports(name, n_nodes + 1), spank, is_guarded, memory_mib)
    control.begin_lab("Slurm lab", "mpicoloc.lab.slurm_cluster", json.dumps(dataclasses.asdict(plan)))
    return plan


def _free_ports(name: str, n: int) -> int:
    """First of `n` consecutive ports on which no process listens."""
    # Labs that start at the same time see the same free ports, so the search starts at a hash of the name.
    i_first = zlib.crc32(name.encode()) % len(_PORTS)
    for first in (*_PORTS[i_first:], *_PORTS[:i_first]):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + n):
                probe = stack.enter_context(socket.socket())
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("", port))
            return first
    raise EnvironmentFault(f"not enough free ports from {_PORTS[0]} to {_PORTS[-1]}: end another Slurm lab")


def checked(name: str) -> str:
    """Return `name` if it is a valid name of a cluster.

    Raises `UsageError` if the name has characters that Slurm does not allow.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"name {name!r} is invalid: give 1 to 30 small letters, digits, dashes, underscores")
    return name


def conf(name: str) -> str:
    """Path of a running lab's slurm.conf, for ``SLURM_CONF``.

    Raises `EnvironmentFault` if no lab of that name is up.
    """
    if first_process(name) is None:
        raise EnvironmentFault(
            f"no Slurm lab {name!r} is up: make one with `mpicoloc slurm up --name {name}`"
        )
    return f"{ROOT}/{name}/slurm.conf"


def first_process(name: str) -> int | None:
    """The PID that process 1 of a lab has outside the lab; None if the lab is not up."""
    with control.connected("Slurm lab", checked(name), PREFIX) as peer:
        return agent.credentials(peer)[0] if peer else None


def stop(name: str) -> bool:
    """End a lab and all processes in it, and remove its files. Returns whether there was one.

    Raises `EnvironmentFault` if the caller lacks permission or the lab does not end.
    """
    with control.connected("Slurm lab", checked(name), PREFIX) as peer:
        control.check_tools("Slurm lab", TOOLS)
        was_up = peer is not None and control.end("Slurm lab", name, peer)
    shutil.rmtree(f"{ROOT}/{name}", ignore_errors=True)
    return was_up


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
