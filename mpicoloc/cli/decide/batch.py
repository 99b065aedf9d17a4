r"""Simulate the batch system of a machine on a log of its jobs: who waits, and who shares the network.

The log is in Standard Workload Format, .gz too. Jobs get whole nodes. Two jobs share the network when both
use the links above the same switch or subtree at the same time (Jokanovic 2014, chapter 4).

  mpicoloc batch LLNL-Atlas-2006-2.1-cln.swf.gz \
      --topology 'XGFT(3;18,8,8;1,18,18)' --allocation exclusive
  mpicoloc batch jobs.swf --topology MareNostrum --cores-per-node 4 \
      --order fcfs --allocation virtual-blocks
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any

from mpicoloc import config
from mpicoloc.cli.flags import batch_links, batch_sharing, fabric
from mpicoloc.core import messages
from mpicoloc.errors import DataError

if TYPE_CHECKING:
    from mpicoloc.schedule.batch.logs.job_log import Workload
    from mpicoloc.schedule.batch.machine import Machine
    from mpicoloc.schedule.batch.metrics import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("log", metavar="LOG", help="jobs in Standard Workload Format, .gz too")
    fabric.add_topology(parser)
    fabric.add_links(parser)
    add("--cores-per-node", metavar="N", help="(MaxProcs / MaxNodes of the log's head, else 1)")
    add("--order", metavar="NAME", default="easy", help="fcfs, easy, conservative or priority (easy)")
    add(
        "--allocation",
        metavar="NAME",
        default="first-available",
        help="first-available, first-contiguous, exclusive, virtual-blocks or best-fit (first-available)",
    )
    add("--estimates", metavar="NAME", default="user", help="run times counted on: user or perfect (user)")
    add("--skip-damaged", action="store_true", help="leave damaged lines of the log out")
    add("--skip-larger", action="store_true", help="leave jobs out that are larger than the machine")
    batch_sharing.add_arguments(parser)
    batch_links.add_arguments(parser)
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Simulate and print."""
    from mpicoloc.report.terminal.simulated import batch as report
    from mpicoloc.schedule.batch import allocation, engine, metrics, order
    from mpicoloc.schedule.batch.network_sharing import SharedLinks

    next_job, chosen = order.named(args.order), allocation.named(args.allocation)
    is_comparison = batch_sharing.is_comparison(args)
    machine = _machine(args)
    work = _workload(args, machine)
    if is_comparison:
        batch_sharing.run(args, work, machine, _as_json)
        return 0
    begin_s = time.perf_counter()
    shared = SharedLinks(machine, len(work))
    schedule = engine.simulate(work, machine, next_job, chosen, [shared])
    found, wall_s = metrics.outcome(work, machine, schedule, shared), time.perf_counter() - begin_s
    if args.json:
        print(json.dumps(_as_json(found, wall_s), indent=2, allow_nan=False))
    else:
        report.show(found, wall_s)
    sys.stdout.flush()
    return 0


def _machine(args: argparse.Namespace) -> Machine:
    from mpicoloc.profile import network_files
    from mpicoloc.schedule.batch import machine

    known = machine.named(args.topology)
    if known is not None:
        return known
    rate = args.link_rate or fabric.LINK_RATE
    return machine.of_fabric(network_files.fabric_of(args.topology, rate, args.up_links))


def _workload(args: argparse.Namespace, machine: Machine) -> Workload:
    """The jobs that are simulated, with notes on those that are not."""
    from mpicoloc.schedule.batch.logs import job_log, swf

    log, damaged = swf.parse(_lines(args.log), args.log, skip_damaged=args.skip_damaged)
    if damaged:
        messages.note(f"{args.log}: {len(damaged)} damaged lines left out, the first is line {damaged[0]}")
    has_run = job_log.ran(log)
    if not has_run.all():
        n = int((~has_run).sum())
        messages.note(f"{args.log}: {n:,} jobs without run time or processors never ran: left out")
    log = job_log.select(log, has_run)
    if args.cores_per_node is None:
        n_cores = log.cores_per_node() or 1
    else:
        n_cores = config.parse_whole("--cores-per-node", args.cores_per_node)
    if args.skip_larger:
        fits = job_log.nodes_needed(log, n_cores) <= machine.n_nodes
        messages.note(f"{args.log}: {int((~fits).sum()):,} jobs larger than the machine left out")
        log = job_log.select(log, fits)
    return job_log.workload(log, n_cores, machine.n_nodes, args.estimates)


def _lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}: give a log in Standard Workload Format") from None
    return data.decode("utf-8", "replace").split("\n")


def _as_json(outcome: Outcome, wall_s: float) -> dict[str, Any]:
    return {
        "n_jobs": outcome.n_jobs,
        "completion_s": outcome.completion_s,
        "utilisation_frac": outcome.utilisation_frac,
        "wait_mean_s": outcome.waits.mean_s,
        "wait_median_s": outcome.waits.median_s,
        "wait_p95_s": outcome.waits.p95_s,
        "bounded_slowdown_mean": outcome.waits.bounded_slowdown,
        "small_wait_mean_s": outcome.small_waits.mean_s,
        "big_wait_mean_s": outcome.big_waits.mean_s,
        "sharing_jobs_mean": outcome.sharing_jobs_mean,
        "sharing_jobs_frac": outcome.sharing_jobs_frac,
        "pairs_by_level": {str(level): n for level, n in outcome.pairs_by_level.items()},
        "subtrees_mean": list(outcome.subtrees_mean),
        "wall_s": wall_s,
    }
