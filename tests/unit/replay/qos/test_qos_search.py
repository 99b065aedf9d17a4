"""Trials of weights, and what replays of them say."""

import itertools

import numpy as np
import pytest
from replays import all_meet

from mpicoloc.errors import UsageError
from mpicoloc.network.topology import readers
from mpicoloc.replay.experiment import PlacedJob
from mpicoloc.replay.network import of_fabric
from mpicoloc.replay.programs import patterns
from mpicoloc.replay.programs.builder import ProgramBuilder, shared
from mpicoloc.replay.qos import search
from mpicoloc.replay.qos.policy import Ports, choose_policy
from mpicoloc.replay.qos.search import ONE_LANE, search_result, trials
from mpicoloc.replay.simulate import Settings

BUFFER = 65536
PORTS = Ports(4, 2048)


def names(todo):
    return [trial.name for trial in todo]


def test_two_lanes_are_weighed_as_in_figure_5_12():
    found = all_meet(0.3, 0.15)
    todo = trials(found, choose_policy(found, PORTS))
    between = ["8:1", "4:1", "2:1", "1:1", "1:2", "1:4", "1:8"]
    assert names(todo) == [ONE_LANE, "lane 0 first", *between, "lane 1 first"]
    assert todo[0].policy.n_operational == 1 and set(todo[0].policy.lane_of_job) == {0}
    assert all(trial.policy.lane_of_job == (0, 1) for trial in todo[1:])


def test_three_lanes_are_weighed_in_the_order_of_their_demands():
    found = all_meet(0.05, 0.3, 0.15)
    policy = choose_policy(found, PORTS)
    assert policy.lane_of_job == (2, 0, 1)
    todo = trials(found, policy, 4)
    weights = [trial.policy.weights for trial in todo if not trial.policy.high_lanes][1:]
    assert (1, 2, 4) in weights and (4, 2, 1) in weights and (1, 1, 1) in weights
    assert len(set(weights)) == len(weights) == 11
    for row in weights:
        assert sorted(row) in (list(row), list(row)[::-1]), "no lane has more than one with less demand"


def test_lanes_that_were_given_are_weighed_by_what_is_on_them():
    """Lane 0 has the light job here: what favours it stands at the end."""
    found = all_meet(0.05, 0.3)
    todo = trials(found, choose_policy(found, PORTS, lane_of_job=[0, 1]))
    assert names(todo)[1] == "lane 1 first" and names(todo)[2] == "1:8" and names(todo)[-1] == "lane 0 first"


def test_lane_0_that_is_left_to_others_keeps_its_weight():
    found = all_meet(0.3, 0.15)
    todo = trials(found, choose_policy(found, PORTS, is_lane_0_free=True))
    assert {trial.policy.weights[0] for trial in todo} == {1}
    assert "1:1:8" in names(todo) and "1:8:1" in names(todo)


def test_weights_for_which_the_ports_have_no_rows_are_not_tried():
    found = all_meet(*np.linspace(0.5, 0.1, 8))
    todo = trials(found, choose_policy(found, Ports(8)), 8)
    assert all(len(trial.policy.low_rows) <= 8 for trial in todo)
    assert f"1:{':'.join('4' * 7)}" in names(todo)


def test_one_lane_has_nothing_to_weigh():
    found = all_meet(0.3, 0.15)
    with pytest.raises(UsageError, match="jobs on different lanes"):
        trials(found, choose_policy(found, Ports(1)))
    with pytest.raises(UsageError, match="--max-weight must be at least 1"):
        trials(found, choose_policy(found, PORTS), 0)


def test_the_sweet_spot_is_the_least_sum_and_priorities_are_only_compared():
    found = all_meet(0.3, 0.15)
    times = {ONE_LANE: (1.4, 2.5), "1:1": (1.3, 2.5), "1:2": (1.35, 2.25), "lane 1 first": (1.0, 2.0)}
    todo = [trial for trial in trials(found, choose_policy(found, PORTS)) if trial.name in times]
    result = search_result(todo, (1.0, 2.0), [times[trial.name] for trial in todo])
    assert [tried.total_contention_s for tried in result.tried] == pytest.approx([0.9, 0.8, 0.6, 0.0])
    assert result.best.trial.name == "1:2" and result.reference.trial.name == "1:1"
    assert result.gain_frac == pytest.approx(0.25)

    loses_nothing = search_result(todo, (1.0, 1.0), [(1.0, 1.0)] * len(todo))
    assert loses_nothing.gain_frac is None


def test_by_slowdown_a_short_job_counts_as_much_as_a_long_one():
    found = all_meet(0.3, 0.15)
    times = {"2:1": (10.5, 1.6), "1:1": (11.0, 1.2), "1:2": (11.2, 1.1)}
    todo = [trial for trial in trials(found, choose_policy(found, PORTS)) if trial.name in times]
    best = [
        search_result(todo, (10.0, 1.0), [times[trial.name] for trial in todo], goal).best.trial.name
        for goal in ("time", "slowdown")
    ]
    assert best == ["2:1", "1:2"]


def replayed(jobs, demands):
    """Search result of replaying all trials of the jobs on a tree with one up-link."""
    fabric = readers.fabric_of_text("XGFT(2;8,2;1,1)", "test", "1Gbit/s", None)
    network, settings = of_fabric(fabric, "d-mod-k"), Settings(mtu_bytes=PORTS.mtu_bytes)
    policy = choose_policy(demands, PORTS)
    todo = trials(demands, policy)
    replays = search.Replays(network, tuple(jobs), BUFFER, settings)
    sharing = [search.simulated_sharing_s(replays, trial.policy) for trial in todo]
    return search_result(todo, search.times_alone_s(replays, policy), sharing)


@pytest.fixture(scope="module")
def replays():
    """Contention of an all-to-all of 8 ranks and a shift, by trial."""
    heavy = patterns.by_name("alltoall", 8, 65536, 1.25e8, np.random.default_rng(0), 4)
    light = patterns.by_name("shift:4", 8, 2048, 1.25e8, np.random.default_rng(0), 300)
    hosts = np.arange(16).reshape(2, 2, 4)
    jobs = [PlacedJob(made, hosts[:, i].ravel()) for i, made in enumerate((heavy, light))]
    return replayed(jobs, all_meet(0.5, 0.1))


def test_replayed_a_job_loses_less_the_more_its_lane_weighs(replays):
    """As in Figures 5.12 to 5.14: the other job's contention grows meanwhile."""
    rows = [tried.contention_s for tried in replays.tried if not tried.trial.policy.high_lanes][1:]
    assert len(rows) == 7
    for before, after in itertools.pairwise(rows):
        assert after[1] < before[1] * 1.02 and after[0] > before[0] * 0.98
    assert rows[-1][1] < rows[0][1] / 2


def test_replayed_priority_is_the_end_of_the_scale(replays):
    by_name = {tried.trial.name: tried.contention_s for tried in replays.tried}
    assert by_name["lane 1 first"][1] < by_name["1:1"][1] < by_name["lane 0 first"][1]
    assert by_name["lane 0 first"][0] < by_name["1:1"][0] < by_name["lane 1 first"][0] * 1.02


def bursts(n_times, n_bytes, compute_us):
    """Four ranks that compute and then exchange with each other, again and again."""
    builder = ProgramBuilder()
    with builder.loop(n_times):
        builder.compute(1000 * compute_us)
        patterns.exchange(builder, 4, n_bytes)
    return shared("bursts", builder.build(), 4)


def test_replayed_bursts_lose_less_the_more_the_lane_of_who_sends_less_weighs():
    """Jokanovic 2014, Figures 5.8 and 5.12; both take about as long, the first sends 2.7 times as much."""
    jobs = [
        PlacedJob(bursts(10, 131072, 500), np.array([0, 1, 8, 9])),
        PlacedJob(bursts(60, 8192, 1500), np.array([2, 3, 10, 11])),
    ]
    result = replayed(jobs, all_meet(0.5, 0.2))
    total_s = {tried.trial.name: tried.total_contention_s for tried in result.tried}
    assert total_s["1:1"] < total_s[ONE_LANE]
    assert total_s["1:4"] < total_s["1:1"] < total_s["4:1"] < total_s["lane 0 first"], total_s
    assert result.best.trial.policy.weights[1] > result.best.trial.policy.weights[0]


def steady(n_bytes, n_times):
    return patterns.by_name("alltoall", 4, n_bytes, 1.25e8, np.random.default_rng(0), n_times)


@pytest.mark.parametrize("max_jobs", [8, 2])
def test_the_groupings_of_jobs_are_compared_by_replay(monkeypatch, max_jobs):
    """By demands the two that send least share a lane, and the one that waits for small messages suffers."""
    monkeypatch.setattr(search, "ALL_GROUPINGS_MAX_JOBS", max_jobs)
    hosts = [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13]]
    jobs = tuple(map(PlacedJob, (steady(65536, 6), steady(65536, 5), steady(512, 60)), map(np.array, hosts)))
    fabric = readers.fabric_of_text("XGFT(2;8,2;1,1)", "test", "1Gbit/s", None)
    replays = search.Replays(of_fabric(fabric, "d-mod-k"), jobs, BUFFER, Settings(mtu_bytes=PORTS.mtu_bytes))
    demands = all_meet(0.6, 0.5, 0.1)
    start = choose_policy(demands, Ports(2, 2048))
    assert start.lane_of_job == (0, 1, 1)
    alone_s = search.times_alone_s(replays, start)
    tried = search.try_groupings(replays, alone_s, ("ft", "cg", "bt"), demands, start, "time")
    assert tried[0].trial.name == "ft + cg | bt"
    assert {one.trial.name for one in tried[1:]} == {"ft | cg + bt", "ft + bt | cg"}
    assert tried[0].total_contention_s < tried[1].total_contention_s


def test_all_groupings_into_so_many_lanes_are_known():
    assert len(search._all_groupings(8, 4)) == 1 + 127 + 966 + 1701  # Stirling numbers
    assert set(search._groupings_near((0, 0, 1), 2)) == {
        (0, 0, 1),
        (1, 0, 1),
        (0, 1, 1),
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
    }


def test_replayed_lanes_have_the_rows_and_the_buffer_of_the_ports():
    policy = choose_policy(all_meet(0.4, 0.2, 0.1), PORTS)
    lanes = search.lanes_of(policy, BUFFER)
    assert lanes.input_bytes == (16384,) * 4, "three lanes in use, four switched on"
    assert (lanes.low, lanes.weight_unit_bytes) == (((0, 32), (1, 64), (2, 128)), 64)
    assert lanes.lane_of_level == policy.lane_of_level


def test_a_buffer_without_credits_is_refused():
    fabric = readers.fabric_of_text("XGFT(1;2;1)", "test", "1Gbit/s", None)
    job = PlacedJob(patterns.shift(2, 100, 1), np.arange(2))
    policy = choose_policy(all_meet(0.1), PORTS)
    with pytest.raises(UsageError, match="buffer of lane 0 has 0 bytes"):
        search.simulated_sharing_s(search.Replays(of_fabric(fabric, "d-mod-k"), (job,), 0), policy)
