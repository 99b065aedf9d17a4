"""Where Slurm counts memory, two jobs share a node if it has what both ask for."""

import dataclasses
import os
import tempfile
from pathlib import Path

import jobs
import pytest
import sample
from slurm_jobs import Cluster, is_possible

from mpicoloc.lab import slurm_cluster
from mpicoloc.pairing.policies import Rules
from mpicoloc.pairing.sharing_plan import Partitions
from mpicoloc.profile import hdf5
from mpicoloc.slurm import client, service

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(200)]
HOW = service.ServiceSettings(Partitions("whole", "shared"), Rules("greedy", prior_slowdown=1.5), None)


@pytest.fixture
def cluster():
    """One node of 1000 MiB."""
    if not is_possible():
        pytest.skip("no Slurm here, or not root")
    name = f"memory-{os.getpid()}"
    plan = slurm_cluster.start(name, 1, memory_mib=1000)
    with tempfile.TemporaryDirectory(prefix="mpicoloc-slurm-") as folder:
        try:
            yield Cluster(plan, None, Path(folder))
        finally:
            slurm_cluster.stop(name)


@pytest.fixture
def step(tmp_path):
    """One look of the service, which knows profiles of jobs a and b."""
    for name in "ab":
        job = sample.job(id=name, user="root", batch_name=name, n_ranks=4)
        hdf5.write(dataclasses.replace(sample.profile(), job=job), tmp_path / f"{name}.h5")
    known = service.ProfileHistory(str(tmp_path))
    audit = service.AuditLog(str(tmp_path / "audit.jsonl"), lambda text: None)
    return lambda: service.run_once(known, HOW, audit, is_dry=False)


def submit(cluster, name, *words):
    return cluster.submit("sleep 300", "-p", "whole", "-N1", "-n4", "-t", "10", "-J", name, *words)


def fill(cluster, queue, *words):
    """The job that runs, and two that wait."""
    busy = submit(cluster, "busy")
    jobs.wait_until(lambda: queue()[busy].state == "RUNNING", "a full cluster")
    return busy, *(submit(cluster, name, *words) for name in "ab")


@pytest.mark.parametrize("words", [["--mem=500"], ["--mem-per-cpu=100"], []])
def test_two_that_fit_are_paired_and_run_together(cluster, queue, step, words):
    busy, first, second = fill(cluster, queue, *words)
    (lead,) = step()
    assert lead.share.jobs == (first,)
    cluster.run("scancel", busy)
    jobs.wait_until(lambda: queue()[first].state == "RUNNING", "the leader to start")
    (join,) = step()
    assert join.share.jobs == (first, second)
    jobs.wait_until(lambda: queue()[second].state == "RUNNING", "its partner to join it")
    assert queue()[first].state == "RUNNING"


@pytest.mark.parametrize("words", [["--mem=501"], ["--mem-per-cpu=126"], ["--mem=0"]])
def test_two_that_do_not_fit_are_not_paired_nor_would_slurm_start_both(cluster, queue, step, words):
    assert client.shares_out_memory(client.settings())
    busy, first, second = fill(cluster, queue, *words)
    assert step() == []
    for job in (first, second):  # as if they were paired
        cluster.run("scontrol", "update", f"JobId={job}", "Partition=shared", "ReqNodeList=n1")
    cluster.run("scancel", busy)
    jobs.wait_until(lambda: queue()[first].state == "RUNNING", "the first to start")
    jobs.wait_until(lambda: queue()[second].reason == "Resources", "the second to be looked at")
    assert queue()[second].state == "PENDING"
