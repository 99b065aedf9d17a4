"""The pace in co-run, steadied by waits for processors; shutters with a crowd of one's own."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from loops import Program, simulate

from mpicoloc.core.profile import BEFORE_WINDOWS
from mpicoloc.measure import count
from mpicoloc.measure.count import MIN_CORUN_SHUTTERS, crowded, paces, steadied

ALWAYS = 2.0
SINCE = 3
"""Time between the windows of two shutters, in windows."""


def run_by_turns(rng, n_shutters=24, luck=0.4, has_waits=True):
    """A job that takes turns: each window before a shutter has its luck, and the ranks wait accordingly.

    Returns its tables, and the slowdown of this run with the luck that it had.
    """
    program = Program(slowdown=(ALWAYS,), noise=0.01, n_shutters=n_shutters)
    run = simulate(rng, program)
    shutters, counts = run.shutters.copy(), run.counts.copy()
    paces = rng.gamma(1 / luck**2, luck**2, (n_shutters, 1 + SINCE))
    row = np.searchsorted(shutters["t0_ns"], counts["t0_ns"])
    for when in BEFORE_WINDOWS:
        counts[f"n_{when}"] = np.round(counts[f"n_{when}"] * paces[row, 0])
    if has_waits:
        window_ns = shutters["before_window_ns"].astype(float)
        shutters["since_ns"] = SINCE * window_ns
        waited = np.maximum(1 - 0.2 * paces, 0)
        shutters["since_waited_ns"] = window_ns * waited[:, 1:].sum(axis=1)
        shutters["before_waited_ns"] = window_ns * waited[:, 0]
    # Nobody knows when the time before the first window began.
    return shutters, counts, ALWAYS / np.delete(paces.ravel(), slice(1, 1 + SINCE)).mean()


def errors(rng, **options):
    """Of the logarithm, and half-widths, of runs that have an estimate."""
    found = []
    for _ in range(30):
        shutters, counts, truth = run_by_turns(rng, **options)
        one = count.slowdown(shutters, counts).slowdown
        if one is not None:
            found.append([np.log(one.value / truth), count.half_width(one)])
    return np.array(found)


def paces_of(rng, *words, **options):
    return paces(*run_by_turns(rng, *words, **options)[:2])


@functools.cache
def sixth():
    """Paces of one run, for tests that replace most of them."""
    return paces_of(np.random.default_rng(6))


def test_waits_of_all_the_time_take_the_luck_of_windows_out():
    with_waits, without = (errors(np.random.default_rng(3), has_waits=has) for has in (True, False))
    assert with_waits[:, 0].std() < without[:, 0].std() / 3
    assert np.median(with_waits[:, 1]) < np.median(without[:, 1]) / 2
    assert abs(with_waits[:, 0].mean()) < 0.01
    assert (np.abs(with_waits[:, 0]) < with_waits[:, 1]).mean() > 0.8


def test_waits_that_do_not_go_with_the_pace_change_nothing():
    rng = np.random.default_rng(4)
    shutters, counts, _ = run_by_turns(rng)
    shutters["before_waited_ns"] = rng.permutation(shutters["before_waited_ns"])
    found = paces(shutters, counts)
    assert (steadied(found).before == found.before).all()


def test_few_shutters_or_none_with_known_waits_change_nothing():
    for n_shutters, has_waits in ((MIN_CORUN_SHUTTERS - 1, True), (24, False)):
        found = paces_of(np.random.default_rng(5), n_shutters, has_waits=has_waits)
        assert (steadied(found).before == found.before).all()


@given(st.floats(0.2, 5.0), st.floats(0.1, 2.0), st.integers(0, 2**32))
def test_the_mean_is_that_of_all_the_time(pace, factor, seed):
    """Windows on a line over the waits get the pace that it has at the mean of all time."""
    rng = np.random.default_rng(seed)
    base = sixth()
    waited = rng.uniform(0.5, 1.5, len(base))
    ones = np.ones(len(base))
    waited_s = np.stack([waited, np.full(len(base), factor)], axis=1)
    found = replace(
        base, before=pace * (3.0 - waited), during=ones, waited_s=waited_s, stratum=ones.astype(int),
        since_s=ones, near_s=np.ones((len(base), 2)), far_s=np.zeros((len(base), 2)),
    )  # fmt: skip
    known = np.arange(len(base)) > 0  # before the first shutter there is none of the same stratum
    usual = waited_s[known].mean()
    assert steadied(found).before == pytest.approx(np.full(len(base), pace * (3.0 - usual)))


def test_luck_that_a_shutter_shares_with_the_windows_before_it_is_left_in_both():
    """The slowdown is a ratio of both: taken out of one, it would be an error of the slowdown."""
    rng = np.random.default_rng(11)
    base = sixth()
    luck, ones = rng.uniform(0.5, 1.5, len(base)), np.ones(len(base))
    noise = rng.normal(0, 0.02, len(base))
    waited_s = np.stack([2 - luck, ones], axis=1)
    found = replace(
        base, before=luck, during=ALWAYS * luck + noise, waited_s=waited_s, stratum=ones.astype(int),
        since_s=ones, near_s=np.ones((len(base), 2)), far_s=np.zeros((len(base), 2)),
    )  # fmt: skip
    assert (steadied(found).before == found.before).all()
    alone = replace(found, during=ALWAYS + noise)
    assert steadied(alone).before.std() < 0.1 * luck.std()


def test_shutters_with_a_crowd_of_ones_own_do_not_count_but_the_windows_before_them_do():
    rng = np.random.default_rng(7)
    shutters, counts, _ = run_by_turns(rng, luck=0.05)
    slow = np.arange(len(shutters)) % 5 == 0
    row = np.searchsorted(shutters["t0_ns"], counts["t0_ns"])
    counts["n_during"] = np.where(slow[row], counts["n_during"] // 2, counts["n_during"])
    mixed = count.slowdown(shutters, counts).slowdown
    shutters["waited_frac"] = np.where(slow, 0.5, 0.01)
    found = count.slowdown(shutters, counts).slowdown
    assert found.n == (~slow).sum()
    assert mixed.value < 0.95 * ALWAYS
    assert found.value == pytest.approx(ALWAYS, rel=0.03)


def test_a_job_with_more_threads_than_processors_waits_in_all_shutters():
    shutters, counts, _ = run_by_turns(np.random.default_rng(8))
    shutters["waited_frac"] = 0.5
    assert not crowded(shutters).any()
    assert count.slowdown(shutters, counts).slowdown.n == len(shutters)


def test_each_node_votes_for_itself_and_a_crowd_on_one_is_one_for_all():
    rows = np.concatenate([run_by_turns(np.random.default_rng(9))[0]] * 3)
    rows["i_node"] = np.repeat([0, 1, 2], len(rows) // 3)
    rows["common"] = np.tile(1 + np.arange(len(rows) // 3), 3)
    rows["waited_frac"] = np.where(rows["i_node"] == 2, 0.9, 0.0)
    assert not crowded(rows).any()
    rows["waited_frac"] = (rows["i_node"] == 0) & (rows["common"] == 5)
    assert (crowded(rows) == (rows["common"] == 5)).all()
