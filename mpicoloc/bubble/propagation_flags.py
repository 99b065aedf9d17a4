"""Flags of propagation matrices, which `bubble propagation` and `replay --propagation` fill."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mpicoloc import config, messages
from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from mpicoloc.bubble.propagation import Profile
    from mpicoloc.bubble.uneven import PolicyChoice

    Uneven = Callable[[Sequence[float]], float]
    """Slowdown of the program with a bubble of its own level on each node."""

OF_FILLING = ("profiling", "threshold", "max_level", "uneven_runs")
"""Flags that choose the runs."""
_UNEVEN_RUNS = 20


def add_arguments(parser: argparse.ArgumentParser, curves: str) -> None:
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
        help="differences of slowdowns that the binary methods do not look into (0.05)",
    )
    add(
        "--max-level",
        metavar="N",
        help="bubbles of levels 1 to N; `place` takes larger pressures as N (8)",
    )
    add(
        "--uneven-runs",
        metavar="N",
        help="at most so many runs with different levels on the nodes, to find the program's policy; 0: none "
        f"({_UNEVEN_RUNS})",
    )


def check(args: argparse.Namespace) -> None:
    """Refuse what is wrong in flags and files before long runs."""
    from mpicoloc.bubble import curves_file
    from mpicoloc.bubble.propagation import METHODS

    if args.profiling not in (None, *METHODS):
        raise UsageError(f"--profiling must be one of {', '.join(METHODS)}, got {args.profiling!r}")
    _numbers(args)
    for flag in ("propagation", "curves"):
        path = getattr(args, flag)
        if path is not None and not os.access(os.path.dirname(path) or ".", os.W_OK):
            raise UsageError(f"--{flag} {path}: its folder cannot be written: name another, or make it")
    if args.propagation is not None:
        curves_file.check_update_matrices(args.propagation)
    if args.curves is not None:
        curves_file.check_update(args.curves)


def _numbers(args: argparse.Namespace) -> tuple[int, float, int]:
    """Levels, threshold and runs with uneven pressures."""
    from mpicoloc.bubble.propagation import THRESHOLD
    from mpicoloc.core.bubbles import MAX_LEVEL

    def text_of(flag: str, default: float) -> str:
        given = getattr(args, flag)
        return f"{default:g}" if given is None else str(given)

    return (
        config.parse_whole("--max-level", text_of("max_level", MAX_LEVEL), most=int(MAX_LEVEL)),
        config.parse_positive("--threshold", text_of("threshold", THRESHOLD)),
        config.parse_whole("--uneven-runs", text_of("uneven_runs", _UNEVEN_RUNS), 0),
    )


def run(
    args: argparse.Namespace,
    name: str,
    n_nodes: int,
    profile: Profile,
    uneven_slowdown: Uneven,
    rng: np.random.Generator,
) -> int:
    """Fill the matrix, find the policy, print both, and put them into the files."""
    from mpicoloc.bubble import curves_file, propagation, uneven
    from mpicoloc.bubble import terminal as report

    n_levels, threshold, max_runs = _numbers(args)
    method = args.profiling or propagation.METHODS[0]
    matrix = propagation.fill(method, profile, n_levels, n_nodes, rng, threshold)
    if args.propagation is not None:
        curves_file.update_matrices(args.propagation, name, matrix)
    choice: PolicyChoice | None = None
    if n_nodes > 1 and max_runs:
        choice = uneven.choose_by_runs(matrix, uneven_slowdown, rng, max_runs)
    if args.json:
        print(json.dumps(report.as_json(name, matrix, choice), indent=2, allow_nan=False))
    else:
        report.show(name, matrix, choice)
    sys.stdout.flush()
    if choice is not None and args.curves is not None:
        _keep_policy(args.curves, name, choice.policy)
    return 0


def _keep_policy(path: str, name: str, policy: str) -> None:
    from mpicoloc.bubble import curves_file

    curves_file.update(path, name, policy=policy)
    if not curves_file.has_curve_and_score(path, name):
        messages.note(
            f"{path} has no curve or no score of {name} yet: `place` needs `mpicoloc bubble sensitivity` and "
            "`score`, too"
        )
