"""Time to plan a queue, and cost of the plan over that of the exact matching, beside other programs.

  python benchmarks/schedule/pairing.py [--json] [--jobs 50 250 1000] [--runs 5] [--peers few|all|none]

Planning is: predict the slowdowns of all ordered pairs of jobs by a random forest in one batch (6 and 100
trees), make the degradation graph, match it. Limits: 0.1 s, 0.5 s and 5 s for 50, 250 and 1,000 jobs on one
core, and a cost within 0.1 % of the exact matching. Rows without trees have slowdowns of a given structure,
and their plan_s is the matching alone (plan_is). lower_bound_s is proved; exact_cost_s is the cost that
another program finds on the same graph. Times are medians of runs in turns; a peer is not run again after
5 s. All on one processor.
"""

import os

# Before NumPy starts its threads.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import statistics
import sys
import time

import numpy as np
from matching import costs, forest, peers

from mpicoloc.pairing.policies import Queue, Room, Rules, degradation_graph, plan

LIMITS_S = {50: 0.1, 250: 0.5, 1000: 5.0}
PEER_S = 5.0
"""After that many seconds a peer is not run again."""
MOST_JOBS = {"networkx": 250, "rustworkx": 1000}


def main():
    args = arguments()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = [row(*case, args) for case in cases(args.jobs)]
    if args.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        show(rows)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="a list of rows")
    parser.add_argument("--jobs", type=int, nargs="+", default=sorted(LIMITS_S))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", choices=("few", "all", "none"), default="few",
                        help="few: the slow ones only where they take seconds")  # fmt: skip
    return parser.parse_args()


def cases(sizes):
    """Number of jobs, name of the costs, trees, what predicts, threshold."""
    for n in sizes:
        for n_trees in (6, 100):
            predict = forest.predictor(n, n_trees, np.random.default_rng(n))
            yield n, "forest", n_trees, predict, 1.0
        for name, make in costs.STRUCTURES.items():
            runtime_s, slowdown = make(n, np.random.default_rng(n))
            # Bound now: the generator goes on before the case is run.
            yield n, name, None, lambda made=(runtime_s, slowdown): made, None


def row(n, name, n_trees, predict, threshold_frac, args):
    """Measure one case; the graph that the peers get has pairs that are parted at what they take apart."""
    rules = Rules(threshold_frac=threshold_frac)
    queue = Queue(*predict())
    graph = degradation_graph(queue, [(i,) for i in range(n)], Room(), 2, threshold_frac)
    weights = np.where(np.isfinite(graph.weights), graph.weights, graph.alone[:, None] + graph.alone)
    np.fill_diagonal(weights, 0)
    chosen = {peer: getattr(peers, peer) for peer in MOST_JOBS if is_asked(peer, n, name, args.peers)}
    made, times, exact = runs_in_turns(args.runs, predict, rules, chosen, weights)
    median = {what: statistics.median(taken) for what, taken in times.items()}
    whole = statistics.median(map(sum, zip(times["predict"], times["match"], strict=True)))
    print(f"{n} jobs, {name}, {n_trees or 'no'} trees: {whole:.3f} s", file=sys.stderr)
    return {
        "n_jobs": n,
        "costs": name,
        "n_trees": n_trees,
        "threshold_frac": threshold_frac,
        "plan_s": whole if n_trees else median["match"],
        "plan_is": "predict and match" if n_trees else "match",
        "plan_cpu_s": median["cpu"],
        "predict_s": median["predict"] if n_trees else None,
        "match_s": median["match"],
        "limit_s": LIMITS_S.get(n),
        "cost_s": made.cost_s,
        "lower_bound_s": made.lower_bound_s,
        "gap_frac": made.gap_frac,
        "exact_cost_s": min(exact, default=None),
        "above_exact_frac": made.cost_s / min(exact) - 1 if exact else None,
        "greedy_cost_s": plan(queue, Rules("greedy", threshold_frac)).cost_s,
        **{f"{peer}_s": median.get(peer) for peer in MOST_JOBS},
    }


def runs_in_turns(n_runs, predict, rules, chosen, weights):
    """Plan a queue, and ask the peers: the plan, seconds of each run of everything, costs by the peers."""
    times = {"predict": [], "match": [], "cpu": []}
    exact = []
    for _ in range(n_runs):
        started, used = time.perf_counter(), time.process_time()
        predicted = predict()
        then = time.perf_counter()
        made = plan(Queue(*predicted), rules)
        times["match"].append(time.perf_counter() - then)
        times["predict"].append(then - started)
        times["cpu"].append(time.process_time() - used)
        for peer, run in chosen.items():
            taken = times.setdefault(peer, [])
            if sum(taken) < PEER_S:
                seconds, cost = run(weights)
                taken.append(seconds)
                exact.append(cost)
    return made, times, exact


def is_asked(peer, n, name, which):
    if which == "none" or n > MOST_JOBS[peer] or n % 2:
        return False
    is_slow = n > {"networkx": 50, "rustworkx": 250}[peer]
    return which == "all" or not is_slow or name == "independent"


def show(rows):
    heads = ["jobs", "costs", "trees", "predict", "match", "plan", "of processor", "limit", "gap", "above",
             "greedy", "networkx", "rustworkx"]  # fmt: skip
    print("| " + " | ".join(heads) + " |")
    print("|" + " ---: |" * len(heads))
    for row in rows:
        cells = [f"{row['n_jobs']:,}", row["costs"], row["n_trees"] or ""]
        cells += [seconds(row[key]) for key in ("predict_s", "match_s", "plan_s", "plan_cpu_s", "limit_s")]
        cells += [percent(row["gap_frac"]), percent(row["above_exact_frac"])]
        cells += [percent(row["greedy_cost_s"] / row["cost_s"] - 1)]
        cells += [seconds(row[f"{peer}_s"]) for peer in MOST_JOBS]
        print("| " + " | ".join(map(str, cells)) + " |")


def seconds(value):
    return "" if value is None else f"{value:.3g} s"


def percent(value):
    return "" if value is None else f"{100 * value:.3f} %"


if __name__ == "__main__":
    main()
