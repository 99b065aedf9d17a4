r"""Simulate the batch system of a machine on a log of its jobs: who waits, and who shares the network.

The log is in Standard Workload Format, or what Slurm's `sacct --parsable2` prints; .gz too. Jobs get whole
nodes. Two jobs share the network when both use the links above the same switch or subtree at the same time
(Jokanovic 2014, chapter 4).

  mpicoloc batch LLNL-Atlas-2006-2.1-cln.swf.gz \
      --topology 'XGFT(3;18,8,8;1,18,18)' --allocation exclusive
  mpicoloc batch jobs.swf --topology MareNostrum --cores-per-node 4 \
      --order fcfs --allocation virtual-blocks
  mpicoloc batch jobs.swf --topology 'XGFT(3;18,8,8;1,18,18)' --out sweep \
      --sweep order fcfs easy --sweep allocation first-available exclusive
  mpicoloc batch jobs.sacct --topology topology.conf --page centre.html
"""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import os
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any

from mpicoloc import config, messages
from mpicoloc.batch import link_flags, partitioned, sharing, sweep
from mpicoloc.errors import DataError, UsageError
from mpicoloc.job import sweep_flags
from mpicoloc.network import flags as fabric

if TYPE_CHECKING:
    from mpicoloc.batch.comparison import SharedRun
    from mpicoloc.batch.logs.job_log import JobLog, Workload
    from mpicoloc.batch.machine import Machine
    from mpicoloc.batch.metrics import Outcome
    from mpicoloc.batch.sharing import Study
    from mpicoloc.batch.sharing_figures import PolicyFigures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add = parser.add_argument
    add("logs", metavar="LOG", nargs="+",
        help="jobs in Standard Workload Format or of Slurm's sacct, .gz too; several: a sweep")  # fmt: skip
    fabric.add_topology(parser, is_required=False)  # --sweep topology names several
    fabric.add_links(parser)
    add("--cores-per-node", metavar="N", help="(as the log's head or its jobs tell it, else 1)")
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
    partitioned.add_arguments(parser)
    sharing.add_arguments(parser)
    link_flags.add_arguments(parser)
    add("--out", metavar="FOLDER", help="write tables of the result to this folder as Parquet")
    sweep.add_arguments(parser)
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Simulate and print."""
    if sweep.is_sweep(args):
        return sweep.run(args, add_arguments, check, row)
    sweep_flags.check_single(args)
    from mpicoloc.batch import sharing_figures
    from mpicoloc.batch import terminal as report

    (args.log,) = args.logs
    _check_outputs(args)
    study = _study(args)
    runs, wall_s = _simulate(study, keeps_places=bool(args.page or args.out))
    needs_figures = study.is_comparison or args.out is not None
    found = sharing_figures.of_runs(study.centre, runs, study.tariffs) if needs_figures else []
    if args.json:
        print(json.dumps(_result_json(study, runs, found, wall_s), indent=2, allow_nan=False))
    elif study.is_comparison:
        report.show_sharing(found)
    else:
        report.show(runs[0].outcome, wall_s)
    sys.stdout.flush()
    _write(args, study, runs, found)
    return 0


def check(args: argparse.Namespace) -> None:
    """Refuse what is wrong in flags and files, before anything is simulated."""
    with messages.at_level(messages.QUIET):
        _study(args)


def row(args: argparse.Namespace) -> dict[str, Any]:
    """One simulation, in a process of a sweep: what ``--json`` prints of it, and its notes."""
    from mpicoloc.batch import sharing_figures

    notes: list[str] = []
    with messages.at_level(messages.NORMAL, lambda line: notes.append(line.removeprefix("mpicoloc: "))):
        study = _study(args)
        runs, wall_s = _simulate(study, keeps_places=False)
    found = sharing_figures.of_runs(study.centre, runs, study.tariffs)
    return {"notes": notes, **_result_json(study, runs, found, wall_s)}


def _study(args: argparse.Namespace) -> Study:
    """What is simulated; what is wrong with words is told before files are read."""
    from mpicoloc.batch import order
    from mpicoloc.batch.allocation import registry

    order.named(args.order)
    registry.named(args.allocation)
    sharing.is_comparison(args)
    machine = _machine(args)
    partitions = partitioned.read(args, machine)
    work, simulate = partitioned.restrict(args, _workload(args, machine), partitions)
    return sharing.study(args, work, machine, simulate, partitions)


def _simulate(study: Study, *, keeps_places: bool) -> tuple[list[SharedRun], float]:
    """All simulations, and how long they took, s."""
    from mpicoloc.batch import comparison

    began_s = time.perf_counter()
    runs = list(comparison.run_all(study.centre, study.names, study.cases, keeps_places=keeps_places))
    return runs, time.perf_counter() - began_s


def _result_json(
    study: Study, runs: list[SharedRun], found: list[PolicyFigures], wall_s: float
) -> dict[str, Any]:
    """What ``--json`` prints: the figures of the last policy's first draw, and the policies side by side."""
    from mpicoloc.batch import sharing_figures

    last = next(run for run in runs if run.sharing == study.names[-1])
    policies = sharing_figures.as_json(found) if study.is_comparison else {}
    return _as_json(last.outcome, wall_s) | policies


def _check_outputs(args: argparse.Namespace) -> None:
    """See to it before a long simulation that its results can be written."""
    sharing.check_page(args.page)
    if args.out is not None:
        from mpicoloc.show import outputs

        outputs.check(args.out, [args.log], is_folder=True)


def _write(args: argparse.Namespace, study: Study, runs: list[SharedRun], found: list[PolicyFigures]) -> None:
    """The page and the tables, as far as they are asked for."""
    if args.page is not None:
        sharing.write_page(args, study.centre, runs, found)
    if args.out is not None:
        from mpicoloc.batch import tables

        figures = [_as_json(run.outcome, 0.0) for run in runs]
        tables.write(study.centre, study.cases, runs, figures, found, args.out)


def _machine(args: argparse.Namespace) -> Machine:
    from mpicoloc.batch import machine as batch_machine
    from mpicoloc.network import files

    if args.topology is None:
        raise UsageError("--topology is missing: give one like 'XGFT(3;18,8,8;1,18,18)', or a file of one")
    known = batch_machine.named(args.topology)
    if known is not None:
        return known
    rate = args.link_rate or fabric.LINK_RATE
    return batch_machine.of_fabric(files.fabric_of(args.topology, rate, args.up_links))


def _workload(args: argparse.Namespace, machine: Machine) -> Workload:
    """The jobs that are simulated, with notes on those that are not."""
    from mpicoloc.batch.logs import job_log

    log, damaged = _read(args.log, _state_of(args.log), skip_damaged=args.skip_damaged)
    if damaged:
        messages.note(f"{args.log}: {len(damaged)} damaged lines left out, the first is line {damaged[0]}")
    has_run = job_log.ran(log)
    if not has_run.all():
        n = int((~has_run).sum())
        messages.note(
            f"{args.log}: {n:,} jobs without run time or processors never ran or have not ended: left out"
        )
    log = job_log.select(log, has_run)
    if args.cores_per_node is None:
        n_cores = log.cores_per_node() or 1
    else:
        n_cores = config.parse_whole("--cores-per-node", args.cores_per_node)
    if args.skip_larger:
        fits = job_log.nodes_needed(log, n_cores) <= machine.n_nodes
        if not fits.all():
            messages.note(f"{args.log}: {int((~fits).sum()):,} jobs larger than the machine left out")
        log = job_log.select(log, fits)
    return job_log.workload(log, n_cores, machine.n_nodes, args.estimates)


@functools.lru_cache(maxsize=2)
def _read(path: str, state: object, *, skip_damaged: bool) -> tuple[JobLog, tuple[int, ...]]:
    """A log, read once by each process of a sweep while the state of its file is the same."""
    from mpicoloc.batch.logs import formats

    return formats.parse(_lines(path), path, skip_damaged=skip_damaged)


def _state_of(path: str) -> tuple[int, int, int] | None:
    """What changes when somebody writes a file; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"cannot read {path}: {error}: give a log in Standard Workload Format or of Slurm's sacct"
        ) from None
    return data.decode("utf-8-sig", "replace").split("\n")


def _as_json(outcome: Outcome, wall_s: float) -> dict[str, Any]:
    return {
        "n_jobs": outcome.n_jobs,
        "completion_s": outcome.completion_s,
        "utilisation_frac": outcome.utilisation_frac,
        "wait_mean_s": outcome.waits.mean_s,
        "wait_median_s": outcome.waits.median_s,
        "wait_p95_s": outcome.waits.p95_s,
        "log_wait_mean_s": outcome.log_wait_mean_s,
        "bounded_slowdown_mean": outcome.waits.bounded_slowdown,
        "small_wait_mean_s": outcome.small_waits.mean_s,
        "big_wait_mean_s": outcome.big_waits.mean_s,
        "sharing_jobs_mean": outcome.sharing_jobs_mean,
        "sharing_jobs_frac": outcome.sharing_jobs_frac,
        "pairs_by_level": {str(level): n for level, n in outcome.pairs_by_level.items()},
        "subtrees_mean": list(outcome.subtrees_mean),
        "wall_s": wall_s,
    }
