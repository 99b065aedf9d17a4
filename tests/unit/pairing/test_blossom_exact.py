"""Matchings beside the exact ones of another formulation: ties, groups, costs of many sizes, few vertices."""

import numpy as np
import pytest
import rustworkx
from hypothesis import given, settings, strategies as st

from mpicoloc.pairing import blossom


def exact(weights, alone, must_pair):
    """Least cost, by a perfect matching of the vertices and a copy of each that it is alone with."""
    n = len(alone)
    edges = {(i, j): int(weights[i, j]) for i in range(n) for j in range(i + 1, n)}
    if not must_pair:
        edges |= {(i, n + i): int(alone[i]) for i in range(n)}
        edges |= {(n + i, n + j): 0 for i in range(n) for j in range(i + 1, n)}
    elif n % 2:
        edges |= {(i, n): int(alone[i]) for i in range(n)}
    most = max(edges.values(), default=0) + 1
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(n + n % 2 if must_pair else 2 * n))
    graph.add_edges_from([(i, j, most - cost) for (i, j), cost in edges.items()])
    found = rustworkx.max_weight_matching(graph, max_cardinality=True, weight_fn=int)
    assert 2 * len(found) == len(graph)
    return sum(edges[min(pair), max(pair)] for pair in found)


def ties(n, top, rng):
    return rng.integers(0, top + 1, (n, n))


def programs(n, top, rng):
    kind = rng.integers(0, 4, n)
    return rng.integers(0, top + 1, (4, 4))[np.ix_(kind, kind)]


def odd_groups(n, top, rng):
    part = np.arange(n) // rng.choice([3, 5])
    return np.where(part[:, None] == part, 1, 10 * top)


def sizes(n, top, rng):
    """As many numbers of each size, up to twelve orders of magnitude."""
    return np.floor(10 ** rng.uniform(0, 12, (n, n)))


@st.composite
def problems(draw):
    n = draw(st.sampled_from([0, 1, 2, 3, 4, 7, 15, 30, 33, 65, 66]))
    top = draw(st.sampled_from([1, 4, 1000, 10**9]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = draw(st.sampled_from([ties, programs, odd_groups, sizes]))(n, top, rng).astype(float)
    weights = np.maximum(weights, weights.T)
    np.fill_diagonal(weights, 0)
    return weights, rng.integers(0, top + 1, n).astype(float) * draw(st.sampled_from([0, 1, 5]))


@settings(max_examples=150, deadline=None)
@given(
    problems(),
    st.booleans(),
    st.sampled_from([None, 1, 2, 10]),
    st.sampled_from([0, blossom.TOLERANCE_FRAC]),
)
def test_as_the_exact_matching(problem, must_pair, n_neighbours, tolerance_frac):
    weights, alone = problem
    least = exact(weights, alone, must_pair)
    for complete_up_to in (0, blossom.COMPLETE_RATHER_UP_TO):
        found = blossom.match(
            weights,
            alone,
            must_pair=must_pair,
            tolerance_frac=tolerance_frac,
            n_neighbours=n_neighbours,
            complete_up_to=complete_up_to,
        )
        ids = np.arange(len(alone))
        assert (found.partner[found.partner] == ids).all()
        assert not must_pair or (found.partner == ids).sum() == len(ids) % 2
        assert found.lower_bound * (1 - 1e-12) <= least <= found.cost * (1 + 1e-12)
        # Where the complete graph is the last resort, the bound of the few edges was not needed, or was near.
        assert complete_up_to == 0 or found.cost <= least * (1 + tolerance_frac) * (1 + 1e-9)
        assert found.gap_frac > 1e-9 or found.cost == pytest.approx(least)


@pytest.mark.parametrize("must_pair", [False, True])
def test_costs_of_many_sizes_are_all_seen(must_pair):
    """Weights that are negligible beside the largest one still matter beside the chosen ones."""
    rng = np.random.default_rng(0)
    weights = sizes(401, 0, rng)
    weights = np.maximum(weights, weights.T)
    np.fill_diagonal(weights, 0)
    found = blossom.match(weights, np.floor(10 ** rng.uniform(0, 12, 401)), must_pair=must_pair)
    assert found.gap_frac <= blossom.TOLERANCE_FRAC
