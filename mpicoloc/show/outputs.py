"""Output files and folders, which are written completely or not at all."""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from mpicoloc.errors import EnvironmentFault, UsageError

_GZIP_LEVEL = 4
"""Level 4 gives nearly the size of level 9 in a quarter of the time."""


def check(out: str, inputs: Sequence[str], *, flag: str = "--out", is_folder: bool = False) -> None:
    """Check, before any computation, that `out`, given by `flag`, can be written and is not an input.

    Raises `UsageError` otherwise.
    """
    if out in ("", "-"):
        raise UsageError(f"{flag} {out!r} is not a file name: give a file name, or /dev/stdout")
    for path in inputs:
        if os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path):
            raise UsageError(f"{flag} {out} is an input of the command: give another name")
    parent = os.path.dirname(out.rstrip("/")) or "."
    if not os.path.isdir(parent):
        raise UsageError(f"{flag} {out}: there is no folder {parent}")
    if not is_folder and os.path.isdir(out):
        raise UsageError(f"{flag} {out} is a folder: give the name of a file")
    if is_folder and os.path.lexists(out) and not (os.path.isdir(out) and not os.listdir(out)):
        raise UsageError(f"{flag} {out} exists already: give the name of a new folder, or remove it")


@contextlib.contextmanager
def text_file(path: str, flag: str = "--out") -> Iterator[TextIO]:
    """A file that gets its name only once it is complete, so that no reader sees half of it.

    Links are followed. Special files, such as /dev/stdout, are written directly. Names that end with .gz are
    compressed.

    Raises `EnvironmentFault` if the file cannot be written.
    """
    path = os.path.realpath(path)
    is_special = os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)
    part = path if is_special else f"{path}.{os.getpid()}.part"
    packed = functools.partial(gzip.open, mode="wt", compresslevel=_GZIP_LEVEL)
    opened: Any = packed if path.endswith(".gz") else functools.partial(open, mode="w")
    try:
        with _refusals(path, flag):
            with opened(part, encoding="utf-8", errors="replace", newline="\n") as file:
                yield file
            if part != path:
                os.replace(part, path)
    finally:
        if part != path:
            with contextlib.suppress(OSError):
                os.unlink(part)


@contextlib.contextmanager
def _refusals(path: str, flag: str) -> Iterator[None]:
    """Turn a failed write into an error with the remedy."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write {path}: {error.strerror}; choose another place with {flag}"
        ) from None


@contextlib.contextmanager
def folder(path: str) -> Iterator[str]:
    """A folder that gets its name only once it is complete; yields its temporary name.

    Raises `UsageError` if a file of that name exists, `EnvironmentFault` if the folder cannot be written.
    """
    check(path, (), is_folder=True)
    path = os.path.abspath(path)
    part = f"{path}.{os.getpid()}.part"
    try:
        with _refusals(path, "--out"):
            os.mkdir(part)
            yield part
            if os.path.isdir(path):
                os.rmdir(path)
            os.rename(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
