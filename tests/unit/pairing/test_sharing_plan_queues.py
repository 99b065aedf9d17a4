"""Whole queues, simulated and drawn: pairs come about, nobody starves, and what was said is settled."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from waiting_jobs import NOW_S, QUEUES, decided, job, node, told, two_by_two

from mpicoloc.core.batch_system import PENDING, RUNNING, BatchJob, Snapshot
from mpicoloc.pairing.policies import Group, Queue, plan
from mpicoloc.pairing.sharing_plan import Commit, Release, assignment_of, decide


def by_width(leaders, waiting):
    """As `two_by_two`, of jobs on as many nodes."""
    both = [*leaders, *waiting]
    found = []
    for n_nodes in {each.n_nodes for each in both}:
        which = [i for i, each in enumerate(both) if each.n_nodes == n_nodes]
        n_leaders = sum(i < len(leaders) for i in which)
        for group in two_by_two(which[:n_leaders], which[n_leaders:]):
            found.append(Group(tuple(which[i] for i in group.jobs), group.duration_s))
    return found


def simulated(n_nodes, lengths_s, widths=None, alone=(), look_s=1.0):
    """A cluster that does as Slurm: who ran beside whom, in the order of their starts."""
    names = [f"n{k}" for k in range(1, n_nodes + 1)]
    jobs = {i: job(i, n_nodes=(widths or {}).get(i, 1)) for i in range(1, len(lengths_s) + 1)}
    for i in alone:
        jobs[i] = dataclasses.replace(jobs[i], admin_comment="exclusive")
    now_s, ends_s, beside = NOW_S, {}, {}

    def on(name):
        return [each for each in jobs.values() if each.state == RUNNING and name in each.nodes]

    def start(each, nodes):
        here = {other.id for name in nodes for other in on(name)}
        beside[each.id] = here
        for other in here:
            beside[other].add(each.id)
        jobs[each.id] = dataclasses.replace(each, state=RUNNING, nodes=tuple(nodes), start_s=now_s)
        ends_s[each.id] = now_s + lengths_s[each.id - 1]

    while any(each.state in (PENDING, RUNNING) for each in jobs.values()):
        for i, end_s in ends_s.items():
            if end_s <= now_s and jobs[i].state == RUNNING:
                jobs[i] = dataclasses.replace(jobs[i], state="COMPLETED")
        waiting = [each for each in jobs.values() if each.state == PENDING]
        for each in sorted(waiting, key=lambda each: (each.partition != "shared", each.id)):
            if each.partition == "shared":
                others = [other for name in each.wanted_nodes for other in on(name)]
                is_held = any(jobs[i].state in (PENDING, RUNNING) for i in each.waits_for)
                if not is_held and all(other.partition == "shared" for other in others):
                    start(each, each.wanted_nodes)
                continue
            idle = [name for name in names if not on(name)]
            if len(idle) < each.n_nodes:
                break
            start(each, idle[: each.n_nodes])
        now = Snapshot(now_s, tuple(jobs.values()), tuple(map(node, names)))
        runtime_s = dict(enumerate(lengths_s, 1))
        for action in decide(now, QUEUES, by_width, runtime_s, lambda job, others: 2.0):
            assert isinstance(action, Commit)
            leader = action.share.jobs[0] if len(action.share.jobs) == 2 else None
            was = jobs[action.share.job]
            jobs[was.id] = told(was.id, action.share.nodes, leader, waits_for=action.after)
        now_s += look_s
        assert now_s < NOW_S + 10 * sum(lengths_s)
    return beside


@pytest.mark.parametrize("n_nodes", [1, 4])
def test_a_full_queue_runs_in_pairs(n_nodes):
    rng = np.random.default_rng(3)
    beside = simulated(n_nodes, rng.uniform(10, 30, 40))
    assert len(beside) == 40
    n_pairs = sum(len(others) == 1 for others in beside.values()) / 2
    # The first on each node began alone, in the other queue; at the end of the queue nodes are idle.
    assert n_pairs >= (40 - 3 * n_nodes) / 2
    assert max(map(len, beside.values())) == 1


@pytest.mark.parametrize("n_nodes", [1, 4])
def test_who_wants_to_be_alone_is_not_passed_by_for_ever(n_nodes):
    rng = np.random.default_rng(5)
    started = list(simulated(n_nodes, rng.uniform(10, 30, 40), alone=(9, 20)))
    for number in (9, 20):
        # Two for each node were sent or had begun when its turn came.
        assert started.index(number) < number + 4 * n_nodes


def test_wide_jobs_run_in_pairs_too_and_nobody_waits_for_ever():
    rng = np.random.default_rng(4)
    beside = simulated(4, rng.uniform(10, 30, 40), {i: 2 for i in range(1, 41) if i % 3 == 0})
    assert len(beside) == 40
    assert max(map(len, beside.values())) <= 2
    assert any(len(beside[i]) == 1 for i in range(3, 41, 3))


def test_a_long_queue_is_never_searched_for_a_job(monkeypatch):
    """Comparing jobs by all they have makes a look at 50,000 of them take seconds."""

    def compared(*_):
        raise AssertionError("two jobs were compared")

    waiting = [job(i) for i in range(1, 400)]
    bound = [job(i, is_bound=True, wanted_nodes=("n1",)) for i in range(400, 500)]
    running = [told(1000, state=RUNNING), job(1001, RUNNING, ["n2"])]
    monkeypatch.setattr(BatchJob, "__eq__", compared)
    found = decided([*waiting, *bound, *running], [node("n1"), node("n2")])
    assert [each.share.jobs for each in found] == [(1000, 1), (2,), (4,)]


@st.composite
def clusters(draw):
    n_nodes, n_jobs = draw(st.integers(1, 4)), draw(st.integers(0, 8))
    nodes = [node(f"n{i}", draw(st.booleans())) for i in range(n_nodes)]
    names = [each.name for each in nodes]
    jobs, running = [], iter(range(100, 200))
    for number in range(1, n_jobs + 1):
        kind = draw(st.sampled_from(["waits", "waits", "wide", "bound", "leads", "joins"]))
        where = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        made = {
            "waits": job(number),
            "wide": job(number, n_nodes=2),
            "bound": job(number, is_bound=True),
            "leads": told(number, sorted(where)),
            "joins": told(number, sorted(where), leader=draw(st.integers(100, 106))),
        }
        jobs.append(made[kind])
    for name in names:
        kinds = draw(st.lists(st.sampled_from(["alone", "leads"]), max_size=2))
        for kind in kinds:
            number = next(running)
            alone = job(number, RUNNING, [name], limit_s=draw(st.sampled_from([300.0, 600.0])))
            jobs.append(alone if kind == "alone" else told(number, [name], state=RUNNING))
    return jobs, nodes


@settings(deadline=None)
@given(clusters(), st.integers(0, 99))
def test_no_job_is_ever_told_two_things_or_sent_where_it_cannot_go(cluster, seed):
    jobs, nodes = cluster
    rng = np.random.default_rng(seed)

    def planned(leaders, waiting):
        n = len(leaders) + len(waiting)
        slowdown = rng.uniform(1, 2, (n, n))
        slowdown[: len(leaders), : len(leaders)] = 1e9
        widths = np.array([each.n_nodes for each in (*leaders, *waiting)])
        slowdown[widths[:, None] != widths] = 1e9
        return plan(Queue(rng.uniform(10, 100, n), slowdown)).groups if n else ()

    found = decided(jobs, nodes, planned)
    by_id = {each.id: each for each in jobs}
    commits = [each for each in found if isinstance(each, Commit)]
    number = [each.job if isinstance(each, Release) else each.share.job for each in found]
    assert len(number) == len(set(number))
    assert all(by_id[i].state == PENDING for i in number)
    up = {each.name for each in nodes if each.is_up}
    leads = [each for each in commits if len(each.share.jobs) == 1]
    places = [name for each in leads for name in each.share.nodes]
    assert len(places) == len(set(places))
    for each in commits:
        mine = by_id[each.share.job]
        assert set(each.share.nodes) <= up
        assert len(each.share.nodes) == mine.n_nodes
        assert not mine.is_bound or assignment_of(mine)
        there = {j.id for j in jobs if j.is_on_nodes and set(j.nodes) & set(each.share.nodes)}
        if len(each.share.jobs) == 2:
            assert there == {each.share.jobs[0]}, "two at a time"
        else:
            assert {i for i in there if by_id[i].partition == "shared"} <= set(each.after)


@settings(deadline=None, max_examples=30)
@given(clusters(), st.dictionaries(st.integers(100, 107), st.sampled_from([1.0, 60.0, 300.0])))
def test_what_was_said_is_settled(cluster, runtime_s):
    """Once everything has been said, nothing more is said until something happens."""
    jobs, nodes = cluster
    for _ in range(4):
        found = decided(jobs, nodes, by_width, runtime_s)
        jobs = [as_told(each, found) for each in jobs]
    assert decided(jobs, nodes, by_width, runtime_s) == []


def as_told(each, actions):
    for action in actions:
        if isinstance(action, Release) and action.job == each.id:
            return job(each.id, n_nodes=each.n_nodes)
        if isinstance(action, Commit) and each.id == action.share.job:
            leader = action.share.jobs[0] if len(action.share.jobs) == 2 else None
            return told(each.id, action.share.nodes, leader, waits_for=action.after)
    return each


def wide(number, n_nodes, **others):
    """The first in the queue."""
    return job(number, n_nodes=n_nodes, n_cpus=4 * n_nodes, priority=1000, reason="Resources", **others)


@pytest.mark.parametrize("is_bound", [True, False])
def test_a_job_wider_than_the_nodes_that_take_jobs_stops_nobody(is_bound):
    """Of three nodes one is drained; the pair behind the wide job is as if the job were not there."""
    nodes = [node("n1"), node("n2"), node("n3", is_up=False)]
    pair = [job(1), job(2)]
    alone = decided(pair, nodes, by_width)
    assert [each.share.jobs for each in alone] == [(1,)]
    assert decided([*pair, wide(9, 3, is_bound=is_bound)], nodes, by_width) == alone
    blocked = decided([*pair, wide(9, 2, is_bound=is_bound), job(8, RUNNING, ["n1"])], nodes, by_width)
    assert blocked == [], "who fits is next"


def test_a_leader_moves_to_an_idle_node_past_a_job_that_is_too_wide():
    jobs = [told(5, waits_for=(8,)), told(8, state=RUNNING), wide(9, 3, is_bound=True)]
    (found,) = decided(jobs, [node("n1"), node("n2")], by_width)
    assert (found.share.nodes, found.why) == (("n2",), "another node is free")
