"""How wrong the estimates are on simulated jobs of known slowdown.

    python benchmarks/estimators.py [--runs 60] [--meter loop|count]

Meter burst: the jobs of `tests/unit/measure/test_estimators.py`: 60 s, shutters of 3.2 ms every 200 ms.
Prints, over the runs of each job: mean error of the estimate, its spread, mean half-width of the 95 %
interval, and how often that holds the truth. Meter loop: jobs of `tests/support/simulated/passes.py`; root
mean square error, half-width and how often it holds, of whole passes alone and of the parts that windows cut
off too.
Meter count: programs of `tests/unit/measure/test_count.py`; the same columns as for burst.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from mpicoloc.measure import loop

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support" / "simulated"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit" / "measure"))
import passes
import test_count
from loops import simulate as simulate_loops
from renewal import simulate
from test_estimators import CASES, estimate


def measure(job, n_runs):
    """Truth, errors, half-widths (fractions) and hits over `n_runs` seeds."""
    truths, errors, halves, held = [], [], [], []
    for seed in range(n_runs):
        run = simulate(np.random.default_rng(seed), **job)
        found = estimate(run).slowdown
        if found is None:
            continue
        truths.append(run.truth)
        errors.append(found.value / run.truth - 1)
        halves.append((found.high - found.low) / 2 / found.value)
        held.append(found.low <= run.truth <= found.high)
    return truths, errors, halves, held


LOOP = {
    "even": (50, {"slowdown": 1.5}),
    "even, not slowed": (50, {"slowdown": 1.0}),
    "even, slowed by 3": (50, {"slowdown": 3.0}),
    "even, caches cold at first": (50, {"slowdown": 1.3, "cold": 0.5}),
    "even, fewer, caches cold": (50, {"slowdown": 1.5, "gap_s": 0.0024, "cold": 0.5}),
    "even, 4 threads": (50, {"slowdown": 1.5, "n_threads": 4}),
    "spread 10 %": (50, {"slowdown": 1.5, "kind": 0.1}),
    "spread 30 %": (50, {"slowdown": 1.5, "kind": 0.3}),
    "spread 100 %": (50, {"slowdown": 1.5, "kind": 1.0}),
    "two sizes": (50, {"slowdown": 1.5, "kind": "two sizes"}),
    "alternating": (50, {"slowdown": 1.5, "kind": "alternating"}),
    "in bursts": (50, {"slowdown": 3.0, "kind": "in bursts"}),
    "by turns of 3 ms": (50, {"slowdown": 2.0, "slice_s": 0.003}),
    "rare turns": (50, {"slowdown": 1.08, "slice_s": 0.003}),
    "even, 8 long shutters": (8, {"slowdown": 1.1, "gap_s": 0.016, "duration_s": 0.05, "around_s": 0.17}),
    "spread 30 %, 8 long shutters":
        (8, {"slowdown": 1.5, "gap_s": 0.016, "duration_s": 0.05, "around_s": 0.17, "kind": 0.3}),
}  # fmt: skip
"""Number of shutters, and the job."""


def measure_loop(n_shutters, job, n_runs):
    """Root mean square error, half-width and share of truths held: of whole passes, and of parts too."""
    found = {True: [], False: []}
    for seed in range(n_runs):
        recorded = passes.shutters(np.random.default_rng(seed), job, n_shutters)
        for is_whole in found:
            rows = recorded.copy()
            for name in ("begin_window_ns", "busy_frac"):
                rows[name] *= not is_whole
            estimate = loop.rates(rows, rng=np.random.default_rng(seed)).slowdown
            if estimate is not None:
                held = estimate.low <= job.slowdown <= estimate.high
                half = (estimate.high - estimate.low) / 2 / estimate.value
                found[is_whole].append((estimate.value / job.slowdown - 1, half, held))
    columns = [np.array(found[is_whole]).T for is_whole in (True, False)]
    return [(np.sqrt(np.mean(errors**2)), halves.mean(), held.mean()) for errors, halves, held in columns]


def print_loop(n_runs):
    columns = [
        "passes",
        "truth",
        "whole: error",
        "half-width",
        "holds",
        "parts too: error",
        "half-width",
        "holds",
    ]
    print(f"| {' | '.join(columns)} |\n{'| --- ' * 8}|")
    for name, (n_shutters, changes) in LOOP.items():
        job = passes.Job(**changes)
        cells = " | ".join(
            f"{100 * error:.1f} % | {100 * half:.1f} % | {100 * held:.0f} %"
            for error, half, held in measure_loop(n_shutters, job, n_runs)
        )
        print(f"| {name} | {job.slowdown:.2f} | {cells} |", flush=True)


def print_count(n_runs):
    columns = ["program", "truth", "mean error", "spread", "half-width", "holds"]
    print(f"| {' | '.join(columns)} |\n{'| --- ' * 6}|")
    for name, (program, *_) in (test_count.CASES | test_count.FAILURES).items():
        truth = np.mean([simulate_loops(np.random.default_rng(seed), program).truth for seed in range(8)])
        errors, halves, held = 100 * test_count.measured(program, n_runs)
        quality = f"{errors.mean():+.1f} % | {errors.std():.1f} % | {halves.mean():.1f} %"
        print(f"| {name} | {truth:.2f} | {quality} | {held.mean():.0f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--meter", choices=("burst", "loop", "count"), default="burst")
    arguments = parser.parse_args()
    n_runs = arguments.runs
    if arguments.meter == "loop":
        print_loop(n_runs)
        return
    if arguments.meter == "count":
        print_count(n_runs)
        return
    print("| job | truth | mean error | spread | half-width | holds |\n| --- | --- | --- | --- | --- | --- |")
    for name, (job, _) in CASES.items():
        truths, errors, halves, held = measure(job, n_runs)
        mean, spread = 100 * np.mean(errors), 100 * np.std(errors)
        half, hits = 100 * np.mean(halves), 100 * np.mean(held)
        quality = f"{mean:+.1f} % | {spread:.1f} % | {half:.0f} % | {hits:.0f} %"
        print(f"| {name} | {np.mean(truths):.2f} | {quality} |")


if __name__ == "__main__":
    main()
