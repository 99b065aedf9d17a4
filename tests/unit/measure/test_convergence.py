"""The slowdown as shutters come in ends where the profile's does, and settles."""

from dataclasses import replace

import numpy as np
import pytest
import sample

from mpicoloc.core.tables import table
from mpicoloc.measure import burst
from mpicoloc.measure.convergence import running_slowdowns
from mpicoloc.measure.estimate import burst_cycles, valid_windows
from mpicoloc.profile.merge import complete


def test_all_groups_give_what_the_profile_has():
    tables = sample.profile().tables
    n_windows, window_s = valid_windows(tables["shutters"])
    cycles = burst_cycles(tables["cycles"])
    rng = np.random.default_rng(0)
    whole = burst.matched(cycles, n_windows=n_windows, window_s=window_s, rng=rng).slowdown
    last = burst.running_slowdowns(cycles, n_windows=n_windows, window_s=window_s)[-1]
    assert (last.value, last.n) == (pytest.approx(whole.value), whole.n)


def test_it_settles():
    profile = sample.profile()
    found = running_slowdowns(profile, rng=np.random.default_rng(0))
    assert found[-1] == profile.interference.slowdown and len(found) > 8
    assert [one.n for one in found] == sorted({one.n for one in found})
    widths = [one.high / one.low for one in found]
    assert max(widths[-4:]) < widths[0]
    assert all(one.low <= found[-1].value <= one.high for one in found)


def counted(n_shutters, rng):
    """Shutters in which a place is passed 1.5 times as often as outside."""
    ones = np.ones(n_shutters)
    t0 = np.arange(n_shutters) * 200_000_000
    inside, outside = rng.poisson(60, n_shutters), rng.poisson(40, (2, n_shutters))
    columns = {"t0_ns": t0, "t1_ns": t0 + 3_200_000, "epoch": np.arange(n_shutters), "verdict": ones,
               "entry": ones, "busy_frac": ones, "during_hits": inside, "before_hits": outside[0],
               "after_hits": outside[1]}  # fmt: skip
    columns |= {f"{when}_window_ns": 3_000_000 * ones for when in ("before", "during", "after")}
    return table("shutters", columns)


def test_counts_come_one_by_one():
    tables = sample.tables(meter="loop")
    tables |= {"shutters": counted(200, np.random.default_rng(1)), "cycles": table("cycles")}
    profile = complete(sample.job(), tables, rng=np.random.default_rng(2))
    final = profile.interference.slowdown
    assert final.method == "loop"
    found = running_slowdowns(profile, rng=np.random.default_rng(3))
    assert found[-1] == final and 10 < len(found) <= 41
    assert found[-2].value == pytest.approx(final.value, rel=0.05) and found[-2].n < final.n


def test_without_a_slowdown_there_is_nothing():
    assert running_slowdowns(sample.profile(n_shutters=2), rng=np.random.default_rng(0)) == []
    assert running_slowdowns(sample.profile(shared_s=0.0), rng=np.random.default_rng(0)) == []
    none = replace(sample.profile(), interference=replace(sample.profile().interference, slowdown=None))
    assert running_slowdowns(none, rng=np.random.default_rng(0)) == []
