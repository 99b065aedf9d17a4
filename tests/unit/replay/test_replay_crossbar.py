"""Switches whose input ports pass one packet at a time: what a pencil gives, and what stays as it is."""

import math
from dataclasses import replace

import pytest
from replays import PACKET, PLAIN, SLOT_PS, flow, job, op, program, ps, tree

from mpicoloc.errors import DataError
from mpicoloc.replay.network import Lanes
from mpicoloc.replay.simulate import simulate

N = 6
BUFFERS = ((1 << 20,) * 3, (PACKET,) * 3, (0, 1, 2))


def ends_ps(network, jobs):
    return [ps(each.end_s) for each in simulate(network, jobs, PLAIN).jobs]


def freed_together(speedup, is_voq=False):
    """End of two lanes' packets that waited in one input buffer until both of their outputs became free.

    Hosts 4 and 5 send N packets each by one link to hosts 0 and 1, which until then receive from 2 and 3.
    """
    lanes = Lanes(*BUFFERS, high=((2, 1),), low=((0, 1), (1, 1)), high_limit=255)
    network = tree((4, 2), (1, 1), lanes=lanes, input_speedup=speedup, is_voq=is_voq)
    waiting = [flow(4 + i, i, N * PACKET, f"waits {i}", service_level=i) for i in range(2)]
    first = [flow(2 + i, i, 100 * PACKET, f"first {i}", service_level=2) for i in range(2)]
    return max(ends_ps(network, [*waiting, *first]))


@pytest.mark.parametrize("is_voq", [False, True])
@pytest.mark.parametrize(("speedup", "later_slots"), [(1.0, N - 1), (2.0, 0.5), (math.inf, 0)])
def test_packets_of_one_input_cross_one_after_the_other(speedup, later_slots, is_voq):
    """At a link's rate, all but the two in the output buffers take a slot each; at twice it, half a slot."""
    assert freed_together(speedup, is_voq) - freed_together(math.inf, is_voq) == later_slots * SLOT_PS


@pytest.mark.parametrize("k", [2, 3, 5])
def test_flows_of_different_inputs_that_share_an_output_take_as_long_as_without_a_limit(k):
    jobs = [flow(i, k + i, 10 * PACKET, f"f{i}") for i in range(k)]
    limited, free = (ends_ps(tree((k, 2), (1, 1), input_speedup=x), jobs) for x in (1.0, math.inf))
    assert sorted(limited) == sorted(free)


@pytest.mark.parametrize("speedup", [0.5, math.nan])
def test_an_input_port_is_not_slower_than_its_link(speedup):
    with pytest.raises(DataError, match="input_speedup must be at least 1"):
        tree((4,), (1,), input_speedup=speedup)


def test_a_small_packet_does_not_pass_a_large_one_of_its_flow_that_has_no_room():
    """Packets of other flows leave 100 bytes of the output's buffer: enough for the small ones only."""
    lanes = Lanes((1 << 20,), (PACKET + 100,), (0,))
    network = tree((4, 2), (1, 1), lanes=lanes, input_speedup=1.0, is_voq=True)
    sizes = [PACKET, 64] * 8
    n = len(sizes)
    sends = [op("ISEND", peer=1, value=size, tag=i, request=i) for i, size in enumerate(sizes)]
    receives = [op("IRECV", peer=0, tag=i, request=i) for i in range(n)]
    marks = [each for i in range(n) for each in (op("WAIT", request=i), op("MARK", value=i))]
    programs = [program(*sends, op("WAITALL", request=0, n=n)), program(*receives, *marks)]
    others = [flow(host, 0, 60 * PACKET, f"from {host}") for host in (2, 3, 5)]
    settings = replace(PLAIN, adapter_is_fifo=True)
    run = simulate(network, [job(programs, [1, 0], "flow"), *others], settings)
    came_ps = run.marks[run.marks["job"] == 0]["t_ps"]
    # One that overtook waits for the one before it, as messages are matched in their order.
    assert (came_ps[1:] - came_ps[:-1] >= 64 * SLOT_PS // PACKET).all()
