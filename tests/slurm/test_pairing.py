"""Two chosen jobs share a node of a real cluster, and no third one does."""

import dataclasses
import json
import sys
from pathlib import Path

import jobs
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))

import sample

from mpicoloc.model.pairs import Rules
from mpicoloc.model.steering import Commit, Partitions, Release
from mpicoloc.run import pairing
from mpicoloc.store import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.serial, pytest.mark.timeout(100)]
HOW = pairing.Steering(Partitions("whole", "shared"), Rules("greedy", prior_slowdown=1.5), None)


@pytest.fixture
def known(tmp_path):
    """Profiles of jobs called a and b."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    for name in "ab":
        job = sample.job(id=name, user="root", batch_name=name, n_ranks=4)
        hdf5.write(dataclasses.replace(sample.profile(), job=job), folder / f"{name}.h5")
    return pairing.Known(str(folder))


@pytest.fixture
def step(known, tmp_path):
    audit = pairing.Audit(str(tmp_path / "audit.jsonl"), lambda text: None)

    def step(*, is_dry=False):
        return pairing.step(known, HOW, audit, is_dry=is_dry)

    step.log = lambda: [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    return step


def submit(cluster, name, *words):
    return cluster.submit("sleep 60", "-p", "whole", "-N1", "-n4", "-t", "10", "-J", name, *words)


def test_two_jobs_share_a_node_and_a_third_does_not(cluster, queue, step):
    busy = [submit(cluster, "busy", "-w", f"n{k}") for k in (1, 2, 3, 4)]
    first, second, third = (submit(cluster, name) for name in "abc")
    jobs.wait_until(lambda: all(queue()[job].state == "RUNNING" for job in busy), "a full cluster")
    assert [type(each) for each in step(is_dry=True)] == [Commit]
    assert {queue()[job].partition for job in (first, second)} == {"whole"}
    (said,) = step()
    assert said.share.jobs == (first, second)
    assert len(said.after) == 1
    assert step() == []
    assert queue()[first].limit_s == 1200
    cluster.run("scancel", said.after[0])
    jobs.wait_until(
        lambda: {queue()[job].nodes for job in (first, second)} == {(said.share.node,)}, "both to start"
    )
    assert queue()[third].state == "PENDING"
    assert step() == []
    assert [line["what"] for line in step.log()] == ["would say", "said"]


def test_a_job_whose_partner_was_cancelled_runs_alone(cluster, queue, step):
    busy = [submit(cluster, "busy", "-w", f"n{k}") for k in (1, 2, 3, 4)]
    first, second = (submit(cluster, name) for name in "ab")
    jobs.wait_until(lambda: all(queue()[job].state == "RUNNING" for job in busy), "a full cluster")
    assert [type(each) for each in step()] == [Commit]
    cluster.run("scancel", second)
    assert [type(each) for each in step()] == [Release]
    left = queue()[first]
    assert (left.partition, left.is_bound, left.limit_s, left.admin_comment) == ("whole", False, 600, "")
    cluster.run("scancel", busy[2])
    jobs.wait_until(lambda: queue()[first].state == "RUNNING", "it to start")
