"""Changes that the sharing plan asks of the batch system, for any queue."""

import dataclasses
import math

from waiting_jobs import NOW_S, QUEUES, decided, job, node, told

from mpicoloc.core.batch_system import RUNNING, Snapshot
from mpicoloc.pairing.policies import Group
from mpicoloc.pairing.sharing_plan import (
    Assignment,
    Commit,
    Release,
    assigned_at_s,
    assignment_of,
    candidates,
    released,
)


def test_the_first_of_a_pair_leads():
    (found,) = decided([job(1), job(2)], [node("n1")])
    assert found == Commit(Assignment((1,), ("n1",)), (), (1.5,), "to share with 2")


def test_its_partner_joins_where_it_runs():
    (found,) = decided([told(1, state=RUNNING), job(2)], [node("n1")])
    assert found == Commit(Assignment((1, 2), ("n1",)), (), (1.5, 1.5), "its partner runs there")


def test_no_job_joins_while_a_node_is_idle():
    jobs = [told(1, state=RUNNING), job(2)]
    assert decided(jobs, [node("n1"), node("n2")]) == []


def test_no_job_joins_that_keeps_the_nodes_from_who_comes_before_it():
    nodes = [node("n1"), node("n2")]
    leaders = [told(7, state=RUNNING), told(8, ["n2"], state=RUNNING)]
    partners = [job(1), job(2)]
    wide = job(9, n_nodes=2, n_cpus=8, priority=1000, is_bound=True, reason="Resources")

    def joined(partner_s, *others):
        times_s = {7: 600.0, 8: 600.0, 1: partner_s, 2: partner_s}
        found = decided([*leaders, *partners, *others], nodes, runtime_s=times_s)
        return [each.share.jobs for each in found]

    both = [(7, 1), (8, 2)]
    assert joined(36000.0) == both, "nobody waits for these nodes"
    assert joined(36000.0, wide) == joined(560.0, wide) == []
    assert joined(500.0, wide) == both, "the leaders have 500 s to go"
    behind = dataclasses.replace(wide, priority=1)
    assert joined(36000.0, behind) == both
    here = dataclasses.replace(wide, n_nodes=1, wanted_nodes=("n1",))
    assert joined(36000.0, here) == [(8, 1)], "its second choice"


def test_who_is_to_share_waits_twice_as_long_for_others_and_no_longer():
    leader, jobs = told(7, state=RUNNING), [job(3), job(1, priority=9), job(2, priority=9)]

    def plan(leaders, waiting):
        n = len(leaders) + len(waiting)
        return [Group(group, 100.0) for group in ([(0, 3), (1, 2)] if n == 4 else [(i,) for i in range(n)])]

    for partner_s, jobs_joined in ((900.0, [(7, 3)]), (1100.0, [])):
        found = decided([leader, *jobs], [node("n1")], plan, {7: 600.0, 3: partner_s})
        assert [each.share.jobs for each in found if len(each.share.jobs) == 2] == jobs_joined


def test_a_leader_whose_partner_would_delay_others_gets_another_one():
    waiting = [job(1), job(2), job(3)]

    def plan(leaders, waiting):
        n = len(leaders) + len(waiting)
        return [Group((0, n - 1), 100.0), *(Group((i,), 100.0) for i in range(1, n - 1))]

    found = decided([told(7, state=RUNNING), *waiting], [node("n1")], plan, {7: 600.0, 2: 100.0, 3: 1100.0})
    assert [each.share.jobs for each in found] == [(7, 2)]


def test_no_second_choice_delays_the_job_whose_partner_it_takes():
    def plan(leaders, waiting):
        n = len(leaders) + len(waiting)
        return [Group(group, 100.0) for group in ([(0, 3), (1, 2)] if n == 4 else [(0, n - 1)])]

    for second_s, joined in ((900.0, []), (500.0, [(7, 2)])):
        runtime_s = {7: 600.0, 2: second_s, 3: 1100.0}
        found = decided([told(7, state=RUNNING), job(1), job(2), job(3)], [node("n1")], plan, runtime_s)
        assert [each.share.jobs for each in found if len(each.share.jobs) == 2] == joined


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
    assert found.share == Assignment((2,), ("n2",))


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
    assert found.share == Assignment((1,), ("n1", "n2"))
    leader = told(1, ["n1", "n2"], state=RUNNING)
    (found,) = decided([leader, wide[1], job(9, RUNNING, ["n3"])], nodes)
    assert found.share == Assignment((1, 2), ("n1", "n2"))


def test_a_job_that_needs_more_nodes_than_there_are_lets_others_pass():
    jobs = [job(1, n_nodes=3), job(2), job(3), job(7, RUNNING, ["n1"]), job(8, RUNNING, ["n2"])]
    (found,) = decided(jobs, [node("n1"), node("n2")])
    assert found.share.jobs == (2,) and found.why == "to share with 3"


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
    assert found.why == "it was changed by hand"
    (found,) = decided([told(1, wanted_nodes=())], [node("n1")])
    assert found.job == 1


def test_a_leader_that_waits_for_a_job_elsewhere_is_given_back():
    jobs = [told(1, waits_for=(7,)), job(8, RUNNING, ["n1"])]
    for other in (job(7, RUNNING, ["n2"]), job(7, priority=0)):
        (found,) = decided([*jobs, other], [node("n1"), node("n2")])
        assert found == Release(1, 600.0, "the job it waits for has left")
    for other in (told(7, state=RUNNING), told(7, leader=6), job(7, "COMPLETED")):
        assert not [each for each in decided([*jobs, other], [node("n1")]) if each.job == 1]


def test_a_node_that_goes_down_gives_its_jobs_back():
    found = decided([told(1), told(2, leader=9)], [node("n1", is_up=False), node("n2")])
    assert [(each.job, each.why) for each in found] == [
        (1, "node n1 takes no jobs"),
        (2, "node n1 takes no jobs"),
    ]


def test_a_partner_that_does_not_start_beside_its_leader_is_given_back():
    leader, share = told(1, state=RUNNING), Assignment((1, 2), ("n1",))
    for gone_s, limit_s, is_given_back in ((60, 600.0, False), (121, 600.0, True), (121, math.inf, True)):
        text = share.text(limit_s, (), NOW_S - gone_s)
        partner = dataclasses.replace(
            told(2, leader=1, reason="Resources"), admin_comment=text, limit_s=limit_s
        )
        found = decided([leader, partner, job(7, RUNNING, ["n2"])], [node("n1"), node("n2")])
        why = "the batch system does not start it there (Resources)"
        assert found == ([Release(2, limit_s, why)] if is_given_back else [])
    leads = dataclasses.replace(told(3), admin_comment=Assignment((3,), ("n1",)).text(600.0, (), NOW_S - 999))
    assert decided([leader, leads], [node("n1")]) == [], "a leader waits as long as others run"


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
        assert found == Release(1, 600.0, "its dependencies were changed by hand")


def test_a_job_that_runs_longer_than_its_profiles_say_may_run_until_its_limit():
    # Both began 100 s ago; that on n1 was to take 1 s, by a forged profile or one of a smaller input.
    runs = [job(7, RUNNING, ["n1"], limit_s=3600.0), job(8, RUNNING, ["n2"], limit_s=7200.0)]
    nodes, runtime_s = [node("n1"), node("n2")], {7: 1.0, 8: 300.0}
    (found,) = decided([job(1), job(2), *runs], nodes, runtime_s=runtime_s)
    assert found.share == Assignment((1,), ("n2",))
    (found,) = decided([told(1), job(2), *runs], nodes, runtime_s=runtime_s)
    assert found == Release(1, 600.0, "the job it waits for is overdue")
    # A node that it does not fit is no help.
    assert decided([told(1), *runs], [nodes[0], node("n2", n_cpus=2)], runtime_s=runtime_s) == []
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
    assert (found.share, found.after) == (Assignment((1,), ("n2",)), ())
    # Not while others want that node who come before it.
    assert decided([*jobs, job(3, priority=2)], [node("n1"), node("n2")]) == []


def test_the_first_in_the_queue_goes_to_an_idle_node_before_all_others():
    jobs = [told(1), job(7, RUNNING, ["n1"]), told(2, ["n2"]), job(8, RUNNING, ["n2"]), job(3), job(4)]
    first, *rest = decided(jobs, [node(f"n{k}") for k in (1, 2, 3)])
    assert first == Commit(Assignment((1,), ("n3",)), (), (1.5,), "another node is free")
    assert rest == [], "the node that it leaves is taken at the next look, and nobody else goes to n3"
    both = decided(jobs, [node(f"n{k}") for k in (1, 2, 3, 4)])
    assert [each.share for each in both] == [Assignment((1,), ("n3",)), Assignment((2,), ("n4",))]


def test_jobs_are_sent_to_nodes_that_they_fit():
    small, large = node("n1", n_cpus=2), node("n2", n_cpus=8)
    busy = [job(7, RUNNING, ["n1"], limit_s=300.0), job(8, RUNNING, ["n2"])]
    for n_cpus, name in ((2, "n1"), (3, "n2"), (8, "n2")):
        pair = [job(1, n_cpus=n_cpus), job(2, n_cpus=2)]
        for jobs in (pair, pair[::-1]):
            (found,) = decided([*jobs, *busy], [small, large])
            assert found.share.nodes == (name,)
    assert decided([job(1, n_cpus=9), job(2, n_cpus=2), *busy], [small, large]) == []
    # Who fits nowhere here waits for other nodes, and keeps nobody from these.
    bound = job(1, n_cpus=9, is_bound=True, reason="Resources")
    (found,) = decided([bound, job(2, n_cpus=2), job(3, n_cpus=2), *busy], [small, large])
    assert found.share == Assignment((2,), ("n1",))


def test_nobody_joins_or_moves_where_it_does_not_fit():
    small = node("n1", n_cpus=2)
    leader = told(7, state=RUNNING, n_cpus=2)
    (found,) = decided([leader, job(1, n_cpus=2)], [small])
    assert found.share.jobs == (7, 1)
    assert decided([leader, job(1, n_cpus=3)], [small]) == []
    sent, nodes = told(2, ["n2"]), [small, node("n2"), node("n3")]
    (found,) = decided([sent, job(8, RUNNING, ["n2"])], nodes)
    assert found.share == Assignment((2,), ("n3",))
    assert decided([sent, job(8, RUNNING, ["n2"])], nodes[:2]) == []


def test_who_has_conditions_of_his_own_is_left_alone():
    others = [job(1, is_bound=True), job(2, priority=0), job(4, partition="other"), job(5, RUNNING),
              job(6, admin_comment="exclusive")]  # fmt: skip
    priced = job(7, admin_comment='{"mpicoloc":{"n_profiles":1}}')
    assert candidates(Snapshot(NOW_S, (*others, priced), ()), QUEUES) == [priced]


def test_all_that_waits_is_given_back_at_once():
    jobs = (told(1), told(2, ["n2", "n3"]), told(3, state=RUNNING), job(4))
    now = Snapshot(NOW_S, jobs, ())
    assert [each.job for each in released(now)] == [1, 2]
    assert [each.job for each in released(now, ["n3"])] == [2]


def test_the_own_time_limit_is_kept():
    share = Assignment((2, 3), ("n1", "n2"))
    for limit_s in (600.0, math.inf):
        made = dataclasses.replace(job(3), admin_comment=share.text(limit_s))
        assert assignment_of(made) == (share, limit_s)
        after = dataclasses.replace(made, admin_comment=share.text(limit_s, (4, 5)) + ' {"mpicoloc":{}}')
        assert assignment_of(after) == (share, limit_s)
        assert assigned_at_s(after) == math.inf
        since = dataclasses.replace(made, admin_comment=share.text(limit_s, (4, 5), 1e9) + ' {"mpicoloc":{}}')
        assert (assignment_of(since), assigned_at_s(since)) == ((share, limit_s), 1e9)
        assert assignment_of(dataclasses.replace(made, id=2)) is None, "not its own"
    assert assignment_of(job(3, admin_comment="mpicoloc: 0.01 SU")) is None
