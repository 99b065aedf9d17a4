"""Lanes and weights of jobs, against the thesis and exhaustive search."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st
from replays import all_meet
from trees import QUICK

from mpicoloc.errors import UsageError
from mpicoloc.replay.qos import policy as assignment, policy as weights
from mpicoloc.replay.qos.policy import Demands, Policy, Ports, assign_lanes, choose_policy


def shared_cost(demands, lane_of_job):
    """Sum of `Demands.meeting` over all pairs of jobs on one lane."""
    lanes = np.array(lane_of_job)
    return float(np.triu(demands.meeting * (lanes[:, None] == lanes), 1).sum())


FT, CG, BT, MG = 0.3, 0.15, 0.04, 0.03
"""Utilisations as in Figure 5.6: FT and CG moderate, BT and MG low."""


@st.composite
def demands(draw, max_jobs=6):
    n = draw(st.integers(1, max_jobs))
    used = np.array(draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)))
    upper = np.triu(np.array(draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))).reshape(n, n), 1)
    return Demands(used, used[:, None] * used * (upper | upper.T))


@QUICK
@given(demands(), st.integers(6, 15))
def test_each_job_has_a_lane_of_its_own_while_there_are_enough(found, n_lanes):
    lanes = assign_lanes(found, n_lanes)
    assert sorted(lanes) == list(range(found.n_jobs))
    order = np.argsort(lanes)
    assert (np.diff(found.demand_frac[order]) <= 0).all(), "the heaviest on lane 0, as FT in the thesis"


@QUICK
@given(demands(), st.integers(1, 5))
def test_no_move_and_no_swap_makes_jobs_on_one_lane_meet_less(found, n_lanes):
    lanes = assign_lanes(found, n_lanes)
    assert len(lanes) == found.n_jobs
    assert set(lanes) == set(range(min(n_lanes, found.n_jobs))), "all lanes are used, without gaps"
    cost = shared_cost(found, lanes)
    for job, lane in itertools.product(range(found.n_jobs), range(n_lanes)):
        moved = [*lanes[:job], lane, *lanes[job + 1 :]]
        assert shared_cost(found, tuple(moved)) >= cost - 1e-9
    for i, j in itertools.combinations(range(found.n_jobs), 2):
        swapped = list(lanes)
        swapped[i], swapped[j] = lanes[j], lanes[i]
        assert shared_cost(found, tuple(swapped)) >= cost - 1e-9


def test_compatible_jobs_share_and_the_heavy_one_is_alone_as_in_figure_5_16():
    assert assign_lanes(all_meet(CG, BT, FT), 2) == (1, 1, 0)
    assert assign_lanes(all_meet(FT, CG, BT, MG), 3) == (0, 1, 2, 2)
    lanes = assign_lanes(all_meet(0.6, 0.02, 0.6, 0.01), 2)
    assert lanes[0] != lanes[2], "two heavy ones are apart whatever is beside them"


def test_heavy_jobs_that_share_no_link_may_share_a_lane():
    found = all_meet(0.6, 0.6, 0.5)
    apart = found.meeting.copy()
    apart[0, 1] = apart[1, 0] = 0.0
    assert assign_lanes(Demands(found.demand_frac, apart), 2) == (0, 0, 1)


def test_four_jobs_on_two_lanes_cost_as_little_as_any_grouping():
    found = all_meet(FT, CG, BT, MG)
    least = min(shared_cost(found, lanes) for lanes in itertools.product(range(2), repeat=4))
    assert shared_cost(found, assign_lanes(found, 2)) == pytest.approx(least)


def test_weights_favour_who_communicates_least_as_in_figure_5_15():
    """The sweet spot of FT, CG and BT on three lanes is 1:2:4 there; the ratio of demands is the start."""
    found = all_meet(0.4, 0.2, 0.1)
    assert weights.favouring_weights(found, (0, 1, 2), 3) == (1, 2, 4)
    policy = choose_policy(found, Ports(4))
    assert (policy.lane_of_job, policy.weights) == ((0, 1, 2), (1, 2, 4))
    assert choose_policy(all_meet(0.0, 0.0), Ports(4)).weights == (1, 1), "nothing is sent"


def test_a_lane_of_two_light_jobs_weighs_more_as_in_figure_5_17():
    policy = choose_policy(all_meet(FT, CG / 3, BT), Ports(2))
    assert policy.lane_of_job == (0, 1, 1)
    assert policy.weights[1] > policy.weights[0] == 1


@QUICK
@given(demands(), st.sampled_from([1, 2, 4, 8]))
def test_a_lane_that_demands_less_never_weighs_less(found, n_lanes):
    policy = choose_policy(found, Ports(n_lanes, 2048))
    lanes = np.array(policy.lane_of_job)
    sums = [found.demand_frac[lanes == lane].sum() for lane in range(policy.n_lanes)]
    for (sum_a, a), (sum_b, b) in itertools.combinations(zip(sums, policy.weights, strict=True), 2):
        assert a <= b if sum_a > sum_b else True
    assert min(policy.weights) >= 1 and max(policy.weights) <= weights.MAX_WEIGHT


def turn(rows, mtu_bytes, n_turns=60):
    """Packets that each lane sends from a table, as the standard says, while all have full ones waiting."""
    sent = {lane: 0 for lane, _ in rows}
    for _ in range(n_turns):
        for lane, units in rows:
            left = units
            while left > 0:
                left -= -(-mtu_bytes // weights.UNIT_BYTES)
                sent[lane] += 1
    return [n / n_turns for n in sent.values()]


@pytest.mark.parametrize("mtu_bytes", [256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("packets", [(1,), (1, 2, 4), (1, 8), (4, 1), (3, 5), (16, 1)])
def test_rows_send_the_packets_that_were_asked_for(packets, mtu_bytes):
    rows = weights.arbitration_rows(list(enumerate(packets)), mtu_bytes, 8)
    assert turn(rows, mtu_bytes) == list(packets)
    assert turn(rows, mtu_bytes + 26) == list(packets), "headers of a packet do not count"
    assert all(1 <= units <= 255 for _, units in rows)


def test_rows_of_one_lane_stand_between_those_of_others():
    rows = weights.arbitration_rows([(0, 1), (1, 8), (2, 8)], 4096, 8)
    assert [lane for lane, _ in rows] == [0, 1, 2, 1, 2]


def test_weights_chosen_fit_the_ports_table():
    """Eight lanes of 4 KiB packets: weights of 8 would take 15 rows."""
    policy = choose_policy(all_meet(0.9, *[0.01] * 7), Ports(8))
    assert policy.weights == (1, *[4] * 7)
    assert len(policy.low_rows) == 8


def test_lane_0_is_left_to_others():
    policy = choose_policy(all_meet(FT, CG, BT), Ports(4), is_lane_0_free=True)
    assert policy.lane_of_job == (1, 2, 3)
    assert policy.weights[0] == 1
    assert policy.lane_of_level == (0, 1, 2, 3, *[0] * 12)


# as few as ports can have: lanes divide the buffers
@pytest.mark.parametrize(("n_jobs", "operational"), [(1, 1), (2, 2), (3, 4), (5, 8), (9, 15)])
def test_no_more_lanes_are_switched_on_than_are_used(n_jobs, operational):
    policy = choose_policy(all_meet(*[0.1] * n_jobs), Ports(15, 1024, 15))
    assert policy.n_operational == operational


def test_a_lane_of_high_priority_is_in_that_table_only():
    policy = Policy(Ports(4), (0, 1), (1, 2), high_lanes=(1,), high_limit=7)
    assert (policy.high_rows, policy.low_rows) == (((1, 128),), ((0, 64),))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Ports(4, 4096, 65), r"--rows must be in \[1, 64\], got 65"),
        (lambda: Policy(Ports(4), (0, 2), (1, 1)), r"lane 2 is not in \[0, 1\]"),
        (lambda: Policy(Ports(4), (0, 1), (1, 1), is_lane_0_free=True), r"lane 0 is not in \[1, 1\]"),
        (lambda: Policy(Ports(4), (0, 1), (1, 1), (2,)), "lane 2 of high priority"),
        (lambda: choose_policy(all_meet(FT), Ports(1), is_lane_0_free=True), "no lane is left for jobs"),
        (lambda: choose_policy(all_meet(FT, CG), Ports(4), [0]), "--assign must list 2 lanes"),
        (lambda: choose_policy(all_meet(FT, CG), Ports(4), [0, 4]), r"--assign: lanes must be in \[0, 3\]"),
        (lambda: assignment.assign_lanes(all_meet(FT), 0), "at least 1 lane"),
    ],
)
def test_what_no_fabric_can_do_is_told(make, words):
    with pytest.raises(UsageError, match=words):
        make()
