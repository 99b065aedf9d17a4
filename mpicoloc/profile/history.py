"""The facts of all profiles below a folder as one table. Thanks to an index, only new and changed files are
read.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import operator
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, BinaryIO, TypeAlias

import pandas as pd

from mpicoloc.core.profile import SCHEMA_VERSION, Profile
from mpicoloc.core.progress import steps
from mpicoloc.core.units import counted, ends, seconds
from mpicoloc.errors import DataError, EnvironmentFault, MpicolocError, printable
from mpicoloc.measure import processor
from mpicoloc.profile import hdf5
from mpicoloc.profile.profiles import Answer, parallel_map
from mpicoloc.show.table import Column, console, listing

_COMMAND_LETTERS = 40
_RUN_DELAY = (
    "run delay: part of the time for which the ranks were ready to run but had no processor, as far as "
    "co-runners under mpicoloc do not explain it; the slowdown does not include it"
)


def _when(unix_s: float) -> str:
    try:
        return datetime.fromtimestamp(unix_s).isoformat(" ", "minutes")
    except (OverflowError, OSError, ValueError):  # a foreign profile can have any number
        return "?"


def _run_delay(job: Mapping[str, Any]) -> str:
    """Fraction of its time for which a job had no processor, unless its slowdown includes this time."""
    names = ("slowdown_method", "wall_s", "n_ranks", "cpu_s", "run_delay_s", "foreign_delay_low")
    frac = processor.notable_run_delay_frac(*(job[name] for name in names))
    return "" if frac is None else f"{frac:.0%}"


def _interval(job: Mapping[str, Any]) -> str:
    if job["slowdown_method"] == processor.ALONE:
        return "no co-runner"
    low, high = job["slowdown_low"], job["slowdown_high"]
    return "" if job["slowdown"] is None else ends(low, high)


def _slowdown(job: Mapping[str, Any]) -> str | None:
    is_alone = job["slowdown_method"] == processor.ALONE
    return "1" if is_alone else None if job["slowdown"] is None else f"{job['slowdown']:.3f}"


_COLUMNS = (
    Column("began", "start_unix_s", _when, left_out=6),
    Column("job", lambda job: job["job"] + " (partial)" * job["partial"], is_name=True),
    Column("command", form=lambda command: printable(command)[:_COMMAND_LETTERS], is_name=True, left_out=3),
    Column("ranks", "n_ranks", ",.0f", left_out=5),
    Column("nodes", "n_nodes", ",.0f", left_out=1),
    Column("time", "wall_s", seconds),
    Column("slowdown", _slowdown),
    Column("95 %", _interval, left_out=2),
    Column("run delay", _run_delay, left_out=7),
    Column("fair SU", "fair_su", ".4g", left_out=4),
)


def show(jobs: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows of `history`, one line for each profile that could be read."""
    known = [job for job in jobs if job["trouble"] is None]
    notes = [_RUN_DELAY] if any(map(_run_delay, known)) else []
    console().print(listing(_COLUMNS, known, counted(len(known), "job"), notes))


Jobs: TypeAlias = pd.DataFrame
COLUMNS = {
    "job": "job.id",
    "command": "job.command",
    "n_ranks": "job.n_ranks",
    "n_nodes": "job.n_nodes",
    "n_cores": "job.n_cores",
    "mpi_library": "job.mpi_library",
    "wall_s": "job.wall_s",
    "start_unix_s": "job.start_unix_s",
    "mode": "job.mode",
    "user": "job.user",
    "batch_name": "job.batch_name",
    "mpi_n_calls": "mpi.n_calls",
    "mpi_sent_bytes": "mpi.sent_bytes",
    "mpi_recv_bytes": "mpi.recv_bytes",
    "mpi_frac": "mpi.time_frac",
    "meter": "interference.meter",
    "n_taken": "interference.n_taken",
    "n_used": "interference.n_used",
    "overhead_frac": "interference.overhead_frac",
    "coverage_frac": "interference.coverage_frac",
    "shared_s": "interference.shared_s",
    "reason": "interference.reason",
    "cpu_s": "interference.cpu_s",
    "run_delay_s": "interference.run_delay_s",
    "involuntary_switches": "interference.involuntary_switches",
    "foreign_delay": "interference.foreign_delay_frac",
    "foreign_delay_low": "interference.foreign_delay_low_frac",
    "foreign_delay_high": "interference.foreign_delay_high_frac",
    "bubble_score": "interference.bubble_score",
    "bubble_score_low": "interference.bubble_score_low",
    "bubble_score_high": "interference.bubble_score_high",
    "bubble_slowdown": "interference.bubble_slowdown",
    "bubble_slowdown_low": "interference.bubble_slowdown_low",
    "bubble_slowdown_high": "interference.bubble_slowdown_high",
    "rate_su": "price.rate_su",
    "runtime_su": "price.runtime_su",
    "fair_su": "price.fair_su",
    "discount_frac": "price.discount_frac",
    "pricing": "price.pricing",
    "topology": "network.topology",
    "demand_class": "network.demand_class",
    "slowdown": "interference.slowdown.value",
    "slowdown_low": "interference.slowdown.low",
    "slowdown_high": "interference.slowdown.high",
    "slowdown_n": "interference.slowdown.n",
    "slowdown_method": "interference.slowdown.method",
    "partial": "partial",
}
"""Columns, and the attribute path of each in a profile."""
_VERSION = f"{SCHEMA_VERSION}.6"
"""Version of the index's rows. An index with rows of another version is rebuilt."""
_N_AT_ONCE = 500
_DAMAGE = (sqlite3.DatabaseError, ValueError, TypeError, KeyError)
"""Errors that a damaged index can raise."""
_STAMP = operator.attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_uid")
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS profiles
        (path BLOB PRIMARY KEY, stamp TEXT NOT NULL, facts TEXT, trouble TEXT);
    CREATE TABLE IF NOT EXISTS version (number TEXT NOT NULL)
"""


def history(folder: str | os.PathLike[str]) -> Jobs:
    """The profiles below a folder, a row for each, in order of the jobs' start.

    An index in the user's cache folder stores the rows, so that the next call reads only profiles that are
    new or have changed.

    Raises `DataError` if there is no such folder, `EnvironmentFault` if it cannot be listed.
    """
    root = _root(folder)
    rows, note = _changed_rows(root, dict(_files(root)), {})
    for row in rows:
        # A name can have bytes that are not text.
        row["path"] = os.fsencode(row["path"]).decode("utf-8", "backslashreplace")
    frame = pd.DataFrame(rows, columns=["path", *COLUMNS, "trouble"])
    frame = frame.sort_values("start_unix_s", kind="stable", ignore_index=True)
    frame.attrs["note"] = note
    return frame


def changes(
    folder: str | os.PathLike[str], seen: dict[str, str], names: Collection[str]
) -> tuple[list[dict[str, Any]], set[str], str | None]:
    """Changes below a folder since the last call with the same `seen`.

    Raises `DataError`, `EnvironmentFault` as `history` does.
    """
    root = _root(folder)
    there = dict(_files(root))
    if seen and there == seen:
        return [], set(), None
    changed = {path for path, _ in there.items() ^ seen.items()}
    rows, note = _changed_rows(root, there, seen, {*names, "path", "owner"})
    # Unreadable profiles do not enter `seen`: the next call tries them again.
    read = {row["path"] for row in rows}
    seen.clear()
    seen.update((path, stamp) for path, stamp in there.items() if path in read or path not in changed)
    return rows, changed, note


def _changed_rows(
    root: str, there: Mapping[str, str], seen: Mapping[str, str], names: Collection[str] = ()
) -> tuple[list[dict[str, Any]], str | None]:
    """Rows of files that are `there` but not in `seen`, and a note if the index has a problem.

    With `names`: only these columns, and only profiles that can be read.
    """
    try:
        index, note = _index(root)
        return _read_through(index, root, there, seen, names), note
    except _DAMAGE as error:
        if _is_no_place(error):
            return _read_through(_opened(":memory:"), root, there, seen, names), _not_kept(root)
        with contextlib.suppress(OSError):
            os.unlink(_index_path(root))
        note = "the index of profiles was damaged, and is rebuilt"
        return _read_through(_index(root)[0], root, there, seen, names), note


def files_below(folder: str | os.PathLike[str]) -> list[str]:
    """Paths of the profiles below a folder, sorted; raises the errors of `history`."""
    root = _root(folder)
    return sorted(os.path.join(root, path) for path, _ in _files(root))


def _root(folder: str | os.PathLike[str]) -> str:
    root = os.path.realpath(folder)
    if not os.path.isdir(root):
        raise DataError(f"no such folder: {os.fspath(folder)}; give a folder with profiles")
    return root


def records(jobs: Jobs) -> list[dict[str, Any]]:
    """The rows of a frame of `history` as plain values, with None for missing ones."""
    rows = jobs.astype(object).where(jobs.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def facts(profile: Profile) -> dict[str, Any]:
    """One row: the values of `COLUMNS`, None for those not measured."""
    return {name: _value(profile, path) for name, path in COLUMNS.items()}


def _value(part: Any, path: str) -> Any:
    for name in path.split("."):
        part = getattr(part, name, None)
    return part


def _index_path(root: str) -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "mpicoloc", f"history-{hashlib.sha256(root.encode()).hexdigest()[:16]}.sqlite")


def _index(root: str) -> tuple[sqlite3.Connection, str | None]:
    """The index of a folder.

    If the cache folder cannot be written, the index is in memory, and a note is returned too.
    """
    path = _index_path(root)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return _opened(path), None
    except (OSError, sqlite3.OperationalError) as error:
        if isinstance(error, sqlite3.OperationalError) and not _is_no_place(error):
            raise
        return _opened(":memory:"), _not_kept(root)


def _is_no_place(error: Exception) -> bool:
    """Whether an error is due to disk space, a permission or a lock; damage may raise the same class."""
    # An error about text that is not UTF-8 has no error code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR


def _not_kept(root: str) -> str:
    folder = os.path.dirname(_index_path(root))
    return f"no index can be kept in {folder}: every call reads all profiles; set XDG_CACHE_HOME"


def _read_through(
    index: sqlite3.Connection,
    root: str,
    there: Mapping[str, str],
    seen: Mapping[str, str],
    names: Collection[str],
) -> list[dict[str, Any]]:
    """Update the index from the folder, then return the rows as `_changed_rows` does."""
    with contextlib.closing(index):
        _update(index, root, there, seen)
        new = sorted(path for path, stamp in there.items() if seen.get(path) != stamp)
        parts = (new[i : i + _N_AT_ONCE] for i in range(0, len(new), _N_AT_ONCE))
        rows = (row for part in parts for row in _rows_of(index, part, there))
        if not names:
            return list(rows)
        return [{name: row[name] for name in names} for row in rows if row["trouble"] is None]


def _rows_of(
    index: sqlite3.Connection, paths: Sequence[str], stamps: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    marks = ", ".join("?" * len(paths))
    query = f"SELECT path, facts, trouble FROM profiles WHERE path IN ({marks}) ORDER BY path"
    for key, facts, trouble in index.execute(query, [os.fsencode(path) for path in paths]):
        path = os.fsdecode(key)
        owner = int(stamps[path].rpartition(".")[2])
        yield {"path": path, "owner": owner} | dict(json.loads(facts or "{}")) | {"trouble": trouble}


def _opened(path: str) -> sqlite3.Connection:
    index = sqlite3.connect(path, timeout=60)
    index.executescript(_SCHEMA)
    if index.execute("SELECT number FROM version").fetchall() != [(_VERSION,)]:
        with index:
            index.execute("DELETE FROM profiles")
            index.execute("DELETE FROM version")
            index.execute("INSERT INTO version VALUES (?)", (_VERSION,))
    return index


def _update(index: sqlite3.Connection, root: str, there: Mapping[str, str], seen: Mapping[str, str]) -> None:
    """Update the index from the folder; files in `seen` are not read."""
    known = {os.fsdecode(path): stamp for path, stamp in index.execute("SELECT path, stamp FROM profiles")}
    new = sorted(path for path, stamp in there.items() if stamp not in (known.get(path), seen.get(path)))
    with index:
        gone = [(os.fsencode(path),) for path in known.keys() - there.keys()]
        index.executemany("DELETE FROM profiles WHERE path = ?", gone)
    answers = steps(
        parallel_map([os.path.join(root, path) for path in new], _read),
        "reading",
        total=len(new),
        unit="profiles",
    )
    # One transaction per batch: an interrupted call keeps what it read, and one per file would take longer
    # than reading the file.
    while rows := [_row(root, there, *answer) for answer in itertools.islice(answers, _N_AT_ONCE)]:
        with index:
            index.executemany("INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?)", rows)


def _row(root: str, stamps: Mapping[str, str], path: str, answer: Answer) -> tuple[bytes | str | None, ...]:
    name = os.path.relpath(path, root)
    key, stamp = os.fsencode(name), stamps[name]
    if isinstance(answer, MpicolocError):
        # A file that could not be opened, or timed out, is tried again next time although it has not changed.
        stamp = "" if isinstance(answer, EnvironmentFault) else stamp
        return key, stamp, None, str(answer).encode("utf-8", "backslashreplace").decode()
    return key, stamp, json.dumps(answer), None


def _read(path: str, raw: BinaryIO) -> dict[str, Any]:
    return facts(hdf5.read(path, raw, ()))


def _files(root: str) -> Iterator[tuple[str, str]]:
    """Profiles (*.h5) below a folder, each with a stamp that changes when the file is written again."""

    def refused(error: OSError) -> None:
        if error.filename == root:
            raise EnvironmentFault(f"cannot list {root}: {error.strerror}") from error

    for folder, folders, names in os.walk(root, onerror=refused):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.endswith(".h5") and not name.startswith("."):
                path = os.path.join(folder, name)
                # A link can be broken or circular.
                with contextlib.suppress(OSError):
                    found = os.stat(path)
                    yield path[len(root) :].lstrip("/"), ".".join(map(str, _STAMP(found)))
