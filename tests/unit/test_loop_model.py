"""The estimate of the meter loop on simulated hits with known truth."""

import io

import numpy as np
import pytest
import sample
from rich.console import Console

from mpicoloc.core.tables import table
from mpicoloc.model import loop
from mpicoloc.model.interference import complete, interference
from mpicoloc.report.table import show


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


@pytest.mark.parametrize("changes", [{"n": 7}, {"rate": 40.0, "n": 20}])
def test_too_little_is_no_estimate(changes):
    found = loop.rates(counted(rng(), slowdown=1.2, **changes), rng=rng())
    assert found.slowdown is None and "needed" in found.reason


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
