"""One call of `mpicoloc batch`: what its flags and files describe, simulated, with its figures."""

from __future__ import annotations

import argparse
import functools
import os
import time
from dataclasses import dataclass
from typing import Any

from mpicoloc import messages
from mpicoloc.batch import (
    allocation,
    comparison,
    draws,
    engine,
    job_log,
    log_files,
    machine as machines,
    order,
    page,
    partitions,
    sharing_figures,
)
from mpicoloc.batch.comparison import Case, Centre, SharedRun
from mpicoloc.batch.job_log import Workload
from mpicoloc.batch.machine import Machine
from mpicoloc.batch.partitions import Partition
from mpicoloc.batch.sharing_figures import PolicyFigures
from mpicoloc.bill.price import Tariff, tariff
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError
from mpicoloc.network import files, flags as fabric
from mpicoloc.show import outputs

_SHARING_FLAGS = ("slowdowns", "curves", "pack")
_PROGRAM_FLAGS = ("programs", "mix", "seeds", "seed")
"""Also allowed with --utilisation."""
_PAGE_FLAGS = ("pricing", "rate_su")
"""Also allowed with --page."""


@dataclass(frozen=True)
class Study:
    """What is simulated; `names` are the sharing policies, and `is_comparison`: they are compared."""

    centre: Centre
    names: list[str]
    cases: list[Case]
    tariffs: list[Tariff]
    is_comparison: bool


@dataclass(frozen=True)
class Result:
    """All simulations of a study, how long they took, and figures of the policies if somebody needs them."""

    study: Study
    runs: list[SharedRun]
    wall_s: float
    figures: list[PolicyFigures]

    def as_json(self) -> dict[str, Any]:
        """Figures of the last policy's first draw, and the policies side by side."""
        last = next(run for run in self.runs if run.sharing == self.study.names[-1])
        policies = sharing_figures.as_json(self.figures) if self.study.is_comparison else {}
        return vars(last.outcome) | {"wall_s": self.wall_s} | policies


def of(args: argparse.Namespace) -> Study:
    """What flags and files describe; what is wrong with words is told before files are read.

    Raises `UsageError`, `DataError` if they do not go together.
    """
    chosen = order.named(args.order), allocation.named(args.allocation)
    compares = is_comparison(args)
    machine = _machine(args)
    parts = _partitions(args, machine)
    work = _workload(args, machine)
    work, simulate = _restricted(args, work, parts) if parts else (work, engine.simulate)
    names = names_of(args)
    comparison.check_names(names, args.order)
    against = None if args.against is None else allocation.named(args.against)
    centre = Centre(work, machine, args.order, *chosen, args.pack, simulate, against)
    tariffs = [tariff(args.rate_su or 1.0, name) for name in args.pricing or ("fair", "runtime")]
    cases = draws.cases(args, work.log, machine.height, is_shared=names != ["none"])
    return Study(centre, names, cases, tariffs, compares)


def names_of(args: argparse.Namespace) -> list[str]:
    """The sharing policies that were asked for."""
    return [word.strip() for word in args.sharing.split(",")]


def is_comparison(args: argparse.Namespace) -> bool:
    """Whether policies are to be compared, or a page is to be written.

    Raises `UsageError` if a flag of sharing is there and nobody shares, or nothing can be compared with
    another allocation.
    """
    delays = args.utilisation is not None
    if args.against is not None and not delays:
        raise UsageError("--against compares what jobs lose to links: give --utilisation too")
    if names_of(args) != ["none"]:
        return True
    others = (*(() if delays else _PROGRAM_FLAGS), *(() if args.page or delays else _PAGE_FLAGS))
    for flag in (*_SHARING_FLAGS, *others):
        if getattr(args, flag) not in (None, False):
            raise UsageError(
                f"--{flag.replace('_', '-')} is of jobs that share nodes: give --sharing blind, model or "
                "service too"
            )
    return args.page is not None or delays


def unset_sharing(args: argparse.Namespace) -> None:
    """Leave out all flags that are of jobs that share nodes only."""
    others = () if args.utilisation is not None else (*_PROGRAM_FLAGS, *_PAGE_FLAGS)
    for flag in (*_SHARING_FLAGS, *others):
        setattr(args, flag, False if flag == "pack" else None)


def _machine(args: argparse.Namespace) -> Machine:
    if args.topology is None:
        raise UsageError("--topology is missing: give one like 'XGFT(3;18,8,8;1,18,18)', or a file of one")
    rate = args.link_rate or fabric.LINK_RATE
    known = machines.named(args.topology)
    return known or machines.of_fabric(files.fabric_of(args.topology, rate, args.up_links))


def _workload(args: argparse.Namespace, machine: Machine) -> Workload:
    """The jobs that are simulated, with notes on those that are not."""
    log, damaged = log_files.read(args.log, skip_damaged=args.skip_damaged)
    if damaged:
        messages.note(f"{args.log}: {len(damaged)} damaged lines left out, the first is line {damaged[0]}")
    has_run = job_log.ran(log)
    if not has_run.all():
        n = int((~has_run).sum())
        messages.note(
            f"{args.log}: {n:,} jobs without run time or processors never ran or have not ended: left out"
        )
    log = job_log.select(log, has_run)
    n_cores = args.cores_per_node or log.cores_per_node() or 1
    if args.skip_larger:
        fits = job_log.nodes_needed(log, n_cores) <= machine.n_nodes
        if not fits.all():
            messages.note(f"{args.log}: {int((~fits).sum()):,} jobs larger than the machine left out")
        log = job_log.select(log, fits)
    return job_log.workload(log, n_cores, machine.n_nodes, args.estimates)


def _partitions(args: argparse.Namespace, machine: Machine) -> tuple[Partition, ...]:
    """The partitions that the file tells; none without one."""
    if args.partitions is None:
        return ()
    if args.sharing != "none":
        raise UsageError(
            f"--partitions with --sharing {args.sharing}: jobs share nodes of a whole machine only"
        )
    if args.utilisation is not None:
        raise UsageError("--partitions with --utilisation: jobs of a whole machine only are delayed by links")
    try:
        with open(args.partitions, encoding="utf-8-sig", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"--partitions {args.partitions} cannot be read: {error.strerror}") from None
    return partitions.parse(text, args.partitions, machine)


def _restricted(
    args: argparse.Namespace, work: Workload, parts: tuple[Partition, ...]
) -> tuple[Workload, engine.Simulate]:
    """The jobs that their partitions take, and what simulates them.

    Raises `DataError` if a job is of no partition, or larger or longer than its own allows and not to be left
    out; if none is left.
    """
    of_job = partitions.of_jobs(work, parts)
    if args.skip_larger:
        keep = partitions.takes(work, parts, of_job)
        if not keep.any():
            raise DataError(
                f"{args.partitions}: its partitions allow none of the jobs: change MaxNodes or MaxTime"
            )
        if not keep.all():
            left_out = counted(int((~keep).sum()), "job")
            messages.note(f"{args.log}: {left_out} that their partition does not allow left out")
        work, of_job = partitions.select(work, keep), of_job[keep]
    partitions.check(work, parts, of_job)
    if args.estimates == "user":
        work = partitions.with_limits(work, parts, of_job)
    return work, functools.partial(partitions.simulate, partitions=parts, of_job=of_job)


def simulate(study: Study, *, keeps_places: bool) -> Result:
    """All simulations; where jobs were is kept for pages and tables."""
    began_s = time.perf_counter()
    runs = list(comparison.run_all(study.centre, study.names, study.cases, keeps_places=keeps_places))
    wall_s = time.perf_counter() - began_s
    needs_figures = study.is_comparison or keeps_places
    figures = sharing_figures.of_runs(study.centre, runs, study.tariffs) if needs_figures else []
    return Result(study, runs, wall_s, figures)


def write_page(path: str, log: str, found: Result) -> None:
    """Write the page of the first draw of each policy."""
    first = list({run.sharing: run for run in reversed(found.runs)}.values())[::-1]
    text = page.page(os.path.basename(log), found.study.centre, first, found.figures)
    with outputs.text_file(path, "--page") as file:
        file.write(text)
    messages.note(f"page in {path}")
