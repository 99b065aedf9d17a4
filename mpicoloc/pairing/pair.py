"""Plan which of the jobs that wait share a node.

JOBS is CSV or JSON. What jobs suffer beside each other comes from measured pairs, by the names of jobs or of
their programs (as `mpicoloc campaign --json` writes them), from curves and scores of programs (as
`mpicoloc bubble` writes them), and from a model by the jobs' profiles. Jobs of which nothing is known run
alone. With --watch the jobs are those that wait in Slurm.

  mpicoloc pair jobs.csv --slowdowns slowdowns.csv
  mpicoloc pair jobs.csv --curves curves.csv
  mpicoloc pair jobs.csv --model slowdowns.model --nodes 4 --cautious
  mpicoloc pair --watch --profiles /var/spool/mpicoloc --model slowdowns.model
  mpicoloc pair --release

Columns of JOBS: id, runtime_s or profile, and as far as they are known program, n_cores, memory_bytes and
intensity (for the policy di). Of slowdowns: target, co_runner, slowdown (T_co / T_solo), low and high.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING

from mpicoloc import config, messages
from mpicoloc.errors import UsageError
from mpicoloc.slurm import watch

if TYPE_CHECKING:
    from mpicoloc.pairing.policies import Rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "jobs", metavar="JOBS", nargs="?", help="the jobs that wait, in order of arrival: .csv or .json"
    )
    parser.add_argument("--slowdowns", metavar="FILE", help="what pairs suffer: .csv or .json")
    parser.add_argument("--curves", metavar="FILE", help="curves and scores of programs: .csv or .json")
    parser.add_argument("--model", metavar="FILE", help="slowdown model written by `mpicoloc fit`")
    add_rules(parser)
    parser.add_argument("--nodes", metavar="N", default="1", help="nodes to plan for (default 1)")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    watch.add_arguments(parser)


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Flags for how a plan is made."""
    parser.add_argument(
        "--policy", default="blossom", help="blossom (default), greedy, di, fifo-shared or fifo"
    )
    parser.add_argument(
        "--threshold",
        metavar="X",
        default="1",
        help="share only if it takes at most X times as long as one after the other, 0 to 1 (default 1); "
        "none: always",
    )
    parser.add_argument("--per-node", metavar="N", default="2", help="most jobs on a node (default 2)")
    parser.add_argument("--cautious", action="store_true", help="count on the upper ends of the intervals")
    parser.add_argument(
        "--prior-slowdown",
        metavar="X",
        help="assumed for pairs without a prediction (default: such jobs run alone)",
    )
    parser.add_argument("--node-cores", metavar="N", help="cores that the jobs on a node may have together")
    parser.add_argument("--node-memory", metavar="BYTES", help="memory that they may have together")


def run(args: argparse.Namespace) -> int:
    """Print the plan, or watch Slurm."""
    if args.watch + (args.release is not None) + (args.jobs is not None) != 1:
        raise UsageError("give a file of jobs, or --watch for those of Slurm, or --release to take back")
    if args.release is not None:
        return watch.release(args)
    rules = rules_of(args)
    if args.watch:
        return watch.run(args, rules)
    from mpicoloc.pairing import model_file, nodes, queue_file_jobs, queue_files
    from mpicoloc.pairing import plan_table as report

    n_nodes = config.parse_whole("--nodes", args.nodes)
    model = model_file.read(args.model) if args.model else None
    measured = _of_curves(args.curves) if args.curves else {}
    measured |= queue_files.slowdowns(args.slowdowns) if args.slowdowns else {}
    jobs, made = queue_file_jobs.plan(queue_files.jobs(args.jobs), measured, model, rules)
    for note in made.notes:
        messages.note(note)
    slots = nodes.spread([group.duration_s for group in made.groups], n_nodes)
    ids, runtime_s = [job.id for job in jobs], [job.runtime_s for job in jobs]
    if args.json:
        print(json.dumps(report.as_json(made, slots, ids, runtime_s), indent=2, allow_nan=False))
    else:
        report.show(made, slots, ids, runtime_s)
    sys.stdout.flush()
    return 0


def _of_curves(path: str) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Slowdowns of all pairs of programs in a file of curves."""
    from mpicoloc.bubble import curves_file
    from mpicoloc.bubble.model import BubbleModel, pairs_of_programs

    model = BubbleModel(curves_file.read(path))
    for note in model.notes:
        messages.note(note)
    return pairs_of_programs(model)


def rules_of(args: argparse.Namespace) -> Rules:
    """The rules that the flags of `add_rules` ask for."""
    from mpicoloc.pairing.policies import Rules
    from mpicoloc.pairing.queue import Room

    n_cores = _positive("--node-cores", args.node_cores)
    memory_bytes = _positive("--node-memory", args.node_memory)
    room = Room(n_cores or math.inf, memory_bytes or math.inf)
    return Rules(
        policy=args.policy,
        threshold_frac=None if args.threshold == "none" else _positive("--threshold", args.threshold),
        n_per_node=config.parse_whole("--per-node", args.per_node),
        is_cautious=args.cautious,
        prior_slowdown=_positive("--prior-slowdown", args.prior_slowdown),
        room=room,
    )


def _positive(flag: str, text: str | None) -> float | None:
    return None if text is None else config.parse_positive(flag, text)
