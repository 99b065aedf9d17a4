"""Propagation by replay against runs: how much a job suffers if one of its two nodes computes more slowly.

    python benchmarks/replayed_nodes.py [--programs heat2d,nbody,lmp] [--repeats 5] [--json]

Two processors stand for two nodes of one rank each. A node is disturbed by a hog, which takes a part of its
processor every millisecond and goes before the rank. Bubbles would need two more processors, and processors
that slow each other through memory. The curve on one node is measured with one rank on one processor, which
computes the whole problem; `mpicoloc replay --propagation` stretches the trace of an undisturbed run of two
ranks by it, on one and on both nodes; and the program itself runs with hogs on one and on both. Runs of all
settings take turns. Needs root, for hogs that go first.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import overhead
import programs

from mpicoloc.bubble import curves_file
from mpicoloc.core.bubbles import SensitivityCurve

LEVELS = {4: 0.2, 8: 0.45}
"""Part of a processor that a hog asks for, by the name that its level has in curves and matrices."""
HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
part, due = float(sys.argv[2]), time.perf_counter()
while True:
    due += 1e-3
    while time.perf_counter() < due - (1 - part) * 1e-3:
        pass
    time.sleep(max(0.0, due - time.perf_counter()))
"""
SETTINGS = [(1, 0, 0), *((1, level, 1) for level in LEVELS), (2, 0, 0),
            *((2, level, n) for level in LEVELS for n in (1, 2))]  # fmt: skip
"""Ranks, level, disturbed nodes."""
COLUMNS = ("program", "hog asks for, %", "disturbed nodes", "curve on one node", "replayed", "measured",
           "error, %")  # fmt: skip


@contextlib.contextmanager
def hogs(cores, part):
    """Hogs that take this part of these processors until the end of the block."""
    command = [*programs.FIRST, sys.executable, "-c", HOG]
    started = [subprocess.Popen([*command, str(core), str(part)], start_new_session=True) for core in cores]
    try:
        yield
        if any(hog.poll() is not None for hog in started):
            raise RuntimeError("a hog ended before the program, which was not disturbed then")
    finally:
        for hog in started:
            hog.kill()
            hog.wait()


class Bench:
    """Programs, each sized once, in a folder."""

    def __init__(self, args, rng):
        self.args, self.rng, self.work = args, rng, args.work.resolve()
        cores = programs.processors(2)
        self.launchers = {n: programs.Launcher.find(args.mpirun, cores[:n], n_ranks=n) for n in (1, 2)}

    def times(self, name):
        """The program, and what its main part took in each round, s, by setting."""
        program = programs.prepare(name, self.launchers[2], self.work, self.args.seconds)
        taken = {setting: [] for setting in SETTINGS}
        for _ in range(self.args.repeats):
            for n_ranks, level, n_disturbed in self.rng.sample(SETTINGS, len(SETTINGS)):
                launcher, folder = self.launchers[n_ranks], self.work / f"run-{name}"
                with hogs(launcher.cores[:n_disturbed], LEVELS.get(level, 0)):
                    programs.run(launcher, program, folder)
                taken[n_ranks, level, n_disturbed].append(program.loop_s(folder))
        return program, taken

    def trace(self, program):
        """The profile of an undisturbed run, with its trace."""
        launcher, folder = self.launchers[2], self.work / f"trace-{program.name}"
        words = ["run", "-n", "2", "--mpirun", launcher.mpirun, "--trace", "all", "--out", "trace.h5"]
        command = [sys.executable, "-m", "mpicoloc", *words, "--", *program.argv]
        programs.run_command(command, launcher, program, folder)
        return folder / "trace.h5"

    def replayed(self, program, curve):
        """Slowdown by level and number of disturbed nodes, as `mpicoloc replay` says."""
        with tempfile.TemporaryDirectory() as folder:
            curves, matrix = (str(Path(folder) / name) for name in ("curves.csv", "matrix.csv"))
            curves_file.update(curves, program.name, curve)
            words = ["replay", str(self.trace(program)), "--topology", "XGFT(1;2;1)", "--name", program.name,
                     "--curves", curves, "--propagation", matrix, "--profiling", "binary-brute",
                     "--threshold", "1e-6", "--uneven-runs", "0"]  # fmt: skip
            subprocess.run([sys.executable, "-m", "mpicoloc", *words], check=True, stdout=subprocess.DEVNULL)
            times = curves_file.matrices(matrix)[program.name].times
        return {(level, n): float(times[level - 1, n]) for level in LEVELS for n in (1, 2)}

    def ratio(self, taken, disturbed):
        """What the program takes longer than undisturbed in the same round: median, and ends of 95 %."""
        alone = taken[disturbed[0], 0, 0]
        ratios = [slow / fast for slow, fast in zip(taken[disturbed], alone, strict=True)]
        return overhead.interval(ratios, self.rng)

    def rows(self, name):
        """Of one program, as `COLUMNS` says."""
        program, taken = self.times(name)
        curve = {level: self.ratio(taken, (1, level, 1)) for level in LEVELS}
        ends = [(1.0, *values) for values in zip(*curve.values(), strict=True)]
        replayed = self.replayed(program, SensitivityCurve(program.name, [0.0, *LEVELS], *ends))
        for (level, n), value in replayed.items():
            measured = self.ratio(taken, (2, level, n))
            error = 100 * (value / measured[0] - 1)
            yield name, 100 * LEVELS[level], n, curve[level], value, measured, error


def main():
    parser = programs.repeats_parser(__doc__, 4)
    parser.set_defaults(repeats=5)
    parser.add_argument("--programs", default="heat2d,nbody,lmp", help="with commas")
    parser.add_argument("--work", type=Path, default=Path("/tmp/mpicoloc-replayed-nodes"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("needs root: hogs go before the ranks of a program")
    bench = Bench(args, random.Random(1))
    rows = [row for name in args.programs.split(",") for row in bench.rows(name)]
    if args.json:
        json.dump([dict(zip(COLUMNS, row, strict=True)) for row in rows], sys.stdout, indent=1)
        return
    print(f"| {' | '.join(COLUMNS)} |\n{'| --- ' * len(COLUMNS)}|")
    for row in rows:
        name, part, n, curve, replayed, measured, error = row
        curve, measured = ("{:.3f} [{:.3f}, {:.3f}]".format(*value) for value in (curve, measured))
        print(f"| {name} | {part:.0f} | {n} | {curve} | {replayed:.3f} | {measured} | {error:+.1f} |")


if __name__ == "__main__":
    os.environ |= programs.ROOT_ENV
    main()
