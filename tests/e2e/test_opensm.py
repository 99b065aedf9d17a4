"""The product's fat-trees against a real subnet manager, on a simulated InfiniBand fabric."""

import os
import re
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

from mpicoloc.network.load import routing
from mpicoloc.network.topology import infiniband, readers, xgft

SIMULATED = next(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"), None)
PROGRAMS = {
    name: shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    for name in ("ibsim", "opensm", "ibnetdiscover", "dump_fts", "ibtracert")
}
MISSING = [name for name, path in PROGRAMS.items() if path is None]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(60),
    pytest.mark.skipif(
        bool(MISSING) or SIMULATED is None,
        reason="needs opensm, ibsim-utils and infiniband-diags",
    ),
]
TREE = "XGFT(3;4,4,4;1,2,2)"


class Subnet:
    """A simulated fabric, its tools and what the subnet manager made of it."""

    def __init__(self, folder, topology):
        self.folder = folder
        # The socket is an abstract one of this name: nothing stays of it.
        name = uuid.uuid4().hex[:12]
        self.environ = os.environ | {"IBSIM_SOCKNAME": name, "OSM_TMP_DIR": ".", "OSM_CACHE_DIR": "."}
        (folder / "net").write_text(infiniband.write(topology))
        said = folder / "ibsim.out"
        with said.open("w") as output:
            self.simulator = subprocess.Popen(
                [PROGRAMS["ibsim"], "-s", "-n", "net"],
                cwd=folder, env=self.environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        deadline = time.monotonic() + 20
        while "MaxMcastCap" not in said.read_text():
            assert self.simulator.poll() is None and time.monotonic() < deadline, said.read_text()[-2000:]
            time.sleep(0.01)

    def tool(self, *words):
        """What a program prints that speaks to the fabric."""
        name, *rest = words
        done = subprocess.run(
            [PROGRAMS[name], *rest],
            cwd=self.folder,
            env=self.environ | {"LD_PRELOAD": str(SIMULATED)},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return done.stdout

    def route(self, engine):
        (self.folder / "opensm.conf").write_text(f"routing_engine {engine}\n")
        self.tool("opensm", "-F", "opensm.conf", "-o", "-f", "opensm.log")
        assert f"{engine} tables configured on all switches" in (self.folder / "opensm.log").read_text()

    def close(self):
        self.simulator.kill()
        self.simulator.wait()


@pytest.fixture
def subnet(tmp_path):
    subnet = Subnet(tmp_path, xgft.parse(TREE, 1e9))
    yield subnet
    subnet.close()


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
        assert names == tuple(xgft.name(level, number) for number in range(topology.n_nodes(level)))


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
    topology = xgft.parse(TREE, 1e9)
    lids = dict(re.findall(r'"(h\d+)" lid (\d+) ', subnet.tool("ibnetdiscover")))
    for dst in (6, 20, 63):
        text = subnet.tool("ibtracert", lids["h5"], lids[f"h{dst}"])
        passed = re.findall(r'\[\d+\] -> (?:switch|ca) port \{\w+\}\[\d+\] lid \S+ "([^"]*)"', text)
        node, ours = (0, 5), []
        while node != (0, dst):
            node = routing.next_hop(topology, *node, dst)
            ours.append(xgft.name(*node))
        assert [name.split("-")[0][:2] for name in passed] == [name.split("-")[0][:2] for name in ours]
        assert passed[0] == ours[0] and passed[-2:] == ours[-2:], "the same first and last switch"
