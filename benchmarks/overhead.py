"""Cost of mpicoloc for a job that is alone on its node: paired runs with and without it, in turns.

    python benchmarks/overhead.py [--programs lmp,heat2d] [--ways preload,wrap] [--pairs 5] [--seconds 20]

Prints the median ratio of the pairs with its 95 % interval (bootstrap over pairs). Wall time is that of the
whole launcher command: it includes the start of mpicoloc and the writing of the profile. Loop time is the
programs' own timing of their main part, where they have one (HPCC: its MPI RandomAccess). The ways ``count``
and ``clock`` run a minimal shim instead of mpicoloc: the least that any shim costs (`calls/floor.c`).
"""

import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import calls
import programs
from programs import progress
from tables import print_table

COLUMNS = ("program", "way", "pairs", "bare", "ratio of wall time", "ratio of loop time")
FLOORS = ("count", "clock")
WAYS = ("preload", "wrap", "run", *FLOORS)


def way_command(way, launcher, program, profile):
    """Command and environment of one run."""
    if way not in FLOORS:
        return programs.way_command(way, launcher, program.argv, profile)
    flags = ("-shared", "-fPIC", f"-DFLOOR_{way.upper()}")
    library = launcher.compile(programs.CALLS / "floor.c", profile.with_name(f"floor-{way}.so"), *flags)
    return programs.way_command("bare", launcher, program.argv, profile)[0], {"LD_PRELOAD": library}


def timed(launcher, program, folder, way, profile):
    """Wall time and loop time (or None) of one run."""
    command, env = way_command(way, launcher, program, profile)
    return programs.run_command(command, launcher, program, folder, env), program.loop_s(folder)


def ratio_text(bare, instrumented, rng):
    if None in bare or None in instrumented:
        return "-"
    ratios = [b / a for a, b in zip(bare, instrumented, strict=True)]
    found = calls.bootstrap(lambda rounds: calls.median_at(ratios, rounds), len(ratios), rng)
    return "{:.4f} [{:.4f}, {:.4f}]".format(*found)


def measure(launcher, program, way, args, folder):
    """One row of the table: pairs of runs, the order within a pair changing from pair to pair."""
    bare, instrumented = [], []
    for i_pair in range(args.pairs):
        order = ("bare", way) if i_pair % 2 == 0 else (way, "bare")
        for which in order:
            times = timed(launcher, program, folder / program.name, which, folder / f"{way}.h5")
            (bare if which == "bare" else instrumented).append(times)
        progress(f"{program.name} {way}: bare {bare[-1][0]:.2f} s, instrumented {instrumented[-1][0]:.2f} s")
    rng = random.Random(1)
    wall = ratio_text([t[0] for t in bare], [t[0] for t in instrumented], rng)
    loop = ratio_text([t[1] for t in bare], [t[1] for t in instrumented], rng)
    return program.name, way, args.pairs, f"{statistics.median(t[0] for t in bare):.2f} s", wall, loop


def arguments(argv):
    parser = programs.parser(__doc__)
    parser.add_argument("--programs", default="lmp,heat2d", help=f"of {', '.join(programs.PREPARE)}")
    parser.add_argument("--ways", default="preload,wrap", help=f"of {', '.join(WAYS)} (default preload,wrap)")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs (default 5)")
    parser.add_argument("--seconds", type=float, default=20.0, help="time of a bare run (default 20)")
    parser.add_argument("--mpirun", default="mpirun.openmpi", help="launcher (default mpirun.openmpi)")
    parser.add_argument("--cores", default="0,1", help="processors the job may use (default 0,1)")
    parser.add_argument("--first", action="store_true", help="take the processors from all others (root)")
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    launcher = programs.Launcher.find(args.mpirun, args.cores, args.first)
    lines = []
    with tempfile.TemporaryDirectory(prefix="mpicoloc-overhead-", ignore_cleanup_errors=True) as folder:
        for name in args.programs.split(","):
            try:
                program = programs.prepare(name, launcher, Path(folder), args.seconds)
                for way in args.ways.split(","):
                    lines.append(measure(launcher, program, way, args, Path(folder)))
            except (LookupError, RuntimeError, subprocess.SubprocessError) as error:
                print(f"{name}: {error}", file=sys.stderr)
    print_table(COLUMNS, lines)
    return 0 if lines else 1


if __name__ == "__main__":
    sys.exit(main())
