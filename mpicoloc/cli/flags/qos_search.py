"""`mpicoloc qos --search`: its flags, and the trials, as many at a time as there are processors."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpicoloc import config
from mpicoloc.core import messages, progress, units
from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    from mpicoloc.network.load.characterise import Case
    from mpicoloc.network.qos.demand import Demands
    from mpicoloc.network.qos.policy import Policy
    from mpicoloc.network.qos.replayed import Replays
    from mpicoloc.network.qos.search import SearchResult, Trial
    from mpicoloc.network.replay.experiment import PlacedJob
    from mpicoloc.network.replay.job import Settings
    from mpicoloc.network.topology.fabric import Fabric


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
    from mpicoloc.network.qos.search import GOALS

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
    from mpicoloc.network.qos import replayed
    from mpicoloc.network.replay import fabrics

    _trials(args, demands, policy)  # refuses before anything long begins
    buffer_bytes = units.parse_bytes("--buffer", args.buffer)
    jobs = tuple(_placed(args, case) for case in cases)
    # Characterised random routes belong to pairs of hosts.
    routing = "random-flow" if args.routing.startswith("random") else args.routing
    replays = replayed.Replays(fabrics.of_fabric(fabric, routing), jobs, buffer_bytes, _settings(policy))
    return Prepared(replays, replayed.alone_s(replays, policy))


def search(args: argparse.Namespace, ready: Prepared, demands: Demands, policy: Policy) -> SearchResult:
    """Replay the jobs together under each policy to try."""
    from mpicoloc.network.qos import replayed
    from mpicoloc.network.qos.search import search_result

    def sharing_s(trial: Trial) -> tuple[float, ...]:
        return replayed.sharing_s(ready.replays, trial.policy)

    todo = _trials(args, demands, policy)
    # The simulator's C code needs no lock of Python, so threads run side by side.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        running = pool.map(sharing_s, todo)
        steps = progress.steps(todo, "trying weights", unit="trials")
        sharing = [times for _, times in zip(steps, running, strict=True)]
    return search_result(todo, ready.alone_s, sharing, args.goal)


def _trials(args: argparse.Namespace, demands: Demands, policy: Policy) -> list[Trial]:
    from mpicoloc.network.qos.search import trials

    return trials(demands, policy, config.parse_whole("--max-weight", args.max_weight))


def _settings(policy: Policy) -> Settings:
    from mpicoloc.network.replay.job import Settings

    return Settings(mtu_bytes=policy.ports.mtu_bytes)


def _placed(args: argparse.Namespace, case: Case) -> PlacedJob:
    """The job of a profile, on the hosts where it was characterised."""
    from mpicoloc.network.replay.experiment import PlacedJob
    from mpicoloc.profile.recording import programs
    from mpicoloc.profile.recording.sources import Choices

    speed = config.parse_positive("--cpu-speed", args.cpu_speed)
    choices = Choices(speed, is_unmatched_left_out=args.allow_unmatched)
    made = programs.read(case.file, choices).programs(case.placement.hosts)
    for note in made.notes:
        messages.note(note)
    return PlacedJob(made, case.placement.hosts)
