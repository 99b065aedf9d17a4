"""Flags of the jobs that are replayed, and the jobs that they mean."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mpicoloc.cli import numbers
from mpicoloc.core import units
from mpicoloc.core.topology import Placement
from mpicoloc.errors import UsageError
from mpicoloc.network.characterise import AS_RUN, PlacementChoice, free_hosts, placed_on
from mpicoloc.network.flags import add_ranks_per_host
from mpicoloc.network.topology import placements
from mpicoloc.network.topology.fabric import Fabric

if TYPE_CHECKING:
    from mpicoloc.replay.experiment import PlacedJob
    from mpicoloc.replay.programs.builder import RankPrograms
    from mpicoloc.replay.programs.sources import Choices, Source

    Read = Callable[[str, Choices], Source]


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def n_jobs(args: argparse.Namespace) -> int:
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


def placed(
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


def check(args: argparse.Namespace, fabric: Fabric) -> None:
    """Refuse what is wrong in the flags of jobs that come from files, and files that are not there.

    What the traces say is not looked at: that takes long.
    """
    from mpicoloc.replay.programs import sources

    n = n_jobs(args)
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
