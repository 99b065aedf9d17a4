r"""Compare runs: solo against co-run, before a change against after it, one setting against others.

Several profiles are compared with the first. With several runs of each kind, `--against` parts the kinds, or
`--group` names them; all are compared with the first kind, and the answer has 95 % intervals: Welch's t-test
of the logarithms, with Holm's correction where there are more than two kinds. `--regression` makes it a check
for scripts: exit code 1 if the quantity grew by more than that, and, with several runs, not by chance.

  mpicoloc compare solo.h5 shared.h5
  mpicoloc compare old1.h5 old2.h5 old3.h5 \
      --against new1.h5 new2.h5 new3.h5 --regression wall_s=5%
  mpicoloc compare --group 1_switch a*.h5 --group 2_switches b*.h5 \
      --group 4_switches c*.h5
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpicoloc.cli.memory import bounded
from mpicoloc.core import messages
from mpicoloc.core.progress import steps
from mpicoloc.errors import DataError, UsageError

if TYPE_CHECKING:
    from mpicoloc.profile.frames import Frames
    from mpicoloc.slowdown.statistics import Comparison


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("files", metavar="FILE", nargs="*", help="profiles of the runs before")
    parser.add_argument(
        "--against",
        metavar="FILE",
        nargs="+",
        action="append",
        help="profiles of the runs after; once for each kind of runs",
    )
    parser.add_argument(
        "--group",
        metavar=("NAME", "FILE"),
        nargs="+",
        action="append",
        help="a name and profiles of runs, for each kind; all are compared with the first",
    )
    parser.add_argument(
        "--regression",
        metavar="NAME=LIMIT",
        action="append",
        default=[],
        help="exit code 1 if this grew by more than LIMIT: wall_s=5%%, or an MPI function, MPI_Allreduce=0.2",
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")


@bounded
def run(args: argparse.Namespace) -> int:
    """Print the comparison; 1 if there is a regression that was asked for."""
    limits = dict(_limit(text) for text in args.regression)
    groups = _groups(args)
    from mpicoloc.profile.frames import open_profile
    from mpicoloc.report.terminal import compare as report
    from mpicoloc.slowdown.statistics import compare_all

    files = [file for of_group in groups.values() for file in of_group]
    opened = iter([open_profile(file) for file in steps(files, "reading", unit="profiles")])
    jobs = [[next(opened) for _ in of_group] for of_group in groups.values()]
    _warn_of_differences([job for group in jobs for job in group])
    for file, job in zip(files, [job for group in jobs for job in group], strict=True):
        if job.profile.partial:
            _refuse_partial(file, limits)
    runs = [[report.quantities(job) for job in group] for group in jobs]
    names = [*report.UNITS, *report.functions_by_time([run for group in runs for run in group])]
    _check_names(limits, names)
    units = {name: report.UNITS.get(name, "s") for name in names}
    first, *others = (report.columns(group, names) for group in runs)
    found = dict(zip(list(groups)[1:], compare_all(first, others, units), strict=True))
    for rows in found.values():
        _check_measured(limits, rows)
    grown = [
        (name, row)
        for name, rows in found.items()
        for row in rows
        if row.name in limits and row.is_above(limits[row.name])
    ]
    if args.json:
        regressions = [(name, row.name) for name, row in grown]
        print(json.dumps(report.as_json(groups, found, regressions), indent=2, allow_nan=False))
    else:
        report.show(found, next(iter(groups)))
    for name, row in grown:
        where = f" in {name}" if len(found) > 1 else ""
        messages.trouble(f"regression: {row.name}{where} is {_growth(row)}")
    return 1 if grown else 0


def _refuse_partial(file: str, limits: dict[str, float]) -> None:
    """What a job did until it was killed takes less time than all of it."""
    text = f"{file} is partial: the job did not come to its end"
    if limits:
        raise DataError(f"{text}, so it cannot show a regression; leave it out")
    messages.note(f"{text}, so its times and amounts are too small")


def _growth(row: Comparison) -> str:
    return "above 0, where it was" if row.ratio is None else f"{row.ratio:.3f} times what it was"


def _groups(args: argparse.Namespace) -> dict[str, Sequence[str]]:
    """Name and files of each kind of runs, that before first."""
    if args.group:
        return _named_groups(args)
    if args.against:
        if not args.files:
            raise UsageError("no runs before --against: give those that the others are compared with, first")
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
    from mpicoloc.core.tables import printable

    if args.files or args.against:
        raise UsageError("--group names all runs: no other profiles beside it")
    found: dict[str, Sequence[str]] = {}
    for name, *files in args.group:
        if not files:
            raise UsageError(f"--group {name!r} has no profile: a name first, then the profiles of its runs")
        if printable(name) in found:
            raise UsageError(f"--group {name!r} is given twice")
        found[printable(name)] = files
    if len(found) < 2:
        raise UsageError(
            f"one group {name!r} only: give the one that others are compared with, then the others"
        )
    return found


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
        messages.note(f"no run calls {name}{hint}")


def _check_measured(limits: dict[str, float], found: Sequence[Comparison]) -> None:
    for row in found:
        if row.name in limits and (row.before is None or row.after is None):
            which = "before" if row.before is None else "after"
            raise DataError(
                f"--regression {row.name}: no run {which} has measured it; ask for another quantity"
            )


def _warn_of_differences(jobs: Sequence[Frames]) -> None:
    """Runs of different programs or sizes can be compared, but rarely are on purpose."""
    from mpicoloc.core.tables import printable
    from mpicoloc.slowdown.features import program_name

    programs = dict.fromkeys(program_name(job.profile.job.command) for job in jobs)
    if len(programs) > 1:
        messages.note(f"runs of different programs: {', '.join(map(printable, programs))}")
    sizes = sorted({job.profile.job.n_ranks for job in jobs})
    if len(sizes) > 1:
        messages.note(f"runs of different sizes: {', '.join(map(str, sizes))} ranks")


def _title(files: Sequence[str]) -> str:
    from mpicoloc.core.tables import printable

    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return printable(files[0]) + more
