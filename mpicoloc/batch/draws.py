"""Random draws: the program of each job in a log, its slowdowns, and its link utilisation."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpicoloc import messages
from mpicoloc.batch.comparison import Case
from mpicoloc.batch.inputs import JobLog
from mpicoloc.batch.shared_simulation import Slowdowns, drawn
from mpicoloc.core.profile import Ints
from mpicoloc.core.slowdown import (
    TURNS,
    JobFeatures,
    PairSlowdowns,
    SlowdownModel,
    measured_programs,
    pair_slowdowns,
)
from mpicoloc.core.units import counted
from mpicoloc.errors import DataError, UsageError
from mpicoloc.pairing import model_file, queue_files
from mpicoloc.place import utilisation_files

N_SEEDS = 5
"""Default number of draws; a simulation in which nothing is random has a single draw."""
ANY = "*"
"""Key in a table of programs that stands for all other executables."""


@dataclass(frozen=True)
class Programs:
    """The program of each job.

    Parameters
    ----------
    names : tuple of str
        Names of all programs.
    of_job : ndarray of int, shape (n_jobs,)
        Index of each job's program in `names`.
    """

    names: tuple[str, ...]
    of_job: Ints


def mix(text: str, known: Sequence[str], figures: str = "slowdowns") -> dict[str, float]:
    """Fractions of programs in a mix such as ``lu=3,heat2d=1``. An empty mix stands for equal fractions.

    `figures` names the data of the `known` programs, for messages.

    Result: the fraction of each program; the fractions add up to 1. Raises `UsageError` if an entry is not
    NAME=PART, a part is not above 0, or a program is unknown or named twice.
    """
    parts: dict[str, float] = {}
    for word in filter(None, text.split(",")):
        name, equals, number = word.rpartition("=")
        try:
            part = float(number)
        except ValueError:
            part = -1.0
        if not (equals and name and 0 < part < np.inf):
            raise UsageError(f"--mix {word!r} is not NAME=PART with a part above 0, for example {known[0]}=2")
        if name not in known or name in parts:
            why = (
                "is named twice"
                if name in parts
                else f"has no {figures}; the programs are {', '.join(known)}"
            )
            raise UsageError(f"--mix: program {name} {why}")
        parts[name] = part
    parts = parts or dict.fromkeys(known, 1.0)
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def draw(log: JobLog, parts: Mapping[str, float], rng: np.random.Generator) -> Programs:
    """Draw programs from a mix: one for each executable of a user, one for each job without executable."""
    names = tuple(parts)
    is_known = log.program >= 0
    _, which = np.unique(
        np.stack([log.user, log.program, np.where(is_known, -1, np.arange(len(log)))]),
        axis=1,
        return_inverse=True,
    )
    drawn = rng.choice(len(names), int(which.max()) + 1, p=np.array(list(parts.values())))
    return Programs(names, drawn[which.ravel()].astype(np.int64))


def by_table(log: JobLog, table: Mapping[str, str], source: str) -> Programs:
    """Each job's program, from a table that maps the log's executable numbers, or job names, to programs.

    Raises `DataError` if the table lacks a job's executable.
    """
    numbers, which = np.unique(log.program, return_inverse=True)
    keys = [str(log.name("program", number)) for number in numbers.tolist()]
    found = [table.get(key, table.get(ANY)) for key in keys]
    if None in found:
        i = found.index(None)
        n_jobs = int((which == i).sum())
        raise DataError(
            f"{source}: no row for executable {keys[i]} of {counted(n_jobs, 'job')}: add it, or one for {ANY}"
        )
    names = tuple(dict.fromkeys(name for name in found if name is not None))
    places = np.array([names.index(name) for name in found if name is not None], np.int64)
    return Programs(names, places[which])


def check_job_names(log: JobLog, known: Collection[str]) -> None:
    """Check that the name of every job is the name of a known program.

    Raises `DataError` if a job has another name.
    """
    names = log.names["program"]
    numbers, n_jobs = np.unique(log.program, return_counts=True)
    unknown = [i for i, number in enumerate(numbers.tolist()) if names.get(number) not in known]
    if unknown:
        i = max(unknown, key=lambda i: int(n_jobs[i]))
        raise DataError(
            f"no slowdowns are known for {counted(len(unknown), 'job name')}, most often "
            f"{log.name('program', int(numbers[i]))} ({counted(n_jobs[i], 'job')}): list the program "
            "of each in --programs FILE, or draw programs with --mix"
        )


def cases(args: argparse.Namespace, log: JobLog, height: int, *, layouts: Sequence[str]) -> list[Case]:
    """The draws to simulate, each with programs and their slowdowns; a single draw if nothing is random.

    `layouts` are those in which jobs share nodes; empty: none share.
    """
    seed, is_shared = args.seed or 0, bool(layouts)
    links = None if args.utilisation is None else utilisation_files.read(args.utilisation)
    if not is_shared and links is None:
        ones = np.ones((1, 1))
        return [Case(seed, np.zeros(len(log), np.int64), Slowdowns(ones, ones))]
    if args.programs is not None and args.mix is not None:
        raise UsageError("--programs names the programs, whereas --mix draws them: give only one")
    table = None if args.programs is None else _table(args.programs, log)
    known: Mapping[str, Any] = links or {}
    model: SlowdownModel | None = None
    if is_shared:
        model, known = _model(args, table.names if table else None, layouts)
    if table is None and args.mix is None and "program" in log.names:
        if is_shared:
            check_job_names(log, known)
        table = by_table(log, {name: name for name in log.names["program"].values()}, "names of jobs")
    parts = mix(args.mix or "", list(known), "slowdowns" if is_shared else "utilisation") if not table else {}
    names = table.names if table else tuple(parts)
    apart = PairSlowdowns(*[np.ones((len(names),) * 2)] * 3)
    pairs = pair_slowdowns(model, [known[name] for name in names]) if model else apart
    is_exact = bool((pairs.low == pairs.high).all())
    busy = (
        None
        if links is None
        else utilisation_files.of_programs(names, links, height, " and ".join(args.utilisation))
    )
    found = []
    for number in range(seed, seed + _n_draws(args.seeds, is_random=table is None or not is_exact)):
        rng = np.random.default_rng(number)
        chosen = table or draw(log, parts, rng)
        slowdowns = drawn(pairs, None if is_exact else rng)
        found.append(Case(number, chosen.of_job, slowdowns, chosen.names, busy))
    return found


def _n_draws(asked: int | None, *, is_random: bool) -> int:
    """Number of draws that `--seeds` asks for; 1 if nothing is random."""
    if is_random or asked == 1:
        return asked or N_SEEDS
    if asked:
        messages.note(
            "only one seed is used: nothing is random with --programs and slowdowns without intervals"
        )
    return 1


_OTHERWISE = "policies of that layout (turns: blind, model, service; cores: the others)"


def _model(
    args: argparse.Namespace, programs: tuple[str, ...] | None, layouts: Sequence[str]
) -> tuple[SlowdownModel, dict[str, JobFeatures]]:
    """The slowdown model, and the features of the programs that it covers."""
    if (args.curves is None) == (args.slowdowns is None):
        raise UsageError("jobs that share nodes need slowdowns: give --slowdowns FILE or --curves FILE")
    if args.curves is not None:
        model = model_file.of_curves(args.curves)
        if TURNS in layouts:
            messages.note(
                f"{args.curves}: bubbles have processors of their own; jobs that take turns on processors "
                "are slowed more"
            )
        names = programs or tuple(model.programs)
        return model, {name: JobFeatures(name, name, 1.0, 1, 1) for name in names}
    pairs = queue_files.slowdowns(args.slowdowns, *layouts, otherwise=_OTHERWISE)
    return measured_programs(pairs, programs or (target for target, _ in pairs))


def _table(path: str, log: JobLog) -> Programs:
    keys = {"executable", "program"}
    rows: list[Any] = list(queue_files.table_rows(path, "programs", keys, keys))
    return by_table(log, {str(row["executable"]): str(row["program"]) for row in rows}, path)
