"""One call of `mpicoloc batch`: simulate what flags and files describe, and print and write the results.

With `--sweep`: every combination of logs, orders, allocations, sharing policies and seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mpicoloc import messages
from mpicoloc.batch import (
    allocation,
    comparison,
    draws,
    engine,
    fragmentation,
    inputs,
    log_files,
    order,
    page,
    partitions,
    slots,
)
from mpicoloc.batch.comparison import Case, Centre, Outcome, SharedRun
from mpicoloc.batch.inputs import JobLog, Machine, Workload
from mpicoloc.batch.page import PolicyFigures, as_json, duration
from mpicoloc.batch.partitions import Partition
from mpicoloc.bill.price import Tariff, tariff
from mpicoloc.core.profile import Bools
from mpicoloc.core.slowdown import CORES, TURNS
from mpicoloc.core.units import counted, seconds
from mpicoloc.errors import DataError, UsageError
from mpicoloc.job import sweep
from mpicoloc.network import files, flags as fabric
from mpicoloc.show import outputs
from mpicoloc.show.table import Column, console, listing, word_columns, write_parquet

if TYPE_CHECKING:
    import pyarrow as pa

_SHARING_FLAGS = ("slowdowns", "curves", "pack")
_PROGRAM_FLAGS = ("programs", "mix", "seeds", "seed")
"""Flags that are also allowed with --utilisation."""
_PAGE_FLAGS = ("pricing", "rate_su")
"""Flags that are also allowed with --page."""

_LARGER = 2
"""A note is printed if the topology has this many times the nodes that the log ever used."""


@dataclass(frozen=True)
class Study:
    """A simulation's inputs; `names` are the sharing policies, to be compared if `is_comparison`."""

    centre: Centre
    names: list[str]
    cases: list[Case]
    tariffs: list[Tariff]
    is_comparison: bool


@dataclass(frozen=True)
class Result:
    """All simulations of a study, their wall time, and metrics of the policies if needed."""

    study: Study
    runs: list[SharedRun]
    wall_s: float
    figures: list[PolicyFigures]

    def as_json(self) -> dict[str, Any]:
        """Metrics of the last policy's first draw, and the comparison of policies."""
        last = next(run for run in self.runs if run.sharing == self.study.names[-1])
        policies = page.as_json(self.figures) if self.study.is_comparison else {}
        return vars(last.outcome) | {"wall_s": self.wall_s} | policies


def of(args: argparse.Namespace) -> Study:
    """The study that flags and files describe.

    Raises `UsageError`, `DataError` if they contradict each other.
    """
    chosen = order.named(args.order), allocation.named(args.allocation)
    compares = is_comparison(args)
    log = _log(args)
    machine = _machine(args, log)
    parts = _partitions(args, machine)
    work = _workload(args, log, machine)
    work, simulate = _restricted(args, work, parts) if parts else (work, engine.simulate)
    names = names_of(args)
    comparison.check_names(names, args.order)
    against = None if args.against is None else allocation.named(args.against)
    in_log = fragmentation.of_log(work.log, machine)
    centre = Centre(work, machine, args.order, *chosen, args.pack, simulate, against, in_log)
    comparison.check_centre(centre, names)
    tariffs = [tariff(args.rate_su or 1.0, name) for name in args.pricing or ("fair", "runtime")]
    cases = draws.cases(args, work.log, machine.height, layouts=_layouts(names))
    return Study(centre, names, cases, tariffs, compares)


def _layouts(names: Sequence[str]) -> list[str]:
    """The layouts of jobs under these policies; empty: no jobs share nodes."""
    of_policies = ((TURNS, comparison.TWO_A_NODE), (CORES, slots.POLICIES))
    return [layout for layout, policies in of_policies if set(policies) & set(names)]


def names_of(args: argparse.Namespace) -> list[str]:
    """The sharing policies in `--sharing`."""
    return [word.strip() for word in args.sharing.split(",")]


def is_comparison(args: argparse.Namespace) -> bool:
    """Whether to compare policies or write a page.

    Raises `UsageError` if a flag for sharing is given but no jobs share, or `--against` without
    `--utilisation`.
    """
    delays = args.utilisation is not None
    if args.against is not None and not delays:
        raise UsageError("--against compares the time lost to shared links: give --utilisation, too")
    if allocation.LEAST_DELAY in (args.allocation, args.against) and not delays:
        raise UsageError(
            f"--allocation {allocation.LEAST_DELAY} needs the demands of the programs: give --utilisation"
        )
    if names_of(args) != ["none"]:
        return True
    others = (*(() if delays else _PROGRAM_FLAGS), *(() if args.page or delays else _PAGE_FLAGS))
    for flag in (*_SHARING_FLAGS, *others):
        if getattr(args, flag) not in (None, False):
            raise UsageError(
                f"--{flag.replace('_', '-')} applies only to jobs that share nodes: add --sharing blind, "
                "model, cores or another policy"
            )
    return args.page is not None or delays


def unset_sharing(args: argparse.Namespace) -> None:
    """Unset all flags that apply only to jobs that share nodes."""
    others = () if args.utilisation is not None else (*_PROGRAM_FLAGS, *_PAGE_FLAGS)
    for flag in (*_SHARING_FLAGS, *others):
        setattr(args, flag, False if flag == "pack" else None)


def _machine(args: argparse.Namespace, log: JobLog) -> Machine:
    if args.topology is None and (flat := inputs.of_log(log, args.cores_per_node)) is not None:
        messages.note(f"without --topology: {counted(flat.n_nodes, 'node')} on one switch")
        return flat
    rate = args.link_rate or fabric.LINK_RATE
    if known := inputs.named(args.topology or ""):
        return known
    network = files.fabric_of(args.topology, rate, args.up_links)
    for note in network.notes:
        messages.note(note)
    return inputs.of_fabric(network)


def _cores(args: argparse.Namespace, log: JobLog) -> int:
    """Cores of a node."""
    return int(args.cores_per_node or log.cores_per_node() or 1)


def _log(args: argparse.Namespace) -> JobLog:
    """The jobs that ran, with notes on those that are left out."""
    try:
        log, damaged = log_files.read(args.log, skip_damaged=args.skip_damaged)
    except DataError:
        if args.topology is None:
            files.fabric_of(None, None, None)  # as for other verbs, a missing topology is told first
        raise
    if damaged:
        left_out = counted(len(damaged), "damaged line")
        messages.note(
            f"{args.log}: left out {left_out}; the first is line {damaged[0]} (in JSON: job {damaged[0]})"
        )
    has_run = inputs.ran(log)
    if not has_run.all():
        n = int((~has_run).sum())
        messages.note(
            f"{args.log}: left out {counted(n, 'job')} without run time or processors, which never ran or "
            "have not ended"
        )
    return inputs.select(log, has_run)


def _workload(args: argparse.Namespace, log: JobLog, machine: Machine) -> Workload:
    """The jobs to simulate, with notes on those that are left out."""
    n_cores = _cores(args, log)
    if args.skip_larger:
        fits = inputs.nodes_needed(log, n_cores) <= machine.n_nodes
        _note_larger(args, fits, "the machine")
        log = inputs.select(log, fits)
    work = inputs.workload(log, n_cores, machine.n_nodes, args.estimates)
    if args.memory_per_node is not None:
        work = replace(work, node_bytes=float(args.memory_per_node))
        if log.memory_bytes is None:
            messages.note(f"{args.log} has no memory of jobs, so --memory-per-node limits nothing")
    if args.skip_larger and (by_slots := slots.POLICIES.keys() & set(names_of(args))):
        fits = functools.reduce(np.logical_and, (slots.POLICIES[name].fits(work) for name in by_slots))
        if not fits.any():
            raise DataError(f"{args.log}: no job fits its nodes: give more --cores-per-node")
        _note_larger(args, fits, "the nodes that it gets")
        work = partitions.select(work, fits)
    if note := _size_note(inputs.most_at_once(work), machine.n_nodes):
        messages.note(f"{args.log}: {note}")
    return work


def _note_larger(args: argparse.Namespace, fits: Bools, than: str) -> None:
    if not fits.all():
        messages.note(f"{args.log}: left out {counted(int((~fits).sum()), 'job')} larger than {than}")


def _size_note(n_at_once: int, n_nodes: int) -> str:
    """A note if the log's busiest instant does not fit the topology, else ""."""
    if n_at_once > n_nodes:
        shared, means = " if none shared a node", "waits are longer than in the log"
    elif 0 < _LARGER * n_at_once <= n_nodes:
        shared, means = "", "hardly any job waits, and most nodes are idle"
    else:
        return ""
    return (
        f"its jobs had up to {counted(n_at_once, 'node')} at once{shared}, but the topology has {n_nodes:,}, "
        f"so {means}: if the log is of another machine, give its --topology"
    )


def _partitions(args: argparse.Namespace, machine: Machine) -> tuple[Partition, ...]:
    """The partitions in the file of `--partitions`; () without a file."""
    if args.partitions is None:
        return ()
    if args.sharing != "none":
        raise UsageError(
            f"--partitions cannot be combined with --sharing {args.sharing}: leave out one of them"
        )
    if args.utilisation is not None:
        raise UsageError("--partitions cannot be combined with --utilisation: leave out one of them")
    if args.allocation == allocation.FEWEST_SHARERS:
        raise UsageError(
            "--partitions cannot be combined with --allocation fewest-sharers: leave out one of them"
        )
    try:
        with open(args.partitions, encoding="utf-8-sig", errors="replace") as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"--partitions {args.partitions} cannot be read: {error.strerror}") from None
    return partitions.parse(text, args.partitions, machine)


def _restricted(
    args: argparse.Namespace, work: Workload, parts: tuple[Partition, ...]
) -> tuple[Workload, engine.Simulate]:
    """The jobs that fit their partitions, and the function that simulates them.

    Raises `DataError` if a job has no known partition or, without `--skip-larger`, exceeds its limits; also
    if no job is left.
    """
    of_job = partitions.of_jobs(work, parts)
    if args.skip_larger:
        keep = partitions.takes(work, parts, of_job)
        if not keep.any():
            raise DataError(
                f"{args.partitions}: all jobs exceed limits of their partitions: raise MaxNodes or MaxTime"
            )
        if not keep.all():
            left_out = counted(int((~keep).sum()), "job")
            messages.note(f"{args.log}: left out {left_out} because of their partitions' limits")
        work, of_job = partitions.select(work, keep), of_job[keep]
    partitions.check(work, parts, of_job)
    if args.estimates == "user":
        work = partitions.with_limits(work, parts, of_job)
    return work, functools.partial(partitions.simulate, partitions=parts, of_job=of_job)


def simulate(study: Study, *, keeps_places: bool) -> Result:
    """Run all simulations; `keeps_places` records the nodes of each job, for pages and tables."""
    began_s = time.perf_counter()
    runs = list(comparison.run_all(study.centre, study.names, study.cases, keeps_places=keeps_places))
    wall_s = time.perf_counter() - began_s
    figures = page.of_runs(study.centre, runs, study.tariffs) if study.is_comparison or keeps_places else []
    return Result(study, runs, wall_s, figures)


def write_page(path: str, log: str, found: Result) -> None:
    """Write the page of the first draw of each policy."""
    first = list({run.sharing: run for run in reversed(found.runs)}.values())[::-1]
    text = page.page(os.path.basename(log), found.study.centre, first, found.figures)
    with outputs.text_file(path, "--page") as file:
        file.write(text)
    messages.note(f"page in {path}")


def show(outcome: Outcome, wall_s: float) -> None:
    """Print the metrics of one schedule, and the wall time of the simulation."""
    slowdown = outcome.bounded_slowdown_mean
    rows = [
        ("jobs", f"{outcome.n_jobs:,}"),
        ("completion", duration(outcome.completion_s)),
        ("nodes with a job", f"{outcome.utilisation_frac:.1%}"),
        ("wait, mean", _wait(outcome.wait_mean_s)),
        ("wait, mean, in the log", _wait(outcome.log_wait_mean_s)),
        ("wait, median", _wait(outcome.wait_median_s)),
        ("wait, 95 %", _wait(outcome.wait_p95_s)),
        ("wait of jobs that fit a switch, mean", _wait(outcome.small_wait_mean_s)),
        ("wait of larger jobs, mean", _wait(outcome.big_wait_mean_s)),
        ("bounded slowdown, mean", "-" if slowdown is None else f"{slowdown:,.3g}"),
        ("jobs that share the network", f"{outcome.sharing_jobs_frac:.1%}"),
        ("jobs with which one shares it, mean", f"{outcome.sharing_jobs_mean:.3g}"),
        *((f"pairs that share links of level {i}", f"{n:,}") for i, n in outcome.pairs_by_level.items()),
        *(
            (f"subtrees of level {level} of a job, mean", f"{mean:.3g}")
            for level, mean in enumerate(outcome.subtrees_mean, 1)
        ),
        *(
            (f"jobs of {name} switches on at most {fragmentation.CLASSES[name]}{where}", f"{frac:.1%}")
            for where, found in (("", outcome.compact_frac), (", in the log", outcome.log_compact_frac))
            for name, frac in found.items()
            if frac is not None
        ),
        ("switches without used up-links, mean", _percent(outcome.idle_uplinks_frac)),
        ("simulated in", seconds(wall_s)),
    ]
    console().print(listing(word_columns(("figure", "value")), rows, "Simulated batch system"))


def _percent(frac: float | None) -> str:
    return "-" if frac is None else f"{frac:.1%}"


def _wait(value_s: float | None) -> str:
    return "-" if value_s is None else duration(value_s)


def show_sharing(found: Sequence[PolicyFigures]) -> None:
    """Print the comparison of policies, and the savings by sharing."""
    head, *rows = page.table(found)
    console().print(listing(word_columns(("figure", *head[1:])), rows, "Sharing of nodes"))
    for line in page.sentences(found):
        console().print(line)


def show_sweep(rows: Sequence[dict[str, Any]]) -> None:
    """Print metrics of a sweep; `rows` are those that ``mpicoloc batch --sweep --json`` prints."""
    columns = [
        *(Column(flag, functools.partial(_setting, flag=flag), is_name=True) for flag in rows[0]["settings"]),
        Column("completion", "completion_s", duration),
        Column("nodes with a job", "utilisation_frac", ".1%"),
        Column("wait, mean", "wait_mean_s", duration),
        Column("wait, 95 %", "wait_p95_s", duration, left_out=1),
        Column("share the network", "sharing_jobs_frac", ".1%"),
    ]
    if any("policies" in row for row in rows):
        columns.append(Column("saved of the machine", _saved_frac, ".1%"))
    console().print(listing(columns, rows, "Sweep"))


def _setting(row: dict[str, Any], flag: str) -> str:
    return str(row["settings"][flag])


def _saved_frac(row: dict[str, Any]) -> float | None:
    """The fraction that the last policy saved; None without a run to compare it with."""
    saved = row["policies"][-1]["saved_frac"] if "policies" in row else None
    return None if saved is None else float(saved["value"])


POLICIES = "policies.parquet"
"""File of a sweep with a row for each combination, policy and metric; missing if no jobs share nodes."""
_NOT_FIGURES = ("notes", "settings", "policies", "n_seeds", "sentences")


def write(found: Result, out: str) -> None:
    """Write a file for each table to the folder `out`, which must be new or empty.

    Raises `UsageError` if the folder has files. Raises `EnvironmentFault` if it cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    centre, of_seed = found.study.centre, {case.seed: case for case in found.study.cases}
    tables = {
        "jobs": pa.concat_tables([_jobs(centre, of_seed[run.seed], run) for run in found.runs]),
        "events": pa.concat_tables([_events(run) for run in found.runs]),
    }
    rows = {
        "runs": [
            {"sharing": run.sharing, "seed": run.seed, **_flat(vars(run.outcome)), **vars(run.costs)}
            for run in found.runs
        ],
        "policies": _policies(as_json(found.figures)["policies"]),
    }
    with outputs.folder(out) as folder:
        for name, table in tables.items():
            pq.write_table(table, os.path.join(folder, f"{name}.parquet"), compression="zstd")
        for name, own in rows.items():
            write_parquet(own, os.path.join(folder, f"{name}.parquet"))


def write_sweep(rows: Sequence[dict[str, Any]], folder: str) -> None:
    """Write the rows that ``mpicoloc batch --sweep --json`` prints to a folder, replacing earlier tables.

    Raises `EnvironmentFault` if the folder cannot be written.
    """
    sweep.replace_table([{**row["settings"], **_flat(row)} for row in rows], folder)
    policies = [
        {**row["settings"], **figure} for row in rows for figure in _policies(row.get("policies", ()))
    ]
    if policies:
        sweep.replace_table(policies, folder, POLICIES)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, POLICIES))  # a table of an earlier sweep


def _jobs(centre: Centre, case: Case, run: SharedRun) -> pa.Table:
    import pyarrow as pa

    work, schedule = centre.workload, run.schedule
    log, n = work.log, len(work)
    names = np.array(case.names, object)
    return pa.table(
        {
            "sharing": [run.sharing] * n,
            "seed": np.full(n, run.seed),
            "job": log.number,
            "user": _named(log, "user"),
            "executable": _named(log, "program"),
            "program": pa.array(names[case.programs] if len(names) else [None] * n, pa.string()),
            "n_nodes": work.n_nodes,
            "submit_s": schedule.arrival_s,
            "begin_s": schedule.start_s,
            "end_s": schedule.end_s,
            "wait_s": schedule.start_s - schedule.arrival_s,
            "run_alone_s": log.run_s,
            "estimate_s": work.estimate_s,
            "slowdown": comparison.slowdowns(work, schedule),
            "nodes": [_nodes(runs) for runs in run.record.runs],
            "beside_jobs": pa.array(
                [log.number[sorted(run.record.beside.get(job, ()))].tolist() for job in range(n)],
                pa.list_(pa.int64()),
            ),
            "n_network_sharers": run.links.n_sharers,
        }
    )


def _named(log: JobLog, column: str) -> pa.Array:
    """Names of users or programs if the log has them, else their numbers."""
    import pyarrow as pa

    numbers, names = getattr(log, column), log.names.get(column)
    if names is None:
        return pa.array(numbers)
    return pa.array([names.get(number) for number in numbers.tolist()], pa.string())


def _nodes(runs: Sequence[tuple[int, int]]) -> str:
    """Numbers of nodes in the form of Slurm's lists: ``0-15,18``."""
    return ",".join(str(first) if n == 1 else f"{first}-{first + n - 1}" for first, n in runs)


def _events(run: SharedRun) -> pa.Table:
    """The state after each instant at which a job began or ended."""
    import pyarrow as pa

    time_s, busy = (np.array(column) for column in zip(*run.record.busy, strict=True))
    is_last = np.append(np.diff(time_s) > 0, True)
    time_s, busy = time_s[is_last], busy[is_last]
    arrived, begun, ended = (
        np.searchsorted(np.sort(times_s), time_s, side="right")
        for times_s in (run.schedule.arrival_s, run.schedule.start_s, run.schedule.end_s)
    )
    return pa.table(
        {
            "sharing": [run.sharing] * len(time_s),
            "seed": np.full(len(time_s), run.seed),
            "time_s": time_s,
            "n_busy_nodes": busy,
            "n_waiting_jobs": arrived - begun,
            "n_running_jobs": begun - ended,
        }
    )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of one run as columns, for example ``pairs_level_1`` and ``subtrees_level_1`` for level 1."""
    told = {name: value for name, value in row.items() if name not in _NOT_FIGURES}
    pairs, subtrees = told.pop("pairs_by_level"), told.pop("subtrees_mean")
    for key in ("compact_frac", "log_compact_frac"):
        told |= {f"{key} {name}": value for name, value in told.pop(key).items()}
    told |= {f"pairs_level_{level}": n for level, n in pairs.items()}
    return told | {f"subtrees_level_{level}": mean for level, mean in enumerate(subtrees, 1)}


def _policies(policies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Metrics of policies over seeds, one per row; unmeasured ones are left out."""
    found = []
    for policy in policies:
        charged = {f"charged_su {name}": value for name, value in policy["charged_su"].items()}
        for figure, value in {**policy, **charged}.items():
            if isinstance(value, dict) and "low" in value:
                found.append({"sharing": policy["sharing"], "figure": figure, **value})
    return found


LOG = "log"
"""Name of the setting in a sweep over several logs."""
_NOT_SWEPT = ("out", "page", "sweep", "processes")


def run(args: argparse.Namespace, add_flags: Callable[[argparse.ArgumentParser], None]) -> int:
    """Simulate missing rows, and print all. Returns 1 if some failed, or the first exit code if all did."""
    several = "--sweep" if args.sweep else "more than one LOG"
    _, code = sweep.run(
        args,
        "simulation",
        ("page",),
        lambda: _cases(args, add_flags),
        row,
        write_sweep,
        show_sweep,
        several,
    )
    return code


def row(args: argparse.Namespace) -> dict[str, Any]:
    """One simulation in a process of a sweep: its notes, and the fields that ``--json`` prints."""
    notes: list[str] = []
    with messages.at_level(messages.NORMAL, lambda line: notes.append(line.removeprefix("mpicoloc: "))):
        found = simulate(of(args), keeps_places=False)
    return {"notes": notes, **found.as_json()}


def _check(args: argparse.Namespace) -> None:
    """Check flags and files before any simulation."""
    with messages.at_level(messages.QUIET):
        of(args)


def _cases(
    args: argparse.Namespace, add_flags: Callable[[argparse.ArgumentParser], None]
) -> list[sweep.Case]:
    """Every combination of the values, as arguments of separate simulations."""
    parser = argparse.ArgumentParser(add_help=False)
    add_flags(parser)
    flags = {name: flag for name, flag in sweep.flags_of(parser).items() if name not in _NOT_SWEPT}
    valued = {name: flag for name, flag in flags.items() if flag.nargs != 0}
    # The log is the outermost axis, because each process caches the log that it read last.
    axes = ({LOG: args.logs} if len(args.logs) > 1 else {}) | sweep.axes(args, valued, {})
    if twice := [log for log in args.logs if args.logs.count(log) > 1]:
        raise UsageError(f"log {twice[0]} appears twice: give it once")
    digest = functools.cache(lambda word: sweep.digest_of([word]) if os.path.isfile(word) else word)
    cases = []
    for settings, own in sweep.variants(args, axes, valued):
        del own.logs
        own.log = settings.get(LOG, args.logs[0])
        if "sharing" in axes and names_of(own) == ["none"]:
            unset_sharing(own)
        elif "sharing" in axes and not set(names_of(own)) & set(comparison.TWO_A_NODE):
            own.pack = False
        values = {flag.dest: getattr(own, flag.dest) for name, flag in flags.items() if name != "json"}
        # If a flag names a file, the contents of the file are part of the key.
        words = [
            word for value in values.values() for word in (value if isinstance(value, list) else [value])
        ]
        files = [digest(word) for word in (own.log, *words) if isinstance(word, str)]
        cases.append(sweep.Case(settings, sweep.key(values, os.path.basename(own.log), files), own))
    sweep.check_each(cases, _check, "seed")
    return cases
