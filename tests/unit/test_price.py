import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpicoloc.core.estimate import Estimate
from mpicoloc.errors import UsageError
from mpicoloc.model.price import price
from mpicoloc.pricings import PRICINGS, register


def slowdown(value, low=None, high=None):
    return Estimate(value, value if low is None else low, value if high is None else high, 100, "1", "test")


def test_equation_1_and_4():
    bill = price(slowdown(2.0, 1.6, 2.5), n_cores=4, wall_s=1800.0, rate_su=3.0)
    assert bill.runtime_su == pytest.approx(3.0 * 4 * 0.5)
    # Eq. 4: L * T_solo/T_co * C * T_solo with T_solo = T_co / 2
    assert bill.fair_su == pytest.approx(3.0 * 0.5 * 4 * 0.25)
    assert bill.discount_frac == pytest.approx(0.75)
    assert bill.fair_low_su == pytest.approx(6.0 / 2.5**2)
    assert bill.fair_high_su == pytest.approx(6.0 / 1.6**2)


def test_runtime_pricing_gives_no_discount_and_an_unknown_one_is_named():
    assert price(slowdown(2.0), n_cores=4, wall_s=1800.0, rate_su=3.0, pricing="runtime").discount_frac == 0.0
    with pytest.raises(UsageError, match=r"unknown pricing 'free'.*fair, runtime"):
        price(None, n_cores=1, wall_s=1.0, rate_su=1.0, pricing="free")
    with pytest.raises(UsageError, match="rate_su"):
        price(None, n_cores=1, wall_s=1.0, rate_su=-1.0)


def test_a_site_can_register_its_own():
    register("half", lambda rate_su, t_solo_s, t_corun_s: rate_su / 2)
    try:
        bill = price(None, n_cores=1, wall_s=3600.0, rate_su=1.0, pricing="half")
        assert (bill.fair_su, bill.discount_frac, bill.pricing) == (0.5, 0.5, "half")
    finally:
        del PRICINGS["half"]


@given(
    value=st.floats(0.5, 20),
    n_cores=st.integers(1, 10**5),
    wall_s=st.floats(0, 1e6),
    rate_su=st.floats(0, 1e3),
)
def test_interference_never_costs_the_user_more(value, n_cores, wall_s, rate_su):
    bill = price(slowdown(value, value * 0.9, value * 1.1), n_cores=n_cores, wall_s=wall_s, rate_su=rate_su)
    assert bill.fair_low_su <= bill.fair_su <= bill.fair_high_su
    assert bill.fair_su <= bill.runtime_su * (1 + 1e-12)
    assert 0 <= bill.discount_frac <= 1
    if value <= 1:
        assert bill.discount_frac == 0
