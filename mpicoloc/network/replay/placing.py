"""Jobs on hosts of a fabric, before they are replayed together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mpicoloc.core.topology import Hosts, Placement
from mpicoloc.errors import UsageError
from mpicoloc.network.load.characterise import AS_RUN, PlacementChoice
from mpicoloc.network.topology import placements
from mpicoloc.network.topology.fabric import Fabric, placement_of


def place(
    fabric: Fabric,
    jobs: Sequence[tuple[int, PlacementChoice, Callable[[], list[str]]]],
    rng: np.random.Generator,
    ranks_per_host: int = 1,
) -> list[Placement]:
    """Placements of jobs, one after the other: F and RF take hosts that are still free.

    Parameters
    ----------
    fabric : Fabric
    jobs : sequence of (int, PlacementChoice, callable)
        Ranks of each job, its placement, and what gives the name of each rank's host where it ran.
    rng : numpy.random.Generator
        For RF.
    ranks_per_host : int
        Of F and RF.

    Raises
    ------
    UsageError
        If a placement is unknown.
    DataError
        If a job does not fit.
    """
    placed: list[Placement] = []
    for job in jobs:
        placed.append(_place(fabric, job, _free(fabric, placed), rng, ranks_per_host))
    return placed


def check(fabric: Fabric, choice: PlacementChoice) -> None:
    """Refuse a placement that is wrong for a job of any size.

    Raises
    ------
    UsageError, DataError
    """
    if choice.name != AS_RUN and choice.contents is None:
        placements.by_name(choice.name, fabric.topology, 1, np.random.default_rng(0))


def _free(fabric: Fabric, taken: Sequence[Placement]) -> Hosts:
    hosts = fabric.hosts()
    return np.setdiff1d(hosts, np.concatenate([placement.hosts for placement in taken])) if taken else hosts


def _place(
    fabric: Fabric,
    job: tuple[int, PlacementChoice, Callable[[], list[str]]],
    free: Hosts,
    rng: np.random.Generator,
    ranks_per_host: int,
) -> Placement:
    n_ranks, choice, hostnames = job
    if choice.name == AS_RUN:
        return placement_of(fabric, hostnames())
    try:
        return placements.by_name(choice.name, fabric.topology, n_ranks, rng, ranks_per_host, free)
    except UsageError:
        if choice.contents is None:
            raise
    return placements.from_text(choice.contents, choice.name, fabric, n_ranks)
