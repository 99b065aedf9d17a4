"""Flags of `mpicoloc batch` for jobs that share nodes: which programs they run, and what these suffer."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mpicoloc import config, messages
from mpicoloc.batch import link_flags
from mpicoloc.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from mpicoloc.batch.comparison import Case, Centre, SharedRun
    from mpicoloc.batch.engine import Simulate
    from mpicoloc.batch.logs.job_log import JobLog, Workload
    from mpicoloc.batch.machine import Machine
    from mpicoloc.batch.partition import Partition
    from mpicoloc.batch.programs import Programs
    from mpicoloc.batch.sharing_figures import PolicyFigures
    from mpicoloc.bill.price import Tariff
    from mpicoloc.core.features import JobFeatures
    from mpicoloc.core.slowdown import PairSlowdowns, SlowdownModel

_SHARING_FLAGS = ("slowdowns", "curves", "pack")
_PROGRAM_FLAGS = ("programs", "mix", "seeds", "seed")
"""Also allowed with --utilisation."""
_PAGE_FLAGS = ("pricing", "rate_su")
"""Also allowed with --page."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags for sharing."""
    add = parser.add_argument
    add("--sharing", metavar="NAMES", default="none",
        help="none (default), blind, model or service; several with commas")  # fmt: skip
    add("--slowdowns", metavar="FILE", help="what pairs of programs suffer: target, co_runner, slowdown")
    add("--curves", metavar="FILE", help="curves and scores of programs, in place of --slowdowns")
    add(
        "--programs",
        metavar="FILE",
        help="program of each executable number, or name of a job, of the log: executable, program",
    )
    add(
        "--mix",
        metavar="A=2,B=1",
        help="draw programs with these parts, in place of --programs (default: names of jobs, else all "
        "alike)",
    )
    add("--seeds", metavar="N", help="draws of programs and slowdowns, for intervals (default 5)")
    add("--seed", metavar="K", help="of the first draw (default 0)")
    add("--pack", action="store_true", help="share even while nodes are free, so that nodes stay free")
    add("--pricing", metavar="NAME", action="append",
        help="price function to bill by; may be repeated (default: fair and runtime)")  # fmt: skip
    add("--rate-su", metavar="L", help="service units per core and hour (default 1)")
    add("--page", metavar="FILE", help="write a page: map of the machine, Gantt chart, curves, policies")


def names_of(args: argparse.Namespace) -> list[str]:
    """The sharing policies that were asked for."""
    return [word.strip() for word in args.sharing.split(",")]


def is_comparison(args: argparse.Namespace) -> bool:
    """Whether policies are to be compared, or a page is to be written.

    Raises `UsageError` if a flag of sharing is there, and nobody shares.
    """
    are_drawn = link_flags.are_used(args)
    if names_of(args) != ["none"]:
        return True
    others = (*(() if are_drawn else _PROGRAM_FLAGS), *(() if args.page or are_drawn else _PAGE_FLAGS))
    for flag in (*_SHARING_FLAGS, *others):
        if getattr(args, flag):
            raise UsageError(
                f"--{flag.replace('_', '-')} is of jobs that share nodes: give --sharing blind, model or "
                "service too"
            )
    return args.page is not None or are_drawn


@dataclass(frozen=True)
class Study:
    """What one call of the verb simulates.

    Parameters
    ----------
    centre : Centre
    names : list of str
        Sharing policies.
    cases : list of Case
        Draws.
    tariffs : list of Tariff
    is_comparison : bool
        Whether policies are compared.
    partitions : tuple of Partition
        Of the machine.
    """

    centre: Centre
    names: list[str]
    cases: list[Case]
    tariffs: list[Tariff]
    is_comparison: bool
    partitions: tuple[Partition, ...]


def study(
    args: argparse.Namespace,
    workload: Workload,
    machine: Machine,
    simulate: Simulate,
    partitions: tuple[Partition, ...],
) -> Study:
    """What the flags describe; `simulate` runs the jobs where none share.

    Raises `UsageError`, `DataError` if flags or files do not go together.
    """
    from mpicoloc.batch import comparison
    from mpicoloc.bill.price import tariff

    names = names_of(args)
    comparison.check_names(names, args.order)
    centre = _centre(args, workload, machine, simulate)
    rate_su = config.parse_positive("--rate-su", args.rate_su or "1")
    tariffs = [tariff(rate_su, name) for name in args.pricing or ("fair", "runtime")]
    cases = _cases(args, workload.log, machine.height, is_shared=names != ["none"])
    return Study(centre, names, cases, tariffs, is_comparison(args), partitions)


def parse_seed(args: argparse.Namespace) -> int:
    """The number of the first draw."""
    return config.parse_whole("--seed", args.seed or "0", 0)


def unset(args: argparse.Namespace) -> None:
    """Leave out all flags that are of jobs that share nodes only."""
    others = () if link_flags.are_used(args) else (*_PROGRAM_FLAGS, *_PAGE_FLAGS)
    for flag in (*_SHARING_FLAGS, *others):
        setattr(args, flag, False if flag == "pack" else None)


def check_page(path: str | None) -> None:
    """Refuse a page that cannot be written before minutes of simulation."""
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise UsageError(f"--page {path} cannot be written: give a file in a folder that is there and yours")


def _centre(args: argparse.Namespace, workload: Workload, machine: Machine, simulate: Simulate) -> Centre:
    from mpicoloc.batch import order
    from mpicoloc.batch.allocation import registry
    from mpicoloc.batch.comparison import Centre

    chosen = order.named(args.order), registry.named(args.allocation)
    against = None if args.against is None else registry.named(args.against)
    return Centre(workload, machine, args.order, *chosen, args.pack, simulate, against)


def write_page(
    args: argparse.Namespace, centre: Centre, runs: list[SharedRun], found: list[PolicyFigures]
) -> None:
    """Write the page of `--page`."""
    from mpicoloc.batch import page, sharing_figures

    first = list({run.sharing: run for run in reversed(runs)}.values())[::-1]
    text = page.page(
        os.path.basename(args.log), centre.workload, centre.machine, first, sharing_figures.table(found),
        sharing_figures.sentences(found),
    )  # fmt: skip
    try:
        with open(args.page, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"--page {args.page} cannot be written: {error.strerror}") from None
    messages.note(f"page in {args.page}")


def _cases(args: argparse.Namespace, log: JobLog, height: int, *, is_shared: bool) -> list[Case]:
    """Draws of programs and of what they suffer: one where nothing is random."""
    import numpy as np

    from mpicoloc.batch import link_flags, slowdowns
    from mpicoloc.batch import programs as batch_programs
    from mpicoloc.batch.comparison import Case
    from mpicoloc.core.slowdown import PairSlowdowns, pair_slowdowns

    seed = parse_seed(args)
    links = link_flags.read(args)
    if not is_shared and links is None:
        ones = np.ones((1, 1))
        return [Case(seed, np.zeros(len(log), np.int64), slowdowns.Slowdowns(ones, ones))]
    if args.programs is not None and args.mix is not None:
        raise UsageError("--programs tells the programs and --mix draws them: give one of both")
    table = None if args.programs is None else _table(args.programs, log)
    known: Mapping[str, Any] = links or {}
    model: SlowdownModel | None = None
    if is_shared:
        model, known = _model(args, table.names if table else None)
    if table is None and args.mix is None and "program" in log.names:
        if is_shared:
            batch_programs.check_job_names(log, known)
        table = batch_programs.by_job_names(log)
    figures = "slowdowns" if is_shared else "utilisation"
    parts = None if table else batch_programs.mix(args.mix or "", list(known), figures)
    names = table.names if table else tuple(parts or ())
    apart = PairSlowdowns(*[np.ones((len(names),) * 2)] * 3)
    pairs = pair_slowdowns(model, [known[name] for name in names]) if model else apart
    is_exact = bool((pairs.low == pairs.high).all())
    n = _n_draws(args, is_random=table is None or not is_exact)
    busy = None
    if links is not None:
        busy = link_flags.of_programs(names, links, height, " and ".join(args.utilisation))
    cases = (_case(seed + i, log, table, parts, pairs, is_exact=is_exact) for i in range(n))
    return [replace(case, utilisation=busy) for case in cases]


def _n_draws(args: argparse.Namespace, *, is_random: bool) -> int:
    """How many draws --seeds asks for: one where nothing is random."""
    n = config.parse_whole("--seeds", args.seeds) if args.seeds else 5
    if is_random or n == 1:
        return n
    if args.seeds:
        messages.note("one seed: --programs and slowdowns without intervals leave nothing to draw")
    return 1


def _case(
    seed: int,
    log: JobLog,
    table: Programs | None,
    parts: dict[str, float] | None,
    pairs: PairSlowdowns,
    *,
    is_exact: bool,
) -> Case:
    import numpy as np

    from mpicoloc.batch import programs as batch_programs
    from mpicoloc.batch import slowdowns
    from mpicoloc.batch.comparison import Case

    rng: np.random.Generator = np.random.default_rng(seed)
    chosen = table or batch_programs.draw(log, parts or {}, rng)
    return Case(seed, chosen.of_job, slowdowns.drawn(pairs, None if is_exact else rng), chosen.names)


def _model(
    args: argparse.Namespace, programs: tuple[str, ...] | None
) -> tuple[SlowdownModel, dict[str, JobFeatures]]:
    """The slowdown model, and the programs to ask it about."""
    from mpicoloc.bubble import curves_file
    from mpicoloc.bubble.model import BubbleModel
    from mpicoloc.core.features import JobFeatures
    from mpicoloc.core.slowdown import measured_programs
    from mpicoloc.pairing import queue_files

    if (args.curves is None) == (args.slowdowns is None):
        raise UsageError("jobs that share nodes need --slowdowns FILE, or --curves FILE, of programs")
    if args.curves is not None:
        curves = curves_file.read(args.curves)
        model = BubbleModel(curves)
        for note in model.notes:
            messages.note(note)
        names = programs or tuple(curves)
        return model, {name: JobFeatures(name, name, 1.0, 1, 1) for name in names}
    pairs = queue_files.slowdowns(args.slowdowns)
    return measured_programs(pairs, programs or (target for target, _ in pairs))


def _table(path: str, log: JobLog) -> Programs:
    from mpicoloc.batch import programs as batch_programs
    from mpicoloc.pairing import queue_files

    keys = {"executable", "program"}
    rows: list[Any] = list(queue_files.table_rows(path, "programs", keys, keys))
    return batch_programs.by_table(log, {str(row["executable"]): str(row["program"]) for row in rows}, path)
