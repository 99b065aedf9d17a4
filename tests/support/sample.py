"""A small profile with every part filled."""

from __future__ import annotations

import numpy as np
from renewal import simulate

from mpicoloc.core.profile import Estimate, Interference, Job, MpiSummary, Profile, Table, table
from mpicoloc.profile.merge import complete

S = 10**9


def job(**changes) -> Job:
    facts = {"id": "42", "command": "lmp -in in.lj", "n_ranks": 2, "n_nodes": 1, "n_cores": 2,
             "mpi_library": "Open MPI v4.1.4", "wall_s": 60.0, "start_unix_s": 1.7e9,
             "mode": "wrap"}  # fmt: skip
    return Job(**{**facts, **changes})


def tables(meter="burst", shared_s=60.0, n_shutters=300, seed=0) -> dict[str, Table]:
    run = simulate(np.random.default_rng(seed), solo_s=[1e-3, 4e-4], slowdown=[1.5, 1.5], cv=0.2)
    t0 = np.arange(n_shutters, dtype=np.uint64) * 200_000_000
    return {
        "ranks": table(
            "ranks",
            {"rank": [0, 1], "i_node": [0, 0], "pid": [100, 101], "n_cores": [1, 1],
             "state": ["finalized"] * 2, "wall_s": [60.0, 60.0], "n_calls": [900, 1100],
             "mpi_ns": [12_000_000_000, 18_000_000_000], "comp_ns": [48_000_000_000, 42_000_000_000],
             "sent_bytes": [4096, 8192], "recv_bytes": [8192, 4096], "n_sent": [10, 10],
             "paused_ns": [600_000_000, 600_000_000], "cpu_s": [59.0, 58.0], "run_delay_s": [0.5, 0.5],
             "involuntary_switches": [40, 40]},
        ),
        "nodes": table(
            "nodes",
            {"hostname": ["n1"], "meter": [meter], "meter_reason": ["no hardware counters"],
             "watched_s": [60.0], "shared_s": [shared_s], "n_pauses": [190], "paused_s": [0.6],
             "n_taken": [n_shutters]},
        ),
        "modules": table("modules", {"path": ["/opt/bin/lmp", "/usr/lib/libx.so"]}),
        "call_sites": table(
            "call_sites",
            {
                "rank": [0, 0, 1],
                "i_site": [0, 5, 7],
                "call": ["MPI_Send", "MPI_Allreduce", "MPI_Allreduce"],
                "i_module": [-1, 0, 1],
                "offset": [0, 0x1234, 0x77],
                "n": [3, 500, 600],
                "sent_bytes": [24, 4000, 0],
                "recv_bytes": [0, 0, 4800],
                "time_ns": [3000, 2_000_000_000, 3_000_000_000],
                "max_ns": [2000, 9_000_000, 8_000_000],
            },
        ),
        "peers": table(
            "peers",
            {"src": [0, 1, 0], "dst": [1, 0, 1], "size_class": [0, 4, 1], "n": [2, 5, 1],
             "bytes": [0, 60, 1]},
        ),
        "cycles": run.cycles,
        "shutters": table(
            "shutters",
            {"i_node": np.zeros(n_shutters), "epoch": np.arange(n_shutters), "t0_ns": t0,
             "t1_ns": t0 + 3_200_000, "verdict": np.ones(n_shutters), "n_corunners": np.ones(n_shutters)},
        ),
        "corunners": table("corunners", {"i_node": [0], "job_id": ["43"], "overlap_s": [shared_s]}),
    }  # fmt: skip


def profile(partial=False, notes=(), **changes) -> Profile:
    return complete(job(), tables(**changes), rng=np.random.default_rng(1), partial=partial, notes=notes)


def timed_profile(wall_s=10.0, slowdown=None, shared_s=0.0, phase=2, partial=False, **tables) -> Profile:
    """Two ranks on a core each: 6 and 8 of 10 s outside MPI, the rest in MPI_Allreduce and MPI_Wait."""
    estimate = None if slowdown is None else Estimate(slowdown, slowdown, slowdown, 9, "1", "burst-matched")
    ranks = {"rank": [0, 1], "n_calls": [1000, 3000], "sent_bytes": [5000, 5000], "n_sent": [10, 10],
             "cpu_s": [9.0, 10.0], "minor_faults": [100.0, 300.0], "voluntary_switches": [50.0, 70.0],
             "migrations": [np.nan] * 2, "peak_rss_bytes": [2e8, np.nan]}  # fmt: skip
    cycles = {"rank": [0, 1, 0], "from_site": [1, 1, 2], "to_site": [2, 2, 1], "phase": [phase] * 3,
              "n": [60, 80, 40], "comp_ns": [4 * S, 8 * S, 2 * S],
              "mpi_ns": [3 * S, 2 * S, 1 * S]}  # fmt: skip
    sites = {"rank": [0, 0, 1], "i_site": [1, 2, 2], "call": ["MPI_Wait", "MPI_Allreduce", "MPI_Allreduce"]}
    full = {"ranks": table("ranks", ranks), "cycles": table("cycles", cycles)}
    full |= {"call_sites": table("call_sites", sites)} | tables
    found = Interference(slowdown=estimate, shared_s=shared_s)
    return Profile(job(wall_s=wall_s), full, MpiSummary(), found, None, partial)
