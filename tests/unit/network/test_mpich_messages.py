"""MPICH's decisions, and its ranks that act for a node."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpicoloc.errors import DataError
from mpicoloc.network.traffic.collective import Collective
from mpicoloc.network.traffic.mpich import MPICH

NODES = st.lists(st.integers(0, 5), min_size=2, max_size=40)
ITEMS = st.sampled_from([1, 5, 300, 2000, 200_000])


def traffic(name, p, n_items, root=0, nodes=None):
    return MPICH().messages(Collective(name, p, n_items, 8, root, nodes=nodes)).traffic()


@settings(deadline=None)
@given(p=st.integers(2, 40), n_items=ITEMS)
def test_what_has_to_arrive_arrives(p, n_items):
    n_bytes, others = 8 * n_items, np.arange(p) != p - 1
    assert np.all(traffic("bcast", p, n_items, p - 1).recv_bytes()[others] >= n_bytes)
    assert traffic("gather", p, n_items, p - 1).recv_bytes()[p - 1] == n_bytes * (p - 1)
    assert np.all(traffic("scatter", p, n_items, p - 1).recv_bytes()[others] >= n_bytes)
    assert np.all(traffic("allgather", p, n_items).recv_bytes() == n_bytes * (p - 1))
    assert np.all(traffic("alltoall", p, n_items).recv_bytes() >= n_bytes * (p - 1))
    assert np.all(traffic("scan", p, n_items).recv_bytes()[1:] >= n_bytes)
    assert traffic("reduce", p, n_items, p - 1).recv_bytes()[p - 1] > 0
    assert np.all(traffic("allreduce", p, n_items).recv_bytes() >= n_bytes * (1 - 1 / p) - 8)
    assert set(traffic("barrier", p, 0).src.tolist()) == set(range(p))


@pytest.mark.parametrize("name", ["bcast", "reduce", "allreduce", "barrier"])
@settings(deadline=None)
@given(nodes=NODES, seed=st.integers(0, 40))
def test_between_nodes_only_their_first_ranks_speak(name, nodes, seed):
    nodes = np.array(nodes)
    p, root = len(nodes), seed % len(nodes)
    found = traffic(name, p, 100, root, nodes)
    between = nodes[found.src] != nodes[found.dst]
    first = {int(np.flatnonzero(nodes == node)[0]) for node in nodes}
    assert set(found.src[between].tolist()) | set(found.dst[between].tolist()) <= first
    n_nodes = len(set(nodes.tolist()))
    flat = traffic(name, n_nodes, 100, 0)
    assert found.n_messages[between].sum() == flat.n_messages.sum()


@settings(deadline=None)
@given(nodes=NODES, seed=st.integers(0, 40), n_items=ITEMS)
def test_every_rank_is_reached_whatever_the_nodes(nodes, seed, n_items):
    nodes = np.array(nodes)
    p, root = len(nodes), seed % len(nodes)
    others = np.arange(p) != root
    assert np.all(traffic("bcast", p, n_items, root, nodes).recv_bytes()[others] >= 8 * n_items)
    assert np.all(traffic("reduce", p, n_items, root, nodes).sent_bytes()[others] > 0)
    assert np.all(traffic("scan", p, n_items, 0, nodes).recv_bytes()[1:] > 0)


@pytest.mark.parametrize(
    ("name", "p", "n_items", "algorithm"),
    [
        ("bcast", 7, 10**6, "bcast binomial"),
        ("bcast", 8, 1536, "bcast binomial"),
        ("bcast", 8, 1537, "bcast scatter, doubling"),
        ("bcast", 9, 1537, "bcast scatter, ring"),
        ("bcast", 16, 65537, "bcast scatter, ring"),
        ("allreduce", 8, 1, "allreduce doubling"),
        ("allreduce", 8, 7, "allreduce doubling"),
        ("allreduce", 8, 8, "allreduce halving"),
        ("reduce", 8, 256, "reduce binomial"),
        ("reduce", 8, 257, "reduce halving"),
        ("allgather", 8, 8191, "allgather doubling"),
        ("allgather", 8, 8192, "allgather ring"),
        ("allgather", 9, 1137, "allgather bruck"),
        ("allgather", 9, 1138, "allgather ring"),
        ("alltoall", 9, 32, "alltoall bruck"),
        ("alltoall", 9, 33, "alltoall pairs"),
        ("alltoall", 8, 1, "alltoall pairs"),
        ("reduce_scatter_block", 8, 8191, "reduce_scatter halving"),
        ("reduce_scatter_block", 8, 8192, "reduce_scatter pairs"),
    ],
)
def test_decisions_change_where_the_library_does(name, p, n_items, algorithm):
    assert MPICH().algorithm(Collective(name, p, n_items, 8)) == algorithm


def test_an_unknown_collective_is_refused():
    with pytest.raises(DataError, match="'alltoallx'"):
        MPICH().messages(Collective("alltoallx", 9, 1))
