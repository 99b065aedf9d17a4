"""Plan which of the jobs that wait share a node.

The jobs come from a file (CSV or JSON) with their run times alone, what each suffers beside each other from a
second one, by the names of jobs or of their programs. `mpicoloc campaign --json` writes such a file. Jobs of
which nothing is known run alone.

  mpicoloc pair jobs.csv --slowdowns slowdowns.csv
  mpicoloc pair jobs.csv --slowdowns slowdowns.json --nodes 4 --cautious --json

Columns of jobs: id, runtime_s, and as far as they are known program, n_cores, memory_bytes and intensity
(for the policy di). Columns of slowdowns: target, co_runner, slowdown (T_co / T_solo), low and high.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpicoloc import config
from mpicoloc.cli import tell
from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    from mpicoloc.model.pairs import Rules
    from mpicoloc.model.queue import Queue
    from mpicoloc.store.queue_files import WaitingJob


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("jobs", metavar="JOBS", help="the jobs that wait, in order of arrival: .csv or .json")
    parser.add_argument("--slowdowns", metavar="FILE", help="what pairs suffer: .csv or .json")
    add_rules(parser)
    parser.add_argument("--nodes", metavar="N", default="1", help="nodes to plan for (default 1)")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


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
        "--prior-slowdown", metavar="X", help="assumed where nothing is known (default: such jobs run alone)"
    )
    parser.add_argument("--node-cores", metavar="N", help="cores that the jobs on a node may have together")
    parser.add_argument("--node-memory", metavar="BYTES", help="memory that they may have together")


def run(args: argparse.Namespace) -> int:
    """Print the plan."""
    from mpicoloc.model import nodes
    from mpicoloc.model.pairs import plan_parts
    from mpicoloc.report import plan as report
    from mpicoloc.store import queue_files

    rules = rules_of(args)
    n_nodes = _whole("--nodes", args.nodes)
    waiting = queue_files.jobs(args.jobs)
    known = queue_files.slowdowns(args.slowdowns) if args.slowdowns else {}
    made = plan_parts(len(waiting), lambda part: _queue(waiting[part], known), rules)
    for note in made.notes:
        tell.note(note)
    slots = nodes.spread([group.duration_s for group in made.groups], n_nodes)
    ids, runtime_s = [job.id for job in waiting], [job.runtime_s for job in waiting]
    if args.json:
        print(json.dumps(report.as_json(made, slots, ids, runtime_s), indent=2, allow_nan=False))
    else:
        report.show(made, slots, ids, runtime_s)
    sys.stdout.flush()
    return 0


def rules_of(args: argparse.Namespace) -> Rules:
    """The rules that the flags of `add_rules` ask for."""
    from mpicoloc.model.pairs import Rules
    from mpicoloc.model.queue import Room

    n_cores = _positive("--node-cores", args.node_cores)
    memory_bytes = _positive("--node-memory", args.node_memory)
    room = Room(n_cores or math.inf, memory_bytes or math.inf)
    return Rules(
        policy=args.policy,
        threshold_frac=None if args.threshold == "none" else _positive("--threshold", args.threshold),
        n_per_node=_whole("--per-node", args.per_node),
        is_cautious=args.cautious,
        prior_slowdown=_positive("--prior-slowdown", args.prior_slowdown),
        room=room,
    )


def _positive(flag: str, text: str | None) -> float | None:
    return None if text is None else config.positive(flag, text)


def _whole(flag: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise UsageError(f"{flag} must be a whole number >= 1, got {text!r}")
    return int(text)


def _queue(waiting: list[WaitingJob], known: dict[tuple[str, str], tuple[float, float, float]]) -> Queue:
    """The queue as arrays; a slowdown told of two jobs counts before that of their programs."""
    import numpy as np

    from mpicoloc.model.queue import Queue
    from mpicoloc.store.queue_files import NUMBERS

    n = len(waiting)
    by_id, by_program = _places(job.id for job in waiting), _places(job.program for job in waiting)
    slowdown = np.full((2, n, n), np.nan)
    for places in (by_program, by_id):
        for (target, co_runner), (value, _, high) in known.items():
            cells = np.ix_(places.get(target, []), places.get(co_runner, []))
            slowdown[0][cells], slowdown[1][cells] = value, high
    columns = {name: np.array([getattr(job, name) for job in waiting]) for name in NUMBERS}
    # What one job does not tell is taken to fit, like what none tells.
    least = {"n_cores": 1.0, "memory_bytes": 0.0, "intensity": np.nan}
    told = {
        name: np.where(np.isnan(column), least[name], column)
        for name, column in columns.items()
        if not np.isnan(column).all()
    }
    return Queue(np.array([job.runtime_s for job in waiting]), *slowdown, **told)


def _places(names: Iterable[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        places.setdefault(name, []).append(i)
    return places
