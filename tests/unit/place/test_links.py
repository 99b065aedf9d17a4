"""Groups of jobs on equal nodes of a fat-tree: contention for links, and the exchange of nodes."""

import itertools

import numpy as np
from hypothesis import given, settings, strategies as st

from mpicoloc.core.network import Topology
from mpicoloc.place.links import Contention, arrange

TREE = Topology((2, 3), (1, 1), (1e9, 1e9))
"""Three switches of two hosts."""


def contention(sizes, busy=None, topology=TREE):
    n = topology.n_hosts
    used = np.ones((len(sizes), topology.height)) if busy is None else np.array(busy)
    return Contention(topology, np.arange(n), sizes, used)


def test_jobs_on_the_same_up_links_contend():
    """Jobs 0 and 1 use the links above the first two switches; job 2 has the third one for itself."""
    slots = np.array([[0], [1], [0], [1], [2], [2]])
    found = contention([2, 2, 2])
    assert found.cost(slots) == 2
    assert found.n_pairs(slots) == 1
    apart = arrange(slots, found, np.random.default_rng(0))
    assert found.cost(apart) == 0 == found.n_pairs(apart)
    assert sorted(map(tuple, apart)) == sorted(map(tuple, slots))


def test_high_demands_go_beside_low_ones():
    """On switches of six hosts, two loud jobs and two quiet ones cannot all have switches of their own."""
    tree = Topology((6, 4), (1, 1), (1e9, 1e9))
    sizes, demand = [8, 8, 4, 4], [0.9, 0.9, 0.1, 0.1]
    slots = np.repeat([0, 1, 2, 3], sizes)[:, None]
    found = contention(sizes, [[0, one] for one in demand], tree)
    best = arrange(slots, found, np.random.default_rng(1))
    used = found.users(best, 1)
    assert not (used[0] * used[1]).any()


@settings(max_examples=60, deadline=None)
@given(st.permutations([0, 0, 0, 1, 1, 1]), st.integers(0, 9))
def test_the_best_order_is_found(order, seed):
    """Two jobs of three nodes on three switches of two hosts must share one switch."""
    slots = np.array(order)[:, None]
    found = contention([3, 3])
    best = arrange(slots, found, np.random.default_rng(seed))
    assert sorted(best[:, 0]) == sorted(order)
    every = (np.array(one)[:, None] for one in set(itertools.permutations(order)))
    assert found.cost(best) == min(map(found.cost, every)) == 1


def test_nodes_may_come_in_any_order():
    """Sorted groups follow the tree, not the order of the hosts' names."""
    hosts = np.array([0, 2, 4, 1, 3, 5])
    found = Contention(TREE, hosts, [2, 2, 2], np.ones((3, 2)))
    slots = np.array([[0], [0], [1], [1], [2], [2]])
    best = arrange(slots, found, np.random.default_rng(0))
    assert found.cost(best) == 0
