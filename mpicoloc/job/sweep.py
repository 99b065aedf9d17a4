"""`--sweep` of the simulating verbs: runs combinations of flag values on all cores or under mpirun.

Each combination is a separate case, whose row is saved in a folder; saved cases are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import errno
import fcntl
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, as_completed
from dataclasses import dataclass
from typing import Any

import mpicoloc
from mpicoloc import messages
from mpicoloc.cli import arguments
from mpicoloc.core import progress
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, UsageError

_LOCK = ".lock"

Row = dict[str, Any]


@contextlib.contextmanager
def only_one(folder: str, what: str) -> Iterator[bool]:
    """Lock a folder of rows against other sweeps; the folder is created if needed.

    Result: whether the folder is locked; some shared file systems have no locks. Raises `EnvironmentFault` if
    another process holds the lock, or the folder cannot be created.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        file = open(os.path.join(folder, _LOCK), "a", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise EnvironmentFault(
            f"folder {folder} cannot be written: {error.strerror}; give another one with --out"
        ) from None
    with file:
        is_sure = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EnvironmentFault(
                f"another {what} is running in {folder}: let it end, or give another folder with --out"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            is_sure = False
        yield is_sure


def append(path: str, row: Mapping[str, Any]) -> None:
    """Append one row; it is on disk when this returns."""
    _drop_cut_line(path)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _drop_cut_line(path: str) -> None:
    """Remove an incomplete last line that a killed process left, or the next row would be appended to it."""
    if not os.path.exists(path):
        return
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if file.read() not in (b"", b"\n"):
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def recover(path: str) -> dict[str, Row]:
    """The saved rows by their ``key``; empty if there is no file.

    A damaged last row, such as a killed process leaves, is reported and removed.

    Raises `DataError` if any other line is not a row, or the only line does not begin like a row.
    """
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    rows: dict[str, Row] = {}
    for i, line in enumerate(lines, 1):
        row = _row(line)
        if row is not None:
            rows[row["key"]] = row
        elif i < len(lines) or not (rows or line.startswith(b"{")):
            raise DataError(f"{path}, line {i}, is not a row: remove that line, or name another file")
        else:
            messages.trouble(
                f"{path}: the last row, line {i}, is incomplete or damaged; its case is run again"
            )
            os.truncate(path, sum(map(len, lines[:-1])))
    return rows


def _row(line: bytes) -> Row | None:
    """The row of a line; None if the line is incomplete or not a row."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("key"), str) else None


ROWS = "rows.jsonl"
"""File in a sweep's folder with one row for each finished case."""
TABLE = "sweep.parquet"
UNSET = "none"
"""The value of a sweep that stands for no flag."""

Actions = dict[str, argparse.Action]
"""Flags by name, without the dashes."""


def add_arguments(parser: argparse.ArgumentParser, words: str) -> None:
    """Add the flags of sweeps; `words` is the help text of ``--sweep``."""
    parser.add_argument("--sweep", metavar=("FLAG", "VALUE"), nargs="+", action="append", help=words)
    parser.add_argument(
        "--processes",
        metavar="N",
        type=arguments.whole(most=4096),
        help="worker processes of a sweep (default: one for each core)",
    )


def check_single(args: argparse.Namespace) -> None:
    """Refuse flags that apply only to sweeps if there is no sweep."""
    if args.processes is not None:
        raise UsageError("--processes applies only to --sweep, which is not given: leave it out")


@dataclass(frozen=True)
class Case:
    """One case of a sweep.

    Parameters
    ----------
    settings : mapping of str to str
        The varied settings, for people: ``{"slimming": "2"}``.
    key : str
        Digest of all that the result depends on; equal keys mean equal results.
    argument : object
        Argument of the work. It must be picklable, because it is sent to another process.
    """

    settings: Mapping[str, str]
    key: str
    argument: Any


def run(
    args: argparse.Namespace,
    verb: str,
    of_one: Sequence[str],
    cases: Callable[[], list[Case]],
    work: Callable[[Any], Row],
    write: Callable[[Sequence[Row], str], None],
    show: Callable[[Sequence[Row]], None],
    several: str = "--sweep",
) -> tuple[list[Row], int]:
    """Run the cases that the folder lacks, and write and print the rows of all cases.

    The flags `of_one` are refused, because they apply to a single run; the message names `several` as the
    reason why there are several runs. Result: the rows (empty in a worker rank), and the exit code: 1 if some
    cases failed, or that of the first failure if all failed.
    """
    from mpicoloc.job import pool

    if args.out is None:
        raise UsageError("a sweep writes its rows to a folder: give --out FOLDER")
    for flag in of_one:
        if getattr(args, flag) is not None:
            name = f"--{flag.replace('_', '-')}"
            raise UsageError(
                f"{name} applies to a single {verb}, but {several} makes several: leave out {name}"
            )
    with pool.workers(args.processes) as executor:
        if executor is None:
            return [], 0
        if args.processes is not None and pool.is_under_mpirun():
            raise UsageError("--processes has no effect under mpirun, whose ranks do the work: leave it out")
        wanted = cases()
        with only_one(args.out, "sweep") as is_sure:
            if not is_sure:
                messages.trouble(f"the file system of {args.out} has no file locks: run only one sweep there")
            failed: list[MpicolocError] = []
            done = complete(wanted, work, args.out, executor, lambda *why: _report(failed, *why))
            if not done:
                return [], failed[0].exit_code
            rows = [{"settings": dict(case.settings), **found} for case, found in done]
            write(rows, args.out)
    for note in dict.fromkeys(note for row in rows for note in row["notes"]):
        messages.note(note)
    if args.json:
        print(json.dumps(rows, indent=2, allow_nan=False))
    else:
        show(rows)
    sys.stdout.flush()
    return rows, 1 if failed else 0


def _report(failed: list[MpicolocError], case: Case, error: MpicolocError) -> None:
    """Report why a case failed, but each reason only once."""
    if str(error) not in map(str, failed):
        messages.trouble(f"{words_of(case.settings)}: {error}")
    failed.append(error)


def complete(
    cases: Sequence[Case],
    work: Callable[[Any], Row],
    folder: str,
    executor: Executor,
    tell_failed: Callable[[Case, MpicolocError], None],
) -> list[tuple[Case, Row]]:
    """Run the cases that the folder lacks, and save each row as its case ends.

    Result: the cases that have a row, in their order, with the result of `work`. Raises `EnvironmentFault` if
    a process of the executor died; rows of finished cases are saved then, too.
    """
    path = os.path.join(folder, ROWS)
    noted = recover(path)
    rows = {case.key: noted[case.key]["row"] for case in cases if "row" in noted.get(case.key, ())}
    missing = {case.key: case for case in cases if case.key not in rows}
    try:
        with progress.stage("sweep", len(missing), "rows") as advance:
            running = {executor.submit(work, case.argument): case for case in missing.values()}
            for future in as_completed(running):
                case = running.pop(future)
                try:
                    rows[case.key] = future.result()
                except MpicolocError as error:
                    tell_failed(case, error)
                else:
                    append(path, {"key": case.key, "settings": case.settings, "row": rows[case.key]})
                advance(1)
    except BrokenExecutor:
        raise EnvironmentFault(
            "a process of the sweep was killed or ran out of memory: run the same command again, with fewer "
            f"--processes if memory was short; finished cases are saved in {path}"
        ) from None
    return [(case, rows[case.key]) for case in cases if case.key in rows]


def check_each(
    cases: Sequence[Case],
    check: Callable[[argparse.Namespace], object],
    drawn: str,
) -> None:
    """Refuse invalid cases before the first simulation.

    `drawn` is the flag of the random seed. It does not affect validity, so `check` is called once for cases
    that differ in this flag only.
    """
    checked = set()
    for case in cases:
        try:
            flags = repr(sorted((name, flag) for name, flag in vars(case.argument).items() if name != drawn))
            if flags not in checked:
                check(case.argument)
            checked.add(flags)
        except MpicolocError as error:
            raise type(error)(f"{words_of(case.settings)}: {error}") from None


def words_of(settings: Mapping[str, str]) -> str:
    """The settings of a case as text."""
    return ", ".join(f"{flag} {value}" for flag, value in settings.items())


def grid(axes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination of the values of each axis; the first axis varies least often."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def variants(
    args: argparse.Namespace, axes: Mapping[str, Sequence[str]], actions: Actions
) -> Iterator[tuple[dict[str, str], argparse.Namespace]]:
    """Every combination, with the arguments of its run; the caller handles axes that are not flags."""
    for settings in grid(axes):
        own = copy.copy(args)
        del own.run, own.sweep
        own.out = None
        for flag, value in settings.items():
            try:
                if flag in actions:
                    setattr(own, actions[flag].dest, _value(actions[flag], value))
            except argparse.ArgumentTypeError as error:
                raise UsageError(f"{words_of(settings)}: --{flag} {error}") from None
        yield settings, own


def _value(action: argparse.Action, words: str) -> Any:
    """The value of a flag as the parser would return it; repeatable flags take values separated by commas."""
    if words == UNSET:
        return _default(action)
    is_list = isinstance(action, argparse._AppendAction)
    return [_parsed(action, word) for word in words.split(",")] if is_list else _parsed(action, words)


def _parsed(action: argparse.Action, word: str) -> Any:
    return action.type(word) if callable(action.type) else word


def _default(action: argparse.Action) -> Any:
    return _parsed(action, action.default) if isinstance(action.default, str) else action.default


def axes(args: argparse.Namespace, actions: Actions, of_files: Mapping[str, str]) -> dict[str, list[str]]:
    """The values of each swept flag."""
    found: dict[str, list[str]] = {}
    for flag, *values in args.sweep or ():
        if flag not in of_files and flag not in actions:
            known = ", ".join([*of_files, *sorted(actions)])
            raise UsageError(f"--sweep {flag}: this flag cannot be swept; give one of {known}")
        if flag in found:
            raise UsageError(f"--sweep {flag} appears twice: give all of its values once")
        if not values:
            raise UsageError(f"--sweep {flag} has no values: give some, for example --sweep {flag} A B")
        given = getattr(args, of_files[flag] if flag in of_files else actions[flag].dest)
        if given and (flag in of_files or given != _default(actions[flag])):
            raise UsageError(f"--sweep {flag}: this flag also has a fixed value: leave out one of the two")
        found[flag] = values
    return found


def flags_of(parser: argparse.ArgumentParser) -> Actions:
    """The flags of a parser by name."""
    flags = (action for action in parser._actions if action.option_strings)
    return {action.option_strings[0].removeprefix("--"): action for action in flags}


def key(*told: Any) -> str:
    """A digest of all that a row depends on, including the version of mpicoloc."""
    return hashlib.sha256(json.dumps([mpicoloc.__version__, *told], sort_keys=True).encode()).hexdigest()


def digest_of(names: Sequence[str]) -> str:
    """Digest of the contents of files.

    Raises `UsageError` if a file cannot be read.
    """
    digest = hashlib.sha256()
    for name in names:
        try:
            with open(name, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise UsageError(f"cannot read {name}: {error.strerror}") from None
    return digest.hexdigest()


def replace_table(records: Sequence[Mapping[str, Any]], folder: str, name: str = TABLE) -> None:
    """Write a table, replacing an earlier one.

    Raises `EnvironmentFault` if it cannot be written.
    """
    from mpicoloc.show import table

    path = os.path.join(folder, name)
    part = f"{path}.{os.getpid()}.part"
    try:
        table.write_parquet(records, part)
        os.replace(part, path)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}; choose another --out") from None
