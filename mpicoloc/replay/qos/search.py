"""Choose lanes and weights by the jobs' demands, or by replaying the jobs under many policies."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np

from mpicoloc import messages
from mpicoloc.core import progress
from mpicoloc.core.profile import Profile
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network import files
from mpicoloc.network.characterise import Case, JobInput, NetworkInput, characterise
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay.experiment import PlacedJob
from mpicoloc.replay.network import Lanes, SimulatedNetwork, of_fabric
from mpicoloc.replay.programs import profile_programs
from mpicoloc.replay.programs.sources import Choices
from mpicoloc.replay.qos.policy import (
    MAX_WEIGHT,
    Demands,
    Policy,
    Ports,
    choose_policy,
    demands_of,
    n_rows_needed,
    numbered_lanes,
)
from mpicoloc.replay.simulate import Settings, simulate

ONE_LANE = "one lane"
ALL_GROUPINGS_MAX_JOBS = 8
"""Up to this number of jobs, all groupings are tried; for more jobs, only neighbours of the best grouping so
far."""
_N_WEIGHED = 3
"""Number of groupings, the best ones, with which weights are tried. The grouping that is chosen without a
search is tried too."""


@dataclass(frozen=True)
class Trial:
    """A policy to try, with a name such as "1:2:4", "lane 0 first", `ONE_LANE` or "ft + cg | bt"."""

    name: str
    policy: Policy


@dataclass(frozen=True)
class Tried:
    """A trial with its result.

    Parameters
    ----------
    trial : Trial
    sharing_s : tuple of float
        T_sharing of each job.
    contention_s : tuple of float
        T_sharing - T_alone of each job (Jokanovic 2014, Eq. 5.1).
    """

    trial: Trial
    sharing_s: tuple[float, ...]
    contention_s: tuple[float, ...]

    @property
    def mean_slowdown(self) -> float:
        """Mean of T_sharing / T_alone over the jobs."""
        pairs = zip(self.sharing_s, self.contention_s, strict=True)
        return float(
            np.mean([all_s / (all_s - lost_s) if all_s > lost_s else 1.0 for all_s, lost_s in pairs])
        )

    def loss(self, goal: str) -> float:
        """The loss to minimise for the goal "time" or "slowdown"; 0 if jobs do not slow each other down."""
        return self.total_contention_s if goal == "time" else self.mean_slowdown - 1

    @property
    def total_contention_s(self) -> float:
        """Sum of the contention of all jobs (Jokanovic 2014, Eq. 5.2)."""
        return sum(self.contention_s)


@dataclass(frozen=True)
class SearchResult:
    """The results of the trials.

    Parameters
    ----------
    alone_s : tuple of float
        T_alone of each job.
    tried : tuple of Tried
        In the order of the trials.
    goal : str
        The quantity to minimise. "time": total time that jobs lose, as in the thesis; "slowdown": their mean
        slowdown. With "time", jobs that take much longer than others dominate; with "slowdown", short jobs
        count as much as long ones.
    groupings : tuple of Tried
        Groupings of jobs into lanes, compared before the trials of weights, in order of increasing loss.
    """

    alone_s: tuple[float, ...]
    tried: tuple[Tried, ...]
    goal: str = "time"
    groupings: tuple[Tried, ...] = ()

    @property
    def best(self) -> Tried:
        """The sweet spot: the least loss (by time: Jokanovic 2014, Eq. 5.4); of equal losses, the most equal
        weights.

        Policies with high priority are excluded: a lane of high priority can stop the others for as long as
        it sends.
        """
        return min(
            (tried for tried in self.tried if not tried.trial.policy.high_lanes),
            key=lambda tried: (
                tried.loss(self.goal),
                max(tried.trial.policy.weights) / min(tried.trial.policy.weights),
            ),
        )

    @property
    def gain_frac(self) -> float | None:
        """Fraction by which the sweet spot reduces the reference's loss; None if that loss is 0."""
        before = self.reference.loss(self.goal)
        return 1 - self.best.loss(self.goal) / before if before > 0 else None

    @property
    def reference(self) -> Tried:
        """The trial with which other trials are compared: equal weights of one packet, without priorities."""
        return next(
            tried
            for tried in self.tried
            if tried.trial.name != ONE_LANE
            and set(tried.trial.policy.weights) == {1}
            and not tried.trial.policy.high_lanes
        )


def trials(demands: Demands, start: Policy, max_weight: int = MAX_WEIGHT) -> list[Trial]:
    """Policies to try, from those that favour the heaviest lane to those that favour the lightest.

    Result: all jobs on one lane; the heaviest lane first; weights that fall or rise with the lanes' demands;
    the lightest lane first. "First" means high priority without limit. Raises `UsageError` if all jobs are on
    one lane, or the largest weight is below 1.

    Jokanovic 2014, Figures 5.12 to 5.15 and 5.17. With three or more lanes, only weights that are monotone in
    the demands are tried, to limit their number.
    """
    if max_weight < 1:
        raise UsageError(f"--max-weight must be at least 1, got {max_weight}")
    used = sorted(set(start.lane_of_job))
    if len(used) < 2:
        raise UsageError(
            "--search needs jobs on different lanes: give at least two profiles, and --lanes 2 or more"
        )
    lanes = np.array(start.lane_of_job)
    order = sorted(used, key=lambda lane: -demands.demand_frac[lanes == lane].sum())
    ports = replace(start.ports, n_lanes=1)
    todo = [Trial(ONE_LANE, Policy(ports, (0,) * len(lanes), (1,))), _first(start, order[0])]
    for vector in _monotone(len(order), max_weight):
        weights = [1] * start.n_lanes
        for lane, weight in zip(order, vector, strict=True):
            weights[lane] = weight
        if n_rows_needed(weights, start.ports.mtu_bytes) <= start.ports.n_rows:
            policy = replace(start, weights=tuple(weights), high_lanes=())
            todo.append(Trial(":".join(map(str, weights)), policy))
    return [*todo, _first(start, order[-1])]


def _first(start: Policy, lane: int) -> Trial:
    policy = replace(start, weights=(1,) * start.n_lanes, high_lanes=(lane,), high_limit=255)
    return Trial(f"lane {lane} first", policy)


def _monotone(n: int, max_weight: int) -> list[tuple[int, ...]]:
    """Falling, equal, then rising vectors of powers of two with least element 1; steepest at both ends."""
    powers = [1 << i for i in range(max_weight.bit_length())]
    rising = [vector for vector in combinations_with_replacement(powers, n) if vector[0] == 1]
    rising.sort(key=lambda vector: (vector[-1], sum(vector)))
    return [vector[::-1] for vector in rising[:0:-1]] + rising


def _all_groupings(n_jobs: int, n_lanes: int) -> list[tuple[int, ...]]:
    """All partitions of jobs into at most `n_lanes` lanes, up to renumbering of lanes."""
    found: list[tuple[int, ...]] = [(0,)]
    for _ in range(n_jobs - 1):
        found = [(*lanes, lane) for lanes in found for lane in range(min(max(lanes) + 2, n_lanes))]
    return found


def _groupings_near(lanes: Sequence[int], n_lanes: int) -> Iterator[tuple[int, ...]]:
    """Groupings that differ from `lanes` by one job on another lane, or two jobs that swap lanes."""
    for job, own in enumerate(lanes):
        for lane in range(n_lanes):
            yield (*lanes[:job], lane, *lanes[job + 1 :])
        for other in range(job):
            swapped = list(lanes)
            swapped[job], swapped[other] = lanes[other], own
            yield tuple(swapped)


def try_groupings(
    replays: Replays,
    alone_s: Sequence[float],
    names: Sequence[str],
    demands: Demands,
    start: Policy,
    goal: str,
) -> list[Tried]:
    """Try groupings of jobs into two or more lanes, with the weights of `choose_policy`; least loss first.

    For up to `ALL_GROUPINGS_MAX_JOBS` jobs, all groupings are tried. For more jobs, the neighbours of `start`
    are tried, then those of the best grouping so far, until no neighbour is better.
    """
    first = int(start.is_lane_0_free)
    n_lanes = start.ports.n_lanes - first
    is_all = len(names) <= ALL_GROUPINGS_MAX_JOBS
    near: Iterable[tuple[int, ...]] = _all_groupings(len(names), n_lanes) if is_all else ()
    found: dict[tuple[int, ...], Tried] = {}
    best = start.lane_of_job
    while True:
        if not is_all:
            near = _groupings_near([lane - first for lane in best], n_lanes)
        wanted = [best, *(_numbered(demands, lanes, first) for lanes in near if len(set(lanes)) > 1)]
        todo = [
            Trial(_grouping_name(names, lanes), regrouped(demands, start, lanes))
            for lanes in dict.fromkeys(wanted)
            if lanes not in found
        ]
        if not todo:
            return sorted(found.values(), key=lambda one: one.loss(goal))
        tried = search(replays, alone_s, todo, goal, "groupings").tried
        found |= {one.trial.policy.lane_of_job: one for one in tried}
        best = min(found.values(), key=lambda one: one.loss(goal)).trial.policy.lane_of_job


def _numbered(demands: Demands, lanes: Sequence[int], first: int) -> tuple[int, ...]:
    return tuple(first + lane for lane in numbered_lanes(demands, np.array(lanes)))


def _grouping_name(names: Sequence[str], lanes: Sequence[int]) -> str:
    of_lane = [[name for name, own in zip(names, lanes, strict=True) if own == lane] for lane in set(lanes)]
    return " | ".join(" + ".join(jobs) for jobs in of_lane)


def regrouped(demands: Demands, start: Policy, lanes: Sequence[int]) -> Policy:
    """The policy of `choose_policy` for jobs on these lanes."""
    return choose_policy(demands, start.ports, lanes, is_lane_0_free=start.is_lane_0_free)


def search_result(
    todo: Sequence[Trial],
    alone_s: Sequence[float],
    sharing_s: Sequence[Sequence[float]],
    goal: str = "time",
) -> SearchResult:
    """The result of trials, from T_sharing of each job in each trial."""
    tried = []
    for trial, times in zip(todo, sharing_s, strict=True):
        contention_s = tuple(time_s - alone for time_s, alone in zip(times, alone_s, strict=True))
        tried.append(Tried(trial, tuple(times), contention_s))
    return SearchResult(tuple(alone_s), tuple(tried), goal)


def lanes_of(policy: Policy, buffer_bytes: int) -> Lanes:
    """Lanes for the simulation of a fabric with this policy."""
    each = (buffer_bytes // policy.n_operational,) * policy.n_operational
    return Lanes(
        each,
        each,
        policy.lane_of_level,
        high=policy.high_rows,
        low=policy.low_rows,
        high_limit=policy.high_limit,
        weight_unit_bytes=64,
    )


@dataclass(frozen=True)
class Replays:
    """Jobs on a network, to be replayed under several policies.

    Parameters
    ----------
    network : SimulatedNetwork
        The network; its own lanes are ignored.
    jobs : tuple of PlacedJob
        Jobs in the order of the policies; their own service levels are ignored.
    buffer_bytes : int
        See `lanes_of`.
    settings : Settings, optional
    """

    network: SimulatedNetwork
    jobs: tuple[PlacedJob, ...]
    buffer_bytes: int
    settings: Settings | None = None


def simulated_sharing_s(replays: Replays, policy: Policy) -> tuple[float, ...]:
    """T_sharing of each job: its time if all jobs run under the policy. For a single job, this is T_alone."""
    simulated_jobs = [
        replace(job, service_level=lane).simulated()
        for job, lane in zip(replays.jobs, policy.lane_of_job, strict=True)
    ]
    network = replace(replays.network, lanes=lanes_of(policy, replays.buffer_bytes))
    return tuple(job.end_s for job in simulate(network, simulated_jobs, replays.settings).jobs)


def times_alone_s(replays: Replays, policy: Policy) -> tuple[float, ...]:
    """Time of each job without the others, on its own lane: T_alone.

    Raises `DataError` if a job takes no time, because its slowdown is then undefined.

    Jokanovic 2014, section 5.2.1: only the other jobs are removed; even the lane's buffer is the same (Table
    5.3).
    """
    times: list[float] = []
    for job, lane in zip(replays.jobs, policy.lane_of_job, strict=True):
        times += simulated_sharing_s(replace(replays, jobs=(job,)), replace(policy, lane_of_job=(lane,)))
    for job, time_s in zip(replays.jobs, times, strict=True):
        if time_s <= 0:
            raise DataError(
                f"job {job.name} takes no time alone, as its trace has neither messages nor computation "
                "to replay: leave it out, or record it again with --trace all"
            )
    return tuple(times)


def search(
    replays: Replays, alone_s: Sequence[float], todo: Sequence[Trial], goal: str, what: str = "weights"
) -> SearchResult:
    """Replay the jobs together under each policy, in as many threads as there are processors."""
    # The simulator's C code releases Python's lock, so threads run in parallel.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = pool.map(lambda trial: simulated_sharing_s(replays, trial.policy), todo)
        steps = progress.steps(todo, f"trying {what}", unit="trials")
        sharing = [times for _, times in zip(steps, running, strict=True)]
    return search_result(todo, alone_s, sharing, goal)


@dataclass(frozen=True)
class Chosen:
    """A policy, and the cases and demands from which it was chosen."""

    cases: Sequence[Case]
    demands: Demands
    policy: Policy


def ports(args: argparse.Namespace) -> Ports:
    """Capabilities of the ports. Raises `UsageError` if InfiniBand does not allow them."""
    return Ports(args.lanes, args.mtu, args.rows)


def jobs_of(
    args: argparse.Namespace, network: NetworkInput, read: Sequence[tuple[str, Profile]]
) -> list[JobInput]:
    """The jobs with their placements."""
    jobs = [files.job_of(args, network.fabric, i, *job) for i, job in enumerate(read)]
    if any(len(job.placements) > 1 for job in jobs):
        raise UsageError("--placement names several placements of one job: give one for each profile")
    return jobs


def choose(
    args: argparse.Namespace, network: NetworkInput, jobs: Sequence[JobInput], is_quiet: bool = False
) -> Chosen:
    """The policy from the jobs' demands on the network; choices by flags replace those of the policy."""
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
    """The best policy of a search, with demands by the jobs' times alone in the simulation."""
    trials(chosen.demands, chosen.policy, args.max_weight)  # raises an error before anything takes long
    replays = _replays(args, network.fabric, chosen)
    alone_s = times_alone_s(replays, chosen.policy)
    if args.duration_s is None:
        timed = zip(jobs_of(args, network, read), alone_s, strict=True)
        jobs = [
            replace(job, duration_s=time_s, duration_by="its time alone in the simulation")
            for job, time_s in timed
        ]
        chosen = choose(args, network, jobs, is_quiet=True)
    groupings = [] if args.assign else _groupings(args, replays, alone_s, chosen)
    best = [one.trial.policy.lane_of_job for one in groupings[:_N_WEIGHED]]
    results = []
    for lanes in dict.fromkeys([chosen.policy.lane_of_job, *best]):
        todo = trials(chosen.demands, regrouped(chosen.demands, chosen.policy, lanes), args.max_weight)
        results.append(search(replays, alone_s, todo, args.goal))
    found = min(results, key=lambda one: one.best.loss(args.goal))
    return replace(chosen, policy=found.best.trial.policy), replace(found, groupings=tuple(groupings))


def _groupings(
    args: argparse.Namespace, replays: Replays, alone_s: Sequence[float], chosen: Chosen
) -> list[Tried]:
    names = [case.job.id for case in chosen.cases]
    return try_groupings(replays, alone_s, names, chosen.demands, chosen.policy, args.goal)


def _replays(args: argparse.Namespace, fabric: Fabric, chosen: Chosen) -> Replays:
    """The jobs for the simulator, on the hosts where they were characterised."""
    choices = Choices(args.cpu_speed, is_unmatched_left_out=args.allow_unmatched)
    jobs = []
    for case in chosen.cases:
        made = profile_programs.read(case.file, choices).programs(case.placement.hosts)
        for note in made.notes:
            messages.note(note)
        jobs.append(PlacedJob(made, case.placement.hosts))
    # `characterise` draws random routes per pair of hosts, so the replay must, too.
    routing = "random-flow" if args.routing.startswith("random") else args.routing
    settings = Settings(mtu_bytes=chosen.policy.ports.mtu_bytes)
    return Replays(of_fabric(fabric, routing), tuple(jobs), args.buffer, settings)
