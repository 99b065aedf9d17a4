"""Fabrics as they are, with cables dead or added, against the routes that a real subnet manager finds."""

import json

import numpy as np
import pytest
from subnet import NEEDED

from mpicoloc.cli.main import main
from mpicoloc.network import files
from mpicoloc.network.topology import readers
from mpicoloc.network.topology.irregular import Irregular

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), NEEDED]
FABRICS = {
    "dead cable below a root": ("XGFT(3;4,4,4;1,2,2)", [("s2-1", "s3-1")]),
    "7 of 8 up-links": ("XGFT(2;4,4;1,8)", [("s1-2", "s2-5")]),
    "cable between first switches": ("XGFT(2;4,4;1,2)", [], [("s1-0", "s1-3")]),
    "cable between roots": ("XGFT(2;4,4;1,2)", [("s1-0", "s2-1")], [("s2-0", "s2-1")]),
    "switch missing": ("XGFT(3;4,4,4;1,2,2)", [(f"s2-{i}", "s3-3") for i in (1, 3, 5, 7)]),
}
of_each = pytest.mark.parametrize("subnet", FABRICS.values(), ids=FABRICS, indirect=True)


def lengths(next_node, first_switch, n_hosts):
    """Links from each host to each other, by the node to which each switch sends what is for a host."""
    hosts = np.arange(n_hosts)
    node, n = np.tile(first_switch[:, None], n_hosts), np.ones((n_hosts, n_hosts), int)
    for _ in range(20):
        travels = node >= n_hosts
        n += travels
        node = np.where(travels, next_node[np.maximum(node - n_hosts, 0), hosts], node)
    assert (node == hosts).all()
    return n


@of_each
def test_routes_are_as_long_as_those_of_up_down_of_a_subnet_manager(subnet):
    subnet.route("updn")
    text = subnet.tool("ibnetdiscover")
    fabric = readers.read(text, "net", 7.0)
    network = fabric.topology
    assert isinstance(network, Irregular) and network.capacity_bps == (1e9,) * network.height
    theirs = files.parse(subnet.tool("dump_fts"), "tables", fabric, readers.wiring(text, "net"))
    tables, links = network.tables, network.links
    one_of_set = np.array([*(links_of_set[0] for links_of_set in tables.sets), 0])
    entries = np.where(tables.next < 0, one_of_set[-1 - np.minimum(tables.next, -1)], tables.next)
    first = links.end[tables.first]
    ours = lengths(links.end[entries], first, network.n_hosts)
    assert np.array_equal(ours, lengths(theirs, first, network.n_hosts))


@of_each
def test_a_job_is_replayed_on_it_by_our_routes_and_by_theirs(subnet, tmp_path, capsys):
    subnet.route("updn")
    (tmp_path / "net.txt").write_text(subnet.tool("ibnetdiscover"))
    (tmp_path / "tables.txt").write_text(subnet.tool("dump_fts"))
    words = ["replay", "--pattern", "alltoall", "--hosts", "16", "--bytes", "4096", "--no-base", "--json"]
    words += ["--topology", str(tmp_path / "net.txt"), "--placement", "F4"]
    runs = []
    for more in ([], ["--tables", str(tmp_path / "tables.txt")]):
        assert main([*words, *more]) == 0
        told = capsys.readouterr()
        assert "no XGFT, because" in told.err
        runs.append(json.loads(told.out))
    assert [run["routing"] for run in runs] == ["d-mod-k", "tables"]
    assert runs[0]["n_packet_hops"] == runs[1]["n_packet_hops"]
