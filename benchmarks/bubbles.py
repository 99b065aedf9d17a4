"""Curves and scores of real programs, and slowdowns of pairs predicted from them against toggled truth.

    python benchmarks/bubbles.py --scores lmp,heat2d,hpcc_STREAM,gromacs
    python benchmarks/bubbles.py --curves lmp,heat2d,hpcc_STREAM,gromacs
    python benchmarks/bubbles.py --pairs lmp+heat2d,heat2d+lmp
    python benchmarks/bubbles.py

One rank each on a processor of its own, of Open MPI. Curves and scores are those of `mpicoloc bubble`, which
must be calibrated. A pair's slowdown is predicted as the first one's curve at the second one's score. Truth:
the second one is stopped and continued from outside inside one run (see toggled/toggled.py). Results are
added to `--out`, a line each; the last line of a name counts. Without programs or pairs: the tables.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "toggled"))

import programs
import toggled_programs
from progress_ratio import slowdown
from toggling import ToggledRun, events_library

from mpicoloc.core.bubbles import SensitivityCurve

ENV = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
LIMIT_S = 300
TOGGLE_S = 0.3
"""Of the co-runner of a pair."""


def launchers(mpirun):
    """Of the target and of the co-runner."""
    return [programs.Launcher.find(mpirun, [core], n_ranks=1) for core in programs.processors(2)]


class Bench:
    """Programs that are prepared, and the file of results."""

    def __init__(self, args):
        self.args, self.work = args, args.work.resolve()
        self.launchers, self.prepared = launchers(args.mpirun), {}

    def prepare(self, name):
        if name not in self.prepared:
            folder = self.work / ("prepare-hpcc" if name.startswith("hpcc") else f"prepare-{name}")
            self.prepared[name] = toggled_programs.PREPARE[name](self.launchers[0], folder)
        return self.prepared[name]

    def bubble(self, word, name, flags, before=()):
        """The result of `mpicoloc bubble`."""
        program, folder = self.prepare(name).endless, self.work / f"{word}-{name}"
        programs.place(program, folder)
        command = [sys.executable, "-m", "mpicoloc", "bubble", word, "--json",
                   "--seconds", f"{self.args.seconds:g}", "--seed", str(self.args.seed),
                   *flags, "--", *before, *program.argv]  # fmt: skip
        with open(folder / "errors.txt", "w") as errors:
            done = subprocess.run(command, cwd=folder, env=programs.environment(ENV), stdout=subprocess.PIPE,
                                  stderr=errors, text=True, timeout=LIMIT_S)  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{word} of {name}: see {folder / 'errors.txt'}")
        return json.loads(done.stdout)

    def score(self, name):
        target, co_runner = (str(one.cores[0]) for one in self.launchers)
        before = [self.args.mpirun, "-n", "1"]
        flags = ["--cores", target, "--app-cores", co_runner]
        return {"what": "score", "name": name, **self.bubble("score", name, flags, before)}

    def curve(self, name):
        target, co_runner = (str(one.cores[0]) for one in self.launchers)
        flags = ["--cores", co_runner, "--app-cores", target, "--levels", self.args.levels]
        return {"what": "curve", "name": name, **self.bubble("sensitivity", name, flags)}

    def pair(self, name):
        """Truth of one pair."""
        watched = [dataclasses.replace(self.prepare(one), toggle_s=TOGGLE_S) for one in name.split("+")]
        both = list(zip(watched, self.launchers, strict=True))
        run = ToggledRun(*both, self.work / name, events_library(self.work), ENV, "none")
        found = run.run(self.args.seconds, np.random.default_rng(self.args.seed))
        return {"what": "pair", "name": name, **slowdown([found.run])}


def read(path):
    """Lines of the file by what they are of; the last one of a name counts."""
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else []
    found = {"score": {}, "curve": {}, "pair": {}}
    for line in lines:
        found[line["what"]][line["name"]] = line
    return found


def predicted(found, target, co_runner):
    """The target's curve at the co-runner's score."""
    curve = found["curve"][target]
    values = [curve[key] for key in ("levels", "slowdown", "low", "high")]
    return SensitivityCurve(target, *values).at(found["score"][co_runner]["score"]).value


def tables(found):
    """Curves and scores, then pairs with their errors, as text."""
    for name, line in found["score"].items():
        mark = " or more" if line["is_beyond_largest"] else ""
        yield (f"{name:14} score {line['score']:.2f} [{line['low']:.2f}, {line['high']:.2f}]{mark}; "
               f"probe {line['probe_slowdown']['value']:.3f}")  # fmt: skip
    for name, line in found["curve"].items():
        cells = (f"{value:.3f} +-{(high - low) / 2:.3f}" for value, low, high in
                 zip(line["slowdown"][1:], line["low"][1:], line["high"][1:], strict=True))  # fmt: skip
        yield f"{name:14} {'  '.join(cells)}"
    errors = []
    for name, line in found["pair"].items():
        target, co_runner = name.split("+")
        if target not in found["curve"] or co_runner not in found["score"]:
            continue
        value = predicted(found, target, co_runner)
        errors.append(value / line["value"] - 1)
        yield (f"{name:26} predicted {value:.3f}, truth {line['value']:.3f} [{line['low']:.3f}, "
               f"{line['high']:.3f}], error {100 * errors[-1]:+.1f} %")  # fmt: skip
    if errors:
        sizes = 100 * np.abs(errors)
        yield f"{len(errors)} pairs: mean absolute error {sizes.mean():.1f} %, largest {sizes.max():.1f} %"


def arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, words in (("--scores", "programs"), ("--curves", "programs"), ("--pairs", "target+co-runner")):
        parser.add_argument(flag, default="", help=f"{words}, with commas")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement (default 30)")
    parser.add_argument("--levels", default="1,2,3,4,5,6,7,8", help="of curves (default all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mpirun", default="mpirun.openmpi")
    parser.add_argument("--work", type=Path, default=Path("/tmp/mpicoloc-bubbles"), help="inputs and outputs")
    parser.add_argument("--out", type=Path, default=Path("bubbles.jsonl"), help="lines are added to it")
    parser.add_argument("--prepare", default="", help="only prepare these programs")
    return parser.parse_args(argv)


def main(argv=None):
    args = arguments(argv)
    bench, failed = Bench(args), False
    for name in filter(None, args.prepare.split(",")):
        bench.prepare(name)
    for what, names in (("score", args.scores), ("curve", args.curves), ("pair", args.pairs)):
        for name in filter(None, names.split(",")):
            try:
                line = getattr(bench, what)(name)
            except (LookupError, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
                print(f"{what} of {name}: {error}", file=sys.stderr)
                failed = True
                continue
            with open(args.out, "a") as file:
                file.write(json.dumps(line) + "\n")
    print("\n".join(tables(read(args.out))))
    return int(failed)


if __name__ == "__main__":
    os.environ |= programs.ROOT_ENV
    sys.exit(main())
