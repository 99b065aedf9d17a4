"""Clocks that drift, corrected by the messages between their nodes."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from exports import ring_of

from mpicoloc.profile.frames import open_profile
from mpicoloc.trace import reader
from mpicoloc.trace.clocks import Clock, align, in_order

S = 10**9
LATENCY_NS = 2000


def wander(rng, n_nodes, drift, bend):
    """Each node's clock as a function of true time: offset, drift, and a drift that changes."""
    knots = np.linspace(0, 10 * S, 21)
    found = [lambda t: t.astype(np.int64)]
    for _ in range(n_nodes - 1):
        rate = rng.uniform(-drift, drift) + bend * rng.standard_normal(20).cumsum()
        values = rng.integers(-5000 * S, 5000 * S) + np.concatenate([[0], (rate * np.diff(knots)).cumsum()])
        found.append(lambda t, values=values: (t + np.interp(t, knots, values)).astype(np.int64))
    return found


def exchange(rng, clocks, n=400, pairs=None):
    """Messages between all nodes at random times, as each end's clock tells."""
    found = {}
    for src in range(len(clocks)):
        for dst in range(len(clocks)):
            if src != dst and (pairs is None or (src, dst) in pairs):
                sent = np.sort(rng.uniform(0, 9.9 * S, n))
                came = sent + LATENCY_NS + rng.exponential(30_000, n)
                found[src, dst] = in_order(clocks[src](sent), clocks[dst](came))
    return found


def guess(clocks, error_ns, rng):
    """Clock offsets as the coordinators measure them at the start, with an error of at most `error_ns`."""
    first = np.zeros(1)
    offsets = [int(clock(first)[0]) + rng.integers(-error_ns, error_ns + 1) for clock in clocks[1:]]
    return [Clock.same(), *(Clock.shifted(offset) for offset in offsets)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("drift", "bend"), [(0.0, 0.0), (5e-5, 0.0), (5e-5, 1e-6), (5e-5, 2e-5)])
def test_no_message_comes_before_it_was_sent(seed, drift, bend):
    rng = np.random.default_rng(seed)
    true = wander(rng, rng.integers(2, 6), drift, bend)
    messages = exchange(rng, true)
    found = align(guess(true, 50_000, rng), messages)
    assert found.n_messages == sum(len(sends) for sends, _ in messages.values())
    assert (found.n_after, found.worst_after_ns) == (0, 0)
    t = np.sort(rng.uniform(0, 10 * S, 3000))
    for clock, own in zip(found.clocks, true, strict=True):
        common = clock.to_common(own(t))
        assert (np.diff(common) >= 0).all()  # no event overtakes another of its node
        if bend == 0:
            assert np.abs(common - t)[100:-100].max() < 20_000
    if drift:
        assert found.n_before > 0 and found.worst_before_ns > 0


def test_clocks_that_agree_stay_as_they_are():
    rng = np.random.default_rng(3)
    true = wander(rng, 3, 0.0, 0.0)
    found = align(guess(true, 0, rng), exchange(rng, true))
    assert (found.n_before, found.n_after) == (0, 0)
    t = np.arange(0, 10 * S, S)
    for clock, own in zip(found.clocks, true, strict=True):
        assert np.abs(clock.to_common(own(t)) - t).max() < 3000


def test_messages_of_one_direction_put_a_clock_forward_only():
    sends, receives = np.array([10, 2000, 5000]), np.array([4, 2500, 4000])
    found = align([Clock.same(), Clock.same()], {(0, 1): (sends, receives)})
    assert (found.n_before, found.worst_before_ns, found.n_after) == (2, 1000, 0)
    assert found.clocks[1].to_common(np.array([0, 4, 5, 2500, 3999, 4000])).tolist() == [
        0, 10, 11, 2506, 4005, 5000,
    ]  # fmt: skip


def test_a_chain_of_nodes_is_put_forward_one_after_another():
    messages = {(i, i + 1): (np.array([100 * i + 50]), np.array([100 * i + 20])) for i in range(4)}
    found = align([Clock.same()] * 5, messages)
    assert found.n_after == 0


def test_what_contradicts_itself_is_told():
    early = np.array([100]), np.array([50])
    found = align([Clock.same()] * 2, {(0, 1): early, (1, 0): early})
    assert found.n_after > 0 and found.worst_after_ns > 0


def test_no_messages_no_change():
    clocks = [Clock.same(), Clock.shifted(5)]
    found = align(clocks, {})
    assert found.clocks == tuple(clocks) and found.n_messages == 0


def test_receives_may_be_missing():
    sends, receives = in_order(np.array([5, 1, 3]), np.array([9, 2]))
    assert (sends.tolist(), receives.tolist()) == ([1, 3], [2, 9])


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A trace of two nodes of which one clock is 4 ms ahead, that counts as large."""
    monkeypatch.setattr(reader, "MIN_EVENTS", 100)
    ring_of(tmp_path / "ring.h5", 4, 50, n_nodes=2, ahead_ns=4_000_000)
    return tmp_path / "ring.h5"


def kept():
    return sorted(Path(os.environ["XDG_CACHE_HOME"], "mpicoloc").glob("clocks-*"))


def test_the_second_time_no_message_is_read(path, monkeypatch):
    first = open_profile(path).trace
    assert first.alignment.n_before > 0 and first.alignment.n_after == 0 and len(kept()) == 1
    monkeypatch.setattr(reader, "_between_nodes", lambda trace: pytest.fail("read"))
    again = open_profile(path).trace
    assert again.alignment == first.alignment and again.clocks == first.clocks
    assert again.frame().equals(first.frame())


def test_another_trace_has_clocks_of_its_own(path, tmp_path):
    first = open_profile(path).trace
    (tmp_path / "other").mkdir()
    ring_of(tmp_path / "other" / "ring.h5", 4, 50, n_nodes=2, ahead_ns=5_000_000)
    assert open_profile(tmp_path / "other" / "ring.h5").trace.clocks != first.clocks and len(kept()) == 2
    assert reader.load(dataclasses.replace(first, clocks=first.clocks[::-1])) is None


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
    monkeypatch.setattr(reader, "MIN_EVENTS", 10_000)
    assert open_profile(path).trace.alignment.n_after == 0 and kept() == []
