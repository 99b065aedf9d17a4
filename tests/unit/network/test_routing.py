"""The numbers of a fat-tree and the routes through it, each against a slow description of the same thing."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from trees import QUICK, topologies

from mpicoloc.core.network import (
    Placement,
    Topology,
    check_placement,
    child_node,
    link_ends,
    link_ports,
    node_name,
    parent_node,
    parse_xgft,
    slimmed,
)
from mpicoloc.errors import DataError, MpicolocError, UsageError
from mpicoloc.network import routing

SMALL = Topology((4, 2, 3), (1, 2, 2), (1e9,) * 3)
ROUTES = ["d-mod-k", "s-mod-k", "random:7"]


def all_pairs(topology):
    src, dst = np.meshgrid(np.arange(topology.n_hosts), np.arange(topology.n_hosts), indexing="ij")
    return src.ravel(), dst.ravel()


def up_ports(topology, route, src, dst):
    """Up-port that each message takes on each level, (height, n_messages); -1 on levels it does not reach."""
    paths = route(topology, src, dst)
    ports = np.empty((topology.height, len(paths)), dtype=np.int64)
    for level in range(topology.height):
        port = paths // topology.subtree_roots(level) % topology.w[level]
        hosts_below = topology.subtree_hosts(level)
        ports[level] = np.where(src // hosts_below != dst // hosts_below, port, -1)
    return ports


@QUICK
@given(topologies())
def test_links_join_the_nodes_that_ports_lead_to(topology):
    for level in range(topology.height):
        lower, upper = link_ends(topology, level)
        up_port, down_port = link_ports(topology, level)
        for link in range(topology.n_links(level)):
            assert parent_node(topology, level, lower[link], up_port[link]) == upper[link]
            assert child_node(topology, level + 1, upper[link], down_port[link]) == lower[link]
        assert len(set(zip(lower, up_port, strict=True))) == topology.n_links(level)
        assert len(set(zip(upper, down_port, strict=True))) == topology.n_links(level)
        assert max(lower) == topology.n_nodes(level) - 1 and max(upper) == topology.n_nodes(level + 1) - 1


@QUICK
@given(topologies(max_count=3), st.sampled_from(ROUTES))
def test_link_loads_are_those_of_messages_walked_port_by_port(topology, name):
    route = routing.by_name(name)
    src, dst = all_pairs(topology)
    n_bytes = np.arange(len(src)) % 7 + 1
    loads = routing.link_loads(topology, src, dst, n_bytes, route)
    ports = up_ports(topology, route, src, dst)
    heights = topology.climb(src, dst)
    up = [{} for _ in range(topology.height)]
    down = [{} for _ in range(topology.height)]
    for i, weight in enumerate(n_bytes):
        node = src[i]
        for level in range(heights[i]):
            above = parent_node(topology, level, node, ports[level, i])
            up[level][node, above] = up[level].get((node, above), 0) + weight
            node = above
        for level in reversed(range(heights[i])):
            below = child_node(
                topology, level + 1, node, dst[i] // topology.subtree_hosts(level) % topology.m[level]
            )
            down[level][below, node] = down[level].get((below, node), 0) + weight
            node = below
        assert node == dst[i]
    for level in range(topology.height):
        ends = zip(*map(np.ndarray.tolist, link_ends(topology, level)), strict=True)
        for link, end in enumerate(ends):
            assert loads.up[level][link] == up[level].get(end, 0)
            assert loads.down[level][link] == down[level].get(end, 0)
        assert (ports[level] >= 0).tolist() == (heights > level).tolist()


@QUICK
@given(topologies())
def test_forwarding_tables_lead_every_message_along_its_d_mod_k_route(topology):
    src, dst = all_pairs(topology)
    ports = up_ports(topology, routing.d_mod_k, src, dst)
    heights = topology.climb(src, dst)
    for i in range(0, len(src), 1 + len(src) // 50):
        node, passed = (0, int(src[i])), []
        while node != (0, dst[i]) and len(passed) <= 2 * topology.height:
            passed.append(node)
            node = routing.next_hop(topology, *node, int(dst[i]))
        assert node == (0, dst[i]) and len(passed) == 2 * heights[i]
        for level in range(heights[i]):
            assert (
                parent_node(topology, level, passed[level][1], ports[level, i])
                == [*passed, node][level + 1][1]
            )


@pytest.mark.parametrize("w", [(1, 16, 16), (1, 8, 8), (1, 4, 4), (1, 2, 2), (1, 1, 1), (1, 4, 2)])
@pytest.mark.parametrize("name", ["d-mod-k", "s-mod-k"])
def test_modulo_routes_load_all_links_of_a_level_alike_in_an_all_to_all(w, name):
    topology = Topology((16, 16, 2), w, (1e9,) * 3)
    src, dst = all_pairs(topology)
    loads = routing.link_loads(topology, src, dst, np.ones(len(src)), routing.by_name(name))
    for level, side in ((level, side) for level in range(3) for side in (loads.up, loads.down)):
        assert np.ptp(side[level]) == 0


def test_random_routes_are_told_by_seed_and_pair_alone_and_spread():
    topology = Topology((16, 16), (1, 16), (1e9,) * 2)
    src, dst = all_pairs(topology)
    route = routing.random_route(3)
    paths = route(topology, src, dst)
    order = np.random.default_rng(1).permutation(len(src))
    assert np.array_equal(route(topology, src[order], dst[order]), paths[order])
    assert not np.array_equal(routing.random_route(4)(topology, src, dst), paths)
    assert not np.array_equal(route(topology, dst, src), paths)
    used = np.bincount(paths, minlength=16)
    expected = len(src) / 16
    assert np.abs(used - expected).max() < 6 * expected**0.5
    with pytest.raises(UsageError, match="random"):
        routing.by_name("dmodk")


@QUICK
@given(topologies())
def test_the_notation_is_read_as_it_is_written(topology):
    assert parse_xgft(str(topology), 1e9) == topology
    assert parse_xgft(f"  {str(topology).lower().replace(',', ' , ')} ", [1e9] * topology.height) == topology


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fat", "'fat' is not the notation of a fat-tree: write it like XGFT"),
        ("XGFT(3;16,16;1,8,8)", "h is 3, but there are 2 numbers m and 3 numbers w"),
        ("XGFT(2;4,x;1,2)", "'x' is not a number"),
        ("XGFT(2;4,-2;1,2)", "'-2' is not a number"),
        ("XGFT(2;4,²;1,2)", "'²' is not a number"),
        ("XGFT(2;4,0;1,2)", "must be whole and >= 1, got 0"),
        ("XGFT(1;9999999999;1)", "above 2147483647"),
        ("XGFT(2;4,2;1,2", "not the notation"),
    ],
)
def test_a_wrong_notation_is_told_with_the_remedy(text, words):
    with pytest.raises(UsageError) as caught:
        parse_xgft(text, 1e9)
    assert words in str(caught.value) and str(caught.value).isprintable()


@QUICK
@given(st.text() | st.from_regex(r"XGFT\([0-9, -]*;[0-9, -]*;[0-9, -]*\)", fullmatch=True))
def test_any_text_is_a_topology_or_refused(text):
    try:
        assert parse_xgft(parse_xgft(text, 1e9).__str__(), 1e9).n_hosts >= 1
    except MpicolocError as error:
        assert str(error).isprintable()


def test_slimming_and_unknown_hosts():
    assert str(slimmed(parse_xgft("XGFT(3;16,16,8;1,16,16)", 1e9), 4)) == "XGFT(3;16,16,8;1,4,4)"
    check_placement(SMALL, Placement([0, 23]))
    with pytest.raises(DataError, match="rank 1 is on host 24, but XGFT"):
        check_placement(SMALL, Placement([0, 24]))
    assert node_name(0, 3) == "h3" and node_name(2, 1) == "s2-1"
