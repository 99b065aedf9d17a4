"""Time to index a folder of many profiles, to look at it again, and to show one large profile.

  python benchmarks/history.py [--profiles 10000] [--ranks 4096]

The profiles are copies of one of four ranks. Goals: the first look takes seconds, the next less than one;
`mpicoloc show` of 4,096 ranks takes less than a second.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace

import numpy as np

from mpicoloc.core.profile import Job
from mpicoloc.core.tables import table
from mpicoloc.profile import hdf5
from mpicoloc.profile.history import history
from mpicoloc.profile.merge import complete

SITES, PEERS = 40, 32


def profile(n_ranks):
    """A job in which each rank has 40 call sites and 32 peers."""
    rng = np.random.default_rng(0)
    ranks = np.arange(n_ranks)
    sites, peers = np.repeat(ranks, SITES), np.repeat(ranks, PEERS)
    numbers = rng.integers(1, 1 << 40, len(sites))
    tables = {
        "ranks": table(
            "ranks",
            {"rank": ranks, "i_node": ranks // 64, "state": ["finalized"] * n_ranks, "wall_s": 60.0 + ranks},
        ),
        "nodes": table("nodes", {"hostname": [f"node{i}" for i in range((n_ranks + 63) // 64)]}),
        "modules": table("modules", {"path": ["app"]}),
        "call_sites": table(
            "call_sites",
            {
                "rank": sites,
                "i_site": np.tile(np.arange(1, SITES + 1), n_ranks),
                "call": ["MPI_Send", "MPI_Recv", "MPI_Allreduce", "MPI_Waitall"] * (len(sites) // 4),
                "offset": np.tile(rng.integers(1 << 20, size=SITES), n_ranks),
                **dict.fromkeys(("n", "n_timed", "sent_bytes", "time_ns"), numbers),
            },
        ),
        "peers": table(
            "peers",
            {
                "src": peers,
                "dst": (peers + np.tile(np.arange(PEERS), n_ranks)) % n_ranks,
                "size_class": np.tile(np.arange(PEERS), n_ranks) % 24,
                "n": np.ones(len(peers)),
                "bytes": rng.integers(1, 1 << 30, len(peers)),
            },
        ),
    }
    job = Job("1", "app", n_ranks, (n_ranks + 63) // 64, n_ranks, "MPICH", 60.0, 1e9)
    return replace(complete(job, tables, rng=rng, rate_su=1.0), notes=())


def indexed(folder, n_profiles):
    """Seconds of the first look at a folder and of the second one."""
    hdf5.write(profile(4), os.path.join(folder, "0.h5"))
    for i in range(1, n_profiles):
        shutil.copy(os.path.join(folder, "0.h5"), os.path.join(folder, f"{i}.h5"))
    times = []
    for _ in range(2):
        started = time.perf_counter()
        assert len(history(folder)) == n_profiles
        times.append(time.perf_counter() - started)
    return times


def shown(folder, n_ranks):
    """Median time of ``mpicoloc show``, and of ``mpicoloc --version``, which is Python's own part of it."""
    path = os.path.join(folder, "large.h5")
    hdf5.write(profile(n_ranks), path)
    times = {}
    for words in (["--version"], ["show", path], ["show", "--json", path]):
        seconds = []
        for _ in range(5):
            started = time.perf_counter()
            argv = [sys.executable, "-m", "mpicoloc.cli.main", *words]
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=120)
            seconds.append(time.perf_counter() - started)
        times[" ".join(words[:-1]) or words[0]] = np.median(seconds)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", type=int, default=10_000)
    parser.add_argument("--ranks", type=int, default=4096)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mpicoloc-history-") as folder:
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
        os.mkdir(os.path.join(folder, "many"))
        first, again = indexed(os.path.join(folder, "many"), options.profiles)
        print(f"{options.profiles:,} profiles: first look {first:.1f} s, second {again:.2f} s")
        for words, seconds in shown(folder, options.ranks).items():
            print(f"mpicoloc {words}, {options.ranks:,} ranks: {seconds:.2f} s")


if __name__ == "__main__":
    main()
