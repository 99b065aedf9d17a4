"""True and estimated slowdown of jobs of two ranks of which one only has a co-runner.

    python benchmarks/coupling.py [--repeats 3] [--seconds 20]

Each rank has a processor of its own; a job of one rank takes turns with the first of them, or with the
second. The jobs (`calls/coupled.c`) meet in every step (tight), at the end only (loose), or take their steps
from one heap (shared); the work of the ranks is equal, or 3 to 1. Runs alternate: alone, together without
mpicoloc, together with it.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import programs
from accuracy import progress, show
from accuracy_tables import percent, print_table

import mpicoloc

COLUMNS = ("job", "work", "disturbed", "T_solo", "true", "true i.", "estimate", "95 % interval", "error",
           "by rank", "long waits")  # fmt: skip
WORK = 1500
CASES = [(style, work, core) for style in ("tight", "loose") for work in ((1, 1), (3, 1)) for core in (0, 1)]
CASES += [("shared", (1, 1), 0)]


class Bench:
    """The launcher, the target of a case, and the job that disturbs it."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.launcher = programs.Launcher.find(args.mpirun, programs.processors(2))
        self.binary = self.launcher.compile(programs.CALLS / "coupled.c", folder / "coupled")
        self.other = [self.launcher.mpirun, "--bind-to", "none", "-n", "1", self.binary, "loose", "100000000",
                      str(WORK), str(WORK)]  # fmt: skip
        self.step_s = self.loop_s(self.program("loose", 1000, (1, 1))) / 1000

    def program(self, style, n_steps, work):
        argv = (self.binary, style, str(n_steps), *(str(WORK * part) for part in work))
        return programs.Program("coupled", argv)

    def loop_s(self, program, env=None):
        command = [self.launcher.mpirun, "--bind-to", "core", "-n", "2", *program.argv]
        programs.run_command(command, self.launcher, program, self.folder, env)
        return program.loop_s(self.folder)

    def disturbed_s(self, program, core, env=None, other_env=None):
        other = programs.start(self.other, self.folder / "other", (self.launcher.cores[core],), other_env)
        try:
            return self.loop_s(program, env)
        finally:
            programs.stop(other)

    def once(self, program, core, profile):
        """Loop time alone, together, together with mpicoloc; and the profile's content."""
        solo_s, bare_s = self.loop_s(program), self.disturbed_s(program, core)
        profile.unlink(missing_ok=True)
        env = programs.preload(self.binary, profile) | {"MPICOLOC_JOB_ID": "target"}
        other = programs.preload(self.binary, profile.with_name("other.h5")) | {"MPICOLOC_JOB_ID": "other"}
        with_s = self.disturbed_s(program, core, env, other)
        return solo_s, bare_s, with_s, show(profile), self.of_ranks(profile)

    @staticmethod
    def of_ranks(profile):
        """Each rank's slowdown and share of long waits, as text."""
        if not profile.exists():
            return "no profile", "-"
        ranks = mpicoloc.open(profile).ranks
        slowdowns = "nan" if ranks["slowdown"].isna().all() else ranks["slowdown"].round(2).tolist()
        return slowdowns, ranks["wait_frac"].round(2).tolist()


def measure(bench, style, work, core):
    """A row of the table: medians over the repeats; interval, ranks and waits of the last run."""
    n_steps = int(bench.args.seconds / bench.step_s / max(work) * (2 if style == "shared" else 1))
    program = bench.program(style, n_steps, work)
    runs = [bench.once(program, core, bench.folder / "target.h5") for _ in range(bench.args.repeats)]
    solo_s, bare_s, with_s = (statistics.median(run[i] for run in runs) for i in range(3))
    found = [run[3]["interference"]["slowdown"] for run in runs if run[3]]
    found = [slowdown for slowdown in found if slowdown]
    value = statistics.median(slowdown["value"] for slowdown in found) if found else None
    interval = f"{found[-1]['low']:.3f}..{found[-1]['high']:.3f}" if found else "-"
    true, own = bare_s / solo_s, with_s / solo_s
    row = (style, ":".join(map(str, work)), f"rank {core}", f"{solo_s:.1f}", f"{true:.3f}", f"{own:.3f}",
           f"{value:.3f}" if found else "null", interval, percent(value / own - 1) if found else "-",
           runs[-1][4][0], runs[-1][4][1])  # fmt: skip
    progress(" ".join(map(str, row)))
    return row


def main(argv=None):
    args = programs.repeats_parser(__doc__, seconds=20.0).parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="mpicoloc-coupling-", ignore_cleanup_errors=True) as folder:
        bench = Bench(args, Path(folder))
        print_table(COLUMNS, [measure(bench, *case) for case in CASES])
    return 0


if __name__ == "__main__":
    sys.exit(main())
