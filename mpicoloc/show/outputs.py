"""Where exports and pages are written: whole, or not at all."""

from __future__ import annotations

import contextlib
import functools
import gzip
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO, cast

from mpicoloc.errors import EnvironmentFault, UsageError

_GZIP_LEVEL = 4
"""Nearly as small as 9, in a fourth of the time."""


def check(out: str, inputs: Sequence[str], *, is_folder: bool = False) -> None:
    """See to it, before anything is computed, that `out` can be written and is none of the inputs.

    Raises `UsageError` if it is or cannot.
    """
    if out in ("", "-"):
        raise UsageError(f"--out {out!r} is no name of a file: give one, or /dev/stdout")
    for path in inputs:
        if os.path.exists(out) and os.path.exists(path) and os.path.samefile(out, path):
            raise UsageError(f"--out {out} is an input of the command: give another name")
    parent = os.path.dirname(out.rstrip("/")) or "."
    if not os.path.isdir(parent):
        raise UsageError(f"--out {out}: there is no folder {parent}")
    if not is_folder and os.path.isdir(out):
        raise UsageError(f"--out {out} is a folder: give the name of a file")
    if is_folder and os.path.lexists(out) and not (os.path.isdir(out) and not os.listdir(out)):
        raise UsageError(f"--out {out} is there already: give the name of a new folder, or remove it")


@contextlib.contextmanager
def text_file(path: str) -> Iterator[TextIO]:
    """A file that appears under its name when it is whole, for others may read it meanwhile.

    Links are followed, and what is no regular file, like /dev/stdout, is written into. What ends with .gz
    is compressed.

    Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    path = os.path.realpath(path)
    is_special = os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)
    part = path if is_special else f"{path}.{os.getpid()}.part"
    try:
        with _refusals(path):
            with _opener(path)(part, encoding="utf-8", errors="replace", newline="\n") as file:
                yield file
            if part != path:
                os.replace(part, path)
    finally:
        if part != path:
            with contextlib.suppress(OSError):
                os.unlink(part)


@contextlib.contextmanager
def _refusals(path: str) -> Iterator[None]:
    """What the folder or the disk refuses is told with the remedy."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EnvironmentFault(
            f"cannot write {path}: {error.strerror}; choose another place with --out"
        ) from None


def _opener(path: str) -> Callable[..., TextIO]:
    """What opens the file for writing, by how its name ends."""
    if path.endswith(".gz"):
        return cast(Callable[..., TextIO], functools.partial(gzip.open, mode="wt", compresslevel=_GZIP_LEVEL))
    return functools.partial(open, mode="w")


@contextlib.contextmanager
def folder(path: str) -> Iterator[str]:
    """A folder that appears under its name when all is in it; until then it has the name that is yielded.

    Raises `UsageError` if something is there. Raises `EnvironmentFault` if the folder or the disk refuses.
    """
    check(path, (), is_folder=True)
    path = os.path.abspath(path)
    part = f"{path}.{os.getpid()}.part"
    try:
        with _refusals(path):
            os.mkdir(part)
            yield part
            if os.path.isdir(path):
                os.rmdir(path)
            os.rename(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
