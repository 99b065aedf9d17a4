"""Run programs alone and in pairs, and measure their slowdowns beside each other.

The result is training data for `mpicoloc fit`. FILE is TOML: a table for each program, with its command and
the number of ranks for `mpicoloc run`; without n_ranks the command must start the job with mpicoloc itself.

  rounds = 3
  places = [[0], [1]]             # processors of the first and the second job
  [programs.heat2d]
  command = "./heat2d 400 2000"
  n_ranks = 1
  [programs.lammps]
  command = "lmp -in in.lj"
  n_ranks = 1
  folder = "lj"                   # copied into each run's working directory

In a pair, the program that ends first is restarted until the other has ended too. An interrupted campaign
resumes where it stopped.

  mpicoloc campaign programs.toml --out campaign
"""

from __future__ import annotations

import argparse
import json

from mpicoloc import messages
from mpicoloc.cli.arguments import count, whole

_WHY_UNKNOWN = (
    "a slowdown needs complete runs alone, some program run twice, and runs much longer than their start-up"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("file", metavar="FILE", help="the programs, as TOML")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="folder for profiles and results")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="run only these programs")
    parser.add_argument("--pairs", metavar="N", type=count, help="run only N pairs, chosen at random")
    parser.add_argument(
        "--seed", metavar="N", type=whole(0), default=0, help="seed of the random order (default 0)"
    )
    parser.add_argument(
        "--meter",
        default="none",
        help="meter of the jobs (default none, which pauses no job for shutters)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only list the runs")
    parser.add_argument(
        "--json", action="store_true", help="print the slowdowns, or the list of --dry-run, as JSON"
    )


def run(args: argparse.Namespace) -> int:
    """Run the missing experiments and print all slowdowns; returns 1 if an experiment failed."""
    import numpy as np

    from mpicoloc import config
    from mpicoloc.pairing import campaign, terminal as report

    env = config.flags_to_env({"meter": args.meter})
    plan = campaign.read_file(args.file)
    names = args.only or list(plan.programs)
    wanted = campaign.experiments(plan, names, args.pairs, np.random.default_rng(args.seed))
    if args.dry_run:
        done = campaign.read(args.out)
        todo = campaign.missing(plan, wanted, done, env)
        report.show_experiments(todo, [campaign.expected_s([each], done) for each in todo], is_json=args.json)
        return 0
    done, n_failed = campaign.complete(plan, wanted, args.out, env)
    found = campaign.slowdowns_of(done, names)
    for text in campaign.short_programs(done):
        messages.note(text)
    for text in campaign.unknown_pairs(done, found, names):
        messages.note(f"{text}: {_WHY_UNKNOWN}")
    if args.json:
        kinds = campaign.kinds(args.out, done)
        print(
            json.dumps(report.campaign_json(found, kinds, campaign.layout(done)), indent=2, allow_nan=False)
        )
    else:
        report.show_campaign(found, names)
    return 1 if n_failed else 0
