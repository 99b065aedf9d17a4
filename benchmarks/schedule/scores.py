"""Which kind of model predicts slowdowns best, for pairs of known programs and for new programs.

    python benchmarks/schedule/scores.py TRAINING_SET [--trials 12] [--seed 0] [--kinds NAME ...] [--json]
    python benchmarks/schedule/scores.py --simulated 10
    python benchmarks/schedule/scores.py TRAINING_SET --curves curves.csv

TRAINING_SET is what `mpicoloc fit --save-training FILE` wrote, or the folder of a campaign; --simulated N
makes one of N programs whose truth is known. Columns named `new` are of programs left out, each in turn as
target and as co-runner, of search, fit and interval; the others of 30 % of the rows at random, as in Zacarias
et al. 2021. R2 of `new` is over all rows, against the mean of the rows that were learnt from: the model
"mean" has 0. "quantile" says the number that costs least on those rows. `searched with them` is what R2
would be if parameters were searched once, with the program that is left out then. `(chosen)` is the mark of
`mpicoloc fit` itself, which chooses the kind too: by `cost of search`, in whose order the kinds are. `bubble`
is the model of curves and scores, which learns from no pair; of a simulated machine it knows the truth. Rows
count as in the fit: slowdowns below 1 as 1. Deterministic, on one core.
"""

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

import numpy as np
from without_pairs import scores_without_pairs

from mpicoloc.bubble import curves_file
from mpicoloc.bubble.model import BubbleModel
from mpicoloc.pairing import training_sets as files
from mpicoloc.pairing.fitted import Band, concatenated, scores_of, with_intervals
from mpicoloc.pairing.training import fitting
from mpicoloc.pairing.training_sets import from_campaign

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support" / "simulated"))
NEW = {"R2 new": "r2", "searched with them": "flattered", "error new": "mae", "cost new": "cost",
       "under new": "under_frac", "worst new": "worst_under", "inside new": "coverage",
       "width new": "width"}  # fmt: skip
KNOWN = {"R2": "r2", "error": "mae", "under": "under_frac", "worst": "worst_under", "inside": "coverage",
         "width": "width"}  # fmt: skip


def main():
    args = arguments()
    training = simulated(args.simulated, args.seed) if args.simulated else measured(args.training)
    begin = time.process_time()
    card = fitting.fit_model(training, seed=args.seed, n_trials=args.trials, kinds=args.kinds).card
    took_s = time.process_time() - begin
    for score in card["scores"]:
        score["flattered_r2"] = flattered(training, score, args.seed)
    if args.simulated or args.curves:
        card["scores"].append(of_bubbles(training, args))
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
    parser.add_argument("--curves", metavar="FILE", help="curves and scores of the programs of TRAINING_SET")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kinds", nargs="+", default=list(fitting.KINDS), choices=list(fitting.KINDS), metavar="NAME"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if bool(args.training) == bool(args.simulated):
        parser.error("give a training set, or --simulated N")
    return args


def measured(path):
    return from_campaign(path) if Path(path).is_dir() else files.read_file(path)


def simulated(n_programs, seed):
    import contention

    return contention.World(n_programs, seed=seed).training()


def of_bubbles(training, args):
    """A row for the model of curves and scores."""
    if args.curves:
        model = BubbleModel(curves_file.read(args.curves))
    else:
        import contention

        model = contention.World(args.simulated, seed=args.seed).bubbles()
    new = dataclasses.asdict(scores_without_pairs(training, model, args.seed))
    return {"kind": "bubble", "cost": None, "parameters": {}, "new": new, "known": {}}


def flattered(training, score, seed):
    """R2 on programs left out of the fit, with parameters that were searched with them."""
    given, kind = fitting.problem(training), {**fitting.KINDS, **fitting.BASELINES}[score["kind"]]
    parts = []
    for train, test in fitting.leave_program_out(
        given, np.arange(len(given.slowdown)), fitting.MAX_PROGRAM_FOLDS, seed
    ):
        value = fitting.predicted(given, kind, score["parameters"], train, test, seed)
        known = given.slowdown[test], given.weight[test], given.mean(train)
        parts.append(with_intervals(*known, value, Band(0, 0, 0, 0)))
    return scores_of(concatenated(parts)).r2


def show(told, took_s):
    training = told["training"]
    n_programs = len(training["programs"])
    print(f"{training['n_rows']} slowdowns of {n_programs} programs, {took_s:.0f} s of one core\n")
    print(f"| {' | '.join(['model', 'cost of search', *NEW, *KNOWN])} |")
    print("| --- " * (2 + len(NEW) + len(KNOWN)) + "|")
    chosen = {"kind": "(chosen)", "new": told["choice"], "known": {}}
    for score in [*told["scores"], chosen]:
        new = {**score["new"], "flattered": score.get("flattered_r2")}
        numbers = [score.get("cost"), *map(new.get, NEW.values()), *map(score["known"].get, KNOWN.values())]
        print(f"| {score['kind']} | {' | '.join(map(number, numbers))} |")


def number(value):
    return "-" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
