"""Lower bounds on matchings by odd sets: Edmonds 1965, as cutting planes.

Of an odd number of vertices one is always left over, which a fractional matching does not see: on a triangle
it takes half of each edge. For such sets S the sum of x over the edges inside is at most (|S| - 1) / 2. The
linear program has the edges kept and the sets found so far; its dual variables price all edges of the
complete graph, and show which of them are missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_ROUNDS = 16
"""Linear programs solved at most; each takes about as long as the matching itself."""
N_PRICED = 8
"""Missing edges taken at each vertex in a round."""
QUANTILES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0)
_ROUNDING = 1e-7


@dataclass(frozen=True)
class Tightened:
    """One round: a bound, edges that the program misses, and whether another round can help."""

    bound: float
    missing: Ints
    is_last: bool


class Cuts:
    """The odd sets found so far.

    Parameters
    ----------
    weights : ndarray, shape (n, n)
        Costs of the edges.
    alone : ndarray, shape (n,)
        Cost of staying alone; infinite: every vertex is matched.
    """

    def __init__(self, weights: Floats, alone: Floats) -> None:
        self._weights, self._alone = weights, alone
        self._sets: list[Ints] = []
        self._n_rounds = 0

    def tightened(self, edges: Ints) -> Tightened:
        """Solve the program over `edges`, shape (n_edges, 2); look for violated sets and missing edges."""
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
        is_last = self._n_rounds >= MAX_ROUNDS or not (found or len(missing))
        return Tightened(bound, missing, is_last)

    def _solved(self, edges: Ints) -> tuple[Floats, Floats, Floats] | None:
        """Primal values of the edges, dual ones of vertices and sets; None: the program has no solution."""
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
        """Edges of negative reduced cost, the worst of each vertex; those in the program have none."""
        k = min(N_PRICED, len(reduced) - 1)
        ends = np.argpartition(reduced, k - 1, axis=1)[:, :k]
        edges = np.stack([np.repeat(np.arange(len(reduced)), k), ends.ravel()], axis=1)
        return edges[reduced[edges[:, 0], edges[:, 1]] < -rounding]

    def _violated(self, x: Floats, edges: Ints, reduced: Floats) -> list[Ints]:
        """Odd sets with too much of x inside, among the parts of the graph of edges below some reduced cost.

        What the solution uses has reduced cost 0 and lies inside of such parts, be they cycles or whole
        groups of vertices that are far from all others.
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
    """Mean cost of a vertex by its dual variables: what is small beside it, does not count.

    The largest weight may be many times that of all edges that matter.
    """
    mean = float(y.mean())
    return mean if mean > 0 else float(weights.max()) or 1.0


def components(n: int, edges: Ints) -> Ints:
    """Label of each vertex's part of a graph, shape (n,)."""
    from scipy import sparse
    from scipy.sparse import csgraph

    graph = sparse.csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), (n, n))
    return np.asarray(csgraph.connected_components(graph, directed=False)[1], np.int64)
