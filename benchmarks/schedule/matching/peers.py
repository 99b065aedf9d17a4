"""Other programs that match a complete graph, and how long they take."""

import shutil
import subprocess
import time
from pathlib import Path

import numpy as np

INTEGERS = 2**40
"""What the largest weight becomes where a program takes integers; sums of 1,000 stay far below 2^63."""


def scaled(weights):
    factor = INTEGERS / weights.max()
    return np.rint(weights * factor).astype(np.int64), factor


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

    integers, _ = scaled(weights)
    i, j = np.triu_indices(len(weights), 1)
    gains = INTEGERS + 1 - integers[i, j]
    graph = rx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(len(weights)))
    graph.add_edges_from(list(zip(i.tolist(), j.tolist(), gains.tolist(), strict=True)))
    started = time.perf_counter()
    pairs = rx.max_weight_matching(graph, max_cardinality=True, weight_fn=int)
    return time.perf_counter() - started, sum(weights[a, b] for a, b in pairs)


class Lemon:
    """LEMON's solver, compiled here; false where it cannot be."""

    def __init__(self, folder):
        self._folder = Path(folder)
        self._program = self._folder / "lemon"
        source = Path(__file__).with_name("lemon.cc")
        self._is_there = (
            bool(shutil.which("g++"))
            and not subprocess.run(
                ["g++", "-O2", "-o", self._program, source], capture_output=True, timeout=120
            ).returncode
        )

    def __bool__(self):
        return self._is_there

    def __call__(self, weights):
        integers, factor = scaled(weights)
        file = self._folder / "weights"
        file.write_bytes(np.int64(len(weights)).tobytes() + integers.tobytes())
        done = subprocess.run([self._program, file], capture_output=True, text=True, check=True, timeout=600)
        seconds, cost = done.stdout.split()
        return float(seconds), int(cost) / factor
