"""Near-optimal minimum-weight matching of a complete graph, with a proven bound on the gap.

Edmonds' blossom algorithm on a complete graph of 1,000 vertices takes longer than a scheduler can wait, but
few edges matter. The assignment problem, a relaxation that is solved in a fraction of a second, finds them:
its dual variables give every edge a *reduced cost*, and their sum is a *lower bound* on all matchings. The
blossom algorithm then runs only on edges of small reduced cost. If cost and bound are too far apart, `Cuts`
raises the bound and finds missing edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpicoloc.core.profile import Floats, Ints
from mpicoloc.errors import DataError, EnvironmentFault, remedy

# Lower bounds on matchings by odd sets: Edmonds 1965, as cutting planes.
#
# A matching leaves at least one vertex of an odd set without a partner inside the set. A fractional matching
# can violate this: on a triangle it takes half of each edge. Let x be the part of each edge that is taken.
# For an odd set S, the sum of x over the edges inside S is therefore limited to (|S| - 1) / 2. The linear
# program has only the edges kept and the odd sets found so far. Its dual variables give a reduced cost to
# every edge of the complete graph, which shows the edges that are missing.


MAX_ROUNDS = 16
"""Largest number of linear programs solved; each takes about as long as the matching itself."""
N_PRICED = 8
"""Largest number of missing edges that a round adds for each vertex."""
QUANTILES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
_ROUNDING = 1e-7


@dataclass(frozen=True)
class Tightened:
    """Result of one round: a bound, edges that the linear program lacks, and whether to stop."""

    bound: float
    missing: Ints
    is_last: bool


class Cuts:
    """The linear program with the odd sets found so far.

    Parameters
    ----------
    weights : ndarray, shape (n, n)
        Costs of the edges.
    alone : ndarray, shape (n,)
        Cost of staying alone; infinite if the vertex must be matched.
    """

    def __init__(self, weights: Floats, alone: Floats) -> None:
        self._weights, self._alone = weights, alone
        self._sets: list[Ints] = []
        self._n_rounds = 0

    def tightened(self, edges: Ints) -> Tightened:
        """Solve the program over `edges`, shape (n_edges, 2); find violated odd sets and missing edges."""
        solution = self._solved(edges)
        if solution is None:
            return Tightened(-np.inf, np.empty((0, 2), np.int64), True)
        x, y, z = solution
        reduced = self._priced(y, z)
        missing = self._missing(reduced, _ROUNDING * mean_cost(y, self._weights))
        slack = np.minimum(np.minimum(reduced.min(axis=1), 2 * (self._alone - y)), 0.0)
        sizes = np.array([(len(chosen) - 1) // 2 for chosen in self._sets])
        bound = float((y + slack / 2).sum() + z @ sizes)
        found = self._violated(x, edges, reduced)
        self._sets += found
        self._n_rounds += 1
        return Tightened(bound, missing, self._n_rounds >= MAX_ROUNDS or not (found or len(missing)))

    def _solved(self, edges: Ints) -> tuple[Floats, Floats, Floats] | None:
        """Primal values of the edges, dual values of vertices and sets; None if there is no solution."""
        from scipy import sparse
        from scipy.optimize import linprog

        n, n_edges = len(self._alone), len(edges)
        single = np.flatnonzero(np.isfinite(self._alone))
        columns = np.concatenate([np.repeat(np.arange(n_edges), 2), n_edges + np.arange(len(single))])
        rows = np.concatenate([edges.ravel(), single])
        shape = (n, n_edges + len(single))
        degree = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape)
        costs = np.concatenate([self._weights[edges[:, 0], edges[:, 1]], self._alone[single]])
        inside = [np.flatnonzero(np.isin(edges, chosen).all(axis=1)) for chosen in self._sets]
        cut_rows = np.repeat(np.arange(len(inside)), [len(found) for found in inside])
        cut_columns = np.concatenate([*inside, np.empty(0, np.int64)])
        limits = [(len(chosen) - 1) // 2 for chosen in self._sets]
        cuts = sparse.csr_array((np.ones(len(cut_rows)), (cut_rows, cut_columns)), (len(inside), shape[1]))
        extra = {"A_ub": cuts, "b_ub": limits} if self._sets else {}
        answer = linprog(costs, A_eq=degree, b_eq=np.ones(n), bounds=(0, None), method="highs", **extra)
        if answer.status != 0:
            return None
        z = np.minimum(answer.ineqlin.marginals, 0.0) if self._sets else np.empty(0)
        return answer.x[:n_edges], answer.eqlin.marginals, z

    def _priced(self, y: Floats, z: Floats) -> Floats:
        """Reduced cost of every edge, infinite on the diagonal."""
        reduced = self._weights - y[:, None] - y
        for chosen, value in zip(self._sets, z, strict=True):
            if value < 0:
                reduced[np.ix_(chosen, chosen)] -= value
        np.fill_diagonal(reduced, np.inf)
        return reduced

    def _missing(self, reduced: Floats, rounding: float) -> Ints:
        """Edges that the program lacks: at each vertex, the edges of most negative reduced cost."""
        k = min(N_PRICED, len(reduced) - 1)
        ends = np.argpartition(reduced, k - 1, axis=1)[:, :k]
        edges = np.stack([np.repeat(np.arange(len(reduced)), k), ends.ravel()], axis=1)
        return edges[reduced[edges[:, 0], edges[:, 1]] < -rounding]

    def _violated(self, x: Floats, edges: Ints, reduced: Floats) -> list[Ints]:
        """Odd sets that the solution x violates: the sum of x over their inner edges is too large.

        Such a set is a cycle, or a cluster of vertices that are far from all others. Candidates are connected
        components of the edges that the solution uses, of those with a large x, and of all edges up to some
        reduced cost. Edges that the solution uses have reduced cost 0.
        """
        n = len(self._alone)
        costs = np.maximum(reduced[edges[:, 0], edges[:, 1]], 0.0)
        used = x > _ROUNDING
        levels = np.quantile(costs, QUANTILES)
        graphs = [used, *(x > least for least in (0.3, 0.45)), *(used | (costs <= level) for level in levels)]
        found: dict[bytes, Ints] = {}
        for kept in graphs:
            found |= self._overfull(components(n, edges[kept]), x, edges)
        known = {chosen.tobytes() for chosen in self._sets}
        return [chosen for key, chosen in found.items() if key not in known]

    def _overfull(self, parts: Ints, x: Floats, edges: Ints) -> dict[bytes, Ints]:
        inside = parts[edges[:, 0]] == parts[edges[:, 1]]
        filled = np.bincount(parts[edges[inside, 0]], x[inside], minlength=parts.max() + 1)
        sizes = np.bincount(parts)
        odd = np.flatnonzero((sizes % 2 == 1) & (filled > (sizes - 1) / 2 + 1e-6))
        sets = [np.flatnonzero(parts == part) for part in odd]
        return {chosen.tobytes(): chosen for chosen in sets}


def mean_cost(y: Floats, weights: Floats) -> float:
    """Mean cost of a vertex by the dual variables, as the scale of rounding errors.

    The largest weight is not a suitable scale: it may be many times as large as all weights that matter.
    """
    mean = float(y.mean())
    return mean if mean > 0 else float(weights.max()) or 1.0


def components(n: int, edges: Ints) -> Ints:
    """Label of each vertex's connected component, shape (n,)."""
    from scipy import sparse
    from scipy.sparse import csgraph

    graph = sparse.csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), (n, n))
    return np.asarray(csgraph.connected_components(graph, directed=False)[1], np.int64)


MAX_VERTICES = 4096
"""Largest number of vertices. Larger graphs take minutes, and gigabytes: memory grows with the square."""
COMPLETE_UP_TO = 64
"""Up to this number of vertices, matching the complete graph directly is faster than choosing edges."""
COMPLETE_RATHER_UP_TO = 300
"""Up to this number of vertices, if the edges kept are not enough, the complete graph is matched. In larger
graphs, odd sets and missing edges are added."""
N_NEIGHBOURS = 10
"""Number of edges of least reduced cost kept at each vertex."""
MAX_NEIGHBOURS = 40
"""Average number of edges per vertex above which no more are added."""
N_ASCENTS = 12
"""Number of cheap rounds that first raise the dual variables. With these, the assignment problem is solved
faster."""
TOLERANCE_FRAC = 1e-3
_TIES_FRAC = 1e-7
_WEIGHT_BITS = 44


@dataclass(frozen=True)
class Matching:
    """A matching: the partner of each vertex.

    Parameters
    ----------
    partner : ndarray of int, shape (n,)
        The vertex that each vertex is matched to; a vertex that stays alone has its own number.
    cost : float
        Sum of the weights of the matched edges and of the costs of staying alone.
    lower_bound : float
        Proven lower bound of the cost of all matchings; NaN without a proof.
    """

    partner: Ints
    cost: float
    lower_bound: float

    @property
    def gap_frac(self) -> float:
        """Largest possible gap between cost and optimum, as a fraction of the bound; NaN without a proof."""
        if self.lower_bound == 0:
            return 0.0 if self.cost == 0 else np.inf
        return float(np.maximum(self.cost / self.lower_bound - 1, 0.0))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The matched edges (i, j), i < j."""
        return [(i, int(j)) for i, j in enumerate(self.partner) if i < j]


def match(
    weights: ArrayLike,
    alone: ArrayLike,
    *,
    must_pair: bool = False,
    tolerance_frac: float = TOLERANCE_FRAC,
    n_neighbours: int | None = None,
    complete_up_to: int = COMPLETE_RATHER_UP_TO,
) -> Matching:
    """Matching of least cost, where each vertex may also stay alone.

    Shapes: `weights` (n, n), `alone` (n,). Raises `DataError` if shapes differ, a number is negative or not
    finite, or there are more than `MAX_VERTICES`. Raises `EnvironmentFault` if rustworkx is not installed.

    The matching and the odd sets of the bound follow Edmonds 1965. Applegate and Cook (1993) and Cook and
    Rohe (1999) match large complete graphs in the same way: they keep few edges, and add edges that the dual
    variables show to be missing.
    """
    weights, alone = checked(weights, alone)
    n = len(alone)
    if n < 2:
        return _result(np.arange(n), weights, alone, float(alone.sum()))
    weights, allowed = _extended(weights, alone) if must_pair else (weights, alone)
    graph = _Graph(weights, allowed)
    if n_neighbours is None:
        n_neighbours = n if n <= COMPLETE_UP_TO else N_NEIGHBOURS
    if n_neighbours >= len(weights) - 1:
        graph.add(graph.all_edges())
        partner, bound = graph.solved(), np.inf
    else:
        partner, bound = _priced(graph, tolerance_frac, n_neighbours, complete_up_to)
    partner = partner[:n]
    return _result(np.where(partner < n, partner, np.arange(n)), weights, alone, bound)


def greedy(weights: ArrayLike, alone: ArrayLike, *, must_pair: bool = False) -> Matching:
    """Matching made by repeatedly taking the edge of least cost between free vertices. It has no bound.

    An edge that costs more than leaving both of its ends alone is skipped, unless `must_pair`. For parameters
    and errors see `match`.

    Notes
    -----
    Zacarias et al. 2021, section 3.5: always take the remaining pair with the earliest end.
    """
    weights, alone = checked(weights, alone)
    i, j = np.triu_indices(len(alone), 1)
    costs = weights[i, j]
    if not must_pair:
        gains = np.flatnonzero(costs < alone[i] + alone[j])
        i, j, costs = i[gains], j[gains], costs[gains]
    order = np.argsort(costs, kind="stable")
    partner = list(range(len(alone)))
    for a, b in zip(i[order].tolist(), j[order].tolist(), strict=True):
        if partner[a] == a and partner[b] == b:
            partner[a], partner[b] = b, a
    return _result(np.array(partner, np.int64), weights, alone, np.nan)


def cost_of(partner: Ints, weights: Floats, alone: Floats) -> float:
    """Cost of a matching."""
    ids = np.arange(len(partner))
    single = partner == ids
    return float(alone[single].sum() + weights[ids, partner][~single].sum() / 2)


def checked(weights: ArrayLike, alone: ArrayLike) -> tuple[Floats, Floats]:
    """Weights and costs as arrays, if they meet the requirements of `match`."""
    if np.size(alone) > MAX_VERTICES:
        raise DataError(
            f"matching: {np.size(alone):,} vertices exceed the limit of {MAX_VERTICES:,}: match them in parts"
        )
    weights = np.array(weights, np.float64, ndmin=2)
    alone = np.array(alone, np.float64, ndmin=1)
    n = len(alone)
    if alone.shape != (n,) or (weights.shape != (n, n) and weights.size + n):
        raise DataError(
            f"matching: weights has shape {weights.shape}, alone has {alone.shape}; need (n, n) and (n,)"
        )
    weights = weights.reshape(n, n)
    np.fill_diagonal(weights, 0.0)
    for name, numbers in (("weight", weights), ("cost of staying alone", alone)):
        wrong = ~(np.isfinite(numbers) & (numbers >= 0))
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise DataError(f"matching: the {name} at {where} is {numbers[where]}; need a number >= 0")
    if not np.array_equal(weights, weights.T):
        raise DataError("matching: weights are not symmetric; use the larger weight of the two directions")
    return weights, alone


def _result(partner: Ints, weights: Floats, alone: Floats, bound: float) -> Matching:
    cost = cost_of(partner, weights, alone)
    partner = np.array(partner, np.int64)
    partner.flags.writeable = False
    return Matching(partner, cost, bound if np.isnan(bound) else min(bound, cost))


def _extended(weights: Floats, alone: Floats) -> tuple[Floats, Floats]:
    """Weights and costs for pairing every vertex.

    If n is odd, a dummy vertex is added. The partner of the dummy stays alone.
    """
    n = len(alone)
    if n % 2:
        weights = np.pad(weights, (0, 1))
        weights[n, :n] = weights[:n, n] = alone
    return weights, np.full(len(weights), np.inf)


def _priced(
    graph: _Graph, tolerance_frac: float, n_neighbours: int, complete_up_to: int
) -> tuple[Ints, float]:
    """The best matching found and the bound. Ends when cost and bound are close or no longer improve."""
    y = duals(graph.weights, graph.alone)
    bound = float(y.sum())
    graph.price(y)
    graph.add(graph.nearest(n_neighbours))
    partner = graph.solved()
    if graph.cost(partner) - bound > tolerance_frac * bound and graph.n <= complete_up_to:
        graph.add(graph.all_edges())
        return graph.solved(), np.inf
    cuts = Cuts(graph.weights, graph.alone)
    while graph.cost(partner) - bound > tolerance_frac * bound:
        found = cuts.tightened(graph.edges)
        bound = max(bound, found.bound)
        if len(found.missing):
            graph.add(found.missing)
            partner = min(partner, graph.solved(), key=graph.cost)
        if found.is_last or len(graph.edges) > MAX_NEIGHBOURS * graph.n:
            break
    return partner, bound


def duals(weights: Floats, alone: Floats) -> Floats:
    """Dual variables of the fractional matching: y_i + y_j <= weight of (i, j), and y_i <= cost of i alone.

    Shapes: `weights` (n, n), `alone` (n,), result (n,). Result: their sum is at most the cost of any
    matching.

    A matching is an assignment of vertices to vertices in which i goes to j whenever j goes to i. The best
    assignment may cost less than the best matching, because its cycles may be longer. Its dual variables come
    from shortest paths (Bellman-Ford).
    """
    from scipy.optimize import linear_sum_assignment

    costs = weights.copy()
    np.fill_diagonal(costs, 2 * alone)
    y = np.asarray(costs.min(axis=1) / 2)
    for _ in range(N_ASCENTS):
        y = (y + (costs - y).min(axis=1)) / 2
    reduced = costs - y[:, None] - y
    _, to = linear_sum_assignment(reduced)
    steps = reduced[:, to].T
    taken = np.diag(steps).copy()
    u = _shortest(np.ascontiguousarray(steps - taken[:, None]))
    v = np.empty_like(u)
    v[to] = taken - u
    y = y + (u + v) / 2
    # Rounding, or a search that ended early, may leave a sum above a weight: lower these variables.
    slack = (costs - y[:, None] - y).min(axis=1)
    return y + np.minimum(slack, 0.0) / 2


def _shortest(steps: Floats) -> Floats:
    """Lengths of the shortest paths to each vertex from any vertex; `steps` [i, j] leads from i to j."""
    lengths = np.zeros(len(steps))
    finite = steps[np.isfinite(steps)]
    rounding = 1e-12 * float(np.abs(finite).max(initial=0.0))
    moved = np.arange(len(steps))
    for _ in range(len(steps)):
        shorter = np.minimum(lengths, (lengths[moved, None] + steps[moved]).min(axis=0))
        moved = np.flatnonzero(lengths - shorter > rounding)
        lengths = shorter
        if not len(moved):
            break
    return lengths


def spread(n: int) -> Floats:
    """Numbers in [0, 1), shape (n, n), that break ties, so that jobs of one program keep different edges."""
    ids = np.arange(n)
    return (ids[:, None] * np.sqrt(2) + ids * (np.sqrt(5) - 1) / 2) % 1


class _Graph:
    """The sparse graph of the edges kept from the complete graph."""

    def __init__(self, weights: Floats, alone: Floats) -> None:
        self.weights, self.alone = weights, alone
        self.n = len(alone)
        self.is_perfect = bool(np.isinf(alone).any())
        self.edges: Ints = np.empty((0, 2), np.int64)
        self._reduced = weights
        self._mean = float(weights.max()) or 1.0
        self._library = library()

    def price(self, y: Floats) -> None:
        """Set the dual variables, whose reduced costs select the edges that are kept."""
        self._reduced = self.weights - y[:, None] - y
        self._mean = mean_cost(y, self.weights)

    def all_edges(self) -> Ints:
        return np.stack(np.triu_indices(self.n, 1), axis=1)

    def add(self, edges: Ints) -> None:
        """Add these edges."""
        both = np.sort(np.concatenate([self.edges, edges]), axis=1)
        codes = np.unique(both[:, 0] * self.n + both[:, 1])
        self.edges = np.stack([codes // self.n, codes % self.n], axis=1)

    def nearest(self, k: int, outside: Ints | None = None) -> Ints:
        """The k edges of least reduced cost at each vertex.

        `outside` is the component of each vertex; if given, only edges between components are returned.
        """
        ids = np.arange(self.n)
        near = self._reduced + spread(self.n) * _TIES_FRAC * self._mean
        near[ids, ids] = np.inf
        if outside is not None:
            near[outside[:, None] == outside] = np.inf
        ends = np.argpartition(near, k, axis=1)[:, :k]
        edges = np.stack([np.repeat(ids, k), ends.ravel()], axis=1)
        return edges[np.isfinite(near[edges[:, 0], edges[:, 1]])]

    def solved(self) -> Ints:
        """The matching of least cost on the edges kept; adds edges if it is not perfect but has to be."""
        partner = self._blossom()
        left = np.flatnonzero(partner == np.arange(self.n))
        if self.is_perfect and len(left):
            parts = components(self.n, self.edges)
            self.add(self.nearest(min(N_NEIGHBOURS, self.n - 1), parts))
            i, j = np.triu_indices(len(left), 1)
            self.add(np.stack([left[i], left[j]], axis=1))
            partner = self._blossom()
        return partner

    def cost(self, partner: Ints) -> float:
        return cost_of(partner, self.weights, self.alone)

    def _blossom(self) -> Ints:
        i, j = self.edges.T
        if self.is_perfect:
            # Matching by reduced costs is faster, and finds the same matching: with reduced costs, the cost
            # of every perfect matching changes by the same sum.
            numbers = self._reduced[i, j]
            gains = numbers.max(initial=0.0) - numbers
        else:
            gains = self.alone[i] + self.alone[j] - self.weights[i, j]
            i, j, gains = i[gains > 0], j[gains > 0], gains[gains > 0]
        most = float(gains.max(initial=0.0)) or 1.0
        integers = 1 + np.rint(gains / most * 2.0**_WEIGHT_BITS).astype(np.int64)
        graph = self._library.PyGraph(multigraph=False)
        graph.add_nodes_from(range(self.n))
        graph.add_edges_from(list(zip(i.tolist(), j.tolist(), integers.tolist(), strict=True)))
        found: Iterable[tuple[int, int]] = self._library.max_weight_matching(
            graph, max_cardinality=self.is_perfect, weight_fn=int
        )
        partner = np.arange(self.n)
        for a, b in found:
            partner[a], partner[b] = b, a
        return partner


def library() -> Any:
    """Import rustworkx, which has the blossom algorithm.

    Raises `EnvironmentFault` if it is not installed.
    """
    try:
        import rustworkx
    except ImportError as error:
        raise EnvironmentFault(
            f"planning pairs needs rustworkx, which is not installed: {remedy('schedule')}, "
            "or take the policy greedy (--policy greedy)"
        ) from error
    return rustworkx
