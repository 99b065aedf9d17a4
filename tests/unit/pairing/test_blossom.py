"""Matchings: the optimum where it can be known, and a bound that is one everywhere."""

import itertools
import sys

import networkx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mpicoloc.errors import DataError, EnvironmentFault
from mpicoloc.pairing import blossom


def symmetric(weights):
    weights = np.maximum(weights, weights.T)
    np.fill_diagonal(weights, 0)
    return weights


def brute_force(weights, alone, must_pair):
    """The least cost over all matchings, by trying them."""

    def least(left, n_alone):
        if not left:
            return 0.0
        first, *rest = left
        costs = []
        if n_alone:
            costs.append(alone[first] + least(rest, n_alone - 1))
        for i, other in enumerate(rest):
            costs.append(weights[first, other] + least(rest[:i] + rest[i + 1 :], n_alone))
        return min(costs, default=np.inf)

    n = len(alone)
    return least(list(range(n)), n % 2 if must_pair else n)


@st.composite
def problems(draw, most=9):
    n = draw(st.integers(2, most))
    # Few values make ties, which choose differently on each way.
    top = draw(st.sampled_from([2, 5, 1000]))
    numbers = st.integers(0, top)
    weights = draw(st.lists(numbers, min_size=n * n, max_size=n * n))
    alone = draw(st.lists(numbers, min_size=n, max_size=n))
    weights = symmetric(np.array(weights, float).reshape(n, n) / 4)
    return weights, np.array(alone, float) / 4, draw(st.booleans())


@settings(max_examples=150, deadline=None)
@given(problems(), st.integers(1, 10))
def test_is_a_matching_near_the_optimum_and_bounded_by_it(problem, n_neighbours):
    """Also on graphs that are far from complete: what is missing is found."""
    weights, alone, must_pair = problem
    best = brute_force(weights, alone, must_pair)
    found = blossom.match(
        weights, alone, must_pair=must_pair, n_neighbours=n_neighbours, tolerance_frac=0.0, complete_up_to=0
    )
    assert (found.partner[found.partner] == np.arange(len(alone))).all()
    n_alone = np.count_nonzero(found.partner == np.arange(len(alone)))
    assert not must_pair or n_alone == len(alone) % 2
    assert found.cost == pytest.approx(blossom.cost_of(found.partner, weights, alone))
    assert found.lower_bound <= best * (1 + 1e-9) + 1e-12
    assert found.cost >= best * (1 - 1e-9)
    if found.gap_frac == 0 or n_neighbours >= len(alone):
        assert found.cost == pytest.approx(best)


@settings(max_examples=60, deadline=None)
@given(problems())
def test_costs_no_more_than_greedy(problem):
    weights, alone, must_pair = problem
    found = blossom.match(weights, alone, must_pair=must_pair)
    simple = blossom.greedy(weights, alone, must_pair=must_pair)
    assert found.cost <= simple.cost * (1 + 1e-9)
    assert np.isnan(simple.lower_bound)
    assert np.isnan(simple.gap_frac)


def random(n, rng):
    return rng.exponential(1, (n, n)) + 1, rng.uniform(1, 3, n)


def products(n, rng):
    """Slowdowns are sensitivity times pressure; run times scatter widely."""
    runtime = np.exp(rng.normal(5, 1, n))
    return runtime[:, None] * (1 + np.outer(rng.gamma(2, 0.6, n), rng.random(n))), runtime


def few_programs(n, rng):
    """Many jobs of the same programs tie."""
    kind = rng.integers(0, 12, n)
    runtime = np.exp(rng.normal(5, 1, 12))
    slowdown = 1 + rng.exponential(0.6, (12, 12))
    return (runtime[:, None] * slowdown)[np.ix_(kind, kind)], runtime[kind]


def far_groups(n, rng):
    """Clusters, some of odd size: edges between them are long, and one of each odd one is needed."""
    where = rng.random((9, 2))[rng.integers(0, 9, n)] * 10 + rng.random((n, 2)) * 0.05
    distance = np.linalg.norm(where[:, None] - where, axis=2)
    return 1 + distance, np.full(n, 1.2)


def triples(n, rng):
    """The fractional matching takes half of each edge of a triangle: its bound is far too low."""
    part = np.arange(n) // 3
    return np.where(part[:, None] == part, 1.0, 10.0), np.full(n, 5.5)


def integers(n, rng):
    return rng.integers(1, 4, (n, n)).astype(float), np.full(n, 1.0)


def heavy_tail(n, rng):
    size = rng.pareto(1.1, n) + 1
    return np.outer(size, size), size * 10


def star(n, rng):
    """Everybody's best partners are the same few."""
    ids = np.arange(n, dtype=float)
    return np.minimum(ids[:, None], ids), 0.6 * ids


STRUCTURES = [random, products, few_programs, far_groups, triples, integers, heavy_tail, star]


@pytest.mark.parametrize("must_pair", [False, True])
@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda f: f.__name__)
def test_few_edges_are_enough(structure, must_pair):
    """Within the tolerance of the complete graph's optimum, and proved to be."""
    weights, alone = structure(101, np.random.default_rng(7))
    weights = symmetric(weights)
    found = blossom.match(weights, alone, must_pair=must_pair, complete_up_to=0)
    assert blossom.match(weights, alone, must_pair=must_pair).gap_frac <= blossom.TOLERANCE_FRAC
    exact = blossom.match(weights, alone, must_pair=must_pair, n_neighbours=101)
    assert exact.gap_frac == 0
    assert found.gap_frac <= blossom.TOLERANCE_FRAC
    assert found.lower_bound <= exact.cost * (1 + 1e-9)
    assert exact.cost <= found.cost * (1 + 1e-9)
    assert found.cost <= exact.cost * (1 + blossom.TOLERANCE_FRAC)


def test_agrees_with_networkx():
    weights, _ = random(30, np.random.default_rng(2))
    weights = symmetric(weights)
    graph = networkx.Graph()
    graph.add_weighted_edges_from((i, j, weights[i, j]) for i, j in itertools.combinations(range(30), 2))
    pairs = networkx.min_weight_matching(graph)
    found = blossom.match(weights, np.zeros(30), must_pair=True, n_neighbours=5)
    assert found.cost == pytest.approx(sum(weights[i, j] for i, j in pairs), rel=1e-3)
    assert len(found.pairs) == len(pairs) == 15


@settings(max_examples=40, deadline=None)
@given(problems(most=8))
def test_dual_variables_are_below_every_weight(problem):
    weights, alone, _ = problem
    y = blossom.duals(weights, alone)
    slack = weights - y[:, None] - y
    np.fill_diagonal(slack, 0)
    assert slack.min() >= -1e-9
    assert (y <= alone + 1e-9).all()


def test_odd_sets_raise_the_bound_of_a_triangle():
    """Three vertices at 1 from each other and 10 alone: 3/2 by halves of edges, 11 in truth."""
    weights = symmetric(np.ones((3, 3)))
    alone = np.full(3, 10.0)
    edges = np.array([[0, 1], [0, 2], [1, 2]])
    cuts = blossom.Cuts(weights, alone)
    assert cuts.tightened(edges).bound == pytest.approx(1.5)
    last = cuts.tightened(edges)
    assert last.bound == pytest.approx(11)
    assert last.is_last


@pytest.mark.parametrize(
    ("weights", "alone", "words"),
    [
        (np.zeros((2, 3)), [1, 1], "shape"),
        (np.zeros((3, 3)), [1, 1], "shape"),
        ([[0, np.nan], [np.nan, 0]], [1, 1], "weight at (0, 1) is nan"),
        ([[0, -1], [-1, 0]], [1, 1], "is -1.0"),
        ([[0, 1], [2, 0]], [1, 1], "symmetric"),
        ([[0, 1], [1, 0]], [1, np.inf], "staying alone at (1,) is inf"),
    ],
)
def test_bad_input_is_named(weights, alone, words):
    for solve in (blossom.match, blossom.greedy):
        with pytest.raises(DataError) as raised:
            solve(weights, alone)
        assert words in str(raised.value)


def test_nothing_and_one():
    assert blossom.match(np.empty((0, 0)), []).cost == 0
    one = blossom.match([[0]], [3])
    assert (one.cost, one.lower_bound, one.partner.tolist()) == (3, 3, [0])


def test_too_many_are_refused():
    n = blossom.MAX_VERTICES + 1
    with pytest.raises(DataError, match="match them in parts"):
        blossom.match(np.broadcast_to(1.0, (n, n)), np.ones(n))


def test_missing_library_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "rustworkx", None)
    with pytest.raises(EnvironmentFault, match=r"pip install .*\[schedule\]'.*greedy"):
        blossom.match([[0, 1], [1, 0]], [1, 1])
