"""What is said to the batch system, for any queue."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoloc.core.batch import PENDING, RUNNING, BatchJob, BatchNode, Snapshot
from mpicoloc.model.pairs import Group, plan
from mpicoloc.model.queue import Queue
from mpicoloc.model.steering import (
    Commit,
    Partitions,
    Release,
    Share,
    candidates,
    decide,
    released,
    share_of,
)

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


def told(number, nodes=("n1",), leader=None, **others):
    """A job as it is once it was told to lead, or to join its leader."""
    share = Share((number,) if leader is None else (leader, number), tuple(nodes))
    if others.get("state") == RUNNING:
        others.setdefault("nodes", nodes)
    given = {"partition": "shared", "wanted_nodes": share.nodes, "is_bound": True, "n_nodes": len(nodes)}
    text = share.text(600.0, others.get("waits_for", ()))
    return job(number, admin_comment=text, **{**given, **others})


def two_by_two(leaders, waiting):
    """Each leader with a job, the others two by two."""
    n = len(leaders)
    pairs = [(i, n + i) if n + i < n + len(waiting) else (i,) for i in range(n)]
    rest = range(n + min(n, len(waiting)), n + len(waiting))
    pairs += [tuple(rest[i : i + 2]) for i in range(0, len(rest), 2)]
    return [Group(pair, 100.0) for pair in pairs]


def decided(jobs, nodes, plan=two_by_two, runtime_s=None):
    now = Snapshot(NOW_S, tuple(jobs), tuple(nodes))
    return decide(now, QUEUES, plan, runtime_s or {}, lambda job, others: 1.5)


def test_the_first_of_a_pair_leads():
    (found,) = decided([job(1), job(2)], [node("n1")])
    assert found == Commit(Share((1,), ("n1",)), (), (1.5,), "to share with 2")


def test_its_partner_joins_where_it_runs():
    (found,) = decided([told(1, state=RUNNING), job(2)], [node("n1")])
    assert found == Commit(Share((1, 2), ("n1",)), (), (1.5, 1.5), "its partner runs there")


def test_no_job_joins_while_a_node_is_idle():
    jobs = [told(1, state=RUNNING), job(2)]
    assert decided(jobs, [node("n1"), node("n2")]) == []


def test_a_leader_has_one_partner_in_its_life():
    ended = told(2, leader=1, state="COMPLETED")
    waiting = told(2, leader=1)
    for partner in (ended, waiting):
        found = decided([told(1, state=RUNNING), partner, job(3)], [node("n1")])
        assert found == []


def test_a_partner_left_behind_leads_nobody():
    assert decided([told(2, leader=1, state=RUNNING), job(3)], [node("n1")]) == []


def test_a_leader_waits_for_all_that_share_its_node():
    running = [told(7, state=RUNNING), told(8, leader=7, state=RUNNING)]
    (found,) = decided([job(1), job(2), *running], [node("n1")])
    assert found.share.jobs == (1,)
    assert found.after == (7, 8)


def test_a_leader_waits_for_a_partner_that_is_to_begin_there():
    first, second = decided([told(7, state=RUNNING), job(1), job(2), job(3)], [node("n1")])
    assert first.share.jobs == (7, 1)
    assert second.share.jobs == (2,)
    assert second.after == (1, 7)


def test_who_has_the_node_alone_keeps_others_out_itself():
    (found,) = decided([job(1), job(2), job(7, RUNNING, ["n1"])], [node("n1")])
    assert found.after == ()


def test_the_node_that_is_free_first():
    jobs = [job(1), job(2), job(7, RUNNING, ["n1"]), job(8, RUNNING, ["n2"], limit_s=300.0)]
    (found,) = decided(jobs, [node("n1"), node("n2")])
    assert found.share.nodes == ("n2",)


def test_a_job_alone_that_comes_first_has_the_first_node():
    plan = lambda leaders, jobs: [Group((0,), 100.0, "no profile"), Group((1, 2), 100.0)]  # noqa: E731
    assert decided([job(1), job(2), job(3)], [node("n1")], plan) == []
    (found,) = decided([job(1), job(2), job(3)], [node("n1"), node("n2")], plan)
    assert found.share == Share((2,), ("n2",))


def test_who_cannot_share_has_his_turn_before_leaders():
    for first in (
        job(1, admin_comment="exclusive"),
        job(1, is_bound=True, reason="Resources"),
        job(1, is_bound=True, wanted_nodes=("n1",)),
    ):
        assert decided([first, job(2), job(3)], [node("n1")]) == []
    for first in (job(1, is_bound=True, reason="Dependency"), job(1, priority=0, is_bound=True)):
        (found,) = decided([first, job(2), job(3)], [node("n1")])
        assert found.share.jobs == (2,)
    here = job(1, is_bound=True, wanted_nodes=("n1",))
    (found,) = decided([here, job(2), job(3)], [node("n1"), node("n2")])
    assert found.share.nodes == ("n2",)


def test_jobs_on_two_nodes_pair_where_two_nodes_become_free_together():
    wide = [job(1, n_nodes=2), job(2, n_nodes=2)]
    apart = [job(7, RUNNING, ["n1"], limit_s=300.0), job(8, RUNNING, ["n2"])]
    nodes = [node("n1"), node("n2"), node("n3")]
    assert decided([*wide, *apart, job(9, RUNNING, ["n3"])], nodes) == []
    both = job(7, RUNNING, ["n1", "n2"], n_nodes=2)
    (found,) = decided([*wide, both, job(9, RUNNING, ["n3"])], nodes)
    assert found.share == Share((1,), ("n1", "n2"))
    leader = told(1, ["n1", "n2"], state=RUNNING)
    (found,) = decided([leader, wide[1], job(9, RUNNING, ["n3"])], nodes)
    assert found.share == Share((1, 2), ("n1", "n2"))


def test_a_job_that_needs_more_nodes_than_there_are_lets_nobody_pass():
    jobs = [job(1, n_nodes=3), job(2), job(3), job(7, RUNNING, ["n1"]), job(8, RUNNING, ["n2"])]
    alone = lambda leaders, jobs: [Group((0,), 100.0), Group((1, 2), 100.0)]  # noqa: E731
    assert decided(jobs, [node("n1"), node("n2")], alone) == []


def test_what_was_said_is_not_said_again():
    assert decided([told(1)], [node("n1")]) == []
    assert decided([told(1, state=RUNNING), told(2, leader=1)], [node("n1")]) == []


def test_a_partner_whose_leader_has_ended_runs_alone():
    (found,) = decided([told(2, leader=1)], [node("n1")])
    assert found == Release(2, 600.0, "its partner is gone")
    for leader in (told(1, state="COMPLETED"), told(1, nodes=["n2"], state=RUNNING), told(1)):
        assert 2 in {each.job for each in decided([leader, told(2, leader=1)], [node("n1"), node("n2")])}


def test_what_somebody_changed_is_taken_back():
    (found,) = decided([told(1, partition="whole")], [node("n1")])
    assert found.why == "somebody changed it"
    (found,) = decided([told(1, wanted_nodes=())], [node("n1")])
    assert found.job == 1


def test_a_leader_that_waits_for_a_job_elsewhere_is_given_back():
    jobs = [told(1, waits_for=(7,)), job(8, RUNNING, ["n1"])]
    for other in (job(7, RUNNING, ["n2"]), job(7, priority=0)):
        (found,) = decided([*jobs, other], [node("n1"), node("n2")])
        assert found == Release(1, 600.0, "what it waits for has left")
    for other in (told(7, state=RUNNING), told(7, leader=6), job(7, "COMPLETED")):
        assert not [each for each in decided([*jobs, other], [node("n1")]) if each.job == 1]


def test_a_node_that_goes_down_gives_its_jobs_back():
    found = decided([told(1), told(2, leader=9)], [node("n1", is_up=False), node("n2")])
    assert [(each.job, each.why) for each in found] == [
        (1, "node n1 takes no jobs"),
        (2, "node n1 takes no jobs"),
    ]


def test_what_never_begins_is_given_back():
    (found,) = decided([told(1, reason="PartitionTimeLimit", limit_s=900.0)], [node("n1")])
    assert found == Release(1, 600.0, "the batch system does not start it there (PartitionTimeLimit)")


def test_who_waits_for_what_the_service_did_not_say_gives_the_node_to_others():
    reasons = ("JobHeldUser", "BeginTime", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "Licenses")
    held = [told(1, reason=reason) for reason in (*reasons, "ReqNodeNotAvail", "Reservation")]
    for leader in (*held, told(1, priority=0)):
        (given, lead) = decided([leader, job(2), job(3), job(7, RUNNING, ["n1"])], [node("n1")])
        assert (given.job, lead.share.jobs) == (1, (2,)), leader.reason
    for reason in ("", "None", "Priority", "Resources", "Dependency"):
        assert decided([told(1, reason=reason), job(7, RUNNING, ["n1"])], [node("n1")]) == []


def test_who_was_made_to_wait_for_other_jobs_is_given_back():
    sent = told(1, waits_for=(7,))
    rest = [told(7, state=RUNNING), job(9, priority=0)]
    nodes = [node("n1"), node("n2")]
    assert decided([sent, *rest], [node("n1")]) == []
    for changes in ({"waits_for": (9,)}, {"waits_for": (7,), "is_chained": True}):
        changed = dataclasses.replace(sent, **changes)
        (found,) = decided([changed, *rest], nodes)
        assert found == Release(1, 600.0, "somebody made it wait for other jobs")


def test_a_job_that_runs_longer_than_its_profiles_say_may_run_until_its_limit():
    # Both began 100 s ago; that on n1 was to take 1 s, by a forged profile or one of a smaller input.
    runs = [job(7, RUNNING, ["n1"], limit_s=3600.0), job(8, RUNNING, ["n2"], limit_s=7200.0)]
    nodes, runtime_s = [node("n1"), node("n2")], {7: 1.0, 8: 300.0}
    (found,) = decided([job(1), job(2), *runs], nodes, runtime_s=runtime_s)
    assert found.share == Share((1,), ("n2",))
    (found,) = decided([told(1), job(2), *runs], nodes, runtime_s=runtime_s)
    assert found == Release(1, 600.0, "what it waits for is overdue")
    # A little longer than usual is nothing, and with nowhere else to go there is nothing to gain.
    assert decided([told(1), *runs], nodes, runtime_s={7: 60.0, 8: 300.0}) == []
    assert decided([told(1), told(2, ["n2"]), *runs], nodes, runtime_s=runtime_s) == []
    assert decided([told(1), *runs], nodes, runtime_s={7: 1.0, 8: 1.0}) == []


def test_one_free_node_is_reason_to_give_back_one_leader():
    runs = [job(7, RUNNING, ["n1"], limit_s=3600.0), job(8, RUNNING, ["n2"], limit_s=3600.0)]
    leads = [told(2, ["n2"]), told(1)]
    (found,) = decided([*leads, *runs], [node(f"n{k}") for k in (1, 2, 3)], runtime_s={7: 1.0, 8: 1.0})
    assert found.job == 1, "the first in the queue"


def test_a_leader_goes_to_another_node_that_is_idle():
    jobs = [told(1), job(7, RUNNING, ["n1"])]
    (found,) = decided(jobs, [node("n1"), node("n2")])
    assert (found.share, found.after) == (Share((1,), ("n2",)), ())
    # Not while others want that node.
    assert decided([*jobs, job(3)], [node("n1"), node("n2")]) == []


def test_who_has_conditions_of_his_own_is_left_alone():
    others = [
        job(1, is_bound=True),
        job(2, priority=0),
        job(4, partition="other"),
        job(5, RUNNING),
        job(6, admin_comment="exclusive"),
    ]
    priced = job(7, admin_comment='{"mpicoloc":{"n_profiles":1}}')
    assert candidates(Snapshot(NOW_S, (*others, priced), ()), QUEUES) == [priced]


def test_all_that_waits_is_given_back_at_once():
    jobs = (told(1), told(2, ["n2", "n3"]), told(3, state=RUNNING), job(4))
    now = Snapshot(NOW_S, jobs, ())
    assert [each.job for each in released(now)] == [1, 2]
    assert [each.job for each in released(now, ["n3"])] == [2]


def test_the_own_time_limit_is_kept():
    share = Share((2, 3), ("n1", "n2"))
    for limit_s in (600.0, math.inf):
        made = dataclasses.replace(job(3), admin_comment=share.text(limit_s))
        assert share_of(made) == (share, limit_s)
        after = dataclasses.replace(made, admin_comment=share.text(limit_s, (4, 5)) + ' {"mpicoloc":{}}')
        assert share_of(after) == (share, limit_s)
        assert share_of(dataclasses.replace(made, id=2)) is None, "not its own"
    assert share_of(job(3, admin_comment="mpicoloc: 0.01 SU")) is None


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
        assert not mine.is_bound or share_of(mine)
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
