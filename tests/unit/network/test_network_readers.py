"""Topologies from text: what is written is read back, what is no fat-tree is told, nothing else happens."""

import re
from dataclasses import replace

import pytest
from hypothesis import example, given, strategies as st
from trees import QUICK

from mpicoloc.core import network
from mpicoloc.core.network import Topology
from mpicoloc.errors import DataError, MpicolocError, UsageError
from mpicoloc.network.topology import placements, readers
from mpicoloc.network.topology.fabric import natural_key, placement_of, recognise
from mpicoloc.network.topology.hostlist import expand

SLURM = """\
# two leaves
SwitchName=leaf0 Nodes=n[0-3] LinkSpeed=100
switchname=leaf1 nodes=n4,n[5-6],\\
n7
SwitchName=top Switches=leaf[0-1]
"""


def test_slurm_tells_the_tree_and_the_user_the_up_links():
    fabric = readers.read(SLURM, "topology.conf", 1.25e9)
    assert str(fabric.topology) == "XGFT(2;4,2;1,1)"
    assert fabric.host_names == tuple(f"n{i}" for i in range(8))
    assert fabric.topology.capacity_bps == (1.25e9, 1.25e9)
    assert str(readers.with_up_links(fabric, (1, 2)).topology) == "XGFT(2;4,2;1,2)"
    for wrong in ((1,), (1, 0)):
        with pytest.raises(UsageError, match="up-links"):
            readers.with_up_links(fabric, wrong)
    assert placement_of(fabric, ["n5", "n0.cluster.org"]).hosts.tolist() == [5, 0]
    with pytest.raises(DataError, match="rank 1 is on host 'x9', unknown"):
        placement_of(fabric, ["n5", "x9"])


def test_short_names_are_taken_where_they_tell_one_host():
    text = "topology: XGFT(1;5;1)\nhosts: [n0.a, n0.b, n1.a, 10.0.0.1, 10.0.0.2]"
    fabric = readers.read(text, "f", 1.0)
    assert placement_of(fabric, ["n1", "n1.c", "n0.b", "10.0.0.2"]).hosts.tolist() == [2, 2, 1, 4]
    with pytest.raises(DataError, match="'n0', the name of several hosts"):
        placement_of(fabric, ["n0"])
    for unknown in ("10", "10.0.0.3"):
        with pytest.raises(DataError, match="unknown to the topology"):
            placement_of(fabric, [unknown])


def test_hosts_of_a_file_are_told_with_its_line():
    fabric = readers.read(SLURM, "topology.conf", 1.0)
    with pytest.raises(DataError, match=r"jobs, line 3: rank 2 is on host 'x9', unknown"):
        placements.from_text("# where\nn[0-1]\nx9 n2\n", "jobs", fabric, 4)
    with pytest.raises(DataError, match=r"jobs, line 2: rank 1 is on host 8, but XGFT.* has hosts 0 to 7"):
        placements.from_text("0\n8\n", "jobs", fabric, 2)


@pytest.mark.parametrize("rates", [[1.0], [1.0, 2.0, 3.0]])
def test_as_many_rates_as_levels(rates):
    graph = readers.parse(SLURM, "f")
    with pytest.raises(UsageError, match="give one rate per level"):
        recognise(graph, rates)
    assert recognise(graph, [1.0, 2.0]).topology.capacity_bps == (1.0, 2.0)
    two = "8bit/s,16bit/s,24bit/s"
    with pytest.raises(UsageError, match="has 3 rates"):
        readers.fabric_of_text(YAML, "f", two, None)


def test_levels_that_nobody_told_the_rate_of():
    assert readers.read(SLURM, "f", 1.0).assumed_levels == (0, 1)
    assert readers.read(REAL, "f", 1.0).assumed_levels == ()
    assert readers.read(REAL.replace(" 4xEDR", ""), "f", 1.0).assumed_levels == (0,)
    assert readers.read(YAML, "f", 1.0).assumed_levels == ()
    assert readers.read("XGFT(2;4,2;1,2)", "f", 1.0).assumed_levels == (0, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SwitchName=a Nodes=n[0-1]\nSwitchName=a Nodes=n2", "line 2: switch 'a' is described twice"),
        ("SwitchName=a Nodes=n[0-", "line 1: 'n[0-' has unbalanced brackets"),
        ("SwitchName=a Nodes=n[3-1]", "must ascend"),
        ("SwitchName=a Nodes=n[0-99999999999]", "at most 1000000 names"),
        ("SwitchName=a Nodes=n[0-999]c[0-9999]", "more than 1000000 names"),
        ("SwitchName=a Nodes=n[x]", "'x' in 'n[x]' is not a range"),
        ("SwitchName=a", "must have either switches or nodes"),
        ("SwitchName=a Nodes=n1 Switches=b", "either switches or nodes"),
        ("SwitchName=a Nodes=n1 Speed=3", "'Speed' is not a key"),
        ("SwitchName=a Nodes=n1 what", "is not of the form"),
        ("SwitchName=a Switches=b", "topology.conf, line 1: 'b', below switch 'a', has no line: add one"),
        ("SwitchName=a Nodes=n1\nSwitchName=n1 Nodes=n2\n", "line 2: 'n1' is both a switch and a host"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "switch 'a' is below itself"),
        (SLURM.replace("leaf[0-1]", "leaf[0-1],two\nSwitchName=two Switches=three\n")
            + "SwitchName=three Switches=top", "line 5: switch 'top' is below itself"),
        (SLURM + "SwitchName=x Nodes=m0\nSwitchName=y Switches=x", "no path leads from host 'm0' to"),
    ],
)  # fmt: skip
def test_a_wrong_topology_conf_is_told_with_its_line(text, words):
    with pytest.raises(DataError) as caught:
        readers.read(text, "topology.conf", 1e9)
    assert words in str(caught.value) and str(caught.value).isprintable()


REAL = """\
#
# Topology file: generated on Sun Nov 22 07:18:42 2026
#
vendid=0x2c9
devid=0xbd36
sysimgguid=0x1
switchguid=0x1(1)
Switch\t36 "S-0001"\t\t# "leaf switch" enhanced port 0 lid 3 lmc 0
[1]\t"H-0011"[1](12) \t\t# "n10 HCA-1" lid 5 4xEDR
[2]\t"H-0021"[1](22) \t\t# "n9 HCA-1" lid 6 4xEDR
[36]\t"H-0031"[1](32) \t\t# "Mellanox Technologies Aggregation Node" lid 7 4xEDR

vendid=0x2c9
caguid=0x11
Ca\t1 "H-0011"\t\t# "n10 HCA-1"
[1](12) \t"S-0001"[1]\t\t# lid 5 lmc 0 "leaf switch" lid 3 4xEDR

Ca\t1 "H-0021"\t\t# "n9 HCA-1"
[1](22) \t"S-0001"[2]\t\t# lid 6 lmc 0 "leaf switch" lid 3 4xEDR

Ca\t1 "H-0031"\t\t# "Mellanox Technologies Aggregation Node"
[1](32) \t"S-0001"[36]\t\t# lid 7 lmc 0 "leaf switch" lid 3 4xEDR
"""


def test_what_a_real_fabric_has_besides():
    fabric = readers.read(REAL, "net", 1.0)
    assert fabric.topology == Topology((2,), (1,), (12.5e9,))
    assert fabric.host_names == ("n10", "n9")
    same = REAL.replace("n10", "n9")
    assert readers.read(same, "net", 1.0).host_names == ("H-0011", "H-0021")


def test_parallel_links_are_one_that_carries_their_sum():
    text = readers.ibnetdiscover_text(network.parse_xgft("XGFT(1;2;2)", 1e9)).replace("s1-1", "s1-0")
    records = text.split("\n\n")
    text = (
        "\n\n".join(records[:-1])
        .replace('[2]\t"s1-0"[1]', '[2]\t"s1-0"[3]')
        .replace('[2]\t"s1-0"[2]', '[2]\t"s1-0"[4]')
    )
    text += '\n[3]\t"h0"[2]\n[4]\t"h1"[2]\n'
    fabric = readers.read(text, "net", 1e9)
    assert fabric.topology == Topology((2,), (1,), (2e9,))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('Ca\t1 "H-0021"', 'Ca\t1 "H-0011"', "line 18: node 'H-0011' is described twice"),
        ('[2]\t"H-0021"[1](22) \t\t# "n9 HCA-1" lid 6 4xEDR', '[2]\t"H-00', "line 10: '[2]\\t\"H-00'"),
        ("4xEDR", "4xABC", "link speed '4xABC' is unknown: the known speeds are SDR"),
        ('[2]\t"H-0021"', '[1]\t"H-0021"', "line 10: port 1 is described twice"),
        ('Switch\t36 "S-0001"', "# ", "line 9: a link comes before any node"),
        ('"S-0001"[2]', '"S-0001"[3]', "leads to port 1 of 'H-0021', which does not lead back: the output"),
    ],
)  # fmt: skip
def test_a_wrong_ibnetdiscover_file_is_told_with_its_line(old, new, words):
    assert old in REAL
    with pytest.raises(DataError) as caught:
        readers.read(REAL.replace(old, new), "net", 1.0)
    assert words in str(caught.value) and str(caught.value).isprintable()


def test_links_of_unequal_speed_are_of_an_irregular_network():
    ends = ("lid 6 4xEDR", 'lid 6 lmc 0 "leaf switch" lid 3 4xEDR')
    text = REAL.replace(ends[0], ends[0].replace("E", "Q")).replace(ends[1], ends[1].replace("E", "Q"))
    fabric = readers.read(text, "net", 1.0)
    assert "links of level 0 differ" in fabric.notes[0]
    assert (fabric.topology.capacity_bps, fabric.assumed_levels) == ((4e9,), ())


def test_lines_that_options_of_ibnetdiscover_print_are_left_out():
    text = readers.ibnetdiscover_text(network.parse_xgft("XGFT(2;2,2;1,1)", 1e9))
    aside = (
        'DR path slid 0; dlid 0; 0,1 -> new Switch {0000000000200000} portnum 0 lid 0-0 ""\n\n'
        "Non-Chassis Nodes\n\nChassis 1 (guid 0x2c9)\n\nibwarn: [7] mad_rpc: timeout\n\n"
        "src/query_smp.c:195; umad (DR path slid 0; dlid 0; 0,1) bad status 110; Connection timed out\n\n"
    )
    assert readers.parse_ibnetdiscover(aside + text, "net") == readers.parse_ibnetdiscover(text, "net")


def test_a_truncated_ibnetdiscover_file_is_refused():
    """Whatever is missing, unless it is only the end of the last comment."""
    for end in range(len(REAL)):
        text = REAL[:end]
        if not re.search(r'"S-0001"\[36\][^\n]*$', text):
            with pytest.raises(DataError):
                readers.read(text, "net", 1.0)


YAML = """\
topology: XGFT(2;4,2;1,2)   # two leaves
link_rate: [10 Gbit/s, 2.5GB/s]
hosts: ["n[0-3]", "m[00-03]"]
"""


def test_yaml():
    fabric = readers.read(YAML, "cluster.yaml", 1.0)
    assert fabric.topology == Topology((4, 2), (1, 2), (1.25e9, 2.5e9))
    assert fabric.host_names[3:6] == ("n3", "m00", "m01")
    assert readers.read("topology: XGFT(1;2;1)", "f", 7.0).topology == Topology((2,), (1,), (7.0,))
    assert readers.read(
        '{"topology": "XGFT(1;2;1)", "link_rate": "8bit/s"}', "f", 7.0
    ).topology.capacity_bps == (1,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (YAML.replace("m[00-03]", "m[00-02]"), "7 hosts, but XGFT(2;4,2;1,2) has 8"),
        (YAML.replace("m[00-03]", "n[0-3]"), "host 'n0' is named twice"),
        (YAML.replace("2.5GB/s", "2.5"), "link rate '2.5' is not a rate: write it with its unit"),
        (YAML.replace(", 2.5GB/s", ", 2.5GB/s, 1bit/s"), "one number per level"),
        (YAML.replace("link_rate", "rate"), "unknown key 'rate'"),
        ("topology: [1", "line 1: not valid YAML"),
        ("topology: {}", "needs a line like topology: XGFT"),
        ("topology: XGFT(2;4,2;1,x)", "'x' is not a number"),
        ("hosts: {a: b}\ntopology: XGFT(1;2;1)", "hosts must be one value or a list"),
        ("nothing at all", "describes no topology"),
        ("", "describes no topology"),
    ],
)
def test_wrong_yaml_is_told(text, words):
    with pytest.raises(MpicolocError) as caught:
        readers.read(text, "cluster.yaml", 1.0)
    assert words in str(caught.value) and str(caught.value).isprintable()


def test_rates_in_bits_and_in_bytes():
    rates = {"10 Gbit/s": 1.25e9, "2.5GB/s": 2.5e9, "1.25 GiB/s": 1.25 * 2**30, "8 Kibit/s": 1024.0}
    assert {text: readers.rate_bps(text) for text in rates} == rates


@pytest.mark.parametrize(
    "rate", ["", "10", "0Gbit/s", "-1Gbit/s", "1e99TB/s" * 9, "10 Gfoo/s", "nan bit/s", "1e999bit"]
)
def test_what_is_no_rate(rate):
    with pytest.raises(UsageError, match="is not a rate"):
        readers.rate_bps(rate)


def test_hostlists():
    assert expand("n[0-2,5],m[08-10]c[1-2],login", "f") == [
        "n0", "n1", "n2", "n5", "m08c1", "m08c2", "m09c1", "m09c2", "m10c1", "m10c2", "login"
    ]  # fmt: skip
    assert sorted(["n10", "n9", "a", "n"], key=natural_key) == ["a", "n", "n9", "n10"]


WORDS = st.sampled_from(
    [
        "SwitchName=",
        "Nodes=",
        "Switches=",
        "a",
        "b",
        "n[0-3]",
        " ",
        "\n",
        "\\",
        ",",
        "[",
        "]",
        "#",
        "-",
        "9" * 30,
    ]
)


LINES = st.sampled_from([*REAL.splitlines(), *SLURM.splitlines(), *YAML.splitlines()])


@QUICK
@given(
    st.text()
    | st.lists(WORDS).map("".join)
    | st.lists(LINES).map("\n".join)
    | st.builds(lambda text: "topology:" + text, st.text())
    | st.builds(lambda text, i, j, word: text[:i] + word + text[j:], st.sampled_from([REAL, SLURM, YAML]),
                st.integers(0, 900), st.integers(0, 900), st.text(max_size=5))
)  # fmt: skip
@example("topology: " + "[" * 1200)
@example("a: &a [*a]\ntopology: XGFT(1;2;1)\nhosts: &b [*b]")
@example("SwitchName=² Nodes=n[²]")
def test_any_text_is_a_topology_or_refused_in_one_line(text):
    for read in (
        lambda: readers.read(text, "f", 1e9),
        lambda: readers.parse(text, "f"),
        lambda: readers.parse_ibnetdiscover(text, "f"),
        lambda: expand(text, "f"),
        lambda: readers.rate_bps(text),
    ):
        try:
            read()
        except MpicolocError as error:
            assert str(error).isprintable()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SwitchName=s0 Nodes=n[0-3] Nodes=n[5-6]", "line 1: 'Nodes' is given twice"),
        ("topology: XGFT(1;4;1)\ntopology: XGFT(1;8;1)", "line 2: not valid YAML .*topology twice"),
    ],
)
def test_what_is_given_twice_is_refused(text, words):
    with pytest.raises(DataError, match=words):
        readers.read(text, "f", 1.0)


def test_comments_above_a_notation_and_what_a_tree_of_slurm_does_not_tell():
    assert str(readers.read("# ours\nXGFT(2;4,2;1,2)  # two roots\n", "f", 1.0).topology) == "XGFT(2;4,2;1,2)"
    assert readers.read(SLURM, "f", 1.0).assumes_up_links
    assert not readers.fabric_of_text(SLURM, "f", "1Gbit/s", "1,2").assumes_up_links
    assert not readers.read(REAL, "f", 1.0).assumes_up_links


def test_a_leaf_with_free_ports_keeps_the_numbers_of_the_others():
    fabric = readers.read(SLURM.replace("n4,n[5-6],", "n4,n5,"), "topology.conf", 1e9)
    assert str(fabric.topology) == "XGFT(2;4,2;1,1)"
    assert fabric.host_names == ("n0", "n1", "n2", "n3", "n4", "n5", "n7", "")


SLURM_YAML = """---
- topology: gpus
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: g[0-3]
- topology: all
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: s[1-2]
      - switch: s1   # the first
        nodes: n[0-3]
      - switch: s2
        nodes: n4,n[5-7]
"""


def test_a_topology_yaml_of_slurm_is_the_same_as_its_topology_conf():
    fabric = readers.read(SLURM_YAML, "f", 1.0)
    assert fabric.notes == ("f: topology 'all' is used, not 'gpus'",)
    conf = "SwitchName=root Switches=s[1-2]\nSwitchName=s1 Nodes=n[0-3]\nSwitchName=s2 Nodes=n4,n[5-7]"
    assert replace(fabric, file_notes=()) == readers.read(conf, "f", 1.0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cluster_default: true", "cluster_default: false", "2 topologies: mark the cluster's"),
        ("gpus", "gpus\n  cluster_default: true", "topology 'gpus' is not a tree, so it names no switches"),
        ("n[0-3]", "n[0-3]\n        speed: 9", "'speed' of 's1' is an unknown key"),
        ("children: s[1-2]", "children: s[1-3]", "'s3', below switch 'root', has no line"),
        ("children: s[1-2]", "", "'root' must have either switches or nodes"),
        ("children: s[1-2]", "children: [s1, s2]", "'children' of 'root' is an unknown key, or its value"),
        ("switch: s2", "switch: s1", "switch 's1' is described twice"),
        ("children: s[1-2]", "children: root,s[1-2]", "'root' is below itself"),
        ("    switches:", "    ring: 1\n    switches:", "tree must have one key"),
        ("- topology: gpus", "- name: gpus", "not an entry like topology: name"),
    ],
)
def test_a_wrong_topology_yaml_of_slurm_is_told(old, new, words):
    assert old in SLURM_YAML
    with pytest.raises(DataError, match=words):
        readers.read(SLURM_YAML.replace(old, new, 1), "f", 1.0)
