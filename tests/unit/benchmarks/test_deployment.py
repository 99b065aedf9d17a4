"""Jobs on simulated servers: all run once, at most two at a time, at the rates that company leaves them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from simulated_deployment import Programs, deploy, draw, normalised

from mpicoloc.errors import DataError, UsageError
from mpicoloc.pairing.policies import POLICIES, Queue, Room, Rules, plan


def programs(runtime_s, slowdown, predicted=None, **sizes):
    true = Queue(runtime_s, slowdown)
    predicted = slowdown if predicted is None else predicted
    seen = Queue(runtime_s, predicted, intensity=np.arange(len(true)), **sizes)
    return Programs(true, seen, np.diag(np.array(slowdown, float)).clip(1))


def test_a_job_gets_faster_when_its_partner_ends():
    """Of 100 s of work 10 s are done in the 30 s that the partner of 20 s takes beside it; 90 s are left."""
    two = programs([100, 20], [[1, 3], [1.5, 1]])
    done = deploy(two, np.array([0, 1]), Rules("fifo-shared"))
    assert done.end_s.tolist() == pytest.approx([120, 30])
    assert done.start_s.tolist() == [0, 0]
    assert done.makespan_s == pytest.approx(120)


def test_fifo_shared_fills_a_place_that_blossom_leaves_empty():
    """Section 4.4.1: blossom begins the next pair only after both of a pair are over."""
    four = programs([100, 20, 30, 30], np.ones((4, 4)))
    jobs = np.arange(4)
    shared = deploy(four, jobs, Rules("fifo-shared"))
    assert shared.start_s.tolist() == [0, 0, 20, 50]
    assert shared.makespan_s == 100
    pairs = deploy(four, jobs, Rules("blossom"))
    assert pairs.makespan_s == plan(four.predicted).cost_s == 130
    greedy = deploy(four, jobs, Rules("greedy"))
    assert greedy.start_s.tolist() == [30, 0, 0, 20]


def test_greedy_leaves_a_place_empty_where_nothing_may_run_beside():
    bad = np.full((3, 3), 1.1)
    bad[0] = bad[:, 0] = 9
    three = programs([10, 10, 10], bad)
    done = deploy(three, np.arange(3), Rules("greedy"))
    assert done.end_s.tolist() == pytest.approx([21, 11, 11])


def test_servers_are_used_before_they_are_shared():
    three = programs([10, 10, 10], np.full((3, 3), 2.0))
    done = deploy(three, np.arange(3), Rules("fifo-shared"), n_servers=2)
    assert done.server.tolist() == [0, 1, 0]
    assert done.end_s.tolist() == pytest.approx([20, 10, 20])
    with pytest.raises(UsageError, match="servers must be >= 1, got 0"):
        deploy(three, np.arange(3), Rules("fifo"), n_servers=0)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_an_empty_queue(policy):
    none = deploy(programs([1], [[1]]), np.array([], int), Rules(policy))
    assert none.makespan_s == 0


def test_greedy_fills_three_places():
    """The pair over soonest, then who is over soonest beside both; the fourth has the place of the first."""
    four = programs([30, 10, 20, 40], np.full((4, 4), 1.0))
    done = deploy(four, np.arange(4), Rules("greedy", n_per_node=3))
    assert done.start_s.tolist() == [0, 0, 0, 10]
    assert done.makespan_s == 50
    beside = np.full((3, 3), 1.25)
    three = programs([100, 100, 100], beside)
    assert deploy(three, np.arange(3), Rules("greedy", n_per_node=3)).end_s.tolist() == [150, 150, 150]
    # Two take 125 of 200 s, three 150 of 125 + 100 s.
    assert deploy(three, np.arange(3), Rules("greedy", 0.65, 3)).start_s.tolist() == [0, 0, 125]


def test_greedy_lets_no_third_in_that_makes_both_late():
    beside = np.array([[1, 1.1, 2.5], [1.1, 1, 2.5], [2.5, 2.5, 1]])
    done = deploy(programs([10, 10, 10], beside), np.arange(3), Rules("greedy", n_per_node=3))
    assert done.start_s.tolist() == [0, 0, 11]


@pytest.mark.parametrize("policy", ["fifo-shared", "greedy", "blossom"])
def test_nobody_shares_who_has_no_room(policy):
    ones = Queue([10, 10, 10], np.ones((3, 3)), n_cores=[8, 2, 6], memory_bytes=[1, 1, 1])
    jobs, wide = np.arange(3), Rules(policy, room=Room(n_cores=8))
    done = deploy(Programs(ones, ones), jobs, wide)
    assert done.start_s[0] != done.start_s[1] == done.start_s[2]
    assert done.makespan_s == 20
    one_by_one = deploy(Programs(ones, ones), jobs, Rules(policy, room=Room(memory_bytes=1)))
    assert one_by_one.makespan_s == 30
    with pytest.raises(DataError, match="job 0 does not fit a node of 4 cores"):
        deploy(Programs(ones, ones), jobs, Rules(policy, room=Room(n_cores=4)))


def test_in_order_nobody_overtakes_who_waits_for_room():
    """Once the second job is on server 1, the third finds room on server 0, which had none for the second."""
    sizes = Queue([10, 10, 10, 10, 10], np.ones((5, 5)), n_cores=[5, 2, 6, 3, 3])
    done = deploy(Programs(sizes, sizes), np.arange(5), Rules("fifo-shared", room=Room(n_cores=8)), 2)
    assert done.server.tolist() == [0, 1, 1, 0, 0]
    assert done.start_s.tolist() == [0, 0, 0, 0, 10]


RULES = [Rules(policy, room=Room(n_cores=8)) for policy in sorted(POLICIES)]
RULES += [Rules(policy, n_per_node=3, room=Room(n_cores=8)) for policy in ("blossom", "greedy")]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 14), st.integers(0, 2**32), st.sampled_from(RULES), st.integers(1, 3))
def test_all_jobs_run_once_and_as_long_as_their_company_makes_them(n_jobs, seed, rules, n_servers):
    rng = np.random.default_rng(seed)
    policy, n_cores = rules.policy, rng.integers(1, 8, 6)
    runtime_s, slowdown = rng.uniform(1, 100, 6), rng.uniform(1, 3, (6, 6))
    some = programs(runtime_s, slowdown, n_cores=n_cores)
    jobs = draw(some, n_jobs, rng)
    done = deploy(some, jobs, rules, n_servers)
    length_s, worst = done.end_s - done.start_s, 1 + (rules.n_per_node - 1) * (slowdown.max() - 1)
    assert (length_s >= runtime_s[jobs] * (1 - 1e-6)).all()
    assert (length_s <= runtime_s[jobs] * worst * (1 + 1e-6)).all()
    for i in range(n_jobs):
        middle_s = (done.start_s[i] + done.end_s[i]) / 2
        here = (done.server == done.server[i]) & (done.start_s < middle_s) & (middle_s < done.end_s)
        assert here.sum() <= rules.n_per_node
        assert n_cores[jobs[here]].sum() <= 8
    again = deploy(some, jobs, rules, n_servers)
    assert (again.end_s == done.end_s).all()
    if policy == "fifo" and n_servers == 1:
        assert done.makespan_s == pytest.approx(runtime_s[jobs].sum())


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 14), st.integers(0, 2**32))
def test_what_is_foreseen_takes_no_longer_than_planned(n_jobs, seed):
    """The plan counts each partner for a job's whole time; in truth one is left alone at the end."""
    rng = np.random.default_rng(seed)
    some = programs(rng.uniform(1, 100, 6), rng.uniform(1, 3, (6, 6)))
    jobs = draw(some, n_jobs, rng)
    planned_s = plan(some.queue(jobs, is_true=False)).cost_s
    assert deploy(some, jobs, Rules()).makespan_s <= planned_s * (1 + 1e-6)
    assert normalised(some, [jobs], [Rules()]).item() <= 1 + 1e-6
