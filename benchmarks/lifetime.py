"""Cost of mpicoloc at the start and the end of a job, and its memory for jobs of different lengths.

    python benchmarks/lifetime.py [--mpirun mpirun.openmpi] [--rounds 9] [--calls 10000,1000000,10000000]

Two ranks (`calls/lifetime.c`). The first table is of a program that does nothing but `MPI_Init` and
`MPI_Finalize`: the ways run in random order in each round, and the table has the median of what each way adds
to the bare run of its round, with its 95 % interval. *start* is the time from the launch command to the end
of `MPI_Init`: what is added to it delays the first line of the program. *processor* is the processor time of
all processes of the run, including those that outlive the launcher. The second table has one run for each
number of calls.
"""

import ctypes
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import calls
import programs
from programs import progress
from tables import print_table

WAYS = ("bare", "preload", "wrap", "run")
NAMES = ("start", "init", "finalize", "wall", "processor")
PR_SET_CHILD_SUBREAPER = 36
END_WITHIN_S = 20.0
TRACE_EVENTS = 65536
MIB = 1 << 20


def processor_s():
    """Processor time of all processes that this one has waited for, and of those that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def await_orphans():
    """Wait for the processes that outlive the launcher: they become children of this one."""
    deadline_s = time.monotonic() + END_WITHIN_S
    while time.monotonic() < deadline_s:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return
    raise RuntimeError(f"a process of the job is still there after {END_WITHIN_S} s")


def one_run(launcher, binary, way, n_calls, folder, env=None):
    """Times of one run, in seconds by name, and bytes of segments."""
    argv = (binary, str(n_calls))
    command, extra = programs.way_command(way, launcher, argv, folder / "lifetime.h5")
    extra |= {"MPICOLOC_SHM_DIR": str(calls.shm_folder(folder)), **(env or {})}
    await_orphans()
    begin, begin_s = time.monotonic(), processor_s()
    wall_s = programs.run_command(command, launcher, programs.Program(way, tuple(command)), folder, extra)
    await_orphans()
    text = next(line for line in (folder / "output.txt").read_text().splitlines() if "init_end" in line)
    words = text[text.index("init_end") :].split()
    found = dict(zip(words[::2], map(float, words[1::2]), strict=True))
    used = {"start": found["init_end"] - begin, "wall": wall_s, "processor": processor_s() - begin_s}
    return found | used


def print_start(launcher, binary, args, folder, rng):
    table = {way: {name: [] for name in NAMES} for way in WAYS}
    for i_round in range(args.rounds):
        for way in rng.sample(WAYS, len(WAYS)):
            found = one_run(launcher, binary, way, 0, folder)
            for name in NAMES:
                table[way][name].append(1e3 * found[name])
        progress(f"{Path(launcher.mpirun).name}: round {i_round + 1} of {args.rounds}")
    lines = []
    for way in WAYS[1:]:
        cells = [calls.cost_cell(table, way, name, rng) for name in NAMES]
        lines.append((way, *cells))
    bare = [calls.number(calls.median_at(table["bare"][name], range(args.rounds))) for name in NAMES]
    print_table(("ms", "start", "MPI_Init", "MPI_Finalize", "whole", "processor"), [("bare", *bare), *lines])


def print_lengths(launcher, binary, args, folder):
    lines = []
    for name, env in (("aggregate", {}), ("trace", {"MPICOLOC_TRACE": str(TRACE_EVENTS)})):
        for n_calls in map(int, args.calls.split(",")):
            found = one_run(launcher, binary, "preload", n_calls, folder, env)
            per_rank = found["segments"] / programs.N_RANKS
            size = (folder / "lifetime.h5").stat().st_size
            lines.append((name, f"{n_calls:,}", f"{1e3 * found['finalize']:.0f} ms",
                          f"{per_rank / MIB:.2f} MiB", f"{size / MIB:.2f} MiB"))  # fmt: skip
            progress(" ".join(lines[-1]))
    print_table(("mode", "calls of a rank", "MPI_Finalize", "segment of a rank", "profile"), lines)


def main(argv=None):
    parser = programs.parser(__doc__)
    parser.add_argument("--mpirun", default="mpirun.openmpi,mpirun.mpich", help="launchers, two tables each")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each way (default 9)")
    parser.add_argument("--calls", default="10000,1000000,10000000", help="calls of each rank")
    parser.add_argument("--cores", default="0,1", help="processors the job may use (default 0,1)")
    parser.add_argument("--first", action="store_true", help="take the processors from all others (root)")
    args = parser.parse_args(argv)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Bytecode that is compiled in every process is no part of what a job costs: an installation has it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
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
