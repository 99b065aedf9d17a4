"""Runs of a program beside bubbles that never took place: one trace replayed on simulated nodes.

Computation on disturbed nodes takes as many times longer as the curve of a single node says; who waits for
whom, the replay finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mpicoloc.bubble.curves import monotone
from mpicoloc.bubble.propagation import Profile
from mpicoloc.core.bubbles import SensitivityCurve
from mpicoloc.errors import DataError
from mpicoloc.replay.experiment import PlacedJob, simulate_alone, stretched
from mpicoloc.replay.network import SimulatedNetwork
from mpicoloc.replay.simulate import Settings


def replayed_profile(
    network: SimulatedNetwork, job: PlacedJob, curve: SensitivityCurve, settings: Settings | None = None
) -> Profile:
    """`profile(k, j)` of the propagation algorithms, by replay: no run of the program at all.

    Parameters
    ----------
    network : SimulatedNetwork
    job : PlacedJob
        The program on its nodes, which are the hosts of the network.
    curve : SensitivityCurve
        What computation suffers on one node.
    settings : Settings, optional

    Returns
    -------
    Profile
        Simulated time, s.
    """
    risen, _ = monotone(curve)

    def profile(level: int, n_disturbed: int) -> float:
        disturbed = stretched(job, n_disturbed, risen.at(level).value)
        return simulate_alone(network, disturbed, settings).jobs[0].end_s

    return profile


def replayed_uneven(
    network: SimulatedNetwork, job: PlacedJob, curve: SensitivityCurve, settings: Settings | None = None
) -> Callable[[Sequence[float]], float]:
    """Slowdown of the job while bubbles of different levels run on its nodes, by replay.

    Returns
    -------
    callable
        Takes the level on each node of the job, in the order of the hosts' numbers.

    Raises
    ------
    DataError
        By the callable, if there are not as many levels as nodes.
    """
    risen, _ = monotone(curve)
    hosts, number_of_rank = np.unique(job.hosts, return_inverse=True)
    alone_s = simulate_alone(network, job, settings).jobs[0].end_s

    def slowdown(levels: Sequence[float]) -> float:
        if len(levels) != len(hosts):
            raise DataError(f"job {job.name} has {len(hosts)} nodes, got {len(levels)} levels")
        factors = np.array([risen.at(level).value for level in levels])
        disturbed = replace(job, compute_factor=factors[number_of_rank])
        return simulate_alone(network, disturbed, settings).jobs[0].end_s / alone_s

    return slowdown
