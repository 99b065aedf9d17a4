"""The estimate of the meter loop on simulated hits with known truth."""

import io

import numpy as np
import passes
import pytest
import sample
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from mpicoloc.core.tables import table
from mpicoloc.measure import loop
from mpicoloc.measure.estimate import interference
from mpicoloc.profile.merge import complete
from mpicoloc.profile.terminal import show


def counted(rng, *, slowdown, rate=1000.0, n=60, solo_s=0.0024, around_s=0.019, entry=0x1440, i_node=0):
    """Shutters of a program that passes the place at equal distances of its own progress."""

    def hits(seconds, pace):
        return np.floor(seconds * rate / pace + rng.uniform(0, 1, n))

    columns = {"i_node": np.full(n, i_node), "verdict": np.ones(n), "entry": np.full(n, entry)}
    for when, seconds, pace in (
        ("before", around_s, slowdown),
        ("during", solo_s, 1),
        ("after", around_s, slowdown),
    ):
        columns[f"{when}_hits"] = hits(seconds, pace)
        columns[f"{when}_window_ns"] = np.full(n, round(seconds * 1e9))
    return table("shutters", columns)


def rng(seed=1):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("slowdown", [1.0, 1.2, 2.0, 4.0])
def test_the_interval_holds_the_truth(slowdown):
    found = [loop.rates(counted(rng(seed), slowdown=slowdown), rng=rng(seed)).slowdown for seed in range(60)]
    assert np.mean([estimate.value for estimate in found]) == pytest.approx(slowdown, rel=0.01)
    assert sum(estimate.low <= slowdown <= estimate.high for estimate in found) >= 54
    assert found[0].n == 60 and found[0].method == "loop"


def test_other_places_and_nodes_are_measured_by_themselves():
    """A place that is passed ten times as often elsewhere must not look like ten times the speed."""
    changes = [{"rate": 200.0}, {"rate": 2000.0, "entry": 0x99}, {"rate": 700.0, "i_node": 1}]
    parts = [counted(rng(seed), slowdown=1.5, **change) for seed, change in enumerate(changes)]
    found = loop.rates(np.concatenate(parts), rng=rng()).slowdown
    assert found.value == pytest.approx(1.5, rel=0.04)
    assert found.low < 1.5 < found.high and found.n == 180


def test_windows_of_other_lengths_in_another_phase_do_not_count_more():
    """Windows around are long beside a short shutter, or not; the rate in that phase is another."""
    parts = [counted(rng(), slowdown=1.0, solo_s=0.0148, around_s=0.125, rate=2000.0, n=100),
             counted(rng(), slowdown=1.0, solo_s=0.0148, around_s=0.225, rate=200.0, n=100)]  # fmt: skip
    found = loop.rates(np.concatenate(parts), rng=rng()).slowdown
    assert found.value == pytest.approx(1.0, rel=0.02)


def test_a_place_that_is_never_passed_in_a_shutter_of_its_own_gives_a_reason():
    inside, outside = (counted(rng(), slowdown=1.0, entry=entry).copy() for entry in (1, 2))
    for when in ("before", "after"):
        inside[f"{when}_hits"] = 0
    outside["during_hits"] = 0
    found = loop.rates(np.concatenate([inside, outside]), rng=rng())
    assert found.slowdown is None and "only" in found.reason


def test_refused_and_uncounted_shutters_are_left_out():
    shutters = counted(rng(), slowdown=1.5).copy()
    shutters["verdict"][:20] = 2
    shutters["during_hits"][:20] = 10**6
    shutters["entry"][20:30] = 0
    shutters["during_window_ns"][30:35] = 0
    assert len(loop.blocks(shutters)) == 25


def test_one_side_is_enough():
    shutters = counted(rng(), slowdown=2.0).copy()
    shutters["before_hits"], shutters["before_window_ns"] = 0, 0
    assert loop.rates(shutters, rng=rng()).slowdown.value == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("changes", [{"n": 5}, {"rate": 80.0, "n": 20}])
def test_too_little_is_no_estimate(changes):
    found = loop.rates(counted(rng(), slowdown=1.2, **changes), rng=rng())
    assert found.slowdown is None and "needed" in found.reason


def test_an_interval_that_says_nothing_is_no_estimate():
    shutters = passes.shutters(rng(), passes.Job(1.2, gap_s=4e-3, kind="two sizes"), 8)
    found = loop.rates(shutters, rng=rng())
    assert found.slowdown is None and "too unevenly" in found.reason


def test_six_long_shutters_of_even_passes_are_enough():
    """What a job of twenty seconds gets that passes its place every 16 ms."""
    job = passes.Job(1.3, gap_s=0.016, duration_s=0.05, around_s=0.17)
    found = [loop.rates(passes.shutters(rng(seed), job, 6), rng=rng(seed)).slowdown for seed in range(24)]
    assert sum(estimate.low <= 1.3 <= estimate.high for estimate in found) >= 21
    assert np.mean([estimate.high / estimate.low for estimate in found]) < 1.3


def test_no_shutters_at_all():
    assert loop.rates(table("shutters"), rng=rng()).slowdown is None


def test_hits_in_shutters_only_are_no_estimate():
    shutters = counted(rng(), slowdown=1.0).copy()
    shutters["before_hits"], shutters["after_hits"] = 0, 0
    found = loop.rates(shutters, rng=rng())
    assert found.slowdown is None and "only" in found.reason


def job_tables(n_shutters=60, **hits):
    """A job's tables with counts in its shutters, and no cycle."""
    tables = sample.tables(meter="loop", n_shutters=n_shutters)
    nodes = tables["nodes"].copy()
    nodes["entry"], nodes["n_hits"], nodes["counting_s"] = b"lmp+0x1440", 5000, 0.06
    return {
        **tables,
        "nodes": nodes,
        "shutters": counted(rng(), n=n_shutters, **hits),
        "cycles": table("cycles"),
    }


def test_the_meter_of_a_job_without_cycles():
    found = interference(sample.job(), job_tables(slowdown=1.5), rng=rng())
    assert found.meter == "loop" and found.slowdown.method == "loop"
    assert found.slowdown.value == pytest.approx(1.5, rel=0.05)
    assert found.overhead_frac == pytest.approx(0.6 / 60 + 0.06 / 2 / 60)


def test_what_counting_takes_is_shared_by_the_threads_that_run():
    tables = job_tables(slowdown=1.5)
    ranks = tables["ranks"].copy()
    ranks["cpu_s"] = 2 * sample.job().wall_s, np.nan
    one = interference(sample.job(), {**tables, "ranks": ranks}, rng=rng())
    ranks["cpu_s"] = 4 * sample.job().wall_s, 2 * sample.job().wall_s
    three = interference(sample.job(), {**tables, "ranks": ranks}, rng=rng())
    assert one.overhead_frac == pytest.approx(0.6 / 60 + 0.06 / 2 / 60)
    assert three.overhead_frac == pytest.approx(0.6 / 60 + 0.06 / 6 / 60)


def test_bursts_tell_where_the_place_was_not_passed():
    tables = job_tables(slowdown=1.5, rate=0.1)
    found = interference(sample.job(), tables, rng=rng())
    assert found.slowdown is None and "passed" in found.reason
    tables["cycles"] = sample.tables()["cycles"]
    found = interference(sample.job(), {**tables, "shutters": sample.tables()["shutters"]}, rng=rng())
    assert found.slowdown.method == "burst-matched" and not found.reason


def test_show_names_the_place():
    profile = complete(sample.job(), job_tables(slowdown=1.5), rng=rng())
    console = Console(record=True, width=120, file=io.StringIO())
    show(profile, console)
    assert "meter loop (lmp+0x1440)" in console.export_text()


EVEN = {
    "one thread": passes.Job(1.3),
    "threads": passes.Job(1.5, n_threads=4),
    "much": passes.Job(3.0, gap_s=1e-3, rate_cv=0.005),
    "cold": passes.Job(1.3, gap_s=5e-4, cold=0.5, rate_cv=0.005),
    "long": passes.Job(1.1, 0.016, 0.0, 0.05, 0.17),
}
UNEVEN = {
    "some": passes.Job(1.5, kind=0.3),
    "much": passes.Job(1.5, kind=1.0),
    "two sizes": passes.Job(1.5, gap_s=5e-4, kind="two sizes"),
    "in bursts": passes.Job(3.0, kind="in bursts"),
    "alternating": passes.Job(1.0, kind="alternating"),
    "turns": passes.Job(2.0, slice_s=0.003),
    "rare turns": passes.Job(1.08, slice_s=0.003),
}


def measured(job, n_shutters=50, n_runs=40):
    """Errors and half-widths, in the logarithm: by counts alone, and with what the edges tell."""
    result = []
    for is_counted_only in (True, False):
        for seed in range(n_runs):
            rows = passes.shutters(rng(seed), job, n_shutters).copy()
            if is_counted_only:
                rows["begin_window_ns"], rows["busy_frac"] = 0, 0
            found = loop.rates(rows, rng=rng(seed)).slowdown
            result.append((np.log(found.value / job.slowdown), np.log(found.high / found.value)))
    return np.array(result).reshape(2, n_runs, 2)


@pytest.mark.parametrize("name", EVEN)
def test_of_even_passes_the_parts_cut_off_count_too(name):
    counted, edged = measured(EVEN[name], 20, 24)
    assert np.sqrt(np.mean(edged[:, 0] ** 2)) < np.sqrt(np.mean(counted[:, 0] ** 2)) / 1.5
    assert edged[:, 1].mean() < counted[:, 1].mean() / 1.3
    assert np.sum(abs(edged[:, 0]) <= edged[:, 1]) >= 21


@pytest.mark.parametrize("name", UNEVEN)
def test_of_uneven_passes_the_estimate_is_no_worse(name):
    counted, edged = measured(UNEVEN[name], 50, 24)
    assert np.sqrt(np.mean(edged[:, 0] ** 2)) < 1.15 * np.sqrt(np.mean(counted[:, 0] ** 2))
    assert np.sum(abs(edged[:, 0]) <= edged[:, 1]) >= 20


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    gap_s=st.floats(4e-4, 4e-3), slowdown=st.floats(0.95, 4.0), n_threads=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_what_a_window_cuts_off_even_passes_is_known_whatever_their_phase(gap_s, slowdown, n_threads, seed):
    """Passes and parts of passes make the whole window, but for the rate in co-run, which is counted."""
    job = passes.Job(slowdown, gap_s, n_threads=n_threads, rate_cv=0.0)
    found = loop.blocks(passes.shutters(rng(seed), job, 30))
    assert loop._speeds(found, np.ones((1, 30)), 1.0)[0][0, 0] == pytest.approx(slowdown, rel=0.04)
    told = sum(pace * edge.inside + edge.outside - edge.mean
               for edge, pace in zip(found.edges, (slowdown, 1.0), strict=True))  # fmt: skip
    error = found.solo - told - slowdown * found.expected
    # One pass more or less in windows around, of a rate that all these are multiples of.
    most = 1.5 * n_threads * slowdown * job.duration_s / job.around_s
    assert abs(error).max() < most
