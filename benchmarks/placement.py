"""Quality and speed of placements, and cost and error of propagation matrices.

    python benchmarks/placement.py propagation [--json]
    python benchmarks/placement.py policies [--json]
    python benchmarks/placement.py mixes [--range 0:8855:1] [--json]
    python benchmarks/placement.py large [--times 1 10] [--json]
    python benchmarks/placement.py picture docs/pictures/placements.png

`propagation`: Table 3 of Han et al. 2016 on invented programs of the three types of section 3.2, and on
replayed ones: fraction of the settings that were profiled, and error against the matrix of all settings.
`policies`: its Table 2 for the replayed programs, with the runs that a stable choice needs. `mixes`: section
5.2, four applications on 8 hosts, all mixes of 20 invented programs, against exhaustive search; the time is
that of the annealing alone. `large`: 1,000 hosts and 250 jobs, against the lower bound, with --times as many
sweeps as usual. `picture`: Figure 9. Deterministic except for times, which are processor time, on one core.
"""

import os

# Before NumPy starts its threads.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import sys
import time
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support" / "simulated"))
import placements
import propagations
from tables import print_table

from mpicoloc.bubble import propagation
from mpicoloc.core.bubbles import JobRequest, PropagationMatrix
from mpicoloc.place import anneal, place
from mpicoloc.place.anneal import Replicas, random_placement

N_PROGRAMS = 20
PAPER = {
    "binary-optimized": (17.87, 3.00),
    "binary-brute": (55.69, 0.54),
    "random-50 %": (49.23, 5.05),
    "random-30 %": (29.23, 13.02),
}
"""Cost and error in percent: Han et al. 2016, Table 3."""
THRESHOLDS = {"binary-optimized": (0.1, 0.2), "binary-brute": (0.07,)}
MIXES = list(combinations_with_replacement(range(N_PROGRAMS), 4))


def main():
    args = arguments()
    if args.what == "picture":
        draw(args.file or "placements.png")
        return
    columns, rows = TABLES[args.what](args)
    if args.json:
        json.dump([dict(zip(columns, row, strict=True)) for row in rows], sys.stdout, indent=1)
        print()
    else:
        print_table(columns, [map(cell, row) for row in rows])


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=(*TABLES, "picture"))
    parser.add_argument("file", nargs="?", help="of the picture")
    parser.add_argument("--range", default=f"0:{len(MIXES)}:1", help="of the mixes, as FIRST:LAST:EVERY")
    parser.add_argument("--times", type=float, nargs="+", default=[1], help="of the usual sweeps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def cell(value):
    return value if isinstance(value, str) else f"{value:.6g}"


def propagation_table(args):
    """Each algorithm on invented programs, and on replayed ones."""
    columns = ("algorithm", "programs", "cost, %", "error, %", "cost in the paper, %",
               "error in the paper, %")  # fmt: skip
    rows = []
    for name, matrices in {"invented": invented(args.seed), "replayed": replayed()}.items():
        for algorithm, (cost, error) in PAPER.items():
            rng = np.random.default_rng(args.seed)
            found = [run(algorithm, truth, rng) for truth in matrices]
            costs = [matrix.cost_frac for matrix in found]
            errors = [propagation.mean_error(*pair) for pair in zip(found, matrices, strict=True)]
            rows.append((algorithm, name, 100 * np.mean(costs), 100 * np.mean(errors), cost, error))
    return columns, rows


def run(algorithm, truth, rng):
    """One algorithm on a matrix of 8 pressures and 8 nodes."""
    profile = propagations.profile_of(truth)
    if algorithm == "binary-optimized":
        return propagation.binary_optimized(profile, 8, 8, *THRESHOLDS[algorithm])
    if algorithm == "binary-brute":
        return propagation.binary_brute(profile, 8, 8, *THRESHOLDS[algorithm])
    frac = float(algorithm.removeprefix("random-").removesuffix(" %")) / 100
    return propagation.random_settings(profile, 8, 8, frac, rng)


def invented(seed):
    """120 programs in the paper's proportion of types; each time has 1 % of noise."""
    return [truth for _, truth in propagations.programs(seed, n_rounds=10, noise=0.01)]


def replayed():
    """Programs on 8 simulated hosts, all settings replayed."""
    return [propagations.replayed_times(*case) for case in propagations.REPLAYED]


def policies_table(args):
    """The policy of each replayed program, from as few runs with uneven pressures as are stable."""
    columns = ("program", "slowdown at level 8", "policy", "mean error, %", "its sd, %",
               "worst policy's error, %", "runs")  # fmt: skip
    rows = []
    for kind, top in propagations.REPLAYED:
        times = propagations.replayed_times(kind, top, n_nodes=4)
        matrix = PropagationMatrix(times, np.ones(times.shape, bool))
        slowdown = propagations.replayed_uneven_of(kind, top, n_nodes=4)
        found = propagation.choose_by_runs(matrix, slowdown, np.random.default_rng(args.seed))
        errors = found.error[found.policy], found.sd[found.policy], max(found.error.values())
        rows.append((kind, times[-1, -1], found.policy, *(100 * each for each in errors), found.n_samples))
    return columns, rows


def mixes_table(args):
    """Annealing against exhaustive search."""
    chosen = range(len(MIXES))[slice(*map(int, args.range.split(":")))]
    known = placements.model(args.seed, N_PROGRAMS)
    above, times_s = [], []
    for i in chosen:
        one = problem_of(known, MIXES[i])
        began_s = time.process_time()
        found = anneal.anneal(one, np.random.default_rng([args.seed, i]))
        times_s.append(time.process_time() - began_s)
        above.append(found.slowdown.sum() / place.search(one).slowdown.sum() - 1)
    above = np.array(above)
    columns = ("mixes", "within 0.5 % of the best, %", "the best itself, %", "farthest, %", "time, ms",
               "longest time, ms")  # fmt: skip
    shares = (above <= 0.005).mean(), (above <= 1e-9).mean(), above.max()
    times_ms = 1e3 * np.median(times_s), 1e3 * max(times_s)
    return columns, [(float(len(chosen)), *(100 * share for share in shares), *times_ms)]


def problem_of(known, mix):
    jobs = [JobRequest(str(i), f"p{program}", 4) for i, program in enumerate(mix)]
    return anneal.of_bubbles(jobs, 8, 2, known)


def large_table(args):
    """1,000 hosts with two slots and 250 jobs of 8 nodes."""
    rng = np.random.default_rng(args.seed)
    jobs = [JobRequest(f"j{i}", f"p{rng.integers(N_PROGRAMS)}", 8) for i in range(250)]
    one = anneal.of_bubbles(jobs, 1000, 2, placements.model(args.seed, N_PROGRAMS))
    began_s = time.process_time()
    least = place.lower_bound(one)
    bound_s = time.process_time() - began_s
    random = Replicas(one, random_placement(one, rng)[None], "sum").slowdowns(0).sum()
    columns = ("placement", "sum of slowdowns", "above the bound, %", "time, s")
    rows = [("random", random, 100 * (random / least - 1), 0.0)]
    for times in args.times:
        name, n_sweeps = f"annealing, {times:g} times as long", times * anneal.N_SWEEPS
        began_s = time.process_time()
        found = anneal.anneal(one, np.random.default_rng(args.seed), "sum", anneal.Annealing(1, n_sweeps))
        total = found.slowdown.sum()
        rows.append((name, total, 100 * (total / least - 1), time.process_time() - began_s))
    return columns, [*rows, ("bound", least, 0.0, bound_s)]


def draw(file):
    """Figure 9: what the best and a random placement gain on the worst one, mixes in order of it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    known, rng = placements.model(0, N_PROGRAMS), np.random.default_rng(0)
    gains = np.array([gains_of(problem_of(known, mix), rng) for mix in MIXES])
    gains = 100 * gains[np.argsort(-gains[:, 0])]
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(gains[:, 1], ".", markersize=1.5, color="#e69f00", label="mean of 5 random placements")
    axes.plot(gains[:, 0], color="#0072b2", label="best placement")
    axes.set(xlabel="mixes, in falling order", ylabel="mean speed-up against\nthe worst placement, %")
    axes.set(xlim=(0, len(gains)), ylim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(file, dpi=120)
    large = 100 * (gains[:, 0] > 10).mean(), (gains[:, 0] > 50).sum()
    print("above 10 %: {:.1f} % of the mixes; above 50 %: {} mixes".format(*large))


def gains_of(one, rng):
    """Mean speed-up of the jobs against the worst placement: the best one, and five random ones."""
    every = place.all_placements((4, 4, 4, 4), 8, 2, 1000)
    slowdowns = Replicas(one, every, "sum").slowdown[:-1].reshape(len(every), 4)
    total = slowdowns.sum(axis=1)
    worst = slowdowns[total.argmax()]
    drawn = np.array([random_placement(one, rng) for _ in range(5)])
    random = Replicas(one, drawn, "sum").slowdown[:-1].reshape(5, 4)
    return (worst / slowdowns[total.argmin()]).mean() - 1, (worst / random).mean() - 1


TABLES = {"propagation": propagation_table, "policies": policies_table, "mixes": mixes_table,
          "large": large_table}  # fmt: skip


if __name__ == "__main__":
    main()
