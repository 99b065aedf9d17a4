r"""Choose a lane of InfiniBand for each job that shares a network, and the weights of the lanes.

Each job gets a lane of its own while there are enough; otherwise jobs that contend little with each other
share one. Lanes with little traffic may send more packets in their turn (Jokanovic 2014, chapter 5). The
result is a table, an opensm configuration, and the variables that each job must set to use its lane.

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
from typing import TYPE_CHECKING

from mpicoloc import messages
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import bounded
from mpicoloc.core import progress
from mpicoloc.core.units import counted
from mpicoloc.errors import UsageError
from mpicoloc.network import flags

if TYPE_CHECKING:
    from mpicoloc.core.profile import Profile
    from mpicoloc.replay.qos.policy import Policy


GOALS = ("time", "slowdown")
"""Quantities that a search can minimise: total time that jobs lose, as in the thesis, or their mean
slowdown.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("files", metavar="PROFILE", nargs="+", help="profile of each job that shares the network")
    flags.add_fabric(parser)
    flags.add_routes(parser)
    add(
        "--lanes",
        type=arguments.count,
        metavar="N",
        default=4,
        help="data lanes of the fabric's ports: 1, 2, 4, 8 or 15 (4)",
    )
    add("--mtu", type=arguments.count, metavar="BYTES", default=4096, help="largest packet (4096)")
    add(
        "--rows",
        type=arguments.count,
        metavar="N",
        default=8,
        help="rows of the ports' arbitration tables (8)",
    )
    several = arguments.several(arguments.whole(0, 10**6))
    add("--assign", type=several, metavar="L1,L2,..", help="the lane of each job, in place of the chosen one")
    add(
        "--weights",
        type=several,
        metavar="W0,W1,..",
        help="packets that each lane may send in its turn, in place of the chosen numbers",
    )
    add("--high", type=several, metavar="L1,L2,..", help="high-priority lanes")
    add(
        "--high-limit",
        type=arguments.whole(0),
        metavar="N",
        default=255,
        help="units of 4096 bytes that high-priority lanes may send before a packet of the others (255: no "
        "limit)",
    )
    add(
        "--keep-lane-0",
        action="store_true",
        help="leave lane 0 to programs that set no service level, such as storage",
    )
    _add_search(parser)
    add("--opensm", metavar="FOLDER", help="write the opensm configuration to this folder")
    add(
        "--slurm",
        metavar="FOLDER",
        help="write each job's variables to this folder, for levels= of the Slurm plugin",
    )
    add("--json", action="store_true", help="print the result as JSON")
    arguments.add_figures(parser, "the search")


def _add_search(parser: argparse.ArgumentParser) -> None:
    """Flags of the search for lanes and weights by replaying the jobs."""
    add = parser.add_argument
    add(
        "--search",
        action="store_true",
        help="replay the jobs with many lanes and weights, and take the best (profiles with --trace all)",
    )
    add(
        "--goal",
        metavar="WHAT",
        default="time",
        help="what to minimise: time (lost by all jobs together) or slowdown (their mean); default time",
    )
    add("--max-weight", type=arguments.count, metavar="N", default=8, help="largest weight to try (8)")
    add(
        "--buffer",
        type=arguments.size(),
        metavar="BYTES",
        default=65536,
        help="buffer of a simulated port, all lanes together (65536)",
    )
    add(
        "--cpu-speed",
        type=arguments.positive,
        metavar="X",
        default=1.0,
        help="let computation run X times as fast as recorded (1)",
    )
    add("--allow-unmatched", action="store_true", help="leave out messages that no rank received")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print lanes and weights, and write configuration."""
    from mpicoloc.network.files import network_of, tell_run_delay
    from mpicoloc.profile import profiles
    from mpicoloc.replay.qos import search, terminal as report

    formats = _check(args)
    search.ports(args)
    network = network_of(args)
    paths = progress.steps(args.files, "reading", unit="profiles")
    read = [(path, profiles.read(path)) for path in paths]
    tell_run_delay(profile for _, profile in read)
    chosen = search.choose(args, network, search.jobs_of(args, network, read))
    files = _files(args, chosen.policy, read)  # raises an error before a long search
    tried = None
    if args.search:
        chosen, tried = search.searched(args, network, read, chosen)
        files = _files(args, chosen.policy, read)
    result = (chosen.cases, chosen.demands, chosen.policy, tried)
    if args.json:
        print(json.dumps(report.as_json(*result), indent=2, allow_nan=False))
    else:
        report.show(*result)
    sys.stdout.flush()
    _write(args, files)
    if tried and args.figures is not None:
        names = [case.job.id for case in chosen.cases]
        arguments.write_figures([report.contention(names, tried)], args.figures, formats)
    return 0


def _check(args: argparse.Namespace) -> tuple[str, ...]:
    """Check the flags before any file is read. Returns the formats of figures."""
    if args.figures is not None and not args.search:
        raise UsageError("--figures draws what --search finds: give --search too")
    formats = arguments.formats_of(args)
    if args.goal not in GOALS:
        raise UsageError(f"--goal must be {' or '.join(GOALS)}, got {args.goal!r}")
    for flag in ("weights", "high"):
        if args.search and getattr(args, flag) is not None:
            raise UsageError(f"--search tries weights and priorities: leave out --{flag}")
    return formats


def _files(
    args: argparse.Namespace, policy: Policy, read: Sequence[tuple[str, Profile]]
) -> dict[str, Mapping[str, str]]:
    """The files to write, by flag."""
    from mpicoloc.replay.qos.policy import configuration, level_files

    files: dict[str, Mapping[str, str]] = {}
    if args.opensm is not None:
        files["opensm"] = configuration(policy)
    if args.slurm is not None:
        files["slurm"] = level_files([profile.job for _, profile in read], policy.lane_of_job)
    return files


def _write(args: argparse.Namespace, files: Mapping[str, Mapping[str, str]]) -> None:
    from mpicoloc.replay.qos.policy import write_files

    for flag, contents in files.items():
        folder = getattr(args, flag)
        write_files(folder, contents, f"--{flag}")
        what = " and ".join(contents) if flag == "opensm" else f"variables of {counted(len(contents), 'job')}"
        messages.note(f"{what} in {folder}")
