"""Choose which waiting jobs share a node.

JOBS is CSV or JSON. Slowdowns of pairs come from measured pairs, found by job or program name (written by
`mpicoloc campaign --json`), from curves and scores of programs (written by `mpicoloc bubble`), and from a
model with the jobs' profiles. Jobs without any of these run alone. With --watch, the jobs are those waiting
in Slurm.

  mpicoloc pair jobs.csv --slowdowns slowdowns.csv
  mpicoloc pair jobs.csv --curves curves.csv
  mpicoloc pair jobs.csv --model slowdowns.model --nodes 4 --cautious
  mpicoloc pair --watch --profiles /var/spool/mpicoloc --model slowdowns.model
  mpicoloc pair --watch --layout cores --shared cores --profiles spool --model m
  mpicoloc pair --release

Columns of JOBS: id, runtime_s or profile, and optionally program, n_cores, memory_bytes and intensity (for
the policy di). Columns of slowdowns: target, co_runner, slowdown (T_co / T_solo), low and high.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING

from mpicoloc import messages
from mpicoloc.cli.arguments import add_layout, count, note_together, positive
from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    from mpicoloc.pairing.model_file import StoredModel
    from mpicoloc.pairing.policies import Rules
    from mpicoloc.pairing.queue_files import Ends
    from mpicoloc.pairing.sharing_plan import Partitions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "jobs", metavar="JOBS", nargs="?", help="the waiting jobs, in order of arrival: .csv or .json"
    )
    parser.add_argument("--slowdowns", metavar="FILE", help="slowdowns of pairs: .csv or .json")
    parser.add_argument("--curves", metavar="FILE", help="curves and scores of programs: .csv or .json")
    parser.add_argument("--model", metavar="FILE", help="slowdown model written by `mpicoloc fit`")
    add_layout(parser, "planned on pairs of nodes", "; with --watch turns")
    _add_rules(parser)
    parser.add_argument("--nodes", metavar="N", type=count, default=1, help="nodes to plan for (default 1)")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    _add_watching(parser)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    """Flags for the rules of a plan."""
    parser.add_argument(
        "--policy",
        default="blossom",
        help="pairing policy: blossom (default), greedy, di, fifo-shared or fifo",
    )
    parser.add_argument(
        "--threshold",
        metavar="X",
        type=lambda text: None if text == "none" else positive(text),
        default=1.0,
        help="share a node only if the jobs then take at most X times as long as one after another, 0 to 1 "
        "(default 1); none: always",
    )
    parser.add_argument(
        "--per-node", metavar="N", type=count, default=2, help="maximum number of jobs on a node (default 2)"
    )
    parser.add_argument(
        "--cautious", action="store_true", help="plan with the upper ends of the slowdowns' intervals"
    )
    parser.add_argument(
        "--prior-slowdown",
        metavar="X",
        type=positive,
        help="slowdown assumed for pairs without a prediction (default: such jobs run alone)",
    )
    parser.add_argument(
        "--node-cores",
        metavar="N",
        type=positive,
        default=math.inf,
        help="maximum number of cores of all jobs on a node together",
    )
    parser.add_argument(
        "--node-memory",
        metavar="BYTES",
        type=positive,
        default=math.inf,
        help="maximum memory of all jobs on a node together",
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan, or watch Slurm."""
    if args.watch + (args.release is not None) + (args.jobs is not None) != 1:
        raise UsageError(
            "give a file of jobs, --watch to pair the jobs in Slurm, or --release to undo the pairing"
        )
    if args.release is not None:
        return _release(args)
    if args.watch:
        return _watch(args)
    from mpicoloc.core.slowdown import SPREAD
    from mpicoloc.pairing import policies, queue_files, terminal as report

    rules, (model, measured) = _rules(args), _slowdowns(args)
    jobs, made = queue_files.plan(queue_files.jobs(args.jobs), measured, model, rules, args.layout)
    if args.layout == SPREAD:
        messages.note(
            "a node of this plan is two nodes; a job that shares none is packed on one of them, and counts "
            "for half of its time"
        )
    if len(jobs) > 1 and not measured and model is None and rules.prior_slowdown is None:
        messages.note(
            "no slowdowns are known, so no jobs share: give --slowdowns of `mpicoloc campaign`, --model of "
            "`mpicoloc fit`, --curves of `mpicoloc bubble`, or --prior-slowdown"
        )
    note_together(rules.n_per_node - 1)
    for note in made.notes:
        messages.note(note)
    slots = policies.assign_nodes([group.duration_s for group in made.groups], args.nodes)
    part = 0.5 if args.layout == SPREAD else 1.0
    ids, runtime_s = [job.id for job in jobs], [part * job.runtime_s for job in jobs]
    if args.json:
        print(json.dumps(report.plan_json(made, slots, ids, runtime_s), indent=2, allow_nan=False))
    else:
        report.show_plan(made, slots, ids, runtime_s)
    return 0


def _rules(args: argparse.Namespace) -> Rules:
    from mpicoloc.core.slowdown import SPREAD
    from mpicoloc.pairing.policies import Room, Rules

    is_spread = args.layout == SPREAD
    if is_spread and args.prior_slowdown is not None:
        raise UsageError("--layout spread needs the slowdowns of all pairs: leave out --prior-slowdown")
    n = 2 if is_spread else 1
    return Rules(
        policy=args.policy,
        threshold_frac=args.threshold,
        n_per_node=args.per_node,
        is_cautious=args.cautious,
        prior_slowdown=args.prior_slowdown,
        room=Room(n * args.node_cores, n * args.node_memory),
    )


def _slowdowns(args: argparse.Namespace) -> tuple[StoredModel | None, dict[tuple[str, str], Ends]]:
    """The model, and the slowdowns in files, if given. Raises `UsageError` if they are of another layout."""
    from mpicoloc.bubble.model import pairs_of_programs
    from mpicoloc.core.slowdown import check_layout
    from mpicoloc.pairing import model_file, queue_files

    model = model_file.read(args.model) if args.model else None
    curves = model_file.of_curves(args.curves) if args.curves else None
    for source, path in ((model, args.model), (curves, args.curves)):
        check_layout(args.layout, model_file.layout(source), path)
    measured = pairs_of_programs(curves) if curves else {}
    return model, measured | (queue_files.slowdowns(args.slowdowns, args.layout) if args.slowdowns else {})


def _add_watching(parser: argparse.ArgumentParser) -> None:
    """Flags of the pairing service."""
    group = parser.add_argument_group("watching Slurm")
    group.add_argument("--watch", action="store_true", help="poll Slurm's queue, and place pairs")
    group.add_argument(
        "--release", metavar="NODES", nargs="?", const="",
        help="undo the placement of waiting jobs (only on NODES, if given), and exit",
    )  # fmt: skip
    group.add_argument("--profiles", metavar="FOLDER", help="folder in which jobs leave their profiles")
    group.add_argument(
        "--alone", metavar="PARTITION", default="whole",
        help="partition to which users submit, with a node for each job (default whole)",
    )  # fmt: skip
    group.add_argument(
        "--shared", metavar="PARTITION", default="shared",
        help="partition for pairs, with two jobs on a processor, which only this service fills; with "
        "--layout cores or spread the partition to which users submit (default shared)",
    )  # fmt: skip
    group.add_argument(
        "--interval-s", metavar="S", type=positive, default="10", help="time between two polls (default 10)"
    )
    group.add_argument("--audit", metavar="FILE", help="append a line of JSON to this file for each decision")
    group.add_argument("--dry-run", action="store_true", help="decide and report, but change nothing")
    group.add_argument("--once", action="store_true", help="poll once, and exit")


def _watch(args: argparse.Namespace) -> int:
    """Run the service until the process ends, or for one round with --once."""
    if args.profiles is None:
        raise UsageError("--watch needs --profiles FOLDER with the profiles of earlier jobs")
    from mpicoloc.core.slowdown import TURNS
    from mpicoloc.pairing.terminal import show_action
    from mpicoloc.slurm import cores_service, service as service_loop

    for flag in ("curves", "slowdowns"):
        if getattr(args, flag) is not None:
            raise UsageError(
                f"--watch reads slowdowns from profiles and --model: leave out --{flag} (for curves, make a "
                "model with `mpicoloc fit --curves`)"
            )
    is_by_cores = _is_by_cores(args)
    partitions = _partitions(args)
    how = service_loop.service_settings(partitions, _rules(args), args.model, args.layout or TURNS)
    audit = service_loop.AuditLog(args.audit, messages.trouble)
    make = cores_service.CoresService if is_by_cores else service_loop.PairingService
    service = make(args.profiles, args.model, how, audit, show_action, is_dry=args.dry_run)
    service_loop.watch(service, args.interval_s, is_once=args.once)
    return 0


def _is_by_cores(args: argparse.Namespace) -> bool:
    """Whether the service works on a partition that gives out cores. Raises `UsageError` for others."""
    from mpicoloc.core.slowdown import CORES, SPREAD, check_layout

    check_layout(args.layout, "", "")
    return args.layout in (CORES, SPREAD)


def _partitions(args: argparse.Namespace) -> Partitions:
    """The queues of the service; a partition that gives out cores is both."""
    from mpicoloc.slurm import service

    if not _is_by_cores(args):
        return service.named_partitions(args.alone, args.shared)
    is_of_pairs = (args.policy, args.threshold, args.node_cores, args.node_memory)
    if is_of_pairs != ("blossom", 1.0, math.inf, math.inf):
        raise UsageError(
            f"--layout {args.layout} chooses nodes, not pairs: leave out --policy, --threshold, "
            "--node-cores and --node-memory"
        )
    return service.Partitions(args.shared, args.shared)


def _release(args: argparse.Namespace) -> int:
    """Release the waiting jobs that the service has assigned to nodes."""
    from mpicoloc.core.slowdown import CORES, SPREAD
    from mpicoloc.network.topology.hostlist import expand
    from mpicoloc.pairing import cores_plan, sharing_plan, spread_plan
    from mpicoloc.pairing.terminal import show_action
    from mpicoloc.slurm import service as service_loop

    names = expand(args.release, "--release") if args.release else ()
    audit = service_loop.AuditLog(args.audit, messages.trouble)
    released = {CORES: cores_plan.released, SPREAD: spread_plan.released}
    undo = released.get(args.layout, sharing_plan.released)
    for action in service_loop.release_jobs(_partitions(args), audit, names, undo):
        show_action(action)
    return 0
