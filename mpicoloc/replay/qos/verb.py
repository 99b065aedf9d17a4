r"""Choose a lane of InfiniBand for each job that shares a network, and the weights of the lanes.

Jobs have lanes of their own while there are enough; else jobs that meet little share one. Lanes that
communicate little may send more in their turn. As in Jokanovic 2014, chapter 5. The result is a table,
configuration of opensm, and the variables that each job sets to use its lane.

  mpicoloc qos one.h5 two.h5 --topology fabric.ibnetdiscover --lanes 4
  mpicoloc qos one.h5 two.h5 --topology 'XGFT(2;16,16;1,4)' \
      --placement F8 --opensm qos/ --slurm /etc/mpicoloc/levels
  mpicoloc qos one.h5 two.h5 --topology 'XGFT(2;16,16;1,4)' \
      --placement F8 --search --figures pictures
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mpicoloc import config, messages
from mpicoloc.cli import drawn
from mpicoloc.cli.memory import bounded
from mpicoloc.core import progress
from mpicoloc.core.units import counted
from mpicoloc.errors import UsageError
from mpicoloc.network import flags
from mpicoloc.replay.qos import search_flags

if TYPE_CHECKING:
    from mpicoloc.core.profile import Profile
    from mpicoloc.network.characterise import Case, JobInput, NetworkInput
    from mpicoloc.replay.qos.policy import Demands, Policy, Ports
    from mpicoloc.replay.qos.search import SearchResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("files", metavar="PROFILE", nargs="+", help="profile of each job that shares the network")
    flags.add_fabric(parser)
    flags.add_routes(parser)
    add("--lanes", metavar="N", default="4", help="data lanes of the fabric's ports: 1, 2, 4, 8 or 15 (4)")
    add("--mtu", metavar="BYTES", default="4096", help="bytes of a full packet (4096)")
    add("--rows", metavar="N", default="8", help="rows of the ports' arbitration tables (8)")
    add("--assign", metavar="L1,L2,..", help="the lane of each job, not the one that is chosen")
    add("--weights", metavar="W0,W1,..", help="packets that each lane may send in its turn, not those chosen")
    add("--high", metavar="L1,L2,..", help="lanes of high priority")
    add(
        "--high-limit",
        metavar="N",
        default="255",
        help="units of 4096 bytes that they may send before a packet of the others (255: no limit)",
    )
    add(
        "--keep-lane-0",
        action="store_true",
        help="leave lane 0 to programs that set no service level, such as storage",
    )
    search_flags.add_arguments(parser)
    add("--opensm", metavar="FOLDER", help="write configuration of opensm there")
    add("--slurm", metavar="FOLDER", help="write each job's variables there, for levels= of Slurm's plugin")
    add("--json", action="store_true", help="print the result as JSON")
    drawn.add_arguments(parser, "the search")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print lanes and weights, and write configuration."""
    from mpicoloc.profile import profiles
    from mpicoloc.replay.qos import terminal as report

    formats = _formats(args)
    search_flags.check(args)
    _ports(args)  # refuses before anything is read
    network = flags.network_of(args)
    paths = progress.steps(args.files, "reading", unit="profiles")
    read = [(path, profiles.read(path)) for path in paths]
    chosen = _choose(args, network, _jobs(args, network, read))
    files = _files(args, chosen.policy, read)  # refuses before a long search
    tried = None
    if args.search:
        chosen, tried = _searched(args, network, read, chosen)
        files = _files(args, chosen.policy, read)
    result = (chosen.cases, chosen.demands, chosen.policy, tried)
    if args.json:
        print(json.dumps(report.as_json(*result), indent=2, allow_nan=False))
    else:
        report.show(*result)
    sys.stdout.flush()
    _write(files)
    if tried and args.figures is not None:
        from mpicoloc.replay.qos import terminal as pictures

        names = [case.job.id for case in chosen.cases]
        drawn.write([pictures.contention(names, tried)], args.figures, formats)
    return 0


def _formats(args: argparse.Namespace) -> tuple[str, ...]:
    if args.figures is not None and not args.search:
        raise UsageError("--figures draws what --search finds: give it too")
    return drawn.formats_of(args)


@dataclass(frozen=True)
class _Chosen:
    """A policy, and what it was chosen by."""

    cases: Sequence[Case]
    demands: Demands
    policy: Policy


def _jobs(
    args: argparse.Namespace, network: NetworkInput, read: Sequence[tuple[str, Profile]]
) -> list[JobInput]:
    jobs = [flags.job_of(args, network.fabric, i, *job) for i, job in enumerate(read)]
    if any(len(job.placements) > 1 for job in jobs):
        raise UsageError("--placement must be one for each profile: a job runs in one place")
    return jobs


def _choose(
    args: argparse.Namespace, network: NetworkInput, jobs: Sequence[JobInput], is_quiet: bool = False
) -> _Chosen:
    """The policy by what the jobs do to the network together."""
    from mpicoloc.network.characterise import characterise
    from mpicoloc.replay.qos.policy import demands_of

    characterised = characterise(jobs, network)
    for note in () if is_quiet else characterised.notes:
        messages.note(note)
    demands = demands_of(characterised.cases, characterised.shared)
    return _Chosen(characterised.cases, demands, _policy(args, demands))


def _searched(
    args: argparse.Namespace, network: NetworkInput, read: Sequence[tuple[str, Profile]], chosen: _Chosen
) -> tuple[_Chosen, SearchResult]:
    """The best policy of a search, in which jobs take as long as they do alone in the simulation."""
    ready = search_flags.prepare(args, network.fabric, chosen.cases, chosen.demands, chosen.policy)
    if args.duration_s is None:
        timed = zip(_jobs(args, network, read), ready.alone_s, strict=True)
        jobs = [replace(job, duration_s=alone_s) for job, alone_s in timed]
        chosen = _choose(args, network, jobs, is_quiet=True)
    tried = search_flags.search(args, ready, chosen.demands, chosen.policy)
    return replace(chosen, policy=tried.best.trial.policy), tried


def _policy(args: argparse.Namespace, demands: Demands) -> Policy:
    """The policy that is chosen, with what the flags say otherwise."""
    from mpicoloc.replay.qos.policy import choose_policy

    policy = choose_policy(
        demands,
        _ports(args),
        _whole_numbers("--assign", args.assign),
        _whole_numbers("--weights", args.weights),
        args.keep_lane_0,
    )
    high = tuple(_whole_numbers("--high", args.high) or ())
    return replace(policy, high_lanes=high, high_limit=config.parse_whole("--high-limit", args.high_limit, 0))


def _ports(args: argparse.Namespace) -> Ports:
    from mpicoloc.replay.qos.policy import Ports

    return Ports(*(config.parse_whole(f"--{flag}", getattr(args, flag)) for flag in ("lanes", "mtu", "rows")))


def _whole_numbers(flag: str, text: str | None) -> list[int] | None:
    """Whole numbers of 0 or more with commas between; what they mean is checked where they are used."""
    return None if text is None else [config.parse_whole(flag, word, 0, 10**6) for word in text.split(",")]


@dataclass(frozen=True)
class _Files:
    """Files to write into a folder, the flag that asks for them, and what they are."""

    flag: str
    folder: str
    contents: Mapping[str, str]
    description: str


def _files(args: argparse.Namespace, policy: Policy, read: Sequence[tuple[str, Profile]]) -> list[_Files]:
    """The files that the flags ask for."""
    from mpicoloc.replay.qos import opensm
    from mpicoloc.replay.qos import opensm as qos_files

    files = []
    if args.opensm is not None:
        contents = opensm.configuration(policy)
        files.append(_Files("--opensm", args.opensm, contents, " and ".join(contents)))
    if args.slurm is not None:
        contents = qos_files.level_files([profile.job for _, profile in read], policy.lane_of_job)
        description = f"variables of {counted(len(contents), 'job')}"
        files.append(_Files("--slurm", args.slurm, contents, description))
    return files


def _write(files: Sequence[_Files]) -> None:
    from mpicoloc.replay.qos import opensm as qos_files

    for group in files:
        qos_files.write_files(group.folder, group.contents, group.flag)
        messages.note(f"{group.description} in {group.folder}")
