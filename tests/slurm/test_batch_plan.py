"""What `mpicoloc batch --slurm` writes, taken by a real Slurm: it places jobs as the simulation does."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import jobs
import numpy as np
import pytest
from slurm_jobs import is_possible

from mpicoloc.batch import machine
from mpicoloc.batch import order as batch_orders
from mpicoloc.batch.allocation import registry
from mpicoloc.batch.slurm_plan import plan
from mpicoloc.batch.slurm_plan.demand import Demand
from mpicoloc.lab import slurm_cluster
from mpicoloc.network.topology import xgft
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
    """A cluster of 16 nodes at switches of 4, whose settings are those of a plan."""

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

    def take(self, texts):
        """Start slurmctld anew with the files of a plan; its nodes are all at one address here."""
        settings = texts[plan.SETTINGS]
        for line in re.findall(r"^NodeName=.*\n", settings, re.M):
            names, words = re.fullmatch(r"NodeName=(\S+) (.*)\n", line).groups()
            port = int(re.search(r"SlurmctldPort=(\d+)", self.conf)[1])
            address = "NodeHostname=localhost NodeAddr=127.0.0.1"
            own = [
                f"NodeName={n} {address} Port={port + int(n[1:])} {words}\n" for n in expand(names, "plan")
            ]
            settings = settings.replace(line, "".join(own))
        (self.folder / plan.SETTINGS).write_text(settings)
        (self.folder / "topology.conf").write_text(texts.get(plan.SWITCHES, ""))
        (self.folder / "slurm.conf").write_text(_OWN.sub("", self.conf) + f"Include {plan.SETTINGS}\n")
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


def named(found):
    """A machine whose nodes are called as those of the lab."""
    return replace(found, host_names=tuple(f"n{i + 1}" for i in range(N_NODES)))


def tree(notation):
    topology = xgft.parse(notation, 1e9)
    return named(machine.first_nodes(machine.of_hosts(topology, np.arange(topology.n_hosts)), N_NODES))


LAB = tree("XGFT(2;4,4;1,1)")


DEMAND = Demand(300.0, 10, 8, 4.0, 8.0)


def files(allocation_name, order="easy", own=LAB, demand=DEMAND):
    return plan.files(own, 1, plan.Policies(order, allocation_name, "none"), demand)[0]


@pytest.mark.parametrize("name", ["first-available", "best-fit"])
def test_slurm_gives_jobs_the_nodes_that_the_simulation_gives_them(lab, name):
    lab.take(files(name))
    uses, simulated, real = np.zeros(N_NODES, np.uint8), {}, {}
    for job, n_nodes in STEPS:
        if n_nodes:
            nodes, _ = registry.named(name).choose(LAB, uses, n_nodes)
            uses[nodes], simulated[job] = 1, nodes.tolist()
            real[job] = lab.begin(job, n_nodes)
        else:
            uses[simulated[job]] = 0
            lab.end(job)
    lab.end_all()
    assert real == simulated


def test_big_and_small_jobs_are_apart_and_meet_where_both_may_be(lab):
    """Switches of 6, 6 and 4 nodes, cut into 4 and 2; the first for big jobs, the last for small ones."""
    own = tree("XGFT(2;6,3;1,1)")
    lab.take(files("virtual-blocks", own=own, demand=Demand(300.0, 10, 8, 6.0, 6.0)))
    lines = lab.run("scontrol", "show", "topology").splitlines()
    told = dict(re.match(r"SwitchName=(\S+) .* Nodes=(\S+)", line).groups() for line in lines)
    assert told["v1"] == "n[7-10]" and told["r1"] == "n[11-12]" and told["s2_0"] == "n[1-16]"
    both = ("-p", "big,small")
    assert lab.begin("small", 4, *both) == [12, 13, 14, 15]
    assert set(range(6)) <= set(lab.begin("big", 8, *both)) <= set(range(12))
    assert set(lab.begin("small too", 2, *both)) <= set(range(6, 12))
    lab.end_all()


@pytest.mark.parametrize("order", batch_orders.ORDERS)
def test_slurm_takes_the_settings_of_each_order(lab, order):
    texts = files("best-fit", order)
    lab.take(texts)
    told = dict(
        line.replace(" ", "").split("=", 1)
        for line in lab.run("scontrol", "show", "config").splitlines()
        if "=" in line
    )
    asked = dict(
        re.findall(r"^((?:Scheduler|Priority|Topology|Select)\w+)=(\S+)$", texts[plan.SETTINGS], re.M)
    )
    assert len(asked) >= 5
    asked.pop("PriorityMaxAge", None)  # 7-0 is shown as 7-00:00:00
    assert {key: told[key].upper() for key in asked} == {key: word.upper() for key, word in asked.items()}
    assert lab.begin("one", 16) == list(range(16))
    lab.end_all()
