"""Lanes: weights, priorities, and the slots of the thesis."""

import pytest
from replays import PACKET, PLAIN, SLOT_PS, blocking, flow, job, op, program, ps, recv, tree

from mpicoloc.errors import DataError, UsageError
from mpicoloc.replay.network import Lanes, equal_lanes
from mpicoloc.replay.simulate import simulate

N = 40
BUFFERS = (1 << 20,) * 3


def three_flows(lanes, n_packets=(4 * N, 4 * N, 4 * N)):
    """Slots after which flows of three lanes from one switch to another over one link have ended."""
    network = tree((3, 2), (1, 1), lanes=lanes)
    jobs = [flow(i, 3 + i, n * PACKET, f"f{i}", service_level=i) for i, n in enumerate(n_packets)]
    way_ps = 4 * 25_000 + 3 * (100_000 + 204_800)
    found = [ps(each.end_s) - way_ps for each in simulate(network, jobs, PLAIN).jobs]
    assert all(each % SLOT_PS == 0 for each in found)
    return [each // SLOT_PS for each in found]


@pytest.mark.parametrize("unit", [0, 64])
def test_weights_are_shares(unit):
    """1:2:4 until the third flow has ended, then 1:2, then the first alone."""
    one = 1 if not unit else PACKET // 64 + 1  # 2000 bytes take 32 units of 64
    low = ((0, one), (1, 2 * one), (2, 4 * one))
    lanes = Lanes(BUFFERS, BUFFERS, (0, 1, 2), low=low, weight_unit_bytes=unit)
    assert three_flows(lanes) == [12 * N, 10 * N, 7 * N]


def test_equal_weights_take_turns():
    assert three_flows(equal_lanes(3, 3 << 20)) == [12 * N - 2, 12 * N - 1, 12 * N]


def test_high_priority_without_a_limit_goes_first():
    lanes = Lanes(BUFFERS, BUFFERS, (0, 1, 2), high=((2, 1),), low=((0, 1), (1, 1)), high_limit=255)
    assert three_flows(lanes) == [12 * N - 1, 12 * N, 4 * N]


@pytest.mark.parametrize(("limit", "n_high"), [(0, 1), (1, 3), (3, 7)])
def test_high_priority_lets_one_packet_pass_after_its_limit(limit, n_high):
    """A limit of 4096 bytes is used up by the third packet of 2000 bytes."""
    lanes = Lanes(BUFFERS[:2], BUFFERS[:2], (0, 1), high=((1, 1),), low=((0, 1),), high_limit=limit)
    network = tree((2, 2), (1, 1), lanes=lanes)
    n_packets = 21 * n_high
    jobs = [flow(i, 2 + i, n_packets * PACKET, f"f{i}", service_level=i) for i in range(2)]
    ends = [ps(each.end_s) for each in simulate(network, jobs, PLAIN).jobs]
    # High begins, and its last packet ends a turn of high ones, before which 20 low packets have passed.
    assert ends[0] - ends[1] == (n_packets - 20) * SLOT_PS


def iterations(n_packets, n_slots):
    """The thesis's application: packets on the link, then computation."""
    sender = program(
        op("LOOP", n=8),
        blocking(1, n_packets * PACKET),
        op("MARK", value=n_packets),
        op("COMPUTE", value=n_slots * SLOT_PS // 1000),
        op("MARK", value=n_slots),
        op("END"),
    )
    return [sender, program(op("LOOP", n=8), recv(0), op("END"))]


@pytest.mark.parametrize(
    ("low", "expected"),
    [(((0, 1), (1, 1)), (21, 18)), (((0, 3), (1, 1)), (27, 21)), (((1, 4), (0, 1)), (14, 27))],
    ids=["Figure 5.3", "Figure 5.4", "Figure 5.5"],
)
def test_slots_of_the_thesis(low, expected):
    """A sends 3 packets and computes 4 slots, B sends 4 and computes 2; both share a host's link.

    Jokanovic 2014, section 5.1.2: progress in the first 27 slots. The table's order says who begins.
    """
    lanes = Lanes(BUFFERS[:2], BUFFERS[:2], (0, 1), low=low)
    jobs = [
        job(iterations(3, 4), [0, 1], "A", service_level=0),
        job(iterations(4, 2), [0, 1], "B", service_level=1),
    ]
    run = simulate(tree((2,), (1,), lanes=lanes), jobs, PLAIN)
    assert (progress(run, 0), progress(run, 1)) == expected


def progress(run, i_job, n_slots=27):
    """Slots of the first 27 in which a job sent or computed, from the times at which its phases ended."""
    done, before = 0, 0
    for mark in run.marks[run.marks["job"] == i_job]:
        n, (end, rest) = int(mark["value"]), divmod(int(mark["t_ps"]), SLOT_PS)
        assert rest == 0
        if end >= n_slots:
            # Phases that are cut stall at their beginning, if at all: the other job has its turn first.
            return done + max(0, n_slots - before - (end - before - n))
        done, before = done + n, end
    raise AssertionError(f"only {before} slots")


def test_a_lane_without_weight_would_never_send():
    with pytest.raises(DataError, match=r"lane 1 of service level 1 has no weight above 0"):
        Lanes(BUFFERS, BUFFERS, (0, 1), low=((0, 1), (1, 0)))


def test_a_packet_must_fit_the_buffer():
    network = tree((2,), (1,), lanes=Lanes((1000,), (4000,)))
    with pytest.raises(UsageError, match=r"input buffer of lane 0 has 1000 bytes, but a packet 2000"):
        simulate(network, [flow(0, 1, 1)], PLAIN)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input_bytes": ()}, "number must be in"),
        ({"output_bytes": (1,)}, "give as many"),
        ({"lane_of_level": (3,)}, "lane 3 is not in"),
        ({"low": ((0, 256),)}, "weight of lane 0 must be in"),
        ({"high_limit": 256}, "high limit must be in"),
        ({"weight_unit_bytes": 32}, "64 .bytes."),
    ],
)
def test_numbers_of_lanes_are_checked(fields, message):
    with pytest.raises(DataError, match=message):
        Lanes(**{"input_bytes": BUFFERS, "output_bytes": BUFFERS, **fields})
