"""The estimate of the meter count on simulated loops with known truth."""

from dataclasses import replace

import numpy as np
import pytest
import sample
from hypothesis import given, settings, strategies as st
from loops import Program, simulate

from mpicoloc.core.profile import BEFORE_WINDOWS, COUNT_WINDOWS, Estimate, MeterResult, table
from mpicoloc.measure import count
from mpicoloc.measure.burst import PhaseSlowdown
from mpicoloc.measure.convergence import running_slowdowns
from mpicoloc.measure.count import instants, steadiest
from mpicoloc.measure.estimate import interference
from mpicoloc.measure.meter_choice import MUCH_WIDER, choose, counting_frac
from mpicoloc.profile import bundle, hdf5
from mpicoloc.profile.merge import complete
from mpicoloc.profile.summary import summary

LONG = {"visit_s": 4.0, "period_s": 2.0}
# name: program, largest mean error
CASES = {
    "short visits": (Program(), 0.01),
    "in a cycle": (Program(order="cycle", visit_cv=0.2), 0.005),
    "one loop": (Program(slowdown=(1.4,)), 0.005),
    "not slowed": (Program(slowdown=(1.0, 1.0, 1.0)), 0.005),
    "windows 9 % apart": (Program(noise=0.09), 0.01),
    "loops share places": (Program(shared=0.5), 0.01),
    "8 places": (Program(n_places=8), 0.01),
    "visits of 50 ms": (Program(visit_s=0.05), 0.03),
    "visits of 150 ms": (Program(visit_s=0.15), 0.035),
    "visits of 4 s": (Program(**LONG), 0.04),
    "three phases": (Program(order="blocks", period_s=0.3), 0.035),
    "three phases, places follow": (Program(order="blocks", by_loop=True, period_s=0.3), 0.025),
    "two places replaced each time": (Program(swap=2), 0.01),
    "by turns of 3 ms": (Program(slowdown=(2.0, 2.2), slice_s=3e-3), 0.01),
    "8 shutters": (Program(n_shutters=8), 0.02),
    "200 shutters": (Program(n_shutters=200, period_s=0.2), 0.005),
}
# The same, for programs that break an assumption: least and largest mean error.
FAILURES = {
    "a loop in three has no place": (Program(uncounted=(2,)), -0.04, 0.04),
    "the same, visits of 4 s": (Program(uncounted=(1,), slowdown=(1.4, 1.1, 2.0, 1.3), **LONG), 0.03, 0.13),
    "2 of 64 places poll": (Program(poll=2), -0.09, -0.01),
    "16 of 64 places poll": (Program(poll=16), -0.3, -0.1),
    "all places in all phases": (Program(order="blocks", same_places=True, period_s=0.3), 0.1, 0.25),
    "counting takes 10 %": (Program(slowdown=(1.4,), cost_ns=1.0), -0.2, -0.001),
}


def rng(seed=0):
    return np.random.default_rng(seed)


def estimate(run):
    return count.slowdown(run.shutters, run.counts)


def measured(program, n_runs):
    """Errors, half-widths and whether the interval holds the truth; runs without an estimate are left out."""
    rows = []
    for seed in range(n_runs):
        run = simulate(rng(seed), program)
        found = estimate(run).slowdown
        if found is not None:
            held = found.low <= run.truth <= found.high
            rows.append((found.value / run.truth - 1, count.half_width(found), held))
    return np.array(rows).T


@pytest.mark.parametrize("name", CASES)
def test_the_interval_holds_the_truth(name):
    program, tolerance = CASES[name]
    n_runs = 8 if program.n_shutters > 100 else 16
    errors, _, held = measured(program, n_runs)
    assert len(errors) == n_runs
    assert abs(errors.mean()) < tolerance + 2 * errors.std() / np.sqrt(n_runs)
    assert n_runs - held.sum() <= 3


@pytest.mark.parametrize("name", FAILURES)
def test_where_it_fails_the_error_is_as_the_page_says(name):
    program, least, most = FAILURES[name]
    assert least < measured(program, 12)[0].mean() < most


def test_a_window_in_a_phase_without_places_is_short_and_not_slow():
    program = Program(uncounted=(1,), slowdown=(1.2,) * 4, **LONG)
    _, blind, _ = measured(program, 12)
    errors, halves, held = measured(replace(program, sampled=True), 12)
    assert halves.mean() < 0.9 * blind.mean() and abs(errors.mean()) < 0.04 and held.sum() >= 11


@pytest.mark.parametrize("visit_s", [2e-3, 0.05, 0.5])
def test_the_time_far_from_places_widens_the_interval(visit_s):
    """A quarter of the time is, in visits shorter than windows or longer, and is slowed by half as much."""
    loops = {"uncounted": (3,), "slowdown": (1.4, 1.4, 1.4, 1.2)}
    program = Program(**loops, visit_s=visit_s, sampled=True, period_s=1.0)
    errors, halves, held = measured(program, 12)
    # Of windows that lie within one visit each, a run may have met too many far from places.
    assert len(errors) >= 11 and held.sum() >= len(errors) - 1 and halves.mean() > 0.03
    assert abs(errors.mean()) < 0.07


def test_time_far_from_places_that_is_not_slowed_is_inside_the_interval():
    """Near 1.8 and far 1.0, in visits shorter than a window: what both take of it tells."""
    program = Program(slowdown=(1.8, 1.8, 1.8, 1.0), uncounted=(3,), sampled=True)
    errors, _, held = measured(program, 16)
    assert len(errors) == 16 and held.sum() >= 14 and abs(errors.mean()) < 0.06


@pytest.mark.parametrize("visit_s", [2e-3, 0.05, 0.5])
def test_time_in_functions_that_a_counted_loop_calls_is_measured(visit_s):
    """No sample of that loop is near its places, but how much of the window is far goes with its passes."""
    program = Program(slowdown=(1.4, 1.1, 1.3, 1.8), calling=(3,), visit_s=visit_s, sampled=True)
    errors, halves, held = measured(program, 12)
    assert len(errors) == 12 and held.sum() >= 10 and halves.mean() < 0.1
    assert abs(errors.mean()) < 0.03


def test_a_window_in_which_far_code_passes_the_places_does_not_count():
    """As if the program were ten times as fast in one of the windows before a shutter; alone it is not."""
    run = simulate(rng(), Program(sampled=True))
    usual, counts = estimate(run).slowdown, run.counts.copy()
    for t0 in np.unique(counts["t0_ns"])[[3, 9, 15, 21]]:
        counts["n_before_2"][counts["t0_ns"] == t0] *= 10
    found = estimate(replace(run, counts=counts)).slowdown
    assert found.value == pytest.approx(usual.value, rel=0.05)
    assert count.half_width(found) < 3 * count.half_width(usual)


@pytest.mark.parametrize("side", ["before", "during"])
def test_far_time_on_one_side_of_the_shutters_only_tells_nothing_of_its_slowdown(side):
    run = simulate(rng(), Program(sampled=True))
    found = count.paces(run.shutters, run.counts)
    far_s = np.where(np.arange(2) == (side == "during"), 0.002, 0.0) * np.ones((len(found), 1))
    assert count._rest_over_near(replace(found, far_s=far_s), 0.2) == (0.0, 0.2)


def test_thirty_shutters_of_20_ms_are_enough_for_one_percent():
    errors, halves, _ = measured(CASES["in a cycle"][0], 24)
    assert errors.std() < 0.015 and halves.mean() < 0.03


def test_the_time_that_counting_takes_can_be_left_out():
    program = Program(slowdown=(1.4,), cost_ns=1.0)
    errors = []
    for seed in range(12):
        run = simulate(rng(seed), program)
        found = count.slowdown(run.shutters, run.counts, cost_ns=1.0).slowdown
        errors.append(found.value / run.truth - 1)
    assert abs(np.mean(errors)) < 0.005


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    speed=st.floats(0.2, 5.0), scale=st.floats(0.1, 10.0), n=st.integers(6, 40), n_places=st.integers(1, 64),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_places_that_all_speed_up_alike_measure_that(speed, scale, n, n_places, seed):
    """Whatever the places do from window to window, and however long the windows are."""
    random = rng(seed)
    work = random.gamma(2.0, 1e6, (n, n_places))
    during = np.round(work * speed * scale)
    t0 = np.repeat(np.arange(1, n + 1) * 10**9, n_places)
    before = dict.fromkeys((f"n_{when}" for when in BEFORE_WINDOWS), np.round(work).ravel())
    columns = {"t0_ns": t0, "place": np.tile(np.arange(n_places), n), **before, "n_during": during.ravel()}
    windows = {f"{when}_window_ns": np.full(n, length) for when, length in
               (("before", 8 * 10**8), ("during", round(1e8 * scale)))}  # fmt: skip
    shutters = table("shutters", {"t0_ns": np.arange(1, n + 1) * 10**9, "verdict": np.ones(n), **windows})
    found = count.slowdown(shutters, table("counts", columns))
    assert found.slowdown is None or found.slowdown.value == pytest.approx(speed, rel=0.02)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(n=st.integers(1, 20), n_rows=st.integers(2, 60), seed=st.integers(0, 2**32 - 1))
def test_the_steadiest_combination_has_no_better_neighbour(n, n_rows, seed):
    rows = rng(seed).lognormal(0, 0.5, (n_rows, n))
    covariance = np.atleast_2d(np.cov(rows.T)) + 1e-3 * np.eye(n)
    weights = steadiest(covariance)
    assert (weights >= 0).all() and weights.sum() == pytest.approx(1)
    gradient = covariance @ weights
    assert gradient.min() >= (1 - 1e-3) * float(weights @ gradient)


def test_too_little_is_no_estimate():
    found = estimate(simulate(rng(), Program(n_shutters=5)))
    assert found.slowdown is None and "6 needed" in found.reason
    assert count.slowdown(table("shutters"), table("counts")).slowdown is None
    run = simulate(rng(), Program(n_places=3, uncounted=(1, 2), visit_s=20.0, period_s=2.0))
    found = estimate(run)
    assert found.slowdown is None and ("needed" in found.reason or "uneven" in found.reason)


def test_places_passed_inside_shutters_only_give_a_reason():
    run = simulate(rng(), Program())
    counts = run.counts.copy()
    for when in BEFORE_WINDOWS:
        counts[f"n_{when}"] = 0
    found = count.slowdown(run.shutters, counts)
    assert found.slowdown is None and "only" in found.reason


def test_refused_shutters_do_not_count():
    run = simulate(rng(), Program())
    shutters, counts = run.shutters.copy(), run.counts.copy()
    shutters["verdict"][:4] = 2
    counts["n_during"][np.isin(counts["t0_ns"], shutters["t0_ns"][:4])] *= 10
    assert count.slowdown(shutters, counts).slowdown.n == 26
    assert count.slowdown(shutters, counts).slowdown.value == pytest.approx(run.truth, rel=0.06)


def test_two_nodes_see_the_same_instants():
    """Shutters in common are one observation; a second node with the same counts adds nothing."""
    run = simulate(rng(), Program())
    shutters, counts = run.shutters.copy(), run.counts.copy()
    shutters["common"] = np.arange(1, len(shutters) + 1)
    there, counts_there = shutters.copy(), counts.copy()
    there["i_node"] = counts_there["i_node"] = 1
    there["t0_ns"] += 5_000
    counts_there["t0_ns"] += 5_000
    counts_there["place"] += 64
    for rows in (shutters, there):
        for i, when in enumerate(COUNT_WINDOWS):
            rows[f"{when}_samples"], rows[f"{when}_near"] = 100, rng(i).integers(70, 95, len(rows))
    one = count.slowdown(shutters, counts).slowdown
    both = count.slowdown(np.concatenate([shutters, there]), np.concatenate([counts, counts_there])).slowdown
    assert both.n == one.n == 30
    assert (both.value, both.low) == pytest.approx((one.value, one.low))


def test_instants_are_in_the_order_of_time():
    rows = table("shutters", {"common": [7, 7, 0, 3, 3, 0]})
    assert instants(rows).tolist() == [0, 0, 1, 2, 2, 3]


def job_tables(program=None, why="", cycles=None):
    """A job's tables with counts in its shutters, by default without cycles."""
    run = simulate(rng(), program or Program(period_s=2.0))
    tables = sample.tables(meter="count", n_shutters=len(run.shutters))
    nodes = tables["nodes"].copy()
    nodes["meter_reason"] = why
    cycles = table("cycles") if cycles is None else cycles
    return run, {**tables, "nodes": nodes, "shutters": run.shutters, "counts": run.counts, "cycles": cycles}


def test_the_meter_of_a_job_without_cycles():
    run, tables = job_tables()
    found = interference(sample.job(), tables, rng=rng())
    assert found.meter == "count" and found.slowdown.method == "count"
    assert found.slowdown.value == pytest.approx(run.truth, rel=0.05)
    results = {one.meter: one for one in found.meters}
    assert set(results) == {"burst", "count"}
    assert results["count"].slowdown == found.slowdown
    assert results["burst"].slowdown is None and "needed" in results["burst"].reason


def test_bursts_count_if_they_are_much_surer_unless_the_user_chose():
    """The sample's cycles are even; counts of few places are not."""
    cycles = sample.tables()["cycles"]
    _, tables = job_tables(Program(n_places=2, place_cv=1.5, period_s=2.0), cycles=cycles)
    found = interference(sample.job(), tables, rng=rng())
    results = {one.meter: one.slowdown for one in found.meters}
    assert MUCH_WIDER * count.half_width(results["burst"]) < count.half_width(results["count"])
    assert found.slowdown.method == "burst-matched"
    assert [other.method for other in found.alternatives] == ["count"]
    _, tables = job_tables(
        Program(n_places=2, place_cv=1.5, period_s=2.0), "option meter is count", cycles=cycles
    )
    assert interference(sample.job(), tables, rng=rng()).slowdown.method == "count"
    tables["counts"] = table("counts")
    found = interference(sample.job(), tables, rng=rng())
    assert found.slowdown.method == "burst-matched" and not found.reason


@pytest.mark.parametrize(
    ("known", "was_chosen", "expected"),
    [
        ({"count": 0.1, "burst": 0.05}, False, "count"),
        ({"count": None, "burst": 0.3}, False, "burst"),
        ({"count": None, "burst": 0.3}, True, "burst"),
        ({"count": 0.4, "burst": 0.1}, False, "burst"),
        ({"count": 0.4, "burst": 0.1}, True, "count"),
    ],
)
def test_which_meter_is_believed(known, was_chosen, expected):
    """Half-widths of what each meter found."""
    found = {
        name: half and Estimate(1.5, 1.5 * np.exp(-half), 1.5 * np.exp(half), 20, "1", name)
        for name, half in known.items()
    }
    chosen = choose(MeterResult("count", found["count"]), (), PhaseSlowdown(found["burst"]), was_chosen)
    assert chosen.slowdown == found[expected]
    assert set(chosen.alternatives) == {one for one in found.values() if one} - {chosen.slowdown}


def test_bursts_in_shutters_are_corrected_for_what_counting_takes_there():
    _, tables = job_tables(Program(period_s=2.0), "option meter is burst", cycles=sample.tables()["cycles"])
    before = {one.meter: one.slowdown for one in interference(sample.job(), tables, rng=rng()).meters}
    nodes, counts = tables["nodes"].copy(), tables["counts"]
    n_all = sum(int(counts[f"n_{when}"].sum()) for when in COUNT_WINDOWS)
    nodes["n_hits"] = n_all
    nodes["counting_s"] = n_all * 1e-9 * len(tables["ranks"])
    tables["nodes"] = nodes
    shutters = tables["shutters"]
    expected = counts["n_during"].sum() * 1.0 / (shutters["t1_ns"] - shutters["t0_ns"]).sum()
    assert counting_frac(tables) == pytest.approx(expected, rel=0.01) and 0 < expected < 0.5
    after = {one.meter: one.slowdown for one in interference(sample.job(), tables, rng=rng()).meters}
    assert after["burst"].value > before["burst"].value
    tables["counts"] = table("counts")
    assert counting_frac(tables) == 0.0


def test_the_meters_results_survive_storage(tmp_path):
    _, tables = job_tables()
    profile = complete(sample.job(), tables, rng=rng())
    assert len(profile.interference.meters) == 2
    hdf5.write(profile, tmp_path / "p.h5")
    again = hdf5.read(tmp_path / "p.h5")
    by_name = sorted(profile.interference.meters, key=lambda one: one.meter)
    assert sorted(again.interference.meters, key=lambda one: one.meter) == by_name
    assert again.tables["counts"].tobytes() == tables["counts"].tobytes()
    sent, _ = bundle.unpack_profile(
        memoryview(b"".join(bytes(part) for part in bundle.pack_profile(profile, {})))
    )
    assert sent.interference.meters == profile.interference.meters
    meters = summary(again)["interference"]["meters"]
    assert set(meters["count"]) == {"value", "low", "high", "n"}
    assert set(meters["burst"]) == {"reason"}


def test_a_slowdown_by_counts_settles_with_time():
    _, tables = job_tables()
    points = running_slowdowns(complete(sample.job(), tables, rng=rng()), rng=rng())
    assert [point.n for point in points] == list(range(6, 31))
    widths = [count.half_width(point) for point in points]
    assert widths[-1] < widths[0] and {point.method for point in points} == {"count"}


def test_a_place_without_counts_anywhere_changes_nothing():
    run = simulate(rng(), replace(Program(), n_places=20))
    idle = run.counts.copy()
    idle["place"] += 20
    for when in COUNT_WINDOWS:
        idle[f"n_{when}"] = 0
    found = count.slowdown(run.shutters, np.concatenate([run.counts, idle])).slowdown
    assert found.value == pytest.approx(estimate(run).slowdown.value, rel=1e-6)


def test_places_of_a_beginning_that_tell_nothing_do_not_spoil_the_rest():
    """Six shutters of a phase that passes its places by chance, then thirty of an even one with others."""
    halves, inside = [], []
    for seed in range(20):
        rest = simulate(rng(seed), Program(slowdown=(1.3,), n_shutters=30, duration_s=0.04))
        first = simulate(rng(seed + 100), Program(slowdown=(1.3,), n_shutters=6, n_places=4))
        chance = rng(seed).lognormal(0.0, 1.5, len(first.counts))
        shift_ns = int(first.shutters["t1_ns"].max()) + 10**9
        later, places = rest.shutters.copy(), rest.counts.copy()
        for column in (later["t0_ns"], later["t1_ns"], places["t0_ns"]):
            column += np.uint64(shift_ns)
        places["place"] += 64
        wild = first.counts.copy()
        wild["n_during"] = np.round(wild["n_during"] * chance)
        shutters = np.concatenate([first.shutters, later])
        counts = np.concatenate([wild, places])
        found = count.slowdown(shutters, counts).slowdown
        halves.append(np.inf if found is None else count.half_width(found))
        inside.append(found is not None and found.low <= 1.3 <= found.high)
    assert np.median(halves) < 0.12
    assert np.mean(inside) >= 0.85
