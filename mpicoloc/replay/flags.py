"""What `mpicoloc replay` simulates, as its flags describe it, and the simulation."""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mpicoloc.cli import numbers
from mpicoloc.core import units
from mpicoloc.core.topology import Placement
from mpicoloc.errors import UsageError
from mpicoloc.network.characterise import AS_RUN, PlacementChoice, free_hosts, placed_on
from mpicoloc.network.flags import LINK_RATE, add_links, add_ranks_per_host, add_topology
from mpicoloc.network.topology import placements
from mpicoloc.network.topology.fabric import Fabric

if TYPE_CHECKING:
    from mpicoloc.replay.experiment import PlacedJob
    from mpicoloc.replay.programs.builder import RankPrograms
    from mpicoloc.replay.programs.sources import Choices, Source

    Read = Callable[[str, Choices], Source]
    from mpicoloc.core.topology import Topology
    from mpicoloc.network.topology.fabric import Fabric
    from mpicoloc.replay.experiment import Experiment
    from mpicoloc.replay.fabrics import Hardware
    from mpicoloc.replay.network import Lanes, SimulatedNetwork
    from mpicoloc.replay.simulate import Settings


def check_placement(fabric: Fabric, choice: PlacementChoice) -> None:
    """Refuse a placement that is wrong for a job of any size."""
    if choice.name != AS_RUN and choice.contents is None:
        placements.by_name(choice.name, fabric.topology, 1, np.random.default_rng(0))


_MAX_RANKS, _MAX_MESSAGE_BYTES = 1 << 24, 1 << 40
_MAX_TIMES = (1 << 31) - 1
"""What a loop of the simulator counts to."""
_OF_PATTERNS, _OF_TRACES = (
    ("hosts", "bytes", "times"),
    ("algorithm", "flops", "cpu_speed", "allow_unmatched", "wall_time"),
)
"""Flags that mean nothing for the other."""
_CHOICE_OF_FLAG = {
    "algorithm": "algorithms",
    "flops": "flops_per_s",
    "allow_unmatched": "is_unmatched_left_out",
    "wall_time": "is_wall_time",
}
"""Fields of `sources.Choices` that not every trace obeys."""


def add_job_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of jobs and their placements."""
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="*",
        help="profile of a job that was run with --trace all; or a SimGrid trace (folder, or list of files), "
        "an OTF2 archive, or a GOAL text",
    )
    add(
        "--pattern",
        metavar="NAME",
        help="in place of profiles: incast (all to host 0), shift:K, alltoall, uniform:LOAD or halo",
    )
    add("--hosts", metavar="N", help="hosts that take part in the pattern")
    add("--bytes", metavar="BYTES", help="of each message of the pattern")
    add(
        "--times", metavar="N", help="how often the pattern is repeated (1; uniform: messages of a host, 100)"
    )
    add(
        "--placement",
        metavar="F8|RF|run|FILE",
        action="append",
        help="k hosts on each first-level switch; at random; where the job ran, by its nodes' names; a file "
        "with the host of each rank. Once, or once for each job (run if the topology has names, else F with "
        "all hosts of a switch)",
    )
    add_ranks_per_host(parser)
    _add_tuning(parser)


def _add_tuning(parser: argparse.ArgumentParser) -> None:
    """Flags that change what a trace says."""
    add = parser.add_argument
    add("--cpu-speed", metavar="X", help="computation is X times as fast as recorded (1)")
    add(
        "--wall-time",
        action="store_true",
        help="computation of a profile as long as recorded, also where ranks waited for a processor: for "
        "programs that sleep or wait for files",
    )
    add(
        "--flops",
        metavar="F",
        help="flops a second of the processors of a SimGrid trace (1e9)",
    )
    add(
        "--algorithm",
        metavar="NAME=A",
        action="append",
        default=[],
        help="algorithm of a collective, as allreduce=doubling or bcast=openmpi-6 (the recorded library's)",
    )
    add(
        "--stretch",
        metavar="J:X",
        action="append",
        help="computation on the first J hosts takes X times as long; once, or once for each job (0:1)",
    )
    add(
        "--allow-unmatched",
        action="store_true",
        help="leave out messages of a profile or OTF2 archive that lack their send or receive, and "
        "persistent collectives and those of neighbours that the profile does not tell",
    )


def count_jobs(args: argparse.Namespace) -> int:
    """How many jobs the flags mean.

    Raises `UsageError` if there are none, or profiles and a pattern.
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
            raise UsageError(f"--{flag.replace('_', '-')} is of {of}, which are not given: leave it out")
    return len(args.files) or 1


def placed_jobs_of(
    args: argparse.Namespace, fabric: Fabric, lanes: tuple[int, ...], read: Read | None = None
) -> list[PlacedJob]:
    """The jobs on their hosts; `read` reads a trace, as `sources.read` does if it is not given."""
    from mpicoloc.replay import experiment
    from mpicoloc.replay.programs import sources

    rng = np.random.default_rng(numbers.parse("--random-state", args.random_state, numbers.whole(0)))
    link_bps = fabric.topology.capacity_bps[0]
    trace_choices = _choices(args)
    read = sources.read if read is None else read
    job_sources: list[Source] = [read(file, trace_choices) for file in args.files]
    _check_obeyed(args, job_sources)
    job_sources = job_sources or [_PatternSource(args, link_bps, rng)]
    choices = _placement_choices(args, fabric, len(job_sources))
    per_host = numbers.parse("--ranks-per-host", args.ranks_per_host, numbers.count)
    placed_jobs: list[Placement] = []
    for source, choice in zip(job_sources, choices, strict=True):
        free = free_hosts(fabric, placed_jobs)
        placed_jobs.append(placed_on(fabric, choice, source.n_ranks, source.hostnames, free, rng, per_host))
    jobs = [
        experiment.PlacedJob(source.programs(placement.hosts), placement.hosts, lane)
        for source, placement, lane in zip(job_sources, placed_jobs, lanes, strict=True)
    ]
    return _stretched(args, _with_names_apart(jobs))


def check_jobs(args: argparse.Namespace, fabric: Fabric) -> None:
    """Refuse what is wrong in the flags of jobs that come from files, and files that are not there.

    What the traces say is not looked at: that takes long.
    """
    from mpicoloc.replay.programs import sources

    n = count_jobs(args)
    _choices(args)
    for choice in _placement_choices(args, fabric, n):
        check_placement(fabric, choice)
    numbers.parse("--ranks-per-host", args.ranks_per_host, numbers.count)
    _stretches(args, n)
    for path in args.files:
        sources.check_readable(path)


def _check_obeyed(args: argparse.Namespace, job_sources: Sequence[Source]) -> None:
    """Refuse a flag that changes none of the traces."""
    for flag, choice in _CHOICE_OF_FLAG.items():
        if getattr(args, flag) and job_sources and not any(choice in source.obeyed for source in job_sources):
            raise UsageError(
                f"--{flag.replace('_', '-')} has no effect on {', '.join(args.files)}: leave it out"
            )


def _with_names_apart(jobs: list[PlacedJob]) -> list[PlacedJob]:
    """The jobs, of which the second of one name is called NAME-2, or the next number that no job has."""
    taken = {job.name for job in jobs}
    is_first = dict.fromkeys(taken, True)
    renamed = []
    for job in jobs:
        name = job.name
        if not is_first[name]:
            name = next(free for n in itertools.count(2) if (free := f"{job.name}-{n}") not in taken)
            taken.add(name)
        is_first[job.name] = False
        renamed.append(replace(job, programs=replace(job.programs, name=name)))
    return renamed


class _PatternSource:
    """The pattern, in place of a trace."""

    obeyed: frozenset[str] = frozenset()

    def __init__(self, args: argparse.Namespace, link_bps: float, rng: np.random.Generator) -> None:
        self._args, self._link_bps, self._rng = args, link_bps, rng
        self.n_ranks = numbers.parse("--hosts", args.hosts, numbers.whole(most=_MAX_RANKS))

    def hostnames(self) -> list[str]:
        """A pattern ran nowhere."""
        raise UsageError("--placement run is of a profile, which names the hosts where its job ran")

    def programs(self, hosts: object) -> RankPrograms:
        """The same on all hosts."""
        from mpicoloc.replay.programs import patterns

        args = self._args
        n_bytes = units.parse_bytes("--bytes", args.bytes, 1, _MAX_MESSAGE_BYTES)
        n_times = (
            None
            if args.times is None
            else numbers.parse("--times", args.times, numbers.whole(most=_MAX_TIMES))
        )
        return patterns.by_name(args.pattern, self.n_ranks, n_bytes, self._link_bps, self._rng, n_times)


def _placement_choices(args: argparse.Namespace, fabric: Fabric, n: int) -> list[PlacementChoice]:
    from mpicoloc.network import files

    given = args.placement or []
    if len(given) not in (0, 1, n):
        raise UsageError(
            f"--placement must be given once, or once for each of the {n} jobs, got {len(given)}"
        )
    choices = []
    for name in given or [None]:
        named = files.placements_of(name, fabric)
        if len(named) > 1:
            raise UsageError(f"--placement {name}: give one placement for each job")
        choices += named
    if not given and not args.files and choices[0].name == AS_RUN:
        choices = [PlacementChoice(f"F{fabric.topology.m[0]}")]
    return choices * n if len(choices) == 1 else choices


def _choices(args: argparse.Namespace) -> Choices:
    from mpicoloc.replay.programs.sources import Choices, library_of

    algorithms = {}
    for text in args.algorithm:
        name, equals, algorithm = text.partition("=")
        if not equals:
            raise UsageError(f"--algorithm {text}: give it as NAME=A, like allreduce=doubling")
        algorithms[name.strip().lower()] = algorithm.strip()
    choices = Choices(
        numbers.parse("--cpu-speed", "1" if args.cpu_speed is None else args.cpu_speed, numbers.positive),
        algorithms,
        flops_per_s=numbers.parse("--flops", "1e9" if args.flops is None else args.flops, numbers.positive),
        is_unmatched_left_out=args.allow_unmatched,
        is_wall_time=args.wall_time,
    )
    library_of(choices)  # refuses unknown algorithms, also where no trace has such a collective
    return choices


def _stretched(args: argparse.Namespace, jobs: list[PlacedJob]) -> list[PlacedJob]:
    """The jobs with computation stretched on some of their hosts."""
    from mpicoloc.replay import experiment

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
    """For each job how many of its hosts compute how many times as long; none if nothing is stretched."""
    given = args.stretch or []
    if len(given) not in (0, 1, n_jobs):
        raise UsageError(
            f"--stretch must be given once, or once for each of the {n_jobs} jobs, got {len(given)}"
        )
    return [_stretch(text) for text in (given * n_jobs if len(given) == 1 else given)]


def _stretch(text: str) -> tuple[int, float]:
    """Hosts, and how many times as long they compute."""
    n_hosts, colon, factor = text.partition(":")
    if not colon:
        raise UsageError(f"--stretch {text}: give it as J:X, like 2:1.5")
    return numbers.parse("--stretch", n_hosts, numbers.whole(0)), numbers.parse(
        "--stretch", factor, numbers.positive
    )


_MAX_MTU_BYTES, _MAX_BUFFER_BYTES, _MAX_EAGER_BYTES = 1 << 20, (1 << 31) - 1, 1 << 62


def add_network_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of topology, links, switches and messages."""
    _add_routes(parser)
    _add_hardware(parser)
    _add_lanes(parser)
    parser.add_argument(
        "--random-state", metavar="N", default="0", help="of random routes, placements and patterns (0)"
    )


def _add_routes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_topology(parser, is_required=False)  # --sweep topology names several
    add("--slimming", metavar="S", help="links up from each switch, not the topology's")
    add_links(parser)
    add(
        "--routing",
        metavar="NAME",
        default="d-mod-k",
        help="d-mod-k, s-mod-k, random (each packet), random-flow (each pair of hosts) or adaptive (d-mod-k)",
    )
    add(
        "--tables",
        metavar="FILE",
        help="not --routing: forwarding tables of opensm, as dump_fts prints, of a topology by ibnetdiscover",
    )
    add("--failed", metavar="LEVEL:LINK,..", help="links that carry nothing, by their numbers on each level")


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--mtu", metavar="BYTES", default="2048", help="bytes of a packet (2048)")
    add("--eager", metavar="BYTES", default="16384", help="longer messages wait for their receive (16384)")
    add("--mpi-latency-s", metavar="S", default="1e-6", help="from a send to the adapter (1e-6)")
    add(
        "--cable-latency-s",
        metavar="S",
        default="25e-9",
        help="of each link, or of each level with commas, hosts' links first (25e-9)",
    )
    add("--switch-latency-s", metavar="S", default="100e-9", help="of each switch (100e-9)")
    add(
        "--input-speedup",
        metavar="X",
        help="input ports of switches are X times as fast as links (inf)",
    )
    add(
        "--flit",
        metavar="BYTES",
        default="256",
        help="of a packet that a switch waits for before it sends it on; --mtu: store and forward (256)",
    )
    add("--buffer", metavar="BYTES", default="65536", help="of each port, at each end, all lanes (65536)")
    add("--voq", action="store_true", help="packets wait for their own output only, not in one queue a lane")
    add("--local-rate", metavar="RATE", default="40Gbit/s", help="between ranks of one host (40Gbit/s)")


def _add_lanes(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--lanes", metavar="N", help="virtual lanes of each link (one for each lane that is named, else 1)")
    add("--weights", metavar="W,W,..", help="packets that each lane may send in its turn (1 each)")
    add("--weight-unit", metavar="UNIT", default="packets", help="packets, or 64: weights count 64 bytes")
    add("--lane", metavar="L,L,..", help="lane of each job (0)")
    add("--high", metavar="L,L,..", help="lanes of high priority")
    add(
        "--high-limit",
        metavar="N",
        help="units of 4096 bytes that they may send before a packet of the others (255: no limit)",
    )


def fabric_of(args: argparse.Namespace) -> Fabric:
    """The network as the flags describe it."""
    from mpicoloc.errors import DataError
    from mpicoloc.network import files
    from mpicoloc.network.topology.xgft import slimmed

    if args.topology is None:
        raise UsageError("--topology is missing: give one like 'XGFT(2;16,8;1,4)', or a file of one")
    fabric = files.fabric_of(args.topology, args.link_rate or LINK_RATE, args.up_links)
    if args.slimming is None:
        return fabric
    try:
        tree = slimmed(fabric.topology, numbers.parse("--slimming", args.slimming, numbers.count))
    except DataError as error:
        raise UsageError(f"--slimming {args.slimming}: {error}") from None
    # Names of switches are those of the tree that is there.
    return replace(fabric, topology=tree, switch_names=())


def hardware_of(args: argparse.Namespace, n_jobs: int) -> Hardware:
    """What the topology does not say."""
    from mpicoloc.replay.fabrics import Hardware

    cables = tuple(_latency_s("--cable-latency-s", word) for word in args.cable_latency_s.split(","))
    return Hardware(
        cable_latency_s=cables[0] if len(cables) == 1 else cables,
        switch_latency_s=_latency_s("--switch-latency-s", args.switch_latency_s),
        flit_bytes=units.parse_bytes("--flit", args.flit, 1, _MAX_MTU_BYTES),
        lanes=_lanes(args, n_jobs),
        input_speedup=_speedup(args.input_speedup),
        is_voq=args.voq,
    )


def _speedup(text: str | None) -> float:
    speedup = math.inf if text is None else numbers.parse("--input-speedup", text, numbers.positive)
    if speedup < 1:
        raise UsageError(f"--input-speedup must be at least 1, the rate of a link, got {text}")
    return speedup


def _lanes(args: argparse.Namespace, n_jobs: int) -> Lanes:
    from mpicoloc.replay import native
    from mpicoloc.replay.network import equal_lanes

    used, high = lanes_of_jobs(args, n_jobs), _numbers("--high", args.high)
    weights = _numbers("--weights", args.weights, 1)
    n = max([*used, *high, len(weights) - 1]) + 1
    if args.lanes is not None:
        n = numbers.parse("--lanes", args.lanes, numbers.whole(most=native.RP_MAX_VL))
    for flag, named in (("--lane", used), ("--high", high)):
        if max(named, default=0) >= n:
            raise UsageError(
                f"{flag} {','.join(map(str, named))}: with {n} lanes give lanes 0 to {n - 1}, or more --lanes"
            )
    if n > native.RP_MAX_VL:
        raise UsageError(f"{n} lanes by --lane and --weights: give at most {native.RP_MAX_VL}")
    if weights and len(weights) != n:
        raise UsageError(f"--weights {args.weights}: {len(weights)} weights for {n} lanes: give one for each")
    unit_bytes = {"packets": 0, "64": 64}
    if args.weight_unit not in unit_bytes:
        raise UsageError(f"--weight-unit must be packets or 64, got {args.weight_unit!r}")
    buffer_bytes = units.parse_bytes("--buffer", args.buffer, most=_MAX_BUFFER_BYTES)
    lanes = equal_lanes(n, buffer_bytes, weights)
    return replace(_with_high(args, lanes, high), weight_unit_bytes=unit_bytes[args.weight_unit])


def _with_high(args: argparse.Namespace, lanes: Lanes, high: tuple[int, ...]) -> Lanes:
    """Some lanes in the table of high priority, with the weights that they have."""
    if args.high_limit is not None and not high:
        raise UsageError(
            f"--high-limit {args.high_limit} is of lanes of high priority: give --high LANES too"
        )
    limit = (
        255
        if args.high_limit is None
        else numbers.parse("--high-limit", args.high_limit, numbers.whole(0, 255))
    )
    rows = [tuple(row for row in lanes.low if (row[0] in high) == is_high) for is_high in (True, False)]
    return replace(lanes, high=rows[0], low=rows[1], high_limit=limit if high else 0)


def lanes_of_jobs(args: argparse.Namespace, n_jobs: int) -> tuple[int, ...]:
    """Lane, and service level, of each job."""
    lanes = _numbers("--lane", args.lane) or (0,) * n_jobs
    if len(lanes) != n_jobs:
        raise UsageError(f"--lane {args.lane}: {len(lanes)} lanes for {n_jobs} jobs: give one for each")
    return lanes


def _numbers(flag: str, text: str | None, least: int = 0) -> tuple[int, ...]:
    words = () if text is None else text.split(",")
    return tuple(numbers.parse(flag, word.strip(), numbers.whole(least, 255)) for word in words)


def _latency_s(flag: str, text: str) -> float:
    latency_s = numbers.parse(flag, text, numbers.seconds)
    if latency_s > 1:
        raise UsageError(f"{flag} must be at most 1 s, got {text}")
    return latency_s


def settings_of(args: argparse.Namespace) -> Settings:
    """How messages become packets."""
    from mpicoloc.network.topology import readers
    from mpicoloc.replay.simulate import Settings

    mtu_bytes = units.parse_bytes("--mtu", args.mtu, 1, _MAX_MTU_BYTES)
    return Settings(
        mtu_bytes=mtu_bytes,
        control_bytes=min(64, mtu_bytes),
        eager_bytes=units.parse_bytes("--eager", args.eager, most=_MAX_EAGER_BYTES),
        mpi_latency_s=_latency_s("--mpi-latency-s", args.mpi_latency_s),
        local_bps=readers.rate_bps(args.local_rate),
        seed=numbers.parse("--random-state", args.random_state, numbers.whole(0)),
    )


def network_of(args: argparse.Namespace, fabric: Fabric, hardware: Hardware) -> SimulatedNetwork:
    """The network as the simulator takes it."""
    from mpicoloc.replay import fabrics

    if args.tables is None:
        return fabrics.of_fabric(fabric, args.routing, hardware, _failed(args.failed, fabric.topology))
    from mpicoloc.network import files

    for flag, value in (
        ("routing", args.routing != "d-mod-k"),
        ("failed", args.failed),
        ("slimming", args.slimming),
    ):
        if value:
            raise UsageError(f"--{flag} changes the routes, which --tables tells: leave one of both out")
    next_nodes = files.next_nodes_of(args.tables, args.topology, fabric)
    return fabrics.with_next_nodes(fabrics.of_fabric(fabric, args.routing, hardware), next_nodes)


def _failed(text: str | None, tree: Topology) -> list[tuple[int, int]]:
    failed = []
    for word in () if text is None else text.split(","):
        level, colon, link = word.strip().partition(":")
        if not colon:
            raise UsageError(f"--failed {word}: give it as LEVEL:LINK, like 1:0")
        number = (
            numbers.parse("--failed", level, numbers.whole(0)),
            numbers.parse("--failed", link, numbers.whole(0)),
        )
        if number[0] >= tree.height:
            raise UsageError(f"--failed {word}: {tree} has links on levels 0 to {tree.height - 1}")
        if number[1] >= (n_links := tree.n_links(number[0])):
            raise UsageError(f"--failed {word}: {tree} has links 0 to {n_links - 1:,} on level {level}")
        failed.append(number)
    return failed


_SHORTEST_WINDOW_S = 1e-7


@dataclass(frozen=True)
class Scene:
    """Jobs on a network, ready to be simulated.

    Parameters
    ----------
    network : SimulatedNetwork
    host_bps : float
        Rate of the hosts' links, bytes/s.
    hardware : Hardware
    settings : Settings
    jobs : list of PlacedJob
    """

    network: SimulatedNetwork
    host_bps: float
    hardware: Hardware
    settings: Settings
    jobs: list[PlacedJob]

    @property
    def notes(self) -> list[str]:
        """What a reader of the results should know of the jobs, each once."""
        return list(dict.fromkeys(note for job in self.jobs for note in job.programs.notes))


def scene_of(args: argparse.Namespace, read: Read | None = None) -> Scene:
    """What the flags describe; `read` reads a trace, see `replay_jobs.placed`."""
    n_jobs = count_jobs(args)
    fabric = fabric_of(args)
    hardware = hardware_of(args, n_jobs)
    settings = settings_of(args)
    jobs = placed_jobs_of(args, fabric, lanes_of_jobs(args, n_jobs), read)
    network = network_of(args, fabric, hardware)
    return Scene(network, fabric.topology.capacity_bps[0], hardware, settings, jobs)


def check(args: argparse.Namespace) -> None:
    """Refuse what is wrong in flags and files, as far as that is known without reading the jobs' traces."""
    n_jobs = count_jobs(args)
    fabric = fabric_of(args)
    hardware = hardware_of(args, n_jobs)
    lanes = lanes_of_jobs(args, n_jobs)
    if args.files:
        check_jobs(args, fabric)
    else:
        placed_jobs_of(args, fabric, lanes)
    network_of(args, fabric, hardware)


def simulate(args: argparse.Namespace, scene: Scene) -> tuple[Experiment, float]:
    """Every run, and how long the last one took, s."""
    from mpicoloc.replay import experiment, timeline

    network, settings, jobs = scene.network, scene.settings, scene.jobs
    watched = replace(settings, window_s=_window_s(args))
    has_marks = not (args.figures is args.perfetto is args.paraver is None)
    seen = [replace(job, programs=timeline.marked(job.programs)) for job in jobs] if has_marks else jobs
    base = [
        None if args.no_base else experiment.simulate_base(job, scene.host_bps, scene.hardware, settings)
        for job in jobs
    ]
    began_s = time.monotonic()
    if len(jobs) == 1:
        sharing = experiment.simulate_alone(network, seen[0], watched)
        alone = [sharing]
    else:
        alone = [experiment.simulate_alone(network, job, settings) for job in jobs]
        began_s = time.monotonic()
        sharing = experiment.simulate_sharing(network, seen, watched)
    wall_s = time.monotonic() - began_s
    return experiment.Experiment(tuple(jobs), network, tuple(base), tuple(alone), sharing), wall_s


def _window_s(args: argparse.Namespace) -> float:
    """Length of the first windows: where nobody chose it, so short that the simulator joins them."""
    if args.window_s is not None:
        return float(args.window_s)
    return 0.0 if args.out is args.figures is None else _SHORTEST_WINDOW_S
