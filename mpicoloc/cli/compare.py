"""Compare runs: solo against co-run, before a change against after it.

With two profiles the second is compared with the first. With several runs of each, `--against` parts them,
and the answer has 95 % intervals: Welch's t-test of the logarithms. `--regression` makes it a check for
scripts: exit code 1 if the quantity grew by more than that, and, with several runs, not by chance.

  mpicoloc compare solo.h5 shared.h5
  mpicoloc compare old1.h5 old2.h5 old3.h5 --against new1.h5 new2.h5 new3.h5 --regression wall_s=5%
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpicoloc.cli import tell
from mpicoloc.core.progress import steps
from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.model.compare import Comparison
    from mpicoloc.store.frames import Frames


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="profiles of the runs before")
    parser.add_argument("--against", metavar="FILE", nargs="+", help="profiles of the runs after")
    parser.add_argument(
        "--regression",
        metavar="NAME=LIMIT",
        action="append",
        default=[],
        help="exit code 1 if this grew by more than LIMIT: wall_s=5%%, or an MPI function, MPI_Allreduce=0.2",
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the comparison; 1 if there is a regression that was asked for."""
    limits = dict(_limit(text) for text in args.regression)
    before, after = _groups(args)
    from mpicoloc.model.compare import compare
    from mpicoloc.report import compare as report
    from mpicoloc.store.frames import open_profile

    opened = [open_profile(file) for file in steps([*before, *after], "reading", unit="profiles")]
    jobs = [opened[: len(before)], opened[len(before) :]]
    _warn_of_sizes(jobs[0] + jobs[1])
    runs = [[report.quantities(job) for job in group] for group in jobs]
    names = [*report.UNITS, *report.functions(runs[0] + runs[1])]
    _check_names(limits, names)
    units = {name: report.UNITS.get(name, "s") for name in names}
    found = compare(report.columns(runs[0], names), report.columns(runs[1], names), units)
    _check_measured(limits, found)
    grown = [row.name for row in found if row.name in limits and row.is_above(limits[row.name])]
    if args.json:
        print(json.dumps(report.as_json(found, grown), indent=2, allow_nan=False))
    else:
        report.show(found, (_title(before), _title(after)))
    for row in found:
        if row.name in grown:
            tell.trouble(f"regression: {row.name} is {row.ratio:.3f} times what it was")
    return 1 if grown else 0


def _groups(args: argparse.Namespace) -> tuple[Sequence[str], Sequence[str]]:
    if args.against:
        return args.files, args.against
    if len(args.files) != 2:
        n = len(args.files)
        raise UsageError(f"two profiles, or runs of two kinds parted by --against; got {n} without --against")
    return args.files[:1], args.files[1:]


def _limit(text: str) -> tuple[str, float]:
    name, _, limit = text.partition("=")
    scale = 0.01 if limit.endswith("%") else 1.0
    try:
        value = float(limit.removesuffix("%")) * scale
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value) or value < 0:
        raise UsageError(f"--regression {text!r} is no NAME=LIMIT, for example wall_s=5%")
    return name, value


def _check_names(limits: dict[str, float], names: Sequence[str]) -> None:
    for name in limits:
        if name in names:
            continue
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        if not name.startswith("MPI_"):
            known = ", ".join(names[:9])
            raise UsageError(
                f"--regression {name!r} is not compared{hint}; there are {known}, and MPI functions"
            )
        # A program may have stopped to call it.
        tell.note(f"no run calls {name}{hint}")


def _check_measured(limits: dict[str, float], found: Sequence[Comparison]) -> None:
    for row in found:
        if row.name in limits and (row.before is None or row.after is None):
            which = "before" if row.before is None else "after"
            raise DataError(
                f"--regression {row.name}: no run {which} has measured it; ask for another quantity"
            )


def _warn_of_sizes(jobs: Sequence[Frames]) -> None:
    sizes = sorted({job.profile.job.n_ranks for job in jobs})
    if len(sizes) > 1:
        tell.note(f"runs of different sizes: {', '.join(map(str, sizes))} ranks")


def _title(files: Sequence[str]) -> str:
    from mpicoloc.core.tables import printable

    return printable(files[0]) if len(files) == 1 else f"{len(files)} runs"
