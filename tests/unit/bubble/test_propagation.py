"""Interference on some nodes of a job: the matrix by few runs, uneven pressures, and replays as runs."""

import numpy as np
import propagations
import pytest
from hypothesis import given, strategies as st

from mpicoloc.bubble import propagation
from mpicoloc.bubble.propagation_runs import replayed_profile, replayed_uneven
from mpicoloc.core.bubbles import POLICIES, PropagationMatrix, SensitivityCurve
from mpicoloc.core.network import Topology
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay.experiment import PlacedJob
from mpicoloc.replay.network import of_fabric
from mpicoloc.replay.programs.builder import ProgramBuilder, of_each

LEVELS = np.arange(9.0)
ALGORITHMS = {
    "binary-brute": propagation.binary_brute,
    "binary-optimized": propagation.binary_optimized,
    "random-30": lambda *what: propagation.random_settings(*what, 0.3, np.random.default_rng(0)),
}


def counted(matrix):
    """A profile of a matrix that notes what it was asked."""
    asked = []

    def profile(k, j):
        asked.append((k, j))
        return propagations.profile_of(matrix)(k, j)

    return profile, asked


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("kind", propagations.TYPES)
def test_what_was_profiled_stands_in_the_matrix_and_is_asked_once(name, kind):
    truth = propagations.times(kind, np.random.default_rng(1))
    profile, asked = counted(truth)
    found = ALGORITHMS[name](profile, 8, 8)
    assert len(set(asked)) == len(asked)
    assert found.cost_frac == pytest.approx(len(asked) / 65)
    assert {(i + 1, j) for i, j in zip(*np.nonzero(found.is_measured), strict=True)} == set(asked) - {(0, 0)}
    assert found.times[found.is_measured] == pytest.approx(truth[found.is_measured])
    assert np.isfinite(found.times).all() and (found.times[:, 0] == 1).all()


def test_without_a_threshold_every_setting_is_profiled():
    truth = propagations.times("high", np.random.default_rng(2))
    found = propagation.binary_brute(propagations.profile_of(truth), 8, 8, threshold=-1.0)
    assert found.cost_frac == 1
    assert np.allclose(found.times, truth)


def test_a_program_that_does_not_care_costs_the_ends_only():
    profile, asked = counted(np.ones((8, 9)))
    assert np.allclose(propagation.binary_optimized(profile, 8, 8).times, 1)
    assert sorted(asked) == [(0, 0), (1, 8), (8, 8)]
    profile, asked = counted(np.ones((8, 9)))
    propagation.binary_brute(profile, 8, 8)
    assert len(asked) == 1 + 8


def test_binary_brute_halves_where_times_differ():
    """One row of 8 nodes that jumps at the first: the middle of 0 to 8, then of 0 to 4, then of 0 to 2."""
    profile, asked = counted(np.array([[1.0, *[2.0] * 8]]))
    found = propagation.binary_brute(profile, 1, 8)
    assert asked == [(0, 0), (1, 8), (1, 4), (1, 2), (1, 1)]
    assert found.times[0].tolist() == [1.0, *[2.0] * 8]


def test_interpolate_all_keeps_the_shape_of_the_largest_pressure():
    """Algorithm 4: exact where every row is the last one, shrunk."""
    shape = np.array([0, 0.6, 0.8, 0.9, 1.0])
    truth = 1 + np.outer([0.1, 0.4, 0.7, 1.0], shape)
    found = propagation.binary_optimized(propagations.profile_of(truth), 4, 4, threshold=0.0)
    assert np.allclose(found.times, truth)
    assert found.cost_frac == pytest.approx((1 + 4 + 3) / 17)


def test_binary_optimized_is_cheaper_and_binary_brute_nearer_to_the_truth():
    """The order of Table 3 of Han et al. 2016."""
    rows = {name: [] for name in (*ALGORITHMS, "random-50")}
    for _, truth in propagations.programs(seed=3, n_rounds=3):
        profile = propagations.profile_of(truth)
        half = propagation.random_settings(profile, 8, 8, 0.5, np.random.default_rng(1))
        found = {name: run(profile, 8, 8) for name, run in ALGORITHMS.items()} | {"random-50": half}
        for name, matrix in found.items():
            rows[name].append((matrix.cost_frac, propagation.mean_error(matrix, truth)))
    cost, error = ({name: np.mean([row[i] for row in found]) for name, found in rows.items()} for i in (0, 1))
    assert cost["binary-optimized"] < cost["random-30"] < cost["random-50"] < cost["binary-brute"]
    assert error["binary-brute"] < error["binary-optimized"] < error["random-30"]
    assert error["random-50"] < error["random-30"]


def test_random_settings_cost_what_was_asked():
    """29.23 % and 49.23 % of 65 settings in Table 3 are 19 and 32 runs."""
    truth = propagations.times("high", np.random.default_rng(4))
    for frac, n in ((0.3, 19), (0.5, 32)):
        rng = np.random.default_rng(0)
        found = propagation.random_settings(propagations.profile_of(truth), 8, 8, frac, rng)
        assert round(found.cost_frac * 65) == n


def test_a_part_that_is_none_and_a_run_that_takes_no_time_are_refused():
    for frac in (0.0, 1.5, -1.0):
        with pytest.raises(UsageError, match="must be in"):
            propagation.random_settings(lambda k, j: 1.0, 8, 8, frac, np.random.default_rng(0))
    with pytest.raises(DataError, match="time without interference must be above 0, got 0"):
        propagation.binary_brute(lambda k, j: 0.0, 8, 8)


@pytest.mark.parametrize(
    ("policy", "pressures", "level", "n"),
    [
        ("n-plus-1-max", (4, 4, 2, 1), 4, 3),
        ("all-max", (5, 2, 1, 2), 5, 4),
        ("interpolate", (5, 4, 2, 1), 3, 4),
        ("n-max", (5, 5, 4, 1), 5, 2),
    ],
)
def test_uneven_pressures_become_the_even_ones_of_figure_4(policy, pressures, level, n):
    """The four rows of the lower table of Figure 4, Han et al. 2016."""
    numbers = np.array([propagation.POLICY_NUMBERS[policy]])
    found = propagation.even_pressures(np.array([pressures], float), np.ones((1, 4), bool), numbers)
    assert (found[0][0], found[1][0]) == (level, n)


pressures = st.lists(st.floats(0, 8), min_size=1, max_size=8)


@given(pressures)
def test_policies_are_ordered_and_agree_where_pressure_is_even(found):
    matrix = PropagationMatrix(
        np.array([[1 + 0.1 * i * j / 8 for j in range(9)] for i in range(1, 9)])[:, : len(found) + 1],
        np.ones((8, len(found) + 1), bool),
    )
    said = {name: propagation.slowdown_under(matrix, name, found) for name in POLICIES}
    assert 1 <= said["n-max"] <= said["n-plus-1-max"] + 1e-12 <= said["all-max"] + 2e-12
    assert said["interpolate"] <= said["all-max"] + 1e-12
    same = [found[0]] * len(found)
    assert len({round(propagation.slowdown_under(matrix, name, same), 9) for name in POLICIES}) == 1


def test_the_policy_that_made_the_runs_is_found_from_few_of_them():
    matrix = PropagationMatrix(propagations.times("proportional", np.random.default_rng(5), 8, 4, 0.0),
                               np.ones((8, 5), bool))  # fmt: skip
    rng = np.random.default_rng(6)
    for policy in POLICIES:

        def slowdown(found, policy=policy):
            return propagation.slowdown_under(matrix, policy, found) * rng.normal(1, 0.005)

        choice = propagation.choose_by_runs(matrix, slowdown, np.random.default_rng(7))
        assert choice.policy == policy and choice.is_stable and choice.n_samples <= 20
        assert choice.error[policy] < 0.02


def test_a_choice_needs_runs():
    matrix = PropagationMatrix(np.ones((8, 5)), np.ones((8, 5), bool))
    with pytest.raises(DataError, match="no policy can be chosen without runs"):
        propagation.choose_policy(matrix, [])
    with pytest.raises(DataError, match="policy must be one of"):
        propagation.slowdown_under(matrix, "most", (1, 2))


def replayed(is_coupled):
    """Ten steps of 1 ms on each of four hosts; coupled ones wait for each other after each."""
    programs = []
    for rank in range(4):
        builder = ProgramBuilder()
        with builder.loop(10):
            builder.compute(1_000_000)
            if is_coupled and rank:
                builder.send(0, 8)
                builder.recv(0, 8)
            elif is_coupled:
                builder.wait_all([builder.irecv(peer, 8) for peer in range(1, 4)])
                builder.wait_all([builder.isend(peer, 8) for peer in range(1, 4)])
        programs.append(builder.build())
    job = PlacedJob(of_each("job", programs), np.arange(4))
    return of_fabric(Fabric(Topology((4, 4), (1, 4), (1e9, 1e9))), "d-mod-k"), job


def curve(top=2.0):
    value = 1 + (top - 1) * LEVELS / 8
    return SensitivityCurve("job", LEVELS, value, value, value)


def test_a_replay_tells_how_a_coupled_job_propagates_without_any_run():
    found = propagation.binary_brute(replayed_profile(*replayed(True), curve()), 8, 4)
    assert found.times[:, 1] == pytest.approx(curve().slowdown[1:], rel=0.02)
    assert found.times[:, 4] == pytest.approx(curve().slowdown[1:], rel=0.02)


def test_uneven_pressures_can_be_replayed_and_the_slowest_node_decides():
    slowdown = replayed_uneven(*replayed(True), curve())
    assert slowdown((0, 0, 0, 0)) == pytest.approx(1)
    assert slowdown((8, 2, 0, 4)) == pytest.approx(2, rel=0.02)
    with pytest.raises(DataError, match="has 4 nodes, but got 2 levels"):
        slowdown((1, 2))
    matrix = propagation.binary_brute(replayed_profile(*replayed(True), curve()), 8, 4)
    choice = propagation.choose_by_runs(matrix, slowdown, np.random.default_rng(0))
    assert choice.error["interpolate"] > choice.error[choice.policy]
    assert choice.policy != "interpolate"
