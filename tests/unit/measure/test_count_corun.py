"""The pace in co-run, steadied by what MPI calls move; shutters with a crowd of one's own."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loops import Program, simulate

from mpicoloc.measure import count
from mpicoloc.measure.count_corun import MIN_SHUTTERS, steadied
from mpicoloc.measure.count_paces import crowded, paces

TRUTH = 2.0


def run_by_turns(rng, n_shutters=24, luck=0.4, has_bytes=True):
    """A job that takes turns: each window before a shutter has its luck, and the bytes have it too."""
    run = simulate(rng, Program(slowdown=(TRUTH,), noise=0.01, n_shutters=n_shutters))
    shutters, counts = run.shutters.copy(), run.counts.copy()
    pace = rng.gamma(1 / luck**2, luck**2, n_shutters)
    row = np.searchsorted(shutters["t0_ns"], counts["t0_ns"])
    for when in ("earlier", "before"):
        counts[f"n_{when}"] = np.round(counts[f"n_{when}"] * pace[row])
    if has_bytes:
        shutters["since_ns"] = 10**9
        shutters["since_bytes"] = 10**9
        shutters["before_bytes"] = shutters["before_window_ns"] * pace
    return shutters, counts


def errors(rng, **options):
    """Of the logarithm, and half-widths, of runs that have an estimate."""
    found = [count.slowdown(*run_by_turns(rng, **options)).slowdown for _ in range(30)]
    found = [one for one in found if one is not None]
    return np.array([[np.log(one.value / TRUTH), count.half_width(one)] for one in found])


def test_bytes_of_all_the_time_take_the_luck_of_windows_out():
    with_bytes, without = (errors(np.random.default_rng(3), has_bytes=has) for has in (True, False))
    assert with_bytes[:, 0].std() < without[:, 0].std() / 3
    assert np.median(with_bytes[:, 1]) < np.median(without[:, 1]) / 2
    assert abs(with_bytes[:, 0].mean()) < 0.01
    assert (np.abs(with_bytes[:, 0]) < with_bytes[:, 1]).mean() > 0.9


def test_bytes_that_do_not_go_with_the_pace_change_nothing():
    rng = np.random.default_rng(4)
    shutters, counts = run_by_turns(rng)
    shutters["before_bytes"] = rng.permutation(shutters["before_bytes"])
    found = paces(shutters, counts)
    assert (steadied(found).before == found.before).all()


def test_few_shutters_or_none_with_known_bytes_change_nothing():
    for n_shutters, has_bytes in ((MIN_SHUTTERS - 1, True), (24, False)):
        found = paces(*run_by_turns(np.random.default_rng(5), n_shutters, has_bytes=has_bytes))
        assert (steadied(found).before == found.before).all()


@given(st.floats(0.2, 5.0), st.floats(0.1, 2.0), st.integers(0, 2**32))
def test_the_mean_is_that_of_all_the_time(pace, factor, seed):
    """Windows on a line over the bytes get the pace that it has at the mean of all time."""
    rng = np.random.default_rng(seed)
    base = paces(*run_by_turns(np.random.default_rng(6)))
    bytes_per_s = rng.uniform(0.5, 1.5, len(base))
    moved = np.stack([bytes_per_s, np.full(len(base), factor)], axis=1)
    before = pace * (0.2 + bytes_per_s)
    found = replace(
        base, before=before, moved=moved, since_s=np.ones(len(base)), stratum=np.ones(len(base), int)
    )
    assert steadied(found).before == pytest.approx(np.full(len(base), pace * (0.2 + factor)))


def test_shutters_with_a_crowd_of_ones_own_do_not_count_but_the_windows_before_them_do():
    rng = np.random.default_rng(7)
    shutters, counts = run_by_turns(rng, luck=0.05)
    slow = np.arange(len(shutters)) % 5 == 0
    row = np.searchsorted(shutters["t0_ns"], counts["t0_ns"])
    counts["n_during"] = np.where(slow[row], counts["n_during"] // 2, counts["n_during"])
    mixed = count.slowdown(shutters, counts).slowdown
    shutters["waited_frac"] = np.where(slow, 0.5, 0.01)
    found = count.slowdown(shutters, counts).slowdown
    assert found.n == (~slow).sum()
    assert mixed.value < 0.95 * TRUTH
    assert found.value == pytest.approx(TRUTH, rel=0.03)


def test_a_job_with_more_threads_than_processors_waits_in_all_shutters():
    shutters, counts = run_by_turns(np.random.default_rng(8))
    shutters["waited_frac"] = 0.5
    assert not crowded(shutters).any()
    assert count.slowdown(shutters, counts).slowdown.n == len(shutters)
