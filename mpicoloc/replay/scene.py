"""Jobs on a network from the flags of `mpicoloc replay`, and their simulation."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpicoloc.cli import arguments
from mpicoloc.core.names import names_apart
from mpicoloc.core.network import Placement, slimmed
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network import files
from mpicoloc.network.characterise import AS_RUN, PlacementChoice, free_hosts, placed_on
from mpicoloc.network.topology import placements, readers
from mpicoloc.network.topology.fabric import Fabric
from mpicoloc.replay import experiment, native, timeline
from mpicoloc.replay.experiment import Experiment, PlacedJob
from mpicoloc.replay.network import (
    NO_LIMIT,
    Hardware,
    Lanes,
    SimulatedNetwork,
    equal_lanes,
    of_fabric,
    with_next_nodes,
)
from mpicoloc.replay.programs import patterns, sources
from mpicoloc.replay.programs.builder import RankPrograms
from mpicoloc.replay.programs.sources import Choices, Source
from mpicoloc.replay.simulate import Settings

Read = Callable[[str, Choices], Source]
_OF_PATTERNS, _OF_TRACES = (
    ("hosts", "bytes", "times"),
    ("algorithm", "flops", "cpu_speed", "allow_unmatched", "wall_time", "from_s", "until_s"),
)
"""Flags that apply only to patterns, and flags that apply only to traces."""
_CHOICE_OF_FLAG = {
    "algorithm": "algorithms",
    "flops": "flops_per_s",
    "allow_unmatched": "is_unmatched_left_out",
    "wall_time": "is_wall_time",
    "from_s": "part_s",
    "until_s": "part_s",
}
"""Fields of `sources.Choices` that do not apply to all kinds of traces, by flag."""
_UNIT_BYTES = {"packets": 0, "64": 64}
"""Unit of weights, by the value of `--weight-unit`."""
_SHORTEST_WINDOW_S = 1e-7


@dataclass(frozen=True)
class Scene:
    """Jobs on a network, ready for simulation.

    Parameters
    ----------
    network : SimulatedNetwork
    hardware : Hardware
    settings : Settings
    jobs : list of PlacedJob
    network_notes : tuple of str
    """

    network: SimulatedNetwork
    hardware: Hardware
    settings: Settings
    jobs: list[PlacedJob]
    network_notes: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Notes on network and jobs, to print with results, each once."""
        of_jobs = (note for job in self.jobs for note in job.programs.notes)
        return list(dict.fromkeys((*self.network_notes, *of_jobs)))


def scene_of(args: argparse.Namespace, read: Read = sources.read) -> Scene:
    """The scene that the flags describe; `read` reads a trace."""
    n_jobs = count_jobs(args)
    fabric = _fabric(args)
    hardware = _hardware(args, n_jobs)
    network = _network(args, fabric, hardware)
    jobs = _placed_jobs(args, fabric, n_jobs, read)
    return Scene(network, hardware, _settings(args), jobs, fabric.notes)


def check(args: argparse.Namespace) -> None:
    """Check flags and files, as far as possible without reading the jobs' traces."""
    if not args.files:
        scene_of(args)
        return
    n_jobs = count_jobs(args)
    fabric = _fabric(args)
    _network(args, fabric, _hardware(args, n_jobs))
    _choices(args)
    for choice in _placement_choices(args, fabric, n_jobs):
        if choice.name != AS_RUN and choice.contents is None:
            # Try a job of one rank: it reveals errors that do not depend on the job's size.
            placements.by_name(choice.name, fabric.topology, 1, np.random.default_rng(0))
    _stretches(args, n_jobs)
    for path in args.files:
        sources.check_readable(path)


def count_jobs(args: argparse.Namespace) -> int:
    """Number of jobs that the flags name.

    Raises `UsageError` if there are none, or both profiles and a pattern.
    """
    if args.files and args.pattern is not None:
        raise UsageError(f"give profiles or --pattern, not both: got {args.files[0]} and {args.pattern}")
    if not args.files and args.pattern is None:
        raise UsageError("give profiles of jobs, or --pattern NAME with --hosts N and --bytes B")
    if args.pattern is not None and None in (args.hosts, args.bytes):
        raise UsageError(f"--pattern {args.pattern} needs --hosts N and --bytes B")
    of, flags = ("--pattern", _OF_PATTERNS) if args.files else ("profiles and traces", _OF_TRACES)
    for flag in flags:
        if getattr(args, flag):
            raise UsageError(
                f"--{flag.replace('_', '-')} applies only to {of}, which are not given: leave it out"
            )
    return len(args.files) or 1


def _placed_jobs(args: argparse.Namespace, fabric: Fabric, n_jobs: int, read: Read) -> list[PlacedJob]:
    """The jobs on their hosts."""
    rng = np.random.default_rng(args.random_state)
    lanes, trace_choices = _lanes_of_jobs(args, n_jobs), _choices(args)
    job_sources = [read(file, trace_choices) for file in args.files]
    _check_obeyed(args, job_sources)
    job_sources = job_sources or [_pattern(args, fabric.topology.capacity_bps[0], rng)]
    placed: list[Placement] = []
    for source, choice in zip(job_sources, _placement_choices(args, fabric, n_jobs), strict=True):
        free = free_hosts(fabric, placed)
        placed.append(
            placed_on(fabric, choice, source.n_ranks, source.hostnames, free, rng, args.ranks_per_host)
        )
    jobs = [
        PlacedJob(source.programs(placement.hosts), placement.hosts, lane)
        for source, placement, lane in zip(job_sources, placed, lanes, strict=True)
    ]
    names = names_apart([job.name for job in jobs])
    named = [
        replace(job, programs=replace(job.programs, name=name)) for job, name in zip(jobs, names, strict=True)
    ]
    return _stretched(args, named)


def _check_obeyed(args: argparse.Namespace, job_sources: Sequence[Source]) -> None:
    """Refuse a flag that has no effect on any of the traces."""
    for flag, choice in _CHOICE_OF_FLAG.items():
        if getattr(args, flag) and job_sources and not any(choice in source.obeyed for source in job_sources):
            raise UsageError(
                f"--{flag.replace('_', '-')} has no effect on {', '.join(args.files)}: leave it out"
            )


def _pattern(args: argparse.Namespace, link_bps: float, rng: np.random.Generator) -> Source:
    """The pattern as a source of programs. The programs do not depend on hosts."""

    def hostnames() -> list[str]:
        raise UsageError("--placement run needs a profile, which names the hosts where its job ran")

    def programs(hosts: object) -> RankPrograms:
        return patterns.by_name(args.pattern, args.hosts, args.bytes, link_bps, rng, args.times)

    return Source(args.hosts, frozenset(), hostnames, programs)


def _placement_choices(args: argparse.Namespace, fabric: Fabric, n: int) -> list[PlacementChoice]:
    given = args.placement or []
    if len(given) not in (0, 1, n):
        raise UsageError(
            f"--placement must be given once, or once for each of the {n} jobs, got {len(given)}"
        )
    choices = []
    for name in given or [None]:
        named = files.placements_of(name, fabric)
        if len(named) > 1:
            raise UsageError(f"--placement {name} names several placements: give one for each job")
        choices += named
    if not given and not args.files and choices[0].name == AS_RUN:
        choices = [PlacementChoice(f"F{fabric.topology.leaf_hosts}")]
    return choices * n if len(choices) == 1 else choices


def _choices(args: argparse.Namespace) -> Choices:
    algorithms = {}
    for text in args.algorithm:
        name, equals, algorithm = text.partition("=")
        if not equals:
            raise UsageError(f"--algorithm {text}: give it as NAME=A, like allreduce=doubling")
        algorithms[name.strip().lower()] = algorithm.strip()
    begin_s, end_s = args.from_s or 0.0, math.inf if args.until_s is None else args.until_s
    if begin_s >= end_s:
        raise UsageError(f"--until-s must be above --from-s, which is {begin_s:g}, got {end_s:g}")
    choices = Choices(
        args.cpu_speed or 1.0,
        tuple(sorted(algorithms.items())),
        args.flops or 1e9,
        args.allow_unmatched,
        args.wall_time,
        None if args.from_s is args.until_s is None else (begin_s, end_s),
    )
    sources.library_of(choices)  # refuses unknown algorithms, even of collectives that no trace has
    return choices


def _stretched(args: argparse.Namespace, jobs: list[PlacedJob]) -> list[PlacedJob]:
    """The jobs, with computation slowed on some of their hosts by `--stretch`."""
    stretches = _stretches(args, len(jobs))
    stretched_jobs = []
    for job, (n_hosts, factor) in zip(jobs, stretches, strict=True) if stretches else ():
        if n_hosts > job.n_hosts:
            raise UsageError(
                f"--stretch {n_hosts}:{factor:g}: job {job.name} has {job.n_hosts} hosts: give J from 0 to "
                f"{job.n_hosts}"
            )
        stretched_jobs.append(experiment.stretched(job, n_hosts, factor))
    return stretched_jobs or jobs


def _stretches(args: argparse.Namespace, n_jobs: int) -> list[tuple[int, float]]:
    """For each job, the number of slowed hosts and the factor; an empty list without `--stretch`."""
    given = args.stretch or []
    if len(given) not in (0, 1, n_jobs):
        raise UsageError(
            f"--stretch must be given once, or once for each of the {n_jobs} jobs, got {len(given)}"
        )
    return [_stretch(text) for text in (given * n_jobs if len(given) == 1 else given)]


def _stretch(text: str) -> tuple[int, float]:
    """Number of slowed hosts, and the factor."""
    n_hosts, colon, factor = text.partition(":")
    if not colon:
        raise UsageError(f"--stretch {text}: give it as J:X, like 2:1.5")
    return arguments.parse("--stretch", n_hosts, arguments.whole(0)), arguments.parse(
        "--stretch", factor, arguments.positive
    )


def _fabric(args: argparse.Namespace) -> Fabric:
    fabric = files.fabric_of(args.topology, args.link_rate, args.up_links)
    if args.slimming is None:
        return fabric
    try:
        tree = slimmed(fabric.topology, args.slimming)
    except DataError as error:
        raise UsageError(f"--slimming {args.slimming}: {error}") from None
    # The names of switches belong to the tree before slimming.
    return replace(fabric, topology=tree, switch_names=())


def _hardware(args: argparse.Namespace, n_jobs: int) -> Hardware:
    """Properties of hardware that the topology does not give."""
    cables = args.cable_latency_s
    return Hardware(
        cable_latency_s=cables[0] if len(cables) == 1 else cables,
        switch_latency_s=args.switch_latency_s,
        flit_bytes=args.flit,
        lanes=_lanes(args, n_jobs),
        input_speedup=args.input_speedup,
        is_voq=args.voq,
    )


def _lanes(args: argparse.Namespace, n_jobs: int) -> Lanes:
    used, high, weights = _lanes_of_jobs(args, n_jobs), args.high, args.weights
    n = args.lanes or max([*used, *high, len(weights) - 1]) + 1
    for flag, named in (("--lane", used), ("--high", high)):
        if max(named, default=0) >= n:
            raise UsageError(
                f"{flag} {_words(named)}: the {n} lanes are 0 to {n - 1}: give one of them, or more --lanes"
            )
    if n > native.RP_MAX_VL:
        raise UsageError(f"--lane and --weights need {n} lanes: give at most {native.RP_MAX_VL}")
    if weights and len(weights) != n:
        raise UsageError(
            f"--weights {_words(weights)}: {counted(len(weights), 'weight')} for {counted(n, 'lane')}: "
            "give one for each"
        )
    if args.weight_unit not in _UNIT_BYTES:
        raise UsageError(f"--weight-unit must be packets or 64, got {args.weight_unit!r}")
    lanes = equal_lanes(n, args.buffer, weights)
    return replace(_with_high(args, lanes), weight_unit_bytes=_UNIT_BYTES[args.weight_unit])


def _with_high(args: argparse.Namespace, lanes: Lanes) -> Lanes:
    """The lanes after `--high`, which moves lanes and their weights to the table of high priority."""
    limit = args.high_limit
    if limit is not None and not args.high:
        raise UsageError(f"--high-limit {limit} applies only to lanes of high priority: add --high LANES")
    high = tuple(row for row in lanes.low if row[0] in args.high)
    low = tuple(row for row in lanes.low if row[0] not in args.high)
    if not high:
        return lanes
    return replace(lanes, high=high, low=low, high_limit=NO_LIMIT if limit is None else limit)


def _lanes_of_jobs(args: argparse.Namespace, n_jobs: int) -> tuple[int, ...]:
    """Lane of each job, which is also its service level."""
    lanes: tuple[int, ...] = args.lane or (0,) * n_jobs
    if len(lanes) != n_jobs:
        raise UsageError(
            f"--lane {_words(lanes)}: {len(lanes)} lanes for {counted(n_jobs, 'job')}: give one for each"
        )
    return lanes


def _words(lanes: Sequence[int]) -> str:
    return ",".join(map(str, lanes))


def _settings(args: argparse.Namespace) -> Settings:
    """The settings of the simulation."""
    return Settings(
        mtu_bytes=args.mtu,
        control_bytes=min(64, args.mtu),
        eager_bytes=args.eager,
        mpi_latency_s=args.mpi_latency_s,
        local_bps=readers.rate_bps(args.local_rate),
        seed=args.random_state,
    )


def _network(args: argparse.Namespace, fabric: Fabric, hardware: Hardware) -> SimulatedNetwork:
    """The network for the simulator."""
    if args.tables is None:
        return of_fabric(fabric, args.routing, hardware, _failed(args.failed, fabric))
    is_changed = {"routing": args.routing != "d-mod-k", "failed": args.failed, "slimming": args.slimming}
    for flag, value in is_changed.items():
        if value:
            raise UsageError(f"--{flag} and --tables both determine the routes: leave one of them out")
    next_nodes = files.next_nodes_of(args.tables, args.topology, fabric)
    return with_next_nodes(of_fabric(fabric, args.routing, hardware), next_nodes)


def _failed(text: str | None, fabric: Fabric) -> list[tuple[int, int]]:
    """Level and number of each failed link."""
    failed, tree = [], fabric.topology
    for word in () if text is None else text.split(","):
        level_word, colon, link_word = word.strip().partition(":")
        if not colon:
            raise UsageError(f"--failed {word}: give it as LEVEL:LINK, like 1:0")
        level, link = (
            arguments.parse("--failed", part, arguments.whole(0)) for part in (level_word, link_word)
        )
        if level >= tree.height:
            raise UsageError(f"--failed {word}: {tree} has links on levels 0 to {tree.height - 1}")
        if link >= (n_links := tree.n_links(level)):
            raise UsageError(f"--failed {word}: {tree} has links 0 to {n_links - 1:,} on level {level}")
        failed.append((level, link))
    return failed


def simulate(args: argparse.Namespace, scene: Scene) -> tuple[Experiment, float]:
    """Simulate base, alone and shared runs. Returns the experiment, and the shared run's wall time, s."""
    network, settings, jobs = scene.network, scene.settings, scene.jobs
    # Without --window-s, start with a very short window: the simulator doubles it as needed.
    shortest_s = 0.0 if args.out is args.figures is None else _SHORTEST_WINDOW_S
    watched = replace(settings, window_s=args.window_s or shortest_s)
    has_marks = not (args.figures is args.perfetto is args.paraver is None)
    seen = [replace(job, programs=timeline.marked(job.programs)) for job in jobs] if has_marks else jobs
    host_bps = float(network.link_bps[0])
    base = [
        None if args.no_base else experiment.simulate_base(job, host_bps, scene.hardware, settings)
        for job in jobs
    ]
    alone = [experiment.simulate_alone(network, job, settings) for job in jobs] if len(jobs) > 1 else []
    began_s = time.monotonic()
    sharing = (
        experiment.simulate_sharing(network, seen, watched)
        if alone
        else experiment.simulate_alone(network, seen[0], watched)
    )
    wall_s = time.monotonic() - began_s
    return Experiment(tuple(jobs), network, tuple(base), tuple(alone or [sharing]), sharing), wall_s
