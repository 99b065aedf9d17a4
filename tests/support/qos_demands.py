"""Demands of jobs for tests of lanes."""

import numpy as np

from mpicoloc.network.qos.demand import Demands


def all_meet(*used):
    """Jobs of these utilisations, each of which shares links with each other."""
    demand = np.array(used, dtype=float)
    meeting = demand[:, None] * demand
    np.fill_diagonal(meeting, 0.0)
    return Demands(demand, meeting)
