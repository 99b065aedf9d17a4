"""`mpicoloc replay --sweep`: every combination of some flags' values, on all cores or under mpirun."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpicoloc.cli import arguments
from mpicoloc.cli.arguments import bounded
from mpicoloc.job import sweep
from mpicoloc.replay import flags as replay_flags

if TYPE_CHECKING:
    from mpicoloc.replay.programs.sources import Choices, Source

JOBS = "jobs"
"""What `--sweep` calls the profiles."""
_ONE_RUN = ("perfetto", "paraver", "window_s", "against")
"""Flags of a single replay."""
_OF_ROW = ("j_inter_host_s", "total_contention_s", "routing", "n_packet_hops", "wall_s")
"""Keys of a row that are one number or word."""
_N_TRACES = 8
"""Traces that a process keeps for the next rows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of sweeps."""
    sweep.add_arguments(
        parser,
        "replay with each of these values of a flag, as --sweep slimming 1 2 4; several: every "
        "combination. jobs one.h5,two.h5 names profiles, none leaves the flag out. Rows are noted in --out, "
        "and what is noted is not run again. On all cores, or by the ranks of mpirun",
    )


def run(args: argparse.Namespace) -> int:
    """Simulate what is missing, and print all rows; 1 if some failed, the code of the first if all did."""
    from mpicoloc.replay import report

    formats = arguments.formats_of(args)
    rows, code = sweep.run(args, "replay", _ONE_RUN, lambda: _cases(args), row, _write, report.show_sweep)
    if rows and args.figures is not None:
        from mpicoloc.replay import figures as pictures

        arguments.write_figures([pictures.slowdowns(rows)], args.figures, formats)
    return code


def _write(rows: Sequence[dict[str, Any]], folder: str) -> None:
    """A table with a row for each job: the swept flags, its keys, and `_OF_ROW`."""
    records = [
        {**row["settings"], **job, **{name: row[name] for name in _OF_ROW}}
        for row in rows
        for job in row["jobs"]
    ]
    sweep.replace_table(records, folder)


def _cases(args: argparse.Namespace) -> list[sweep.Case]:
    """Every combination of the values, as arguments of a replay of its own."""
    from mpicoloc.replay import scene

    actions = _actions()
    valued = {flag: action for flag, action in actions.items() if action.nargs != 0}
    axes = sweep.axes(args, valued, {JOBS: "files"})
    # Jobs that stay the same for long are read once.
    axes = {flag: axes[flag] for flag in sorted(axes, key=(JOBS, "placement", *axes).index)}
    digests: dict[str, str] = {}
    cases = []
    for settings, own in sweep.variants(args, axes, actions):
        own.figures = None
        if JOBS in settings:
            own.files = settings[JOBS].split(",")
        cases.append(sweep.Case(settings, _key(own, actions, digests), own))
    sweep.check_each(cases, bounded(scene.check), "random_state")
    return cases


def _actions() -> sweep.Actions:
    """Flags of jobs and network, by name."""
    parser = argparse.ArgumentParser(add_help=False)
    replay_flags.add_job_flags(parser)
    replay_flags.add_network_flags(parser)
    return sweep.flags_of(parser)


def _key(args: argparse.Namespace, actions: sweep.Actions, digests: dict[str, str]) -> str:
    """Of all that a row depends on: flags, files, and the simulator's version."""
    flags = {action.dest: getattr(args, action.dest) for action in actions.values()}
    paths = (*args.files, args.topology, args.tables, *(args.placement or ()))
    of_files = [_digest(path, digests, is_trace=path in args.files) for path in paths]
    names = [os.path.basename(path) for path in args.files]
    return sweep.key(flags, args.no_base, names, of_files)


def _digest(path: str | None, known: dict[str, str], *, is_trace: bool) -> str:
    """Of the contents of a file, or of a trace of several files; the word itself if it is no path."""
    from mpicoloc.replay.programs import sources

    if path is None or not os.path.exists(path):
        return str(path)
    key = f"{path} as a trace" if is_trace else path
    if key not in known:
        known[key] = sweep.digest_of(sources.files_of(path) if is_trace else [path])
    return known[key]


@bounded
def row(args: argparse.Namespace) -> dict[str, Any]:
    """One replay, in a process of a sweep: what ``--json`` prints of it, and its notes."""
    from mpicoloc.replay import report, scene

    staged = scene.scene_of(args, _read)
    experiment, wall_s = scene.simulate(args, staged)
    return {"notes": staged.notes, **report.as_json(experiment, wall_s)}


@functools.lru_cache(maxsize=_N_TRACES)
def _read(path: str, choices: Choices) -> Source:
    """As `sources.read`; a process reads the traces of the rows before, and places them, only once."""
    import numpy as np

    from mpicoloc.replay.programs import sources

    source = sources.read(path, choices)
    placed = functools.lru_cache(maxsize=1)(lambda hosts: source.programs(np.array(hosts, np.int64)))
    return dataclasses.replace(source, programs=lambda hosts: placed(tuple(hosts.tolist())))
