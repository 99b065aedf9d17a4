"""Jobs on simulated servers: all run once, at most two at a time, at the rates that company leaves them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpicoloc.errors import UsageError
from mpicoloc.model.pairs import POLICIES, Rules, plan
from mpicoloc.model.queue import Queue
from mpicoloc.sim.deployment import Programs, deploy, draw, normalised


def programs(runtime_s, slowdown, predicted=None):
    true = Queue(runtime_s, slowdown)
    seen = Queue(runtime_s, slowdown if predicted is None else predicted, intensity=np.arange(len(true)))
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


def test_an_empty_queue():
    none = deploy(programs([1], [[1]]), np.array([], int), Rules())
    assert none.makespan_s == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 14), st.integers(0, 2**32), st.sampled_from(sorted(POLICIES)), st.integers(1, 3))
def test_all_jobs_run_once_and_as_long_as_their_company_makes_them(n_jobs, seed, policy, n_servers):
    rng = np.random.default_rng(seed)
    runtime_s, slowdown = rng.uniform(1, 100, 6), rng.uniform(1, 3, (6, 6))
    some = programs(runtime_s, slowdown)
    jobs = draw(some, n_jobs, rng)
    done = deploy(some, jobs, Rules(policy), n_servers)
    length_s = done.end_s - done.start_s
    assert (length_s >= runtime_s[jobs] * (1 - 1e-6)).all()
    assert (length_s <= runtime_s[jobs] * slowdown.max() * (1 + 1e-6)).all()
    for i in range(n_jobs):
        middle_s = (done.start_s[i] + done.end_s[i]) / 2
        here = (done.server == done.server[i]) & (done.start_s < middle_s) & (middle_s < done.end_s)
        assert here.sum() <= 2
    again = deploy(some, jobs, Rules(policy), n_servers)
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
