"""Slowdowns found by mpicoloc against a truth that holds on a noisy machine.

    python benchmarks/accuracy.py --pairs lmp+hog,pw+nwchem [--layout apart] [--meters default,burst]
    python benchmarks/accuracy.py --targets all --beside hog,next --publish
    python benchmarks/accuracy.py --again
    python benchmarks/accuracy.py --publish

A program and its co-runner run under mpicoloc. The co-runner's ranks are stopped and continued from outside,
every second or so, at random times. Truth: steps per second without the co-runner over those beside it, of
neighbouring states, less the shutters: what the host does meanwhile cancels. Estimate: of the shutters that
lie beside the running co-runner; where a meter cannot do without the others (bursts), the part of the time in
which the co-runner was stopped is known, and taken out of its result. Of a pair A+B, A is the target.

Layout ``apart``: a rank each on a processor of its own; ``shared``: two ranks each, in turns on the same two;
``threads``: a rank of two threads each, likewise. About 1.5 min for a pair and meter: in 90 s there are 60
beside the running co-runner. Pairs that stand in ``--out`` are not measured again. ``--publish`` writes
results/accuracy-toggled.json of all that stand there; ``--again`` makes the estimates anew, of the runs
whose profiles lie in ``--work``. The tables have what Figures 10 to 12 of Breslow et
al. 2013 have: errors, slowdowns and prices. Debian packages:

    {packages}
"""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import programs
from programs import progress

sys.path.insert(0, str(Path(__file__).resolve().parent / "toggled"))

import toggled_programs
import toggled_tables
from progress_ratio import slowdown, window_counts
from toggling import ToggledRun, events_library, stored

from mpicoloc import config

LAYOUTS = {
    "apart": (1, 1, ((0,), (1,))),
    "shared": (2, 1, ((0, 1), (0, 1))),
    "threads": (1, 2, ((0, 1), (0, 1))),
}
"""Ranks, threads of a rank, and which of two processors the target and the co-runner have."""
CO_RUNNERS = ("hog", "spinner", "sleeper")
TARGETS = tuple(name for name in toggled_programs.PREPARE if name not in CO_RUNNERS)


def layout(name, n_ranks):
    """As `LAYOUTS` has it, or `apart` with more ranks."""
    if n_ranks == 1:
        return LAYOUTS[name]
    if name != "apart":
        raise SystemExit("--ranks is for the layout apart only")
    return n_ranks, 1, (tuple(range(n_ranks)), tuple(range(n_ranks, 2 * n_ranks)))


def label(args):
    """The layout with what else stands in the flags."""
    found = args.layout if args.ranks == 1 else f"{args.layout}-{args.ranks}"
    found += f"-nice{args.nice}" if args.nice else ""
    return found + (f"-{args.shutter_ms:g}ms" if args.shutter_ms else "")


class Pairs:
    """Prepared programs, and their measurement in pairs."""

    def __init__(self, args):
        self.args, self.work = args, args.work.resolve()
        self.n_ranks, self.n_threads, cores = layout(args.layout, args.ranks)
        self.label = label(args)
        mine = programs.processors(1 + max(map(max, cores)))
        self.launchers = [programs.Launcher.find(args.mpirun, [mine[i] for i in own], n_ranks=self.n_ranks)
                          for own in cores]  # fmt: skip
        if args.nice:
            self.launchers[1] = replace(self.launchers[1], before=programs.with_niceness(args.nice))
        self.env = {"OMP_NUM_THREADS": str(self.n_threads), "OPENBLAS_NUM_THREADS": str(self.n_threads)}
        if args.shutter_ms:
            self.env["MPICOLOC_SHUTTER_DURATION_S"] = str(args.shutter_ms / 1e3)
            self.env["MPICOLOC_SHUTTER_ADAPT"] = "0"
        self.library, self.prepared = events_library(self.work), {}
        self.rng = np.random.default_rng(args.seed)

    def prepare(self, name):
        if name not in self.prepared:
            self.prepared[name] = toggled_programs.prepare(name, self.launchers[0], self.work)
        return self.prepared[name]

    def measure(self, pair, meter):
        """Truth and estimates of one run: one line of the file."""
        target, co_runner = zip(map(self.prepare, pair), self.launchers, strict=True)
        folder = folder_of(self.work, (self.label, *pair, meter))
        is_shared = self.args.layout == "shared"
        toggled = ToggledRun(target, [co_runner], folder, self.library, self.env, meter, is_shared)
        seen, found = toggled.measure(toggled.alternating(self.args.seconds, self.rng))
        truth, interference = slowdown([found.run]), seen.profile.interference
        line = {"layout": self.label, "ranks": self.n_ranks, "meter": meter,
                "target": pair[0], "co_runner": pair[1],
                "truth": truth, "kinds": found.names, "windows": window_counts([found.run], truth),
                "estimates": seen.estimates(), "filtered": seen.filtered(),
                "overhead_frac": interference.overhead_frac,
                "n_taken": interference.n_taken, "stopped_frac": seen.stopped_frac(),
                **programs.setup(), "seconds": self.args.seconds}  # fmt: skip
        progress(toggled_tables.told(line))
        return line


def folder_of(work, run):
    """The folder of a run, by its layout, target, co-runner and meter."""
    layout, target, co_runner, meter = run
    return work / f"{layout}-{target}+{co_runner}-{meter}"


def again(line, work):
    """The line with estimates as they are made now; unchanged if its run has left nothing."""
    seen = stored(folder_of(work, toggled_tables.key(line)))
    return line if seen is None else line | {"estimates": seen.estimates(), "filtered": seen.filtered()}


def read(args):
    """The lines of `--out`; with ``--again`` they are made anew, also in the file."""
    lines = toggled_tables.read(args.out)
    if args.again:
        lines = [again(line, args.work) for line in lines]
        args.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


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


def arguments(argv, text=__doc__):
    text = text.replace("{packages}", " ".join(toggled_programs.PACKAGES.split()))
    parser = programs.parser(text)
    parser.add_argument("--toggled", action="store_true", help="the only kind of truth: may be left out")
    parser.add_argument("--pairs", help="as lmp+hog,pw+lmp; the first of each is the target")
    parser.add_argument("--targets", help=f"all, or of {', '.join(TARGETS)}; each beside each of --beside")
    parser.add_argument("--beside", default="hog", help="hog, spinner, programs; next: another one for each")
    parser.add_argument("--layout", default="apart", choices=LAYOUTS)
    parser.add_argument("--ranks", type=int, default=1, help="of each job, apart only (default 1)")
    parser.add_argument("--meters", default="default", help="as default,burst,count")
    parser.add_argument("--seconds", type=float, default=90.0, help="of a run (default 90)")
    parser.add_argument("--shutter-ms", type=float, help="length of all shutters, instead of one that adapts")
    parser.add_argument("--nice", type=int, default=0, help="of the co-runner (default 0, 19 weighs least)")
    parser.add_argument("--seed", type=int, default=1, help="of the times of switches")
    parser.add_argument("--mpirun", default="mpirun.openmpi")
    parser.add_argument("--work", type=Path, default=Path("/tmp/mpicoloc-toggled"), help="inputs and outputs")
    parser.add_argument("--out", type=Path, default=Path("toggled.jsonl"), help="lines are added to it")
    parser.add_argument("--again", action="store_true", help="make the estimates of stored runs anew")
    parser.add_argument("--publish", action="store_true", help="write results/accuracy-toggled.json of --out")
    args = parser.parse_args(argv)
    args.meters = args.meters.split(",")
    if unknown := set(args.meters) - set(known_meters()):
        parser.error(f"no meter {', '.join(sorted(unknown))}; there are {', '.join(known_meters())}")
    return args


def measure_all(args):
    """Add what is missing to the file; returns the reasons for what still is."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # endless jobs must not stay behind
    missing, pairs = {}, Pairs(args)
    done = set(map(toggled_tables.key, toggled_tables.read(args.out)))
    every = [(pairs.label, *pair, meter) for pair in dict.fromkeys(pairs_of(args)) for meter in args.meters]
    wanted = [one for one in every if one not in done]
    progress(f"{len(wanted)} runs, about {len(wanted) * (args.seconds + 12) / 60:.0f} min")
    for _, *pair, meter in wanted:
        try:
            line = pairs.measure(tuple(pair), meter)
        except (LookupError, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            missing["+".join(pair)] = error
            progress(f"{'+'.join(pair)}: {error}")
            continue
        with open(args.out, "a") as file:
            file.write(json.dumps(line) + "\n")
    return missing


def main(argv=None):
    args = arguments(argv)
    missing = measure_all(args) if pairs_of(args) else {}
    lines = read(args)
    print(toggled_tables.printed(lines))
    if args.publish:
        toggled_tables.publish(lines)
    for pair, error in missing.items():
        print(f"missing: {pair}: {error}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
