"""The settings of docs/howto/decide/batch.md in a real Slurm: it places jobs as the simulation does."""

import os
import re
import subprocess
from pathlib import Path

import jobs
import numpy as np
import pytest
from slurm_jobs import is_possible

from mpicoloc.batch import allocation, inputs, order
from mpicoloc.core import network
from mpicoloc.lab import slurm_cluster
from mpicoloc.network.topology.hostlist import expand

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not is_possible(), reason="no Slurm here, or not root"),
]
N_NODES = 16
_OWN = re.compile(r"^(NodeName|PartitionName|Scheduler|Select|Topology|Priority)\w*=.*\n", re.M)
STEPS = (("a", 3), ("b", 2), ("c", 5), ("a", 0), ("d", 1), ("e", 4), ("b", 0), ("f", 3), ("c", 0), ("g", 6))
"""A job and its nodes; 0: it ends."""


class Lab:
    """A cluster of 16 nodes whose settings can be replaced."""

    def __init__(self, name):
        self.name = name
        self.folder = Path(slurm_cluster.start(name, N_NODES, 1).folder)
        self.conf = (self.folder / "slurm.conf").read_text()
        self.numbers = {}

    def run(self, *words):
        env = {**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf"}
        env.pop("SBATCH_PARTITION", None)
        done = subprocess.run([*words], env=env, capture_output=True, text=True, timeout=60, cwd="/tmp")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def take(self, settings, switches):
        """Start slurmctld anew with these settings; its nodes are all at one address here."""
        for line in re.findall(r"^NodeName=.*\n", settings, re.M):
            names, words = re.fullmatch(r"NodeName=(\S+) (.*)\n", line).groups()
            port = int(re.search(r"SlurmctldPort=(\d+)", self.conf)[1])
            address = "NodeHostname=localhost NodeAddr=127.0.0.1"
            own = [
                f"NodeName={n} {address} Port={port + int(n[1:])} {words}\n" for n in expand(names, "plan")
            ]
            settings = settings.replace(line, "".join(own))
        (self.folder / "topology.conf").write_text(switches if "topology/tree" in settings else "")
        (self.folder / "slurm.conf").write_text(_OWN.sub("", self.conf) + settings)
        self.run("scontrol", "shutdown", "slurmctld")
        jobs.wait_until(self.is_ready, "the controller to start again")

    def is_ready(self):
        try:
            return self.run("sinfo", "-h", "-N", "-o", "%T").split() and self.n_idle() == N_NODES
        except AssertionError:
            return False

    def n_idle(self):
        return len(set(self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split()))

    def begin(self, job, n_nodes, *words):
        """Numbers of the nodes that Slurm gives to a job."""
        script = ("--parsable", "-N", str(n_nodes), "-t", "5", "-o", "/dev/null", "--wrap", "sleep 300")
        number = self.numbers[job] = self.run("sbatch", *words, *script).strip()
        jobs.wait_until(lambda: self.run("squeue", "-h", "-j", number, "-o", "%T").strip() == "RUNNING", job)
        names = self.run("squeue", "-h", "-j", number, "-o", "%N").strip()
        return sorted(int(name[1:]) - 1 for name in expand(names, "squeue"))

    def end(self, job):
        n_idle = self.n_idle()
        self.run("scancel", self.numbers.pop(job))
        jobs.wait_until(lambda: self.n_idle() > n_idle, f"the nodes of {job}")

    def end_all(self):
        self.run("scancel", "-u", "root")
        self.numbers.clear()
        jobs.wait_until(lambda: self.n_idle() == N_NODES, "all nodes")


@pytest.fixture(scope="module")
def lab():
    name = f"plan-{os.getpid()}"
    try:
        yield Lab(name)
    finally:
        slurm_cluster.stop(name)


TREE = inputs.of_hosts(network.parse_xgft("XGFT(2;4,4;1,1)", 1e9), np.arange(N_NODES))
CONS_TRES = "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n"
ALIKE = "NodeName=n[1-16] CPUs=1 State=UNKNOWN\n"
BATCH = "PartitionName=batch Nodes=n[1-16] Default=YES OverSubscribe=EXCLUSIVE State=UP\n"
BACKFILL = "SchedulerType=sched/backfill\nSchedulerParameters=bf_window=1440,bf_max_job_test=500,bf_continue"
BASIC = "PriorityType=priority/basic"
ORDERS = {
    "fcfs": f"SchedulerType=sched/builtin\n{BASIC}\n",
    "easy": f"{BACKFILL},bf_job_part_count_reserve=1\n{BASIC}\n",
    "conservative": f"{BACKFILL}\n{BASIC}\n",
    "priority": f"{BACKFILL},bf_job_part_count_reserve=1\nPriorityType=priority/multifactor\n"
    "PriorityWeightAge=100000\nPriorityWeightJobSize=100000\nPriorityMaxAge=7-0\nPriorityFavorSmall=NO\n",
}
WEIGHTS = "".join(f"NodeName=n{i} CPUs=1 Weight={i} State=UNKNOWN\n" for i in range(1, N_NODES + 1))
ALLOCATIONS = {
    "first-available": f"{CONS_TRES}{WEIGHTS}{BATCH}",
    "best-fit": f"{CONS_TRES}TopologyPlugin=topology/tree\n{ALIKE}{BATCH}",
}
SWITCHES = "".join(f"SwitchName=s1_{i} Nodes=n[{4 * i + 1}-{4 * i + 4}]\n" for i in range(4))
SWITCHES += "SwitchName=s2_0 Switches=s1_[0-3]\n"
BLOCKS = f"""{CONS_TRES}TopologyPlugin=topology/tree
NodeName=n[1-6,13-16] CPUs=1 Weight=1 State=UNKNOWN
NodeName=n[7-12] CPUs=1 Weight=2 State=UNKNOWN
PartitionName=big Nodes=n[1-12] MinNodes=7 OverSubscribe=EXCLUSIVE State=UP
PartitionName=small Nodes=n[7-16] MaxNodes=6 Default=YES OverSubscribe=EXCLUSIVE State=UP
"""
CUT = """SwitchName=v0 Nodes=n[1-4]
SwitchName=r0 Nodes=n[5-6]
SwitchName=s1_0 Switches=v0,r0
SwitchName=v1 Nodes=n[7-10]
SwitchName=r1 Nodes=n[11-12]
SwitchName=s1_1 Switches=v1,r1
SwitchName=v2 Nodes=n[13-16]
SwitchName=s1_2 Switches=v2
SwitchName=s2_0 Switches=s1_[0-2]
"""
"""Switches of 6, 6 and 4 nodes, cut into 4 and 2; the first for big jobs, the last for small ones."""


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_slurm_gives_jobs_the_nodes_that_the_simulation_gives_them(lab, name):
    lab.take(ORDERS["easy"] + ALLOCATIONS[name], SWITCHES)
    uses, simulated, real = np.zeros(N_NODES, np.uint8), {}, {}
    n_least = 1 if slurm_cluster.slurm_release() < (26, 5) else 2  # 26.05 gives one node the first free one
    for job, n in STEPS:
        if n_nodes := n and max(n, n_least):
            nodes, _ = allocation.named(name).choose(TREE, uses, n_nodes)
            uses[nodes], simulated[job] = 1, nodes.tolist()
            real[job] = lab.begin(job, n_nodes)
        else:
            uses[simulated[job]] = 0
            lab.end(job)
    lab.end_all()
    assert real == simulated


def test_big_and_small_jobs_are_apart_and_meet_where_both_may_be(lab):
    lab.take(ORDERS["easy"] + BLOCKS, CUT)
    both = ("-p", "big,small")
    assert lab.begin("small", 4, *both) == [12, 13, 14, 15]
    assert set(range(6)) <= set(lab.begin("big", 8, *both)) <= set(range(12))
    assert set(lab.begin("small too", 2, *both)) <= set(range(6, 12))
    lab.end_all()


@pytest.mark.parametrize("name", order.ORDERS)
def test_slurm_takes_the_settings_of_each_order(lab, name):
    settings = ORDERS[name] + ALLOCATIONS["best-fit"]
    lab.take(settings, SWITCHES)
    told = dict(
        line.replace(" ", "").split("=", 1)
        for line in lab.run("scontrol", "show", "config").splitlines()
        if "=" in line
    )
    asked = dict(re.findall(r"^((?:Scheduler|Priority|Topology|Select)\w+)=(\S+)$", settings, re.M))
    asked.pop("PriorityMaxAge", None)  # 7-0 is shown as 7-00:00:00
    assert {key: told[key].upper() for key in asked} == {key: word.upper() for key, word in asked.items()}
    assert lab.begin("one", 16) == list(range(16))
    lab.end_all()
