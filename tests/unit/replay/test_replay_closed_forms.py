"""Times that a pencil gives, to the picosecond."""

from dataclasses import replace

import numpy as np
import pytest
from replays import BPS, PACKET, PLAIN, SLOT_PS, flow, job, op, program, ps, recv, send, tree

from mpicoloc.replay.network import Lanes, crossbar, equal_lanes
from mpicoloc.replay.simulate import simulate

CABLE_PS, SWITCH_PS, FLIT_BYTES, FLIT_PS = 25_000, 100_000, 256, 204_800


def path_ps(n_links):
    """From the first byte's leaving the source to its coming to the destination."""
    return n_links * CABLE_PS + (n_links - 1) * (SWITCH_PS + FLIT_PS)


def ends_ps(network, jobs, settings=PLAIN):
    return [ps(each.end_s) for each in simulate(network, jobs, settings).jobs]


@pytest.mark.parametrize(("dst", "n_links"), [(1, 2), (4, 4), (16, 6)])
@pytest.mark.parametrize("n_bytes", [2000, 1000, 256, 100])
def test_one_packet(dst, n_links, n_bytes):
    flit_ps = min(n_bytes * 800, FLIT_PS)
    expected = n_links * CABLE_PS + (n_links - 1) * (SWITCH_PS + flit_ps) + n_bytes * 800
    assert ends_ps(tree((4, 4, 4), (1, 4, 4)), [flow(0, dst, n_bytes)]) == [expected]


@pytest.mark.parametrize("n_packets", [1, 7])
def test_terms_of_a_message(n_packets):
    """Eq. 1.2 of Jokanovic 2014: head, size over bandwidth, and nothing else without others."""
    run = simulate(tree((4, 4), (1, 4)), [flow(0, 4, n_packets * PACKET)], PLAIN)
    assert [ps(run.head_s[0]), ps(run.serial_s[0])] == [path_ps(4), n_packets * SLOT_PS]
    assert ps(run.message_s[0]) == path_ps(4) + n_packets * SLOT_PS


@pytest.mark.parametrize(
    ("late_ps", "transfer_ps", "congestion_ps"),
    [(SLOT_PS // 4, SLOT_PS * 3 // 4, 0), (0, 0, SLOT_PS), (SLOT_PS, 0, 0)],
)
def test_terms_of_contention(late_ps, transfer_ps, congestion_ps):
    """Eq. 1.3: B waits for the packet of A that is on the link, or for one that is queued before it."""
    jobs = [flow(0, 2, PACKET, "a"), flow(1, 3, PACKET, "b", start_s=late_ps / 1e12)]
    run = simulate(tree((2, 2), (1, 1)), jobs, PLAIN)
    assert ps(run.transfer_by_s[1, 0]) == transfer_ps
    assert ps(run.blocked_by_s[1, 0] - run.transfer_by_s[1, 0]) == congestion_ps
    assert ps(run.message_s[1] - run.head_s[1] - run.serial_s[1]) == transfer_ps + congestion_ps
    assert ps(run.blocked_by_s[1, 2]) == 0


def test_one_packet_stored_and_forwarded():
    network = tree((4, 4), (1, 4), flit_bytes=1 << 20)
    assert ends_ps(network, [flow(0, 4, PACKET)]) == [4 * (CABLE_PS + SLOT_PS) + 3 * SWITCH_PS]


@pytest.mark.parametrize("n_packets", [2, 7, 100])
def test_bandwidth_of_one_flow(n_packets):
    network = tree((4, 4), (1, 4))
    assert ends_ps(network, [flow(0, 4, n_packets * PACKET)]) == [path_ps(4) + n_packets * SLOT_PS]


def test_a_faster_link_waits_for_the_last_byte():
    """A packet must not run dry: it leaves the switch so late that its last byte has just come."""
    network = tree((2, 2), (1, 1), bps=(BPS, 4 * BPS))
    up_begins = CABLE_PS + SLOT_PS + SWITCH_PS - SLOT_PS // 4
    down_begins = up_begins + CABLE_PS + SWITCH_PS + FLIT_PS // 4
    to_host = down_begins + CABLE_PS + SWITCH_PS + FLIT_PS // 4
    assert ends_ps(network, [flow(0, 2, PACKET)]) == [to_host + SLOT_PS + CABLE_PS]


@pytest.mark.parametrize("k", [2, 3, 5, 8])
@pytest.mark.parametrize("is_voq", [False, True])
def test_flows_share_a_link(k, is_voq):
    """k senders below one switch, k receivers below another, one link between them: equal shares, no gap."""
    network = tree((k, 2), (1, 1), is_voq=is_voq)
    found = ends_ps(network, [flow(i, k + i, 10 * PACKET, f"f{i}") for i in range(k)])
    last = path_ps(4) + 10 * k * SLOT_PS
    assert max(found) == last
    # In each turn one packet of each: the last turns end one slot after the other.
    assert sorted(found) == [last - i * SLOT_PS for i in reversed(range(k))]


@pytest.mark.parametrize("n_hosts", [3, 9, 17])
def test_incast(n_hosts):
    sends = [program(send(0, 5 * PACKET)) for _ in range(n_hosts - 1)]
    receives = program(*(recv(i) for i in range(1, n_hosts)))
    network = crossbar(n_hosts, BPS)
    found = ends_ps(network, [job([receives, *sends], range(n_hosts))])
    assert found == [path_ps(2) + 5 * (n_hosts - 1) * SLOT_PS]


@pytest.mark.parametrize("w", [1, 2, 4, 8])
@pytest.mark.parametrize("routing", ["d-mod-k", "s-mod-k"])
def test_shift_on_a_slimmed_tree(w, routing):
    """All of 8 hosts of a switch send to those of the next: 8 / w flows on each up-link."""
    network = tree((8, 4), (1, w), routing=routing)
    pairs = [flow(i, (i + 8) % 32, 6 * PACKET, f"f{i}") for i in range(32)]
    assert max(ends_ps(network, pairs)) == path_ps(4) + 6 * (8 // w) * SLOT_PS


def test_shift_alone_on_a_full_tree_is_as_on_a_crossbar_but_for_the_way():
    pairs = [flow(i, (i + 8) % 32, 6 * PACKET, f"f{i}") for i in range(32)]
    full = ends_ps(tree((8, 4), (1, 8)), pairs)
    assert {found - path_ps(4) for found in full} == {
        found - path_ps(2) for found in ends_ps(crossbar(32, BPS), pairs)
    }


@pytest.mark.parametrize("n_buffers", [1, 2, 3, 6, 20])
@pytest.mark.parametrize("cable_ps", [25_000, 800_000, 4_000_000])
def test_credits_limit_the_bandwidth_of_a_long_cable(n_buffers, cable_ps):
    """A buffer of b packets lets b of them leave in the time that a packet and its credit take."""
    n_packets = 40
    buffer = (n_buffers * PACKET,)
    network = tree((2,), (1,), lanes=Lanes(buffer, (1 << 20,)), cable_latency_s=cable_ps / 1e12)
    n_turns, rest = divmod(n_packets - 1, n_buffers)
    # The credit of a packet leaves when its last byte has come. Both links have the same buffers.
    loop_ps = max(n_buffers * SLOT_PS, SLOT_PS + 2 * cable_ps)
    way_ps = 2 * cable_ps + SWITCH_PS + FLIT_PS
    expected = way_ps + n_turns * loop_ps + (rest + 1) * SLOT_PS
    assert ends_ps(network, [flow(0, 1, n_packets * PACKET)]) == [expected]


def test_mpi_latency_and_overheads_are_paid_once_a_message():
    settings = PLAIN.__class__(
        **{**PLAIN.__dict__, "mpi_latency_s": 1e-6, "send_overhead_s": 3e-7, "recv_overhead_s": 2e-7}
    )
    run = simulate(tree((4,), (1,)), [flow(0, 1, PACKET)], settings)
    assert [ps(end) for end in run.jobs[0].rank_end_s] == [300_000, 1_500_000 + path_ps(2) + SLOT_PS]


def test_rendezvous_adds_a_request_and_a_clearance():
    settings = PLAIN.__class__(**{**PLAIN.__dict__, "eager_bytes": PACKET - 1})
    control_ps = 2 * CABLE_PS + SWITCH_PS + 2 * 64 * 800
    run = simulate(tree((4,), (1,)), [flow(0, 1, PACKET)], settings)
    sender, receiver = (ps(end) for end in run.jobs[0].rank_end_s)
    assert receiver == 2 * control_ps + path_ps(2) + SLOT_PS
    assert sender == 2 * control_ps + SLOT_PS  # its last byte has left


def test_ranks_of_one_host_copy():
    settings = PLAIN.__class__(**{**PLAIN.__dict__, "local_latency_s": 5e-7, "local_bps": 1e10})
    run = simulate(tree((4,), (1,)), [flow(2, 2, 30_000)], settings)
    assert (ps(run.jobs[0].end_s), run.n_packet_hops) == (500_000 + 3_000_000, 0)


def test_windows_hold_what_a_link_sends_in_them():
    settings = PLAIN.__class__(**{**PLAIN.__dict__, "window_s": SLOT_PS * 5e-12})
    network = tree((4,), (1,))
    run = simulate(network, [flow(0, 1, 12 * PACKET)], settings)
    host_up = run.window_bytes[:, 0]
    assert host_up.tolist() == [5 * PACKET, 5 * PACKET, 2 * PACKET]
    assert run.utilisation_frac(network.link_bps)[:, 0] == pytest.approx([1, 1, 0.4])


def test_windows_double_where_there_would_be_too_many():
    many = PLAIN.__class__(**{**PLAIN.__dict__, "window_s": SLOT_PS * 1e-12, "n_windows_max": 5})
    run = simulate(tree((4,), (1,)), [flow(0, 1, 29 * PACKET)], many)
    assert run.window_s == pytest.approx(8 * SLOT_PS * 1e-12)
    assert run.window_bytes[:, 0].tolist() == [8 * PACKET, 8 * PACKET, 8 * PACKET, 5 * PACKET]


def test_equal_lanes_divide_a_port():
    assert equal_lanes(4, 65536).input_bytes == (16384,) * 4
    assert np.array(equal_lanes(3, 65536, (1, 2, 4)).low).tolist() == [[0, 1], [1, 2], [2, 4]]


@pytest.mark.parametrize("is_fifo", [False, True])
def test_latency_delays_messages_and_leaves_their_order(is_fifo):
    """Sends of one instant leave in their order, in every turn: with a latency the same times, later."""
    sizes, n_turns = (16000, 9000, 16000), 5
    sends = [op("ISEND", peer=1, value=size, tag=i, request=i) for i, size in enumerate(sizes)]
    receives = [part for i in range(3) for part in (recv(0, tag=i), op("MARK", value=i))]
    programs = [
        program(op("LOOP", n=n_turns), *sends, op("WAITALL", request=0, n=3), recv(1, tag=9), op("END")),
        program(op("LOOP", n=n_turns), *receives, send(0, 64, tag=9), op("END")),
    ]
    options = [replace(PLAIN, adapter_is_fifo=is_fifo, mpi_latency_s=s) for s in (0.0, 1e-6)]
    at_once, later = (
        simulate(tree((2,), (1,)), [job(programs, [0, 1])], each).marks["t_ps"] for each in options
    )
    delays = [(2 * turn + 1) * 1_000_000 for turn in range(n_turns) for _ in sizes]
    assert (later - at_once).tolist() == delays
