"""Slowdowns from curves and scores: what the model says, what it tells of noise, and its file."""

import contention
import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpicoloc.bubble.model import BubbleModel, monotone
from mpicoloc.core.bubbles import ProgramPressure, SensitivityCurve, pressure_score
from mpicoloc.core.slowdown import JobFeatures, Machine
from mpicoloc.errors import DataError, UsageError
from mpicoloc.pairing import model_file

LEVELS = np.arange(9.0)


def curve(name, value, half=0.0):
    value = np.array(value, float)
    wide = half * np.minimum(LEVELS[: len(value)], 1)
    return SensitivityCurve(name, LEVELS[: len(value)], value, value - wide, value + wide, 10)


def program(name, slope, score, half=0.0):
    found = curve(name, 1 + slope * LEVELS, half)
    return ProgramPressure(name, found, pressure_score(score, score - half, score + half, 5))


def model(**more):
    programs = [program("mild", 0.01, 1.0), program("fierce", 0.1, 5.5), program("wide", 0.1, 2.0, 0.1)]
    return BubbleModel({one.program: one for one in programs}, **more)


def job(name):
    return JobFeatures(name, name, 1.0, 1, 1)


def test_the_slowdown_is_the_curve_at_the_score():
    assert model().predict(job("fierce"), [job("mild")]).value == pytest.approx(1.1)
    assert model().predict(job("mild"), [job("fierce")]).value == pytest.approx(1.055)


def test_intervals_of_curve_and_score_are_carried_through():
    found = model().predict(job("wide"), [job("wide")])
    assert (found.low, found.value, found.high) == pytest.approx((1.19 - 0.1, 1.2, 1.21 + 0.1))
    assert found.n == 5


@pytest.mark.parametrize(
    ("combine", "value"),
    [("capped-sum", 1.8), ("largest", 1.55), ("saturating", 1 + 0.8 * (1 - (2.5 / 8) ** 2))],
)
def test_pressures_of_several_are_combined_by_the_rule(combine, value):
    found = model(combine=combine).predict(job("fierce"), [job("fierce"), job("fierce")])
    assert found.value == pytest.approx(value)


def test_no_other_rule_is_known_and_a_program_without_a_curve_is_named():
    with pytest.raises(UsageError, match="unknown rule 'mean' for pressures: the rules are capped-sum"):
        model(combine="mean")
    with pytest.raises(DataError, match=r"no curve of program 'new': measure it with `mpicoloc bubble"):
        model().predict(job("mild"), [job("new")])


def test_a_curve_that_falls_is_made_even_and_told_and_one_that_rises_stays():
    fallen = curve("lu", [1, 1.2, 1.1, 1.4], half=0.2)
    risen, note = monotone(fallen)
    assert risen.slowdown.tolist() == pytest.approx([1, 1.15, 1.15, 1.4])
    assert "curve of lu falls by 0.100 up to level 2, which is within its interval" in note
    assert "measure it again" in monotone(curve("lu", [1, 1.2, 1.1, 1.4], half=0.01))[1]
    programs = {"lu": ProgramPressure("lu", fallen, pressure_score(1.0))}
    assert BubbleModel(programs).notes == (note,)
    rising = curve("lu", [1, 1.1, 1.2, 1.4])
    risen, note = monotone(rising)
    assert np.array_equal(risen.slowdown, rising.slowdown) and note == ""


slowdowns = st.lists(st.floats(0.5, 4.0), min_size=1, max_size=8)


@given(slowdowns, st.floats(0.0, 0.4))
def test_a_monotone_curve_never_falls_and_holds_its_values(values, half):
    found, note = monotone(curve("any", [1.0, *values], half))
    for ends in (found.low, found.slowdown, found.high):
        assert (np.diff(ends) >= -1e-12).all() and (ends >= 1).all() and ends[0] == 1
    assert (found.low <= found.slowdown).all() and (found.slowdown <= found.high).all()
    again, _ = monotone(found)
    assert again.slowdown == pytest.approx(found.slowdown)
    assert bool(note) == bool((np.diff(np.maximum([1.0, *values], 1)) < 0).any())


@given(st.floats(0, 8), st.floats(0, 8))
def test_more_pressure_is_no_relief(one, other):
    found = curve("any", 1 + 0.1 * LEVELS**1.5)
    low, high = sorted((one, other))
    assert found.at(low).value <= found.at(high).value + 1e-12


def test_a_stored_model_says_the_same(tmp_path):
    path = tmp_path / "m.npz"
    before = BubbleModel(model().programs, "largest", machine=Machine("a processor", 8, 2.0**35))
    model_file.write(before, path)
    after = model_file.read(path)
    assert isinstance(after, BubbleModel)
    assert (after.combine, after.machine, after.n_rows) == ("largest", before.machine, 3)
    for name in before.programs:
        said = [one.predict(job(name), [job("wide"), job("mild")]) for one in (before, after)]
        assert said[0] == said[1]
    assert model_file.card(after)["kind"] == "bubble"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"curve.length": np.array([9, 9, 8])}, "curves are missing or too short"),
        ({"curve.length": np.array([9, -9, 27])}, "curves are missing or too short"),
        ({"score.ends": np.zeros((2, 3))}, "the numbers of programs"),
        ({"score.ends": np.full((3, 3), 9.0)}, r"must be in \[0, 8\]"),
        ({"curve.slowdown": np.full(27, np.nan)}, "must be finite"),
    ],
)
def test_parts_that_are_no_model_are_refused(change, words):
    from mpicoloc.pairing.model_file import from_document, to_document

    told, arrays = to_document(model())
    with pytest.raises(DataError, match=words):
        from_document(told, arrays | change)
    with pytest.raises(DataError):
        from_document({**told, "programs": ["a"] * 3}, arrays)


def test_without_pairs_left_out_programs_are_known_as_well_as_others():
    """On a machine of which the truth is known; the error left is that of the measurement."""
    pytest.importorskip("sklearn", reason="the extra schedule is not installed")
    from without_pairs import scores_without_pairs

    world = contention.World(8, seed=2)
    training, bubbles = world.training(), world.bubbles()
    scores = scores_without_pairs(training, bubbles)
    assert scores.r2 > 0.9 and scores.mae < 0.03
    mixed = zip(bubbles.programs, reversed(bubbles.programs.values()), strict=True)
    wrong = BubbleModel(dict(mixed))
    assert scores_without_pairs(training, wrong).mae > scores.mae
