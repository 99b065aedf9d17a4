"""Time and memory that `mpicoloc batch` takes for logs of real and of drawn jobs.

    python benchmarks/batch.py [--json] [LLNL-Atlas-2006-2.1-cln.swf.gz]
    python benchmarks/batch.py --drawn 100000 --topology 'XGFT(3;32,32,100;1,32,32)'

Each row is a process of its own. Without a log it is the one in examples/batch. Drawn jobs have sizes that
are powers of two, arrive at random, and ask for 0.8 of the machine; their log is made anew by each call, from
one seed. ``--json`` prints the rows for programs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tables

from mpicoloc.batch.allocation import ALLOCATIONS
from mpicoloc.network.topology import xgft

sys.path.insert(0, str(Path(__file__).resolve().parent / "batch"))

import log_files

COLUMNS = ["log", "allocation", "order", "n_jobs", "wall_s", "max_rss_bytes"]
FORMATS = [None, None, None, "{:,}", "{:.1f}", "{:,.0f}"]
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "batch" / "llnl-atlas-cut.swf.gz"
ATLAS = "XGFT(3;18,8,8;1,18,18)"
LOAD = 0.8
MEAN_RUN_S = 3600.0


def run_measured(command, stdout):
    """Run a process; its peak memory, bytes."""
    process = subprocess.Popen(command, stdout=stdout)
    _, status, used = os.wait4(process.pid, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return used.ru_maxrss * 1024


def row(log, allocation, args, topology):
    """One simulation in a process of its own: its row, or the reason why there is none."""
    command = [sys.executable, "-m", "mpicoloc", "-q", "batch", str(log), "--topology", topology,
               "--order", args.order, "--allocation", allocation, "--json"]  # fmt: skip
    with tempfile.TemporaryFile() as out:
        max_rss_bytes = run_measured(command, out)
        out.seek(0)
        found = json.load(out)
    return {"log": log.name, "allocation": allocation, "order": args.order, "n_jobs": found["n_jobs"],
            "wall_s": found["wall_s"], "max_rss_bytes": max_rss_bytes}  # fmt: skip


def draw_log(path, n_jobs, n_nodes, rng):
    """Write a log of drawn jobs in Standard Workload Format, a processor a node."""
    n = 2 ** rng.integers(0, 1 + int(np.log2(max(n_nodes // 64, 1))), n_jobs)
    run_s = np.ceil(rng.exponential(MEAN_RUN_S, n_jobs))
    gap_s = run_s.mean() * n.mean() / (LOAD * n_nodes)
    submit_s = np.floor(np.cumsum(rng.exponential(gap_s, n_jobs)))
    limit_s = run_s * rng.integers(1, 5, n_jobs)
    log_files.write(path, np.arange(1, n_jobs + 1), submit_s, run_s, limit_s, n)


def rows_of(args, folder):
    """A row for each log and allocation."""
    logs = args.logs or ([] if args.drawn else [EXAMPLE])
    if args.drawn:
        logs = [*logs, folder / f"drawn-{args.drawn}.swf"]
        n_nodes = xgft.parse(args.topology, 1e9).n_hosts
        draw_log(logs[-1], args.drawn, n_nodes, np.random.default_rng(0))
    for log in logs:
        for allocation in args.allocations.split(","):
            yield row(log, allocation, args, args.topology)


def main(argv=None):
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("logs", nargs="*", type=Path, help="logs in Standard Workload Format, .gz too")
    parser.add_argument(
        "--drawn", type=int, default=0, metavar="N", help="a log of so many drawn jobs as well"
    )
    parser.add_argument("--topology", default=ATLAS, help=f"of the machine (default {ATLAS})")
    parser.add_argument("--order", default="easy")
    parser.add_argument("--allocations", default=",".join(ALLOCATIONS), help="(default all)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        rows = list(rows_of(args, Path(folder)))
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        cells = [[one[key] for key in COLUMNS] for one in rows]
        print(tables.markdown({"caption": "", "columns": COLUMNS, "formats": FORMATS, "rows": cells}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
