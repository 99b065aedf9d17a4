"""Routes: those of the closed forms, random and adaptive ones, failed links, tables, and circles."""

from dataclasses import replace

import numpy as np
import pytest
from replays import BPS, PACKET, PLAIN, all_to_all, flow, job, op, program, tree

from mpicoloc.core.network import Topology
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network import routing
from mpicoloc.network.topology.up_down import up_link
from mpicoloc.replay.network import ROUTINGS, Lanes, SimulatedNetwork, native, with_tables
from mpicoloc.replay.simulate import simulate

TREES = [((4, 3), (1, 2)), ((3, 2, 2), (1, 2, 3)), ((2, 3, 2), (2, 1, 2)), ((4, 4), (1, 4))]


def loads(run, topology):
    """Bytes up and down of each level's links."""
    total, up, down = run.sent_bytes.sum(axis=1), [], []
    for level in range(topology.height):
        begin, n = up_link(topology, level, 0), topology.n_links(level)
        up.append(total[begin : begin + n])
        down.append(total[begin + n : begin + 2 * n])
    return up, down


@pytest.mark.parametrize(("m", "w"), TREES)
@pytest.mark.parametrize("name", ["d-mod-k", "s-mod-k"])
def test_links_carry_what_the_closed_form_says(m, w, name):
    topology = Topology(m, w, (BPS,) * len(m))
    n = topology.n_hosts
    run = simulate(tree(m, w, routing=name), [all_to_all(n)], PLAIN)
    src, dst = (side.ravel() for side in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    expected = routing.link_loads(topology, src, dst, 1000.0 * (src != dst), routing.by_name(name))
    for found, wanted in zip(loads(run, topology), (expected.up, expected.down), strict=True):
        for level in range(topology.height):
            assert found[level].tolist() == wanted[level].tolist()


@pytest.mark.parametrize(("m", "w"), TREES)
@pytest.mark.parametrize("name", ["random", "random-flow", "adaptive"])
def test_other_routes_climb_as_high_and_no_higher(m, w, name):
    topology = Topology(m, w, (BPS,) * len(m))
    n = topology.n_hosts
    found = loads(simulate(tree(m, w, routing=name), [all_to_all(n)], PLAIN), topology)
    wanted = loads(simulate(tree(m, w), [all_to_all(n)], PLAIN), topology)
    for side, plain in zip(found, wanted, strict=True):
        assert [level.sum() for level in side] == [level.sum() for level in plain]


def up_links_of(run, n_up=4):
    """Bytes of a flow on each of the up-links of host 0's switch, in XGFT(2;4,4;1,4)."""
    return run.sent_bytes[32 : 32 + n_up, 0].tolist()


def test_random_packets_use_all_ways_and_flows_one():
    long = [flow(0, 4, 4000 * PACKET)]
    each = up_links_of(simulate(tree((4, 4), (1, 4), routing="random"), long, PLAIN))
    assert min(each) > 850 * PACKET and max(each) < 1150 * PACKET
    one = up_links_of(simulate(tree((4, 4), (1, 4), routing="random-flow"), long, PLAIN))
    assert sorted(one) == [0, 0, 0, 4000 * PACKET]


def test_the_seed_decides():
    network = tree((4, 4), (1, 4), routing="random")
    runs = [
        up_links_of(simulate(network, [flow(0, 4, 99 * PACKET)], replace(PLAIN, seed=s))) for s in (1, 1, 2)
    ]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("name", ROUTINGS)
@pytest.mark.parametrize("eager_bytes", [0, 1 << 40])
def test_jobs_that_share_nothing_take_as_long_as_alone(name, eager_bytes):
    """Hosts under different switches; each job draws its own routes, whatever else is simulated."""
    network = tree((8, 4), (1, 2), routing=name)
    options = replace(PLAIN, eager_bytes=eager_bytes, mpi_latency_s=1e-6)
    pair = [
        replace(all_to_all(16, n_bytes), host_of_rank=np.arange(first, first + 16))
        for first, n_bytes in ((0, 16384), (16, 10000))
    ]
    alone = [simulate(network, [each], options).jobs[0].end_s for each in pair]
    assert [each.end_s for each in simulate(network, pair, options).jobs] == alone


def test_copies_of_a_job_on_the_same_hosts_draw_different_routes():
    network = tree((4, 4), (1, 4), routing="random")
    one = [flow(0, 4, 99 * PACKET)]
    once, twice = (up_links_of(simulate(network, one * n, PLAIN)) for n in (1, 2))
    assert twice != [2 * n_bytes for n_bytes in once]


def test_adaptive_routes_take_the_idle_way():
    """Two flows from one switch to another do not meet on the way up; fixed routes of both are the same."""
    pairs = [flow(0, 4, 200 * PACKET, "a"), flow(1, 8, 200 * PACKET, "b")]
    fixed, adaptive = (
        simulate(tree((4, 4), (1, 4), routing=name), pairs, PLAIN) for name in ("d-mod-k", "adaptive")
    )
    assert fixed.jobs[0].end_s > 1.9 * adaptive.jobs[0].end_s


@pytest.mark.parametrize("name", ["d-mod-k", "random", "random-flow", "adaptive"])
def test_failed_links_carry_nothing(name):
    topology = Topology((3, 2, 2), (1, 2, 3), (BPS,) * 3)
    failed = [(1, 0), (2, 3)]
    network = tree(topology.m, topology.w, routing=name, failed=failed)
    run = simulate(network, [all_to_all(12)], PLAIN)
    up, down = loads(run, topology)
    assert all(up[level][link] == down[level][link] == 0 for level, link in failed)
    assert up[0].sum() == 12 * 11 * 1000


def test_a_host_with_two_links_sends_and_gets_by_the_one_that_is_left():
    run = simulate(tree((3, 2), (2, 1), failed=[(0, 0)]), [all_to_all(6)], PLAIN)
    up, down = loads(run, Topology((3, 2), (2, 1), (BPS, BPS)))
    assert (up[0][:2].tolist(), down[0][:2].tolist()) == ([0, 5000], [0, 5000])


def test_a_host_that_is_cut_off_is_told():
    with pytest.raises(DataError, match=r"host 0 cannot reach host 2"):
        tree((2, 2), (1, 1), failed=[(1, 0)])
    with pytest.raises(DataError, match=r"host 0 cannot reach host 0"):
        tree((1,), (1,), failed=[(0, 0)])
    with pytest.raises(DataError, match=r"link 9 of level 1"):
        tree((2, 2), (1, 1), failed=[(1, 9)])


def ring(n=3, is_voq=False, n_packets=1):
    """n switches in a ring, a host at each; all routes go one way round, so buffers may wait in a circle."""
    hosts, switches = np.arange(n), np.arange(n, 2 * n)
    to_switch, to_host, round_ = np.arange(n), np.arange(n, 2 * n), np.arange(2 * n, 3 * n)
    table = np.tile(round_[:, None], (1, n))
    table[hosts, hosts] = to_host
    buffers = (n_packets * PACKET,)
    return SimulatedNetwork(
        n_hosts=n,
        n_switches=n,
        link_from=np.concatenate([hosts, switches, switches]),
        link_to=np.concatenate([switches, hosts, np.roll(switches, -1)]),
        link_level=np.repeat([0, 0, 1], n),
        link_bps=np.full(3 * n, BPS),
        link_latency_ps=np.full(3 * n, 25_000),
        first=to_switch,
        next=table,
        lanes=Lanes(buffers, buffers),
        is_voq=is_voq,
    )


@pytest.mark.parametrize("is_voq", [False, True])
def test_a_deadlock_of_buffers_is_told_with_its_circle(is_voq):
    pairs = [flow(i, (i + 2) % 3, 50 * PACKET, f"f{i}") for i in range(3)]
    with pytest.raises(DataError) as caught:
        simulate(ring(is_voq=is_voq), pairs, PLAIN)
    text = str(caught.value)
    assert text.startswith("network deadlock at 0.0000")
    circle = ["switch 0 to switch 1", "switch 1 to switch 2", "switch 2 to switch 0"]
    assert all(link in text for link in circle)


@pytest.mark.parametrize("is_voq", [False, True])
def test_a_deadlock_is_found_while_another_job_goes_on(is_voq):
    pairs = [flow(i, (i + 2) % 4, 50 * PACKET, f"f{i}") for i in range(4)]
    busy = job([program(op("LOOP", n=1000), op("COMPUTE", value=1), op("END"))], [0], "busy", restarts=True)
    with pytest.raises(DataError, match="network deadlock"):
        simulate(ring(4, is_voq), [*pairs, busy], PLAIN)


@pytest.mark.parametrize("is_voq", [False, True])
def test_a_deadlock_of_one_lane_is_found_while_another_lane_uses_the_same_links(is_voq):
    buffers = (PACKET, 16 * PACKET)
    network = replace(ring(4, is_voq), lanes=Lanes(buffers, buffers, (0, 1)))
    pairs = [flow(i, (i + 2) % 4, 50 * PACKET, f"f{i}") for i in range(4)]
    turns = program(
        op("LOOP", n=200),
        op("IRECV", peer_mode=native.RP_SHIFT, peer=-1, request=0),
        op("ISEND", peer_mode=native.RP_SHIFT, peer=1, value=4 * PACKET, request=1),
        op("WAITALL", request=0, n=2),
        op("END"),
    )
    busy = job([turns] * 4, range(4), "busy", service_level=1, restarts=True)
    n_looks = 0

    def give_up(now_s, n_done):
        nonlocal n_looks
        n_looks += 1
        assert n_looks < 5, "the deadlock lasts since the first look"

    with pytest.raises(DataError, match="network deadlock"):
        simulate(network, [*pairs, busy], PLAIN, give_up)


def test_the_same_traffic_passes_where_there_is_room():
    pairs = [flow(i, (i + 2) % 3, 50 * PACKET, f"f{i}") for i in range(3)]
    run = simulate(ring(n_packets=60), pairs, PLAIN)
    assert run.received_bytes[3:6].sum() == 150 * PACKET


def test_tables_in_a_circle_are_told():
    network = ring()
    lost = np.tile(np.arange(6, 9)[:, None], (1, 3))
    with pytest.raises(DataError, match="never arrive"):
        simulate(with_tables(network, lost), [flow(0, 1, 10)], PLAIN)


def test_tables_of_a_subnet_manager_replace_the_routes():
    network = tree((4, 4), (1, 4))
    table = network.next.copy()
    up = network.sets[0]
    for switch in range(4):
        row = table[switch]
        row[row < 0] = up[1] + 4 * switch  # all by the second way
    for root in range(4, 8):
        assert (table[root] >= 0).all()
    run = simulate(with_tables(network, table), [flow(0, 4, PACKET), flow(1, 6, PACKET)], PLAIN)
    assert up_links_of(run) == [0, 2 * PACKET, 0, 0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"link_to": np.zeros(3, int)}, "link_to must have 9 numbers"),
        ({"link_bps": np.zeros(9)}, "link rates must be"),
        ({"next": np.zeros((3, 3), int)}, "from node 3 to host 0, the next link begins at node 0"),
        ({"first": np.array([0, 1, 9])}, "first names a link or set that does not exist"),
        ({"routing": "x"}, "routing must be one of"),
        ({"flit_bytes": 0}, "flit_bytes"),
        ({"link_latency_ps": np.full(9, -1)}, "latencies"),
        ({"link_to": np.full(9, 6)}, "nodes in link_to must be"),
    ],
)
def test_networks_are_checked(fields, message):
    with pytest.raises(DataError, match=message):
        replace(ring(), **fields)


def test_hardware_is_checked():
    with pytest.raises(UsageError, match="2 cable latencies for 1 levels"):
        tree((2,), (1,), cable_latency_s=(1e-9, 1e-9))
    with pytest.raises(UsageError, match="routing must be one of"):
        tree((2,), (1,), routing="best")
