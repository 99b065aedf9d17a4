"""`mpicoloc bubble propagation` and `replay --propagation`: how bubbles on some nodes slow a program."""

from __future__ import annotations

import argparse
from typing import Any

from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import count, positive, whole
from mpicoloc.errors import UsageError

OF_FILLING = ("profiling", "threshold", "max_level", "uneven_runs")
"""Flags that select the runs."""
UNEVEN_RUNS = 20


def add_matrix_flags(parser: argparse.ArgumentParser, curves: str) -> None:
    """Flags of the matrix and of the runs that fill it; `curves` is the help of `--curves`."""
    add = parser.add_argument
    add(
        "--propagation",
        metavar="FILE",
        help="write the matrix to this CSV file, for `place`: the program's slowdown for each level of "
        "bubbles and number of disturbed nodes (Han et al. 2016, section 3.2)",
    )
    add("--curves", metavar="FILE", help=curves)
    add("--name", metavar="NAME", help="the program's name in these files (default: its file's name)")
    add(
        "--profiling",
        metavar="METHOD",
        help="which settings to run; the others are interpolated: binary-optimized, binary-brute, random-30 "
        "or random-50 (binary-optimized)",
    )
    add(
        "--threshold",
        metavar="X",
        type=positive,
        help="the binary methods do not refine between slowdowns that differ by less (0.05)",
    )
    add(
        "--max-level",
        metavar="N",
        type=whole(1, 8),
        help="run bubbles of levels 1 to N; `place` treats larger pressures as N (8)",
    )
    add(
        "--uneven-runs",
        metavar="N",
        type=whole(0),
        help="limit of runs with different levels on the nodes, to find the program's policy; 0: none "
        f"({UNEVEN_RUNS})",
    )


_CURVES = (
    "the program's curve on one node, which gives the slowdown of computation on a disturbed node; the "
    "program's policy is written to this file"
)


def add_replay_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the matrix."""
    add_matrix_flags(parser, _CURVES)


def refuse_matrix_flags(args: argparse.Namespace) -> None:
    """Refuse flags of the matrix without `--propagation`."""
    for flag in ("curves", "name", *OF_FILLING):
        if getattr(args, flag) is not None:
            raise UsageError(
                f"--{flag.replace('_', '-')} applies only to --propagation, which is not given: leave it out"
            )


_WORDS = "measure a program's slowdown on several nodes while bubbles run on some of them"
_EXAMPLE = "--hosts 'n[0-3]' -- ./heat2d 2000 100"


def add_action(actions: Any) -> None:
    """The action and its arguments."""
    parser = arguments.action(actions, "bubble propagation", _WORDS, _EXAMPLE, "propagation")
    add = parser.add_argument
    add("--hosts", metavar="LIST", required=True, help="nodes of the program, as n[0-3],m1")
    add(
        "--ranks-per-node",
        metavar="R",
        type=count,
        default=1,
        help="ranks of the program on a node (default 1)",
    )
    add("--mpirun", metavar="PATH", help="the mpirun to use (default: that of the MPI that app links)")
    add("--mpirun-arg", action="append", default=[], metavar="ARG", help="one more argument for mpirun")
    add("--cores", metavar="LIST", help="processors of the bubbles on each node (default: the upper half)")
    add("--calibration", metavar="FILE", help="the calibration (default: each node's, in the user's cache)")
    add(
        "--repeats",
        metavar="N",
        type=count,
        default=1,
        help="runs of each setting; their median is used (1)",
    )
    add(
        "--settle-s",
        metavar="S",
        type=positive,
        default=10.0,
        help="wait this long between starting the bubbles and the program (10)",
    )
    add("--limit-s", metavar="S", type=positive, default=3600.0, help="time limit of a run (3600)")
    add(
        "--runs",
        metavar="FILE",
        help="keep the times of runs in this file; settings that it has are not run again",
    )
    add_matrix_flags(parser, "put the program's policy into this CSV file, for `place`")
    add("--seed", metavar="K", type=whole(0), default=1, help="seed for random settings (default 1)")
    add("--json", action="store_true", help="print the result as JSON")
    add("app", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
