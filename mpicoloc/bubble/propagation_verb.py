"""`mpicoloc bubble propagation`: how a program on several nodes suffers if bubbles run on some of them."""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpicoloc import config, messages
from mpicoloc.bubble import propagation_flags
from mpicoloc.cli import helping
from mpicoloc.core import progress
from mpicoloc.core.number_lists import parse_cpus
from mpicoloc.errors import UsageError
from mpicoloc.job import flags as job_flags
from mpicoloc.job.launcher import Launcher

if TYPE_CHECKING:
    from mpicoloc.bubble.propagation_runs import TimeOf
    from mpicoloc.job.launcher import Launcher


N_ALONE = 3
"""Runs without bubbles, at least."""
_WORDS = "measure what a program on several nodes suffers if bubbles run on some of them"
_EXAMPLE = "--hosts 'n[0-3]' -- ./heat2d 2000 100"


def add(actions: Any) -> None:
    """The action and its arguments."""
    parser = helping.action(actions, "bubble propagation", _WORDS, _EXAMPLE)
    add = parser.add_argument
    add("--hosts", metavar="LIST", required=True, help="nodes of the program, as n[0-3],m1")
    add("--ranks-per-node", metavar="R", default="1", help="ranks of the program on a node (default 1)")
    add("--mpirun", metavar="PATH", help="the mpirun to use; default: of the MPI that app links")
    add("--mpirun-arg", action="append", default=[], metavar="ARG", help="one more for mpirun")
    add("--cores", metavar="LIST", help="processors of the bubbles on each node (default: the upper half)")
    add("--calibration", metavar="FILE", help="the calibration (default: each node's, in the user's cache)")
    add("--repeats", metavar="N", default="1", help="runs of each setting, of which the median counts (1)")
    add("--settle-s", metavar="S", default="10", help="from the start of bubbles to that of the program (10)")
    add("--limit-s", metavar="S", default="3600", help="longest time of a run (3600)")
    add(
        "--runs",
        metavar="FILE",
        help="keep the times of runs in this file; those that it has are not run again",
    )
    propagation_flags.add_arguments(parser, "put the program's policy into this CSV file, for `place`")
    add("--seed", metavar="K", default="1", help="of the settings that are drawn (default 1)")
    add("--json", action="store_true", help="print the result as JSON")
    add("app", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(act=run)


def run(args: argparse.Namespace) -> int:
    """Run the program for each setting that the matrix needs."""
    import numpy as np

    from mpicoloc.network.topology import hostlist

    app = job_flags.application(
        args.app, "application", "mpicoloc bubble propagation --hosts LIST [--] app [arguments]"
    )
    hosts = hostlist.expand(args.hosts, "--hosts")
    if twice := next((host for host in hosts if hosts.count(host) > 1), None):
        raise UsageError(f"--hosts names {twice} twice: give each node once")
    n_ranks = config.parse_whole("--ranks-per-node", args.ranks_per_node)
    n_repeats = config.parse_whole("--repeats", args.repeats)
    rng = np.random.default_rng(config.parse_whole("--seed", args.seed, 0))
    if args.cores is not None and not parse_cpus(args.cores):
        raise UsageError(f"--cores must be a list of processors such as 0-3,8, got {args.cores!r}")
    propagation_flags.check(args)

    from mpicoloc.bubble.propagation_runs import BubbledNodes, bubble_command

    def bubble(level: float) -> list[str]:
        return bubble_command(level, args.cores or "", args.calibration or "")

    settle_s = config.parse_positive("--settle-s", args.settle_s)
    limit_s = config.parse_positive("--limit-s", args.limit_s)
    nodes = BubbledNodes(
        _launcher(args, app), hosts, app, n_ranks, bubble, args.mpirun_arg, settle_s, limit_s
    )
    one_run = _resumable(args, app, hosts, nodes.time_s)
    time_s = _median_of_runs(one_run, n_repeats)
    with progress.stage("running the program", unit="runs"):
        # All slowdowns are over this one.
        alone_s = _median_of_runs(one_run, max(N_ALONE, n_repeats))([0] * len(hosts))

        def profile(level: int, n_disturbed: int) -> float:
            if not n_disturbed:
                return alone_s
            return time_s([level] * n_disturbed + [0] * (len(hosts) - n_disturbed))

        name = args.name or os.path.basename(app[0])
        return propagation_flags.run(
            args, name, len(hosts), profile, lambda levels: time_s(levels) / alone_s, rng
        )


def _resumable(args: argparse.Namespace, app: Sequence[str], hosts: Sequence[str], time_s: TimeOf) -> TimeOf:
    """The runs, noted in the file of `--runs` if one was named."""
    if args.runs is None:
        return time_s
    from mpicoloc.bubble.propagation_runs import resumable

    flags = ("ranks_per_node", "mpirun", "mpirun_arg", "cores")
    settings = {"program": list(app), "hosts": list(hosts), "calibration": _content_of(args.calibration)}
    return resumable(time_s, args.runs, settings | {name: getattr(args, name) for name in flags})


def _content_of(path: str | None) -> str | None:
    """A digest of the file, which the nodes may have and this one not: then its name."""
    try:
        with open(path or "", "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return path


def _median_of_runs(time_s: TimeOf, n_repeats: int) -> TimeOf:
    """The median of some runs, each of which is told with -v."""

    def median_s(levels: Sequence[float]) -> float:
        found = []
        for _ in range(n_repeats):
            found.append(time_s(levels))
            progress.count("runs", 1)
            messages.detail(f"levels {' '.join(f'{level:g}' for level in levels)}: {found[-1]:.2f} s")
        return statistics.median(found)

    return median_s


def _launcher(args: argparse.Namespace, app: Sequence[str]) -> Launcher:
    """The mpirun that was named, or that of the program's MPI."""
    from mpicoloc.job import launcher, target

    if args.mpirun:
        chosen = launcher.given(args.mpirun)
    else:
        found = target.find(app, os.environ)
        chosen = launcher.find(found.abi, found.libmpi, found.file)
    if chosen.family != "openmpi" and not args.mpirun_arg:
        messages.note(
            "this mpirun binds no ranks, so bubbles may take their processors: give "
            "--mpirun-arg=-bind-to --mpirun-arg=core, or bind them otherwise"
        )
    return chosen
