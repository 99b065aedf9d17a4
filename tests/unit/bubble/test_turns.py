"""Slowdowns by turns: what is put in comes out, whatever the machine does meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpicoloc.bubble.sensitivity import wall_slowdowns
from mpicoloc.bubble.shutters import (
    QUIET_FRAC,
    Progress,
    Turns,
    relative_paces,
    rising,
    slowdown_of,
    slowdowns,
    steady_slowdown_of,
)
from mpicoloc.errors import DataError

LEVELS = {1.0: 1.1, 2.0: 1.5, 3.0: 2.5}


def turns_of(rng, n_rounds=12, length_s=0.1):
    """All levels in random order, a rest before each."""
    level = np.concatenate(
        [np.stack([np.zeros(3), rng.permutation(list(LEVELS))], axis=1).ravel() for _ in range(n_rounds)]
    )
    edges = np.concatenate([[0.0], np.cumsum(rng.uniform(length_s, 1.3 * length_s, len(level)))])
    return Turns(edges[:-1], edges[1:], level)


def progress_of(turns, speed=lambda time_s: 1.0, step_s=0.001):
    """Work whose pace is that of the host over the slowdown of the turn."""
    time_s = np.unique(np.concatenate([np.arange(0, turns.end_s[-1], step_s), turns.begin_s, turns.end_s]))
    middle = (time_s[1:] + time_s[:-1]) / 2
    turn = np.searchsorted(turns.begin_s, middle) - 1
    slow = np.array([LEVELS.get(level, 1.0) for level in turns.level.tolist()])[turn]
    work = np.concatenate([[0.0], np.cumsum(np.diff(time_s) * speed(middle) / slow)])
    return Progress(time_s, work, time_s)


@pytest.mark.parametrize("speed", [lambda t: 1.0, lambda t: 1 + 0.3 * t / 10], ids=["steady", "drifting"])
def test_slowdowns_are_found_on_a_host_that_drifts(speed):
    turns = turns_of(np.random.default_rng(1))
    found = slowdowns(progress_of(turns, speed), turns)
    assert list(found) == list(LEVELS)
    for level, one in found.items():
        assert one.value == pytest.approx(LEVELS[level], rel=2e-3)
        assert one.low <= LEVELS[level] * 1.003 and one.high >= LEVELS[level] * 0.997


def test_a_turn_without_processor_counts_for_nothing():
    turns = turns_of(np.random.default_rng(2))
    whole = progress_of(turns)
    i = int(np.flatnonzero(turns.level == 2.0)[0])
    inside = (whole.time_s > turns.begin_s[i]) & (whole.time_s <= turns.end_s[i])
    lost_s = np.cumsum(np.where(inside, np.diff(whole.time_s, prepend=0.0), 0.0))
    lost_work = np.cumsum(np.where(inside, np.diff(whole.work, prepend=0.0), 0.0))
    found = slowdowns(Progress(whole.time_s, whole.work - lost_work, whole.busy_s - lost_s), turns)
    assert found[2.0].n == slowdowns(whole, turns)[2.0].n - 1
    assert found[2.0].value == pytest.approx(1.5, rel=2e-3)
    half = Progress(whole.time_s, whole.work / 2, whole.busy_s / 2)
    assert slowdowns(half, turns, QUIET_FRAC) == {}
    assert slowdowns(half, turns)[2.0].value == pytest.approx(1.5, rel=2e-3)


def test_turns_outside_of_what_was_seen_do_not_count():
    turns = turns_of(np.random.default_rng(3))
    whole = progress_of(turns)
    seen = whole.time_s > whole.time_s[-1] / 2
    part = Progress(whole.time_s[seen], whole.work[seen], whole.busy_s[seen])
    relative, _ = relative_paces(part, turns)
    assert np.isnan(relative[turns.begin_s < part.time_s[0]]).all()
    assert slowdowns(part, turns)[3.0].value == pytest.approx(2.5, rel=2e-3)


def test_too_few_turns_are_refused_and_left_out():
    with pytest.raises(DataError, match="3 turns were measured, but 4 are needed"):
        slowdown_of(np.ones(3), np.ones(3))
    turns = turns_of(np.random.default_rng(4), n_rounds=3)
    assert slowdowns(progress_of(turns), turns) == {}


def test_turns_without_the_co_runner_are_left_out():
    turns = turns_of(np.random.default_rng(8))
    whole = progress_of(turns)
    i = np.flatnonzero(turns.level == 3.0)[:5]
    middle = (whole.time_s[1:] + whole.time_s[:-1]) / 2
    turn = np.searchsorted(turns.begin_s, middle) - 1
    ran = np.where(np.isin(turn, i), 0.5, 1.0) * np.diff(whole.time_s)
    co_runner = Progress(whole.time_s, whole.work, np.concatenate([[0.0], np.cumsum(ran)]))
    spoilt = turns.disturbed(co_runner)
    assert np.flatnonzero(spoilt).tolist() == i.tolist()
    found = slowdowns(whole, turns.without(spoilt))
    assert found[3.0].n == 7 and found[3.0].value == pytest.approx(2.5, rel=2e-3)


@pytest.mark.parametrize("estimate", [steady_slowdown_of, lambda found: slowdown_of(found, np.ones(20))])
def test_intervals_hold_the_truth_as_often_as_they_say(estimate):
    rng = np.random.default_rng(9)
    found = [estimate(np.exp(-np.log(1.3) + 0.05 * rng.standard_normal(20))) for _ in range(400)]
    assert 0.91 < np.mean([one.low <= 1.3 <= one.high for one in found]) < 0.99


def test_bursts_of_the_host_hardly_change_what_is_steady():
    rng = np.random.default_rng(7)
    relative = np.exp(-np.log(1.3) + 0.03 * rng.standard_normal(30))
    relative[[3, 11]] = 0.2
    one, by_time = steady_slowdown_of(relative), slowdown_of(relative, np.ones(30))
    assert one.value == pytest.approx(1.3, rel=0.03) and one.high - one.low < 0.08
    assert abs(one.value - 1.3) < 0.5 * abs(by_time.value - 1.3)
    with pytest.raises(DataError, match="3 turns were measured, but 4 are needed"):
        steady_slowdown_of(np.ones(3))
    turns = turns_of(rng)
    found = slowdowns(progress_of(turns), turns, is_steady=True)
    assert [one.value for one in found.values()] == pytest.approx(list(LEVELS.values()), rel=2e-3)


@given(st.lists(st.floats(0.5, 3), min_size=1, max_size=20))
def test_a_mended_curve_rises_and_stays_within_the_values(values):
    curve = rising(np.array(values))
    assert np.all(np.diff(curve) >= 0)
    assert min(values) <= curve[0] and curve[-1] <= max(values)
    if values == sorted(values):
        assert curve.tolist() == values


def test_whole_runs():
    found = wall_slowdowns({0.0: [10.0, 10.2, 9.8], 4.0: [15.0, 15.3, 14.7], 2.0: [12.0, 12.0, 12.0]})
    assert list(found) == [2.0, 4.0]
    assert found[4.0].value == pytest.approx(1.5, rel=1e-3)
    assert found[4.0].low < 1.5 < found[4.0].high < 1.65
    with pytest.raises(DataError, match="level 4 has 1 runs, but 2 are needed"):
        wall_slowdowns({0.0: [1.0, 1.0], 4.0: [2.0]})
    assert wall_slowdowns({0.0: [1.0, 1.0], 1.0: [2.0, 2.0]})[1.0].high == pytest.approx(2.0)
