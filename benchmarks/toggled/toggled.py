"""Slowdowns found by mpicoloc against a truth that holds on a noisy machine.

    python benchmarks/toggled/toggled.py --pairs lmp+hog,pw+nwchem [--layout apart] [--meters default,burst]
    python benchmarks/toggled/toggled.py --targets all --beside hog,next --publish
    python benchmarks/toggled/toggled.py --publish

Truth: the bare program beside its co-runner, which is stopped and continued from outside every second or so,
at random times. Steps per second without the co-runner over those beside it, of neighbouring seconds: what
the host does meanwhile cancels. Two such runs, and between them the same two programs under mpicoloc, the
target for ``--seconds``, once for each of ``--meters``. Of a pair A+B, A is the target.

Layout ``apart``: a rank each on a processor of its own; ``shared``: two ranks each, in turns on the same two;
``threads``: a rank of two threads each, likewise. About 2.5 min for a pair with one meter, 1.1 min more for
each further one. Pairs that stand in ``--out`` are not measured again. ``--publish`` writes
results/accuracy-toggled.json of all that stand there. Debian packages:

    {packages}
"""

import argparse
import datetime
import json
import signal
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import accuracy
import programs
import toggled_programs
import toggled_tables
from progress_ratio import slowdown, window_counts
from toggling import Truth, events_library

import mpicoloc
from mpicoloc import config

LAYOUTS = {
    "apart": (1, 1, ((0,), (1,))),
    "shared": (2, 1, ((0, 1), (0, 1))),
    "threads": (1, 2, ((0, 1), (0, 1))),
}
"""Ranks, threads of a rank, and which of two processors the target and the co-runner have."""
CO_RUNNERS = ("hog", "spinner")
TARGETS = tuple(name for name in toggled_programs.PREPARE if name not in CO_RUNNERS)
LIMIT_FACTOR, LIMIT_S = 4, 120
"""A run under mpicoloc may take so many times ``--seconds``, and so much more."""


class Pairs:
    """What was prepared, and the file of what was measured."""

    def __init__(self, args):
        self.args, self.work = args, args.work.resolve()
        self.n_ranks, self.n_threads, cores = LAYOUTS[args.layout]
        mine = programs.processors(2)
        self.launchers = [programs.Launcher.find(args.mpirun, [mine[i] for i in own], n_ranks=self.n_ranks)
                          for own in cores]  # fmt: skip
        self.env = {"OMP_NUM_THREADS": str(self.n_threads), "OPENBLAS_NUM_THREADS": str(self.n_threads)}
        self.library, self.prepared = events_library(self.work), {}
        self.rng = np.random.default_rng(args.seed)

    def prepare(self, name):
        if name not in toggled_programs.PREPARE:
            raise LookupError(f"no program {name!r}; there are {', '.join(toggled_programs.PREPARE)}")
        if name not in self.prepared:
            folder = self.work / f"prepare-{self.args.layout}-{name}"
            if name.startswith("hpcc"):
                folder = self.work / "prepare-hpcc"
            self.prepared[name] = toggled_programs.PREPARE[name](self.launchers[0], folder)
        return self.prepared[name]

    def measure(self, pair):
        """Truth, the meters, truth again: one line of the file."""
        both = list(zip(map(self.prepare, pair), self.launchers, strict=True))
        folder = self.work / f"{self.args.layout}-{'+'.join(pair)}"
        seen, estimates = [self.truth(both, folder, 0)], {}
        for meter in self.args.meters:
            units = max(1, round(seen[0].units_per_s * self.args.seconds))
            estimates[meter] = self.estimate(pair, both, folder / meter, meter, units)
        if self.args.truths > 1:
            seen.append(self.truth(both, folder, 1))
        truth = slowdown([one.run for one in seen])
        told = f"{truth['value']:.4f} [{truth['low']:.4f}, {truth['high']:.4f}]"
        progress(
            f"{'+'.join(pair)}: truth {told}, {truth['n_steps']} steps, {truth['n_pairs']} pairs of states"
        )
        return {"layout": self.args.layout, "target": pair[0], "co_runner": pair[1], "truth": truth,
                "kinds": seen[0].names, "windows": window_counts([one.run for one in seen], truth),
                "estimates": estimates, **setup_of(self.args)}  # fmt: skip

    def truth(self, both, folder, i):
        run = Truth(*both, folder / f"truth-{i}", self.library, self.env)
        return run.run(self.args.truth_seconds, self.rng, beside=i % 2 == 0)

    def estimate(self, pair, both, folder, meter, units):
        """The target of so many units beside the co-runner, both under mpicoloc: what its profile says."""
        folder.mkdir(parents=True, exist_ok=True)
        (target, launcher), (co_runner, co_launcher) = both
        jobs = []
        try:
            jobs.append(self.instrumented(co_runner.endless, co_launcher, folder, "co-runner", meter))
            time.sleep(1.0)
            jobs.append(self.instrumented(target.make(units), launcher, folder, "target", meter))
            code = jobs[1].wait(LIMIT_FACTOR * self.args.seconds + LIMIT_S)
        finally:
            for job in reversed(jobs):
                programs.stop(job)
        if code != 0:
            raise RuntimeError(f"{pair[0]} under mpicoloc ended with exit code {code}: see {folder}")
        found = kept(accuracy.show(folder / "target.h5"))
        progress(f"{'+'.join(pair)}, {meter}: {toggled_tables.told(found)}")
        return found

    def instrumented(self, program, launcher, folder, name, meter):
        profile = folder / f"{name}.h5"
        profile.unlink(missing_ok=True)
        env = programs.preload(program.argv[0], profile) | self.env | {"MPICOLOC_JOB_ID": f"{name}-{meter}"}
        if meter != "default":
            env["MPICOLOC_METER"] = meter
        programs.place(program, folder / name)
        return programs.start(launcher.command(program), folder / name, launcher.cores, env)


def kept(data):
    """Of `mpicoloc show --json`, what the tables and readers of the data need."""
    if data is None:
        return {"slowdown": None, "reason": "no profile"}
    found = data["interference"]
    return {"slowdown": found["slowdown"], "corun": found["corun"], "reason": found["reason"],
            "overhead_frac": found["shutters"]["overhead_frac"], "n_taken": found["shutters"]["n_taken"],
            "n_used": found["shutters"]["n_used"], "meters": found.get("meters"),
            "wall_s": data["job"]["wall_s"], "partial": data["partial"]}  # fmt: skip


def progress(text):
    print(f"  {datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def setup_of(args):
    machine = accuracy.setup_of(argparse.Namespace(layout="", seconds=0, meter="", mpirun=""))["machine"]
    return {"machine": machine, "date": datetime.date.today().isoformat(), "mpicoloc": mpicoloc.__version__,
            "seconds": args.seconds, "truth_seconds": args.truth_seconds, "truths": args.truths}  # fmt: skip


def pairs_of(args):
    """Pairs of names, the target first."""
    if args.pairs:
        return [tuple(pair.split("+")) for pair in args.pairs.split(",")]
    if not args.targets:
        return []
    targets = TARGETS if args.targets == "all" else args.targets.split(",")
    following = {name: TARGETS[(i + 3) % len(TARGETS)] for i, name in enumerate(TARGETS)}
    return [(target, following[target] if other == "next" else other)
            for target in targets for other in args.beside.split(",")]  # fmt: skip


def known_meters():
    option = next(option for option in config.OPTIONS if option.env == "MPICOLOC_METER")
    return ("default", *option.choices)


def arguments(argv):
    text = __doc__.replace("{packages}", " ".join(toggled_programs.PACKAGES.split()))
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", help="as lmp+hog,pw+lmp; the first of each is the target")
    parser.add_argument("--targets", help=f"all, or of {', '.join(TARGETS)}; each beside each of --beside")
    parser.add_argument("--beside", default="hog", help="hog, spinner, programs; next: another one for each")
    parser.add_argument("--layout", default="apart", choices=LAYOUTS)
    parser.add_argument("--meters", default="default", help="as default,burst,loop; none for the truth only")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a run under mpicoloc (default 60)")
    parser.add_argument("--truth-seconds", type=float, default=32.0, help="of a toggled run (default 32)")
    parser.add_argument("--truths", type=int, default=2, choices=(1, 2), help="toggled runs (default 2)")
    parser.add_argument("--seed", type=int, default=1, help="of the times of switches")
    parser.add_argument("--mpirun", default="mpirun.openmpi")
    parser.add_argument("--work", type=Path, default=Path("/tmp/mpicoloc-toggled"), help="inputs and outputs")
    parser.add_argument("--out", type=Path, default=Path("toggled.jsonl"), help="lines are added to it")
    parser.add_argument("--publish", action="store_true", help="write results/accuracy-toggled.json of --out")
    args = parser.parse_args(argv)
    args.meters = [name for name in args.meters.split(",") if name != "none"]
    if unknown := set(args.meters) - set(known_meters()):
        parser.error(f"no meter {', '.join(sorted(unknown))}; there are {', '.join(known_meters())}")
    return args


def measure_all(args):
    """Add what is missing to the file; returns the reasons for what still is."""
    missing, pairs = {}, Pairs(args)
    done = {(line["layout"], line["target"], line["co_runner"]) for line in toggled_tables.read(args.out)}
    wanted = [pair for pair in dict.fromkeys(pairs_of(args)) if (args.layout, *pair) not in done]
    each_s = args.truths * (args.truth_seconds + 10) + len(args.meters) * (args.seconds + 8)
    progress(f"{len(wanted)} pairs, about {len(wanted) * each_s / 60:.0f} min")
    for pair in wanted:
        try:
            line = pairs.measure(pair)
        except (LookupError, OSError, RuntimeError, ValueError, programs.subprocess.SubprocessError) as error:
            missing["+".join(pair)] = error
            progress(f"{'+'.join(pair)}: {error}")
            continue
        with open(args.out, "a") as file:
            file.write(json.dumps(line) + "\n")
    return missing


def main(argv=None):
    args = arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # endless jobs must not stay behind
    missing = measure_all(args) if pairs_of(args) else {}
    lines = toggled_tables.read(args.out)
    print(toggled_tables.printed(lines))
    if args.publish:
        toggled_tables.publish(lines)
    for pair, error in missing.items():
        print(f"missing: {pair}: {error}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
