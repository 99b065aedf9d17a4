"""The sparse traffic of a job against plain dictionaries."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mpicoloc.core.network import Exchange, Traffic, TrafficSum, total
from mpicoloc.errors import DataError

N = 7
MESSAGES = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1), st.integers(0, 9)), max_size=40)


def reference(messages):
    sums = {}
    for src, dst, n_bytes in messages:
        if src != dst:
            old = sums.get((src, dst), (0, 0))
            sums[src, dst] = (old[0] + n_bytes, old[1] + 1)
    return sums


def rows(traffic):
    columns = (traffic.src, traffic.dst, traffic.n_bytes, traffic.n_messages)
    return {(int(s), int(d)): (b, n) for s, d, b, n in zip(*columns, strict=True)}


def of(messages):
    columns = np.array(messages, dtype=np.int64).reshape(-1, 3).T
    return Traffic.of(N, *columns)


@given(MESSAGES)
def test_messages_add_up_per_pair(messages):
    traffic = of(messages)
    assert rows(traffic) == reference(messages)
    keys = traffic.src * N + traffic.dst
    assert np.all(np.diff(keys) > 0), "sorted, each pair once"


@given(MESSAGES, MESSAGES)
def test_a_sum_is_the_traffic_of_all_messages(one, other):
    assert rows(of(one) + of(other)) == reference(one + other)
    assert rows(2 * of(one)) == reference(one + one)


@given(MESSAGES, st.permutations(range(N)))
def test_renumbering_moves_rows_and_columns(messages, names):
    renumbered = of(messages).renumbered(names, N + 3)
    assert rows(renumbered) == reference([(names[s], names[d], b) for s, d, b in messages])
    assert renumbered.n_ranks == N + 3


@given(MESSAGES)
def test_sent_and_received_are_sums_of_the_matrix(messages):
    traffic = of(messages)
    assert np.array_equal(traffic.sent_bytes(), traffic.matrix().sum(axis=1))
    assert np.array_equal(traffic.recv_bytes(), traffic.matrix().sum(axis=0))


@given(st.lists(st.integers(0, 19), unique=True, max_size=20), MESSAGES)
def test_rounds_of_an_exchange_are_all_pairs_once(members, messages):
    exchange = Exchange(20, np.array(members, dtype=np.int64), 5)
    seen = np.zeros((20, 20))
    for src, dst, n_bytes in exchange.rounds():
        assert len(set(dst.tolist())) == len(dst), "a permutation"
        seen[src, dst] += n_bytes
    wanted = np.zeros((20, 20))
    for src in members:
        for dst in members:
            wanted[src, dst] = 5 * (src != dst)
    assert np.array_equal(seen, wanted)
    assert np.array_equal(exchange.traffic().matrix(), wanted)


def test_parts_tell_their_rounds_one_after_the_other():
    traffic, exchange = of([(0, 1, 4), (3, 2, 2)]), Exchange(N, np.array([0, 1, 6]), 5)
    both = TrafficSum(N, (traffic, exchange))
    seen = np.zeros((N, N))
    for src, dst, n_bytes in both.rounds():
        seen[src, dst] += n_bytes
    assert np.array_equal(seen, both.traffic().matrix())
    assert seen.sum() == 6 + 5 * 6


def test_a_large_exchange_costs_no_more_than_its_members():
    exchange = Exchange(100_000, np.arange(100_000), 8)
    src, dst, n_bytes = next(exchange.rounds())
    assert n_bytes.sum() == 800_000 and np.array_equal(dst, (src + 1) % 100_000)


def test_a_rank_outside_the_job_is_refused():
    with pytest.raises(DataError, match=r"range \[0, 4\), got 4 to 4"):
        Traffic.of(4, [0], [4], [1])
    with pytest.raises(DataError, match=">= 0, got -1"):
        Traffic.of(4, [0], [1], [-1])
    with pytest.raises(DataError, match="4 and 5 ranks"):
        total(5, [Traffic.empty(4)])
    with pytest.raises(DataError, match="one length"):
        Traffic(4, *(np.zeros(n, dtype=np.int64) for n in (2, 2, 2, 3)))


def test_its_arrays_can_not_be_changed():
    traffic = of([(0, 1, 4)])
    with pytest.raises(ValueError, match="read-only"):
        traffic.n_bytes[0] = 1
