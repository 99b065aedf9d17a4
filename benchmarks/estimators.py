"""Errors of the slowdown estimates on simulated jobs of known slowdown.

    python benchmarks/estimators.py [--runs 60] [--meter burst|count]

Meter burst: the jobs of `tests/unit/measure/test_estimators.py`: 60 s, shutters of 3.2 ms every 200 ms.
Prints, over the runs of each job: mean error of the estimate, its spread, mean half-width of the 95 %
interval, and the share of intervals that hold the true slowdown.
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
from tables import print_table
from test_estimators import CASES, estimate

COLUMNS = ("job", "truth", "mean error", "spread", "half-width", "holds")


def measured(job, n_runs):
    """Errors, half-widths and hits, in %, over so many seeds, and the mean truth."""
    found = []
    for seed in range(n_runs):
        run = simulate(np.random.default_rng(seed), **job)
        one = estimate(run).slowdown
        if one is not None:
            held = one.low <= run.truth <= one.high
            found.append((one.value / run.truth - 1, (one.high - one.low) / 2 / one.value, held, run.truth))
    *parts, truths = np.transpose(found)
    return 100 * np.array(parts), truths.mean()


def burst_cases(n_runs):
    for name, (job, _) in CASES.items():
        yield name, *measured(job, n_runs)


def count_cases(n_runs):
    for name, (program, *_) in (test_count.CASES | test_count.FAILURES).items():
        truths = [simulate_loops(np.random.default_rng(seed), program).truth for seed in range(8)]
        yield name, 100 * np.array(test_count.measured(program, n_runs)), np.mean(truths)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--meter", choices=("burst", "count"), default="burst")
    args = parser.parse_args()
    found = (count_cases if args.meter == "count" else burst_cases)(args.runs)
    print_table(COLUMNS, ((name, f"{truth:.2f}", f"{errors.mean():+.1f} %", f"{errors.std():.1f} %",
                           f"{halves.mean():.1f} %", f"{held.mean():.0f} %")
                          for name, (errors, halves, held), truth in found))  # fmt: skip


if __name__ == "__main__":
    main()
