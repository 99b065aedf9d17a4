"""Clocks of a large trace are found once."""

import dataclasses
import os
from pathlib import Path

import pytest
from exports import ring_of

from mpicoloc.profile.frames import open_profile
from mpicoloc.trace import clock_correction


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A trace of two nodes of which one clock is 4 ms ahead, that counts as large."""
    monkeypatch.setattr(clock_correction, "MIN_EVENTS", 100)
    ring_of(tmp_path / "ring.h5", 4, 50, n_nodes=2, ahead_ns=4_000_000)
    return tmp_path / "ring.h5"


def kept():
    return sorted(Path(os.environ["XDG_CACHE_HOME"], "mpicoloc").glob("clocks-*"))


def test_the_second_time_no_message_is_read(path, monkeypatch):
    first = open_profile(path).trace
    assert first.alignment.n_before > 0 and first.alignment.n_after == 0 and len(kept()) == 1
    monkeypatch.setattr(clock_correction, "_between_nodes", lambda trace: pytest.fail("read"))
    again = open_profile(path).trace
    assert again.alignment == first.alignment and again.clocks == first.clocks
    assert again.frame().equals(first.frame())


def test_another_trace_has_clocks_of_its_own(path, tmp_path):
    first = open_profile(path).trace
    (tmp_path / "other").mkdir()
    ring_of(tmp_path / "other" / "ring.h5", 4, 50, n_nodes=2, ahead_ns=5_000_000)
    assert open_profile(tmp_path / "other" / "ring.h5").trace.clocks != first.clocks and len(kept()) == 2
    assert clock_correction.load(dataclasses.replace(first, clocks=first.clocks[::-1])) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"clocks": 1}', '{"clocks": [{"x": [1]}]}', "{" * 9999])
def test_what_is_damaged_is_found_again(path, content):
    first = open_profile(path).trace
    kept()[0].write_text(content)
    assert open_profile(path).trace.alignment == first.alignment


def test_no_place_and_a_small_trace_keep_nothing(path, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with monkeypatch.context() as place:
        place.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        assert open_profile(path).trace.alignment.n_after == 0
    monkeypatch.setattr(clock_correction, "MIN_EVENTS", 10_000)
    assert open_profile(path).trace.alignment.n_after == 0 and kept() == []
