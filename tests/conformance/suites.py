"""Runs the test suites of MPICH and of mpi4py bare and with the shim, and compares.

  python tests/conformance/suites.py mpich --mpi openmpi --dirs pt2pt,coll
  python tests/conformance/suites.py mpi4py --mpi wheel --ranks 1,2,3

Exit code 0: no difference; 1: the shim made one; 4: a suite or an MPI is not to be had here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import suite_fetch
import suite_mpi4py
import suite_mpich
import suite_shims
import suite_short
from suite_jobs import Comparison

LIMIT_S = 60.0


@dataclass
class Row:
    """One line of the table: a folder of MPICH's suite, or mpi4py's on a number of ranks."""

    suite: str
    mpi: str
    mode: str
    part: str
    comparisons: list[Comparison] = field(default_factory=list)
    n_left_out: int = 0
    n_seen: int = 0

    def names(self, *kinds: str) -> list[str]:
        """Tests whose comparison came out as one of `kinds`."""
        return [made.name for made in self.comparisons if made.kind in kinds]

    def as_line(self) -> str:
        """The line as markdown."""
        bare = sum(made.bare[0].passed for made in self.comparisons)
        shim = sum(made.shim[0].passed for made in self.comparisons)
        kinds = Counter(made.kind for made in self.comparisons)
        other = self.names("differs", "once")
        numbers = [len(self.comparisons), bare, shim, kinds["identical"], kinds["noisy"]]
        cells = [self.mpi, self.mode, self.part, *map(str, numbers), ", ".join(other) or "-"]
        return f"| {' | '.join(cells)} |"

    def as_dict(self) -> dict[str, object]:
        """For the JSON file."""
        return {
            **{key: getattr(self, key) for key in ("suite", "mpi", "mode", "part", "n_left_out", "n_seen")},
            "tests": [made.as_dict() for made in self.comparisons],
        }


HEAD = (
    "| MPI | mode | part | tests | pass bare | pass with shim | identical | vary bare | differ |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def run_mpich(args: argparse.Namespace, launch: suite_shims.Launch) -> list[Row]:
    """Rows of the folders asked for, one after the other."""
    short = args.part == "short"
    folders = args.dirs or list(suite_short.SHORT if short else suite_mpich.DIRS)
    fortran = bool(suite_mpich.LANGUAGE_DIRS.intersection(folders))
    kind = suite_short.ShortSuite if short else suite_mpich.Suite
    suite = kind(args.mpi, args.cache, fortran, say)
    suite.configure()
    rows: list[Row] = []
    for folder in folders:
        row = Row("mpich", args.mpi, mode_name(args), folder)
        rows.append(row)
        tests = [test for test in suite.tests(folder) if test.is_in(args.part)]
        tests = [test for test in tests if any(word in test.name for word in args.only)]
        tests = [test for test in tests if test.n_ranks <= (args.max_ranks or test.n_ranks)]
        tests = [replace(test, n_ranks=min(test.n_ranks, args.at_most or test.n_ranks)) for test in tests]
        for inner in dict.fromkeys(test.folder for test in tests):
            wanted = {test.program for test in tests if test.folder == inner}
            # spawn's tests start programs that no list names
            everything = "spawn" in inner and not short
            suite.make(inner, None if everything else sorted(wanted))
        for test in tests:
            if not (suite.build / test.folder / test.program).exists():
                row.n_left_out += 1
                continue
            made, n_seen = suite_mpich.run_test(suite, launch, test, args.limit)
            _note(row, made, n_seen)
            write_json(args.json, rows)
        print_row(row, first=len(rows) == 1)
    return rows


def run_mpi4py(args: argparse.Namespace, launch: suite_shims.Launch) -> list[Row]:
    """Rows of the numbers of ranks asked for."""
    suite = suite_mpi4py.Suite(args.mpi, args.cache, launch, args.limit)
    rows = []
    for n_ranks in args.ranks:
        row = Row("mpi4py", args.mpi, mode_name(args), f"{n_ranks} ranks")
        rows.append(row)
        for module in suite.modules(args.part, args.only):
            made, n_seen = suite.run(module, n_ranks)
            for comparison in made:
                _note(row, comparison, n_seen)
            write_json(args.json, rows)
        print_row(row, first=len(rows) == 1)
    return rows


def mode_name(args: argparse.Namespace) -> str:
    """Name of the launch mode in the table."""
    if not args.product:
        return f"{args.mode}, bare shim"
    return "mpicoloc run" if args.mode == "swap" else "preload"


def _note(row: Row, made: Comparison, n_seen: int) -> None:
    row.comparisons.append(made)
    row.n_seen += n_seen > 0
    if made.kind != "identical":
        runs = [
            [f"{run.status}{'+' if run.passed else '-'}" for run in side] for side in (made.bare, made.shim)
        ]
        say(f"{made.kind}: {made.name}: bare {runs[0]}, shim {runs[1]}")


def print_row(row: Row, first: bool) -> None:
    """The table grows as folders are done."""
    if first:
        print(HEAD)
    print(row.as_line(), flush=True)
    if row.n_left_out:
        say(f"{row.part}: {row.n_left_out} tests left out that {row.mpi} cannot compile")
    say(f"{row.part}: the shim was seen in {row.n_seen} of {len(row.comparisons)} tests")


def write_json(path: Path | None, rows: Sequence[Row]) -> None:
    """All that was found so far."""
    if path:
        path.write_text(json.dumps([row.as_dict() for row in rows], indent=1))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suite", choices=("mpich", "mpi4py"))
    parser.add_argument("--mpi", choices=("openmpi", "mpich", "wheel"), default="openmpi")
    parser.add_argument("--part", choices=("short", "core", "all"), default="core")
    parser.add_argument("--dirs", type=_words, help="folders of MPICH's suite, by commas")
    parser.add_argument("--ranks", type=_numbers, default=[1, 2, 3])
    parser.add_argument("--max-ranks", type=int, help="leave out MPICH's tests on more ranks")
    parser.add_argument("--at-most", type=int, help="run MPICH's tests on no more ranks than these")
    parser.add_argument(
        "--only",
        type=_words,
        default=[""],
        help="only tests (mpi4py: modules) with one of these in their name",
    )
    parser.add_argument("--mode", choices=suite_shims.MODES, default="preload", help="swap: with coordinator")
    parser.add_argument(
        "--product", action="store_true", help="the installed library, with keeper and profile"
    )
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one job")
    parser.add_argument("--cache", type=Path, default=suite_fetch.default_cache())
    parser.add_argument("--json", type=Path, help="write all results there")
    return parser.parse_args(argv)


def _words(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def run(
    argv: Sequence[str] | None = None, family: suite_shims.shimlab.Family | None = None
) -> list[Row] | None:
    """The rows, printed as they come; None where the MPI is not installed. A given `family` is not built."""
    args = parse(argv)
    args.cache = args.cache.resolve()
    suite_shims.quiet_environment()
    launch = suite_shims.prepare(args.mpi, args.mode, args.product, args.cache, family)
    if launch is None:
        say(f"no {args.mpi} with C and Fortran compilers here")
        return None
    try:
        return (run_mpich if args.suite == "mpich" else run_mpi4py)(args, launch)
    finally:
        suite_shims.remove(launch)


def main() -> int:
    """Exit code."""
    try:
        rows = run()
    except suite_fetch.Unreachable as error:
        say(f"the suite cannot be fetched: {error}")
        return 4
    if rows is None:
        return 4
    return int(any(row.names("differs", "once") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
