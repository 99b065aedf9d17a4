"""Invariants of every decomposition of a collective, for all algorithms."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpicoloc.errors import DataError
from mpicoloc.network.traffic import algorithms, openmpi
from mpicoloc.network.traffic.collective import Collective
from mpicoloc.network.traffic.openmpi import OpenMPI, OpenMPI5

RANKS = st.integers(2, 70)
ITEMS = st.integers(1, 300_000)
PAIRS = [(name, number) for name, known in openmpi.ALGORITHMS.items() for number in known]
TWO_ONLY = {("allgather", 6), ("allgatherv", 5), ("alltoall", 5)}
V = ("gatherv", "scatterv", "allgatherv", "reduce_scatter")


def messages(name, number, call):
    return openmpi.ALGORITHMS[name][number](call, OpenMPI()).traffic()


@pytest.mark.parametrize(("name", "number"), PAIRS)
@settings(max_examples=8, deadline=None)
@given(p=RANKS, n_items=ITEMS, seed=st.integers(0, 9))
def test_what_has_to_arrive_arrives(name, number, p, n_items, seed):
    p = 2 if (name, number) in TWO_ONLY else p
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 100, p) if name in V else None
    root = int(rng.integers(p))
    call = Collective(name, p, n_items, 4, root, counts)
    traffic = messages(name, number, call)
    received, sent = traffic.recv_bytes() / 4, traffic.sent_bytes() / 4
    others = np.arange(p) != root
    parts = call.parts
    if name == "bcast":
        assert np.all(received[others] >= n_items) and sent[root] >= n_items
    elif name in ("reduce", "gather"):
        assert np.all(sent[others] >= (n_items if name == "gather" else 1))
        assert received[root] >= (n_items * (p - 1) if name == "gather" else 1)
    elif name == "scatter":
        assert np.all(received[others] >= n_items) and sent[root] >= n_items * (p - 1)
    elif name in ("gatherv", "scatterv"):
        assert (received if name == "gatherv" else sent)[root] == parts[others].sum()
    elif name in ("allgather", "allgatherv"):
        assert np.all(received >= parts.sum() - parts)
    elif name == "alltoall":
        assert np.all(received >= n_items * (p - 1))
    elif name == "allreduce":
        assert np.all(received >= n_items * (1 - 1 / p) - 1), "each lacks the others' share of the result"
    elif name in ("scan", "exscan"):
        assert np.all(received[1:] >= n_items)
    elif name == "barrier":
        assert traffic.n_bytes.sum() == 0 and set(traffic.src) == set(range(p))
    else:
        assert np.all(received >= parts * (parts.sum() > 0))
    assert np.all(traffic.src != traffic.dst)


@pytest.mark.parametrize("number", [1, 3, 5, 6, 7])
@given(p=RANKS, n_items=ITEMS)
def test_a_broadcast_along_a_tree_moves_its_buffer_once_to_each(number, p, n_items):
    traffic = messages("bcast", number, Collective("bcast", p, n_items))
    assert traffic.n_bytes.sum() == (p - 1) * n_items
    assert np.array_equal(traffic.recv_bytes(), n_items * (np.arange(p) > 0))


@pytest.mark.parametrize("number", [2, 3, 4, 5])
@given(p=RANKS, n_items=ITEMS)
def test_an_allgather_brings_each_rank_every_other_part_once(number, p, n_items):
    traffic = messages("allgather", number, Collective("allgather", p, n_items))
    assert np.all(traffic.recv_bytes() == (p - 1) * n_items)
    assert np.all(traffic.sent_bytes() == (p - 1) * n_items)


@given(p=RANKS, counts=st.data())
def test_an_uneven_allgather_brings_each_rank_all_but_its_own(p, counts):
    parts = np.array(counts.draw(st.lists(st.integers(0, 50), min_size=p, max_size=p)))
    for number in (2, 3, 4):
        traffic = messages("allgatherv", number, Collective("allgatherv", p, counts=parts))
        assert np.array_equal(traffic.recv_bytes(), parts.sum() - parts)


@given(k=st.integers(1, 6), each=st.integers(1, 100))
def test_rabenseifner_on_a_power_of_two_moves_twice_all_but_a_share(k, each):
    p = 2**k
    traffic = messages("allreduce", 6, Collective("allreduce", p, each * p))
    assert np.all(traffic.sent_bytes() == 2 * each * (p - 1))


@pytest.mark.parametrize(
    ("name", "number"), [pair for pair in PAIRS if pair[0] in ("bcast", "gather", "scatter")]
)
@given(p=RANKS, n_items=ITEMS, root=st.integers(0, 69))
def test_another_root_only_turns_the_ranks(name, number, p, n_items, root):
    root %= p
    at_zero = messages(name, number, Collective(name, p, n_items))
    turned = messages(name, number, Collective(name, p, n_items, root=root))
    names = (np.arange(p) + root) % p
    again = at_zero.renumbered(names, p)
    for column in ("src", "dst", "n_bytes", "n_messages"):
        assert np.array_equal(getattr(again, column), getattr(turned, column))


@pytest.mark.parametrize(
    "tree",
    [algorithms.flat, algorithms.chain, algorithms.binomial, algorithms.in_order_binomial, algorithms.binary,
     lambda p: algorithms.k_nomial(p, 4)],
)  # fmt: skip
@given(p=st.integers(1, 300))
def test_trees_reach_every_rank_from_the_root(tree, p):
    parent = tree(p)
    assert parent[0] == -1
    assert np.all((parent[1:] >= 0) & (parent[1:] < np.arange(1, p))), (
        "parents come first, so there is no circle"
    )


@given(p=st.integers(1, 300))
def test_the_in_order_tree_keeps_the_order_of_ranks(p):
    parent = algorithms.in_order_binary(p)
    assert parent[-1] == -1 and np.all(parent[:-1] > np.arange(p - 1))
    assert np.bincount(parent[:-1], minlength=p).max(initial=0) <= 2


def test_nothing_moves_where_there_is_nothing_to_move():
    assert len(OpenMPI().messages(Collective("allreduce", 1, 10)).traffic()) == 0
    assert len(OpenMPI().messages(Collective("allreduce", 9, 0)).traffic()) == 0


def test_an_unknown_collective_is_refused():
    with pytest.raises(DataError, match="no algorithms of 'alltoallx'"):
        OpenMPI().messages(Collective("alltoallx", 9, 1))


def test_a_hundred_thousand_ranks_take_memory_of_their_rounds_only():
    p = 100_000
    for name in ("bcast", "reduce", "allreduce", "allgather", "barrier", "scatter", "reduce_scatter_block"):
        traffic = OpenMPI().messages(Collective(name, p, 100, 8)).traffic()
        assert len(traffic) < 40 * p


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    name=st.sampled_from(["bcast", "reduce", "allreduce", "allgather", "gather", "scatter", "barrier"]),
    n_items=st.sampled_from([1, 300, 30000]),
    data=st.data(),
)
def test_nodes_of_open_mpi_5_send_no_more_to_each_other_than_their_ranks_would(sizes, name, n_items, data):
    nodes = np.repeat(np.arange(len(sizes)), sizes)
    call = Collective(name, len(nodes), n_items, 8, data.draw(st.integers(0, len(nodes) - 1)), nodes=nodes)
    found = OpenMPI5().messages(call).traffic()
    whole = n_items * 8 * (1 if name in ("bcast", "reduce", "allreduce") else len(nodes))
    across = nodes[found.src] != nodes[found.dst]
    assert found.n_bytes[across].sum() <= 2 * len(nodes) * whole * (name != "barrier")
    if name in ("bcast", "allgather", "allreduce"):
        assert set(found.dst.tolist()) | {call.root} == set(range(len(nodes)))
