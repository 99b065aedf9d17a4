"""Load that jobs put on a fat-tree for different placements and slimmings, and the links that they share.

Follows Jokanovic 2014, chapters 3 and 4: computes the loads of levels and links from a topology, placements,
and the messages in profiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.core import progress
from mpicoloc.core.names import names_apart
from mpicoloc.core.network import (
    Hosts,
    Levelled,
    Placement,
    Rounds,
    TimedCalls,
    TimedMessages,
    Traffic,
    TrafficSum,
)
from mpicoloc.core.profile import Estimate, Job, NetworkLevel, Profile
from mpicoloc.errors import UsageError
from mpicoloc.network import routing as network_routing, utilisation
from mpicoloc.network.routing import LinkLoads
from mpicoloc.network.topology import placements
from mpicoloc.network.topology.fabric import Fabric, placement_of
from mpicoloc.network.traffic.job_traffic import JobTraffic, hostnames, job_traffic
from mpicoloc.network.utilisation import CommonLink, Sharing, Windows, windows

AS_RUN = "run"
"""Name of the placement on the hosts where the job ran."""


@dataclass(frozen=True)
class PlacementChoice:
    """Name of a placement: `AS_RUN`, Fk, RF, or a file, whose text is in `contents`."""

    name: str
    contents: str | None = None


@dataclass(frozen=True)
class TimedTrace:
    """The messages of a job's trace, read only when needed.

    `messages` returns the messages between pairs of ranks. `calls` takes the traffic of each collective
    function (`JobTraffic.by_call`) and returns the collective calls with their shares of it.
    """

    messages: Callable[[], TimedMessages]
    calls: Callable[[Mapping[str, Rounds]], Sequence[TimedCalls]]


@dataclass(frozen=True)
class JobInput:
    """One job to characterise.

    Parameters
    ----------
    file : str
        Path of the job's profile, shown in messages to the user.
    profile : Profile
    placements : sequence of PlacementChoice
    duration_s : float or None
        T_base: the time that the job needs to send its bytes without interference; None if unknown.
    duration_by : str
        Where `duration_s` comes from, in a few words.
    sent : Traffic, optional
        All messages of the job, if they come from another source; by default the messages of the profile.
    trace : TimedTrace, optional
        Trace of the job, required for rates in windows.
    """

    file: str
    profile: Profile
    placements: Sequence[PlacementChoice]
    duration_s: float | None
    duration_by: str
    sent: Traffic | None = None
    trace: TimedTrace | None = None


@dataclass(frozen=True)
class NetworkInput:
    """The network, and the placement and routing of jobs on it.

    Parameters
    ----------
    fabric : Fabric
    trees : sequence of Levelled
        The fabric's topology under each slimming.
    routing : str
        Name of the routes, as `routing.by_name` takes it.
    ranks_per_host : int
        Ranks per host in placements Fk and RF.
    seed : int
        Seed of placement RF: each job and placement draws from a new generator with this seed.
    window_s : float, optional
        Length of windows for additional rates over time, s.
    assumed_levels, assumes_up_links
        As in `Fabric`; empty and False if the caller has set the capacities and the number of up-links.
    """

    fabric: Fabric
    trees: Sequence[Levelled]
    routing: str = "d-mod-k"
    ranks_per_host: int = 1
    seed: int = 0
    window_s: float | None = None
    assumed_levels: tuple[int, ...] = ()
    assumes_up_links: bool = False


@dataclass(frozen=True)
class Case:
    """One job on one topology under one placement."""

    file: str
    job: Job
    topology: Levelled
    placement_name: str
    routing: str
    duration_s: float | None
    duration_by: str
    levels: tuple[NetworkLevel, ...]
    loads: LinkLoads
    placement: Placement
    windows: Windows | None = None
    assumed_levels: tuple[int, ...] = ()
    assumes_up_links: bool = False
    dropped_bytes: int = 0
    partial: bool = False
    senders: LinkLoads | None = None

    def by_wall_time(self, level: NetworkLevel) -> float | None:
        """The level's utilisation by the wall time, see `utilisation.by_wall_time`."""
        return utilisation.by_wall_time(level.utilisation_frac, self.duration_s, self.job.wall_s)


@dataclass(frozen=True)
class Shared:
    """Numbers of links that jobs share, the shared links of each pair of jobs, and the jobs' slowdowns."""

    sharing: Sharing
    links: Mapping[tuple[int, int], Sequence[CommonLink]]
    slowdowns: tuple[Estimate, ...] | None


@dataclass(frozen=True)
class Characterisation:
    """All cases in the order of jobs, the links that concurrent jobs share, and notes on assumptions."""

    cases: tuple[Case, ...]
    shared: Shared | None
    notes: tuple[str, ...]


def characterise(jobs: Sequence[JobInput], network: NetworkInput) -> Characterisation:
    """Traffic of each job on each tree under each of its placements.

    Several jobs run together if there is one tree and each job has one placement. They then get separate
    hosts, and the result has the links that they share.

    Raises `UsageError` if a placement or the routing is unknown, or if jobs that run together have a host in
    common. Raises `DataError` if a job does not fit the network, or if its profile lacks data.
    """
    n_ways = max(len(job.placements) for job in jobs) * len(network.trees)
    together = len(jobs) > 1 and n_ways == 1
    notes = list(network.fabric.notes)
    if len(jobs) > 1 and not together:
        notes.append(
            f"each job has {n_ways} combinations of placement and slimming: give only one to see which links "
            "jobs share"
        )
    cases: list[Case] = []
    names = names_apart([job.profile.job.id for job in jobs])
    for job, name in zip(jobs, names, strict=True):
        free = free_hosts(network.fabric, [case.placement for case in cases] if together else [])
        own, own_notes = _cases_of_job(job, network, free, len(jobs) > 1)
        own = [replace(case, job=replace(case.job, id=name)) for case in own]
        if together:
            _check_apart(network.fabric, cases, own[0])
        cases += own
        notes += own_notes
    return Characterisation(tuple(cases), shared_links(cases) if together else None, tuple(notes))


def shared_links(cases: Sequence[Case]) -> Shared:
    """Links that the jobs of these cases share if they run at the same time."""
    loads = [case.loads for case in cases]
    durations = [case.duration_s for case in cases if case.duration_s is not None]
    senders = [case.senders for case in cases if case.senders is not None]
    slowdowns = (
        utilisation.mutual_slowdown(
            cases[0].topology, loads, durations, senders if len(senders) == len(cases) else None
        )
        if len(durations) == len(cases)
        else None
    )
    counts = utilisation.shared_links(loads)
    links = {(i, j): utilisation.common_links(loads[i], loads[j]) for i, j in counts.pairs()}
    return Shared(counts, links, slowdowns)


def free_hosts(fabric: Fabric, taken: Sequence[Placement]) -> Hosts:
    """Hosts outside all of these placements."""
    hosts = fabric.hosts()
    return np.setdiff1d(hosts, np.concatenate([placement.hosts for placement in taken])) if taken else hosts


def _check_apart(fabric: Fabric, others: Sequence[Case], case: Case) -> None:
    """Raise UsageError if jobs that run together share a host, which estimates of sharing do not support."""
    for other in others:
        both = np.intersect1d(case.placement.hosts, other.placement.hosts)
        if len(both):
            name = fabric.host_names[both[0]] if fabric.host_names else str(both[0])
            raise UsageError(
                f"jobs {other.job.id} and {case.job.id} both have ranks on host {name}: sharing of links "
                "is estimated only for jobs on separate hosts; give each profile a --placement, like F1 or RF"
            )


def _cases_of_job(
    job: JobInput, network: NetworkInput, free: Hosts, with_senders: bool
) -> tuple[list[Case], tuple[str, ...]]:
    """The cases of a job, one for each placement and tree, and the notes of the first case that has notes."""
    messages = job.trace.messages() if network.window_s is not None and job.trace is not None else None
    cases: list[Case] = []
    notes: tuple[str, ...] = ()
    name = f"job {job.profile.job.id}"
    for choice in job.placements:
        placement = placed_on(
            network.fabric,
            choice,
            job.profile.job.n_ranks,
            functools.partial(hostnames, job.profile),
            free,
            np.random.default_rng(network.seed),
            network.ranks_per_host,
        )
        with progress.stage(f"messages of {name}, {choice.name}"):
            traffic = _traffic(job, placement)
        notes = notes or traffic.notes
        for tree in progress.steps(network.trees, f"routing {name}, {choice.name}", unit="trees"):
            case = _case(job, network, tree, (choice.name, placement), traffic, with_senders)
            if messages is not None and job.trace is not None and network.window_s is not None:
                calls = job.trace.calls(traffic.by_call)
                rates = windows(tree, placement, messages, network.window_s, calls)
                case = replace(case, windows=rates)
            cases.append(case)
    return cases, notes


def _case(
    job: JobInput,
    network: NetworkInput,
    tree: Levelled,
    named_placement: tuple[str, Placement],
    traffic: JobTraffic,
    with_senders: bool,
) -> Case:
    name, placement = named_placement
    levels = utilisation.utilisation(tree, placement, traffic.traffic, job.duration_s)
    messages = (tree, placement, traffic.traffic, network_routing.by_name(network.routing))
    return Case(
        file=job.file,
        job=job.profile.job,
        topology=tree,
        placement_name=name,
        routing=network.routing,
        duration_s=job.duration_s,
        duration_by=job.duration_by,
        levels=levels,
        loads=utilisation.job_link_loads(*messages),
        placement=placement,
        assumed_levels=network.assumed_levels,
        assumes_up_links=network.assumes_up_links,
        dropped_bytes=traffic.dropped_bytes,
        partial=job.profile.partial,
        senders=utilisation.sending_hosts(*messages) if with_senders else None,
    )


def _traffic(job: JobInput, placement: Placement) -> JobTraffic:
    """The job's traffic under a placement; MPI libraries combine messages of ranks on the same host."""
    facts = job.profile.job
    if job.sent is not None:
        return JobTraffic(TrafficSum(facts.n_ranks, (job.sent,)), 0, ())
    return job_traffic(job.profile.tables, facts.n_ranks, facts.mpi_library, placement.hosts)


def placed_on(
    fabric: Fabric,
    choice: PlacementChoice,
    n_ranks: int,
    hostnames: Callable[[], list[str]],
    free: Hosts,
    rng: np.random.Generator,
    ranks_per_host: int = 1,
) -> Placement:
    """The placement that a choice names; Fk and RF use only free hosts.

    Raises `UsageError` if the placement is unknown. Raises `DataError` if the job does not fit on the hosts.
    """
    if choice.name == AS_RUN:
        return placement_of(fabric, hostnames())
    try:
        return placements.by_name(choice.name, fabric.topology, n_ranks, rng, ranks_per_host, free)
    except UsageError:
        if choice.contents is None:
            raise
    return placements.from_text(choice.contents, choice.name, fabric, n_ranks)
