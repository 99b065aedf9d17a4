"""Networks that are no XGFT: routes go up and then down, are the shortest such, and packets arrive."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from replays import PACKET, PLAIN, all_to_all
from trees import QUICK, topologies

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
        entry = int(routes.first[node] if node < network.n_hosts else routes.next[node - network.n_hosts, dst])
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
    ends = network.links
    reached = {(src, True)}
    for n in itertools.count():
        if any(node == dst for node, _ in reached):
            return n
        reached = {
            (int(ends.end[i]), bool(ends.is_up[i]))
            for node, climbs in reached
            for i in np.flatnonzero(ends.begin == node)
            if climbs or not ends.is_up[i]
        }
        assert reached


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
    has_one_port = (np.bincount(network.lower)[:n] == 1).all()
    for src, dst in itertools.permutations(range(n), 2):
        found, best = hops(network, network.tables, src, dst), shortest(network, src, dst)
        # Hosts with several ports take turns with them.
        assert found == {best} if has_one_port else min(found) >= best
    if n > 1:
        # Buffers of two packets: a circle of packets that wait for each other would soon be closed.
        hardware = Hardware(lanes=equal_lanes(1, 2 * PACKET))
        run = simulate(of_fabric(fabric, name, hardware), [all_to_all(n, 3 * PACKET)], PLAIN)
        assert run.sent_bytes[network.links.end < n].sum() == n * (n - 1) * 3 * PACKET
