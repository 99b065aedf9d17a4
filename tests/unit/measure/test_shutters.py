import pytest
from hypothesis import given, strategies as st
from shutter_cost import paused_frac, stretch

from mpicoloc.errors import UsageError


@given(n=st.integers(1, 64), duration_s=st.floats(1e-4, 0.4), gap_s=st.floats(0.01, 10))
def test_the_cost_is_that_of_the_paper(n, duration_s, gap_s):
    """Eq. 9 and 10 in the paper's own terms: P is the gap, and a shutter takes three windows of S."""
    period_s = gap_s + 3 * duration_s
    assert paused_frac(duration_s, period_s, n) == pytest.approx(
        (n - 1) * duration_s / (n * (3 * duration_s + gap_s))
    )
    eq_10 = n * (3 * duration_s + gap_s) / (2 * n * duration_s + n * gap_s + duration_s)
    assert stretch(duration_s, period_s, n) == pytest.approx(eq_10)


def test_a_job_alone_pays_nothing_and_two_pay_half_each():
    assert paused_frac(0.05, 0.2, 1) == 0 and stretch(0.05, 0.2, 1) == 1
    assert paused_frac(0.05, 0.2, 2) == pytest.approx(0.125)


@pytest.mark.parametrize("wrong", [(0.3, 0.2, 2), (0.1, 0.2, 0), (-0.1, 0.2, 2), (0.0, 0.0, 2)])
def test_shutters_that_cannot_be(wrong):
    with pytest.raises(UsageError, match="cannot have shutters"):
        paused_frac(*wrong)
