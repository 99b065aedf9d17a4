"""Time near the counted places, and far time that is attributed to them."""

import numpy as np
import pytest

from mpicoloc.core.profile import COUNT_WINDOWS, table
from mpicoloc.measure.count import far_with_passes, near_frac

N_SHUTTERS, N_PLACES, LENGTH_NS = 30, 20, 2e7


def windows(seed, far_frac):
    """Paces of places that the program passes in half of the windows, and far time; then what is asked."""
    rng = np.random.default_rng(seed)
    n = N_SHUTTERS * len(COUNT_WINDOWS)
    passes = rng.poisson(2e4 * (rng.random((n, N_PLACES)) < 0.5))
    frac = far_frac(rng, passes / 1e4) + rng.normal(0, 0.05, n)
    length_ns = np.full(n, LENGTH_NS)
    return passes.astype(float), np.clip(frac, 0, 1) * length_ns, length_ns, length_ns


def test_far_time_correlated_with_one_place_is_attributed_to_it():
    found, constant = far_with_passes(*windows(1, lambda rng, pace: 0.1 + 0.3 * pace[:, 3] / 2), N_SHUTTERS)
    assert found[3] == pytest.approx(0.3 * LENGTH_NS / 2e4, rel=0.1)
    assert not np.delete(found, 3).any() and constant == pytest.approx(0.1, abs=0.03)


def test_far_time_that_comes_and_goes_by_itself_goes_with_no_place():
    by_itself = [far_with_passes(*windows(seed, lambda rng, pace: rng.uniform(0, 0.5, len(pace))), N_SHUTTERS)
                 for seed in range(20)]  # fmt: skip
    assert sum(one.any() for one, _ in by_itself) <= 2


def test_an_exact_fit_chooses_a_place_once():
    passes = np.arange(60.0).reshape(60, 1)
    length_ns = np.full(60, 100.0)
    found, constant = far_with_passes(passes, passes[:, 0] / 2, length_ns, length_ns, N_SHUTTERS)
    assert found == pytest.approx([0.5]) and constant == pytest.approx(0.0, abs=1e-9)


def test_less_far_time_where_a_place_is_passed_is_none_that_goes_with_it():
    found, _ = far_with_passes(*windows(2, lambda rng, pace: 0.5 - 0.2 * pace[:, 0]), N_SHUTTERS)
    assert found[0] == 0


def test_without_windows_that_count_nothing_goes_with_passes():
    passes, far_ns, length_ns, weight = windows(3, lambda rng, pace: 0.1 + 0.3 * pace[:, 3] / 2)
    assert not far_with_passes(passes, far_ns, length_ns, 0 * weight, N_SHUTTERS)[0].any()
    assert not far_with_passes(passes, far_ns, length_ns, weight, 2)[0].any()
    assert not far_with_passes(0 * passes, far_ns, length_ns, weight, N_SHUTTERS)[0].any()


def test_a_window_wholly_in_mpi_and_a_shutter_without_samples():
    rows = {f"{when}_{what}": [0, 0] for when in COUNT_WINDOWS for what in ("samples", "near")}
    rows |= {"before_8_samples": [100, 0], "before_8_near": [49, 0], "during_samples": [60, 0]}
    found = near_frac(table("shutters", rows | {"during_near": [31, 0]}))
    assert found[0] == pytest.approx([0.5] * 7 + [0.49, 0.516], abs=0.01)
    assert found[1] == pytest.approx([0.5] * 9)
    assert near_frac(table("shutters", {"t0_ns": [1]})).tolist() == [[1.0] * 9]
