"""Write profiles of jobs that never ran, on a machine whose memory has a known capacity.

To try `mpicoloc fit` and `predict` without a cluster, and to see what a model gets right, as the truth
is known: slowdown of i beside j = 1 + need_i * max(0, use_i + use_j - capacity).

    python examples/simulated_jobs.py FOLDER [N_PROGRAMS]
"""

import sys
from pathlib import Path

import numpy as np

from mpicoloc.core.profile import PHASES, Estimate, Interference, Job, MpiSummary, Profile, table
from mpicoloc.profile import hdf5

CAPACITY = 1.0
SCATTER = 0.02
N_RANKS = 2
S = 10**9


def slowdown(use, need, i, j):
    return 1 + need[i] * max(0.0, use[i] + use[j] - CAPACITY)


def profile(name, i, use, need, solo_s, measured=None, beside=None):
    """One run of program i: what it moves and how it computes tell of its use and need, not quite."""
    wall_s = solo_s * (1.0 if measured is None else measured.value)
    mpi_frac = 0.5 * (1 - need[i] / 1.5)
    amounts = {
        "sent_bytes": int(1e8 * use[i] * solo_s),
        "n_calls": int(500 * solo_s * (2 - need[i])),
        "n_sent": int(200 * solo_s),
        "cpu_s": wall_s,
        "minor_faults": 1e4 * use[i] * solo_s,
        "peak_rss_bytes": 2e9 * use[i],
    }
    gaps = dict.fromkeys(("major_faults", "voluntary_switches", "involuntary_switches", "migrations"), np.nan)
    phase = PHASES.index("alone" if beside is None else "solo")
    spent_ns = int((solo_s if beside is None else 0.02 * wall_s) * S)
    tables = {
        "ranks": {"rank": range(N_RANKS), "wall_s": [wall_s] * N_RANKS}
        | {key: [value] * N_RANKS for key, value in (amounts | gaps).items()},
        "nodes": {
            "hostname": ["n1"],
            "cpu_model": ["a simulated processor"],
            "n_cpus": [4.0],
            "memory_bytes": [2.0**34],
        },
        "cycles": {
            "rank": range(N_RANKS),
            "phase": [phase] * N_RANKS,
            "n": [max(1, spent_ns // int(2e6 * (1 + need[i])))] * N_RANKS,
            "comp_ns": [int(spent_ns * (1 - mpi_frac))] * N_RANKS,
            "mpi_ns": [int(spent_ns * mpi_frac)] * N_RANKS,
        },
    }
    shared_s = 0.0 if beside is None else wall_s
    if beside is not None:
        tables["corunners"] = {"i_node": [0], "job_id": [beside], "overlap_s": [wall_s]}
    job = Job(name, f"./app{i} --input {i}", N_RANKS, 1, N_RANKS, "a simulated MPI", wall_s, 1.8e9)
    full = {key: table(key, columns) for key, columns in tables.items()}
    return Profile(job, full, MpiSummary(), Interference(measured, shared_s=shared_s), None)


def simulated(n_programs, seed=0):
    """File name and profile of each program alone, and of each pair both."""
    rng = np.random.default_rng(seed)
    use, need = rng.uniform(0.2, 1.0, n_programs), rng.uniform(0.2, 1.2, n_programs)
    solo_s = rng.uniform(50, 200, n_programs)
    for i in range(n_programs):
        yield f"alone-{i}", profile(f"alone-{i}", i, use, need, solo_s[i])
    for i in range(n_programs):
        for j in range(i, n_programs):
            names = [f"{i}-beside-{j}", f"{j}-beside-{i}" if i != j else f"{i}-beside-itself"]
            for (one, other), (name, beside) in zip(((i, j), (j, i)), (names, names[::-1]), strict=True):
                value = slowdown(use, need, one, other) * np.exp(rng.normal(0, SCATTER))
                measured = Estimate(
                    value, value * (1 - 2 * SCATTER), value * (1 + 2 * SCATTER), 200, "1", "simulated"
                )
                yield name, profile(name, one, use, need, solo_s[one], measured, beside)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, found in simulated(int(sys.argv[2]) if len(sys.argv) > 2 else 8):
        hdf5.write(found, folder / f"{name}.h5")


if __name__ == "__main__":
    main()
