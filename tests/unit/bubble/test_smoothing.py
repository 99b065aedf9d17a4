"""Smooth curves: what they keep, and that their intervals hold the truth."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpicoloc.bubble.shutters import smoothed
from mpicoloc.core.bubbles import SensitivityCurve

LEVELS = np.array([2.0, 4.0, 6.0, 8.0])
SHAPES = {
    "flat": lambda level: 0 * level,
    "line": lambda level: np.log(1 + 0.05 * level),
    "knee": lambda level: np.log(1 + 0.15 * np.maximum(level - 4, 0)),
    "saturates": lambda level: np.log(1.5 - 0.5 * np.exp(-level / 2)),
    "cubic": lambda level: np.log(1 + (level / 8) ** 3),
    "step": lambda level: np.log(1 + 0.5 * (level > 5)),
}


def curve(log_slowdown, half, levels=LEVELS):
    value, ends = np.append(0.0, log_slowdown), np.append(0.0, np.broadcast_to(half, len(levels)))
    columns = (np.exp(value), np.exp(value - ends), np.exp(value + ends))
    return SensitivityCurve("one", np.append(0.0, levels), *columns, 20, "production")


@given(st.lists(st.floats(-0.2, 1.2), min_size=1, max_size=8), st.floats(1e-3, 0.5))
def test_a_curve_stays_one(log_slowdown, half):
    measured = curve(np.array(log_slowdown), half, np.arange(1.0, len(log_slowdown) + 1))
    found = smoothed(measured)
    assert found.levels.tolist() == measured.levels.tolist()
    assert (found.program, found.n, found.source) == ("one", 20, "production")
    assert found.slowdown[0] == found.low[0] == found.high[0] == 1
    assert np.isfinite(found.slowdown).all() and (found.low <= found.slowdown).all()


def test_precise_measurements_are_kept():
    for shape in SHAPES.values():
        measured = curve(shape(LEVELS), 1e-3)
        assert smoothed(measured).slowdown == pytest.approx(measured.slowdown, rel=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("half", [0.05, 0.15])
def test_errors_and_intervals(shape, half):
    rng, truth = np.random.default_rng(1), SHAPES[shape](LEVELS)
    errors, raw, inside, widths = [], [], [], []
    for _ in range(200):
        seen = truth + half / 1.96 * rng.standard_normal(len(LEVELS))
        found = smoothed(curve(seen, half))
        errors.append(np.abs(np.log(found.slowdown[1:]) - truth).mean())
        raw.append(np.abs(seen - truth).mean())
        inside.append((np.log(found.low[1:]) <= truth) & (truth <= np.log(found.high[1:])))
        widths.append(np.log(found.high[1:] / found.low[1:]).mean() / 2)
    most = {"flat": 0.75, "line": 0.75, "step": 1.25}.get(shape, 1.1)
    assert np.mean(errors) < most * np.mean(raw)
    assert np.mean(inside) > (0.8 if shape == "step" else 0.86) and np.mean(widths) <= 1.01 * half


def test_what_all_levels_share_is_not_averaged_away():
    measured = curve(SHAPES["line"](LEVELS), 0.1)
    apart, shared = smoothed(measured), smoothed(measured, common=0.09 / 1.96)
    assert np.log(shared.high[1] / shared.low[1]) > np.log(apart.high[1] / apart.low[1])


def test_imprecise_level_is_interpolated():
    half = np.array([0.03, 0.03, 1.0, 0.03])
    seen = SHAPES["line"](LEVELS) + np.array([0, 0, 0.8, 0])
    found = smoothed(curve(seen, half))
    assert found.slowdown[3] == pytest.approx(1.3, rel=0.03)
    assert np.log(found.high[3] / found.low[3]) / 2 < 0.1
