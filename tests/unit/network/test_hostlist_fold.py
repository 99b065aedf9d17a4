"""Names of nodes folded into a hostlist are the same names when it is read."""

import pytest
from hypothesis import given, strategies as st

from mpicoloc.network.topology.hostlist import expand, fold


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n3", "n1", "n2"], "n[3,1-2]"),
        (["a08", "a09", "a10", "a12"], "a[08-10,12]"),
        (["n9", "n10", "m10"], "n[9-10],m10"),
        (["n09", "n9", "n010"], "n[09,9,010]"),
        (["login", "login2", "login", "0", "1"], "login,login2,login,[0-1]"),
        (["rack1-ib", "rack2-ib"], "rack1-ib,rack2-ib"),
    ],
)
def test_numbers_that_follow_each_other_are_ranges(names, text):
    assert fold(names) == text
    assert expand(text, "test") == names


@given(st.lists(st.from_regex(r"[a-z]{0,2}[0-9]{0,3}[a-z]?|[a-z][0-9]{1,3}", fullmatch=True).filter(bool)))
def test_what_is_folded_is_what_is_read(names):
    assert [name for name in expand(fold(names), "test") if name] == names if names else fold(names) == ""
