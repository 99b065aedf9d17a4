"""Tables of what `accuracy.py` measured: truth, estimate, error, overhead and prices, pair by pair.

python benchmarks/accuracy_tables.py accuracy.jsonl
"""

import argparse
import itertools
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ("target", "co-runner", "true", "runs", "estimate", "95 % interval", "error", "error i.", "inside",
           "method", "used/taken", "paused", "T with/bare")  # fmt: skip
PRICES = ("target", "co-runner", "by time", "fair, measured", "fair, true")


@dataclass(frozen=True)
class Cell:
    """What was seen of one target with one co-runner; times in s."""

    target: str
    co_runner: str
    solo_s: float
    bare_s: list
    with_s: list
    profiles: list

    @property
    def true(self):
        return statistics.median(self.bare_s) / self.solo_s

    @property
    def estimates(self):
        """Slowdown, and the instrumented run's own T_co / T_solo, of the runs that have an estimate."""
        pairs = zip(self.profiles, self.with_s, strict=True)
        found = [(data and data["interference"]["slowdown"], time_s / self.solo_s) for data, time_s in pairs]
        return [(slowdown, own) for slowdown, own in found if slowdown]

    @property
    def value(self):
        return statistics.median(slowdown["value"] for slowdown, _ in self.estimates)

    @property
    def error(self):
        """Of the median estimate, over the true slowdown."""
        return self.value / self.true - 1

    @property
    def own_error(self):
        """Median over the instrumented runs, each over what it suffered itself."""
        return statistics.median(slowdown["value"] / own for slowdown, own in self.estimates) - 1

    def inside(self, i_truth):
        """How many intervals hold the truth: 0, of the runs without mpicoloc, 1, of the run itself."""
        return sum(slowdown["low"] <= (self.true, own)[i_truth] <= slowdown["high"]
                   for slowdown, own in self.estimates)  # fmt: skip

    @property
    def paused(self):
        """Part of its time that the job stood still, or was held up by counting; median over the runs."""
        found = [data["interference"]["shutters"]["overhead_frac"] for data in self.profiles if data]
        return statistics.median(value for value in found if value is not None)

    @property
    def fair(self):
        """Measured fair price over the price of the undisturbed run; median over the runs."""
        found = []
        for data, time_s in zip(self.profiles, self.with_s, strict=True):
            if data:
                price, own = data["price"], time_s / self.solo_s
                found.append(price["fair_su"] / price["runtime_su"] * own)
        return statistics.median(found)


def read(path):
    """Lines of the file; none if there is no file yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def cells(lines):
    """One cell for every ordered pair; a program's solo time is the median of all its runs alone."""
    solo, found = {}, {}
    for line in lines:
        if line["kind"] == "solo":
            solo.setdefault(line["target"], []).append(line["time_s"])
        else:
            found.setdefault((line["target"], line["co_runner"]), []).append(line)
    for (target, co_runner), runs in sorted(found.items()):
        bare, instrumented = ([run for run in runs if run["kind"] == kind] for kind in ("bare", "with"))
        bare_s, with_s = ([run["time_s"] for run in some] for some in (bare, instrumented))
        profiles = [run["profile"] for run in instrumented]
        yield Cell(target, co_runner, statistics.median(solo[target]), bare_s, with_s, profiles)


def percent(value):
    return f"{100 * value:+.1f} %"


def row(cell):
    """A cell as a line of the table; the interval is that of the run with the median estimate."""
    ends = (min(cell.bare_s) / cell.solo_s, max(cell.bare_s) / cell.solo_s)
    truth = f"{cell.true:.3f} ({ends[0]:.2f}..{ends[1]:.2f})"
    reasons = [data["interference"].get("reason") or "" for data in cell.profiles if data]
    shutters = [data["interference"]["shutters"] for data in cell.profiles if data]
    counts = "/".join(str(sum(shutter[key] for shutter in shutters)) for key in ("n_used", "n_taken"))
    ratio = statistics.median(cell.with_s) / statistics.median(cell.bare_s)
    tail = (counts, f"{100 * cell.paused:.2f} %", f"{ratio:.3f}")
    head = (cell.target, cell.co_runner, truth, f"{len(cell.estimates)}/{len(cell.profiles)}")
    if not cell.estimates:
        return (*head, "null", "-", "-", "-", "-", reasons[0] or "-", *tail)
    middle = min((slowdown for slowdown, _ in cell.estimates), key=lambda s: abs(s["value"] - cell.value))
    methods = "+".join(sorted({slowdown["method"] for slowdown, _ in cell.estimates}))
    interval = f"{middle['low']:.3f}..{middle['high']:.3f}"
    inside = f"{cell.inside(0)}, {cell.inside(1)}"
    errors = (percent(cell.error), percent(cell.own_error))
    return (*head, f"{cell.value:.3f}", interval, *errors, inside, methods, *tail)


def price_row(cell):
    """Prices over that of the undisturbed run, as in Figure 12 of Breslow et al. 2013."""
    return (cell.target, cell.co_runner, f"{cell.true:.3f}", f"{cell.fair:.3f}", f"{1 / cell.true:.3f}")


def summary(found):
    """Lines of text: errors, coverage and overhead over all pairs."""
    known = [cell for cell in found if cell.estimates]
    n_runs = sum(len(cell.profiles) for cell in found)
    n_estimates = sum(len(cell.estimates) for cell in known)
    yield f"{len(found)} ordered pairs, {n_runs} instrumented runs, {n_estimates} with an estimate"
    if not known:
        return
    truths = (("error", "the runs without mpicoloc"), ("own_error", "the same run"))
    for i_truth, (name, truth) in enumerate(truths):
        errors = [abs(getattr(cell, name)) for cell in known]
        inside = sum(cell.inside(i_truth) for cell in known)
        n_above = sum(error > 0.1 for error in errors)
        yield (
            f"against {truth}: mean absolute error {100 * statistics.fmean(errors):.1f} %, "
            f"worst {100 * max(errors):.1f} %, {n_above} pairs above 10 %, "
            f"{inside} of {n_estimates} intervals hold the truth"
        )
    paused = [cell.paused for cell in found]
    ratios = [statistics.median(cell.with_s) / statistics.median(cell.bare_s) for cell in found]
    yield (f"paused or held up: mean {100 * statistics.fmean(paused):.2f} %, most {100 * max(paused):.2f} %; "
           f"T_co with mpicoloc over without: median {statistics.median(ratios):.3f}")  # fmt: skip


def noise(lines):
    """How much each program's runs alone differ."""
    solo = [line for line in lines if line["kind"] == "solo"]
    for name, runs in itertools.groupby(sorted(solo, key=lambda r: r["target"]), key=lambda r: r["target"]):
        times_s = sorted(run["time_s"] for run in runs)
        middle = statistics.median(times_s)
        spread = f"{percent(times_s[0] / middle - 1)} to {percent(times_s[-1] / middle - 1)}"
        yield name, len(times_s), f"{middle:.2f}", spread


def print_table(columns, lines):
    """A table that is also valid Markdown."""
    lines = [tuple(map(str, line)) for line in lines]
    widths = [max(len(line[i]) for line in [columns, *lines]) for i in range(len(columns))]
    for line in [columns, tuple("-" * width for width in widths), *lines]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")
    print()


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what accuracy.py wrote")
    lines = read(parser.parse_args(argv).file)
    found = list(cells(lines))
    if not found:
        print("no runs in the file", file=sys.stderr)
        return 1
    print_table(("program", "runs alone", "median, s", "least to most"), noise(lines))
    print_table(COLUMNS, map(row, found))
    print_table(PRICES, map(price_row, found))
    print(*summary(found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
