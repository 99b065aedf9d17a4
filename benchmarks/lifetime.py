"""What mpicoloc costs at the start and the end of a job, and how much memory it takes at any run length.

    python benchmarks/lifetime.py [--mpirun mpirun.openmpi] [--rounds 9] [--calls 10000,1000000,10000000]

Two ranks (`calls/lifetime.c`). The first table compares a program that does nothing but `MPI_Init` and
`MPI_Finalize`: runs in random order, the median of what each way adds to the bare run of its round, with its
95 % interval. *start* is from the launcher's command to the end of `MPI_Init`: the time that a user waits
longer for the first line of the program. The second table has one run for each length.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import calls
import programs
from accuracy import progress
from accuracy_tables import print_table

WAYS = ("bare", "preload", "wrap")
TRACE_EVENTS = 65536
MIB = 1 << 20


def one_run(launcher, binary, way, n_calls, args, folder, env=None):
    """Times of one run, in seconds by name, and bytes of segments."""
    extra = {"MPICOLOC_SHM_DIR": str(calls.shm_folder(folder)), **(env or {})}
    n_ranks, prefix = programs.N_RANKS, ()
    if way == "preload":
        ours = programs.preload(binary, folder / "lifetime.h5")
        prefix = ("env", *(f"{name}={value}" for name, value in ours.items()))
    elif way == "wrap":
        n_ranks, prefix = n_ranks + 1, (sys.executable, "-m", "mpicoloc.wrap")
        extra["MPICOLOC_OUT"] = str(folder / "lifetime.h5")
    argv = (*launcher.before_rank, *prefix, binary, str(n_calls))
    command = [launcher.mpirun, *launcher.flags(n_ranks), "-n", str(n_ranks), *argv]
    begin = time.monotonic()
    wall_s = programs.run_command(command, launcher, programs.Program(way, argv), folder, extra)
    text = next(line for line in (folder / "output.txt").read_text().splitlines() if "init_end" in line)
    words = text[text.index("init_end") :].split()
    found = dict(zip(words[::2], map(float, words[1::2]), strict=True))
    return found | {"start": found["init_end"] - begin, "wall": wall_s}


def print_start(launcher, binary, args, folder, rng):
    names = ("start", "init", "finalize", "wall")
    table = {way: {name: [] for name in names} for way in WAYS}
    for i_round in range(args.rounds):
        for way in rng.sample(WAYS, len(WAYS)):
            found = one_run(launcher, binary, way, 0, args, folder)
            for name in names:
                table[way][name].append(1e3 * found[name])
        progress(f"{Path(launcher.mpirun).name}: round {i_round + 1} of {args.rounds}")
    lines = []
    for way in WAYS[1:]:
        cells = [calls.cost_cell(table, way, name, rng) for name in names]
        lines.append((way, *cells))
    bare = [calls.number(calls.median_at(table["bare"][name], range(args.rounds))) for name in names]
    print_table(("ms", "start", "MPI_Init", "MPI_Finalize", "whole"), [("bare", *bare), *lines])


def print_lengths(launcher, binary, args, folder):
    lines = []
    for name, env in (("aggregate", {}), ("trace", {"MPICOLOC_TRACE": str(TRACE_EVENTS)})):
        for n_calls in map(int, args.calls.split(",")):
            found = one_run(launcher, binary, "preload", n_calls, args, folder, env)
            per_rank = found["segments"] / programs.N_RANKS
            size = (folder / "lifetime.h5").stat().st_size
            lines.append((name, f"{n_calls:,}", f"{1e3 * found['finalize']:.0f} ms",
                          f"{per_rank / MIB:.2f} MiB", f"{size / MIB:.2f} MiB"))  # fmt: skip
            progress(" ".join(lines[-1]))
    print_table(("mode", "calls of a rank", "MPI_Finalize", "segment of a rank", "profile"), lines)


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mpirun", default="mpirun.openmpi,mpirun.mpich", help="launchers, two tables each")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each way (default 9)")
    parser.add_argument("--calls", default="10000,1000000,10000000", help="calls of each rank")
    parser.add_argument("--cores", default="0,1", help="processors the job may use (default 0,1)")
    parser.add_argument("--first", action="store_true", help="take the processors from all others (root)")
    args = parser.parse_args(argv)
    for mpirun in args.mpirun.split(","):
        launcher = programs.Launcher.find(mpirun, args.cores, args.first)
        with tempfile.TemporaryDirectory(prefix="mpicoloc-life-", ignore_cleanup_errors=True) as folder:
            place = Path(folder)
            try:
                binary = launcher.compile(programs.CALLS / "lifetime.c", place / "lifetime")
                print(f"\n### {mpirun}\n")
                print_start(launcher, binary, args, place, random.Random(1))
                print()
                print_lengths(launcher, binary, args, place)
            finally:
                shutil.rmtree(calls.shm_folder(place), ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
