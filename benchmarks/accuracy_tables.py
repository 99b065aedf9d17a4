"""Tables of what `accuracy.py` measured: truth, estimate, error, overhead and prices, pair by pair.

python benchmarks/accuracy_tables.py accuracy.jsonl
"""

import argparse
import itertools
import json
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ("target", "co-runner", "true", "true i.", "long", "runs", "estimate", "95 % interval", "error",
           "error i.", "error l.", "inside", "method", "used/taken", "paused", "T with/bare")  # fmt: skip
PRICES = ("target", "co-runner", "by time", "fair, measured", "fair, true")
WIDE = 2.0
"""An interval whose ends differ by more than this factor says too little to count as holding the truth."""


@dataclass(frozen=True)
class Cell:
    """What was seen of one target with one co-runner; times in s, MPI_Init to MPI_Finalize.

    A number is None where no run has it.
    """

    target: str
    co_runner: str
    solo_s: float
    bare_s: list
    profiles: list
    references: list = ()

    @property
    def runs(self):
        """Profile, and the run's own T_co / T_solo, of the instrumented runs that have a profile."""
        return [(data, data["job"]["wall_s"] / self.solo_s) for data in self.profiles if data]

    @property
    def true(self):
        """Of the runs without shutters."""
        return statistics.median(self.bare_s) / self.solo_s if self.bare_s else None

    @property
    def own(self):
        """Of the instrumented runs."""
        return median(own for _, own in self.runs)

    @property
    def long(self):
        """Of the runs with long shutters."""
        found = [data["interference"].get("corun") for data in self.references if data]
        return median(slowdown["value"] for slowdown in found if slowdown and slowdown["value"])

    @property
    def estimates(self):
        """Slowdown, and the run's own T_co / T_solo, of the runs that have an estimate."""
        found = [(data["interference"]["slowdown"], own) for data, own in self.runs]
        return [(slowdown, own) for slowdown, own in found if slowdown]

    @property
    def value(self):
        return median(slowdown["value"] for slowdown, _ in self.estimates)

    @property
    def error(self):
        """Of the median estimate, over the slowdown without shutters."""
        return self.value / self.true - 1 if self.estimates and self.bare_s else None

    @property
    def own_error(self):
        """Median over the instrumented runs, each over what it suffered itself."""
        return median(slowdown["value"] / own - 1 for slowdown, own in self.estimates)

    @property
    def long_error(self):
        """Of the median estimate, over the slowdown that long shutters find."""
        return self.value / self.long - 1 if self.estimates and self.long else None

    def inside(self, i_truth):
        """How many intervals hold the truth: without shutters, of the run itself, of long shutters."""
        truths = [((self.true, own, self.long)[i_truth], slowdown) for slowdown, own in self.estimates]
        return sum(slowdown["low"] <= truth <= slowdown["high"] and width(slowdown) <= WIDE
                   for truth, slowdown in truths if truth)  # fmt: skip

    @property
    def paused(self):
        """Part of its time that the job stood still, or was held up by counting; median over the runs."""
        found = [data["interference"]["shutters"]["overhead_frac"] for data, _ in self.runs]
        return median(value for value in found if value is not None)

    @property
    def ratio(self):
        """T_co with shutters over without."""
        return self.own / self.true if self.runs and self.bare_s else None

    @property
    def prices(self):
        """By time, fair as measured, and fair by the truth, of the same runs, over the price alone.

        Figure 12 of Breslow et al. 2013: state of practice, POPPA and oracle. A run without an estimate is
        priced like one that shared nothing.
        """
        fair = [own * data["price"]["fair_su"] / data["price"]["runtime_su"] for data, own in self.runs]
        return self.own, median(fair), median(own / max(own, 1.0) ** 2 for _, own in self.runs)


def median(values):
    """None of none."""
    values = list(values)
    return statistics.median(values) if values else None


def width(slowdown):
    """Upper over lower end of an interval."""
    return slowdown["high"] / slowdown["low"] if slowdown["low"] > 0 else math.inf


def read(path):
    """Lines of the file; none if there is no file yet."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except ValueError as error:
        raise SystemExit(f"{path}: a line that is no JSON: {error}") from None


def refuse_mixed(lines, path):
    """End with one line of text unless all lines are of one experiment.

    Raises
    ------
    SystemExit
        If the file has no line of the kind "setup", or several that differ, or two sizes of one program.
    """
    setups = [line for line in lines if line["kind"] == "setup"]
    if lines and (not setups or lines[0] != setups[0]):
        raise SystemExit(f"{path}: does not begin with its setup: of another version, take another file")
    for other in setups[1:]:
        keys = sorted(key for key in setups[0] | other if setups[0].get(key) != other.get(key))
        if keys:
            text = ", ".join(f"{key} {setups[0].get(key)!r} and {other.get(key)!r}" for key in keys)
            raise SystemExit(f"{path}: two experiments do not go into one file: {text}")
    sizes = {}
    for line in lines:
        name = line.get("target") or line.get("name")
        if name and sizes.setdefault(name, line["size"]) != line["size"]:
            raise SystemExit(f"{path}: {name} has sizes {sizes[name]} and {line['size']}")


def cells(lines):
    """One cell for every ordered pair; a program's solo time is the median of all its runs alone."""
    solo, found = {}, {}
    for line in lines:
        if line["kind"] == "solo":
            solo.setdefault(line["target"], []).append(line["wall_s"])
        elif line["kind"] in ("bare", "with", "long"):
            found.setdefault((line["target"], line["co_runner"]), []).append(line)
    for (target, co_runner), runs in sorted(found.items()):
        if target not in solo:
            raise SystemExit(f"no run of {target} alone in the file")
        bare_s = [run["wall_s"] for run in runs if run["kind"] == "bare"]
        profiles = [run["profile"] for run in runs if run["kind"] == "with"]
        references = [run["profile"] for run in runs if run["kind"] == "long"]
        yield Cell(target, co_runner, statistics.median(solo[target]), bare_s, profiles, references)


def percent(value):
    return "-" if value is None else f"{100 * value:+.1f} %"


def text(value, form=".3f"):
    return "-" if value is None else format(value, form)


def row(cell):
    """A cell as a line of the table; the interval is that of the run with the median estimate."""
    reasons = [data["interference"].get("reason") or "-" for data, _ in cell.runs] or ["no profile"]
    shutters = [data["interference"]["shutters"] for data, _ in cell.runs]
    counts = "/".join(str(sum(shutter[key] for shutter in shutters)) for key in ("n_used", "n_taken"))
    tail = (counts, text(cell.paused, ".2%"), text(cell.ratio))
    runs = f"{len(cell.estimates)}/{len(cell.profiles)}"
    head = (cell.target, cell.co_runner, text(cell.true), text(cell.own), text(cell.long), runs)
    if not cell.estimates:
        return (*head, "null", "-", "-", "-", "-", "-", reasons[0], *tail)
    middle = min((slowdown for slowdown, _ in cell.estimates), key=lambda s: abs(s["value"] - cell.value))
    methods = "+".join(sorted({slowdown["method"] for slowdown, _ in cell.estimates}))
    interval = f"{middle['low']:.3f}..{middle['high']:.3f}"
    inside = (cell.inside(0) if cell.bare_s else "-", cell.inside(1), cell.inside(2) if cell.long else "-")
    inside = ", ".join(map(str, inside))
    errors = (percent(cell.error), percent(cell.own_error), percent(cell.long_error))
    return (*head, f"{cell.value:.3f}", interval, *errors, inside, methods, *tail)


def price_row(cell):
    """Prices over that of the undisturbed run, as in Figure 12 of Breslow et al. 2013."""
    return (cell.target, cell.co_runner, *map(text, cell.prices))


def figure(found, value, mean):
    """Columns and lines of a matrix of targets (columns) and co-runners, with means, as Figures 10 and 11."""
    names = sorted({name for cell in found for name in (cell.target, cell.co_runner)})
    values = {(cell.co_runner, cell.target): value(cell) for cell in found}

    def over(keys):
        known = [values[key] for key in keys if values.get(key) is not None]
        return percent(mean(known)) if known else "-"

    lines = [(row, *(percent(values.get((row, name))) for name in names), over((row, name) for name in names))
             for row in names]  # fmt: skip
    lines.append(("mean", *(over((row, name) for row in names) for name in names), over(values)))
    return ("co-runner", *names, "mean"), lines


def mean_size(values):
    return statistics.fmean(map(abs, values))


def summary(found):
    """Lines of text: errors, coverage and overhead over all pairs."""
    slowdowns = [slowdown for cell in found for slowdown, _ in cell.estimates]
    n_runs = sum(len(cell.profiles) for cell in found)
    yield f"{len(found)} ordered pairs, {n_runs} instrumented runs, {len(slowdowns)} with an estimate"
    if not slowdowns:
        return
    widths = [width(slowdown) for slowdown in slowdowns]
    n_wide = sum(one > WIDE for one in widths)
    yield (
        f"intervals: upper over lower end {statistics.median(widths):.2f} (median); {n_wide} of "
        f"{len(widths)} wider than a factor of {WIDE:g}, which do not count as holding the truth"
    )
    truths = (
        ("error", "the runs without shutters"),
        ("own_error", "the same run"),
        ("long_error", "long shutters"),
    )
    for i_truth, (name, truth) in enumerate(truths):
        known = [cell for cell in found if getattr(cell, name) is not None]
        if not known:
            continue
        errors = [abs(getattr(cell, name)) for cell in known]
        inside, n = sum(cell.inside(i_truth) for cell in known), sum(len(cell.estimates) for cell in known)
        yield (
            f"against {truth}: mean absolute error {100 * statistics.fmean(errors):.1f} %, "
            f"worst {100 * max(errors):.1f} %, {sum(error > 0.1 for error in errors)} pairs above 10 %, "
            f"{inside} of {n} intervals hold the truth"
        )
    paused = [cell.paused for cell in found if cell.paused is not None]
    if paused:
        mean, most = 100 * statistics.fmean(paused), 100 * max(paused)
        yield f"paused or held up: mean {mean:.2f} %, most {most:.2f} %"
    ratios = [cell.ratio for cell in found if cell.ratio is not None]
    if ratios:
        yield f"T_co with shutters over without: median {statistics.median(ratios):.3f}"


def noise(lines):
    """How much each program's runs alone differ."""
    solo = [line for line in lines if line["kind"] == "solo"]
    for name, runs in itertools.groupby(sorted(solo, key=lambda r: r["target"]), key=lambda r: r["target"]):
        runs = list(runs)
        times_s = sorted(run["wall_s"] for run in runs)
        middle = statistics.median(times_s)
        spread = f"{percent(times_s[0] / middle - 1)} to {percent(times_s[-1] / middle - 1)}"
        command_s = statistics.median(run["command_s"] for run in runs)
        yield name, runs[0]["size"], len(times_s), f"{middle:.2f}", spread, f"{command_s:.2f}"


def others(lines):
    """What else ran on the machine, as a line of text."""
    used = [line["others_cores"] for line in lines if "others_cores" in line]
    return (
        f"processors that others used: median {statistics.median(used):.2f}, most {max(used):.2f}"
        if used
        else ""
    )


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
    path = parser.parse_args(argv).file
    lines = read(path)
    refuse_mixed(lines, path)
    found = list(cells(lines))
    if not found:
        print("no runs in the file", file=sys.stderr)
        return 1
    print(", ".join(f"{key}: {value}" for key, value in lines[0].items() if key != "kind"), end="\n\n")
    print_table(("program", "size", "runs alone", "median, s", "least to most", "command, s"), noise(lines))
    print_table(COLUMNS, map(row, found))
    over, error = (
        ("long shutters", "long_error") if any(cell.long for cell in found) else ("T_solo", "own_error")
    )
    print(f"Figure 10, error of the estimate over {over}; the means are of its absolute value", end="\n\n")
    print_table(*figure(found, lambda cell: getattr(cell, error), mean_size))
    print("Figure 11, slowdown of the same runs", end="\n\n")
    print_table(*figure(found, lambda cell: cell.own and cell.own - 1, statistics.fmean))
    print("Figure 12, prices of the same runs over that of the run alone", end="\n\n")
    print_table(PRICES, map(price_row, found))
    print(*summary(found), others(lines), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
