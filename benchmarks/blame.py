"""The slowdown that each of two or three co-runners causes, against a truth.

    python benchmarks/blame.py
    python benchmarks/blame.py --publish

All jobs of a node have two ranks and take turns on two processors. In the middle of a run they are left alone
for `--seconds`: mpicoloc's numbers are of this time. Before and after it the co-runners are stopped and
continued from outside in all combinations, in random order. Truth: the target's steps per second in each
combination; the cost of a co-runner is its Shapley value of the speed that stopping it gains. About 50 min;
what stands in `--out` is not measured again. ``--publish`` writes results/blame.json.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import programs
import tables
from programs import progress

sys.path.insert(0, str(Path(__file__).resolve().parent / "toggled"))

import toggled_programs
import toggled_tables
from progress_ratio import slowdown
from toggling import LABELS, ToggledRun, events_library, ranks_of, stored

from mpicoloc.core.profile import Estimate
from mpicoloc.measure.co_runners import slowdown_by_job, with_slowdowns

TARGETS = ("lmp", "hpcc_FFT", "heat2d", "random24", "lmp_eam", "nbody", "write64", "read24", "update12",
           "update24")  # fmt: skip
FIRST = ("lmp_eam/5", "hpcc_FFT/5", "random24/5", "hpcc_STREAM/5")
SECOND = ("heat2d/10", "sleeper/0")
FOUR = ("lmp+lmp/10+heat2d/5+heat2d/5", "heat2d+heat2d/10+lmp/5+lmp/5")
NODES = [f"{target}+{FIRST[i % 4]}+{second}" for second in SECOND for i, target in enumerate(TARGETS)]
"""Target, and co-runners with their niceness."""
STATE_S, GUARD_S = 0.45, 0.1
CORES = (0, 1)
SAME_COST = 0.05
"""True costs that differ by less count as equal."""
COLUMNS = [
    "target",
    "co-runner",
    "nice",
    "of jobs",
    "true slowdown",
    "measured",
    "true cost",
    "found",
    "error",
]
FORMATS = [None, None, "{}", "{}", *["{:.2f}"] * 4, "{:+.2f}"]
SUMS = ["jobs on the node", "nodes", "costs", "found", "mean absolute error", "an even split", "agrees",
        "half-width", "half-width of the truth", "right order"]  # fmt: skip
SUM_FORMATS = [*["{}"] * 4, "{:.3f}", "{:.3f}", "{:.0f} %", "{:.3f}", "{:.3f}", None]
TEXT = """\
Three or four jobs of two ranks each, time-sliced on two processors for {seconds:.0f} s. Before and after,
co-runners are stopped and continued in all combinations: costs, parts of the slowdown minus 1, are Shapley
values of the target's speed. *an even split*: the error of dividing the measured slowdown evenly. *right
order*: where true costs differ by 0.05 or more."""


def times_s(pids):
    """Time that these processes have run, and have waited for a processor, s."""
    rows = []
    for path in (path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")):
        with contextlib.suppress(OSError):  # a thread may have ended
            rows.append(path.read_text().split()[:2])
    return np.array(rows, float).sum(axis=0) / 1e9


def states(rng, n_co_runners, seconds, truth_s, pids, spent):
    """Every combination in random order, for half of `truth_s`; all of them for `seconds`; and again.

    `spent` gets the times of the processes `pids()` in those seconds.
    """
    every = range(2**n_co_runners)
    rounds = max(1, round(truth_s / 2 / STATE_S / len(every)))

    def all_orders():
        for _ in range(rounds):
            yield from ((int(state), STATE_S + rng.uniform(0, GUARD_S)) for state in rng.permutation(every))

    yield from all_orders()
    before_s = times_s(pids())
    yield every[-1], seconds
    spent.extend(times_s(pids()) - before_s)
    yield from all_orders()


def shapley(slowdowns, n):
    """Cost of each of n co-runners, from the slowdown in each state (bits: who runs)."""
    full = 2**n - 1
    costs, orders = np.zeros(n), list(itertools.permutations(range(n)))
    for order in orders:
        running = full
        for i in order:
            left = running & ~(1 << i)
            costs[i] += slowdowns[full] / slowdowns[left] - slowdowns[full] / slowdowns[running]
            running = left
    return costs / len(orders)


def truth_of(run, n, seconds):
    """Slowdown of all co-runners, and the cost of each: lists of value, low and high."""
    short = run.windows[np.diff(run.windows[:, :2]).ravel() < seconds / 2]
    found = {}
    for state in range(1, 2**n):
        rows = short[np.isin(short[:, 2], (0, state))]
        rows[:, 2] = rows[:, 2] > 0
        found[state] = slowdown([dataclasses.replace(run, windows=rows)])
    values = {0: 1.0} | {state: one["value"] for state, one in found.items()}
    costs, variance = shapley(values, n), np.zeros(n)
    for state, one in found.items():  # as if the errors of the states were independent
        shifted = values | {state: one["high"]}
        variance += (shapley(shifted, n) - costs) ** 2
    half = np.sqrt(variance)
    whole = found[2**n - 1]
    return [whole["value"], whole["low"], whole["high"]], np.column_stack(
        [costs, costs - half, costs + half]
    ).tolist()


def found_of(seen, labels, spent):
    """The same as mpicoloc finds them; None for what it does not tell."""
    tables, result = seen.tables_beside(), seen.estimates()["count"]
    if "value" not in result:
        return None, [None] * len(labels), tables
    whole = Estimate(result["value"], result["low"], result["high"], result["n"], "1", result["method"])
    job = seen.profile.job
    tables["corunners"] = tables["corunners"].copy()
    # Of the run, `spent` is the part in which nobody is stopped.
    part = sum(spent) / np.nan_to_num(tables["ranks"]["cpu_s"] + tables["ranks"]["run_delay_s"]).sum()
    tables["corunners"]["overlap_s"] = job.wall_s
    tables["corunners"]["cpu_s"] *= part
    tables["ranks"] = tables["ranks"].copy()
    tables["ranks"]["cpu_s"], tables["ranks"]["run_delay_s"] = np.array(spent) / len(tables["ranks"])
    by_job = slowdown_by_job(with_slowdowns(job, tables, whole))
    costs = [
        next((one for name, one in by_job.items() if name.startswith(f"{label}-1-")), None)
        for label in labels
    ]
    parts = [None if one is None else [one.value - 1, one.low - 1, one.high - 1] for one in costs]
    return [whole.value, whole.low, whole.high], parts, tables


class Nodes:
    """Prepared programs, and their measurement on a node."""

    def __init__(self, args):
        self.args, self.work, self.prepared = args, args.work.resolve(), {}
        self.cores = tuple(programs.processors(1 + max(CORES))[i] for i in CORES)
        self.launcher = programs.Launcher.find(args.mpirun, self.cores)
        self.library, self.rng = events_library(self.work), np.random.default_rng(args.seed)

    def job(self, spec):
        """Program and launcher of a co-runner with its niceness, or of the target."""
        name, _, nice = spec.partition("/")
        if name not in self.prepared:
            self.prepared[name] = toggled_programs.prepare(name, self.launcher, self.work)
        before = programs.with_niceness(int(nice)) if nice else ()
        return self.prepared[name], dataclasses.replace(self.launcher, before=before)

    def measure(self, node):
        target, *others = map(self.job, node.split("+"))
        run = ToggledRun(target, others, self.work / node.replace("/", "-"), self.library, {}, "default")
        spent, lengths = [], (self.args.seconds, self.args.truth)
        every = states(self.rng, len(others), *lengths, lambda: ranks_of(run.job), spent)
        seen, found = run.measure(every)
        whole, costs = truth_of(found.run, len(others), self.args.seconds)
        result, parts, kept = found_of(seen, [one.label for one in run.co_runners], spent)
        line = {"node": node, "truth": whole, "costs": costs, "result": result, "found": parts,
                "n_shutters": len(kept["shutters"]), "spent": spent,
                "overhead_frac": seen.profile.interference.overhead_frac, **programs.setup(),
                "seconds": self.args.seconds}  # fmt: skip
        progress(json.dumps({key: line[key] for key in ("node", "truth", "costs", "result", "found")}))
        return line


def rows(lines):
    """A row for each co-runner of each node."""
    for line in lines:
        target, *others = line["node"].split("+")
        for spec, true, found in zip(others, line["costs"], line["found"], strict=True):
            name, _, nice = spec.partition("/")
            error = None if found is None else found[0] - true[0]
            yield [
                target,
                name,
                int(nice),
                1 + len(others),
                line["truth"],
                line["result"],
                true,
                found,
                error,
            ]


def sums(lines):
    """A row for nodes of each number of jobs."""
    for n in sorted({len(line["costs"]) for line in lines}):
        own = [line for line in lines if len(line["costs"]) == n]
        both = [
            (true, found) for line in own for true, found in zip(line["costs"], line["found"], strict=True)
        ]
        known = [(true, found) for true, found in both if found is not None]
        even = [
            abs((line["result"][0] - 1) / n - true[0])
            for line in own
            if line["result"]
            for true in line["costs"]
        ]
        yield [1 + n, len(own), len(both), len(known),
               statistics.mean(abs(found[0] - true[0]) for true, found in known), statistics.mean(even),
               100 * statistics.mean(_agrees(*pair) for pair in known),
               statistics.mean((found[2] - found[1]) / 2 for _, found in known),
               statistics.mean((true[2] - true[1]) / 2 for true, _ in both), _right_order(own)]  # fmt: skip


def _agrees(true, found):
    """Whether the truth is in the interval, both with their errors."""
    halves = [(one[2] - one[1]) / 2 for one in (true, found)]
    return abs(true[0] - found[0]) <= math.hypot(*halves)


def _right_order(lines):
    """Nodes on which the co-runner with the largest cost found has the largest true one, or nearly so."""
    costs = [[[one[0] for one in line[key]] for key in ("costs", "found")]
             for line in lines if None not in line["found"]]  # fmt: skip
    judged = [(true, found) for true, found in costs if max(true) - min(true) >= SAME_COST]
    right = sum(true[found.index(max(found))] > max(true) - SAME_COST for true, found in judged)
    return f"{right} of {len(judged)}"


def of(lines):
    by_job = {
        "caption": "",
        "columns": COLUMNS,
        "formats": FORMATS,
        "rows": list(rows(lines)),
        "shown": {"rows": []},
    }
    return [{"caption": "", "columns": SUMS, "formats": SUM_FORMATS, "rows": list(sums(lines))}, by_job]


def publish(lines):
    machines, dates = ({line[key] for line in lines} for key in ("machine", "date"))
    result = {"title": "Blame", "machine": "; ".join(sorted(machines)), "date": max(dates),
              "command": "python benchmarks/blame.py",
              "text": [TEXT.replace("\n", " ").format(seconds=lines[0]["seconds"])],
              "tables": of(lines), "short": []}  # fmt: skip
    tables.publish("blame", toggled_tables.rounded(result))


def again(line, work):
    """The line with numbers as they are found now."""
    seen = stored(work / line["node"].replace("/", "-"))
    labels = LABELS[: len(line["costs"])]
    result, parts, _ = found_of(seen, labels, line["spent"])
    return line | {"result": result, "found": parts}


def measure_all(args):
    """Add what is missing to the file; returns the reasons for what still is."""
    missing, nodes = {}, Nodes(args)
    done = {line["node"] for line in read(args.out)}
    for node in args.nodes.split(",") if args.nodes else [*NODES, *FOUR]:
        if node in done:
            continue
        try:
            line = nodes.measure(node)
        except (LookupError, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            missing[node] = error
            progress(f"{node}: {error}")
            continue
        with open(args.out, "a") as file:
            file.write(json.dumps(line) + "\n")
    return missing


def read(path):
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def main(argv=None):
    parser = programs.parser(__doc__)
    parser.add_argument("--nodes", help="as lmp+hpcc_FFT/5+sleeper/0,..: target, co-runners with their nice")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--truth", type=float, default=48.0, help="seconds in which co-runners are stopped in turn"
    )
    parser.add_argument("--mpirun", default="mpirun.openmpi")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("blame"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("blame.jsonl"), help="lines are added to it")
    parser.add_argument("--again", action="store_true", help="find the costs of stored runs anew")
    parser.add_argument("--publish", action="store_true", help="write results/blame.json of --out")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # endless jobs must not stay behind
    missing = {} if args.publish or args.again else measure_all(args)
    lines = read(args.out)
    if args.again:
        lines = [again(line, args.work) for line in lines]
        args.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(
        "\n\n".join(tables.markdown({**table, "shown": None}) for table in of(lines))
        if lines
        else "nothing measured"
    )
    if args.publish:
        publish(lines)
    for node, reason in missing.items():
        print(f"missing: {node}: {reason}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
