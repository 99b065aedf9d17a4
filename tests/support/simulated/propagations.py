"""Invented programs on several nodes, whose slowdown under interference on some of them is known.

Three types, as in Han et al. 2016, section 3.2: high propagation (one disturbed node is nearly as bad as all,
the more so the larger the pressure), proportional, and low (hardly any effect).
"""

from __future__ import annotations

import numpy as np

TYPES = ("high", "proportional", "low")
SHARES = (7, 3, 2)
"""Of the paper's twelve programs, as far as Figure 2 tells."""


def growth(rng, n_pressures):
    """Part of the largest slowdown at each pressure: rises to 1, bent either way, or a step."""
    x = np.arange(1, n_pressures + 1) / n_pressures
    if rng.uniform() < 0.3:
        middle, steep = rng.uniform(0.3, 0.7), rng.uniform(6, 12)
        found = 1 / (1 + np.exp(-steep * (x - middle)))
        return found / found[-1]
    return x ** rng.uniform(0.5, 2.0)


def times(kind, rng, n_pressures=8, n_nodes=8, noise=0.005):
    """A matrix T of shape (n_pressures, n_nodes + 1) of a program of one type.

    `noise` is the relative standard deviation of each measured time.
    """
    largest = rng.uniform(0.01, 0.1) if kind == "low" else rng.uniform(0.3, 1.5)
    height = largest * growth(rng, n_pressures)[:, None]
    j = np.arange(n_nodes + 1) / n_nodes
    if kind == "high":
        # The larger the pressure, the fewer nodes are enough.
        reach = rng.uniform(0.1, 0.3) * (1.5 - 0.5 * np.linspace(0, 1, n_pressures)[:, None])
        shape = (1 - np.exp(-j / reach)) / (1 - np.exp(-1 / reach))
    else:
        shape = j[None] ** rng.uniform(0.8, 1.2)
    found = 1 + height * shape
    found[:, 1:] *= np.exp(rng.normal(0, noise, found[:, 1:].shape))
    return found


def programs(seed, n_rounds=1, **more):
    """Type and matrix of programs in the paper's proportion of types."""
    rng = np.random.default_rng(seed)
    kinds = [kind for kind, n in zip(TYPES, SHARES, strict=True) for _ in range(n)] * n_rounds
    return [(kind, times(kind, rng, **more)) for kind in kinds]


def profile_of(matrix):
    """`profile(k, j)` that reads a matrix; the time without interference is 10 s."""
    return lambda k, j: 10.0 * (matrix[k - 1, j] if k else 1.0)


REPLAYED = [(kind, top) for kind in ("steps", "stages", "messages") for top in (1.4, 2.0, 2.6)]
"""Kind of each replayed program, and the slowdown of its computation beside the largest bubble.

"steps": all nodes compute, then wait for each other, as in most solvers. "stages": one node after the other
computes, as in a sweep without overlap. "messages": little computation between large exchanges.
"""


def replayed_job(kind, n_nodes=8):
    """A program on the hosts of a fat-tree: network and placed job."""
    from mpicoloc.core.network import Topology
    from mpicoloc.network.topology.fabric import Fabric
    from mpicoloc.replay.experiment import PlacedJob
    from mpicoloc.replay.network import of_fabric
    from mpicoloc.replay.programs.builder import of_each

    network = of_fabric(Fabric(Topology((4, 4), (1, 4), (1e9, 1e9))), "d-mod-k")
    programs = [_rank(kind, rank, n_nodes) for rank in range(n_nodes)]
    return network, PlacedJob(of_each(kind, programs), np.arange(n_nodes))


def _rank(kind, rank, n_nodes):
    from mpicoloc.replay.programs.builder import ProgramBuilder

    builder = ProgramBuilder()
    left, right = (rank - 1) % n_nodes, (rank + 1) % n_nodes
    with builder.loop(5):
        if kind == "stages":
            if rank:
                builder.recv(left, 8)
            builder.compute(1_000_000)
            builder.send(right, 8)
            if rank == 0:
                builder.recv(left, 8)
        else:
            n_bytes = 64 if kind == "steps" else 2_000_000
            builder.compute(1_000_000 if kind == "steps" else 200_000)
            for shift in (1, 2, 4):
                peers = (rank + shift) % n_nodes, (rank - shift) % n_nodes
                builder.wait_all([builder.irecv(peers[1], n_bytes), builder.isend(peers[0], n_bytes)])
    return builder.build()


def single_node_curve(kind, top, n_pressures=8):
    """Sensitivity curve of the computation on one node."""
    from mpicoloc.core.bubbles import SensitivityCurve

    levels = np.arange(n_pressures + 1.0)
    value = 1 + (top - 1) * (levels / n_pressures) ** 1.3
    return SensitivityCurve(kind, levels, value, value, value)


def replayed_times(kind, top, n_pressures=8, n_nodes=8):
    """The matrix T of a replayed program, every setting simulated."""
    from mpicoloc.bubble.propagation_runs import replayed_profile

    profile = replayed_profile(*replayed_job(kind, n_nodes), single_node_curve(kind, top, n_pressures))
    base_s = profile(0, 0)
    settings = [[profile(k, j) / base_s for j in range(n_nodes + 1)] for k in range(1, n_pressures + 1)]
    return np.array(settings)


def replayed_uneven_of(kind, top, n_nodes):
    """Slowdown of a replayed program with a bubble of its own level on each node."""
    from mpicoloc.bubble.propagation_runs import replayed_uneven

    return replayed_uneven(*replayed_job(kind, n_nodes), single_node_curve(kind, top))
