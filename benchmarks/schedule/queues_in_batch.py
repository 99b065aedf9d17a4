"""The queues of `queues.py`, with jobs of other lengths, in the simulated batch system.

    python benchmarks/schedule/queues_in_batch.py

Programs and slowdowns are those in results/schedule/queues.json. `mpicoloc batch --sharing service` decides
as the service in Slurm does, once a minute; jobs start at once. A minute.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from modelled import ratio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import programs
import tables

N_CPUS, N_JOBS, N_NODES, N_QUEUES = 2, 10, 5, 20
STEPS = (36, 120, 600)
"""Runs of its program per job."""
LIMIT = 20
"""Time limit of a job, as a multiple of its time alone."""
WAYS = ("none", "blind", "service")


def write_log(path, step_s, seed, n_nodes):
    """A queue of jobs that ask for whole nodes, all submitted at once."""
    rows = [f"; MaxNodes: {n_nodes}", f"; MaxProcs: {N_CPUS * n_nodes}"]
    drawn = np.random.default_rng([seed, n_nodes]).integers(0, len(step_s), N_JOBS * n_nodes)
    for number, i in enumerate(drawn.tolist(), 1):
        run_s = round(float(step_s[i]))
        rows.append(f"{number} 0 -1 {run_s} {N_CPUS} -1 -1 {N_CPUS} {LIMIT * run_s} -1 1 1 1 {i} 1 1 -1 -1")
    path.write_text("\n".join(rows) + "\n")


def makespans(folder, step_s):
    """Makespans of all queues, as a fraction of those without sharing; shape (n_queues, n_ways)."""
    found = []
    for seed in range(N_QUEUES):
        write_log(folder / "queue.swf", step_s, seed, 1 + seed % N_NODES)
        words = ("--sharing", ",".join(WAYS), "--slowdowns", folder / "pairs.csv", "--programs",
                 folder / "programs.csv", "--json")  # fmt: skip
        told = json.loads(programs.mpicoloc_said("batch", folder / "queue.swf", *words))
        found.append([policy["completion_s"]["value"] for policy in told["policies"]])
    return np.array(found) / np.array(found)[:, :1]


def main():
    programs.parser(__doc__).parse_args()
    facts, *rows = tables.read("queues")["data"]
    n_runs = next(row["run"][4] for row in rows if "run" in row)
    slowdowns = [row["slowdown"] for row in rows if "slowdown" in row]
    names, step_s = facts["names"], np.array(facts["runtime_s"]) / n_runs
    made = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pairs = [f"{a},{b},{slowdowns[i][j]}" for i, a in enumerate(names) for j, b in enumerate(names)]
        (folder / "pairs.csv").write_text("\n".join(["target,co_runner,slowdown", *pairs]))
        numbers = [f"{i},{name}" for i, name in enumerate(names)]
        (folder / "programs.csv").write_text("\n".join(["executable,program", *numbers]))
        for n_steps in STEPS:
            shares = makespans(folder, step_s * n_steps)
            made.append([float(step_s.mean() * n_steps), *map(ratio, shares.T[1:])])
    print(tables.markdown({"columns": ["mean job, s", *WAYS[1:]], "formats": ["{:.0f}"] + ["{:.3f}"] * 2,
                           "rows": made}))  # fmt: skip


if __name__ == "__main__":
    main()
