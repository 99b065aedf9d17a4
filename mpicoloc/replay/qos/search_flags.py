"""`mpicoloc qos --search`: its flags, and the trials, as many at a time as there are processors."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mpicoloc import config, messages
from mpicoloc.core import progress, units
from mpicoloc.errors import DataError, UsageError
from mpicoloc.replay.experiment import PlacedJob
from mpicoloc.replay.network import Lanes, SimulatedNetwork
from mpicoloc.replay.qos.policy import Policy
from mpicoloc.replay.simulate import Settings, simulate

if TYPE_CHECKING:
    from mpicoloc.network.characterise import Case
    from mpicoloc.network.topology.fabric import Fabric
    from mpicoloc.replay.experiment import PlacedJob
    from mpicoloc.replay.qos.policy import Demands, Policy
    from mpicoloc.replay.qos.search import SearchResult, Trial
    from mpicoloc.replay.simulate import Settings


def lanes_of(policy: Policy, buffer_bytes: int) -> Lanes:
    """Simulated lanes that a fabric has which the policy was loaded into."""
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
    """Jobs on a network that are replayed under several policies.

    Parameters
    ----------
    network : SimulatedNetwork
        Its own lanes do not count.
    jobs : tuple of PlacedJob
        In the order of the policies'; their own service levels do not count.
    buffer_bytes : int
        See `lanes_of`.
    settings : Settings, optional
    """

    network: SimulatedNetwork
    jobs: tuple[PlacedJob, ...]
    buffer_bytes: int
    settings: Settings | None = None


def simulated_sharing_s(replays: Replays, policy: Policy) -> tuple[float, ...]:
    """Time of each job while all run under the policy: T_sharing; of one job by itself, T_alone."""
    simulated_jobs = [
        replace(job, service_level=lane).simulated()
        for job, lane in zip(replays.jobs, policy.lane_of_job, strict=True)
    ]
    network = replace(replays.network, lanes=lanes_of(policy, replays.buffer_bytes))
    return tuple(job.end_s for job in simulate(network, simulated_jobs, replays.settings).jobs)


def alone_s(replays: Replays, policy: Policy) -> tuple[float, ...]:
    """Time of each job without the others, on its own lane: T_alone.

    Raises `DataError` if a job takes no time, so that nothing can be told of what others cost it.

    Jokanovic 2014, section 5.2.1: all but the other jobs is the same, the lane's buffer too (Table 5.3).
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the search."""
    add = parser.add_argument
    add(
        "--search",
        action="store_true",
        help="replay the jobs, profiles with --trace all, under many weights, and take the best",
    )
    add(
        "--goal",
        metavar="WHAT",
        default="time",
        help="what is made least: the time that all jobs lose together, or the mean slowdown (time)",
    )
    add("--max-weight", metavar="N", default="8", help="largest weight to try (8)")
    add("--buffer", metavar="BYTES", default="65536", help="of a simulated port, all lanes together (65536)")
    add("--cpu-speed", metavar="X", default="1", help="computation is X times as fast as recorded (1)")
    add("--allow-unmatched", action="store_true", help="leave out messages that nobody received")


def check(args: argparse.Namespace) -> None:
    """Refuse what contradicts the search before anything is read."""
    from mpicoloc.replay.qos.search import GOALS

    if args.goal not in GOALS:
        raise UsageError(f"--goal must be {' or '.join(GOALS)}, got {args.goal!r}")
    for flag in ("weights", "high"):
        if args.search and getattr(args, flag) is not None:
            raise UsageError(f"--search tries weights and priorities: leave out --{flag}")


@dataclass(frozen=True)
class Prepared:
    """Jobs that can be replayed, and how long each takes alone."""

    replays: Replays
    alone_s: tuple[float, ...]


def prepare(
    args: argparse.Namespace, fabric: Fabric, cases: Sequence[Case], demands: Demands, policy: Policy
) -> Prepared:
    """Read the jobs and replay each alone."""
    from mpicoloc.replay import fabrics

    _trials(args, demands, policy)  # refuses before anything long begins
    buffer_bytes = units.parse_bytes("--buffer", args.buffer)
    jobs = tuple(_placed(args, case) for case in cases)
    # Characterised random routes belong to pairs of hosts.
    routing = "random-flow" if args.routing.startswith("random") else args.routing
    replays = Replays(fabrics.of_fabric(fabric, routing), jobs, buffer_bytes, _settings(policy))
    return Prepared(replays, alone_s(replays, policy))


def search(args: argparse.Namespace, ready: Prepared, demands: Demands, policy: Policy) -> SearchResult:
    """Replay the jobs together under each policy to try."""
    from mpicoloc.replay.qos.search import search_result

    def sharing_s(trial: Trial) -> tuple[float, ...]:
        return simulated_sharing_s(ready.replays, trial.policy)

    todo = _trials(args, demands, policy)
    # The simulator's C code needs no lock of Python, so threads run side by side.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = pool.map(sharing_s, todo)
        steps = progress.steps(todo, "trying weights", unit="trials")
        sharing = [times for _, times in zip(steps, running, strict=True)]
    return search_result(todo, ready.alone_s, sharing, args.goal)


def _trials(args: argparse.Namespace, demands: Demands, policy: Policy) -> list[Trial]:
    from mpicoloc.replay.qos.search import trials

    return trials(demands, policy, config.parse_whole("--max-weight", args.max_weight))


def _settings(policy: Policy) -> Settings:
    from mpicoloc.replay.simulate import Settings

    return Settings(mtu_bytes=policy.ports.mtu_bytes)


def _placed(args: argparse.Namespace, case: Case) -> PlacedJob:
    """The job of a profile, on the hosts where it was characterised."""
    from mpicoloc.replay.experiment import PlacedJob
    from mpicoloc.replay.programs import profile_programs
    from mpicoloc.replay.programs.sources import Choices

    speed = config.parse_positive("--cpu-speed", args.cpu_speed)
    choices = Choices(speed, is_unmatched_left_out=args.allow_unmatched)
    made = profile_programs.read(case.file, choices).programs(case.placement.hosts)
    for note in made.notes:
        messages.note(note)
    return PlacedJob(made, case.placement.hosts)
