"""Curves from shutters in which a bubble ran: their intervals, and reasons where there is no curve."""

import numpy as np
import pytest
from loops import Program, simulate

from mpicoloc.core.tables import VERDICTS, table, valid_shutters
from mpicoloc.measure import count
from mpicoloc.measure.production_bubbles import MIN_LEVEL, MIN_SOLO, bubbled_slowdowns

LEVELS = (2.0, 4.0, 6.0, 8.0)
TRUTH = dict(zip(LEVELS, (1.05, 1.12, 1.3, 1.55), strict=True))


def bubbled(seed, n_shutters=80, frac=0.4, program=None):
    """Tables of a run in which a bubble slowed the job in some of its shutters."""
    rng = np.random.default_rng(seed)
    run = simulate(rng, program or Program(n_shutters=n_shutters, duration_s=0.04))
    shutters, counts = run.shutters.copy(), run.counts.copy()
    level = np.where(rng.random(len(shutters)) < frac, rng.choice(LEVELS, len(shutters)), 0.0)
    shutters["bubble_level"] = level
    shutters["verdict"][level > 0] = VERDICTS.index("bubbled")
    speed = {0.0: 1.0, **{one: 1 / slowdown for one, slowdown in TRUTH.items()}}
    of_shutter = {int(t0): speed[float(one)] for t0, one in zip(shutters["t0_ns"], level, strict=True)}
    factor = np.array([of_shutter[int(t0)] for t0 in counts["t0_ns"]])
    counts["n_during"] = np.round(counts["n_during"] * factor)
    return run, shutters, counts


def test_the_intervals_hold_the_truth():
    inside, errors, halves = [], [], []
    for seed in range(40):
        _, shutters, counts = bubbled(seed)
        curve = bubbled_slowdowns("loops", shutters, counts).curve
        assert curve.source == "production" and curve.program == "loops"
        for level, value, low, high in zip(curve.levels, curve.slowdown, curve.low, curve.high, strict=True):
            if level > 0:
                inside.append(low <= TRUTH[level] <= high)
                errors.append(np.log(value / TRUTH[level]))
                halves.append(np.log(high / low) / 2)
    assert np.mean(inside) >= 0.9
    assert abs(np.mean(errors)) < 0.01
    assert np.mean(halves) < 0.12


def test_a_bubble_does_not_touch_the_jobs_own_slowdown():
    run, shutters, counts = bubbled(3)
    found = count.slowdown(shutters, counts).slowdown
    without = count.slowdown(valid_shutters(shutters), counts).slowdown
    assert found == without
    assert found.low <= run.truth <= found.high


def test_more_shutters_of_one_level_narrow_its_interval():
    def half(n_shutters):
        curve = bubbled_slowdowns("loops", *bubbled(1, n_shutters)[1:]).curve
        return np.log(curve.high / curve.low)[1:].mean()

    assert half(320) < 0.7 * half(60)


def test_shutters_in_which_threads_waited_do_not_count():
    _, shutters, counts = bubbled(2)
    shutters["waited_frac"] = np.where(np.arange(len(shutters)) % 5 == 0, 0.5, 0.0)
    found = bubbled_slowdowns("loops", shutters, counts)
    assert found.n_used < found.n_taken == (shutters["bubble_level"] > 0).sum()


@pytest.mark.parametrize(
    ("n_shutters", "frac", "reason"),
    [
        (30, 0.0, "no bubble ran in its shutters"),
        (MIN_SOLO - 1, 0.5, f"fewer than {MIN_SOLO} without one"),
        (14, 0.3, f"{MIN_LEVEL} needed"),
    ],
)
def test_too_little_is_no_curve(n_shutters, frac, reason):
    found = bubbled_slowdowns("loops", *bubbled(5, n_shutters, frac)[1:])
    assert found.curve is None and reason in found.reason


def test_a_job_without_counts_has_no_curve():
    _, shutters, _ = bubbled(4)
    found = bubbled_slowdowns("loops", shutters, table("counts"))
    assert found.curve is None and "no shutter with a bubble has counts" in found.reason
