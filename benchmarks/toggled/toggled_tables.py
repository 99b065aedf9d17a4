"""Tables of what `accuracy.py` measured: truth, estimate, error, pair by pair, and what they come to."""

import json
import math
import statistics

import tables

COLUMNS = ["layout", "target", "co-runner", "meter", "truth", "estimate", "error", "agrees", "half-width",
           "overhead", "method"]  # fmt: skip
FORMATS = [None, None, None, None, "{:.3f}", "{:.3f}", "{:+.1f} %", None, "{:.1f} %", "{:.2f} %", None]
SUMMARY = ["layout", "meter", "pairs", "with an estimate", "mean absolute error", "always 1",
           "always the mean", "bias", "correlation", "largest", "agrees", "mean half-width",
           "largest overhead", "half-width of the truth"]  # fmt: skip
SUMMARY_FORMATS = [None, None, "{}", "{}", *["{:.1f} %"] * 3, "{:+.1f} %", "{:.2f}", "{:.1f} %", "{:.0f} %",
                   "{:.1f} %", "{:.2f} %", "{:.1f} %"]  # fmt: skip
PRICES = ["layout", "target", "co-runner", "price by time", "fair, measured", "fair, true"]
NAME = "accuracy-toggled"
TEXT = ("""\
Target and co-runner run under mpicoloc for {seconds:.0f} s. The co-runner's ranks are stopped and continued
from outside at random, and run for two thirds of the time. *truth*: the target's steps (lines of output or
MPI calls) per second while they are stopped, divided by the same while they run, in adjacent periods without
shutters. *result*: the estimate of the meter that the profile reports; if it has none, that of another meter.
*agrees*: the truth lies in the estimate's interval, widened by the truth's own. *always 1*, *always the
mean*: the errors of guessing 1 or the mean truth; a row with a larger error tells nothing about its
pairs.""", """\
Layouts: *apart*, one rank each on its own processor; *threads*, one rank of two threads each, time-sliced
on the same two processors; *apart-6*, six ranks each for 60 s on 12 of 16 processors (`--ranks 6`);
*apart-7*, seven ranks each for 24 s on 16 processors (last-level cache of 300 MB, shared with other
machines); *apart-7-long*, likewise for 60 s. Programs like `write64` loop over that many megabytes a rank
(`benchmarks/calls/sets.c`).""")  # fmt: skip
SUMMARY_SHOWN = list(range(12))
"""The page has the ranges of the last two columns in its sentences."""
PAIR_SHOWN = [0, 1, 2, 4, 5, 6, 7]
LARGE_ERROR = 10.0
"""In %: pairs with a larger one are on the page."""
PAIR_CAPTION = f"Pairs whose *result* is missing, disagrees, or is more than {LARGE_ERROR:.0f} % off:"
COMMAND = "python benchmarks/accuracy.py --toggled --pairs TARGET+CO_RUNNER,... --layout LAYOUT"


def key(line):
    return line["layout"], line["target"], line["co_runner"], line["meter"]


def read(path):
    """Lines of the file, none if it is not there; the last one of a pair counts."""
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else []
    return list({key(line): line for line in lines}.values())


def half_width(found):
    """In % of the value."""
    return 50 * (found["high"] - found["low"]) / found["value"]


def told(line):
    """A line in words."""
    parts = [f"{name} {_interval(one) if 'value' in one else one['reason']}"
             for name, one in {"truth": line["truth"], **line["estimates"]}.items()]  # fmt: skip
    return f"{line['target']}+{line['co_runner']}, {line['layout']}: {'; '.join(parts)}"


def _interval(one):
    return f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"


def agrees(one, truth):
    """Whether the truth is in the interval, both with their errors."""
    halves = [math.log(each["high"] / each["low"]) / 2 for each in (one, truth)]
    return abs(math.log(one["value"] / truth["value"])) <= math.hypot(*halves)


def row(line, name, one):
    """Of one run and meter."""
    truth, overhead = line["truth"], line["overhead_frac"]
    head = [line["layout"], line["target"], line["co_runner"], name,
            [truth["value"], truth["low"], truth["high"]]]  # fmt: skip
    overhead = None if overhead is None else 100 * overhead
    if "value" not in one:
        return [*head, None, None, None, None, overhead, one["reason"]]
    return [*head, [one["value"], one["low"], one["high"]], 100 * (one["value"] / truth["value"] - 1),
            "yes" if agrees(one, truth) else "no", half_width(one), overhead, one["method"]]  # fmt: skip


def rows(lines):
    return [row(line, name, one) for line in lines for name, one in line["estimates"].items()]


def summary(lines):
    """A row for each layout and meter."""
    groups = {}
    for line, one in ((each, one) for each in lines for one in rows([each])):
        groups.setdefault((one[0], one[3]), []).append((one, half_width(line["truth"])))
    return [_summary(*key, *map(list, zip(*members, strict=True))) for key, members in groups.items()]


def _summary(layout, meter, members, truth_halves):
    known = [one for one in members if one[5] is not None]
    overheads = [one[9] for one in members if one[9] is not None]
    marks = [None] * 8
    if known:
        truths, found = ([one[i][0] for one in known] for i in (4, 5))
        agreeing = 100 * sum(one[7] == "yes" for one in known) / len(known)
        marks = [_error(found, truths), _error([1.0] * len(truths), truths),
                 _error([statistics.mean(truths)] * len(truths), truths),
                 statistics.mean(one[6] for one in known), _correlation(found, truths),
                 max(abs(one[6]) for one in known), agreeing,
                 statistics.mean(one[8] for one in known)]  # fmt: skip
    return [layout, meter, len(members), len(known), *marks, max(overheads, default=None),
            statistics.mean(truth_halves)]  # fmt: skip


def _error(found, truths):
    """Mean absolute error in %."""
    return statistics.mean(100 * abs(one / truth - 1) for one, truth in zip(found, truths, strict=True))


def _correlation(found, truths):
    """None where one of them is constant."""
    is_constant = len(set(found)) < 2 or len(set(truths)) < 2
    return None if is_constant else statistics.correlation(found, truths)


def of(lines):
    """Tables as a result file has them."""
    by_pair = {"caption": PAIR_CAPTION, "columns": COLUMNS, "formats": FORMATS, "rows": rows(lines)}
    return [{"caption": "", "columns": SUMMARY, "formats": SUMMARY_FORMATS, "rows": summary(lines)}, by_pair]


def selected(sums, by_pair):
    """The tables with what the page has of them."""
    of_sums = {"rows": of_results(sums["rows"]), "columns": SUMMARY_SHOWN}
    of_pairs = {"rows": wrong(by_pair["rows"]), "columns": PAIR_SHOWN, "intervals": False}
    return [{**sums, "shown": of_sums}, {**by_pair, "shown": of_pairs}]


def of_results(sums):
    """Rows of what profiles report, not of the single meters."""
    return [i for i, one in enumerate(sums) if one[1] == "result"]


def wrong(pairs):
    """Rows of the pairs whose result is missing, disagrees, or has a large error."""
    results = [(i, one) for i, one in enumerate(pairs) if one[3] == "result"]
    return [i for i, one in results if one[5] is None or one[7] == "no" or abs(one[6]) > LARGE_ERROR]


def prices(lines):
    """Prices over that of the run alone (Breslow et al. 2013, Fig. 12): state of practice, POPPA, oracle.

    A job without an estimate pays like one that shared nothing.
    """
    for line in lines:
        truth, found = line["truth"]["value"], line["estimates"]["result"].get("value", 1.0)
        fair = [truth / max(slowdown, 1.0) ** 2 for slowdown in (found, truth)]
        yield [line["layout"], line["target"], line["co_runner"], truth, *fair]


def printed(lines):
    """All tables; errors and slowdowns are those of Figures 10 and 11, prices those of Figure 12."""
    shown = {"columns": PRICES, "formats": [None] * 3 + ["{:.3f}"] * 3, "rows": list(prices(lines))}
    return "\n\n".join(map(tables.markdown, [*of(lines), shown])) if lines else "nothing measured"


def publish(lines):
    """Write the result file, with the data of all states, and the page."""
    machines, dates = ({line[key] for line in lines} for key in ("machine", "date"))
    text = [one.replace("\n", " ").format(seconds=lines[0]["seconds"]) for one in TEXT]
    data = [{key: line[key] for key in line if key not in ("machine", "date")} for line in lines]
    result = {"title": "Accuracy against a toggled co-runner", "machine": "; ".join(sorted(machines)),
              "date": " to ".join(sorted({min(dates), max(dates)})), "command": COMMAND, "text": text,
              "tables": rounded(selected(*of(lines))), "short": [], "data": data}  # fmt: skip
    tables.publish(NAME, result)


def rounded(value):
    """Numbers of a result file: no more digits than anybody reads."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return {key: rounded(one) for key, one in value.items()} if isinstance(value, dict) else value
