"""Curves and scores of real programs, and slowdowns of pairs predicted from them against toggled truth.

    python benchmarks/bubbles.py --scores lmp,heat2d,hpcc_STREAM,gromacs
    python benchmarks/bubbles.py --curves lmp,heat2d,hpcc_STREAM,gromacs
    python benchmarks/bubbles.py --pairs lmp+heat2d,heat2d+lmp
    python benchmarks/bubbles.py --productions lmp,heat2d
    python benchmarks/bubbles.py

`--ranks` ranks of Open MPI each (default 1), a processor for each rank: the target on the first ones, the
co-runner on the next. Curves and scores are those of `mpicoloc bubble`, which must be calibrated. A pair's
slowdown is predicted as the first one's curve at the second one's score. Truth: the second one is stopped and
continued from outside inside one run (see accuracy.py). Productions: curve and score of the program's
own shutters, in a run with bubbles beside a memory hog that is a job under mpicoloc too; they are compared
with the curves. Results are added to `--out`, a line each; the last line of a name counts. Without programs
or pairs: the tables.
"""

import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "toggled"))

import programs
import toggled_programs
from progress_ratio import slowdown
from toggling import WARM_S, ToggledRun, events_library

from mpicoloc.core.bubbles import SensitivityCurve

ENV = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
LIMIT_S = 300
TOGGLE_S = 0.3
"""Of the co-runner of a pair."""
BUBBLE_FRAC = 0.5
"""Part of the shutters of a production that have a bubble."""
KINDS = {"scores": "score", "curves": "curve", "pairs": "pair", "productions": "production"}
"""Purpose of each flag that takes names."""


def launchers(mpirun, n_ranks):
    """Of the target and of the co-runner."""
    mine = programs.processors(2 * n_ranks)
    found = [programs.Launcher.find(mpirun, own, n_ranks=n_ranks) for own in (mine[:n_ranks], mine[n_ranks:])]
    return [dataclasses.replace(launcher, is_unbound=True) for launcher in found]


def core_list(launcher):
    """Its processors, as flags of `mpicoloc bubble` name them."""
    return ",".join(map(str, launcher.cores))


class Bench:
    """Programs that are prepared, and the file of results."""

    def __init__(self, args):
        self.args, self.work = args, args.work.resolve()
        self.launchers, self.prepared = launchers(args.mpirun, args.ranks), {}

    def prepare(self, name):
        if name not in self.prepared:
            self.prepared[name] = toggled_programs.prepare(name, self.launchers[0], self.work)
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
        target, co_runner = map(core_list, self.launchers)
        before = self.launchers[1].command(programs.Program(name, ()))
        flags = ["--cores", target, "--app-cores", co_runner]
        return {"what": "score", "name": name, **self.bubble("score", name, flags, before)}

    def curve(self, name):
        target, co_runner = map(core_list, self.launchers)
        flags = ["-n", str(self.args.ranks), "--mpirun", self.launchers[0].mpirun, "--cores", co_runner,
                 "--app-cores", target, "--levels", self.args.levels]  # fmt: skip
        return {"what": "curve", "name": name, **self.bubble("sensitivity", name, flags)}

    def pair(self, name):
        """Truth of one pair."""
        watched = [dataclasses.replace(self.prepare(one), toggle_s=TOGGLE_S) for one in name.split("+")]
        target, co_runner = zip(watched, self.launchers, strict=True)
        run = ToggledRun(target, [co_runner], self.work / name, events_library(self.work), ENV, "none")
        found = run.run(run.alternating(self.args.seconds, np.random.default_rng(self.args.seed)))
        return {"what": "pair", "name": name, **slowdown([found.run])}

    def production(self, name):
        """Curve and score of the program's own shutters; their overhead, without what bubbles slow it."""
        beside = self.started("hog", self.launchers[1], self.work / f"production-{name}" / "co-runner")
        try:
            time.sleep(WARM_S)
            flags = ["--meter", "count", "--bubble", f"{BUBBLE_FRAC:g}", *shlex.split(self.args.run_flags)]
            folder = self.work / f"production-{name}" / "target"
            job = self.started(name, self.launchers[0], folder, flags)
            try:
                time.sleep(self.args.seconds)
                has_ended = job.poll() is not None or beside.poll() is not None
            finally:
                programs.stop(job)
        finally:
            programs.stop(beside)
        if has_ended:
            raise RuntimeError(f"a job ended too soon, see {folder.parent}")
        return {"what": "production", "name": name, **shown(folder / "profile.h5")}

    def started(self, name, launcher, folder, flags=()):
        """A program under `mpicoloc run`, with its profile in the folder."""
        program = self.prepare(name).endless
        programs.place(program, folder)
        (folder / "profile.h5").unlink(missing_ok=True)
        command = [sys.executable, "-m", "mpicoloc", "run", "-n", str(launcher.n_ranks), "--mpirun",
                   launcher.mpirun, *(f"--mpirun-arg={word}" for word in launcher.flags(launcher.n_ranks)),
                   "--out", "profile.h5", *flags, "--", *program.argv]  # fmt: skip
        return programs.start(command, folder, launcher.cores, ENV)


def shown(profile):
    """A job's bubbles by `mpicoloc show`, and the part of its time that shutters took."""
    command = [sys.executable, "-m", "mpicoloc", "show", "--json", str(profile)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        raise RuntimeError(f"show cannot read {profile}")
    found = json.loads(done.stdout)
    bubbles = found["bubbles"] or {"reason": "no shutter had a bubble"}
    return {**bubbles, "overhead_frac": found["interference"]["shutters"]["overhead_frac"]}


def read(path):
    """Lines of the file by what they are of; the last one of a name counts."""
    lines = map(json.loads, path.read_text().splitlines()) if path.exists() else []
    found = {what: {} for what in KINDS.values()}
    for line in lines:
        found[line["what"]][line["name"]] = line
    return found


def predicted(found, target, co_runner):
    """The target's curve at the co-runner's score."""
    curve = found["curve"][target]
    values = [curve[key] for key in ("levels", "slowdown", "low", "high")]
    return SensitivityCurve(target, *values).at(found["score"][co_runner]["score"]).value


def is_predictable(found, name):
    """Whether a pair's curve and score are known."""
    target, co_runner = name.split("+")
    return target in found["curve"] and co_runner in found["score"]


def tables(found):
    """Curves and scores, then productions, pairs and placements with their errors, as text."""
    for name, line in found["score"].items():
        mark = " or more" if line["is_beyond_largest"] else ""
        yield (f"{name:14} score {line['score']:.2f} [{line['low']:.2f}, {line['high']:.2f}]{mark}; "
               f"probe {line['probe_slowdown']['value']:.3f}")  # fmt: skip
    for name, line in found["curve"].items():
        cells = (f"{value:.3f} +-{(high - low) / 2:.3f}" for value, low, high in
                 zip(line["slowdown"][1:], line["low"][1:], line["high"][1:], strict=True))  # fmt: skip
        yield f"{name:14} {'  '.join(cells)}"
    yield from production_lines(found)
    yield from pair_lines(found)
    yield from placement_lines(found)


def production_lines(found):
    """Of each production, how far it is from the curve, and what it costs."""
    differences = []
    for name, line in found["production"].items():
        if "levels" not in line:
            yield f"{name:14} in production: no curve: {line['reason']}"
            continue
        columns = (line[key][1:] for key in ("levels", "slowdown", "low", "high"))
        cells = [f"{level:g}: {value:.3f} +-{(high - low) / 2:.3f}"
                 for level, value, low, high in zip(*columns, strict=True)]  # fmt: skip
        known = line["score"]
        score = f"{known['value']:.2f}" if "value" in known else f"none ({known['reason']})"
        words = f"score {score}; overhead {100 * (line['overhead_frac'] or 0.0):.2f} %"
        if name in found["curve"]:
            differences.append(difference(line, found["curve"][name]))
            words += f"; mean difference to its curve {100 * differences[-1]:.1f} %"
        yield f"{name:14} in production {'  '.join(cells)}; {words}"
    if differences:
        yield f"{len(differences)} productions: mean difference {100 * np.mean(differences):.1f} %"


def difference(production, curve):
    """Mean absolute difference at the levels that both have, relative to the curve's slowdown."""
    both = [dict(zip(line["levels"], line["slowdown"], strict=True)) for line in (production, curve)]
    levels = sorted((both[0].keys() & both[1].keys()) - {0.0})
    return float(np.mean([abs(both[0][level] / both[1][level] - 1) for level in levels] or [np.nan]))


def pair_lines(found):
    """Of each pair, prediction and truth."""
    errors = []
    for name, line in found["pair"].items():
        target, co_runner = name.split("+")
        if not is_predictable(found, name):
            continue
        value = predicted(found, target, co_runner)
        errors.append(value / line["value"] - 1)
        yield (f"{name:26} predicted {value:.3f}, truth {line['value']:.3f} [{line['low']:.3f}, "
               f"{line['high']:.3f}], error {100 * errors[-1]:+.1f} %")  # fmt: skip
    if errors:
        sizes = 100 * np.abs(errors)
        yield f"{len(errors)} pairs: mean absolute error {sizes.mean():.1f} %, largest {sizes.max():.1f} %"


def pairings(names):
    """The three placements of four programs on two hosts with two slots."""
    first, *rest = names
    for other in rest:
        yield (first, other), tuple(name for name in rest if name != other)


def both_ways(placement):
    """The names of its four slowdowns, as pairs have them."""
    return [f"{a}+{b}" for one in placement for a, b in (one, one[::-1])]


def placements(found):
    """Of every four programs, the placement predicted to be best and the one predicted to be worst."""
    known = {name for name in found["pair"] if is_predictable(found, name)}
    for names in combinations(sorted({name.split("+")[0] for name in known}), 4):
        every = [both_ways(placement) for placement in pairings(names)]
        if known.issuperset(name for one in every for name in one):
            every.sort(key=lambda one: sum(predicted(found, *name.split("+")) for name in one))
            yield names, every[0], every[-1]


def gain(best, worst, value_of):
    """Mean slowdown of the worst placement less that of the best."""
    return (sum(map(value_of, worst)) - sum(map(value_of, best))) / 4


def placement_lines(found):
    """Gain of the best placement over the worst, as predicted and by the toggled pairs."""
    weights, hoped = Counter(), []
    for names, best, worst in placements(found):
        weights.update(worst)
        weights.subtract(best)
        hoped.append(gain(best, worst, lambda name: predicted(found, *name.split("+"))))
        measured = gain(best, worst, lambda name: found["pair"][name]["value"])
        yield f"{','.join(names):40} gain predicted {hoped[-1]:.3f}, measured {measured:+.3f}"
    if hoped:
        parts = [(n / (4 * len(hoped)), found["pair"][name]) for name, n in weights.items()]
        mean = sum(part * pair["value"] for part, pair in parts)
        half = np.sqrt(sum((part * (pair["high"] - pair["low"]) / 2) ** 2 for part, pair in parts))
        yield (f"{len(hoped)} mixes: gain predicted {np.mean(hoped):.3f}, "
               f"measured {mean:+.3f} +-{half:.3f}")  # fmt: skip


def arguments(argv):
    parser = programs.parser(__doc__)
    for flag in KINDS:
        words = "target+co-runner" if flag == "pairs" else "programs"
        parser.add_argument(f"--{flag}", default="", help=f"{words}, with commas")
    parser.add_argument("--ranks", type=int, default=1, help="of each program (default 1)")
    parser.add_argument("--run-flags", default="", help="more for `mpicoloc run` of productions")
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
    for flag, what in KINDS.items():
        for name in filter(None, getattr(args, flag).split(",")):
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
