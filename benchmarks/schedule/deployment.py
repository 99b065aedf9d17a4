"""Makespan of a queue with each kind of model: simulated deployment of a measured campaign.

    python benchmarks/schedule/deployment.py TRAINING_SET [--trials 4] [--queues 20] [--jobs 50]
        [--kinds NAME ...]

Queues are drawn at random from the jobs of the training set. Pairs are chosen by the predictions of a model
for programs that were left out of its search and fit (the mean of those without the one program and without
the other), and run with the measured slowdowns. Makespans are relative to FIFO, where each job has the server
to itself, as in Zacarias et al. 2021, Figures 6 and 10: mean of the queues, and the worst one. `as measured`:
the slowdown of each pair is known. It and the models never choose a pair that has no row in the training set.

Three more rows need no model. `assumed`: 1.3 for every pair. `learnt as it goes`: 1.3 at first, and for jobs
that have met the measured slowdown, with an error of 10 %. `learnt before`: by a service that has seen
another such queue (the same one with --queues 1). Here, pairs without a row may share, and run undisturbed.
Deterministic, on one core.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from simulated_deployment import Meetings, Programs, deploy, deploy_learning, draw, normalised
from threadpoolctl import threadpool_limits

from mpicoloc.core.progress import steps
from mpicoloc.pairing import training_sets as files
from mpicoloc.pairing.policies import Queue, Rules
from mpicoloc.pairing.training import fitting
from mpicoloc.pairing.training_sets import from_campaign

SHARED, *CHOOSING = (Rules(name) for name in ("fifo-shared", "greedy", "blossom"))
PRIOR = 1.3
"""Slowdown that the service assumes of all pairs at first."""


def main():
    args = arguments()
    learnt = from_campaign(args.training) if args.training.is_dir() else files.read_file(args.training)
    given = fitting.problem(learnt)
    runtime_s = np.array([job.runtime_s for job in learnt.jobs])
    true = matrix(given, given.slowdown)
    rng = np.random.default_rng(args.seed)
    queues = [draw(deployed(runtime_s, true, true), args.jobs, rng) for _ in range(args.queues)]
    told = [row("FIFO shared", normalised(deployed(runtime_s, true, true), queues, [SHARED], args.servers))]
    answers = {"as measured": given.slowdown}
    with threadpool_limits(1):
        rivals = fitting.BASELINES | {name: fitting.KINDS[name] for name in args.kinds}
        for name, kind in steps(rivals.items(), "fitting", unit="models"):
            answers[name] = left_out(given, kind, args.trials, args.seed)
    told += learning(runtime_s, true, queues, args)
    for name, value in answers.items():
        programs = deployed(runtime_s, true, matrix(given, value))
        told.append(row(name, normalised(programs, queues, CHOOSING, args.servers)))
    if args.json:
        json.dump(told, sys.stdout, indent=1)
        print()
    else:
        show(told)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("training", metavar="TRAINING_SET", type=Path)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--queues", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--kinds", nargs="*", default=list(fitting.KINDS), choices=list(fitting.KINDS), metavar="NAME"
    )
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def learning(runtime_s, true, queues, args):
    """Rows of a service that assumes, of one that learns, and of one that has learnt in another queue."""
    programs = deployed(runtime_s, true, true)
    assumed = deployed(runtime_s, true, np.full_like(true, PRIOR))
    made = [
        [learnt(programs, queues[i - 1], jobs, rules, args) for rules in CHOOSING]
        for i, jobs in enumerate(steps(queues, "learning", unit="queues"))
    ]
    first, later = np.moveaxis(np.array(made), 2, 0)
    return [
        row("assumed", normalised(assumed, queues, CHOOSING, args.servers)),
        row("learnt as it goes", first),
        row("learnt before", later),
    ]


def learnt(programs, before, jobs, rules, args):
    """Makespans over FIFO of a service that knows nothing, and of one that has seen the queue `before`."""
    fifo_s = deploy(programs, jobs, Rules("fifo"), args.servers).makespan_s

    def last_of(*queues):
        meetings = Meetings(len(programs.true), PRIOR, np.random.default_rng(args.seed))
        made = [deploy_learning(programs, each, rules, meetings, args.servers) for each in queues]
        return made[-1].makespan_s / fifo_s

    return last_of(jobs), last_of(before, jobs)


def left_out(given, kind, n_trials, seed):
    """Predicted slowdown of each row: mean over the folds that leave out its target or its co-runner."""
    total, n = np.zeros(len(given.slowdown)), np.zeros(len(given.slowdown))
    for train, test in fitting.leave_program_out(
        given, np.arange(len(total)), fitting.MAX_PROGRAM_FOLDS, seed
    ):
        found = fitting.tuned(given, kind, train, n_trials, seed)
        total[test] += fitting.predicted(given, kind, found.parameters, train, test, seed)
        n[test] += 1
    return total / n


def matrix(given, slowdown):
    """Slowdown of each job beside each other one; NaN where no row tells."""
    n_jobs = len(given.features)
    total, weight = np.zeros((n_jobs, n_jobs)), np.zeros((n_jobs, n_jobs))
    np.add.at(total, (given.target, given.co_runner), slowdown * given.weight)
    np.add.at(weight, (given.target, given.co_runner), given.weight)
    with np.errstate(invalid="ignore"):
        return total / weight


def deployed(runtime_s, true, seen):
    return Programs(Queue(runtime_s, true), Queue(runtime_s, seen), np.diag(true), np.diag(seen))


def row(name, makespans):
    """Mean and worst of the queues; FIFO shared has one policy only."""
    shares, worst = makespans.mean(axis=0), makespans.max(axis=0)
    keys = ("shared",) if len(shares) == 1 else ("greedy", "blossom")
    return {
        "predicted_by": name,
        "mean": dict(zip(keys, shares.tolist(), strict=True)),
        "worst": dict(zip(keys, worst.tolist(), strict=True)),
    }


def show(told):
    print("| pairs by | greedy | worst | blossom | worst |")
    print("| --- | --- | --- | --- | --- |")
    for row in told:
        mean, worst = row["mean"], row["worst"]
        keys = ("shared", None) if "shared" in mean else ("greedy", "blossom")
        cells = [f"{of[key]:.3f}" if key else "-" for key in keys for of in (mean, worst)]
        print(f"| {row['predicted_by']} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
