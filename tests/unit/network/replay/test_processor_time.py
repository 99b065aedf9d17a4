"""Processor time of bursts, of which the wall time is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoloc.network.replay.programs.processor_time import processor_ns, running_frac


def test_bursts_of_a_rank_that_had_its_processor_stay():
    bursts = np.array([5, 100, 7])
    assert processor_ns(bursts, np.zeros(3), 1.0).tolist() == bursts.tolist()


def test_only_the_burst_that_was_interrupted_is_cut():
    bursts = np.array([1000, 1010, 990, 1000, 9000, 1000])
    found = processor_ns(bursts, np.zeros(6), 6000 / 14000)
    assert found[4] == pytest.approx(1000, rel=0.05)
    assert np.allclose(np.delete(found, 4), np.delete(bursts, 4), rtol=0.03)


def test_where_all_were_interrupted_all_are_cut():
    bursts = np.array([32_000, 32_000, 64_000])
    assert processor_ns(bursts, np.array([1, 1, 2]), 1 / 32).tolist() == [1000, 1000, 2000]


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 3)), min_size=1, max_size=60),
    st.floats(0.01, 1.0),
)
def test_the_sum_is_right_and_no_burst_grows(bursts, running):
    wall, kind = np.array(bursts).T
    found = processor_ns(wall, kind, running)
    assert ((found >= 0) & (found <= wall)).all()
    if running < 0.98:
        assert found.sum() == pytest.approx(running * wall.sum(), abs=len(wall) + 1)


@pytest.mark.parametrize(
    ("cpu_s", "delay_s", "frac"), [(1, 3, 0.25), (1, 0, 1), (0, 1, 1), (np.nan, 1, 1), (1, np.nan, 1)]
)
def test_the_part_with_a_processor(cpu_s, delay_s, frac):
    assert running_frac(cpu_s, delay_s) == frac
