"""Where exports are written: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TextIO

from mpicoloc.errors import UsageError


@contextlib.contextmanager
def text_file(path: str) -> Iterator[TextIO]:
    """A file that appears under its name when it is whole, for others may read it meanwhile."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "w", encoding="utf-8", errors="replace", newline="\n") as file:
            yield file
        os.replace(part, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def folder(path: str) -> str:
    """A new folder, or an empty one.

    Raises
    ------
    UsageError
        If something is there.
    """
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise UsageError(f"--out {path} is there already: give the name of a new folder, or remove it")
    os.makedirs(path, exist_ok=True)
    return path
