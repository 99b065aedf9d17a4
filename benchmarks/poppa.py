"""The experiment of Breslow et al. 2013, section 8: all ordered pairs of eight programs.

    python benchmarks/poppa.py
    python benchmarks/poppa.py --publish

Truth and estimates are those of `accuracy.py`, layout shared, with co-runners of lower priority: that slows
programs by 1.1 to 1.7 on any machine. A program is also beside itself. Then shutters of other lengths, for
four targets beside a co-runner (Figures 6 and 7). About 1.7 h; what stands in `--out` is not measured
again. ``--publish`` writes results/poppa.json and its pictures: errors (Figure 10), slowdowns (Figure 11) and
prices (Figure 12). `shutters.py` measures what shutters cost (Figures 4, 5, 8, 9).
"""

import itertools
import math
import statistics
import sys

import accuracy
import tables
import toggled_tables
from matplotlib.figure import Figure

PROGRAMS = ("lmp", "hpcc_FFT", "heat2d", "hpcc_STREAM", "random24", "lmp_eam", "nbody", "write64")
NICE = {name: 10 - 5 * (i % 2) for i, name in enumerate(PROGRAMS)}
"""Of the program as a co-runner."""
LENGTHS_MS = (0.8, 3.2, 12.8, 25.6)
OF_LENGTHS = [(target, "hpcc_FFT") for target in ("lmp", "hpcc_FFT", "heat2d", "random24")]
PICTURES = tables.HERE.parent / "docs" / "pictures"
TEXT = """\
Pairs of programs, two ranks each, time-sliced on two processors, for {seconds:.0f} s; truth and *result* as
above. Co-runners have a lower weight (`nice` 5 for `hpcc_*`, `lmp_eam`, `write64`, else 10). Rows are
targets, columns co-runners. The picture has slowdowns, errors, and prices over that of the run alone (Breslow
et al. 2013, Figures 11, 10 and 12)."""


def runs():
    """Length of shutters and pair of each run; pairs of the first programs come first."""
    pairs = [(target, co_runner) for target in PROGRAMS for co_runner in PROGRAMS]
    for pair in sorted(pairs, key=lambda pair: max(map(PROGRAMS.index, pair))):
        yield None, pair
    yield from itertools.product(LENGTHS_MS, OF_LENGTHS)


def measure(args):
    missing = {}
    for length_ms, (target, co_runner) in runs():
        args.shutter_ms, args.nice, args.pairs = length_ms, NICE[co_runner], f"{target}+{co_runner}"
        missing |= accuracy.measure_all(args)
    return missing


def of_all_pairs(lines):
    return [line for line in lines if not line["layout"].endswith("ms")]


def measured(lines):
    """The programs that were measured as targets."""
    return [name for name in PROGRAMS if name in {line["target"] for line in lines}]


def matrix(lines, number):
    """A row of numbers for each target, with the mean behind it; None: not measured."""
    by_pair = {(line["target"], line["co_runner"]): number(line) for line in lines}
    names = measured(lines)
    found = [[by_pair.get((target, co_runner)) for co_runner in names] for target in names]
    return [[*row, _mean([abs(one) for one in row if one is not None])] for row in found]


def _mean(values):
    return statistics.mean(values) if values else None


def error(line, name="result"):
    """In %, None without an estimate."""
    value = line["estimates"].get(name, {}).get("value")
    return None if value is None else 100 * (value / line["truth"]["value"] - 1)


def filtered_error(line):
    return None if line["filtered"] is None else 100 * (line["filtered"] / line["truth"]["value"] - 1)


def price_rows(lines):
    """Least, mean and largest price, and part of the jobs above that of the run alone, by rule."""
    columns = zip(*(row[3:] for row in toggled_tables.prices(lines)), strict=True)
    for name, found in [] if not lines else zip(("time", "mpicoloc", "oracle"), columns, strict=True):
        above = 100 * sum(one > 1 for one in found) / len(found)
        yield [name, min(found), statistics.mean(found), max(found), above]


def length_rows(lines):
    """Mean absolute error by the length of shutters, without and with the filter, and the overhead."""
    for length_ms in (None, *LENGTHS_MS):
        end = "" if length_ms is None else f"-{length_ms:g}ms"
        own = [line for line in lines if line["layout"] == f"shared-nice{NICE[line['co_runner']]}{end}"]
        own = [line for line in own if (line["target"], line["co_runner"]) in OF_LENGTHS]
        own = [line for line in own if None not in (error(line), filtered_error(line))]
        errors = [[abs(of(line)) for line in own] for of in (error, filtered_error)]
        costs = [100 * line["overhead_frac"] for line in own if line["overhead_frac"] is not None]
        length = "adapted" if length_ms is None else f"{length_ms:g}"
        if own:
            yield [length, len(own), *map(_mean, [*errors, costs])]


def matrices(lines):
    """Slowdowns and errors by pair."""
    whole = of_all_pairs(lines)
    names = measured(whole)
    by_pair = ["target", *names, "mean"]
    slowdowns = {"caption": "True slowdown", "columns": by_pair,
                 "formats": [None, *["{:.2f}"] * (len(names) + 1)],
                 "rows": _named(names, matrix(whole, lambda line: line["truth"]["value"]))}  # fmt: skip
    errors = {"caption": "Error of the result, %", "columns": by_pair,
              "formats": [None, *["{:+.1f}"] * len(names), "{:.1f}"],
              "rows": _named(names, matrix(whole, error))}  # fmt: skip
    return [slowdowns, errors]


def sums(lines):
    """Errors, prices, and errors by the length of shutters."""
    whole = of_all_pairs(lines)
    of_pairs = toggled_tables.summary([{**line, "layout": "shared"} for line in whole])
    shown = {"rows": toggled_tables.of_results(of_pairs), "columns": toggled_tables.SUMMARY_SHOWN}
    summary = {"caption": "", "columns": toggled_tables.SUMMARY, "formats": toggled_tables.SUMMARY_FORMATS,
               "rows": of_pairs, "shown": shown}  # fmt: skip
    prices = {"caption": "Prices over that of the run alone",
              "columns": ["price by", "least", "mean", "largest", "jobs above 1"],
              "formats": [None, *["{:.3f}"] * 3, "{:.0f} %"], "rows": list(price_rows(whole))}  # fmt: skip
    lengths = {"caption": "Length of shutters",
               "columns": ["ms", "pairs", "mean absolute error", "filtered", "overhead"],
               "formats": [None, "{}", "{:.1f} %", "{:.1f} %", "{:.2f} %"],
               "rows": list(length_rows(lines))}  # fmt: skip
    return [summary, prices, *([lengths] if len(lengths["rows"]) > 1 else [])]


def _named(names, rows):
    return [[name, *row] for name, row in zip(names, rows, strict=True)]


def draw(lines):
    """Two matrices and the distribution of prices."""
    whole = of_all_pairs(lines)
    names = measured(whole)
    picture = Figure(figsize=(14, 4.6), layout="constrained")
    slowdowns, errors, prices = picture.subplots(1, 3)
    lost = matrix(whole, lambda line: 100 * (line["truth"]["value"] - 1))
    _heat(slowdowns, names, lost, "slowdown, % (Figure 11)", "OrRd", (0, 80))
    _heat(errors, names, matrix(whole, error), "error of the result, % (Figure 10)", "coolwarm", (-15, 15))
    rows = list(toggled_tables.prices(whole))
    found = [[[row[i] for row in rows if row[1] == name] for name in names] for i in (3, 4, 5)]
    for shift, (of_rule, label) in enumerate(zip(found, ("by time", "mpicoloc", "oracle"), strict=True)):
        places = [i + 0.25 * (shift - 1) for i in range(len(names))]
        x = [place for place, values in zip(places, of_rule, strict=True) for _ in values]
        prices.plot(x, list(itertools.chain(*of_rule)), "o", markersize=3, label=label)
    prices.axhline(1, color="0.5", linewidth=0.8)
    prices.set_xticks(range(len(names)), names, rotation=45, ha="right")
    prices.set_title("price over that of the run alone (Figure 12)")
    prices.legend()
    picture.savefig(PICTURES / "poppa.png", dpi=80)


def _heat(axes, names, rows, title, colours, limits):
    cells = [[float("nan") if one is None else one for one in row[:-1]] for row in rows]
    axes.imshow(cells, cmap=colours, vmin=limits[0], vmax=limits[1])
    for i, row in enumerate(cells):
        for j, one in enumerate(row):
            axes.text(j, i, "" if math.isnan(one) else f"{one:.0f}", ha="center", va="center", fontsize=7)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("co-runner")
    axes.set_title(title)


def publish(lines, seconds):
    machines, dates = ({line[key] for line in lines} for key in ("machine", "date"))
    names = ("layout", "target", "co_runner", "truth", "estimates", "filtered", "overhead_frac", "n_taken")
    data = [{name: line[name] for name in names} for line in lines]
    text = [TEXT.replace("\n", " ").format(seconds=seconds),
            "![Slowdowns, errors and prices by pair](../pictures/poppa.png)"]  # fmt: skip
    draw(lines)
    result = {"title": "POPPA's experiment", "machine": "; ".join(sorted(machines)), "date": max(dates),
              "command": "python benchmarks/poppa.py", "text": text, "tables": sums(lines), "short": [],
              "data": data}  # fmt: skip
    tables.publish("poppa", toggled_tables.rounded(result))


def main(argv=None):
    given = sys.argv[1:] if argv is None else argv
    defaults = ["--layout", "shared", "--out", "poppa.jsonl", "--seconds", "60"]
    args = accuracy.arguments([*defaults, *given], __doc__)
    missing = {} if args.publish or args.again else measure(args)
    lines = accuracy.read(args)
    print(
        "\n\n".join(map(tables.markdown, [*sums(lines), *matrices(lines)])) if lines else "nothing measured"
    )
    if args.publish:
        publish(lines, args.seconds)
    for pair, reason in missing.items():
        print(f"missing: {pair}: {reason}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
