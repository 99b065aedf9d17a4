import pytest
from hypothesis import example, given, strategies as st

from mpicoloc import config
from mpicoloc.bill.price import Tariff, bill, price, slowdown_of_run, tariff
from mpicoloc.bill.pricings import PRICINGS, fair_rate, register, runtime_rate
from mpicoloc.core.profile import Estimate
from mpicoloc.errors import DataError, UsageError


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


@given(st.floats(0.5, 20), st.integers(1, 10**5), st.floats(0, 1e6), st.floats(0, 1e3))
def test_interference_never_costs_the_user_more(value, n_cores, wall_s, rate_su):
    bill = price(slowdown(value, value * 0.9, value * 1.1), n_cores=n_cores, wall_s=wall_s, rate_su=rate_su)
    assert bill.fair_low_su <= bill.fair_su <= bill.fair_high_su
    assert bill.fair_su <= bill.runtime_su * (1 + 1e-12)
    assert 0 <= bill.discount_frac <= 1
    if value <= 1:
        assert bill.discount_frac == 0


@given(
    ends=st.lists(st.floats(0.2, 50), min_size=3, max_size=3).map(sorted),
    measured_s=st.floats(0, 1e6),
    wall_s=st.floats(0, 1e6),
)
def test_the_rest_of_a_run_counts_as_not_slowed_down(ends, measured_s, wall_s):
    low, value, high = ends
    measured = slowdown(value, low, high)
    found = slowdown_of_run(measured, measured_s, wall_s)
    assert found.low <= found.value <= found.high
    for part, end in ((found.low, low), (found.value, value), (found.high, high)):
        assert min(1.0, end) * (1 - 1e-9) <= part <= max(1.0, end) * (1 + 1e-9)
    if measured_s >= wall_s:
        assert found == measured
    else:
        alone_s = wall_s - measured_s + measured_s / value
        assert wall_s / found.value == pytest.approx(alone_s)
    assert slowdown_of_run(None, measured_s, wall_s) is None


def test_a_run_without_a_measured_part_costs_what_it_costs_alone():
    found = bill(slowdown_of_run(slowdown(3.0), 0.0, 60.0), n_cores=60, wall_s=60.0, tariff=tariff(1.0))
    assert found.charged_su == pytest.approx(1.0)
    with pytest.raises(DataError, match="above 0"):
        slowdown_of_run(slowdown(1.0, -1.0), 1.0, 2.0)


PROPORTIONAL = Tariff(1.0, "proportional", lambda rate_su, t_solo_s, t_corun_s: rate_su)


def test_the_prices_of_figure_12():
    """Relative to the run alone: by run time T_co/T_solo, by the oracle T_solo/T_co."""
    found = bill(slowdown(1.6, 1.5, 1.8), n_cores=16, wall_s=3600.0, tariff=tariff(2.0), true_slowdown=1.5)
    assert found.runtime.value == 32.0
    assert found.solo.value == pytest.approx(32.0 / 1.5)
    assert found.oracle.value == pytest.approx(32.0 / 1.5**2)
    ends = (found.fair.low, found.fair.value, found.fair.high)
    assert ends == pytest.approx((32.0 / 1.8**2, 32.0 / 1.6**2, 32.0 / 1.5**2))
    assert found.relative["runtime"].value == pytest.approx(1.5)
    assert found.relative["oracle"].value == pytest.approx(1 / 1.5)
    assert found.relative["fair"].value == pytest.approx(1.5 / 1.6**2)
    assert found.charged_su == found.fair.value


def test_what_is_not_known_is_none():
    found = bill(None, n_cores=1, wall_s=3600.0, tariff=tariff(1.0))
    assert (found.fair, found.oracle, found.solo) == (None, None, None)
    assert set(found.relative.values()) == {None}
    assert found.charged_su == found.runtime.value == 1.0
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="true slowdown"):
            bill(None, n_cores=1, wall_s=1.0, tariff=tariff(1.0), true_slowdown=wrong)
    with pytest.raises(DataError, match="above 0"):
        bill(slowdown(1.0, 0.0, 2.0), n_cores=1, wall_s=1.0, tariff=tariff(1.0))


@given(
    ends=st.lists(st.floats(0, 1.7e308, exclude_min=True), min_size=3, max_size=3).map(sorted),
    wall_s=st.one_of(st.sampled_from([0.0, 1e-20, 1e300]), st.floats(0, 1.7e308)),
    true_slowdown=st.one_of(st.none(), st.just(1e308), st.floats(0, 1.7e308, exclude_min=True)),
    name=st.sampled_from(["fair", "runtime"]),
)
@example(ends=[1.0, 1.0, 1e308], wall_s=1e-20, true_slowdown=None, name="fair")
@example(ends=[1.0, 1.0, 1.0], wall_s=1e-20, true_slowdown=1e308, name="fair")
def test_any_numbers_have_a_price_or_are_refused(ends, wall_s, true_slowdown, name):
    """A profile may say anything."""
    low, value, high = ends
    try:
        bill_of = {"n_cores": 2, "wall_s": wall_s, "true_slowdown": true_slowdown}
        found = bill(slowdown(value, low, high), tariff=tariff(1.0, name), **bill_of)
    except (DataError, UsageError):
        return
    assert 0 <= found.charged_su < float("inf")


def test_no_price_over_that_of_the_run_alone_is_lost_in_rounding():
    """Even where the run alone costs less than the smallest float."""
    found = bill(slowdown(1.0), n_cores=1, wall_s=3600.0, tariff=tariff(1e-20), true_slowdown=1e305)
    assert found.solo.value == 0.0
    assert found.relative["fair"].value == pytest.approx(1e305)


FUNCTIONS = {
    "fair": fair_rate,
    "runtime": runtime_rate,
    "proportional": PROPORTIONAL.function,
    "bounded": lambda rate_su, t_solo_s, t_corun_s: rate_su * max(0.5, t_solo_s / t_corun_s),
    "square": lambda rate_su, t_solo_s, t_corun_s: rate_su * (t_solo_s / t_corun_s) ** 2,
}


@given(
    name=st.sampled_from(sorted(FUNCTIONS)),
    ends=st.tuples(st.floats(0.5, 10), st.floats(0.5, 10), st.floats(0.5, 10)).map(sorted),
    where=st.floats(0, 1),
    wall_s=st.floats(1e-3, 1e6),
    true_slowdown=st.floats(0.5, 10),
)
def test_the_price_of_every_slowdown_inside_the_interval_is_inside_its_interval(
    name, ends, where, wall_s, true_slowdown
):
    low, value, high = ends
    rates = Tariff(3.0, name, FUNCTIONS[name])
    found = bill(
        slowdown(value, low, high), n_cores=7, wall_s=wall_s, tariff=rates, true_slowdown=true_slowdown
    )
    inside = min(max(low + where * (high - low), low), high)
    slack = 1e-9 * found.runtime.value
    assert found.fair.low - slack <= rates.shared_su(7, wall_s, inside) <= found.fair.high + slack
    if name in ("fair", "proportional", "bounded", "square"):
        assert found.fair.high <= found.runtime.value + slack  # interference costs nobody more
    if low <= true_slowdown <= high:
        assert found.fair.low - slack <= found.oracle.value <= found.fair.high + slack


@given(height=st.floats(0, 10), at=st.floats(1.2, 2.8))
def test_a_function_that_neither_rises_nor_falls_has_an_interval_too(height, at):
    """A bump in the middle, which neither end shows, as a tariff with steps may have."""

    def bump(rate_su, t_solo_s, t_corun_s):
        return rate_su + (height if abs(t_corun_s / t_solo_s - at) < 0.1 else 0.0)

    found = bill(slowdown(1.1, 1.0, 3.0), n_cores=1, wall_s=3600.0, tariff=Tariff(1.0, "bump", bump))
    assert found.fair.high >= (1 + height) / (at + 0.1)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return -1.0", "must return a number >= 0, got -1"),
        ("return float('nan')", "got nan"),
        ("return 'much'", "failed (ValueError"),
        ("return 1 / 0", "failed (ZeroDivisionError"),
    ],
)
def test_a_function_that_fails_is_named(tmp_path, body, words):
    (tmp_path / "site.py").write_text(f"def peak(rate_su, t_solo_s, t_corun_s):\n    {body}\n")
    name = f"{tmp_path}/site.py:peak"
    with pytest.raises(UsageError) as caught:
        price(None, n_cores=1, wall_s=1.0, rate_su=1.0, pricing=name)
    assert words in str(caught.value) and name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:f", "cannot be loaded (ModuleNotFoundError"),
        ("math:no_such_function", "cannot be loaded (AttributeError"),
        ("math:pi", "is not a function but of type float"),
        ("/no/such/file.py:f", "cannot be loaded (FileNotFoundError"),
        ("math:", "unknown pricing"),
    ],
)
def test_a_function_that_cannot_be_found_is_named(name, words):
    with pytest.raises(UsageError) as caught:
        tariff(1.0, name)
    assert words in str(caught.value) and name in str(caught.value)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package of a site, with an entry point, as pip leaves it."""
    info = tmp_path / "site_prices-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: site-prices\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mpicoloc.pricings]\nhalf = site_prices:half\n")
    code = "def half(rate_su, t_solo_s, t_corun_s):\n    return rate_su / 2\n"
    (tmp_path / "site_prices.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["half", "site_prices:half"])
def test_a_sites_package_brings_its_own(installed, name):
    assert config.get("price.pricing", {"MPICOLOC_PRICING": name}) == name
    assert price(None, n_cores=1, wall_s=3600.0, rate_su=1.0, pricing=name).fair_su == 0.5
    with pytest.raises(UsageError, match="fair, half, runtime"):
        tariff(1.0, "third")
