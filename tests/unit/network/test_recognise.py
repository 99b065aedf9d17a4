"""Trees in graphs: an XGFT is recognised with the same numbers, and nothing else is taken for one."""

from hypothesis import given, settings, strategies as st
from trees import QUICK, topologies

from mpicoloc.core.network import link_ends, node_name, parse_xgft
from mpicoloc.errors import DataError, MpicolocError
from mpicoloc.network.topology import readers
from mpicoloc.network.topology.fabric import recognise
from mpicoloc.network.topology.graph import Graph
from mpicoloc.network.topology.irregular import Irregular


def names(topology, level):
    return tuple(node_name(level, number) for number in range(topology.n_nodes(level)))


@QUICK
@given(topologies())
def test_an_xgft_written_for_ibsim_is_recognised_with_the_same_numbers(topology):
    fabric = recognise(readers.parse_ibnetdiscover(readers.ibnetdiscover_text(topology), "net"), 1e9)
    assert fabric.topology == topology
    assert fabric.host_names == names(topology, 0)
    assert fabric.switch_names == tuple(names(topology, level) for level in range(1, topology.height + 1))


@QUICK
@given(topologies(), st.randoms(use_true_random=False))
def test_an_xgft_is_recognised_whatever_the_order_of_nodes_and_ports(topology, random):
    graph = readers.parse_ibnetdiscover(readers.ibnetdiscover_text(topology), "net")
    nodes = list(graph.ports)
    random.shuffle(nodes)
    other = dict(zip(graph.ports, nodes, strict=True))  # new identity of each node
    ports = {
        other[node]: tuple(random.sample([(other[end], rate) for end, rate in row], len(row)))
        for node, row in graph.ports.items()
    }
    moved = type(graph)(tuple(other[host] for host in graph.hosts), ports, {})
    assert recognise(moved, 1e9).topology == topology


@QUICK
@given(topologies(), st.data())
def test_a_network_with_two_links_crossed_is_none_or_still_the_same(topology, data):
    """Swapping the lower ends of two links of one level keeps all degrees."""
    graph = readers.parse_ibnetdiscover(readers.ibnetdiscover_text(topology), "net")
    level = data.draw(st.integers(0, topology.height - 1))
    links = sorted(zip(*map(list, link_ends(topology, level)), strict=True))
    one, two = data.draw(st.sampled_from(links)), data.draw(st.sampled_from(links))
    if len({one, two, (one[0], two[1]), (two[0], one[1])}) < 4 or (one[0], two[1]) in links:
        return
    ports = {node: list(row) for node, row in graph.ports.items()}
    for low, old, new in ((one[0], one[1], two[1]), (two[0], two[1], one[1])):
        low, old, new = node_name(level, low), node_name(level + 1, old), node_name(level + 1, new)
        ports[low][[end for end, _ in ports[low]].index(old)] = (new, None)
        ports[old].remove((low, None))
        ports[new].append((low, None))
    crossed = type(graph)(graph.hosts, {node: tuple(row) for node, row in ports.items()}, {})
    try:
        found = recognise(crossed, 1e9).topology
    except DataError as error:
        assert "no path leads from host" in str(error)
    else:
        assert found == topology or isinstance(found, Irregular)


def test_crossed_links_between_subtrees_are_no_xgft():
    topology = parse_xgft("XGFT(3;2,2,2;1,2,2)", 1e9)
    text = readers.ibnetdiscover_text(topology)
    graph = readers.parse_ibnetdiscover(text, "net")
    ports = {node: list(row) for node, row in graph.ports.items()}

    def move(low, old, new):
        ports[low][[end for end, _ in ports[low]].index(old)] = (new, None)
        ports[old].remove((low, None))
        ports[new].append((low, None))

    move("s1-0", "s2-0", "s2-2")
    move("s1-2", "s2-2", "s2-0")
    crossed = type(graph)(graph.hosts, {node: tuple(row) for node, row in ports.items()}, {})
    assert "are not those of XGFT(3;2,2,2;1,2,2)" in recognise(crossed, 1e9).notes[0]


def test_hosts_of_two_switches_that_differ_are_no_xgft():
    """Every number of neighbours is an XGFT's, but a free port is not where its copy has one."""
    text = "A0 Nodes=h0; A1 Nodes=h0,h2; B0 Nodes=h3; B1 Nodes=h2,h3; R0 Switches=A0,B0; R1 Switches=A1,B1"
    text = "".join(f"SwitchName={row}\n" for row in text.split("; "))
    assert "no XGFT, because the links of" in readers.read(text, "f", 1.0).notes[0]


@settings(QUICK, max_examples=200)
@given(st.lists(st.sampled_from(["A0,A1", "A0,B1", "A1,B1", "A1,B0", "B0,B1"]), min_size=1, max_size=4))
def test_hosts_of_any_two_switches_are_an_xgft_or_refused(pairs):
    rows = {leaf: [] for leaf in ("A0", "A1", "B0", "B1")}
    for host, pair in enumerate(pairs):
        for leaf in pair.split(","):
            rows[leaf].append(f"h{host}")
    text = "".join(f"SwitchName={leaf} Nodes={','.join(row)}\n" for leaf, row in rows.items() if row)
    text += "SwitchName=R0 Switches=A0,B0\nSwitchName=R1 Switches=A1,B1\n"
    try:
        readers.read(text, "f", 1.0)
    except MpicolocError as error:
        assert str(error).isprintable()


@st.composite
def graphs(draw):
    """A few hosts and switches with any links between them."""
    hosts = [f"h{i}" for i in range(draw(st.integers(0, 4)))]
    nodes = [*hosts, *(f"s{i}" for i in range(draw(st.integers(0, 6))))]
    ends = st.sampled_from(nodes) if nodes else st.nothing()
    links = draw(st.lists(st.tuples(ends, ends, st.sampled_from([None, 1.0])), max_size=14)) if nodes else []
    ports = {node: [] for node in nodes}
    for one, other, rate in links:
        ports[one].append((other, rate))
        ports[other].append((one, rate))
    return Graph(tuple(hosts), {node: tuple(row) for node, row in ports.items()}, {})


@settings(QUICK, max_examples=300)
@given(graphs(), st.sampled_from([1.0, [1.0], [1.0, 1.0]]))
def test_any_graph_is_an_xgft_or_refused(graph, rates):
    try:
        fabric = recognise(graph, rates)
    except MpicolocError as error:
        assert str(error).isprintable()
    else:
        assert sorted(name for name in fabric.host_names if name) == sorted(graph.hosts)


@settings(QUICK, max_examples=300)
@given(topologies(max_count=3), st.data())
def test_a_tree_without_some_links_is_an_xgft_or_refused(topology, data):
    graph = readers.parse_ibnetdiscover(readers.ibnetdiscover_text(topology), "net")
    links = [
        (node_name(level, int(lower)), node_name(level + 1, int(upper)))
        for level in range(topology.height)
        for lower, upper in zip(*link_ends(topology, level), strict=True)
    ]
    cut = data.draw(st.sets(st.sampled_from(links), max_size=3))
    ports = {
        node: tuple(end for end in row if not {(node, end[0]), (end[0], node)} & cut)
        for node, row in graph.ports.items()
    }
    try:
        recognise(Graph(graph.hosts, ports, {}), 1.0)
    except MpicolocError as error:
        assert str(error).isprintable()
