"""`mpicoloc bubble propagation` and `replay --propagation`: how bubbles on some nodes slow a program."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mpicoloc import messages
from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import bounded, count, positive, whole
from mpicoloc.core import progress
from mpicoloc.core.number_lists import parse_cpus
from mpicoloc.errors import UsageError
from mpicoloc.job import flags as job_flags

if TYPE_CHECKING:
    import numpy as np

    from mpicoloc.bubble.propagation import PolicyChoice, Profile

    Uneven = Callable[[Sequence[float]], float]
    """Slowdown of the program with a bubble of its own level on each node."""
    from mpicoloc.bubble.propagation_runs import TimeOf
    from mpicoloc.job.launcher import Launcher


OF_FILLING = ("profiling", "threshold", "max_level", "uneven_runs")
"""Flags that choose the runs."""
_UNEVEN_RUNS = 20


def add_matrix_flags(parser: argparse.ArgumentParser, curves: str) -> None:
    """Flags of the matrix and of the runs that fill it; `curves` is the help of `--curves`."""
    add = parser.add_argument
    add(
        "--propagation",
        metavar="FILE",
        help="put the matrix into this CSV file, for `place`: the program's slowdown for each level of "
        "bubbles and number of disturbed nodes (Han et al. 2016, section 3.2)",
    )
    add("--curves", metavar="FILE", help=curves)
    add("--name", metavar="NAME", help="the program's name in these files (default: that of its file)")
    add(
        "--profiling",
        metavar="METHOD",
        help="which settings are run; others are interpolated: binary-optimized, binary-brute, random-30 or "
        "random-50 (binary-optimized)",
    )
    add(
        "--threshold",
        metavar="X",
        type=positive,
        help="differences of slowdowns that the binary methods do not look into (0.05)",
    )
    add(
        "--max-level",
        metavar="N",
        type=whole(1, 8),
        help="bubbles of levels 1 to N; `place` takes larger pressures as N (8)",
    )
    add(
        "--uneven-runs",
        metavar="N",
        type=whole(0),
        help="at most so many runs with different levels on the nodes, to find the program's policy; 0: none "
        f"({_UNEVEN_RUNS})",
    )


def check_matrix_flags(args: argparse.Namespace) -> None:
    """Refuse what is wrong in flags and files before long runs."""
    from mpicoloc.bubble import curves_file
    from mpicoloc.bubble.propagation import METHODS

    if args.profiling not in (None, *METHODS):
        raise UsageError(f"--profiling must be one of {', '.join(METHODS)}, got {args.profiling!r}")
    for flag in ("propagation", "curves"):
        path = getattr(args, flag)
        if path is not None and not os.access(os.path.dirname(path) or ".", os.W_OK):
            raise UsageError(f"--{flag} {path}: its folder cannot be written: name another, or make it")
    curves_file.check_update_matrices(args.propagation)
    curves_file.check_update(args.curves)


def fill_matrix(
    args: argparse.Namespace,
    name: str,
    n_nodes: int,
    profile: Profile,
    uneven_slowdown: Uneven,
    rng: np.random.Generator,
) -> int:
    """Fill the matrix, find the policy, print both, and put them into the files."""
    from mpicoloc.bubble import curves_file, propagation
    from mpicoloc.bubble import terminal as report
    from mpicoloc.core.bubbles import LEVELS

    method = args.profiling or propagation.METHODS[0]
    threshold = args.threshold or propagation.THRESHOLD
    matrix = propagation.fill(method, profile, args.max_level or len(LEVELS) - 1, n_nodes, rng, threshold)
    max_runs = _UNEVEN_RUNS if args.uneven_runs is None else args.uneven_runs
    if args.propagation is not None:
        curves_file.update_matrices(args.propagation, name, matrix)
    choice: PolicyChoice | None = None
    if n_nodes > 1 and max_runs:
        choice = propagation.choose_by_runs(matrix, uneven_slowdown, rng, max_runs)
    if args.json:
        print(json.dumps(report.as_json(name, matrix, choice), indent=2, allow_nan=False))
    else:
        report.show(name, matrix, choice)
    sys.stdout.flush()
    if choice is None or args.curves is None:
        return 0
    if not curves_file.update(args.curves, name, policy=choice.policy):
        messages.note(
            f"{args.curves} has no curve or no score of {name} yet: `place` needs `mpicoloc bubble "
            "sensitivity` and `score`, too"
        )
    return 0


_CURVES = (
    "curve of the program on one node, which says how much longer a disturbed node computes; its policy is "
    "put there"
)
_OF_REPLAY = (
    "out", "perfetto", "paraver", "window_s", "figures", "format", "against", "stretch", "sweep",
    "processes", "no_base",
)  # fmt: skip
"""Flags whose results `--propagation` does not have."""


def add_replay_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the matrix."""
    add_matrix_flags(parser, _CURVES)


def refuse_matrix_flags(args: argparse.Namespace) -> None:
    """Refuse flags of the matrix where none is wanted."""
    for flag in ("curves", "name", *OF_FILLING):
        if getattr(args, flag) is not None:
            raise UsageError(
                f"--{flag.replace('_', '-')} is of --propagation, which is not given: leave it out"
            )


@bounded
def run_replay(args: argparse.Namespace) -> int:
    """Replay the job for each setting that the matrix needs."""
    import numpy as np

    from mpicoloc.bubble import curves_file, propagation_runs
    from mpicoloc.replay import scene as scenes

    for flag in _OF_REPLAY:
        if getattr(args, flag):
            raise UsageError(
                f"--{flag.replace('_', '-')} does not go with --propagation: leave one of both out"
            )
    if args.curves is None:
        raise UsageError("--propagation needs the program's curve on one node: give --curves FILE")
    if (n_jobs := scenes.count_jobs(args)) != 1:
        raise UsageError(f"--propagation is of one job, got {n_jobs}: give one trace")
    check_matrix_flags(args)
    scene = scenes.scene_of(args)
    for note in scene.notes:
        messages.note(note)
    job = scene.jobs[0]
    name = args.name or job.name
    curve = curves_file.curve_of(args.curves, name)
    profile = propagation_runs.replayed_profile(scene.network, job, curve, scene.settings)
    uneven = propagation_runs.replayed_uneven(scene.network, job, curve, scene.settings)
    rng = np.random.default_rng(args.random_state)
    return fill_matrix(args, name, job.n_hosts, profile, uneven, rng)


N_ALONE = 3
"""Runs without bubbles, at least."""
_WORDS = "measure what a program on several nodes suffers if bubbles run on some of them"
_EXAMPLE = "--hosts 'n[0-3]' -- ./heat2d 2000 100"


def add_action(actions: Any) -> None:
    """The action and its arguments."""
    parser = arguments.action(actions, "bubble propagation", _WORDS, _EXAMPLE)
    add = parser.add_argument
    add("--hosts", metavar="LIST", required=True, help="nodes of the program, as n[0-3],m1")
    add(
        "--ranks-per-node",
        metavar="R",
        type=count,
        default=1,
        help="ranks of the program on a node (default 1)",
    )
    add("--mpirun", metavar="PATH", help="the mpirun to use; default: of the MPI that app links")
    add("--mpirun-arg", action="append", default=[], metavar="ARG", help="one more for mpirun")
    add("--cores", metavar="LIST", help="processors of the bubbles on each node (default: the upper half)")
    add("--calibration", metavar="FILE", help="the calibration (default: each node's, in the user's cache)")
    add(
        "--repeats",
        metavar="N",
        type=count,
        default=1,
        help="runs of each setting, of which the median counts (1)",
    )
    add(
        "--settle-s",
        metavar="S",
        type=positive,
        default=10.0,
        help="from the start of bubbles to that of the program (10)",
    )
    add("--limit-s", metavar="S", type=positive, default=3600.0, help="longest time of a run (3600)")
    add(
        "--runs",
        metavar="FILE",
        help="keep the times of runs in this file; those that it has are not run again",
    )
    add_matrix_flags(parser, "put the program's policy into this CSV file, for `place`")
    add("--seed", metavar="K", type=whole(0), default=1, help="of the settings that are drawn (default 1)")
    add("--json", action="store_true", help="print the result as JSON")
    add("app", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(act=run_on_nodes)


def run_on_nodes(args: argparse.Namespace) -> int:
    """Run the program for each setting that the matrix needs."""
    import numpy as np

    from mpicoloc.network.topology import hostlist

    app = job_flags.application(
        args.app, "application", "mpicoloc bubble propagation --hosts LIST [--] app [arguments]"
    )
    hosts = hostlist.expand(args.hosts, "--hosts")
    if twice := next((host for host in hosts if hosts.count(host) > 1), None):
        raise UsageError(f"--hosts names {twice} twice: give each node once")
    rng = np.random.default_rng(args.seed)
    if args.cores is not None and not parse_cpus(args.cores):
        raise UsageError(f"--cores must be a list of processors such as 0-3,8, got {args.cores!r}")
    check_matrix_flags(args)

    from mpicoloc.bubble.propagation_runs import BubbledNodes, bubble_command

    bubble = partial(bubble_command, cores=args.cores or "", calibration=args.calibration or "")
    launcher, n_repeats = _launcher(args, app), args.repeats
    nodes = BubbledNodes(
        launcher, hosts, app, args.ranks_per_node, bubble, args.mpirun_arg, args.settle_s, args.limit_s
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
        return fill_matrix(args, name, len(hosts), profile, lambda levels: time_s(levels) / alone_s, rng)


def _resumable(args: argparse.Namespace, app: Sequence[str], hosts: Sequence[str], time_s: TimeOf) -> TimeOf:
    """The runs, noted in the file of `--runs` if one was named."""
    if args.runs is None:
        return time_s
    from mpicoloc.bubble.propagation_runs import resumable

    flags = ("mpirun", "mpirun_arg", "cores")
    settings = {name: getattr(args, name) for name in flags}
    settings |= {"program": list(app), "hosts": list(hosts), "calibration": _content_of(args.calibration)}
    return resumable(time_s, args.runs, settings | {"ranks_per_node": str(args.ranks_per_node)})


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
    from mpicoloc.job import launcher as job_launcher
    from mpicoloc.job import target

    if args.mpirun:
        chosen = job_launcher.given(args.mpirun)
    else:
        found = target.find(app, os.environ)
        chosen = job_launcher.find(found.abi, found.libmpi, found.file)
    if chosen.family != "openmpi" and not args.mpirun_arg:
        messages.note(
            "this mpirun binds no ranks, so bubbles may take their processors: give "
            "--mpirun-arg=-bind-to --mpirun-arg=core, or bind them otherwise"
        )
    return chosen
