"""`benchmarks/toggled/inside_estimates.py`: the clock without pauses, results without the stopped time."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mpicoloc.core.profile import table

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def inside():
    folders = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "toggled")]
    sys.path[:0] = folders
    import inside_estimates
    import progress_ratio

    yield SimpleNamespace(estimates=inside_estimates, Run=progress_ratio.Run)
    for folder in folders:
        sys.path.remove(folder)


def shutters(begins_s, length_s=0.1):
    epoch = (np.asarray(begins_s) * 1e9).astype(np.uint64)
    t1_ns = epoch + np.uint64(length_s * 1e9 - 200_000)
    before_ns = np.full(len(epoch), 90_000_000)
    columns = {
        "epoch": epoch,
        "t0_ns": epoch + np.uint64(10_000_000),
        "t1_ns": t1_ns,
        "before_window_ns": before_ns,
    }
    return table("shutters", columns | {"verdict": np.ones(len(epoch))})


def seen(inside, own, others, switched=((0.0, 9.0, 1.0),)):
    profiles = [SimpleNamespace(tables={"shutters": rows}) for rows in (own, others)]
    return inside.estimates.Seen(profiles[0], profiles[1:], np.array(switched))


def test_the_clock_stands_still_in_pauses_for_the_co_runner(inside):
    run = inside.Run(np.array([0.5, 1.05, 2.0, 3.5]), np.zeros(4, int), np.array([[0.0, 4.0, 1.0]]))
    active = seen(inside, shutters([2.5]), shutters([1.0, 3.0])).active(run)
    pause_s = 0.1 + 0.001
    assert active.events == pytest.approx([0.5, 1.0, 2.0 - pause_s, 3.5 - 2 * pause_s], abs=1e-4)
    assert active.windows[0, 1] == pytest.approx(4.0 - 2 * pause_s, abs=1e-4)
    assert active.solo[0] == pytest.approx([2.5 - pause_s, 2.6 - pause_s + 0.001], abs=1e-4)


def test_shutters_near_stopped_times_are_left_out(inside):
    switched = [(0.0, 2.0, 1.0), (2.0, 3.0, 0.0), (3.0, 5.0, 1.0)]
    one = seen(inside, shutters([1.0, 1.92, 2.5, 3.1, 4.0]), shutters([]), switched)
    assert one.tables_beside()["shutters"]["epoch"] / 1e9 == pytest.approx([1.0, 4.0])


@pytest.mark.parametrize("slowdown", [1.0, 1.3, 3.0])
def test_the_stopped_time_is_taken_out_of_a_mixed_slowdown(inside, slowdown):
    mixed = 1 / (0.7 / slowdown + 0.3)
    assert inside.estimates.without_stopped(mixed, 0.3) == pytest.approx(slowdown)
    assert inside.estimates.without_stopped(4.0, 0.3) == np.inf
