"""Simulated deployment of a service that learns: a pair that hurts is tried once, and not again."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from simulated_deployment import Meetings, Programs, deploy, deploy_learning, draw

from mpicoloc.errors import DataError, UsageError
from mpicoloc.pairing import training_sets
from mpicoloc.pairing.policies import Queue, Room, Rules

ROOT = Path(__file__).resolve().parents[3]


def alike(slowdown):
    """One program that takes 10 s alone, and what it suffers beside another job of it."""
    one = Queue([10], [[1]])
    return Programs(one, one, np.array([slowdown]))


def meetings(n_kinds=1, prior=1.3):
    return Meetings(n_kinds, prior, np.random.default_rng(0))


def test_a_pair_that_hurts_is_tried_once():
    jobs, known = np.zeros(4, int), meetings()
    first = deploy_learning(alike(3.0), jobs, Rules(), known)
    assert sorted(first.start_s.tolist()) == [0, 0, 30, 40]
    assert known.slowdown.item() == pytest.approx(2.8, rel=0.2)
    later = deploy_learning(alike(3.0), jobs, Rules(), known)
    assert later.makespan_s == 40


def test_a_pair_that_does_not_hurt_goes_on():
    known = meetings()
    assert deploy_learning(alike(1.0), np.zeros(6, int), Rules(), known).makespan_s == 30
    assert known.slowdown.item() < 1.2


def test_who_assumes_the_worst_learns_nothing():
    known = meetings(prior=2.0)
    assert deploy_learning(alike(1.0), np.zeros(4, int), Rules(), known).makespan_s == 40
    assert known.slowdown.item() == 2.0


def test_each_direction_is_known_by_itself():
    known = meetings(2)
    known.add(0, 1, 4.0)
    assert known.slowdown[0, 1] > 3
    assert known.slowdown[1, 0] == 1.3


def test_bad_input_is_named():
    with pytest.raises(UsageError, match="servers must be >= 1, got 0"):
        deploy_learning(alike(1.0), np.zeros(2, int), Rules(), meetings(), 0)
    wide = Queue([10], [[1]], n_cores=[8])
    with pytest.raises(DataError, match="job 0 does not fit"):
        deploy_learning(Programs(wide, wide), np.zeros(2, int), Rules(room=Room(n_cores=4)), meetings())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 14),
    st.integers(0, 2**32),
    st.sampled_from(["blossom", "greedy", "fifo-shared"]),
    st.integers(1, 3),
)
def test_all_jobs_run_once_and_two_at_most(n_jobs, seed, policy, n_servers):
    rng = np.random.default_rng(seed)
    n_cores = rng.integers(1, 8, 6)
    true = Queue(rng.uniform(1, 100, 6), rng.uniform(1, 3, (6, 6)), n_cores=n_cores)
    jobs = draw(Programs(true, true), n_jobs, rng)
    rules, known = Rules(policy, room=Room(n_cores=8)), Meetings(6, 1.3, rng)
    done = deploy_learning(Programs(true, true), jobs, rules, known, n_servers)
    assert (done.end_s - done.start_s >= true.runtime_s[jobs] * (1 - 1e-6)).all()
    for i in range(n_jobs):
        middle_s = (done.start_s[i] + done.end_s[i]) / 2
        here = (done.server == done.server[i]) & (done.start_s < middle_s) & (middle_s < done.end_s)
        assert here.sum() <= 2
        assert n_cores[jobs[here]].sum() <= 8


def test_the_second_queue_of_a_campaign_that_hurts_is_as_short_as_fifo():
    """As the page says; whoever learns nothing needs 1.6 times as long each time."""
    pytest.importorskip("sklearn", reason="the extra schedule is not installed")
    spec = importlib.util.spec_from_file_location(
        "deploying", ROOT / "benchmarks" / "schedule" / "deployment.py"
    )
    deploying = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(deploying)
    learnt = training_sets.read_file(ROOT / "benchmarks" / "data" / "campaign-same.npz")
    runtime_s = np.array([job.runtime_s for job in learnt.jobs])
    measured = deploying.fitting.problem(learnt)
    true = deploying.matrix(measured, measured.slowdown)
    programs, rng = deploying.deployed(runtime_s, true, true), np.random.default_rng(0)
    known = Meetings(len(true), 1.3, rng)
    queues = [draw(programs, 50, rng) for _ in range(2)]
    took = [deploy_learning(programs, jobs, Rules(), known).makespan_s for jobs in queues]
    over = [
        made_s / deploy(programs, jobs, Rules("fifo")).makespan_s
        for made_s, jobs in zip(took, queues, strict=True)
    ]
    assert 1.02 < over[0] < 1.3
    assert over[1] < 1.02
