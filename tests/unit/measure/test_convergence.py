"""The slowdown as shutters come in ends where the profile's does, and settles."""

from dataclasses import replace

import numpy as np
import pytest
import sample

from mpicoloc.measure import burst
from mpicoloc.measure.convergence import running_slowdowns


def test_all_groups_give_what_the_profile_has():
    tables = sample.profile().tables
    n_windows, window_s = burst.valid_windows(tables["shutters"])
    cycles = burst.burst_cycles(tables["cycles"])
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


def test_without_a_slowdown_there_is_nothing():
    assert running_slowdowns(sample.profile(n_shutters=2), rng=np.random.default_rng(0)) == []
    assert running_slowdowns(sample.profile(shared_s=0.0), rng=np.random.default_rng(0)) == []
    loop = replace(sample.profile().interference.slowdown, method="loop")  # of a meter that there was
    of_loop = replace(sample.profile(), interference=replace(sample.profile().interference, slowdown=loop))
    assert running_slowdowns(of_loop, rng=np.random.default_rng(0)) == [loop]
    none = replace(sample.profile(), interference=replace(sample.profile().interference, slowdown=None))
    assert running_slowdowns(none, rng=np.random.default_rng(0)) == []
