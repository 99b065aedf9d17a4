"""What is said to the batch system, for any queue."""

import dataclasses
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoloc.core.batch import PENDING, RUNNING, BatchJob, BatchNode, Snapshot
from mpicoloc.model.pairs import Group, plan
from mpicoloc.model.queue import Queue
from mpicoloc.model.steering import Commit, Partitions, Release, Share, candidates, decide, share_of

QUEUES = Partitions("whole", "shared")
NOW_S = 1e9


def node(name, is_up=True, partitions=("whole", "shared")):
    return BatchNode(name, 4, 2.0**30, is_up, partitions)


def job(number, state=PENDING, nodes=(), **others):
    start_s = NOW_S - 100 if state == RUNNING else 0.0
    told = {
        "partition": "whole",
        "n_nodes": 1,
        "n_tasks": 4,
        "n_cpus": 4,
        "limit_s": 600.0,
        "submit_s": float(number),
    }
    return BatchJob(
        number, "user", f"job{number}", state, nodes=tuple(nodes), start_s=start_s, **{**told, **others}
    )


def shared(number, share, **others):
    told = {"partition": "shared", "wanted_nodes": (share.node,), "is_bound": True}
    return job(number, admin_comment=share.text(600.0), **{**told, **others})


def two_by_two(jobs):
    return [Group(tuple(range(i, min(i + 2, len(jobs)))), 100.0) for i in range(0, len(jobs), 2)]


def decided(jobs, nodes, plan=two_by_two):
    return decide(Snapshot(NOW_S, tuple(jobs), tuple(nodes)), QUEUES, plan, {}, lambda job, others: 1.5)


def test_two_jobs_share_the_idle_node():
    (found,) = decided([job(1), job(2)], [node("n1")])
    assert found == Commit(Share((1, 2), "n1"), (), (1.5, 1.5), "100 s together")


def test_they_wait_for_all_that_run_there():
    jobs = [
        job(1),
        job(2),
        job(7, RUNNING, ["n1"], partition="shared"),
        job(8, RUNNING, ["n1"], partition="shared"),
    ]
    (found,) = decided(jobs, [node("n1")])
    assert found.after == (7, 8)


def test_the_node_that_is_free_first():
    jobs = [job(1), job(2), job(7, RUNNING, ["n1"]), job(8, RUNNING, ["n2"], limit_s=300.0)]
    (found,) = decided(jobs, [node("n1"), node("n2")])
    assert found.share.node == "n2"


def test_a_job_alone_that_comes_first_has_the_first_node():
    plan = lambda jobs: [Group((0,), 100.0, "no profile"), Group((1, 2), 100.0)]  # noqa: E731
    assert decided([job(1), job(2), job(3)], [node("n1")], plan) == []
    (found,) = decided([job(1), job(2), job(3)], [node("n1"), node("n2")], plan)
    assert found.share == Share((2, 3), "n2")


def test_what_was_said_is_not_said_again():
    share = Share((1, 2), "n1")
    assert decided([shared(1, share), shared(2, share)], [node("n1")]) == []


def test_a_job_whose_partner_is_gone_runs_alone():
    share = Share((1, 2), "n1")
    (found,) = decided([shared(1, share)], [node("n1")])
    assert found == Release(1, 600.0, "its partner is gone")
    (found,) = decided([shared(1, share), job(2, "COMPLETED")], [node("n1")])
    assert found.job == 1


def test_a_partner_that_has_just_begun_is_not_gone():
    share = Share((1, 2), "n1")
    assert decided([shared(1, share), shared(2, share, state=RUNNING, nodes=("n1",))], [node("n1")]) == []


def test_what_was_said_half_is_taken_back():
    share = Share((1, 2), "n1")
    found = decided([shared(1, share), job(2)], [node("n1")])
    assert {each.job for each in found if isinstance(each, Release)} == {1}
    found = decided([shared(1, share), shared(2, share, partition="whole")], [node("n1")])
    assert {each.job for each in found if isinstance(each, Release)} == {1, 2}


def test_a_node_that_goes_down_gives_its_jobs_back():
    share = Share((1, 2), "n1")
    found = decided([shared(1, share), shared(2, share)], [node("n1", is_up=False), node("n2")])
    assert [each.job for each in found] == [1, 2]
    assert all(each.why == "node n1 is down" for each in found)


def test_jobs_go_to_another_node_that_is_idle():
    share = Share((1, 2), "n1")
    jobs = [shared(1, share), shared(2, share), job(7, RUNNING, ["n1"])]
    (found,) = decided(jobs, [node("n1"), node("n2")])
    assert (found.share, found.after) == (Share((1, 2), "n2"), ())
    # Not while others want that node.
    assert decided([*jobs, job(3)], [node("n1"), node("n2")]) == []


def test_who_has_conditions_of_his_own_is_left_alone():
    others = [
        job(1, is_bound=True),
        job(2, priority=0),
        job(3, n_nodes=2),
        job(4, partition="other"),
        job(5, RUNNING),
    ]
    assert candidates(Snapshot(NOW_S, tuple(others), ()), QUEUES) == []


def test_the_own_time_limit_is_kept():
    share = Share((3, 4), "n1")
    for limit_s in (600.0, math.inf):
        told = dataclasses.replace(job(3), admin_comment=share.text(limit_s))
        assert share_of(told) == (share, limit_s)
    assert share_of(job(3, admin_comment="mpicoloc: 0.01 SU")) is None


@st.composite
def clusters(draw):
    n_nodes, n_jobs = draw(st.integers(1, 4)), draw(st.integers(0, 8))
    nodes = [node(f"n{i}", draw(st.booleans())) for i in range(n_nodes)]
    jobs, running = [], iter(range(100, 200))
    for number in range(1, n_jobs + 1):
        kind = draw(st.sampled_from(["waits", "waits", "bound", "said"]))
        share = Share(
            tuple(sorted({number, draw(st.integers(1, 9))} | {number + 1})), draw(st.sampled_from(nodes)).name
        )
        made = {"waits": job(number), "bound": job(number, is_bound=True), "said": shared(number, share)}
        jobs.append(made[kind])
    for each in nodes:
        jobs += [job(next(running), RUNNING, [each.name]) for _ in range(draw(st.integers(0, 2)))]
    return jobs, nodes


@settings(deadline=None)
@given(clusters(), st.integers(0, 99))
def test_no_job_is_ever_told_two_things_or_sent_where_it_cannot_go(cluster, seed):
    jobs, nodes = cluster
    rng = np.random.default_rng(seed)

    def planned(waiting):
        n = len(waiting)
        return plan(Queue(rng.uniform(10, 100, n), rng.uniform(1, 2, (n, n)))).groups if n else ()

    found = decided(jobs, nodes, planned)
    by_id = {each.id: each for each in jobs}
    told = [i for each in found for i in ([each.job] if isinstance(each, Release) else each.share.jobs)]
    assert len(told) == len(set(told))
    assert all(by_id[i].state == PENDING for i in told)
    commits = [each for each in found if isinstance(each, Commit)]
    places = [each.share.node for each in commits]
    assert len(places) == len(set(places))
    assert set(places) <= {each.name for each in nodes if each.is_up}
    for each in commits:
        assert set(each.after) == {j.id for j in jobs if j.state == RUNNING and each.share.node in j.nodes}
        assert all(not by_id[i].is_bound or share_of(by_id[i]) for i in each.share.jobs)


@settings(deadline=None, max_examples=30)
@given(clusters())
def test_what_was_said_is_settled(cluster):
    """Once everything has been said, nothing more is said until something happens."""
    jobs, nodes = cluster
    for _ in range(3):
        found = decided(jobs, nodes)
        jobs = [told(each, found) for each in jobs]
    assert decided(jobs, nodes) == []


def told(each, actions):
    for action in actions:
        if isinstance(action, Release) and action.job == each.id:
            return job(each.id)
        if isinstance(action, Commit) and each.id in action.share.jobs:
            return shared(each.id, action.share)
    return each
