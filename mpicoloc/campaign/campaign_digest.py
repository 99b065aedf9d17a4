"""What a program of a campaign is, as a short text: runs of another one are not mixed with it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator

from mpicoloc.campaign.campaign_file import Program
from mpicoloc.errors import DataError
from mpicoloc.slowdown.features import is_interpreter

MAX_BYTES = 256 << 20
"""Files that are larger together are known by their sizes and times of change, not by their content."""
_PARTS = ("its command", "the file that it runs", "the files of its folder")


def digest(program: Program) -> str:
    """Digests of the command, of the files that it runs and of those of its folder, joined by dots.

    Shared libraries are not looked at, nor other files that the command names: a run may write them.

    Raises
    ------
    DataError
        If a file cannot be read.
    """
    try:
        return _digest(program)
    except OSError as error:
        raise DataError(
            f"program {program.name!r}: {error.filename} cannot be read: {error.strerror}"
        ) from None


def _digest(program: Program) -> str:
    told = [program.argv, program.n_ranks, program.folder, program.env, program.mpirun_args]
    folder = program.folder
    files = (
        [] if folder is None else [(os.path.relpath(path, folder), path) for path in sorted(_below(folder))]
    )
    parts = (_short(told), _content((path, path) for path in _run_by(program)), _content(files))
    return ".".join(parts)


def changes(noted: str, now: str, program: Program) -> list[str]:
    """In words: what differs between two digests. An earlier version noted the command's only."""
    which = ("", f": {', '.join(_run_by(program))}", f" {program.folder}")
    parts = zip(_PARTS, which, noted.split("."), now.split("."), strict=False)
    return [words + of for words, of, before, after in parts if before != after]


def is_of_command_only(noted: str) -> bool:
    """Whether an earlier version wrote it, which did not look at files."""
    return "." not in noted


def _short(told: object) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _run_by(program: Program) -> Iterator[str]:
    """The program's file, and others that its command runs, as a launcher's program and a script."""
    path = {**os.environ, **dict(program.env)}.get("PATH")
    first = shutil.which(program.argv[0], path=path)
    if first is not None:
        yield os.path.realpath(first)
    is_script = is_interpreter(program.argv[0])
    for word in program.argv[1:]:
        if os.path.isabs(word) and os.path.isfile(word) and (is_script or os.access(word, os.X_OK)):
            yield os.path.realpath(word)
        # Options of an interpreter come before its script.
        is_script = is_interpreter(word) or (is_script and word.startswith("-"))


def _below(folder: str) -> Iterator[str]:
    for base, _, names in os.walk(folder, followlinks=True):
        yield from (path for name in names if os.path.isfile(path := os.path.join(base, name)))


def _content(files: Iterable[tuple[str, str]]) -> str:
    """Of files by names and paths."""
    found = [(name, path, os.stat(path)) for name, path in files]
    is_small = sum(status.st_size for _, _, status in found) <= MAX_BYTES
    told: list[tuple[str, int, str | int]] = []
    for name, path, status in found:
        told.append((name, status.st_size, _sha(path) if is_small else status.st_mtime_ns))
    return _short(told)


def _sha(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        error.filename = path  # which one in reading does not tell
        raise
