"""The same jobs under several sharing policies: their schedules, and metrics of each schedule."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpicoloc.batch import engine, fragmentation, slots
from mpicoloc.batch.allocation import FEWEST_SHARERS, LEAST_DELAY
from mpicoloc.batch.engine import Schedule
from mpicoloc.batch.inputs import Machine, Workload
from mpicoloc.batch.link_allocation import FewestSharers, LeastDelay
from mpicoloc.batch.links import LinkSharing, SharedLinks
from mpicoloc.batch.order import Allocation, Order
from mpicoloc.batch.shared_simulation import SharedSimulation, Sharing, Slowdowns, blind
from mpicoloc.batch.sharing_rules import Joining, Service
from mpicoloc.core.profile import Bools, Floats, Ints
from mpicoloc.errors import UsageError
from mpicoloc.pairing import policies

LEAST_RUN_S = 10.0
"""Shorter run times count as this in bounded slowdowns, so that waits of short jobs do not dominate."""
_HOUR_S = 3600.0
_ROUNDING = 1e-6
"""Slowdowns that differ from 1 by less than this are 1: times of long logs are rounded."""


@dataclass(frozen=True)
class Outcome:
    """Metrics of one schedule, by their names in JSON; None: there was no such job.

    Parameters
    ----------
    n_jobs : int
    completion_s : float
        From the first arrival to the last end, s.
    utilisation_frac : float
        Node seconds with at least one job, as a fraction of all node seconds until the last end.
    wait_mean_s, wait_median_s, wait_p95_s : float or None
        Time from arrival to start, s.
    log_wait_mean_s : float or None
        Mean wait recorded in the log, s; None: the log has no waits.
    bounded_slowdown_mean : float or None
        Mean of ``max(1, (wait + run) / max(run, LEAST_RUN_S))`` (Feitelson 2001).
    small_wait_mean_s, big_wait_mean_s : float or None
        Mean wait of jobs that fit a switch, and of larger jobs, s.
    sharing_jobs_mean : float
        Mean number of jobs with which a job shared the network.
    sharing_jobs_frac : float
        Fraction of jobs that shared the network with any other job.
    pairs_by_level : dict of int to int
        Number of pairs of jobs that shared links of each level.
    subtrees_mean : tuple of float
        Mean number of subtrees of level 1 (first-level switches), 2, ... with nodes of a job.
    compact_frac, log_compact_frac : dict of str to float or None
        `fragmentation.compact_frac` of this schedule, and of the nodes in the log; {}: it does not give them.
    idle_uplinks_frac : float or None
        First-level switches whose up-links no job uses, which could be off: their fraction, over the time
        until the last end (Jokanovic 2014, Figure 4.8). None: there are no up-links.
    """

    n_jobs: int
    completion_s: float
    utilisation_frac: float
    wait_mean_s: float | None
    wait_median_s: float | None
    wait_p95_s: float | None
    log_wait_mean_s: float | None
    bounded_slowdown_mean: float | None
    small_wait_mean_s: float | None
    big_wait_mean_s: float | None
    sharing_jobs_mean: float
    sharing_jobs_frac: float
    pairs_by_level: dict[int, int]
    subtrees_mean: tuple[float, ...]
    compact_frac: dict[str, float | None]
    log_compact_frac: dict[str, float | None]
    idle_uplinks_frac: float | None


def outcome(centre: Centre, schedule: Schedule, shared: SharedLinks, costs: SharingCosts) -> Outcome:
    """The metrics of a schedule."""
    workload, machine = centre.workload, centre.machine
    wait_s, run_s = schedule.start_s - schedule.arrival_s, schedule.end_s - schedule.start_s
    is_small = workload.n_nodes <= machine.switch_size
    log_wait_s = workload.log.wait_s
    of_switches = functools.partial(
        fragmentation.compact_frac, workload.n_nodes, switch_size=machine.switch_size
    )
    switch_s = machine.n_switches * schedule.completion_s
    return Outcome(
        n_jobs=len(workload),
        completion_s=schedule.completion_s,
        utilisation_frac=costs.busy_node_hours / costs.machine_node_hours,
        wait_mean_s=_mean(wait_s),
        wait_median_s=float(np.median(wait_s)),
        wait_p95_s=float(np.quantile(wait_s, 0.95)),
        log_wait_mean_s=None if log_wait_s is None else _mean(log_wait_s, log_wait_s >= 0),
        bounded_slowdown_mean=_mean(np.maximum((wait_s + run_s) / np.maximum(run_s, LEAST_RUN_S), 1)),
        small_wait_mean_s=_mean(wait_s, is_small),
        big_wait_mean_s=_mean(wait_s, ~is_small),
        sharing_jobs_mean=float(shared.n_sharers.mean()),
        sharing_jobs_frac=float((shared.n_sharers > 0).mean()),
        pairs_by_level=dict(shared.n_pairs),
        subtrees_mean=tuple(shared.n_subtrees.mean(axis=0).tolist()),
        compact_frac=of_switches(shared.n_subtrees[:, 0].astype(np.int64)),
        log_compact_frac={} if centre.log_switches is None else of_switches(centre.log_switches),
        idle_uplinks_frac=1.0 - shared.used_switch_s / switch_s if machine.height > 1 else None,
    )


def _mean(values: Floats, which: Bools | slice = slice(None)) -> float | None:
    """Mean of the selected values; None if there are none."""
    known = values[which]
    return float(known.mean()) if len(known) else None


@dataclass(frozen=True)
class SharingCosts:
    """Costs of one simulated schedule.

    Parameters
    ----------
    lost_node_hours : float
        Node hours lost to interference: J_inter of Eq. 2.3.
    busy_node_hours, shared_node_hours : float
        Node hours with at least one job, and with at least two.
    machine_node_hours : float
        All node hours of the machine from the first arrival to the last end.
    slowdown_mean : float
        Mean of T_co / T_solo over all jobs.
    """

    lost_node_hours: float
    busy_node_hours: float
    shared_node_hours: float
    machine_node_hours: float
    slowdown_mean: float


def lost_node_hours(n_nodes: Floats, lost_s: Floats) -> float:
    """Node hours lost if jobs took longer by `lost_s`, each on so many nodes (Eq. 2.3)."""
    return float((lost_s * n_nodes).sum()) / _HOUR_S


def slowdowns(workload: Workload, schedule: Schedule) -> Floats:
    """Run time of each job over that in the log; below 1 if a job is spread and gains from it."""
    found = (schedule.end_s - schedule.start_s) / workload.log.run_s
    return np.where(np.abs(found - 1.0) < _ROUNDING, 1.0, found)


def of_schedule(
    workload: Workload,
    schedule: Schedule,
    n_nodes: int,
    of_job: Floats,
    busy_node_s: float,
    shared_node_s: float,
) -> SharingCosts:
    """Costs of a schedule on `n_nodes` nodes, of which each job has `of_job`.

    Also given are the node seconds with at least one job, and with at least two.

    Notes
    -----
    Jokanovic 2014, Eq. 2.2 and 2.3: nodes of each job times its run time beyond that of the same job alone.
    """
    inter_s = schedule.end_s - schedule.start_s - workload.log.run_s
    return SharingCosts(
        # A job that gains from being spread loses nothing.
        lost_node_hours=lost_node_hours(of_job, np.maximum(inter_s, 0.0)),
        busy_node_hours=busy_node_s / _HOUR_S,
        shared_node_hours=shared_node_s / _HOUR_S,
        machine_node_hours=n_nodes * schedule.completion_s / _HOUR_S,
        slowdown_mean=float(slowdowns(workload, schedule).mean()),
    )


def effectiveness(reference_lost: float | None, lost: float | None) -> float | None:
    """E(P) of Eq. 2.4: lost node hours, reference over policy; None if either is None or 0."""
    return reference_lost / lost if reference_lost and lost else None


def saved_frac(alone: SharingCosts, shared: SharingCosts) -> float:
    """Fraction of the machine's node hours that sharing saves for the same jobs; < 0: sharing costs more.

    The machine's node hours are those of the schedule without sharing.
    """
    return (alone.busy_node_hours - shared.busy_node_hours) / alone.machine_node_hours


class Record:
    """Observer that records the nodes of each job as runs of consecutive numbers.

    Parameters
    ----------
    n_jobs : int

    Attributes
    ----------
    runs : list of list of tuple of (int, int)
        First node and number of nodes of each run, by job.
    beside : dict of int to set of int
        For each job that had co-runners, all jobs that shared a node with it at any time.
    busy : list of tuple of (float, int)
        Time, s, and number of nodes with a job from then on.
    """

    def __init__(self, n_jobs: int) -> None:
        self.runs: list[list[tuple[int, int]]] = [[] for _ in range(n_jobs)]
        self.beside: dict[int, set[int]] = {}
        self.busy: list[tuple[float, int]] = []

    def began(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Record the job's nodes."""
        starts = np.flatnonzero(np.diff(nodes, prepend=-2) != 1)
        lengths = np.diff(starts, append=len(nodes))
        self.runs[job] = list(zip(nodes[starts].tolist(), lengths.tolist(), strict=True))
        # Only a simulation with sharing has the table `beside`.
        for other in getattr(simulation, "beside", {}).get(job, ()):
            self.beside.setdefault(job, set()).add(other)
            self.beside.setdefault(other, set()).add(job)
        self._count(simulation)

    def ended(self, simulation: Any, job: int, nodes: Ints) -> None:
        """Record the number of nodes that are still busy."""
        self._count(simulation)

    def _count(self, simulation: Any) -> None:
        self.busy.append((simulation.now_s, simulation.n_busy_nodes))


TWO_A_NODE = ("blind", "model", "service")
"""Policies under which up to two jobs share a node."""
SHARING = ("none", *TWO_A_NODE, *slots.POLICIES)
"""Names of all sharing policies."""
SHARING_ORDERS = ("fcfs", "easy")
"""Orders that support sharing: the first job of their queues is the job that arrived first."""


@dataclass(frozen=True)
class Centre:
    """The simulated centre, apart from its sharing policy.

    Parameters
    ----------
    workload : Workload
    machine : Machine
    order_name : str
    order : Order
    allocation : Allocation
    packs : bool
        Whether jobs share even while nodes are free.
    simulate : callable
        Simulates the jobs without sharing.
    against : Allocation, optional
        Reference allocation: node hours lost to links are compared with those under it.
    log_switches : ndarray of int, optional
        `fragmentation.of_log` of the workload.
    """

    workload: Workload
    machine: Machine
    order_name: str
    order: Order
    allocation: Allocation
    packs: bool = False
    simulate: engine.Simulate = engine.simulate
    against: Allocation | None = None
    log_switches: Ints | None = None


@dataclass(frozen=True)
class Case:
    """One random draw: the programs of the jobs, and their slowdowns beside each other.

    `utilisation` is the link utilisation of each program (`utilisation_files.of_programs`); None: links
    delay no job.
    """

    seed: int
    programs: Ints
    slowdowns: Slowdowns
    names: tuple[str, ...] = ()
    """Names of the programs, if they have any."""
    utilisation: Floats | None = None


@dataclass(frozen=True)
class SharedRun:
    """Results of one policy in one case.

    `n_cores` are the cores that each job occupies. `record` is empty if the nodes of jobs were not recorded.
    `links_lost_node_hours` is None if links delay no job, and `against_node_hours` is None without a
    reference allocation.
    """

    sharing: str
    seed: int
    schedule: engine.Schedule
    outcome: Outcome
    costs: SharingCosts
    record: Record
    links: SharedLinks
    n_cores: Ints
    links_lost_node_hours: float | None = None
    against_node_hours: float | None = None


def check_names(names: Sequence[str], order_name: str) -> None:
    """Raise UsageError if a policy is unknown or named twice, or the order does not support sharing."""
    for name in names:
        if name not in SHARING:
            raise UsageError(f"sharing {name!r} is unknown: give one or more of {', '.join(SHARING)}")
        if names.count(name) > 1:
            raise UsageError(f"--sharing names {name} twice")
    if set(names) - {"none"} and order_name not in SHARING_ORDERS:
        raise UsageError(
            f"--sharing {','.join(names)} does not work with --order {order_name}: give one of the orders "
            f"{' and '.join(SHARING_ORDERS)}"
        )


def check_centre(centre: Centre, names: Sequence[str]) -> None:
    """Check that the nodes, allocations and packing of a centre suit these policies.

    Raises `DataError` if nodes have too few cores, and `UsageError` if another flag does not suit.
    """
    for name in names:
        if name in slots.POLICIES:
            slots.POLICIES[name].slots_of(centre.workload)
            for rule in filter(None, (centre.allocation, centre.against)):
                slots.fill(rule)
    if centre.packs and not set(names) & set(TWO_A_NODE):
        raise UsageError(
            f"--pack does not work with --sharing {','.join(names)}: leave it out, or add one of "
            f"{', '.join(TWO_A_NODE)}"
        )


def run_all(
    centre: Centre, names: Sequence[str], cases: Sequence[Case], *, keeps_places: bool = True
) -> Iterator[SharedRun]:
    """Run each policy in each case; ``none`` runs only once if links delay no job: nothing is random then."""
    for name in names:
        for case in cases[:1] if name == "none" and cases[0].utilisation is None else cases:
            found = run(centre, name, case, keeps_places=keeps_places)
            if centre.against is not None and found.links_lost_node_hours is not None:
                other = run(replace(centre, allocation=centre.against), name, case, keeps_places=False)
                found = replace(found, against_node_hours=other.links_lost_node_hours)
            yield found


def run(centre: Centre, name: str, case: Case, *, keeps_places: bool = True) -> SharedRun:
    """Simulate one policy in one case; `keeps_places` records the nodes of each job, for figures and tables.

    Raises `UsageError` if the policy is unknown, or the order does not support sharing.
    """
    check_names([name], centre.order_name)
    work, machine = centre.workload, centre.machine
    record, rule = Record(len(work)), centre.allocation.name
    kept = (record,) if keeps_places else ()
    links = (FewestSharers if rule == FEWEST_SHARERS else SharedLinks)(machine, len(work))
    delays = LeastDelay if rule == LEAST_DELAY else LinkSharing
    delayed = () if case.utilisation is None else (delays(machine, case.utilisation, case.programs),)
    observers = (links, *kept, *delayed)
    if name == "none":
        schedule = centre.simulate(work, machine, centre.order, centre.allocation, observers)
        busy_s = float(((schedule.end_s - schedule.start_s) * work.n_nodes).sum())
        shared_s = 0.0
    else:
        simulation = _simulation(centre, name, case, observers)
        schedule = simulation.run()
        busy_s, shared_s = simulation.busy_node_s, simulation.shared_node_s
    n_cores = cores_of(work, name)
    of_job = n_cores / work.cores_per_node
    costs = of_schedule(work, schedule, machine.n_nodes, of_job, busy_s, shared_s)
    figures = outcome(centre, schedule, links, costs)
    lost = lost_node_hours(of_job, delayed[0].lost_s) if delayed else None
    return SharedRun(name, case.seed, schedule, figures, costs, record, links, n_cores, lost)


def cores_of(work: Workload, name: str) -> Ints:
    """Cores that each job gets under a policy."""
    policy = slots.POLICIES.get(name)
    return work.n_nodes * work.cores_per_node if policy is None else policy.cores_of(work)


def _simulation(
    centre: Centre, name: str, case: Case, observers: Sequence[engine.Observer]
) -> engine.Simulation:
    work, machine, order, rule = centre.workload, centre.machine, centre.order, centre.allocation
    if name in slots.POLICIES:
        base = work, machine, order, slots.fill(rule), observers
        return slots.SlotSimulation(*base, case.programs, case.slowdowns, slots.POLICIES[name])
    slowdowns = blind(case.slowdowns) if name == "blind" else case.slowdowns
    base = work, machine, order, rule, observers
    return SharedSimulation(*base, case.programs, slowdowns, _sharing(centre, name))


def _sharing(centre: Centre, name: str) -> Sharing:
    if name == "service":
        return Service(centre.workload.cores_per_node, policies.Rules("blossom"))
    return Joining(is_blind=name == "blind", overtakes=centre.order_name != "fcfs", packs=centre.packs)
