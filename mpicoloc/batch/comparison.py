"""The same jobs under several sharing policies, once for each seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpicoloc.batch import engine, metrics
from mpicoloc.batch.job_log import Workload
from mpicoloc.batch.links import LinkSharing, SharedLinks
from mpicoloc.batch.machine import Machine
from mpicoloc.batch.metrics import SharingCosts
from mpicoloc.batch.shared_simulation import SharedSimulation, Sharing, Slowdowns, blind
from mpicoloc.batch.sharing_rules import Joining, Service
from mpicoloc.batch.view import Allocation, Order
from mpicoloc.core.profile import Floats, Ints
from mpicoloc.errors import UsageError
from mpicoloc.pairing import policies


class Record:
    """Observer that keeps the nodes of each job as runs of neighbours.

    Parameters
    ----------
    n_jobs : int

    Attributes
    ----------
    runs : list of list of tuple of (int, int)
        First node and number of nodes of each run, by job.
    beside : dict of int to set of int
        The jobs that were on nodes of a job at any time, by job; of those that had any.
    busy : list of tuple of (float, int)
        Time, s, and nodes with a job from then on.
    """

    def __init__(self, n_jobs: int) -> None:
        self.runs: list[list[tuple[int, int]]] = [[] for _ in range(n_jobs)]
        self.beside: dict[int, set[int]] = {}
        self.busy: list[tuple[float, int]] = []

    def began(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Keep the job's nodes."""
        starts = np.flatnonzero(np.diff(nodes, prepend=-2) != 1)
        lengths = np.diff(starts, append=len(nodes))
        self.runs[job] = list(zip(nodes[starts].tolist(), lengths.tolist(), strict=True))
        # Without sharing a simulation keeps no such table.
        for other in getattr(simulation, "beside", {}).get(job, ()):
            self.beside.setdefault(job, set()).add(other)
            self.beside.setdefault(other, set()).add(job)
        self._count(simulation)

    def ended(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Count the nodes that are still busy."""
        self._count(simulation)

    def _count(self, simulation: Any) -> None:
        view = simulation.view
        self.busy.append((view.now_s, view.machine.n_nodes - view.n_free))


SHARING = {
    "none": "each job has its nodes for itself",
    "blind": "two jobs a node, whatever they suffer",
    "model": "two jobs a node where the slowdown model finds that the machine works more",
    "service": "pairs of jobs as `mpicoloc pair --watch` decides them",
}
"""Sharing policies by name."""
SHARING_ORDERS = ("fcfs", "easy")
"""Orders under which jobs share: the first of the queue is the first that came."""


@dataclass(frozen=True)
class Centre:
    """What is simulated, whoever shares.

    Parameters
    ----------
    workload : Workload
    machine : Machine
    order_name : str
    order : Order
    allocation : Allocation
    packs : bool
        Jobs share even while nodes are free.
    simulate : callable
        Runs the jobs where none share.
    against : Allocation, optional
        What is lost to links is compared with what would be lost under this one.
    """

    workload: Workload
    machine: Machine
    order_name: str
    order: Order
    allocation: Allocation
    packs: bool = False
    simulate: engine.Simulate = engine.simulate
    against: Allocation | None = None


@dataclass(frozen=True)
class Case:
    """One draw of what is random: the programs of the jobs, and what they suffer beside each other.

    `utilisation` is that of links by programs (`draws.of_programs`); None: links delay nobody.
    """

    seed: int
    programs: Ints
    slowdowns: Slowdowns
    names: tuple[str, ...] = ()
    """Of the programs, where they have names."""
    utilisation: Floats | None = None


@dataclass(frozen=True)
class SharedRun:
    """One policy in one case.

    `record` is empty where places were not kept; node hours lost to links are None if links delay nobody,
    and those lost under the allocation that is compared with, if there is none.
    """

    sharing: str
    seed: int
    schedule: engine.Schedule
    outcome: metrics.Outcome
    costs: SharingCosts
    record: Record
    links: SharedLinks
    links_lost_node_hours: float | None = None
    against_node_hours: float | None = None


def check_names(names: Sequence[str], order_name: str) -> None:
    """Raise UsageError if a policy is unknown or named twice, or the order is none of `SHARING_ORDERS`."""
    for name in names:
        if name not in SHARING:
            raise UsageError(f"sharing {name!r} is unknown: give one or more of {', '.join(SHARING)}")
        if names.count(name) > 1:
            raise UsageError(f"--sharing names {name} twice")
    if set(names) - {"none"} and order_name not in SHARING_ORDERS:
        raise UsageError(
            f"--sharing {','.join(names)} with --order {order_name}: jobs share in the orders "
            f"{' and '.join(SHARING_ORDERS)} only; give one of these"
        )


def run_all(
    centre: Centre, names: Sequence[str], cases: Sequence[Case], *, keeps_places: bool = True
) -> Iterator[SharedRun]:
    """Each policy in each case; ``none`` once if links delay nobody, since nothing is random then."""
    for name in names:
        for case in cases[:1] if name == "none" and cases[0].utilisation is None else cases:
            found = run(centre, name, case, keeps_places=keeps_places)
            if centre.against is not None and found.links_lost_node_hours is not None:
                other = run(replace(centre, allocation=centre.against), name, case, keeps_places=False)
                found = replace(found, against_node_hours=other.links_lost_node_hours)
            yield found


def run(centre: Centre, name: str, case: Case, *, keeps_places: bool = True) -> SharedRun:
    """One policy in one case; where each job was is kept for pictures and tables, if they are wanted.

    Raises `UsageError` if the policy or order is not one that shares.
    """
    check_names([name], centre.order_name)
    work, machine = centre.workload, centre.machine
    links, record = SharedLinks(machine, len(work)), Record(len(work))
    kept = (record,) if keeps_places else ()
    delayed = () if case.utilisation is None else (LinkSharing(machine, case.utilisation, case.programs),)
    base = (work, machine, centre.order, centre.allocation, (links, *kept, *delayed))
    if name == "none":
        schedule = centre.simulate(*base)
        busy_s = float(((schedule.end_s - schedule.start_s) * work.n_nodes).sum())
        shared_s = 0.0
    else:
        slowdowns = blind(case.slowdowns) if name == "blind" else case.slowdowns
        simulation = SharedSimulation(*base, case.programs, slowdowns, _sharing(centre, name))
        schedule = simulation.run()
        busy_s, shared_s = simulation.busy_node_s, simulation.shared_node_s
    costs = metrics.of_schedule(work, schedule, machine.n_nodes, busy_s, shared_s)
    outcome = metrics.outcome(work, machine, schedule, links, costs)
    lost = metrics.lost_node_hours(work, delayed[0].lost_s) if delayed else None
    return SharedRun(name, case.seed, schedule, outcome, costs, record, links, lost)


def _sharing(centre: Centre, name: str) -> Sharing:
    if name == "service":
        return Service(centre.workload.cores_per_node, policies.Rules("blossom"))
    overtakes = centre.order_name != "fcfs"
    return Joining(is_blind=name == "blind", overtakes=overtakes, packs=centre.packs)
