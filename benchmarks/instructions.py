"""Instructions that mpicoloc adds to one small MPI operation: the same on a busy machine as on a quiet one.

    python benchmarks/instructions.py [--mpirun mpirun.mpich] [--operations rank,iprobe]

One rank under valgrind (cachegrind), which talks to itself; each number is the difference of two lengths of
run. Reading the clock counts as no more than its call: under valgrind it is a system call.
"""

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

import calls
import programs
from accuracy import progress
from accuracy_tables import print_table

WAYS = ("bare", "clock", "mpicoloc", "mpicoloc trace")
LENGTHS = (2000, 6000)
SKIP = ("pingpong", "window")
"""MPI may wait in a send to oneself, and the window is then the same as `self`."""


def n_instructions(launcher, binary, variant, name, n, folder):
    """Instructions of one run of n operations."""
    valgrind = ("valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={folder / 'out'}")
    n_each = max(1, n // (64 if name in ("window", "self") else 1))
    argv = (*launcher.before_rank, *variant.prefix, *valgrind, binary, "-n", str(n_each), name)
    program = programs.Program(variant.name, argv)
    programs.run_command([launcher.mpirun, "-n", "1", *argv], launcher, program, folder)
    found = re.search(r"I\s+refs:\s+([\d,]+)", (folder / "output.txt").read_text())
    if found is None:
        raise RuntimeError(f"valgrind counted nothing: {folder / 'output.txt'}")
    return int(found[1].replace(",", "")), n_each


def per_operation(launcher, binary, variant, name, folder):
    (low, n_low), (high, n_high) = (
        n_instructions(launcher, binary, variant, name, n, folder) for n in LENGTHS
    )
    return (high - low) / (n_high - n_low)


def rows(launcher, names, folder):
    """One line for each operation: bare, then what each variant adds."""
    binary = launcher.compile(programs.CALLS / "micro.c", folder / "micro", "-Wno-stringop-overflow")
    ways = [way for way in calls.variants(launcher, binary, folder) if way.name in WAYS]
    lines = []
    for name in names:
        bare, *others = (per_operation(launcher, binary, way, name, folder) for way in ways)
        lines.append((calls.OPERATIONS[name], f"{bare:.0f}", *(f"{other - bare:.0f}" for other in others)))
        progress(" ".join(lines[-1]))
    return ("operation", *(way.name for way in ways)), lines


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mpirun", default="mpirun.openmpi,mpirun.mpich", help="launchers, one table each")
    names = [name for name in calls.OPERATIONS if name not in SKIP]
    parser.add_argument("--operations", default=",".join(names), help=f"of {', '.join(names)}")
    parser.add_argument("--first", action="store_true", help="take the processors from all others (root)")
    args = parser.parse_args(argv)
    for mpirun in args.mpirun.split(","):
        launcher = programs.Launcher.find(mpirun, "0,1", args.first)
        with tempfile.TemporaryDirectory(prefix="mpicoloc-instr-", ignore_cleanup_errors=True) as folder:
            try:
                columns, lines = rows(launcher, args.operations.split(","), Path(folder))
            finally:
                shutil.rmtree(calls.shm_folder(Path(folder)), ignore_errors=True)
        print(f"\n### {mpirun}: instructions per operation, bare and added\n")
        print_table(columns, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
