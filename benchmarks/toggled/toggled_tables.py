"""Tables of what `toggled.py` measured: truth, estimate, error, pair by pair, and what they come to."""

import json
import statistics

import tables

COLUMNS = ["layout", "target", "co-runner", "meter", "truth", "estimate", "error", "inside", "half-width",
           "overhead", "method"]  # fmt: skip
FORMATS = [None, None, None, None, "{:.3f}", "{:.3f}", "{:+.1f} %", None, "{:.1f} %", "{:.2f} %", None]
SUMMARY = ["layout", "meter", "pairs", "with an estimate", "mean absolute error", "largest", "inside",
           "mean half-width", "largest overhead", "half-width of the truth"]  # fmt: skip
SUMMARY_FORMATS = [
    None,
    None,
    "{}",
    "{}",
    "{:.1f} %",
    "{:.1f} %",
    "{:.0f} %",
    "{:.1f} %",
    "{:.2f} %",
    "{:.1f} %",
]
NAME = "accuracy-toggled"
TEXT = """\
The truth: the bare program beside its co-runner, which is stopped and continued from outside at random, every
1 to 1.5 s. *truth* is the number of steps a second without the co-runner over that beside it, of neighbouring
seconds, with its 95 % interval: what the host does meanwhile cancels. Steps are lines that the program
prints, or its MPI calls. *estimate* is of one run of {seconds:.0f} s under mpicoloc between two such runs;
*half-width* is of its interval, *inside* whether that holds the truth. Layout *apart*: a rank each on a
processor of its own; *shared*: two ranks each in turns on the same two; *threads*: likewise a rank of two
threads each. Steps of all states, and the meters' own intervals, are in
`benchmarks/results/accuracy-toggled.json`."""
COMMAND = "python benchmarks/accuracy.py --toggled --pairs TARGET+CO_RUNNER,... --layout LAYOUT"


def read(path):
    """Lines of the file, none if it is not there; the last one of a pair counts."""
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else []
    return list({(line["layout"], line["target"], line["co_runner"]): line for line in lines}.values())


def half_width(found):
    """In % of the value."""
    return 50 * (found["high"] - found["low"]) / found["value"]


def told(found):
    """An estimate in words."""
    one = found["slowdown"]
    if one is None:
        return f"no number: {found['reason']}"
    overhead = found.get("overhead_frac")
    cost = "" if overhead is None else f", overhead {overhead:.2%}"
    return f"{one['value']:.4f} [{one['low']:.4f}, {one['high']:.4f}] {one['method']}{cost}"


def row(line, meter, found):
    """Of one pair and meter."""
    truth, one = line["truth"], found["slowdown"]
    head = [line["layout"], line["target"], line["co_runner"], meter,
            [truth["value"], truth["low"], truth["high"]]]  # fmt: skip
    overhead = None if found.get("overhead_frac") is None else 100 * found["overhead_frac"]
    if one is None:
        return [*head, None, None, None, None, overhead, found["reason"]]
    inside = one["low"] <= truth["value"] <= one["high"]
    return [*head, [one["value"], one["low"], one["high"]], 100 * (one["value"] / truth["value"] - 1),
            "yes" if inside else "no", half_width(one), overhead, one["method"]]  # fmt: skip


def rows(lines):
    return [row(line, meter, found) for line in lines for meter, found in line["estimates"].items()] + [
        row(line, "-", {"slowdown": None, "reason": "-"}) for line in lines if not line["estimates"]
    ]


def summary(lines):
    """A row for each layout and meter."""
    groups = {}
    for line, one in ((each, one) for each in lines for one in rows([each])):
        if one[3] != "-":
            groups.setdefault((one[0], one[3]), []).append((one, half_width(line["truth"])))
    return [_summary(*key, *map(list, zip(*members, strict=True))) for key, members in groups.items()]


def _summary(layout, meter, members, truth_halves):
    known = [one for one in members if one[5] is not None]
    errors = [abs(one[6]) for one in known]
    overheads = [one[9] for one in members if one[9] is not None]
    marks = [None] * 4
    if known:
        inside = 100 * sum(one[7] == "yes" for one in known) / len(known)
        marks = [statistics.mean(errors), max(errors), inside, statistics.mean(one[8] for one in known)]
    return [layout, meter, len(members), len(known), *marks, max(overheads, default=None),
            statistics.mean(truth_halves)]  # fmt: skip


def of(lines):
    """Tables as a result file has them."""
    by_pair = {"caption": "", "columns": COLUMNS, "formats": FORMATS, "rows": rows(lines)}
    return [{"caption": "", "columns": SUMMARY, "formats": SUMMARY_FORMATS, "rows": summary(lines)}, by_pair]


def printed(lines):
    return "\n\n".join(map(tables.markdown, of(lines))) if lines else "nothing measured"


def publish(lines):
    """Write the result file, with the data of all states, and the page."""
    machines, dates = ({line[key] for line in lines} for key in ("machine", "date"))
    text = [TEXT.replace("\n", " ").format(seconds=lines[0]["seconds"])]
    data = [{key: line[key] for key in line if key not in ("machine", "date")} for line in lines]
    result = {"title": "Accuracy against a toggled co-runner", "machine": "; ".join(sorted(machines)),
              "date": " to ".join(sorted({min(dates), max(dates)})), "command": COMMAND, "text": text,
              "tables": rounded(of(lines)), "short": [], "data": data}  # fmt: skip
    if (tables.RESULTS / f"{NAME}.json").exists():  # sentences about what falls short are written by hand
        result["short"] = tables.read(NAME)["short"]
    tables.write(NAME, result)
    tables.PAGE.write_text(tables.page())


def rounded(value):
    """Numbers of a result file: no more digits than anybody reads."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return {key: rounded(one) for key, one in value.items()} if isinstance(value, dict) else value
