"""Time that mpicoloc adds to one small MPI operation, beside minimal shims and other tools.

    python benchmarks/calls.py [--mpirun mpirun.openmpi,mpirun.mpich] [--rounds 12] [--seconds 0.8]

Two ranks on two processors. A round runs every variant once, in random order, as a job of its own that times
short bursts of each operation (`calls/micro.c`) and keeps their 5 % quantile. The tables have the median over
the rounds of what a variant adds to the bare run of the same round, in ns per operation, with its 95 %
interval (bootstrap over rounds): on a busy machine the intervals get wide. Operations between the ranks are
compared only in rounds in which a cache line took about as long between the two processors with and without
the variant. The floors are shims that do the least possible, from `calls/floor.c`, measured in the same run.
"""

import json
import os
import random
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import programs
from programs import progress
from tables import print_table

BURST_US = 300
N_BOOTSTRAP = 2000
FLOORS = {"counter": "COUNT", "clock": "CLOCK", "tsc": "TSC"}
OPERATIONS = {
    "rank": "MPI_Comm_rank",
    "iprobe": "MPI_Iprobe, nothing there",
    "test": "MPI_Test, not done",
    "testany": "MPI_Testany of 8, none done",
    "flush": "MPI_Win_flush, nothing pending",
    "put": "MPI_Put of 8 bytes, MPI_Win_flush",
    "get": "MPI_Get of 8 bytes, MPI_Win_flush",
    "pingpong": "8-byte ping-pong, round trip",
    "allreduce": "MPI_Allreduce of 8 bytes",
    "window": "64 Isend, 64 Irecv, Waitall",
    "self": "the same with itself",
}
LINE = "line"
"""Turns of a cache line between the two processors, no MPI call: a measure of their distance."""
BETWEEN = ("put", "get", "pingpong", "allreduce", "window")
"""Operations that this distance changes."""
SAME_LINE = 1.25
"""Runs whose distances differ by a larger factor do not compare."""
LIMITS = {"mpicoloc": 1.5, "mpicoloc trace": 2.5}
"""Target of each variant: the most that it adds, as a multiple of what the clock floor adds."""


@dataclass(frozen=True)
class Variant:
    """One way to run the program: what stands before it, and the operations at which this tool crashes."""

    name: str
    prefix: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


def variants(launcher, micro, folder):
    """Bare first; then the floors, mpicoloc, and each peer that is installed."""
    found = [Variant("bare")]
    for name, define in FLOORS.items():
        flags = (f"-DFLOOR_{define}", "-shared", "-fPIC")
        library = launcher.compile(programs.CALLS / "floor.c", folder / f"floor-{name}.so", *flags)
        found.append(Variant(name, ("env", f"LD_PRELOAD={library}")))
    env = programs.preload(micro, folder / "calls.h5") | {"MPICOLOC_SHM_DIR": str(shm_folder(folder))}
    ours = ("env", *(f"{name}={value}" for name, value in env.items()))
    found += [Variant("mpicoloc", ours), Variant("mpicoloc trace", (*ours, "MPICOLOC_TRACE=65536"))]
    found += [Variant("mpicoloc trace all", (*ours, "MPICOLOC_TRACE=all"))]
    eztrace = shutil.which("eztrace")
    if eztrace:
        module = "openmpi" if launcher.is_openmpi else "mpich"
        # EZTrace 2.0 dereferences the ignored status of an MPI_Testany that finds nothing
        found.append(Variant("EZTrace", (eztrace, "-t", module, "-o", str(folder / "eztrace")), ("testany",)))
    return found


def shm_folder(folder):
    """Shared memory of its own for these jobs: no shutters with other jobs of the machine."""
    place = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else folder) / folder.name
    place.mkdir(exist_ok=True)
    return place


def timed(launcher, micro, variant, operations, args, folder):
    """ns per operation of one job."""
    kinds = [name for name in (LINE, *operations) if name not in variant.skip]
    n_bursts = max(10, round(args.seconds * 1e6 / BURST_US / len(kinds)))
    argv = (*launcher.before_rank, *variant.prefix, micro, str(n_bursts), str(BURST_US), *kinds)
    bind = "--bind-to" if launcher.is_openmpi else "-bind-to"
    command = [launcher.mpirun, bind, "core", "-n", str(programs.N_RANKS), *argv]
    programs.run_command(command, launcher, programs.Program(variant.name, argv), folder)
    lines = [line.split() for line in (folder / "output.txt").read_text().splitlines()]
    times = {line[0]: float(line[1]) for line in lines if len(line) == 3 and line[0] in kinds}
    if missing := set(kinds) - set(times):
        raise RuntimeError(f"{variant.name} printed no time for {', '.join(sorted(missing))}")
    shutil.rmtree(folder / "eztrace", ignore_errors=True)
    return times


def measure(launcher, args, folder, rng):
    """Times by variant, operation and round; a variant that fails is left out from then on."""
    # GCC takes MPICH's MPI_STATUSES_IGNORE for an array
    micro = launcher.compile(programs.CALLS / "micro.c", folder / "micro", "-Wno-stringop-overflow")
    ways = variants(launcher, micro, folder)
    names = (LINE, *args.operations)
    table = {way.name: {name: [] for name in names if name not in way.skip} for way in ways}
    for i_round in range(args.rounds):
        for way in rng.sample(ways, len(ways)):
            try:
                times = timed(launcher, micro, way, args.operations, args, folder)
            except RuntimeError as error:
                if way.name == "bare" or way.name in LIMITS:
                    raise
                progress(f"left out: {error}")
                ways.remove(way)
                del table[way.name]
                continue
            for name, ns in times.items():
                table[way.name][name].append(ns)
        progress(f"{Path(launcher.mpirun).name}: round {i_round + 1} of {args.rounds}")
    return table


def bootstrap(statistic, n, rng):
    """Value over all rounds, and its 95 % interval over rounds drawn again; None without a value."""
    drawn = [statistic(rng.choices(range(n), k=n)) for _ in range(N_BOOTSTRAP)]
    drawn = sorted(value for value in drawn if value is not None)
    middle = statistic(range(n))
    if middle is None or len(drawn) < N_BOOTSTRAP // 2:
        return None
    return middle, drawn[int(0.025 * len(drawn))], drawn[int(0.975 * len(drawn))]


def added(table, variant, name):
    """ns that a variant adds, by round; None where the processors were not the same distance apart."""
    values = [b - a for a, b in zip(table["bare"][name], table[variant][name], strict=True)]
    if name not in BETWEEN:
        return values
    lines = zip(table["bare"][LINE], table[variant][LINE], strict=True)
    return [
        value if max(pair) <= SAME_LINE * min(pair) else None
        for value, pair in zip(values, lines, strict=True)
    ]


def median_at(values, rounds):
    known = [values[i] for i in rounds if values[i] is not None]
    return statistics.median(known) if known else None


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def cost_cell(table, variant, name, rng):
    if name not in table[variant]:
        return "crashes"
    values = added(table, variant, name)
    found = bootstrap(lambda rounds: median_at(values, rounds), len(values), rng)
    return "no pair" if found is None else "{} [{}, {}]".format(*map(number, found))


def ratio(table, variant, floor, name, rng):
    """Cost of a variant over a floor's, with its interval; None if the floor's is not clearly above 0."""
    ours, least = added(table, variant, name), added(table, floor, name)

    def statistic(rounds):
        above, below = median_at(ours, rounds), median_at(least, rounds)
        return None if above is None or below is None else above / max(below, 1e-9)

    seen = bootstrap(lambda rounds: median_at(least, rounds), len(least), rng)
    if seen is None or seen[1] <= 0:
        return None
    return bootstrap(statistic, len(ours), rng)


def ratio_cell(found, limit=None):
    """A target counts as met or missed only if the whole interval is on that side of it."""
    if found is None:
        return "floor not seen"
    middle, low, high = found
    verdict = "" if limit is None else " met" if high <= limit else " missed" if low > limit else " open"
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]{verdict}"


def print_costs(table, operations, rng):
    others = [name for name in table if name != "bare"]
    lines = []
    for name in operations:
        cells = [cost_cell(table, other, name, rng) for other in others]
        lines.append((OPERATIONS[name], number(statistics.median(table["bare"][name])), *cells))
    print("ns per operation: bare, then what is added; median of the rounds [95 % interval]\n")
    print_table(("operation", "bare", *others), lines)
    turns = [ns for times in table.values() for ns in times[LINE]]
    print(f"\nround trip of a cache line between the processors: {min(turns):.0f} to {max(turns):.0f} ns")


def print_ratios(table, operations, rng):
    lines = []
    for name in operations:
        cells = [ratio_cell(ratio(table, ours, "clock", name, rng), limit) for ours, limit in LIMITS.items()]
        cells += [ratio_cell(ratio(table, ours, "tsc", name, rng)) for ours in LIMITS]
        lines.append((OPERATIONS[name], *cells))
    heads = [f"{ours} / clock, target {limit}" for ours, limit in LIMITS.items()]
    print("\nadded by mpicoloc over added by a floor\n")
    print_table(("operation", *heads, *(f"{ours} / tsc" for ours in LIMITS)), lines)


def arguments(argv):
    parser = programs.parser(__doc__)
    parser.add_argument("--mpirun", default="mpirun.openmpi,mpirun.mpich", help="launchers, one table each")
    parser.add_argument("--rounds", type=int, default=12, help="runs of each variant (default 12)")
    parser.add_argument(
        "--seconds", type=float, default=0.8, help="time of all bursts of a run (default 0.8)"
    )
    parser.add_argument("--operations", default=",".join(OPERATIONS), help=f"of {', '.join(OPERATIONS)}")
    parser.add_argument("--cores", default="0,1", help="processors the job may use (default 0,1)")
    parser.add_argument("--raw", metavar="FILE", help="also write the times of all rounds, as JSON")
    parser.add_argument("--first", action="store_true", help="take the processors from all others (root)")
    args = parser.parse_args(argv)
    args.operations = args.operations.split(",")
    if unknown := set(args.operations) - set(OPERATIONS):
        parser.error(f"no operation {', '.join(sorted(unknown))}")
    return args


def main(argv=None):
    args = arguments(argv)
    rng = random.Random(1)
    raw = {}
    for mpirun in args.mpirun.split(","):
        launcher = programs.Launcher.find(mpirun, args.cores, args.first)
        with tempfile.TemporaryDirectory(prefix="mpicoloc-calls-", ignore_cleanup_errors=True) as folder:
            try:
                table = measure(launcher, args, Path(folder), rng)
            finally:
                shutil.rmtree(shm_folder(Path(folder)), ignore_errors=True)
        raw[mpirun] = table
        print(f"\n### {mpirun}, {args.rounds} rounds\n")
        print_costs(table, args.operations, rng)
        print_ratios(table, args.operations, rng)
    if args.raw:
        Path(args.raw).write_text(json.dumps(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
