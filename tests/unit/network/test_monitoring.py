"""Files of Open MPI's own monitoring."""

import pytest
from hypothesis import given, strategies as st

from mpicoloc.errors import DataError
from mpicoloc.network import files

HEAD = "# POINT TO POINT\n"
ONE = HEAD + "E\t0\t1\t80 bytes\t2 msgs sent\t0,0,2\nI\t0\t1\t8 bytes\t1 msgs sent\n# OSC\n"
TWO = HEAD + "E\t1\t2\t7 bytes\t1 msgs sent\t0,1\n# OSC\nS\t1\t0\t5 bytes\t1 msgs sent\n"
TWO += "R\t1\t0\t9 bytes\t3 msgs sent\n"


def rows(traffic):
    columns = (traffic.src, traffic.dst, traffic.n_bytes, traffic.n_messages)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_messages_of_all_kinds_add_up():
    found = files.read([("a", ONE), ("b", TWO + "# COLLECTIVES\nC\t1\t0\t99 bytes\t1 msgs sent\n")], 3)
    assert rows(found) == [(0, 1, 97, 6), (1, 0, 5, 1), (1, 2, 7, 1)]


def test_the_rank_after_the_jobs_is_the_coordinator():
    assert rows(files.read([("a", ONE), ("b", TWO)], 2)) == [(0, 1, 97, 6), (1, 0, 5, 1)]
    with pytest.raises(DataError, match="rank 2, but the job has 1"):
        files.read([("b", TWO)], 1)


def test_other_files_are_refused():
    with pytest.raises(DataError, match="x was not written by"):
        files.read([("x", "E\t0\t1\t80 bytes")], 2)
    with pytest.raises(DataError, match="x, line 2: expected"):
        files.read([("x", HEAD + "E\t0\tone\t80 bytes")], 2)


@given(st.text())
def test_any_text_is_read_or_refused(text):
    try:
        assert files.read([("x", HEAD + text)], 5).n_ranks == 5
    except DataError as error:
        assert "x, line" in str(error) or "the job has 5" in str(error)
