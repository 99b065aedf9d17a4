"""A Slurm cluster on one machine: begun, killed, ended, and what it refuses."""

import os
import signal
import subprocess
from pathlib import Path

import jobs
import processes
import pytest
from slurm_jobs import is_possible

from mpicoloc.errors import EnvironmentFault, UsageError
from mpicoloc.lab import slurm_cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def name():
    made = f"lab-{os.getpid()}"
    yield made
    if is_possible():
        slurm_cluster.stop(made)


@pytest.mark.skipif(not is_possible(), reason="no Slurm here, or not root")
def test_a_killed_cluster_leaves_no_process_and_the_next_one_begins_anew(name):
    plan = slurm_cluster.start(name, 1)
    env = {**os.environ, "SLURM_CONF": slurm_cluster.conf(name)}
    first = slurm_cluster.first_process(name)
    space = os.stat(f"/proc/{first}/ns/pid").st_ino
    assert len(in_space(space)) >= 4, "munged, slurmctld, slurmd and the first one"
    os.kill(first, signal.SIGKILL)
    jobs.wait_until(lambda: not in_space(space), "their end")
    assert not slurm_cluster.stop(name)
    assert not Path(plan.folder).exists()
    with pytest.raises(EnvironmentFault, match="mpicoloc slurm up"):
        slurm_cluster.conf(name)
    slurm_cluster.start(name, 1)
    with pytest.raises(EnvironmentFault, match=f"`mpicoloc slurm down --name {name}`"):
        slurm_cluster.start(name, 1)
    done = subprocess.run(["srun", "hostname"], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "n1\n"
    assert slurm_cluster.stop(name)


def in_space(space):
    """Numbers of the processes of a lab."""
    return processes.matching(lambda one: os.stat(one / "ns" / "pid").st_ino == space)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"n_nodes": 17}, "1 to 16"),
        ({"n_nodes": 1, "n_cpus": 0}, "1 to 1024"),
        ({"n_nodes": 1, "memory_mib": 0}, "MiB of memory, got 0"),
        ({"name": "../etc", "n_nodes": 1}, "small letters"),
    ],
)
def test_what_no_cluster_can_be_is_refused(words, said):
    with pytest.raises(UsageError, match=said):
        slurm_cluster.start(**{"name": "never", **words})


def test_without_the_programs_one_line_names_the_packages(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(EnvironmentFault, match="munge, slurm-wlm"):
        slurm_cluster.start("never", 1)


def test_switches_have_every_node_once():
    for n_nodes in range(1, slurm_cluster.MAX_NODES + 1):
        text = slurm_cluster.texts(slurm_cluster.Plan("x", n_nodes, 4, 1), ())["topology.conf"]
        ranges = [
            line.split("Nodes=n[")[1].rstrip("]").split("-") for line in text.splitlines() if "Nodes=" in line
        ]
        assert [k for low, high in ranges for k in range(int(low), int(high) + 1)] == list(
            range(1, n_nodes + 1)
        )


def test_users_are_kept_out_of_the_shared_partition_where_that_was_asked_for():
    is_named = [
        'SHARED = "shared"'
        in slurm_cluster.texts(slurm_cluster.Plan("x", 1, 4, 1, is_guarded=is_guarded), ())["job_submit.lua"]
        for is_guarded in (False, True)
    ]
    assert is_named == [False, True]
