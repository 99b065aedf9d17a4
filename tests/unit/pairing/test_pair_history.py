"""Expected slowdowns of pairs, from earlier meetings."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from production_runs import run

from mpicoloc.core.profile import Estimate
from mpicoloc.core.slowdown import PairSlowdowns
from mpicoloc.pairing import production

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explain" / "pairing.md"
SLOWDOWNS = st.floats(0.6, 20.0)


def measured(value, error=1.1):
    """With a 95 % interval of a factor `error` either way."""
    return Estimate(value, value / error, value * error, 9, "1", "burst")


def test_of_one_meeting_and_nothing_before_it_is_what_was_measured():
    found = production.expected(None, [measured(3.0)])
    assert found.value == pytest.approx(3.0)
    sd = math.hypot(math.log(1.1) / 1.959964, production.RUN_SD, production.RUN_SD)
    assert found.high == pytest.approx(3.0 * math.exp(1.959964 * sd))


@pytest.mark.parametrize("n_met", [1, 20])
def test_of_next_times_as_many_are_inside_as_the_interval_says(n_met):
    rng = np.random.default_rng(3)

    def once():
        return 3.0 * math.exp(rng.normal(0, production.RUN_SD))

    def is_above():
        # What happened is measured well.
        return once() > production.expected(None, [measured(once(), 1.001) for _ in range(n_met)]).high

    assert np.mean([is_above() for _ in range(4000)]) == pytest.approx(0.025, abs=0.01)


def published():
    """Rows of the table in the documentation: measured, low, high, expected."""
    text = PAGE.read_text(encoding="utf-8").partition("## Those who have met")[2].partition("\n## ")[0]
    return [
        tuple(map(float, row))
        for row in re.findall(r"\| ([\d.]+), ([\d.]+) to ([\d.]+) \| ([\d.]+) \|", text)
    ]


def test_one_meeting_counts_as_published():
    assert len(published()) == 3
    for value, low, high, expected in published():
        meeting = Estimate(value, low, high, 9, "1", "burst")
        assert production.expected(production.guess(1.3), [meeting]).value == pytest.approx(
            expected, abs=0.05
        )


def test_what_was_often_measured_badly_is_known_too():
    assert production.expected(production.guess(1.3), [measured(3.0, error=10)] * 50).value > 2.7


def test_two_equal_meetings_meet_in_the_geometric_mean():
    assert production.expected(None, [measured(2.0), measured(4.5)]).value == pytest.approx(3.0)


@given(
    st.one_of(st.none(), SLOWDOWNS.map(production.guess), SLOWDOWNS.map(measured)),
    st.lists(SLOWDOWNS, min_size=1),
)
def test_it_is_among_what_was_said_and_more_meetings_make_it_more_certain(before, values):
    meetings = [measured(value) for value in values]
    found = production.expected(before, meetings)
    said = [*values, *([before.value] if before else [])]
    assert max(min(said), 1.0) <= found.value * (1 + 1e-9)
    assert found.value <= max(*said, 1.0) * (1 + 1e-9)
    more = production.expected(before, [*meetings, measured(found.value)])
    if found.low > 1:
        assert more.high / more.low < found.high / found.low


def test_a_job_whose_steps_met_the_steps_of_another_met_that_one():
    steps = [run(f"7-{i}", start=100.0 * i, beside=((f"8-{i}", 95.0),), slowdown=2.0) for i in (0, 1)]
    ((number, found),) = production.meetings(steps)
    assert number == "8"
    assert found.value == pytest.approx(2.1, abs=0.03)


@pytest.mark.parametrize(
    "changes",
    [
        {"slowdown": None},
        {"partial": True},
        {"was_alone": True},
        {"co_runners": (("8", 50.0), ("9", 45.0))},
        {"slowdown": Estimate(2.0, -1.0, 3.0, 9, "1", "burst")},
        {"slowdown": Estimate(1e9, 1e8, 1e10, 9, "1", "burst")},
        {"slowdown": Estimate(1e-20, 1e-21, 1e-19, 9, "1", "burst")},
        {"co_runners": (("7-1", 95.0),)},
    ],
    ids=str,
)
def test_what_tells_of_no_pair_is_no_meeting(changes):
    told = run("7", beside=(("8", 95.0),), slowdown=2.0)
    assert production.meetings([told])
    assert not production.meetings([dataclasses.replace(told, **changes)])


def test_a_job_met_each_co_runner_that_was_told_apart():
    beside = (("8-1", 100.0), ("9", 50.0), ("5-1", 90.0), ("5-2", 90.0))
    by = {name: Estimate(value, value - 0.1, value + 0.1, 0, "1", "partial")
          for name, value in (("8-1", 1.4), ("9", 1.2), ("5-1", 1.1))}  # fmt: skip
    told = run("7", beside=beside, shared_s=100.0, slowdown=1.8, slowdown_by=by)
    found = dict(production.meetings([told]))
    assert {name: one.value for name, one in found.items()} == pytest.approx({"8": 1.4, "9": 1.4})
    assert (found["9"].low, found["9"].high) == pytest.approx((1.2, 1.6))  # of half of the time
    assert not production.meetings([told, dataclasses.replace(told, id="7-2", start_unix_s=100.0)])


def test_what_is_assumed_of_strangers_follows_whom_they_met():
    """a suffers, b hurts, c and d are well; nobody met d."""
    three, one = [measured(3.0)], [measured(1.0)]
    met_before = {("a", "b"): three, ("a", "c"): three, ("c", "b"): three, ("c", "c"): one, ("x", "d"): three}
    value, high = production.expected_pair_slowdowns("abcd", met_before, 1.3)
    of = {(i, j): value["abcd".index(i), "abcd".index(j)] for i in "abcd" for j in "abcd"}
    assert of["d", "d"] == of["b", "a"] == pytest.approx(1.3)  # nobody knows
    assert of["a", "d"] == pytest.approx((1.3 * 3 * 3) ** (1 / 3), rel=0.02)
    assert of["d", "b"] == of["a", "d"] > of["d", "c"] == pytest.approx((1.3 * 3 * 1) ** (1 / 3), rel=0.02)
    assert of["a", "b"] > 2.9 > of["a", "d"]
    assert np.isnan(high).tolist() == [[(i, j) not in met_before for j in "abcd"] for i in "abcd"]


def test_what_was_measured_badly_says_less_of_others_than_of_those_who_met():
    value, _ = production.expected_pair_slowdowns("abcd", {("a", "b"): [measured(3.0, error=10)]}, 1.3)
    assert 1.3 < value[0, 2] == value[2, 1] < value[0, 1] < 1.6


@pytest.mark.parametrize(("honest", "forged"), [(3.0, 0.51), (1.05, 900.0)])
def test_one_user_does_not_decide_what_is_assumed_of_others(honest, forged):
    """Of bob beside alice, beside whom carol was; mallory writes what he likes."""
    names, told = ("alice", "bob", "carol", "dora", "mallory"), [measured(honest)] * 20
    true = {("carol", "alice"): told, ("dora", "alice"): told}
    lie = {("mallory", "alice"): [measured(forged)] * 20}
    without, with_it = (
        production.expected_pair_slowdowns(names, each, 1.3)[0][1, 0] for each in (true, true | lie)
    )
    assert 1 / 1.5 < with_it / without < 1.5


def test_a_model_is_believed_of_strangers_and_corrected_where_they_met():
    model = PairSlowdowns(*(np.full((2, 2), each) for each in (1.5, 1.0, 18.0)))
    value, high = production.expected_pair_slowdowns("ab", {("a", "b"): [measured(3.0)]}, model)
    assert value[1, 0] == 1.5
    assert high[1, 0] == 18.0
    assert value[0, 1] == pytest.approx(2.98, abs=0.02)
    assert high[0, 1] < 4.1


def test_of_a_prediction_whose_lower_end_is_cut_the_upper_one_counts():
    cut, whole = (Estimate(1.1, low, 1.98, 0, "1", "predicted") for low in (1.0, 1.1**2 / 1.98))
    badly = [measured(2.0, 1.45)]
    assert production.expected(cut, badly) == production.expected(whole, badly)


def test_nothing_is_expected_where_nothing_is_said():
    value, high = production.expected_pair_slowdowns("ab", {("a", "b"): [measured(3.0)]}, None)
    assert np.isnan(value).sum() == np.isnan(high).sum() == 3
    assert production.expected_pair_slowdowns("", {}, 1.3)[0].shape == (0, 0)
