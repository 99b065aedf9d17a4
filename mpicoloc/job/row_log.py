"""Rows of work in a file, one JSON a line: each is noted when it has ended, and none is lost by a kill."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from mpicoloc import messages
from mpicoloc.errors import DataError, EnvironmentFault

_LOCK = ".lock"

Row = dict[str, Any]


@contextlib.contextmanager
def only_one(folder: str, what: str) -> Iterator[bool]:
    """Keep other processes that note rows out of a folder, which is made if there is none.

    Result: whether that is sure: some shared file systems know no locks. Raises `EnvironmentFault` if another
    one is at work in it, or it cannot be made.
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
                f"another {what} is at work in {folder}: let it end, or give another folder with --out"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            is_sure = False
        yield is_sure


def append(path: str, row: Mapping[str, Any]) -> None:
    """Note one row, on the disk when this returns."""
    _drop_cut_line(path)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _drop_cut_line(path: str) -> None:
    """A line that a killed process did not write to its end would spoil the one that follows."""
    if not os.path.exists(path):
        return
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        if file.read() not in (b"", b"\n"):
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def recover(path: str) -> dict[str, Row]:
    """The noted rows by their ``key``; none if there is no such file.

    A last row that is damaged, as a kill leaves it, is told and removed.

    Raises `DataError` if another line is no row, or the only one does not even begin as one.
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
            raise DataError(f"{path}, line {i}, is no row: remove that line, or name another file")
        else:
            messages.trouble(f"{path}: the last row, line {i}, is cut off or damaged: it is made again")
            os.truncate(path, sum(map(len, lines[:-1])))
    return rows


def _row(line: bytes) -> Row | None:
    """A line that is whole; None of another one."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("key"), str) else None
