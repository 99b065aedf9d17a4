"""Lanes and weights as the flags of `mpicoloc qos` ask for them, by what the jobs do together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpicoloc import messages
from mpicoloc.core.profile import Profile
from mpicoloc.errors import UsageError
from mpicoloc.network import files
from mpicoloc.network.characterise import Case, JobInput, NetworkInput, characterise
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay import fabrics
from mpicoloc.replay.experiment import PlacedJob
from mpicoloc.replay.programs import profile_programs
from mpicoloc.replay.programs.sources import Choices
from mpicoloc.replay.qos import search
from mpicoloc.replay.qos.policy import Demands, Policy, Ports, choose_policy, demands_of
from mpicoloc.replay.qos.search import Replays, SearchResult
from mpicoloc.replay.simulate import Settings


@dataclass(frozen=True)
class Chosen:
    """A policy, and what it was chosen by."""

    cases: Sequence[Case]
    demands: Demands
    policy: Policy


def ports(args: argparse.Namespace) -> Ports:
    """What the ports can do. Raises `UsageError` if no port of InfiniBand can."""
    return Ports(args.lanes, args.mtu, args.rows)


def jobs_of(
    args: argparse.Namespace, network: NetworkInput, read: Sequence[tuple[str, Profile]]
) -> list[JobInput]:
    """The jobs, each in its place."""
    jobs = [files.job_of(args, network.fabric, i, *job) for i, job in enumerate(read)]
    if any(len(job.placements) > 1 for job in jobs):
        raise UsageError("--placement must be one for each profile: a job runs in one place")
    return jobs


def choose(
    args: argparse.Namespace, network: NetworkInput, jobs: Sequence[JobInput], is_quiet: bool = False
) -> Chosen:
    """The policy by what the jobs do to the network together, with what the flags say otherwise."""
    characterised = characterise(jobs, network)
    for note in () if is_quiet else characterised.notes:
        messages.note(note)
    demands = demands_of(characterised.cases, characterised.shared)
    policy = choose_policy(demands, ports(args), args.assign, args.weights, args.keep_lane_0)
    policy = replace(policy, high_lanes=args.high or (), high_limit=args.high_limit)
    return Chosen(characterised.cases, demands, policy)


def searched(
    args: argparse.Namespace, network: NetworkInput, read: Sequence[tuple[str, Profile]], chosen: Chosen
) -> tuple[Chosen, SearchResult]:
    """The best policy of a search, in which jobs take as long as they do alone in the simulation."""
    todo = search.trials(chosen.demands, chosen.policy, args.max_weight)  # refuses before anything long
    replays = _replays(args, network.fabric, chosen)
    alone_s = search.alone_s(replays, chosen.policy)
    if args.duration_s is None:
        timed = zip(jobs_of(args, network, read), alone_s, strict=True)
        jobs = [replace(job, duration_s=time_s) for job, time_s in timed]
        chosen = choose(args, network, jobs, is_quiet=True)
        todo = search.trials(chosen.demands, chosen.policy, args.max_weight)
    tried = search.search(replays, alone_s, todo, args.goal)
    return replace(chosen, policy=tried.best.trial.policy), tried


def _replays(args: argparse.Namespace, fabric: Fabric, chosen: Chosen) -> Replays:
    """The jobs as the simulator takes them, on the hosts where they were characterised."""
    choices = Choices(args.cpu_speed, is_unmatched_left_out=args.allow_unmatched)
    jobs = []
    for case in chosen.cases:
        made = profile_programs.read(case.file, choices).programs(case.placement.hosts)
        for note in made.notes:
            messages.note(note)
        jobs.append(PlacedJob(made, case.placement.hosts))
    # Characterised random routes belong to pairs of hosts.
    routing = "random-flow" if args.routing.startswith("random") else args.routing
    settings = Settings(mtu_bytes=chosen.policy.ports.mtu_bytes)
    return Replays(fabrics.of_fabric(fabric, routing), tuple(jobs), args.buffer, settings)
