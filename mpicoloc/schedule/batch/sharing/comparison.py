"""The same jobs under several sharing policies, once for each seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mpicoloc.errors import UsageError
from mpicoloc.schedule import policies
from mpicoloc.schedule.batch import engine, metrics
from mpicoloc.schedule.batch.links.link_sharing import LinkSharing
from mpicoloc.schedule.batch.logs.job_log import Workload
from mpicoloc.schedule.batch.machine import Machine
from mpicoloc.schedule.batch.network_sharing import SharedLinks
from mpicoloc.schedule.batch.sharing import costs
from mpicoloc.schedule.batch.sharing.costs import LinkCosts, SharingCosts
from mpicoloc.schedule.batch.sharing.joining import Joining
from mpicoloc.schedule.batch.sharing.record import Record
from mpicoloc.schedule.batch.sharing.service import Service
from mpicoloc.schedule.batch.sharing.shared_simulation import SharedSimulation, Sharing
from mpicoloc.schedule.batch.sharing.slowdowns import Slowdowns, blind
from mpicoloc.schedule.batch.view import Allocation, Order

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
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

    `utilisation` is that of links by programs (`links.utilisation.of_programs`); None: links delay nobody.
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

    `record` is empty where places were not kept; `link_costs` is None if links delay nobody.
    """

    sharing: str
    seed: int
    schedule: engine.Schedule
    outcome: metrics.Outcome
    costs: SharingCosts
    record: Record
    links: SharedLinks
    link_costs: LinkCosts | None = None


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
            yield (
                found
                if centre.against is None
                else _compared_with_other_allocation(centre, centre.against, found, case)
            )


def _compared_with_other_allocation(
    centre: Centre, against: Allocation, found: SharedRun, case: Case
) -> SharedRun:
    """With what the same jobs lose to links under the other allocation, if links delay them."""
    if found.link_costs is None:
        return found
    other = run(replace(centre, allocation=against), found.sharing, case, keeps_places=False).link_costs
    assert other is not None
    return replace(found, link_costs=replace(found.link_costs, against_node_hours=other.lost_node_hours))


def run(centre: Centre, name: str, case: Case, *, keeps_places: bool = True) -> SharedRun:
    """One policy in one case; where each job was is kept for pictures and tables, if they are wanted.

    Raises
    ------
    UsageError
        If the policy or order is not one that shares.
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
    sharing_costs = costs.of_schedule(work, schedule, machine.n_nodes, busy_s, shared_s)
    outcome = metrics.outcome(work, machine, schedule, links)
    # With two jobs a node, the jobs' own node seconds would count it twice.
    outcome = replace(outcome, utilisation_frac=sharing_costs.utilisation_frac)
    link_costs = costs.of_links(work, delayed[0].lost_s) if delayed else None
    return SharedRun(name, case.seed, schedule, outcome, sharing_costs, record, links, link_costs)


def _sharing(centre: Centre, name: str) -> Sharing:
    if name == "service":
        return Service(centre.workload.cores_per_node, policies.Rules("blossom"))
    overtakes = centre.order_name != "fcfs"
    return Joining(is_blind=name == "blind", overtakes=overtakes, packs=centre.packs)
