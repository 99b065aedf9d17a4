"""Plans: every job once, no longer than one after the other, and nobody beside whom nothing is known."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpicoloc.errors import DataError, UsageError
from mpicoloc.pairing import blossom, policies
from mpicoloc.pairing.policies import POLICIES, Queue, Room, Rules, degradation_graph, duration_s, plan


def queue(n, seed=0, worst=3.0, **sizes):
    rng = np.random.default_rng(seed)
    return Queue(rng.uniform(10, 100, n), rng.uniform(1, worst, (n, n)), **sizes)


def jobs_of(made):
    return [group.jobs for group in made.groups]


@st.composite
def queues(draw):
    n = draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    slowdown = rng.uniform(0.9, draw(st.sampled_from([1.2, 2.5, 8.0])), (n, n))
    slowdown[rng.random((n, n)) < draw(st.sampled_from([0.0, 0.3]))] = np.nan
    cores = rng.integers(1, 9, n) if draw(st.booleans()) else None
    return Queue(rng.uniform(1, 100, n), slowdown, n_cores=cores, intensity=rng.random(n))


RULES = st.builds(
    Rules,
    policy=st.sampled_from(sorted(POLICIES)),
    threshold_frac=st.sampled_from([None, 1.0, 0.8]),
    prior_slowdown=st.sampled_from([None, 1.5]),
    room=st.just(Room(n_cores=8)),
)


@settings(max_examples=150, deadline=None)
@given(queues(), RULES)
def test_every_job_once_and_what_is_promised_of_pairs(waiting, rules):
    made = plan(waiting, rules)
    assert sorted(itertools.chain(*jobs_of(made))) == list(range(len(waiting)))
    counted = waiting.counted_on(is_cautious=False, prior_slowdown=rules.prior_slowdown)
    for group in made.groups:
        together_s = duration_s(counted, group.jobs)
        assert group.duration_s == pytest.approx(together_s)
        assert bool(group.why) == (len(group.jobs) == 1)
        if len(group.jobs) == 2:
            if waiting.n_cores is not None:
                assert waiting.n_cores[list(group.jobs)].sum() <= 8
            if rules.threshold_frac is not None and rules.policy in ("blossom", "greedy"):
                serial_s = waiting.runtime_s[list(group.jobs)].sum()
                assert together_s <= rules.threshold_frac * serial_s * (1 + 1e-12)
    if rules.policy in ("blossom", "greedy") and rules.threshold_frac is not None:
        assert made.cost_s <= waiting.runtime_s.sum() * (1 + 1e-12)
    if rules.policy == "blossom":
        assert made.lower_bound_s <= made.cost_s * (1 + 1e-12)
        assert made.cost_s <= plan(waiting, replace(rules, policy="greedy")).cost_s * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(queues(), st.integers(2, 5))
def test_larger_groups_take_no_longer_in_all(waiting, n_per_node):
    rules = Rules(n_per_node=n_per_node, room=Room(n_cores=8))
    made = plan(waiting, rules)
    assert max((len(group.jobs) for group in made.groups), default=0) <= n_per_node
    assert made.cost_s <= plan(waiting, Rules(room=Room(n_cores=8))).cost_s * (1 + 1e-9)
    if waiting.n_cores is not None:
        assert all(waiting.n_cores[list(group.jobs)].sum() <= 8 for group in made.groups)


def test_time_together_is_that_of_the_paper():
    """Section 3.5: max(RunTime_i Deg_ij, RunTime_j Deg_ji), which is not symmetric in its parts."""
    waiting = Queue([100, 40], [[1, 1.5], [3, 1]])
    assert duration_s(waiting, (0, 1)) == 150
    assert duration_s(waiting, (0,)) == 100
    graph = degradation_graph(waiting, [(0,), (1,)], Room(), 2, None)
    assert graph.weights.tolist() == [[0, 150], [150, 0]]
    assert np.isinf(degradation_graph(waiting, [(0,), (1,)], Room(), 2, 1.0).weights[0, 1])


def test_of_more_than_two_the_time_lost_is_added():
    waiting = Queue([100, 10, 10], [[1, 1.25, 1.5], [1, 1, 1], [2, 2, 1]])
    assert duration_s(waiting, (0, 1, 2)) == 175
    graph = degradation_graph(waiting, [(0, 1), (2,)], Room(), 3, None)
    assert graph.weights[0, 1] == 175
    assert graph.alone.tolist() == [125, 10]


def test_a_job_without_profile_runs_alone_unless_a_prior_is_given():
    slowdown = np.full((4, 4), 1.1)
    slowdown[2] = slowdown[:, 2] = np.nan
    waiting = Queue([10] * 4, slowdown, intensity=[1, 2, 3, 4])
    for policy in ("blossom", "greedy", "di", "fifo-shared"):
        made = plan(waiting, Rules(policy))
        assert {group.jobs: group.why for group in made.groups}[(2,)] == "no profile"
        assert sum(len(group.jobs) == 2 for group in made.groups) == 1
    made = plan(waiting, Rules(prior_slowdown=1.3))
    assert [len(jobs) for jobs in jobs_of(made)] == [2, 2]
    assert made.cost_s == pytest.approx(11 + 13)


def test_one_of_an_odd_queue_is_left_over():
    made = plan(Queue([10, 10, 10], np.full((3, 3), 1.1)), Rules(threshold_frac=None))
    assert sorted(len(jobs) for jobs in jobs_of(made)) == [1, 2]
    assert [group.why for group in made.groups if len(group.jobs) == 1] == ["left over"]
    assert made.cost_s == made.lower_bound_s == pytest.approx(21)


def test_reasons_to_be_alone():
    slowdown = np.full((4, 4), 1.2)
    slowdown[1] = slowdown[:, 1] = 5
    waiting = Queue([10] * 4, slowdown, n_cores=[2, 2, 8, 2])
    made = plan(waiting, Rules(room=Room(n_cores=8)))
    assert [(group.jobs, group.why) for group in made.groups] == [
        ((0, 3), ""),
        ((1,), "no partner is worth it"),
        ((2,), "no room beside any other"),
    ]
    assert [group.why for group in plan(waiting, Rules("fifo")).groups] == ["policy"] * 4
    assert plan(waiting.part(slice(1)), Rules()).groups[0].why == "no other job"


def test_baselines_pair_as_they_are_described():
    """Footnote 1: the lowest intensity beside the highest; FIFO shared: neighbours."""
    waiting = replace(queue(5, worst=1.1), intensity=[5, 1, 4, 2, 3])
    assert jobs_of(plan(waiting, Rules("di"))) == [(0, 1), (2, 3), (4,)]
    assert jobs_of(plan(waiting, Rules("fifo-shared"))) == [(0, 1), (2, 3), (4,)]
    assert jobs_of(plan(replace(waiting, intensity=[1, 2, 3, 4, 5]), Rules("di"))) == [(0, 4), (1, 3), (2,)]
    assert np.isnan(plan(waiting, Rules("di")).gap_frac)
    with pytest.raises(DataError, match="intensity"):
        plan(queue(5), Rules("di"))


def test_caution_counts_on_the_upper_ends():
    waiting = Queue([10, 10], [[1, 1.2], [1.2, 1]], high=[[1, 2.5], [1.3, 1]])
    assert jobs_of(plan(waiting, Rules())) == [(0, 1)]
    assert jobs_of(plan(waiting, Rules(is_cautious=True))) == [(0,), (1,)]


def test_an_empty_queue_and_a_long_one(monkeypatch):
    empty = plan(Queue([], np.empty((0, 0))))
    assert (empty.groups, empty.cost_s, empty.gap_frac) == ((), 0, 0)
    monkeypatch.setattr(policies, "WINDOW", 10)
    waiting = queue(25, worst=1.3)
    made = plan(waiting)
    assert sorted(itertools.chain(*jobs_of(made))) == list(range(25))
    assert all(len({job // 10 for job in jobs}) == 1 for jobs in jobs_of(made))
    (note,) = made.notes
    assert "25 jobs, planned in parts of 10 in order of arrival: no pair crosses parts" in note
    assert made.cost_s == pytest.approx(made.lower_bound_s, rel=1e-3)


def threes(n):
    """Jobs that only go well with two others: of three one is alone, which no fractional matching sees."""
    part = np.arange(n) // 3
    return Queue(np.full(n, 100.0), np.where(part[:, None] == part, 1.0, 3.0))


def test_a_plan_that_is_not_proved_near_the_least_says_so(monkeypatch):
    waiting = threes(303)
    made = plan(waiting)
    assert made.notes == ()
    assert made.cost_s == pytest.approx(101 * 200)
    assert made.gap_frac <= blossom.TOLERANCE_FRAC
    assert plan(waiting, Rules("greedy")).notes == plan(waiting, Rules(n_per_node=3)).notes == ()
    monkeypatch.setattr(blossom, "MAX_ROUNDS", 1)
    stopped = plan(waiting)
    assert stopped.lower_bound_s == pytest.approx(101 * 150)
    assert stopped.gap_frac == pytest.approx(1 / 3)
    assert stopped.notes == (
        "the plan may take up to 33.33 % more than the least possible: "
        "no proof was found that the gap is at most 0.1 %",
    )


def test_a_hundred_thousand_jobs_need_no_matrix_of_them_all(monkeypatch):
    """Slowdowns are asked for part by part; the whole would have 80 GB."""
    monkeypatch.setattr(policies, "WINDOW", 200)
    asked = []

    def part_of(chosen):
        asked.append(chosen)
        n = chosen.stop - chosen.start
        return Queue(np.full(n, 60.0), np.full((n, n), 1.5))

    made = policies.plan_parts(100_000, part_of, Rules("fifo-shared"))
    assert len(made.groups) == 50_000
    assert len(asked) == 100_000 // policies.WINDOW
    assert "100,000 jobs" in made.notes[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"runtime_s": [1, np.nan]}, "runtime_s of job 1 is nan"),
        ({"runtime_s": [1, 0]}, "runtime_s of job 1 is 0.0; need a number > 0"),
        ({"runtime_s": [1, 2, 3]}, "slowdown has shape (2, 2), need (3, 3)"),
        ({"slowdown": np.ones((2, 3))}, "need (2, 2)"),
        ({"slowdown": [[1, 0.2], [1, 1]]}, "slowdown of job 0, 1 is 0.2"),
        ({"slowdown": [[1, -3], [1, 1]]}, "slowdown of job 0, 1 is -3.0"),
        ({"slowdown": [[1, np.inf], [1, 1]]}, "is inf"),
        ({"high": [[1, 1], [0.1, 1]]}, "high of job 1, 0 is 0.1"),
        ({"n_cores": [0, 1]}, "n_cores of job 0 is 0.0"),
        ({"memory_bytes": [1, -1]}, "memory_bytes of job 1 is -1.0"),
        ({"intensity": [1, np.inf]}, "intensity of job 1 is inf"),
    ],
)
def test_bad_queues_are_named(changes, words):
    with pytest.raises(DataError) as raised:
        Queue(**{"runtime_s": [1, 2], "slowdown": np.ones((2, 2)), **changes})
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [{"policy": "best"}, {"threshold_frac": 1.5}, {"threshold_frac": 0}, {"n_per_node": 1},
     {"n_per_node": 3, "policy": "di"}, {"n_per_node": 3, "threshold_frac": None}, {"prior_slowdown": 0.9}],
)  # fmt: skip
def test_bad_rules_are_refused(wrong):
    with pytest.raises(UsageError):
        Rules(**wrong)


def test_a_job_larger_than_a_node_is_refused():
    with pytest.raises(DataError, match="job 1 does not fit a node of 4 cores"):
        plan(queue(2, n_cores=[1, 5]), Rules(room=Room(n_cores=4)))
    with pytest.raises(DataError, match="n_cores must be > 0"):
        Room(n_cores=0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.1, 100), max_size=30), st.integers(1, 6))
def test_nodes_are_busy_without_overlap_and_near_the_least_makespan(durations_s, n_nodes):
    slots = policies.assign_nodes(durations_s, n_nodes)
    makespan_s = policies.makespan_s(durations_s, slots)
    for node in range(n_nodes):
        here = sorted(
            (s.start_s, length) for s, length in zip(slots, durations_s, strict=True) if s.node == node
        )
        ends = [0.0, *np.cumsum([length for _, length in here])]
        assert [start for start, _ in here] == pytest.approx(ends[:-1])
    least_s = max([sum(durations_s) / n_nodes, *durations_s, 0.0])
    # Of list scheduling in any order; the bound of the longest first is in terms of the true optimum.
    assert least_s * (1 - 1e-9) <= makespan_s <= least_s * (2 - 1 / n_nodes) + 1e-9


def test_no_node_is_refused():
    with pytest.raises(UsageError, match="nodes must be >= 1, got 0"):
        policies.assign_nodes([1.0], 0)
