"""Slurm features that pairing relies on: two chosen jobs share a node, and a third stays out."""

import jobs
import pytest

from mpicoloc.errors import EnvironmentFault
from mpicoloc.slurm import client

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

JOIN = {"Partition": "shared", "ReqNodeList": "n1"}
BACK = {"Partition": "whole", "ReqNodeList": ""}


def submit(cluster, *words):
    return cluster.submit("sleep 300", "-p", "whole", "-n4", *words)


def test_two_chosen_jobs_share_a_node_and_a_third_does_not(cluster, queue):
    busy = [submit(cluster, "-w", f"n{k}") for k in (1, 2, 3, 4)]
    first, second, third = (submit(cluster) for _ in range(3))
    jobs.wait_until(lambda: all(queue()[job].state == "RUNNING" for job in busy), "a full cluster")
    assert all(queue()[job].state == "PENDING" for job in (first, second, third))
    client.update(first, {"Partition": "shared"})
    cluster.run("scancel", busy[0])
    jobs.wait_until(lambda: queue()[first].nodes == ("n1",), "the first to start")
    client.update(second, JOIN)
    jobs.wait_until(lambda: queue()[second].nodes == ("n1",), "the second to join it")
    assert queue()[third].state == "PENDING"
    with pytest.raises(EnvironmentFault, match="no longer pending"):
        client.update(second, BACK)


def test_what_is_given_back_runs_alone(cluster, queue):
    host = submit(cluster, "-w", "n1")
    jobs.wait_until(lambda: queue()[host].state == "RUNNING", "the first to start")
    waiting = submit(cluster, "-w", "n1")
    client.update(waiting, JOIN)
    client.update(waiting, BACK)
    found = queue()[waiting]
    assert (found.partition, found.wanted_nodes) == ("whole", ())
    jobs.wait_until(lambda: queue()[waiting].state == "RUNNING", "it to start")
    assert queue()[waiting].nodes not in ((), queue()[host].nodes)


def test_a_partner_from_behind_starts_before_those_that_wait_for_the_node(cluster, queue):
    busy = [submit(cluster, "-w", f"n{k}") for k in (1, 2, 3, 4)]
    first, between, last = (submit(cluster) for _ in range(3))
    jobs.wait_until(lambda: all(queue()[job].state == "RUNNING" for job in busy), "a full cluster")
    for job in (first, last):
        client.update(job, {**JOIN, "Dependency": f"afterany:{busy[0]}"})
    cluster.run("scancel", busy[0])
    jobs.wait_until(lambda: queue()[last].nodes == ("n1",), "the pair to start")
    assert queue()[first].nodes == ("n1",)
    assert queue()[between].state == "PENDING"
