"""A job's traffic over time, against adding up every message in every window."""

import numpy as np
import pytest

from mpicoloc.core import network
from mpicoloc.core.network import Exchange, Placement, TimedMessages, Traffic
from mpicoloc.core.profile import table
from mpicoloc.errors import DataError
from mpicoloc.network import utilisation
from mpicoloc.network.traffic import job_traffic

TREE = network.parse_xgft("XGFT(2;2,2;1,1)", 1e9)
PLACEMENT = Placement([0, 1, 2, 3, 0])


def messages(rows):
    src, dst, start_s, end_s, n_bytes = (np.array(column) for column in zip(*rows, strict=True))
    return TimedMessages(src, dst, start_s, end_s, n_bytes)


def by_hand(made, window_s, n_windows):
    """Bytes/s of each level and mean bytes in transit of each window."""
    first = made.start_s.min()
    rates, transit = np.zeros((n_windows, TREE.height)), np.zeros(n_windows)
    for src, dst, start_s, end_s, n_bytes in zip(*vars(made).values(), strict=True):
        hosts = PLACEMENT.hosts[[src, dst]]
        for i in range(n_windows):
            low, high = first + i * window_s, first + (i + 1) * window_s
            overlap_s = max(0.0, min(end_s, high) - max(start_s, low))
            if end_s > start_s:
                part = overlap_s / (end_s - start_s)
            else:
                part = low <= start_s < high or (start_s == high and i == n_windows - 1)
            for level in range(TREE.height):
                apart = hosts[0] // 2**level != hosts[1] // 2**level
                rates[i, level] += apart * part * n_bytes / window_s
            transit[i] += (hosts[0] != hosts[1]) * n_bytes * overlap_s / window_s
    return rates, transit


@pytest.mark.parametrize("longest_s", [0.0, 1e-9, 0.3, 5.0])
def test_windows_are_what_adding_up_gives(longest_s):
    rng = np.random.default_rng(3)
    n = 60
    start_s = 100 + 4 * rng.random(n)
    ranks = rng.integers(0, 5, (2, n))
    made = TimedMessages(*ranks, start_s, start_s + longest_s * rng.random(n), rng.integers(0, 9, n))
    found = utilisation.windows(TREE, PLACEMENT, made, 0.7)
    rates, transit = by_hand(made, 0.7, len(found.in_transit_bytes))
    assert np.allclose(found.injection_bps, rates, atol=1e-6)
    assert np.allclose(found.in_transit_bytes, transit, atol=1e-6)
    assert found.start_s == start_s.min()


def test_a_burst_shows():
    """Ten messages at once in the second of four seconds, one message all the time."""
    made = messages([(0, 2, 0.0, 4.0, 40), *[(0, 1, 1.0, 2.0, 100)] * 10])
    found = utilisation.windows(TREE, PLACEMENT, made, 1.0)
    assert found.injection_bps.tolist() == [[10, 10], [1010, 10], [10, 10], [10, 10]]
    assert found.in_transit_bytes.tolist() == [40, 1040, 40, 40]


def test_no_message_at_all():
    none = np.array([], dtype=int)
    made = TimedMessages(none, none, none.astype(float), none.astype(float), none)
    assert utilisation.windows(TREE, PLACEMENT, made, 1.0).injection_bps.tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("rows", "window_s", "words"),
    [
        ([(0, 1, 0.0, 1.0, 1)], 0.0, "above 0 s"),
        ([(0, 1, 0.0, 1.0, 1)], 1e-9, "more than 1000000 windows"),
        ([(0, 5, 0.0, 1.0, 1)], 1.0, "names a rank"),
        ([(0, 1, 1.0, 0.0, 1)], 1.0, "no message may end before it begins"),
        ([(0, 1, float("nan"), 1.0, 1)], 1.0, "times must be finite"),
    ],
)
def test_what_is_wrong_is_told(rows, window_s, words):
    with pytest.raises(DataError, match=words):
        utilisation.windows(TREE, PLACEMENT, messages(rows), window_s)


NONE = messages([(0, 0, 10.0, 10.0, 0)])


def test_collective_calls_are_as_many_bytes_as_they_move_and_when_they_are_made():
    """Five ranks call MPI_Alltoall twice, the second time with three times as much, and MPI_Bcast once."""
    names = ["MPI_Alltoall", "MPI_Bcast", "MPI_Send"]
    ranks = np.tile(np.arange(5), 3)
    rows = job_traffic.CallRows(
        names,
        kind=np.repeat([0, 0, 1], 5),
        rank=ranks,
        start_s=np.repeat([10.0, 12.0, 14.0], 5),
        end_s=np.repeat([11.0, 12.5, 15.0], 5),
        n_bytes=np.repeat([100, 300, 0], 5),
    )
    by_call = {
        "alltoall": Exchange(5, np.arange(5), 40),
        "bcast": Traffic.of(5, [0, 0], [2, 4], [700, 50]),
        "": Traffic.of(5, [], [], []),
    }
    sites = table("call_sites", {"rank": ranks, "call": np.repeat(names[:2], [10, 5]), "n": np.ones(15)})
    calls = job_traffic.timed_calls(rows, by_call, sites, 5)
    found = utilisation.windows(TREE, PLACEMENT, NONE, 1.0, calls)
    of_all = utilisation.level_bytes(TREE, PLACEMENT, by_call["alltoall"])
    assert np.allclose(found.injection_bps[0], of_all / 4)
    assert np.allclose(found.injection_bps[1], 0)
    assert np.allclose(found.injection_bps[2], of_all * 3 / 4)
    assert np.allclose(found.injection_bps[4], [700, 700])
    assert found.in_transit_bytes[2] == pytest.approx(found.injection_bps[2][0] / 2)


def test_of_calls_that_the_trace_has_lost_nothing_is_made_up():
    rows = job_traffic.CallRows(
        ["MPI_Ibcast"], np.zeros(1, int), np.zeros(1, int), np.ones(1), np.ones(1) * 2, np.ones(1)
    )
    sites = table(
        "call_sites", {"rank": [0, 0, 7], "call": ["MPI_Bcast", "MPI_Ibcast", "MPI_Bcast"], "n": [3, 1, 9]}
    )
    (calls,) = job_traffic.timed_calls(rows, {"bcast": Traffic.of(5, [0], [2], [800])}, sites, 5)
    found = utilisation.windows(TREE, PLACEMENT, messages([(0, 0, 1.0, 1.0, 0)]), 1.0, [calls])
    assert found.injection_bps.tolist() == [[200, 200]]
