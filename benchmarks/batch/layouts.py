"""Two logs of the Parallel Workloads Archive in every layout: a table of `docs/explain/batch-sharing.md`.

    python benchmarks/batch/layouts.py ../shared/swf [--seeds 5]

Each user's executable is drawn as one of three programs, whose slowdowns span those of Breslow et al. 2013:
at most 1.62, on average 1.14. KTH-SP2, whose nodes have one processor, is taken as 25 nodes of four.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import programs
from programs import progress
from tables import print_table

LOGS = {
    "KTH-SP2": ("KTH-SP2-1996-2.swf.gz", "XGFT(1;25;1)", 4),
    "LLNL-Atlas": ("LLNL-Atlas-2006-2.1-cln.swf.gz", "XGFT(3;18,8,8;1,18,18)", 8),
}
"""File, topology, and cores of a node."""
CURVES = """program,score,level_1,level_4,level_8
memory,8,1.05,1.3,1.6
mixed,4,1.02,1.15,1.3
arithmetic,0.5,1,1.01,1.02
"""
SHARING = "none,cores,cores-model,spread,spread-model"
FIGURES = {
    "nodes with a job, %": ("utilisation_frac", 100, "{:.1f}"),
    "saved of the machine, %": ("saved_frac", 100, "{:.1f}"),
    "wait, min": ("wait_mean_s", 1 / 60, "{:.3g}"),
    "slowdown": ("slowdown_mean", 1, "{:.3f}"),
    "lost, node hours": ("lost_node_hours", 1, "{:,.0f}"),
}


def simulated(file, topology, n_cores, n_seeds, curves):
    words = ["batch", str(file), "--topology", topology, "--cores-per-node", str(n_cores), "--skip-larger",
             "--allocation", "best-fit", "--sharing", SHARING, "--curves", str(curves),
             "--seeds", str(n_seeds), "--json"]  # fmt: skip
    command = [sys.executable, "-m", "mpicoloc", *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def interval(figure, scale, form):
    if figure is None:
        return "-"
    value, low, high = (form.format(scale * figure[end]) for end in ("value", "low", "high"))
    return value if low == high else f"{value} [{low}, {high}]"


def main():
    parser = programs.parser(__doc__)
    parser.add_argument("folder", type=Path, help="where the logs lie")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        curves = Path(folder) / "curves.csv"
        curves.write_text(CURVES)
        for name, log in LOGS.items():
            told = simulated(args.folder / log[0], *log[1:], args.seeds, curves)
            found += [
                (name, policy["sharing"], *(interval(policy[key], *how) for key, *how in FIGURES.values()))
                for policy in told["policies"]
            ]
            progress(f"{name}: {told['wall_s']:.0f} s")
    print_table(("log", "layout", *FIGURES), found)


if __name__ == "__main__":
    main()
