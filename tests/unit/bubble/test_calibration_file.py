"""Calibrations in files: what is written is read, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpicoloc.bubble import calibrate
from mpicoloc.bubble.calibration import BubbleSetting, Calibration
from mpicoloc.core.bubbles import LEVELS, SensitivityCurve
from mpicoloc.errors import DataError, EnvironmentFault, UsageError

SIZES = st.lists(st.integers(1, 2**40), min_size=8, max_size=8)
RATES = st.lists(st.floats(0, 1e12), min_size=9, max_size=9)


def calibration_of(sizes=range(1, 9), rates=(1e7,) * 9, gains=(0.1,) * 8, model="AMD EPYC", n_cpus=2):
    slowdown = np.concatenate([[1.0], 1 + np.cumsum(gains)])
    ends = np.where(np.arange(9) > 0, 0.01, 0.0)
    curve = SensitivityCurve("the probe", LEVELS, slowdown, slowdown - ends, slowdown + ends, 99)
    settings = tuple(BubbleSetting(size, rate) for size, rate in zip([0, *sizes], rates, strict=True))
    return Calibration(model, n_cpus, 1, settings, BubbleSetting(24 << 20, 0.0), 1.5e8, curve)


def same(one, other):
    curves = [(c.curve.slowdown.tolist(), c.curve.low.tolist(), c.curve.high.tolist()) for c in (one, other)]
    facts = [
        (c.cpu_model, c.n_cpus, c.n_bubble_cpus, c.settings, c.probe, c.probe_alone_lines_per_s, c.curve.n)
        for c in (one, other)
    ]
    return curves[0] == curves[1] and facts[0] == facts[1]


@given(sizes=SIZES, rates=RATES, gains=st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_what_is_written_is_read(sizes, rates, gains):
    one = calibration_of(sizes, rates, gains)
    assert same(one, calibrate.parse(calibrate.as_text(one), "file"))


def test_each_kind_of_machine_has_its_file_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, n_cpus = calibrate.this_machine()
    with pytest.raises(EnvironmentFault, match="not calibrated for this machine"):
        calibrate.read_file()
    one = calibration_of(model=model, n_cpus=n_cpus)
    calibrate.write_file(one, calibrate.default_path())
    assert same(calibrate.read_file(), one)
    assert [path.suffix for path in (tmp_path / "mpicoloc" / "bubbles").iterdir()] == [".txt"]


def test_a_file_of_another_machine_is_refused(tmp_path):
    path = str(tmp_path / "other.txt")
    calibrate.write_file(calibration_of(model="another", n_cpus=3), path)
    with pytest.raises(DataError, match="for another machine"):
        calibrate.read_file(path)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        calibrate.read_file(str(tmp_path / "nowhere.txt"))
    with pytest.raises(DataError, match="is not a calibration of bubbles"):
        calibrate.parse("", "file")
    whole = calibrate.as_text(calibration_of())
    lines = whole.splitlines()
    for i in range(1, len(lines)):
        if lines[i].startswith("#"):
            continue
        without = "\n".join(lines[:i] + lines[i + 1 :])
        with pytest.raises(DataError, match="damaged"):
            calibrate.parse(without, "file")


@given(st.text(max_size=200))
def test_any_text_is_a_calibration_or_refused(text):
    with pytest.raises(DataError):
        calibrate.parse(f"{calibrate.FIRST_LINE}\n{text}", "file")


@given(st.lists(st.floats(0.9, 3), min_size=12, max_size=12))
def test_levels_lie_in_order_on_the_path(slowdown):
    positions = np.arange(1, 13) / 12
    found = calibrate.positions_of_levels(positions, np.array(slowdown))
    assert len(found) == 8 and np.all(np.diff(found) >= 0)
    assert found[0] > 0 and found[-1] <= 1 + 1e-9
    sizes = [calibrate.path(position, 64 << 20, 1e8).working_set_bytes for position in found]
    assert sizes == sorted(sizes) and sizes[-1] <= 64 << 20


def test_levels_slow_the_probe_evenly():
    positions = np.arange(1, 13) / 12
    slowdown = 1 + 0.9 * positions**3
    found = calibrate.positions_of_levels(positions, slowdown)
    at = np.interp(found, np.concatenate([[0], positions]), np.concatenate([[1], slowdown]))
    assert at == pytest.approx(1 + 0.9 * np.arange(1, 9) / 8, abs=0.01)


@pytest.mark.parametrize("slowdown", [[0.99] * 12, [1.002] * 12, [1.01, 0.99, 1.02] * 4])
def test_levels_lie_evenly_on_a_machine_without_shared_memory(slowdown):
    found = calibrate.positions_of_levels(np.arange(1, 13) / 12, np.array(slowdown))
    assert found == pytest.approx(np.arange(1, 9) / 8)


@pytest.mark.parametrize(("gain", "is_told"), [(0.02, True), (-0.01, True), (0.04, False)])
def test_a_small_gain_is_noted(gain, is_told, capsys):
    calibrate._note_small_gain(gain)
    assert ("slows the probe by" in capsys.readouterr().err) == is_told
