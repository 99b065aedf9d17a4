"""Lists of processors, as Linux writes them."""

import pytest
from hypothesis import given, strategies as st

from mpicoloc.core.number_lists import MAX_CPUS, format_cpus, parse_cpus


@given(st.frozensets(st.integers(0, MAX_CPUS - 1), max_size=50))
def test_a_list_tells_what_was_written(cpus):
    assert parse_cpus(format_cpus(cpus)) == cpus


def test_neighbours_are_one_range():
    assert format_cpus([8, 1, 0, 2, 3, 1]) == "0-3,8"


@pytest.mark.parametrize("text", ["", "-", "0-", "0-1-2", "a", "0,,1", "²", "0-99999", "0-9" * 99, "+1"])
def test_what_is_no_list_has_no_processors(text):
    assert parse_cpus(text) == frozenset()
