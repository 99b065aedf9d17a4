"""Processor time of bursts, of which the wall time is known."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpicoloc.replay.programs.recorded import processor_ns, running_frac


def test_bursts_of_a_rank_that_had_its_processor_stay():
    bursts = np.array([5, 100, 90_000_000])
    assert processor_ns(bursts, np.zeros(3), 1.0).tolist() == bursts.tolist()


def test_only_the_burst_that_was_interrupted_is_cut():
    bursts = np.array([100_000, 110_000, 90_000, 150_000, 8_000_000, 100_000])
    assert processor_ns(bursts, np.zeros(6), 0.3).tolist() == [
        100_000, 110_000, 90_000, 150_000, 100_000, 100_000
    ]  # fmt: skip


def test_bursts_of_other_calls_are_another_kind():
    bursts = np.array([1000, 1000, 1_500_000, 1_500_000])
    assert processor_ns(bursts, np.array([1, 1, 2, 2]), 0.3).tolist() == bursts.tolist()


def test_bursts_longer_than_a_turn_were_all_interrupted():
    bursts = np.array([32_000_000, 32_000_000, 64_000_000])
    assert processor_ns(bursts, np.array([1, 1, 2]), 1 / 32).tolist() == [1_000_000, 1_000_000, 2_000_000]


@given(st.integers(0, 10_000), st.floats(0.1, 0.9))
def test_turns_of_others_are_found_among_short_bursts(seed, busy):
    """Bursts of 50 us, of which each is interrupted with the probability that a turn of 3 ms gives it."""
    rng = np.random.default_rng(seed)
    true = rng.normal(50_000, 2000, 400).astype(np.int64)
    is_hit = rng.random(400) < busy * 50_000 / 3_000_000
    found = processor_ns(true + is_hit * 3_000_000, np.zeros(400), 1 - busy)
    assert found.sum() == pytest.approx(true.sum(), rel=0.01)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 3)), min_size=1, max_size=60),
    st.floats(0.01, 1.0),
)
def test_no_burst_grows(bursts, running):
    wall, kind = np.array(bursts).T
    found = processor_ns(wall, kind, running)
    assert ((found >= 0) & (found <= wall)).all()


@pytest.mark.parametrize(
    ("cpu_s", "delay_s", "frac"), [(1, 3, 0.25), (1, 0, 1), (0, 1, 1), (np.nan, 1, 1), (1, np.nan, 1)]
)
def test_the_part_with_a_processor(cpu_s, delay_s, frac):
    assert running_frac(cpu_s, delay_s) == frac
