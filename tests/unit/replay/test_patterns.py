"""Synthetic patterns send what their names say."""

import numpy as np
import program_runner
import pytest
from hypothesis import given, strategies as st

from mpicoloc.errors import UsageError
from mpicoloc.replay.native import Operation
from mpicoloc.replay.programs import patterns

LINK_BPS = 1e9


def pattern(name, n_ranks, n_bytes=1000, **more):
    return patterns.by_name(name, n_ranks, n_bytes, LINK_BPS, np.random.default_rng(5), **more)


def test_incast_is_from_everybody_to_rank_0():
    assert program_runner.run(pattern("incast", 5)) == [(i, 0, 1000) for i in range(1, 5)]


@given(st.integers(2, 30), st.integers(1, 100))
def test_a_shift_is_a_permutation(n, k):
    if k % n == 0:
        with pytest.raises(UsageError, match="give a distance"):
            pattern(f"shift:{k}", n)
        return
    assert program_runner.run(pattern(f"shift:{k}", n)) == sorted((i, (i + k) % n, 1000) for i in range(n))


@given(st.integers(2, 12), st.integers(1, 3))
def test_an_alltoall_has_a_message_of_each_pair(n, n_times):
    pairs = [(i, j, 1000) for i in range(n) for j in range(n) if i != j]
    assert program_runner.run(pattern("alltoall", n, n_times=n_times)) == sorted(pairs * n_times)


def test_an_alltoall_of_many_ranks_is_one_short_program():
    job = pattern("alltoall", 2048)
    assert job.n_ranks == 2048
    assert sum(map(len, job.programs)) < 10


@given(st.integers(2, 20), st.floats(0.05, 2.0))
def test_uniform_offers_the_load(n, load):
    job = pattern(f"uniform:{load}", n, n_times=400)
    runner = program_runner.Runner(job)
    sent = runner.run()
    assert len(sent) == 400 * n
    assert all(src != dst for src, dst, _ in sent)
    offered = 400 * 1000 / (np.array(runner.compute_ns) * 1e-9) / LINK_BPS
    assert offered.mean() == pytest.approx(load, rel=0.15)


@pytest.mark.parametrize(
    ("n", "shape"), [(2, (2, 1, 1)), (8, (2, 2, 2)), (64, (4, 4, 4)), (7, (7, 1, 1)), (48, (4, 4, 3))]
)
def test_a_halo_is_exchanged_with_all_neighbours(n, shape):
    assert patterns.grid(n) == shape
    sent = program_runner.run(pattern("halo", n, n_times=2))
    assert len(sent) == 2 * n * sum(2 for width in shape if width > 1)
    assert all(src != dst for src, dst, _ in sent)


@given(st.integers(1, 5000))
def test_a_grid_has_all_ranks(n):
    a, b, c = patterns.grid(n)
    assert a * b * c == n
    assert a >= b >= c


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ring", "--pattern must be incast"),
        ("shift", "give a distance"),
        ("shift:0", "1 to 7"),
        ("uniform", "give the load"),
        ("uniform:-1", "above 0"),
        ("uniform:nan", "above 0"),
        ("halo:3", "must be"),
    ],
)
def test_a_wrong_pattern_is_told(name, words):
    with pytest.raises(UsageError, match=words):
        pattern(name, 8)


def test_a_pattern_of_one_host_is_told():
    with pytest.raises(UsageError, match="at least 2"):
        pattern("incast", 1)


def test_a_program_ends_its_loops():
    for name in ("incast", "shift:1", "alltoall", "halo"):
        for program in pattern(name, 8, n_times=3).programs:
            kinds = program["kind"].tolist()
            assert kinds.count(Operation.LOOP) == kinds.count(Operation.END) > 0
