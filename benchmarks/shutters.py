"""Cost of shutters against the model of Breslow et al. 2013, Eq. 9 and 10, as in their Figure 5.

    python benchmarks/shutters.py [--repeats 3] [--seconds 10]
    python benchmarks/shutters.py --pairs lmp+lmp,heat2d+nbody --seconds 45 [--layout apart] [--meter count]

Two jobs of one rank, each on a processor of its own, that do not slow each other (`calls/loose.c`): what
they take longer is what the shutters cost. The duration of the shutters doubles from 0.8 to 51.2 ms, their
period is 200 ms (400 for the last: it is never less than four durations), and the duty limit is lifted. Runs
with shutters and without (meter none) alternate.

With ``--pairs``: what the programs of `toggled/` pay beside each other with default options, after so many
seconds, two ranks each in turns on the same processors (``shared``), or one each on its own (``apart``).
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "toggled"))

import programs
import toggled_programs
from programs import progress
from shutter_cost import paused_frac, stretch
from tables import print_table

from mpicoloc.profile import hdf5

COLUMNS = ("duration, ms", "T / T without", "Eq. 10", "paused", "Eq. 9", "used/taken")
PAIR_COLUMNS = ("layout", "meter", "job", "beside", "overhead", "of that counting", "obeyed, refused",
                "used/taken", "half-width")  # fmt: skip
LAYOUTS = {"shared": (2, ((0, 1), (0, 1))), "apart": (1, ((0,), (1,)))}
"""Ranks, and which of two processors each job has."""
DURATIONS_S = [0.0008 * 2**k for k in range(7)]
PERIOD_S = 0.2
WORK = 1500


class Bench:
    """Both jobs: their launcher, program and folder."""

    def __init__(self, args, folder):
        self.folder = folder
        self.launchers = [
            programs.Launcher.find(args.mpirun, (core,), n_ranks=1) for core in programs.processors(2)
        ]
        self.binary = self.launchers[0].compile(programs.CALLS / "loose.c", folder / "loose")
        trial = self.program(1000)
        programs.run(self.launchers[0], trial, folder)
        self.target = self.program(round(1000 * args.seconds / trial.loop_s(folder)))

    def program(self, n_steps):
        return programs.Program("loose", (self.binary, str(n_steps), str(WORK)))

    def run(self, **options):
        """Loop time of the first job, s, while the other runs longer; and the profile of the first."""
        profile = self.folder / "first.h5"
        profile.unlink(missing_ok=True)
        command = self.launchers[0].command(self.target)
        longer = self.launchers[1].command(self.program(100000000))
        first_env = programs.preload(self.binary, profile) | {"MPICOLOC_JOB_ID": "first"} | options
        other_env = programs.preload(self.binary, self.folder / "other.h5") | options
        other = programs.start(longer, self.folder / "other", self.launchers[1].cores, other_env)
        try:
            programs.run_command(command, self.launchers[0], self.target, self.folder, first_env)
        finally:
            programs.stop(other)
        return self.target.loop_s(self.folder), hdf5.read(profile).interference


def measure(bench, duration_s, n_repeats):
    """A row of the table: medians over the pairs of runs."""
    options = {
        "MPICOLOC_METER": "burst",
        "MPICOLOC_SHUTTER_DURATION_S": str(duration_s),
        "MPICOLOC_SHUTTER_ADAPT": "0",
        "MPICOLOC_SHUTTER_DUTY_FRAC": "0.5",
    }
    ratios, still, counts = [], [], [0, 0]
    for _ in range(n_repeats):
        without_s, _ = bench.run(MPICOLOC_METER="none")
        with_s, found = bench.run(**options)
        ratios.append(with_s / without_s)
        still.append(found.overhead_frac)
        counts = [counts[0] + found.n_used, counts[1] + found.n_taken]
        progress(f"{1e3 * duration_s:.1f} ms: {with_s:.2f} s, without {without_s:.2f} s")
    period_s = PERIOD_S if 4 * duration_s <= PERIOD_S else 2 * PERIOD_S
    model = (f"{stretch(duration_s, period_s, 2):.4f}", f"{100 * paused_frac(duration_s, period_s, 2):.2f} %")
    return (f"{1e3 * duration_s:.1f}", f"{statistics.median(ratios):.4f}", model[0],
            f"{100 * statistics.median(still):.2f} %", model[1], f"{counts[0]}/{counts[1]}")  # fmt: skip


def run_pair(pair, args, folder):
    """Both jobs beside each other for some seconds; their profiles."""
    n_ranks, cores = LAYOUTS[args.layout]
    mine = programs.processors(2)
    launchers = [
        programs.Launcher.find(args.mpirun, [mine[i] for i in own], n_ranks=n_ranks) for own in cores
    ]
    made = [toggled_programs.PREPARE[name](launchers[0], folder / f"prepare-{name}").endless for name in pair]
    jobs, profiles = [], []
    try:
        for i, (program, launcher) in enumerate(zip(made, launchers, strict=True)):
            place = folder / f"{i}-{pair[i]}"
            programs.place(program, place)
            profiles.append(place / "profile.h5")
            env = programs.preload(program.argv[0], profiles[i]) | {"MPICOLOC_METER": args.meter}
            jobs.append(programs.start(launcher.command(program), place, launcher.cores, env))
        time.sleep(args.seconds)
    finally:
        for job in jobs:
            programs.stop(job)
    return [hdf5.read(path) for path in profiles]


def pair_rows(pair, args, folder):
    for name, other, profile in zip(pair, pair[::-1], run_pair(pair, args, folder), strict=True):
        found, node, ranks = profile.interference, profile.tables["nodes"][0], profile.tables["ranks"]
        counting = found.overhead_frac - ranks["paused_ns"].mean() * 1e-9 / profile.job.wall_s
        slowdown = found.slowdown
        width = "-" if slowdown is None else f"{50 * (slowdown.high - slowdown.low) / slowdown.value:.1f} %"
        yield (args.layout, args.meter, name, other, f"{100 * found.overhead_frac:.2f} %",
               f"{100 * counting:.2f} %", f"{node['n_pauses']}, {node['n_refused']}",
               f"{found.n_used}/{found.n_taken}", width)  # fmt: skip


def arguments(argv):
    parser = programs.parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind (default 3)")
    parser.add_argument("--seconds", type=float, default=10.0, help="time of a job alone (default 10)")
    parser.add_argument("--mpirun", default="mpirun.openmpi", help="an Open MPI (default mpirun.openmpi)")
    parser.add_argument("--pairs", default="", help="programs of benchmarks/toggled, as lmp+lmp,heat2d+nbody")
    parser.add_argument("--layout", choices=LAYOUTS, default="shared", help="of the pairs (default shared)")
    parser.add_argument("--meter", default="auto", help="of the pairs (default auto)")
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    if args.pairs:
        lines = []
        for pair in args.pairs.split(","):
            with tempfile.TemporaryDirectory(prefix="mpicoloc-pair-", ignore_cleanup_errors=True) as folder:
                lines += pair_rows(pair.split("+"), args, Path(folder))
        print_table(PAIR_COLUMNS, lines)
        return 0
    with tempfile.TemporaryDirectory(prefix="mpicoloc-shutters-", ignore_cleanup_errors=True) as folder:
        bench = Bench(args, Path(folder))
        print_table(COLUMNS, [measure(bench, duration_s, args.repeats) for duration_s in DURATIONS_S])
    return 0


if __name__ == "__main__":
    sys.exit(main())
