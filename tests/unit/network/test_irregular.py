"""Networks that are no XGFT: routes go up and then down, are the shortest such, and packets arrive."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from replays import PACKET, PLAIN, all_to_all
from trees import QUICK, topologies

from mpicoloc.batch import inputs
from mpicoloc.cli.main import main
from mpicoloc.core.network import Placement, Topology, Traffic, link_ends, node_name
from mpicoloc.errors import DataError
from mpicoloc.network import routing, utilisation
from mpicoloc.network.topology import readers
from mpicoloc.network.topology.fabric import recognise
from mpicoloc.network.topology.graph import Graph
from mpicoloc.network.topology.irregular import Irregular
from mpicoloc.replay.network import ROUTINGS, Hardware, equal_lanes, of_fabric
from mpicoloc.replay.simulate import simulate


def cables(topology):
    """Both ends of all links, by name."""
    return [
        (node_name(level, int(lower)), node_name(level + 1, int(upper)))
        for level in range(topology.height)
        for lower, upper in zip(*link_ends(topology, level), strict=True)
    ]


def graph_of(links, rates=None):
    ports = {}
    for one, other in links:
        rate = (rates or {}).get((one, other))
        ports.setdefault(one, []).append((other, rate))
        ports.setdefault(other, []).append((one, rate))
    return Graph(tuple(node for node in ports if node[0] == "h"), {n: tuple(r) for n, r in ports.items()}, {})


def hops(network, routes, src, dst):
    """Numbers of links of all ways that the tables allow; each goes up, then down."""
    links = {}

    def follow(node, has_gone_down):
        if node == dst:
            return {0}
        entry = int(
            routes.first[node] if node < network.n_hosts else routes.next[node - network.n_hosts, dst]
        )
        found = set()
        for link in [entry] if entry >= 0 else routes.sets[-1 - entry].tolist():
            is_up = bool(network.links.is_up[link])
            assert not (has_gone_down and is_up), "up after down"
            found |= {1 + n for n in follow(int(network.links.end[link]), has_gone_down or not is_up)}
            links[link] = is_up
        return found

    return follow(src, has_gone_down=False)


def shortest(network, src, dst):
    """Links of the shortest way up and then down, by all ways of that length."""
    ends, n, reached = network.links, 0, {(src, True)}
    while not any(node == dst for node, _ in reached):
        n, reached = (
            n + 1,
            {
                (int(ends.end[i]), bool(ends.is_up[i]))
                for node, climbs in reached
                for i in np.flatnonzero(ends.begin == node)
                if climbs or not ends.is_up[i]
            },
        )
        assert reached
    return n


@st.composite
def irregular(draw):
    """Trees without some links between switches, with some inside levels."""
    topology = draw(topologies(max_count=3))
    links = cables(topology)
    upper = [link for link in links if link[0][0] == "s"]
    cut = draw(st.sets(st.sampled_from(upper), max_size=3)) if upper else set()
    switches = sorted({node for link in upper for node in link})
    pairs = [pair for pair in itertools.combinations(switches, 2) if pair[0][:2] == pair[1][:2]]
    more = draw(st.sets(st.sampled_from(pairs), max_size=3)) if pairs else set()
    assume(cut or more)
    return graph_of([*(link for link in links if link not in cut), *sorted(more)])


@settings(QUICK, max_examples=150)
@given(irregular(), st.sampled_from(ROUTINGS))
def test_any_pair_has_a_shortest_way_up_and_down_by_which_packets_arrive(graph, name):
    try:
        fabric = recognise(graph, 1e9)
    except DataError as error:
        assert "no path leads from" in str(error)
        return
    network = fabric.topology
    assume(isinstance(network, Irregular))
    assert sorted(fabric.host_names) == sorted(graph.hosts)
    n = network.n_hosts
    machine = inputs.of_fabric(fabric)
    assert not machine.subtree[-1].any() and sorted(machine.host_names) == sorted(graph.hosts)
    for lower, upper in itertools.pairwise([np.arange(n), *machine.subtree]):
        assert (np.diff(upper) >= 0).all(), "hosts of a subtree follow each other"
        assert len(set(zip(lower.tolist(), upper.tolist(), strict=True))) == len(np.unique(lower))
    has_one_port = (np.bincount(network.lower)[:n] == 1).all()
    for src, dst in itertools.permutations(range(n), 2):
        found, best = hops(network, network.tables, src, dst), shortest(network, src, dst)
        # Hosts with several ports take turns with them.
        assert found == {best} if has_one_port else min(found) >= best
    if n > 1:
        # Buffers of two packets: a circle of packets that wait for each other would soon be closed.
        hardware = Hardware(lanes=equal_lanes(1, 2 * PACKET))
        run = simulate(of_fabric(fabric, name, hardware), [all_to_all(n, 3 * PACKET)], PLAIN)
        sent = run.sent_bytes.sum(axis=1)
        assert sent[network.links.end < n].sum() == n * (n - 1) * 3 * PACKET
        if name in ("d-mod-k", "s-mod-k"):
            src, dst = (side.ravel() for side in np.indices((n, n)))
            loads = routing.link_loads(network, src, dst, np.full(n * n, 3 * PACKET), routing.by_name(name))
            sides = zip(loads.up, loads.down, strict=True)
            assert np.array_equal(np.concatenate([side for level in sides for side in level]), sent)


def tree_text(*lines):
    return "".join(f"SwitchName={line}\n" for line in lines)


ISLANDS = [
    ("s1-0", "s2-0"), ("s1-1", "s2-0"), ("s1-2", "s2-1"), ("s1-3", "s2-1"), ("s2-0", "s2-1"),
    *((f"s1-{i // 2}", f"h{i}") for i in range(8)),
]  # fmt: skip


def test_levels_of_islands_that_are_joined_at_the_top():
    """Eight hosts, one byte from each to each: L0 all, L1 what leaves a switch, L2 what leaves an island."""
    fabric = recognise(graph_of(ISLANDS, {("s2-0", "s2-1"): 3.0}), 1.0)
    network, all_hosts = fabric.topology, Placement(np.arange(8))
    src, dst = (side.ravel() for side in np.indices((8, 8)))
    traffic = Traffic.of(8, src[src != dst], dst[src != dst], np.ones(56, int), np.ones(56, int))
    levels = utilisation.utilisation(network, all_hosts, traffic, 1.0)
    assert [row.sent_bytes for row in levels] == [56, 48, 32]
    assert [row.available_bps for row in levels] == [8, 4, 2 * 3.0]
    assert utilisation.most_sharing_jobs(network, Placement(np.array([0, 7]))).tolist() == [0, 2, 6]
    for route in (routing.d_mod_k, routing.s_mod_k, routing.random_route(0)):
        loads = utilisation.job_link_loads(network, all_hosts, traffic, route)
        assert [loads.up[2].sum(), loads.down[2].sum()] == [16, 16]
        assert [side.sum() for side in loads.down] == [56, 48, 16]
    assert network.end_names(2, 0) == ("s2-0", "s2-1")
    assert [network.subtree(level, np.arange(8)).tolist() for level in (1, 2, 3)] == [
        [0, 0, 1, 1, 2, 2, 3, 3], [0] * 4 + [1] * 4, [0] * 8,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("links", "levels"),
    [
        ([("h0", "s2-0"), *cables(Topology((2, 3), (1, 2), (1.0, 1.0)))[1:]], {"s2-0": 2, "s1-0": 1}),
        ([(f"h{i}", f"s1-{i // 2}") for i in range(4)]
         + [(f"s1-{i}", f"s2-{j}") for i in range(3) for j in range(2) if (i, j) != (0, 0)],
         {"s1-2": 1, "s2-0": 2}),
        ([(f"h{i}", f"s1-{i}") for i in range(4)] + [(f"s1-{i}", f"s1-{(i + 1) % 4}") for i in range(4)],
         {"s1-0": 1, "s1-3": 1}),
        ([*((f"h{i}", f"s1-{i}") for i in range(3)),
          ("s1-0", "s2-0"), ("s1-1", "s2-0"), ("s1-1", "s2-1"), ("s1-2", "s2-1")],
         {"s2-0": 2, "s2-1": 2}),
    ],
    ids=["host on an upper switch", "first switch without hosts", "ring of switches", "no switch above all"],
)  # fmt: skip
def test_levels_of_switches(links, levels):
    network = recognise(graph_of(links), 1.0).topology
    found = dict(zip(network.names, network.node_level.tolist(), strict=True))
    assert {name: found[name] for name in levels} == levels
    for src, dst in itertools.permutations(range(network.n_hosts), 2):
        assert hops(network, network.tables, src, dst) == {shortest(network, src, dst)}


def test_a_switch_that_others_send_down_to_sends_down():
    """From s1-5 the only way to h0 is along the row, by s1-4, for which the way up would be shorter."""
    row = [(f"s1-{i}", f"s1-{i + 1}") for i in range(5)]
    hosts = [(f"h{i}", f"s1-{i}") for i in range(6)]
    network = recognise(graph_of([*hosts, *row, ("s1-0", "s2-0"), ("s1-4", "s2-0")]), 1.0).topology
    assert shortest(network, 4, 0) == 4
    assert [hops(network, network.tables, src, 0) for src in (5, 4, 3)] == [{7}, {6}, {5}]
    assert hops(network, network.tables, 0, 4) == {4}


def test_destinations_are_spread_over_the_links_that_are_left():
    """A switch has 7 of its 8 up-links; they lead to 56 other hosts, eight each."""
    topology = Topology((8, 8), (1, 8), (1.0, 1.0))
    network = recognise(
        graph_of([link for link in cables(topology) if link != ("s1-0", "s2-3")]), 1.0
    ).topology
    dst = np.arange(8, 64)
    loads = routing.link_loads(network, np.zeros(56, int), dst, np.ones(56))
    assert loads.up[1][loads.up[1] > 0].tolist() == [8] * 7


def test_hosts_that_no_cable_joins_are_refused_by_name(tmp_path, capsys):
    (tmp_path / "net").write_text(tree_text("a Nodes=n[0-1]", "b Nodes=n[2-3]"))
    argv = ["replay", "--pattern", "alltoall", "--hosts", "4", "--bytes", "9"]
    assert main([*argv, "--topology", str(tmp_path / "net")]) == 3
    assert "no path leads from host 'n0' to host 'n2': mend the cabling" in capsys.readouterr().err


def test_the_reason_names_the_level_of_each_end_of_a_link(tmp_path):
    text = tree_text("top Switches=low,mid", "low Nodes=n[0-1]", "mid Switches=leaf", "leaf Nodes=n2")
    assert "joins 'top' of level 3 and 'low' of level 1" in readers.read(text, "net", 1.0).notes[0]


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--slimming", "2"], 2, "only an XGFT can be slimmed"),
        (["--up-links", "1,2"], 2, "up-links 1,2 apply only to an XGFT"),
        (["--failed", "0:0"], 3, "host n0 cannot reach host n1 any more"),
        (["--failed", "1:0", "--placement", "F2"], 0, "'t1' of level 2 has 2 neighbours down"),
        (["--link-rate", "1Gbit/s,2Gbit/s"], 2, "2 link rates for a network of 3 levels"),
        (["--placement", "F5"], 2, "has 4 hosts on a first-level switch"),
    ],
)
def test_flags_on_an_irregular_network(tmp_path, capsys, flags, code, message):
    lines = ["a Nodes=n[0-3]", "b Nodes=n[4-5]", "c Nodes=n[6-7]", "t1 Switches=a,b", "t2 Switches=c"]
    text = tree_text(*lines, "t3 Switches=a,b,c", "top Switches=t1,t2,t3")
    (tmp_path / "topology.conf").write_text(text)
    argv = ["replay", "--pattern", "alltoall", "--hosts", "6", "--bytes", "9", "--json"]
    assert main([*argv, "--topology", str(tmp_path / "topology.conf"), *flags]) == code
    told = capsys.readouterr()
    assert message in told.err
    assert code or json.loads(told.out)["jobs"][0]["t_sharing_s"] > 0


@pytest.mark.parametrize(("m", "w"), [((4, 4), (1, 2)), ((2, 3, 2), (1, 2, 2))])
def test_a_first_switch_that_lost_all_hosts_has_free_ports_in_a_complete_tree(m, w):
    topology = Topology(m, w, (1.0,) * len(m))
    links = [link for link in cables(topology) if link[1] != "s1-1"]
    fabric = recognise(graph_of(links), 1.0)
    assert fabric.topology == topology
    assert fabric.hosts().tolist() == [i for i in range(topology.n_hosts) if i // m[0] != 1]
