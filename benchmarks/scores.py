"""Which kind of model predicts slowdowns best, for pairs of known programs and for new programs.

    python benchmarks/scores.py TRAINING_SET [--trials 12] [--seed 0] [--kinds NAME ...] [--json]
    python benchmarks/scores.py --simulated 10

TRAINING_SET is what `mpicoloc fit --save-training FILE` wrote, or the folder of a campaign; --simulated N
makes one of N programs whose truth is known. Two rows of marks for each kind: `known`, 30 % of the rows at
random, as in Zacarias et al. 2021; `new`, each program left out in turn as target and as co-runner, of
search, fit and interval. R2 of `new` is over all rows, against the mean of the rows that were learnt from:
the model "mean" has 0. `flattered` is what R2 would be if parameters were searched once, with the program
that is left out then. `(chosen)` is the mark of `mpicoloc fit` itself, which chooses the kind too.
Deterministic, on one core.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from mpicoloc.model.fitting import MAX_PROGRAM_FOLDS, fit_model
from mpicoloc.model.intervals import Band
from mpicoloc.model.learning import BASELINES, KINDS
from mpicoloc.model.problem import parted, predicted, problem
from mpicoloc.model.scores import answers, marks, together
from mpicoloc.run.training import from_campaign
from mpicoloc.store import training as files

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit"))
COLUMNS = ("r2", "mae", "cost", "under_frac", "worst_under", "coverage", "width")


def main():
    args = arguments()
    training = simulated(args.simulated, args.seed) if args.simulated else measured(args.training)
    begin = time.process_time()
    card = fit_model(training, seed=args.seed, n_trials=args.trials, kinds=args.kinds).card
    took_s = time.process_time() - begin
    for score in card["scores"]:
        score["flattered_r2"] = flattered(training, score, args.seed)
    told = {name: card[name] for name in ("scores", "choice", "training", "n_trials", "seed")}
    if args.json:
        json.dump({**told, "fit_cpu_s": took_s}, sys.stdout, indent=1)
        print()
    else:
        show(told, took_s)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("training", metavar="TRAINING_SET", nargs="?")
    parser.add_argument("--simulated", type=int, metavar="N", help="so many programs of a simulated machine")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="NAME")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if bool(args.training) == bool(args.simulated):
        parser.error("give a training set, or --simulated N")
    return args


def measured(path):
    return from_campaign(path) if Path(path).is_dir() else files.read(path)


def simulated(n_programs, seed):
    import contention

    return contention.World(n_programs, seed=seed).training()


def flattered(training, score, seed):
    """R2 on programs left out of the fit, with parameters that were searched with them."""
    given, kind = problem(training), {**KINDS, **BASELINES}[score["kind"]]
    parts = []
    for train, test in parted(given, np.arange(len(given.slowdown)), MAX_PROGRAM_FOLDS, seed):
        value = predicted(given, kind, score["parameters"], train, test, seed)
        known = given.slowdown[test], given.weight[test], given.mean(train)
        parts.append(answers(*known, value, Band(0, 0, 0, 0)))
    return marks(together(parts)).r2


def show(told, took_s):
    training = told["training"]
    n_programs = len(training["programs"])
    print(f"{training['n_rows']} slowdowns of {n_programs} programs, {took_s:.0f} s of one core\n")
    print("| model | rows | " + " | ".join(COLUMNS) + " | flattered |")
    print("| --- " * (len(COLUMNS) + 3) + "|")
    for score in told["scores"]:
        for rows in ("new", "known"):
            last = number(score["flattered_r2"]) if rows == "new" else ""
            print(f"| {score['kind']} | {rows} | {cells(score[rows])} | {last} |")
    print(f"| (chosen) | new | {cells(told['choice'])} | |")


def cells(found):
    return " | ".join(number(found[name]) for name in COLUMNS)


def number(value):
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
