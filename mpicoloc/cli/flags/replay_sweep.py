"""`mpicoloc replay --sweep`: every combination of some flags' values, on all cores or under mpirun."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import hashlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import mpicoloc
from mpicoloc import config
from mpicoloc.cli import drawn
from mpicoloc.cli.flags import replay_jobs, replay_network, replay_scene
from mpicoloc.cli.memory import bounded
from mpicoloc.core import messages
from mpicoloc.errors import MpicolocError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mpicoloc.network.replay.programs.builder import RankPrograms
    from mpicoloc.profile.recording.sources import Choices, Source
    from mpicoloc.sweep.sweep import Case

JOBS, UNSET = "jobs", "none"
"""What `--sweep` calls the profiles, and the value that leaves a flag out."""
_ONE_RUN = ("perfetto", "paraver", "window_s", "against")
"""Flags of a single replay."""
_N_TRACES = 8
"""Traces that a process keeps for the next rows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of sweeps."""
    parser.add_argument(
        "--sweep",
        metavar=("FLAG", "VALUE"),
        nargs="+",
        action="append",
        help="replay with each of these values of a flag, as --sweep slimming 1 2 4; several: every "
        "combination. jobs one.h5,two.h5 names profiles, none leaves the flag out. Rows are noted in --out, "
        "and what is noted is not run again. On all cores, or by the ranks of mpirun",
    )
    parser.add_argument("--processes", metavar="N", help="of a sweep (one for each core)")


def run(args: argparse.Namespace) -> int:
    """Simulate what is missing, and print all rows; 1 if some failed, the code of the first if all did."""
    from mpicoloc.report.export import sweep_tables
    from mpicoloc.report.terminal.simulated import sweep as report
    from mpicoloc.sweep import pool, row_log, sweep

    formats = drawn.formats_of(args)
    _check(args)
    n = None if args.processes is None else config.parse_whole("--processes", args.processes, most=4096)
    with pool.workers(n) as executor:
        if executor is None:
            return 0
        if n is not None and pool.is_under_mpirun():
            raise UsageError(
                "--processes is of one machine, and under mpirun its ranks do the work: leave it out"
            )
        cases = _cases(args)
        with row_log.only_one(args.out, "sweep") as is_sure:
            if not is_sure:
                messages.trouble(f"the file system of {args.out} has no file locks: run one sweep there only")
            failed: list[MpicolocError] = []
            done = sweep.complete(cases, row, args.out, executor, lambda *why: _report_failure(failed, *why))
            if not done:
                return failed[0].exit_code
            rows = [{"settings": dict(case.settings), **found} for case, found in done]
            sweep_tables.write(rows, args.out)
    for note in dict.fromkeys(note for found in rows for note in found["notes"]):
        messages.note(note)
    if args.json:
        print(json.dumps(rows, indent=2, allow_nan=False))
    else:
        report.show(rows)
    sys.stdout.flush()
    if args.figures is not None:
        from mpicoloc.report.figures import sweep as pictures

        drawn.write([pictures.slowdowns(rows)], args.figures, formats)
    return 1 if failed else 0


def _report_failure(failed: list[MpicolocError], case: Case, error: MpicolocError) -> None:
    """Tell why a row failed; the same reason once."""
    if str(error) not in map(str, failed):
        messages.trouble(f"{_words(case)}: {error}")
    failed.append(error)


def _check(args: argparse.Namespace) -> None:
    if args.out is None:
        raise UsageError("--sweep notes its rows in a folder: give --out FOLDER")
    for flag in _ONE_RUN:
        if getattr(args, flag) is not None:
            name = f"--{flag.replace('_', '-')}"
            raise UsageError(f"{name} is of one replay, and --sweep makes several: leave it out")


def _cases(args: argparse.Namespace) -> list[Case]:
    """Every combination of the values, as arguments of a replay of its own."""
    from mpicoloc.sweep import sweep

    actions = _actions()
    axes = _axes(args, {flag: action for flag, action in actions.items() if action.nargs != 0})
    digests: dict[str, str] = {}
    cases = []
    for settings in sweep.grid(axes):
        own = copy.copy(args)
        del own.run, own.sweep
        own.out = own.figures = None
        for flag, value in settings.items():
            if flag == JOBS:
                own.files = value.split(",")
            else:
                _set(own, actions[flag], value)
        cases.append(sweep.Case(settings, _key(own, actions, digests), own))
    _check_inputs(cases)
    return cases


def _check_inputs(cases: Sequence[Case]) -> None:
    """Refuse before the first simulation what one of them cannot be made of."""
    checked = set()
    for case in cases:
        args = case.argument
        try:
            replay_network.settings_of(args)
            # What is drawn is as good for one random state as for another.
            flags = repr(
                sorted((name, value) for name, value in vars(args).items() if name != "random_state")
            )
            if flags not in checked:
                bounded(replay_scene.check)(args)
            checked.add(flags)
        except MpicolocError as error:
            raise type(error)(f"{_words(case)}: {error}") from None


def _words(case: Case) -> str:
    return ", ".join(f"{flag} {value}" for flag, value in case.settings.items())


def _actions() -> dict[str, argparse.Action]:
    """Flags of jobs and network, by name."""
    parser = argparse.ArgumentParser(add_help=False)
    replay_jobs.add_arguments(parser)
    replay_network.add_arguments(parser)
    flags = (action for action in parser._actions if action.option_strings)
    return {action.option_strings[0].removeprefix("--"): action for action in flags}


def _axes(args: argparse.Namespace, actions: dict[str, argparse.Action]) -> dict[str, list[str]]:
    axes: dict[str, list[str]] = {}
    for flag, *values in args.sweep:
        if flag != JOBS and flag not in actions:
            known = ", ".join([JOBS, *sorted(actions)])
            raise UsageError(f"--sweep {flag}: no flag that can be swept: give {known}")
        if flag in axes:
            raise UsageError(f"--sweep {flag} is there twice: give all of its values once")
        if not values:
            raise UsageError(f"--sweep {flag} has no values: give some, as --sweep slimming 1 2 4")
        given = args.files if flag == JOBS else getattr(args, actions[flag].dest)
        if given and given != (None if flag == JOBS else actions[flag].default):
            raise UsageError(f"--sweep {flag}: its value is given too: leave one of both out")
        axes[flag] = values
    # Jobs that stay the same for long are read once.
    return {flag: axes[flag] for flag in sorted(axes, key=(JOBS, "placement", *axes).index)}


def _set(args: argparse.Namespace, action: argparse.Action, value: str) -> None:
    """Set a flag as if it had been given; those that may be given for each job have commas between these."""
    if value == UNSET:
        setattr(args, action.dest, action.default)
    elif isinstance(action, argparse._AppendAction):
        setattr(args, action.dest, value.split(","))
    else:
        setattr(args, action.dest, value)


def _key(args: argparse.Namespace, actions: dict[str, argparse.Action], digests: dict[str, str]) -> str:
    """Of all that a row depends on: flags, files, and the simulator's version."""
    flags = {action.dest: getattr(args, action.dest) for action in actions.values()}
    paths = (*args.files, args.topology, args.tables, *(args.placement or ()))
    of_files = [_digest(path, digests, is_trace=path in args.files) for path in paths]
    names = [os.path.basename(path) for path in args.files]
    told = [mpicoloc.__version__, flags, args.no_base, names, of_files]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _digest(path: str | None, known: dict[str, str], *, is_trace: bool) -> str:
    """Of the contents of a file, or of a trace of several files; the word itself if it is no path."""
    from mpicoloc.profile.recording import sources

    if path is None or not os.path.exists(path):
        return str(path)
    key = f"{path} as a trace" if is_trace else path
    if key not in known:
        digest = hashlib.sha256()
        for name in sources.files_of(path) if is_trace else [path]:
            try:
                with open(name, "rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise UsageError(f"cannot read {name}: {error.strerror}") from None
        known[key] = digest.hexdigest()
    return known[key]


@bounded
def row(args: argparse.Namespace) -> dict[str, Any]:
    """One replay, in a process of a sweep: what ``--json`` prints of it, and its notes."""
    from mpicoloc.report.terminal.simulated import replay as report

    scene = replay_scene.of(args, _read)
    experiment, wall_s = replay_scene.simulate(args, scene)
    return {"notes": scene.notes, **report.as_json(experiment, wall_s)}


def _read(path: str, choices: Choices) -> Source:
    """As `sources.read`; a process reads the traces of the rows before only once."""
    fields = {field.name: getattr(choices, field.name) for field in dataclasses.fields(choices)}
    return _read_once(path, **fields | {"algorithms": tuple(sorted(choices.algorithms.items()))})


@functools.lru_cache(maxsize=_N_TRACES)
def _read_once(path: str, *, algorithms: tuple[tuple[str, str], ...], **others: Any) -> Source:
    from mpicoloc.profile.recording import sources

    return _PlacedOnce(sources.read(path, sources.Choices(algorithms=dict(algorithms), **others)))


class _PlacedOnce:
    """A trace, with the programs of its ranks under the last placement."""

    def __init__(self, source: Source) -> None:
        self.n_ranks, self.hostnames, self.obeyed = source.n_ranks, source.hostnames, source.obeyed
        self._source, self._of_hosts = source, functools.lru_cache(maxsize=1)(self._place)

    def programs(self, hosts: NDArray[Any]) -> RankPrograms:
        """As of the trace itself."""
        return self._of_hosts(tuple(hosts.tolist()))

    def _place(self, hosts: tuple[int, ...]) -> RankPrograms:
        import numpy as np

        return self._source.programs(np.array(hosts, np.int64))
