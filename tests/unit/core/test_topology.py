"""Fat-trees and placements as plain data: what they count, and what they refuse."""

import math

import numpy as np
import pytest
from hypothesis import given
from trees import QUICK, topologies

from mpicoloc.core.network import Placement, Topology, prefix_products
from mpicoloc.errors import DataError


@QUICK
@given(topologies())
def test_each_level_has_as_many_links_seen_from_below_and_from_above(topology):
    for level in range(topology.height):
        seen_from_above = topology.n_nodes(level + 1) * topology.m[level]
        assert topology.n_links(level) == seen_from_above


@QUICK
@given(topologies())
def test_hosts_below_a_root_are_all(topology):
    assert topology.subtree_hosts(topology.height) == topology.n_hosts == topology.n_nodes(0)
    assert topology.subtree_roots(topology.height) == topology.n_nodes(topology.height)
    assert prefix_products(topology.w)[-1] == topology.n_nodes(topology.height)


def test_a_slimmed_tree():
    topology = Topology((4, 2), (1, 2), (125e6, 125e6))
    assert str(topology) == "XGFT(2;4,2;1,2)"
    assert [topology.n_nodes(level) for level in range(3)] == [8, 2, 2]
    assert [topology.n_links(level) for level in range(2)] == [8, 4]
    assert topology.n_switches == 4
    assert topology.contention_ratio(1) == 2


@pytest.mark.parametrize(
    ("m", "w", "capacity", "words"),
    [
        ((), (), (), "height"),
        ((4,), (1, 2), (1e9,), "w has 2"),
        ((4, 2), (1, 2), (1e9,), "capacity_bps has 1"),
        ((4, 0), (1, 2), (1e9, 1e9), "got 0"),
        ((4, 2.5), (1, 2), (1e9, 1e9), "got 2.5"),
        ((4, True), (1, 2), (1e9, 1e9), "got True"),
        ((4, 2), (1, 2), (1e9, 0), "got 0"),
        ((4, 2), (1, 2), (1e9, math.nan), "got nan"),
        ((4, 2), (1, 2), (1e9, "fast"), "got 'fast'"),
        ((2**16, 2**16), (1, 1), (1e9, 1e9), "more than 2147483647 links on level 0"),
        ((10**6000,), (1,), (1e9,), "above 2147483647"),
    ],
)
def test_what_no_tree_can_be_is_refused(m, w, capacity, words):
    with pytest.raises(DataError, match=words):
        Topology(m, w, capacity)


def test_a_placement_is_read_only_and_its_own():
    hosts = np.array([3, 1, 3])
    placement = Placement(hosts)
    hosts[0] = 7
    assert placement.hosts.tolist() == [3, 1, 3]
    assert placement.distinct_hosts().tolist() == [1, 3]
    assert placement == Placement([3, 1, 3]) and placement != Placement([1, 3, 3])
    with pytest.raises(ValueError, match="read-only"):
        placement.hosts[0] = 1


@pytest.mark.parametrize(
    "hosts", [[], [[1, 2]], [1.5], [-1], ["n1"], [2**40], [[1], [2, 3]], [None], [2**70]]
)
def test_what_no_placement_can_be_is_refused(hosts):
    with pytest.raises(DataError, match="placement"):
        Placement(hosts)
