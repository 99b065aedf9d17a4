"""Slowdowns from times alone and together."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpicoloc.pairing.corun import TimedRun, of_time, overlap_s, slowdowns


def alone(program, wall_s, place=0):
    return (TimedRun(program, place, 1000.0, wall_s, True),)


def beside(first, second, wall_s, other_wall_s):
    """The first one's run, and runs of the second one after the other as long as it lasts."""
    runs = [TimedRun(first, 0, 1000.0, wall_s, True)]
    begin_s = 1000.0
    while begin_s < 1000.0 + wall_s:
        is_whole = begin_s + other_wall_s <= 1000.0 + wall_s
        length_s = other_wall_s if is_whole else 1000.0 + wall_s - begin_s
        runs.append(TimedRun(second, 1, begin_s, length_s, is_whole))
        begin_s += other_wall_s
    return tuple(runs)


def side_by_side(*ends):
    """A whole run of each of two programs; of the shorter one another, which is ended with the longer one."""
    longest_s = max(wall_s for _, wall_s in ends)
    runs = [TimedRun(name, place, 1000.0, wall_s, True) for place, (name, wall_s) in enumerate(ends)]
    return tuple(runs) + tuple(
        TimedRun(name, place, 1000.0 + wall_s, longest_s - wall_s, False)
        for place, (name, wall_s) in enumerate(ends)
        if wall_s < longest_s
    )


positive = st.floats(0.1, 1e4)


@given(solo_s=positive, slowdown=st.floats(0.5, 5), part=st.floats(0.2, 1))
def test_the_part_of_a_run_without_a_co_runner_is_not_slow(solo_s, slowdown, part):
    # That part of the work is done beside the co-runner, the rest alone.
    beside_s = part * solo_s * slowdown
    wall_s = beside_s + (1 - part) * solo_s
    found = of_time(wall_s, beside_s, solo_s)
    if beside_s >= 0.5 * wall_s * (1 + 1e-9) and part >= 0.5:
        assert found == pytest.approx(slowdown, rel=1e-6)


@given(solo_s=positive, slowdown=st.floats(1, 1e4), part=st.floats(0, 0.5))
def test_a_job_that_hardly_advances_beside_another_is_no_less_slow_than_its_whole_run(solo_s, slowdown, part):
    """Between Eq. 1 of Zacarias et al. 2021, where its time without the co-runner counts, and the truth."""
    beside_s = part * solo_s * slowdown
    wall_s = beside_s + (1 - part) * solo_s
    if beside_s >= 0.5 * wall_s * (1 + 1e-9):
        found = of_time(wall_s, beside_s, solo_s)
        assert wall_s / solo_s * (1 - 1e-9) <= found <= slowdown * (1 + 1e-9)
        # A run alone that took a tenth longer changes it by no more than two tenths.
        assert found / of_time(wall_s, beside_s, 1.1 * solo_s) <= 1.2 * (1 + 1e-9)


def test_a_run_that_was_mostly_alone_says_nothing():
    assert of_time(10.0, 2.0, 9.0) is None


@given(wall_s=positive, parts=st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_overlap_is_never_longer_than_the_run(wall_s, parts):
    others, begin_s = [], 1000.0 - wall_s / 2
    for part in parts:
        others.append(TimedRun("other", 1, begin_s, part * wall_s, True))
        begin_s += part * wall_s
    run = TimedRun("job", 0, 1000.0, wall_s, True)
    length_s = begin_s - (1000.0 - wall_s / 2)
    expected_s = min(max(length_s - wall_s / 2, 0.0), wall_s)
    assert overlap_s(run, others) == pytest.approx(expected_s, abs=1e-6 * wall_s)


def test_both_programs_of_a_pair_have_a_slowdown():
    runs = [alone("long", 20.0), alone("long", 20.2), alone("short", 4.0), alone("short", 4.1, place=1)]
    runs += [beside("long", "short", 30.0, 5.0), beside("long", "short", 31.0, 5.1)]
    found = {(each.target, each.co_runner): each.slowdown for each in slowdowns(runs)}
    assert set(found) == {("long", "short"), ("short", "long")}
    assert found["long", "short"].value == pytest.approx(30.5 / 20.1, rel=0.01)
    assert found["short", "long"].value == pytest.approx(5.05 / 4.1, rel=0.01)  # on its place
    assert all(each.n == 2 and each.low < each.value < each.high for each in found.values())


def test_a_program_beside_itself():
    runs = [alone("a", 10.0), alone("a", 10.1), beside("a", "a", 15.0, 15.0), beside("a", "a", 15.2, 15.2)]
    (found,) = slowdowns(runs)
    assert (found.target, found.co_runner) == ("a", "a")
    assert found.slowdown.value == pytest.approx(1.5, rel=0.02)
    assert found.slowdown.n == 4


def test_without_repeats_nothing_is_said():
    assert slowdowns([alone("a", 10.0), alone("b", 5.0), beside("a", "b", 12.0, 6.0)]) == []


def test_a_pair_whose_program_never_ran_alone_is_left_out():
    runs = [alone("a", 10.0), alone("a", 10.1), beside("a", "b", 12.0, 6.0)]
    assert [(each.target, each.co_runner) for each in slowdowns(runs)] == [("a", "b")]


@given(
    n_rounds=st.integers(2, 7),
    factors=st.lists(st.floats(0.5, 2), min_size=3, max_size=3),
    truth=st.lists(st.floats(1, 3), min_size=9, max_size=9),
)
def test_a_slow_place_is_not_taken_for_the_co_runner(n_rounds, factors, truth):
    """Whatever the number of rounds: each program is slower on the second place, by a factor of its own."""
    names, rows = "abc", []
    for i_round in range(n_rounds):
        place = i_round % 2
        for name, factor in zip(names, factors, strict=True):
            rows.append(alone(name, 100.0 * factor**place, place))
        for i, j in ((0, 1), (0, 2), (1, 2)):
            order = [(i, j), (j, i)][place]
            ends = [
                (names[one], 100.0 * factors[one] ** at * truth[3 * one + other])
                for at, (one, other) in enumerate((order, order[::-1]))
            ]
            rows.append(side_by_side(*ends))
    for each in slowdowns(rows):
        one, other = names.index(each.target), names.index(each.co_runner)
        assert each.slowdown.value == pytest.approx(truth[3 * one + other], rel=1e-6)


@pytest.mark.parametrize("factor", [1.0, 1.4])
def test_intervals_hold_the_truth_where_a_place_is_slow(factor):
    """As a campaign makes its rounds, with the second place slower by that factor."""
    rng, n_held, n = np.random.default_rng(7), 0, 0
    names = "abcd"
    for _ in range(100):
        truth = {(i, j): rng.uniform(1, 2) for i in names for j in names}
        runs = []
        for place in (0, 1, 0, 1):
            runs += [alone(name, 100 * factor**place * rng.lognormal(0, 0.03), place) for name in names]
            for i, j in truth:
                if i < j:
                    both = [(i, j), (j, i)][place]
                    ends = zip(both, both[::-1], range(2), strict=True)
                    walls = [100 * truth[k, m] * factor**at * rng.lognormal(0, 0.03) for k, m, at in ends]
                    runs.append(side_by_side(*zip(both, walls, strict=True)))
        for each in slowdowns(runs):
            found = each.slowdown
            n, n_held = n + 1, n_held + (found.low <= truth[each.target, each.co_runner] <= found.high)
    assert n == 1200
    assert 0.93 <= n_held / n <= 0.98


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng, n_held, n = np.random.default_rng(5), 0, 0
    names = ("a", "b", "c", "d")
    for _ in range(150):
        truth = {(i, j): rng.uniform(1, 2) for i in names for j in names if i < j}
        runs = [alone(name, 100 * rng.lognormal(0, 0.03)) for name in names for _ in range(3)]
        for (i, j), factor in truth.items():
            for _ in range(2):
                wall_s = 100 * factor * rng.lognormal(0, 0.03)
                runs.append(beside(i, j, wall_s, wall_s))
        for each in slowdowns(runs):
            pair = (each.target, each.co_runner)
            if pair in truth:
                n, n_held = n + 1, n_held + (each.slowdown.low <= truth[pair] <= each.slowdown.high)
    assert 0.93 <= n_held / n <= 0.98
