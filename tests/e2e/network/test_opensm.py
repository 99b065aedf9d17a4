"""The product's fat-trees against a real subnet manager, on a simulated InfiniBand fabric."""

import json
import re

import numpy as np
import pytest
from subnet import NEEDED

from mpicoloc.cli.main import main
from mpicoloc.core.network import node_name, parse_xgft
from mpicoloc.network import files, routing
from mpicoloc.network.topology import readers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), NEEDED]
TREE = "XGFT(3;4,4,4;1,2,2)"


def forwarding_tables(text, fabric):
    """Port of each switch, by level and number, for every host; as ``dump_fts`` prints them."""
    hosts = {name: number for number, name in enumerate(fabric.host_names)}
    tables, rows = {}, None
    for line in text.splitlines():
        if head := re.match(r"Unicast lids .* \(([^()]*)\):", line):
            rows = tables[head.group(1)] = np.full(len(hosts), -1)
        elif entry := re.match(r"0x[0-9a-f]+ (\d+) +: \(Channel Adapter portguid \S+ '([^']*)'\)", line):
            rows[hosts[entry.group(2)]] = int(entry.group(1))
    return [np.array([tables[name] for name in row]) for row in fabric.switch_names]


def test_a_fabric_that_a_subnet_manager_routes_is_read_back_as_the_same_xgft(subnet):
    subnet.route("ftree")
    fabric = readers.read(subnet.tool("ibnetdiscover"), "ibnetdiscover", 7.0)
    topology = fabric.topology
    assert str(topology) == TREE
    assert topology.capacity_bps == (1e9,) * 3, "4xSDR carries 8 Gbit/s"
    for level, names in enumerate((fabric.host_names, *fabric.switch_names)):
        assert names == tuple(node_name(level, number) for number in range(topology.n_nodes(level)))


@pytest.mark.parametrize("engine", ["ftree", "updn"])
def test_routes_of_a_subnet_manager_are_as_long_and_as_balanced_as_ours(subnet, engine):
    """And on first-level switches the same ones: port by port, those of d-mod-k."""
    subnet.route(engine)
    fabric = readers.read(subnet.tool("ibnetdiscover"), "ibnetdiscover", 7.0)
    topology = fabric.topology
    theirs = forwarding_tables(subnet.tool("dump_fts"), fabric)
    for level in range(1, topology.height + 1):
        ours = [
            routing.forwarding_table(topology, level, switch) + 1 for switch in range(topology.n_nodes(level))
        ]
        n_down = topology.m[level - 1]
        for mine, other in zip(ours, theirs[level - 1], strict=True):
            assert (other > 0).all(), "every host can be reached"
            assert np.array_equal(mine > n_down, other > n_down), "up no further than needed"
            assert np.array_equal(mine[mine <= n_down], other[other <= n_down]), "one way down"
            assert np.array_equal(np.bincount(mine), np.bincount(other)), "as many hosts by each port"
        if level == 1:
            assert np.array_equal(ours, theirs[0])


def test_a_route_traced_through_the_fabric_passes_our_switches(subnet):
    """From h5 to its neighbour h6, and to h20 and h63 through the level above and the roots."""
    subnet.route("ftree")
    topology = parse_xgft(TREE, 1e9)
    lids = dict(re.findall(r'"(h\d+)" lid (\d+) ', subnet.tool("ibnetdiscover")))
    for dst in (6, 20, 63):
        text = subnet.tool("ibtracert", lids["h5"], lids[f"h{dst}"])
        passed = re.findall(r'\[\d+\] -> (?:switch|ca) port \{\w+\}\[\d+\] lid \S+ "([^"]*)"', text)
        node, ours = (0, 5), []
        while node != (0, dst):
            node = routing.next_hop(topology, *node, dst)
            ours.append(node_name(*node))
        assert [name.split("-")[0][:2] for name in passed] == [name.split("-")[0][:2] for name in ours]
        assert passed[0] == ours[0] and passed[-2:] == ours[-2:], "the same first and last switch"


@pytest.mark.parametrize("tables", ["dump_fts", "opensm-lfts.dump"])
def test_packets_go_as_a_subnet_manager_routes_them(subnet, tmp_path, capsys, tables):
    """By either form of its tables: over as many links as ours, and over all up-links of first switches."""
    subnet.route("updn")
    text = subnet.tool(tables) if tables == "dump_fts" else (subnet.folder / tables).read_text()
    (tmp_path / "net.txt").write_text(subnet.tool("ibnetdiscover"))
    (tmp_path / "tables.txt").write_text(text)
    words = ["replay", "--pattern", "shift:4", "--hosts", "64", "--bytes", "4096", "--no-base", "--json"]
    words += ["--topology", str(tmp_path / "net.txt"), "--placement", "F4"]
    assert main([*words, "--tables", str(tmp_path / "tables.txt")]) == 0
    theirs = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    ours = json.loads(capsys.readouterr().out)
    assert (theirs["routing"], ours["routing"]) == ("tables", "d-mod-k")
    assert theirs["n_packet_hops"] == ours["n_packet_hops"]
    fabric = readers.read((tmp_path / "net.txt").read_text(), "net", 7.0)
    next_nodes = files.parse(
        text, "tables", fabric, readers.wiring((tmp_path / "net.txt").read_text(), "net")
    )
    first_above = fabric.topology.n_hosts + fabric.topology.n_nodes(1)
    assert len(np.unique(next_nodes[0][next_nodes[0] >= first_above])) == fabric.topology.w[1]
