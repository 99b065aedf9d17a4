"""Levels and their settings, and scores that are read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpicoloc.bubble.calibration import BubbleSetting, Calibration
from mpicoloc.core.bubbles import LEVELS, SensitivityCurve
from mpicoloc.core.profile import Estimate
from mpicoloc.errors import DataError


def calibration_of(gain=0.8, error=0.01, settings=None):
    """Levels that slow the probe evenly."""
    slowdown = 1 + gain * np.array(LEVELS) / 8
    curve = SensitivityCurve(
        "the probe", np.array(LEVELS, float), slowdown,
        np.where(np.array(LEVELS) == 0, 1.0, slowdown - error),
        np.where(np.array(LEVELS) == 0, 1.0, slowdown + error), 80,
    )  # fmt: skip
    settings = settings or tuple(BubbleSetting(level << 23, level * 1e7) for level in LEVELS)
    return Calibration("a processor", 2, 1, settings, BubbleSetting(24 << 20, 0.0), 1.5e8, curve)


def measured(value, half=0.02):
    return Estimate(value, value - half, value + half, 50, "1", "test")


@given(level=st.floats(0, 8), gain=st.floats(0.05, 3))
def test_a_bubble_has_the_score_of_its_level(level, gain):
    one = calibration_of(gain)
    score = one.score(measured(one.curve.at(level).value))
    assert score.value == pytest.approx(level, abs=1e-4)
    assert 0 <= score.low <= score.value <= score.high <= 8 and score.unit == "level"


@given(low=st.floats(0.9, 2.2), more=st.floats(0, 1))
def test_a_program_that_slows_the_probe_more_has_no_smaller_score(low, more):
    one = calibration_of()
    assert one.score(measured(low)).value <= one.score(measured(low + more)).value


@given(level=st.floats(0, 8), more=st.floats(0, 8))
def test_settings_grow_with_the_level(level, more):
    one = calibration_of()
    small, large = one.setting(level), one.setting(min(8, level + more))
    assert small.working_set_bytes <= large.working_set_bytes
    assert small.lines_per_s <= large.lines_per_s
    if level == int(level):
        assert small == one.settings[int(level)]


def test_what_is_slower_than_the_largest_bubble_has_its_score_and_is_told():
    one = calibration_of()
    assert one.score(measured(5.0)).value == 8 and one.is_beyond(measured(5.0))
    assert one.score(measured(0.97)).value == 0 and not one.is_beyond(measured(1.7))
    with pytest.raises(DataError, match="falls"):
        calibration_of(gain=-0.5)


def test_an_uncertain_curve_widens_the_score():
    value = measured(1.4)
    sure, unsure = calibration_of(error=0.001).score(value), calibration_of(error=0.1).score(value)
    assert sure.value == unsure.value
    assert unsure.high - unsure.low > 2 * (sure.high - sure.low)


@pytest.mark.parametrize("level", [-0.1, 8.1, float("nan")])
def test_other_levels_are_refused(level):
    with pytest.raises(DataError, match=r"level must be in \[0, 8\]"):
        calibration_of().setting(level)


@pytest.mark.parametrize(
    "settings",
    [
        [(0, 0.0)],
        [(1, 0.0) for _ in LEVELS],
        *([(level, rate) for level in LEVELS] for rate in (-1.0, float("nan"))),
    ],
)
def test_what_are_no_bubbles_is_refused(settings):
    with pytest.raises(DataError, match="calibration of bubbles"):
        calibration_of(settings=tuple(BubbleSetting(*row) for row in settings))
