"""How wrong the estimates are on simulated jobs of known slowdown.

    python benchmarks/estimators.py [--runs 60] [--meter burst|count]

Meter burst: the jobs of `tests/unit/measure/test_estimators.py`: 60 s, shutters of 3.2 ms every 200 ms.
Prints, over the runs of each job: mean error of the estimate, its spread, mean half-width of the 95 %
interval, and how often that holds the truth.
Meter count: programs of `tests/unit/measure/test_count.py`; the same columns as for burst.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support" / "simulated"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit" / "measure"))
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
    parser.add_argument("--meter", choices=("burst", "count"), default="burst")
    arguments = parser.parse_args()
    n_runs = arguments.runs
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
