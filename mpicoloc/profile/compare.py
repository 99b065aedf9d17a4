r"""Compare runs: solo against co-run, before a change against after it, one setting against others.

Several profiles are compared with the first. With several runs per group, `--against` separates the groups,
or `--group` names them; all are compared with the first group, with 95 % intervals: Welch's t-test of the
logarithms, with Holm's correction for more than two groups. `--regression` is for scripts: exit code 1 if the
quantity grew by more than the limit and, with several runs, significantly.

  mpicoloc compare solo.h5 shared.h5
  mpicoloc compare old1.h5 old2.h5 old3.h5 \
      --against new1.h5 new2.h5 new3.h5 --regression wall_s=5%
  mpicoloc compare --group 1_switch a*.h5 --group 2_switches b*.h5 \
      --group 4_switches c*.h5
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence

from mpicoloc import messages
from mpicoloc.cli.arguments import bounded
from mpicoloc.errors import UsageError, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("files", metavar="FILE", nargs="*", help="profiles of the runs to compare with")
    parser.add_argument(
        "--against",
        metavar="FILE",
        nargs="+",
        action="append",
        help="profiles of another group of runs; may be repeated",
    )
    parser.add_argument(
        "--group",
        metavar=("NAME", "FILE"),
        nargs="+",
        action="append",
        help="name and profiles of a group of runs; may be repeated; all are compared with the first group",
    )
    parser.add_argument(
        "--regression",
        metavar="NAME=LIMIT",
        action="append",
        default=[],
        help="exit code 1 if this quantity or MPI function grew by more than LIMIT, as wall_s=5%% or "
        "MPI_Allreduce=0.2",
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the comparison; returns 1 if a quantity exceeds its limit."""
    limits = dict(_limit(text) for text in args.regression)
    groups = _groups(args)
    from mpicoloc.profile import comparison

    found, grown = comparison.compare(groups, limits)
    if args.json:
        regressions = [(name, row.name) for name, row in grown]
        print(json.dumps(comparison.as_json(groups, found, regressions), indent=2, allow_nan=False))
    else:
        comparison.show(found, next(iter(groups)))
    for name, row in grown:
        where = f" in {name}" if len(found) > 1 else ""
        messages.trouble(f"regression: {row.name}{where} is {comparison.growth(row)}")
    return 1 if grown else 0


def _groups(args: argparse.Namespace) -> dict[str, Sequence[str]]:
    """Name and files of each group of runs. The other groups are compared with the first."""
    if args.group:
        return _named_groups(args)
    if args.against:
        if not args.files:
            raise UsageError("--against has no runs before it: put the runs to compare with there")
        found = [args.files, *args.against]
    elif len(args.files) < 2:
        raise UsageError(
            f"give two profiles or more, or groups of runs separated by --against; got {len(args.files)} "
            "without --against"
        )
    else:
        found = [[file] for file in args.files]
    titles = list(map(_title, found))
    if len(set(titles)) < len(titles):
        titles = [f"{i}: {title}" for i, title in enumerate(titles, 1)]
    return dict(zip(titles, found, strict=True))


def _named_groups(args: argparse.Namespace) -> dict[str, Sequence[str]]:
    if args.files or args.against:
        raise UsageError(
            "--group does not go with --against or other profiles: put every profile after a --group"
        )
    found: dict[str, Sequence[str]] = {}
    for name, *files in args.group:
        if not files:
            raise UsageError(f"--group {name!r} has no profile: give a name, then the profiles of its runs")
        if printable(name) in found:
            raise UsageError(f"--group {name!r} is given twice")
        found[printable(name)] = files
    if len(found) < 2:
        raise UsageError(
            f"there is only one group, {name!r}: give the group to compare with first, then the others"
        )
    return found


def _limit(text: str) -> tuple[str, float]:
    name, _, limit = text.partition("=")
    scale = 0.01 if limit.endswith("%") else 1.0
    try:
        value = float(limit.removesuffix("%")) * scale
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value) or value < 0 or (scale == 1.0 and value > 1):
        raise UsageError(f"--regression {text!r} is not NAME=LIMIT: give one like wall_s=5% or wall_s=0.05")
    return name, value


def _title(files: Sequence[str]) -> str:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return printable(files[0]) + more
