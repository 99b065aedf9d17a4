"""Forwarding tables as text: routes of the simulator, and one line for what is no table of the fabric."""

import re

import numpy as np
import pytest
from replays import tree

from mpicoloc.core.network import node_name, parse_xgft
from mpicoloc.errors import DataError
from mpicoloc.network import files, routing
from mpicoloc.network.topology import readers
from mpicoloc.replay.network import with_next_nodes

TOPOLOGY = parse_xgft("XGFT(2;4,2;1,2)", 1e9)
DISCOVERED = readers.ibnetdiscover_text(TOPOLOGY)
FABRIC = readers.read(DISCOVERED, "net", 1e9)


def dumped(mark=":"):
    """Output of dump_fts for the tables of d-mod-k; LIDs of hosts start at 1."""
    lines = []
    for level in (1, 2):
        for switch in range(TOPOLOGY.n_nodes(level)):
            name = node_name(level, switch)
            lines.append(
                f"Unicast lids [0x0-0xc] of switch Lid {20 + switch} guid 0x0000000000200000 ({name}):"
            )
            lines.append("  Lid  Out   Destination")
            ports = routing.forwarding_table(TOPOLOGY, level, switch) + 1
            for host, port in enumerate(ports):
                description = f"Channel Adapter portguid 0x00000000001000{host:02x}: 'h{host}'"
                lines.append(f"0x{host + 1:04x} {port:03d} {mark} ({description})")
            lines.append("0x0014 000 : (Switch portguid 0x0000000000200000: 's')")
    return "\n".join(lines)


def parse(text):
    return files.parse(text, "tables", FABRIC, readers.wiring(DISCOVERED, "net"))


@pytest.mark.parametrize("mark", [":", "#"])
def test_tables_of_d_mod_k_are_its_routes(mark):
    """Every packet goes over the links that d-mod-k would choose."""
    from replays import flow

    from mpicoloc.replay.simulate import simulate

    network = tree(TOPOLOGY.m, TOPOLOGY.w)
    fixed = with_next_nodes(network, parse(dumped(mark)))
    assert fixed.has_tables and not network.has_tables
    for src in range(8):
        for dst in set(range(8)) - {src}:
            sent = [simulate(each, [flow(src, dst, 1000)]).sent_bytes for each in (network, fixed)]
            assert np.array_equal(*sent), (src, dst)


def test_a_port_that_leads_elsewhere_is_another_route():
    lines = dumped().splitlines()
    moved = [
        re.sub(" 005 ", " 006 ", line) if line.startswith("0x0005") and i < 11 else line
        for i, line in enumerate(lines)
    ]
    before, after = parse(dumped()), parse("\n".join(moved))
    (switch, host), *others = np.argwhere(before != after).tolist()
    assert (switch, host, others) == (0, 4, [])
    assert after[0, 4] == 8 + 2 + 1, "the second switch of level 2"


@pytest.mark.parametrize(
    ("pattern", "by", "what"),
    [
        (r"'h3'", "'h9'", "line 6: the topology has no host 'h9'"),
        (r"0x0004 00\d", "0x0004 099", "line 6: the topology has no link at port 99 of switch"),
        (r"0x0004 .*\n", "", "has no entry for host 'h3'"),
        (r"\(s\S+\):", "(spine):", "line 1: the topology has no switch 'spine'"),
    ],
)
def test_tables_of_another_fabric_are_told(pattern, by, what):
    text = dumped()
    assert re.search(pattern, text)
    with pytest.raises(DataError, match=re.escape(what)):
        parse(re.sub(pattern, by, text, count=1))


def test_tables_that_send_packets_round_and_round_are_told():
    network = tree(TOPOLOGY.m, TOPOLOGY.w)
    table = parse(dumped())
    table[2:, 0] = 8 + 1  # both switches of level 2 send what is for host 0 to the other switch below
    with pytest.raises(DataError, match="to h0 never arrive"):
        with_next_nodes(network, table)


def test_hosts_of_one_description_are_told_apart_by_the_guids_of_their_ports():
    def described(host):
        return f'{host[1]} # "node HCA-1"\n[{host[3]}](1000{int(host[2]):02x})'

    text = re.sub(r'(?m)^(Ca\t.*"h(\d+)")\n\[(\d+)\]', described, DISCOVERED)
    assert text.count("node HCA-1") == TOPOLOGY.n_hosts
    fabric, wiring = readers.read(text, "net", 1e9), readers.wiring(text, "net")
    tables = re.sub(r"'h\d+'", "'node HCA-1'", dumped())
    assert np.array_equal(files.parse(tables, "tables", fabric, wiring), parse(dumped()))
