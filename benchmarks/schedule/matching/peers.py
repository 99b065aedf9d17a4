"""Other programs that match a complete graph, and how long they take."""

import time

import numpy as np

INTEGERS = 2**40
"""The largest weight is scaled to this for programs that take integers; sums of 1,000 stay far below 2^63."""


def networkx(weights):
    import networkx as nx

    graph = nx.Graph()
    i, j = np.triu_indices(len(weights), 1)
    graph.add_weighted_edges_from(zip(i.tolist(), j.tolist(), weights[i, j].tolist(), strict=True))
    started = time.perf_counter()
    pairs = nx.min_weight_matching(graph)
    return time.perf_counter() - started, sum(weights[a, b] for a, b in pairs)


def rustworkx(weights):
    import rustworkx as rx

    i, j = np.triu_indices(len(weights), 1)
    gains = INTEGERS + 1 - np.rint(weights[i, j] * (INTEGERS / weights.max())).astype(np.int64)
    graph = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(weights)))
    graph.add_edges_from(list(zip(i.tolist(), j.tolist(), gains.tolist(), strict=True)))
    started = time.perf_counter()
    pairs = rx.max_weight_matching(graph, max_cardinality=True, weight_fn=int)
    return time.perf_counter() - started, sum(weights[a, b] for a, b in pairs)
