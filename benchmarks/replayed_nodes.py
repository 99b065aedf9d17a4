"""Propagation by replay against runs: how much a job suffers if one of its two nodes computes more slowly.

    python benchmarks/replayed_nodes.py [--programs heat2d,nbody,lmp,pw] [--repeats 5] [--json]

Two processors stand for two nodes of one rank each. What disturbs a node is a hog that takes a part of its
processor every millisecond, before the rank: a bubble would need a third and a fourth processor, and shared
memory that slows them. The curve on one node is measured with one rank on one processor; `mpicoloc replay
--propagation` stretches the trace of an undisturbed run of two ranks by it, on one and on both nodes; and the
program itself runs with hogs on one and on both. Runs of all settings take turns. Needs root, for hogs that
go first.
"""

import contextlib
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import programs

LEVELS = {4: 0.2, 8: 0.45}
"""Part of a processor that a hog takes, by the name that its level has in curves and matrices."""
HOG = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.nice(-20)
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


@contextlib.contextmanager
def hogs(cores, part):
    """Hogs that take this part of these processors until the end of the block."""
    command = [sys.executable, "-c", HOG]
    started = [subprocess.Popen([*command, str(core), str(part)]) for core in cores]
    try:
        yield
    finally:
        for hog in started:
            hog.kill()
            hog.wait()


class Bench:
    """Programs, each sized once, in a folder."""

    def __init__(self, args):
        self.args, self.work = args, args.work.resolve()
        cores = programs.processors(2)
        self.launchers = {n: programs.Launcher.find(args.mpirun, cores[:n], n_ranks=n) for n in (1, 2)}

    def times(self, name):
        """Median time of the program's main part, s, of each setting."""
        program = programs.prepare(name, self.launchers[2], self.work, self.args.seconds)
        taken = {setting: [] for setting in SETTINGS}
        for _ in range(self.args.repeats):
            for n_ranks, level, n_disturbed in random.sample(SETTINGS, len(SETTINGS)):
                launcher, folder = self.launchers[n_ranks], self.work / f"run-{name}"
                with hogs(launcher.cores[:n_disturbed], LEVELS.get(level, 0)):
                    programs.run(launcher, program, folder)
                taken[n_ranks, level, n_disturbed].append(program.loop_s(folder))
        return program, {setting: statistics.median(values) for setting, values in taken.items()}

    def trace(self, program):
        """The profile of an undisturbed run, with its trace."""
        launcher, folder = self.launchers[2], self.work / f"trace-{program.name}"
        programs.place(program, folder)
        words = ["run", "-n", "2", "--mpirun", launcher.mpirun, "--trace", "all", "--out", "trace.h5"]
        job = programs.start(
            [sys.executable, "-m", "mpicoloc", *words, "--", *program.argv], folder, launcher.cores
        )
        code = job.wait(900)
        programs.stop(job)
        if code != 0:
            raise RuntimeError(f"{program.name} ended with exit code {code}: see {folder / 'output.txt'}")
        return folder / "trace.h5"

    def replayed(self, program, curve):
        """Slowdown by level and number of disturbed nodes, as `mpicoloc replay` says."""
        with tempfile.TemporaryDirectory() as folder:
            curves, matrix = Path(folder) / "curves.csv", Path(folder) / "matrix.csv"
            curves.write_text(
                f"program,score,{','.join(f'level_{level}' for level in curve)}\n"
                f"{program.name},0,{','.join(f'{value:.6f}' for value in curve.values())}\n"
            )
            words = ["replay", str(self.trace(program)), "--topology", "XGFT(1;2;1)", "--name", program.name,
                     "--curves", str(curves), "--propagation", str(matrix), "--profiling", "binary-brute",
                     "--threshold", "1e-6", "--uneven-runs", "0"]  # fmt: skip
            subprocess.run([sys.executable, "-m", "mpicoloc", *words], check=True, stdout=subprocess.DEVNULL)
            with open(matrix) as file:
                rows = {int(float(row["level"])): row for row in csv.DictReader(file)}
        return {(level, n): float(rows[level][f"nodes_{n}"]) for level in LEVELS for n in (1, 2)}

    def rows(self, name):
        """For each level and number of disturbed nodes: curve, replayed, measured, error in percent."""
        program, taken = self.times(name)
        curve = {level: taken[1, level, 1] / taken[1, 0, 0] for level in LEVELS}
        for (level, n), value in self.replayed(program, curve).items():
            measured = taken[2, level, n] / taken[2, 0, 0]
            yield name, n, curve[level], value, measured, 100 * (value / measured - 1)


def main():
    parser = programs.repeats_parser(__doc__, 6)
    parser.set_defaults(repeats=5)
    parser.add_argument("--programs", default="heat2d,nbody,lmp,pw", help="with commas")
    parser.add_argument("--work", type=Path, default=Path("/tmp/mpicoloc-replayed-nodes"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    random.seed(1)
    bench = Bench(args)
    columns = ("program", "disturbed nodes", "curve on one node", "replayed", "measured", "error, %")
    rows = [row for name in args.programs.split(",") for row in bench.rows(name)]
    if args.json:
        json.dump([dict(zip(columns, row, strict=True)) for row in rows], sys.stdout, indent=1)
        return
    print(f"| {' | '.join(columns)} |\n{'| --- ' * len(columns)}|")
    for name, n, *values, error in rows:
        print(f"| {name} | {n} | {' | '.join(f'{value:.3f}' for value in values)} | {error:+.1f} |")


if __name__ == "__main__":
    os.environ |= programs.ROOT_ENV
    main()
