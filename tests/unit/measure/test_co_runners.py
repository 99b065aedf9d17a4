"""Slowdown that each of several co-runners causes, on simulated loops with known costs."""

import numpy as np
import pytest
import sample
from loops import Program, simulate

from mpicoloc.core.profile import VERDICTS, table
from mpicoloc.measure import co_runners, count
from mpicoloc.measure.co_runners import slowdown_by_job, with_slowdowns

PERIOD_S = 0.5


def job_of(costs, seed=0, n_shutters=90, *, partial=3, overlap_frac=None):
    """Job, tables and slowdown of a run beside co-runners that cost so much, every third shutter partial."""
    rng = np.random.default_rng(seed)
    n, total = len(costs), 1 + sum(costs)
    run = simulate(rng, Program(slowdown=(total,), n_shutters=n_shutters, period_s=PERIOD_S))
    shutters, counts = run.shutters.copy(), run.counts.copy()
    shutters["present"] = (1 << n) - 1
    is_partial = np.arange(n_shutters) % partial == 1 if partial else np.zeros(n_shutters, bool)
    spared = np.where(is_partial, rng.integers(1, max((1 << n) - 1, 2), n_shutters), 0)
    shutters["spared"] = spared
    shutters["verdict"][is_partial] = VERDICTS.index("partial")
    left = 1 + (spared[:, None] >> np.arange(n) & 1) @ np.array(costs)
    row = np.searchsorted(shutters["t0_ns"], counts["t0_ns"])
    counts["n_during"] = np.round(counts["n_during"] / left[row])
    wall_s = n_shutters * PERIOD_S
    names = [f"other-{i}".encode() for i in range(n)]
    overlap_s = wall_s * np.array(overlap_frac or [1.0] * n)
    corunners = table("corunners", {"job_id": names, "overlap_s": overlap_s, "number": np.arange(n)})
    tables = {**sample.tables(meter="count", n_shutters=n_shutters), "shutters": shutters, "counts": counts}
    job = sample.job(n_nodes=1, wall_s=wall_s)
    return job, {**tables, "corunners": corunners}, count.slowdown(shutters, counts).slowdown


def costs_of(*words, **options):
    job, tables, slowdown = job_of(*words, **options)
    found = slowdown_by_job(with_slowdowns(job, tables, slowdown))
    return [found.get(f"other-{i}") for i in range(len(words[0]))], slowdown


@pytest.mark.parametrize("costs", [(0.4, 0.05), (0.2, 0.2), (0.3, 0.1, 0.0), (0.1,) * 4])
def test_costs_are_found_and_add_up(costs):
    errors, held = [], []
    for seed in range(12):
        found, slowdown = costs_of(costs, seed)
        assert all(found)
        assert sum(one.value - 1 for one in found) == pytest.approx(slowdown.value - 1, abs=1e-9)
        errors += [one.value - 1 - cost for one, cost in zip(found, costs, strict=True)]
        held += [one.low - 1 <= cost <= one.high - 1 for one, cost in zip(found, costs, strict=True)]
    assert np.abs(errors).mean() < 0.03
    assert np.mean(held) > 0.85


def test_the_order_is_right_in_nineteen_of_twenty_nodes():
    right = 0
    for seed in range(20):
        found, _ = costs_of((0.25, 0.05), seed)
        right += found[0].value > found[1].value
    assert right >= 19


def test_more_shutters_tell_it_better():
    widths = [np.mean([one.high - one.low for one in costs_of((0.3, 0.1), 1, n)[0]]) for n in (60, 400)]
    assert widths[1] < 0.6 * widths[0]


def time_sliced(costs, cpu_s, waited_s, partial=0, seed=0):
    """Costs found of co-runners that had the job's processors for these times; the job ran for 100 s."""
    job, tables, slowdown = job_of(costs, seed, partial=partial)
    ranks, rows = tables["ranks"].copy(), tables["corunners"].copy()
    ranks["cpu_s"], ranks["run_delay_s"] = 100 / len(ranks), waited_s / len(ranks)
    rows["cpu_s"] = cpu_s
    found = slowdown_by_job(with_slowdowns(job, {**tables, "ranks": ranks, "corunners": rows}, slowdown))
    return [found.get(f"other-{i}") for i in range(len(costs))]


def test_processor_time_tells_who_it_is():
    first, second = time_sliced((0.4, 0.1), [40, 10], waited_s=30)
    assert (first.value - 1) / (second.value - 1) == pytest.approx(4)
    assert first.value + second.value - 2 == pytest.approx(0.5, abs=0.05)
    assert first.high - first.low < 0.3
    assert first.low > second.high


@pytest.mark.parametrize("waited_s", [0.0, 2.0])
def test_processor_time_tells_little_of_what_waiting_does_not_explain(waited_s):
    assert time_sliced((0.4, 0.1), [40, 10], waited_s) == [None, None]


def test_a_co_runner_without_these_processors_may_slow_the_job_by_other_means():
    first, second = time_sliced((0.4, 0.1), [40, 0], waited_s=24)
    assert second.high - 1 > 0.15
    assert first.low - 1 < 0.35


def test_co_runners_on_other_processors_are_told_by_shutters_only():
    assert time_sliced((0.4, 0.1), [0, 0], 30) == [None, None]
    first, second = time_sliced((0.4, 0.1), [0, 0], 30, partial=3)
    plain, _ = costs_of((0.4, 0.1))
    assert (first, second) == tuple(plain)


def test_time_slices_make_partial_shutters_uncertain(monkeypatch):
    """Shutters say 0.4 and 0.1, processor time says the reverse."""
    rough = time_sliced((0.4, 0.1), [10, 40], waited_s=30, partial=3)
    monkeypatch.setattr(co_runners, "TIME_SLICE_S", 0.0)
    exact = time_sliced((0.4, 0.1), [10, 40], waited_s=30, partial=3)
    assert 1.1 < rough[0].value < exact[0].value - 0.03


def test_the_only_co_runner_costs_all_of_it():
    (found,), slowdown = costs_of((0.3,), partial=0)
    assert (found.value, found.low, found.high) == (slowdown.value, slowdown.low, slowdown.high)


def test_without_partial_shutters_nobody_is_told_apart():
    assert costs_of((0.3, 0.1), partial=0)[0] == [None, None]


def test_jobs_on_several_nodes_and_without_a_slowdown_have_none():
    job, tables, slowdown = job_of((0.3, 0.1))
    for what in ((sample.job(n_nodes=2, wall_s=45.0), slowdown), (job, None)):
        assert slowdown_by_job(with_slowdowns(what[0], tables, what[1])) == {}


def test_partial_shutters_do_not_change_the_slowdown_of_the_job():
    _, tables, slowdown = job_of((0.3, 0.1), 3)
    kept = tables["shutters"][tables["shutters"]["verdict"] == VERDICTS.index("valid")]
    assert count.slowdown(kept, tables["counts"]).slowdown == slowdown
