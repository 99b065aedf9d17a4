"""`--sweep` of the verbs that simulate: combinations of some flags' values, on all cores or under mpirun."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mpicoloc
from mpicoloc import config, messages
from mpicoloc.errors import EnvironmentFault, MpicolocError, UsageError

if TYPE_CHECKING:
    from mpicoloc.job.row_log import Row
    from mpicoloc.job.sweep import Case


NAME = "sweep.parquet"
_OF_ROW = ("j_inter_host_s", "total_contention_s", "routing", "n_packet_hops", "wall_s")


def write(rows: Sequence[dict[str, Any]], folder: str) -> None:
    """Write `rows` of `replay.terminal.show` to `NAME` in a folder.

    An earlier table is replaced.

    The columns are the swept flags, the keys of a job, and those of a row that are one number or word.

    Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    records = [
        {**row["settings"], **job, **{name: row[name] for name in _OF_ROW}}
        for row in rows
        for job in row["jobs"]
    ]
    replace(records, folder)


def replace(records: Sequence[dict[str, Any]], folder: str, name: str = NAME) -> None:
    """Write a table in place of an earlier one; the columns are the keys of the first record.

    Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = os.path.join(folder, name)
    part = f"{path}.{os.getpid()}.part"
    try:
        pq.write_table(pa.Table.from_pylist(records), part, compression="zstd")
        os.replace(part, path)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}; choose another --out") from None


UNSET = "none"
"""The value that leaves a flag out."""

Actions = dict[str, argparse.Action]
"""Flags by name, without the dashes."""


def add_arguments(parser: argparse.ArgumentParser, words: str) -> None:
    """Flags of sweeps; `words` are the help of the first."""
    parser.add_argument("--sweep", metavar=("FLAG", "VALUE"), nargs="+", action="append", help=words)
    parser.add_argument("--processes", metavar="N", help="of a sweep (one for each core)")


def check_single(args: argparse.Namespace) -> None:
    """Refuse flags of sweeps where there is none."""
    if args.processes is not None:
        raise UsageError("--processes is of --sweep, which is not given: leave it out")


def check_flags(args: argparse.Namespace, verb: str, of_one: Sequence[str], several: str = "--sweep") -> None:
    """Refuse a sweep without a folder, and flags that are `of_one` run of the verb; `several` makes more."""
    if args.out is None:
        raise UsageError("a sweep notes its rows in a folder: give --out FOLDER")
    for flag in of_one:
        if getattr(args, flag) is not None:
            name = f"--{flag.replace('_', '-')}"
            raise UsageError(f"{name} is of one {verb}, and {several} makes several: leave it out")


def complete(
    args: argparse.Namespace,
    cases: Callable[[], list[Case]],
    work: Callable[[Any], Row],
    write: Callable[[Sequence[Row], str], None],
) -> tuple[list[Row], int] | None:
    """Do the work that the folder lacks, and write the rows of all cases as tables."""
    from mpicoloc.job import pool, row_log, sweep

    n = None if args.processes is None else config.parse_whole("--processes", args.processes, most=4096)
    with pool.workers(n) as executor:
        if executor is None:
            return None
        if n is not None and pool.is_under_mpirun():
            raise UsageError(
                "--processes is of one machine, and under mpirun its ranks do the work: leave it out"
            )
        wanted = cases()
        with row_log.only_one(args.out, "sweep") as is_sure:
            if not is_sure:
                messages.trouble(f"the file system of {args.out} has no file locks: run one sweep there only")
            failed: list[MpicolocError] = []
            done = sweep.complete(wanted, work, args.out, executor, lambda *why: _report(failed, *why))
            if not done:
                return [], failed[0].exit_code
            rows = [{"settings": dict(case.settings), **found} for case, found in done]
            write(rows, args.out)
    for note in dict.fromkeys(note for row in rows for note in row["notes"]):
        messages.note(note)
    return rows, 1 if failed else 0


def _report(failed: list[MpicolocError], case: Case, error: MpicolocError) -> None:
    """Tell why a row failed; the same reason once."""
    if str(error) not in map(str, failed):
        messages.trouble(f"{words_of(case)}: {error}")
    failed.append(error)


def check_each(
    cases: Sequence[Case],
    check: Callable[[argparse.Namespace], object],
    check_drawn: Callable[[argparse.Namespace], object],
    drawn: str,
) -> None:
    """Refuse before the first simulation what one of them cannot be made of.

    What is drawn is as good for one random state as for another, so `check` is called once for the cases that
    differ in that flag only, which is `drawn`. `check_drawn` is called for each.
    """
    checked = set()
    for case in cases:
        try:
            check_drawn(case.argument)
            flags = repr(sorted((name, flag) for name, flag in vars(case.argument).items() if name != drawn))
            if flags not in checked:
                check(case.argument)
            checked.add(flags)
        except MpicolocError as error:
            raise type(error)(f"{words_of(case)}: {error}") from None


def words_of(case: Case) -> str:
    """The settings of a case for people."""
    return ", ".join(f"{flag} {value}" for flag, value in case.settings.items())


def axes(args: argparse.Namespace, actions: Actions, of_files: Mapping[str, str]) -> dict[str, list[str]]:
    """The values of each swept flag."""
    found: dict[str, list[str]] = {}
    for flag, *values in args.sweep or ():
        if flag not in of_files and flag not in actions:
            known = ", ".join([*of_files, *sorted(actions)])
            raise UsageError(f"--sweep {flag}: no flag that can be swept: give {known}")
        if flag in found:
            raise UsageError(f"--sweep {flag} is there twice: give all of its values once")
        if not values:
            raise UsageError(f"--sweep {flag} has no values: give some, as --sweep {flag} A B")
        given = getattr(args, of_files[flag] if flag in of_files else actions[flag].dest)
        if given and given != (None if flag in of_files else actions[flag].default):
            raise UsageError(f"--sweep {flag}: its value is given too: leave one of both out")
        found[flag] = values
    return found


def flags_of(parser: argparse.ArgumentParser) -> Actions:
    """The flags of a parser by name."""
    flags = (action for action in parser._actions if action.option_strings)
    return {action.option_strings[0].removeprefix("--"): action for action in flags}


def set_flag(args: argparse.Namespace, action: argparse.Action, value: str) -> None:
    """Set a flag as if it had been given; those that may be repeated have commas between their values."""
    if value == UNSET:
        setattr(args, action.dest, action.default)
    elif isinstance(action, argparse._AppendAction):
        setattr(args, action.dest, value.split(","))
    else:
        setattr(args, action.dest, value)


def key(*told: Any) -> str:
    """A digest of all that a row depends on, and of the simulators' version."""
    return hashlib.sha256(json.dumps([mpicoloc.__version__, *told], sort_keys=True).encode()).hexdigest()


def digest_of(names: Sequence[str]) -> str:
    """Of the contents of files.

    Raises `UsageError` if one cannot be read.
    """
    digest = hashlib.sha256()
    for name in names:
        try:
            with open(name, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise UsageError(f"cannot read {name}: {error.strerror}") from None
    return digest.hexdigest()
