"""How wrong the matched estimate is on simulated jobs of known slowdown.

    python benchmarks/estimators.py [--runs 60]

The jobs are those of `tests/unit/test_estimators.py`: 60 s, shutters of 3.2 ms every 200 ms. Prints, over the
runs of each job: mean error of the estimate, its spread, mean half-width of the 95 % interval, and how often
that holds the truth.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit"))
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=60)
    n_runs = parser.parse_args().runs
    print("| job | truth | mean error | spread | half-width | holds |\n| --- | --- | --- | --- | --- | --- |")
    for name, (job, _) in CASES.items():
        truths, errors, halves, held = measure(job, n_runs)
        mean, spread = 100 * np.mean(errors), 100 * np.std(errors)
        half, hits = 100 * np.mean(halves), 100 * np.mean(held)
        quality = f"{mean:+.1f} % | {spread:.1f} % | {half:.0f} % | {hits:.0f} %"
        print(f"| {name} | {np.mean(truths):.2f} | {quality} |")


if __name__ == "__main__":
    main()
