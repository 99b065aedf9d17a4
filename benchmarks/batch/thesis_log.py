"""A log like that of Jokanovic 2014, chapter 4, drawn from what the thesis tells of it, under its policies.

    python benchmarks/batch/thesis_log.py [--seed 0] [--big 0.05] [--policies first-available,exclusive]

The log itself is not public. The thesis tells 49,107 jobs in 32 days on 3,096 nodes, 84 % of them in use
(section 4.4); that most sizes are powers of two, that 2 % of the jobs larger than a switch are multiples of
its 18 nodes, and that a significant part is not larger than a switch (section 4.2). It does not tell sizes,
run times or estimates in numbers: those below are assumed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tables import print_table

N_JOBS, N_NODES, N_DAYS, UTILISATION = 49_107, 3_096, 32, 0.84
"""Section 4.3 and 4.4."""
SWITCH = 18
MULTIPLES_FRAC = 0.02
"""Of the big jobs: multiples of the switch's size (section 4.2)."""
BIG_FRAC = 0.05
"""Assumed: jobs larger than a switch. At least 5 %, which share under virtual blocks (Figure 4.12)."""
SMALL = {1: 0.30, 2: 0.15, 4: 0.20, 8: 0.15, 16: 0.15, 0: 0.05}
"""Assumed: shares of sizes of small jobs; 0: any from 1 to 18."""
BIG = {32: 0.25, 64: 0.25, 128: 0.20, 256: 0.15, 512: 0.10, 0: 0.05}
"""Assumed: shares of sizes of big jobs; 0: any from 19 to 512.

With `exclusive` a big job has whole subtrees for itself, and all end in 39 days in ten subtrees (Fig. 4.14).
So their run times, times subtrees, are 390 days at most. That rules out many small ones among them."""
MIN_JOBS = 5_000
"""Of a drawn log: some days, of which submissions take all but the last one."""
SPREAD = 1.5
"""Assumed: standard deviation of the logarithm of run times."""
DAY_S = 86400.0
LONGEST_S = DAY_S
"""Assumed: the longest run."""
POLICIES = ("first-available", "first-contiguous", "virtual-blocks", "exclusive")
COLUMNS = ("policy", "jobs with which one shares", "thesis", "jobs that share", "thesis", "completion, days",
           "thesis", "utilisation", "thesis", "longer wait, min", "thesis")  # fmt: skip
_KEYS = ("sharing_jobs_mean", "sharing_frac", "days", "utilisation_frac", "wait_more_min")
THESIS = {
    "first-available": dict(zip(_KEYS, (17, 0.45, 32, 0.84, 0), strict=True)),
    "first-contiguous": dict(zip(_KEYS, (4, 0.09, 32, 0.84, None), strict=True)),
    "virtual-blocks": dict(zip(_KEYS, (0.9, 0.05, 33, 0.83, 16), strict=True)),
    "exclusive": dict(zip(_KEYS, (0, 0, 39, 0.76, 28), strict=True)),
}
"""Figures 4.11 to 4.16 as the text has them; 45 % and 9 % follow from 5 % and its factors. None: not told."""


def sizes(n_jobs, big_frac, rng):
    """Nodes of each job."""
    is_big = rng.random(n_jobs) < big_frac
    n = np.empty(n_jobs, int)
    for which, shares, low, high in ((~is_big, SMALL, 1, SWITCH), (is_big, BIG, SWITCH + 1, 512)):
        drawn = rng.choice(list(shares), int(which.sum()), p=list(shares.values()))
        n[which] = np.where(drawn > 0, drawn, rng.integers(low, high + 1, len(drawn)))
    is_multiple = is_big & (rng.random(n_jobs) < MULTIPLES_FRAC)
    n[is_multiple] = SWITCH * np.maximum(np.rint(n[is_multiple] / SWITCH), 2)
    return n


def draw(seed, n_jobs=N_JOBS, big_frac=BIG_FRAC, n_days=N_DAYS):
    """Submissions, run times and limits, s, and nodes of the jobs.

    Run times are scaled until the jobs need `UTILISATION` of the machine for that many days. Submissions are
    alike over that time less `LONGEST_S`, so that on a machine without a queue the last job ends by then.
    """
    rng = np.random.default_rng(seed)
    n_nodes = sizes(n_jobs, big_frac, rng)
    shape = rng.lognormal(0.0, SPREAD, n_jobs)
    node_s = UTILISATION * N_NODES * n_days * DAY_S * n_jobs / N_JOBS
    scale_s = node_s / (shape * n_nodes).sum()
    for _ in range(50):  # jobs at the limit get no longer, so others do
        run_s = np.minimum(shape * scale_s, LONGEST_S)
        scale_s *= node_s / (run_s * n_nodes).sum()
    run_s = np.maximum(np.rint(run_s), 1)
    span_s = n_days * DAY_S * n_jobs / N_JOBS - LONGEST_S
    submit_s = np.floor(np.sort(rng.random(n_jobs)) * span_s)
    limit_s = np.minimum(run_s * rng.uniform(1, 5, n_jobs), np.maximum(LONGEST_S, run_s))
    return submit_s, run_s, np.ceil(limit_s), n_nodes


def write_log(path, number, submit_s, run_s, limit_s, n_nodes):
    """Write jobs in Standard Workload Format, one processor a node; each argument is a column."""
    with open(path, "w") as file:
        for i, submit, run, limit, n in zip(number, submit_s, run_s, limit_s, n_nodes, strict=True):
            file.write(f"{i} {submit:.0f} -1 {run:.0f} {n} -1 -1 {n} {limit:.0f} -1 1 1 1 1 1 1 -1 -1\n")


def simulated(log, policy):
    """Result of `mpicoloc batch` for a log on MareNostrum with this allocation policy."""
    command = [sys.executable, "-m", "mpicoloc", "-q", "batch", str(log), "--topology", "MareNostrum",
               "--order", "easy", "--allocation", policy, "--json"]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"allocation": policy, **json.loads(done.stdout)}


def cells(row, base):
    """Our figures beside the thesis's; the wait is that beyond the first policy's."""
    theirs = THESIS[row["allocation"]]
    told = theirs["wait_more_min"]
    return (f"`{row['allocation']}`", f"{row['sharing_jobs_mean']:.2f}", f"{theirs['sharing_jobs_mean']:g}",
            f"{row['sharing_jobs_frac']:.1%}", f"{theirs['sharing_frac']:.0%}",
            f"{row['completion_s'] / DAY_S:.1f}", theirs["days"], f"{row['utilisation_frac']:.1%}",
            f"{theirs['utilisation_frac']:.0%}", f"{(row['wait_mean_s'] - base['wait_mean_s']) / 60:+,.0f}",
            "not told" if told is None else f"{told:+d}")  # fmt: skip


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--big", type=float, default=BIG_FRAC, help="part of the jobs larger than a switch")
    parser.add_argument("--jobs", type=int, default=N_JOBS, help="fewer, in as much less time")
    parser.add_argument("--policies", default=",".join(POLICIES))
    args = parser.parse_args(argv)
    if args.jobs < MIN_JOBS:
        parser.error(f"--jobs must be at least {MIN_JOBS:,}, some days of jobs, got {args.jobs:,}")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "thesis.swf"
        write_log(log, range(1, args.jobs + 1), *draw(args.seed, args.jobs, args.big))
        rows = [simulated(log, policy) for policy in args.policies.split(",")]
    print(f"seed {args.seed}, {args.big:.0%} big jobs:\n")
    print_table(COLUMNS, [cells(row, rows[0]) for row in rows])
    return 0


if __name__ == "__main__":
    sys.exit(main())
