"""`benchmarks/toggled/`: slowdowns of simulated programs are found, and intervals hold them."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
GUARD_S = 0.06


@pytest.fixture(scope="module")
def ratio():
    sys.path.insert(0, str(ROOT / "benchmarks" / "toggled"))
    import progress_ratio

    yield progress_ratio
    sys.path.remove(str(ROOT / "benchmarks" / "toggled"))


def states(rng, seconds):
    """Begin, end and whether the co-runner runs, one state after the other."""
    ends = np.cumsum(1 + rng.uniform(0, 0.5, int(seconds)))
    begins = np.concatenate([[0.0], ends[:-1]])
    return np.column_stack([begins, ends, np.arange(len(ends)) % 2])


def simulated(ratio, rng, step_s, slowdowns, *, spread=0.1, drift=0.0, seconds=70):
    """A program whose steps of kind k take step_s * (k + 1) alone and are slowed by slowdowns[k]."""
    switched = states(rng, seconds)
    events, kinds, now_s, i = [0.0], [0], 0.0, 0
    while i < len(switched):
        kind = len(events) % len(slowdowns)
        left_s = step_s * (kind + 1) * (1 + drift * now_s) * rng.lognormal(-(spread**2) / 2, spread)
        while left_s > 1e-12 and i < len(switched):
            pace = 1 / slowdowns[kind] if switched[i, 2] else 1.0
            took_s = min(switched[i, 1] - now_s, left_s / pace)
            now_s, left_s = now_s + took_s, left_s - took_s * pace
            i += now_s >= switched[i, 1] - 1e-12
        if i < len(switched):
            events.append(now_s)
            kinds.append(kind)
    windows = switched + np.array([GUARD_S, 0, 0])
    return ratio.Run(np.array(events), np.array(kinds), windows)


CASES = {
    "short steps": (0.01, [1.5], {}, 0.01),
    "they get longer": (0.01, [1.5], {"drift": 0.01}, 0.015),
    "straddle switches": (0.4, [2.0], {}, 0.06),
    "two kinds": (0.2, [1.0, 2.0], {"spread": 0.05}, 0.04),
    "time-sliced, uneven": (0.01, [2.9], {"spread": 0.5}, 0.04),
}


@pytest.mark.parametrize("name", CASES)
def test_the_mean_of_many_runs_is_the_truth_and_intervals_hold_it(ratio, name):
    step_s, slowdowns, options, tolerance = CASES[name]
    works = np.arange(1, len(slowdowns) + 1)
    truth = np.sum(works * slowdowns) / np.sum(works)
    rng, n = np.random.default_rng(3), 12
    found = [ratio.slowdown([simulated(ratio, rng, step_s, slowdowns, **options)]) for _ in range(n)]
    assert np.mean([one["value"] for one in found]) == pytest.approx(truth, rel=tolerance)
    assert sum(one["low"] <= truth <= one["high"] for one in found) >= n - 3


def test_steps_of_windows_add_up_to_those_of_the_run(ratio):
    run = simulated(ratio, np.random.default_rng(4), 0.02, [1.4])
    (rows,) = ratio.window_counts([run], {"kinds": [1.4]})
    assert len(rows) == len(run.windows)
    rates = {on: np.mean([n / (end - begin) for begin, end, beside, n in rows[1:-1] if beside == on])
             for on in (0, 1)}  # fmt: skip
    assert rates[0] / rates[1] == pytest.approx(1.4, rel=0.02)


def test_times_in_which_the_co_runner_stands_still_anyhow_count_as_solo(ratio):
    """Long steps with a shutter of 0.1 s in each second beside the co-runner, at full speed."""
    rng, values = np.random.default_rng(8), []
    for _ in range(6):
        switched = states(rng, 90)
        solo = np.column_stack([switched[:, 0] + 0.4, switched[:, 0] + 0.5])[switched[:, 2] > 0]
        edges = np.unique(np.concatenate([switched[:, :2].ravel(), solo.ravel()]))
        middle = (edges[1:] + edges[:-1]) / 2
        on = switched[np.searchsorted(switched[:, 1], middle), 2] > 0
        on &= ~((middle[:, None] > solo[:, 0]) & (middle[:, None] < solo[:, 1])).any(axis=1)
        work_s = np.concatenate([[0.0], np.cumsum(np.diff(edges) / np.where(on, 2.0, 1.0))])
        steps_s = np.cumsum(0.08 * rng.lognormal(0, 0.1, 2000))
        events = np.interp(steps_s[steps_s < work_s[-1]], work_s, edges)
        run = ratio.Run(events, np.zeros(len(events), int), switched + np.array([GUARD_S, 0, 0]), solo)
        values.append(ratio.slowdown([run])["value"])
    assert np.mean(values) == pytest.approx(2.0, rel=0.015)


def test_two_runs_are_taken_together(ratio):
    rng = np.random.default_rng(5)
    runs = [simulated(ratio, rng, 0.05, [1.3], seconds=30) for _ in range(2)]
    both, first = ratio.slowdown(runs), ratio.slowdown(runs[:1])
    assert both["n_pairs"] > 1.8 * first["n_pairs"]
    assert both["value"] == pytest.approx(1.3, rel=0.02)


def test_a_program_without_steps_has_no_truth(ratio):
    run = simulated(ratio, np.random.default_rng(6), 9.0, [1.3])
    with pytest.raises(ValueError, match="needed"):
        ratio.slowdown([run])
