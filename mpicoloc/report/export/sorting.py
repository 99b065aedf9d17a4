"""Lines in order of a number in them, however many they are."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Iterator

from mpicoloc.errors import EnvironmentFault

_MEMORY = "256M"


def in_order(lines: Iterable[str], field: int, folder: str) -> Iterator[str]:
    """Lines in order of one of their fields, a whole number; those of one number stay in their order.

    The system's ``sort`` does it, with 256 MiB of memory; what is more lies in files in `folder` meanwhile.

    Parameters
    ----------
    lines : iterable of str
        Fields between colons, each line with its end.
    field : int
        Counted from 1.
    folder : str
        Where there is room for all lines once more.

    Raises
    ------
    EnvironmentFault
        If there is no such program, or the disk refuses.
    """
    key = ["-s", "-t:", f"-k{field},{field}n"]
    try:
        sort = subprocess.Popen(
            ["sort", *key, "-S", _MEMORY, "-T", folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", errors="replace", env=os.environ | {"LC_ALL": "C"},
        )  # fmt: skip
    except OSError as error:
        raise EnvironmentFault(f"cannot run sort, which is in coreutils: {error.strerror}") from None
    assert sort.stdin and sort.stdout and sort.stderr
    try:
        # It says itself why it goes away before it has all lines.
        with contextlib.suppress(BrokenPipeError), sort.stdin:
            sort.stdin.writelines(lines)
        yield from sort.stdout
    except BaseException:
        sort.kill()
        raise
    finally:
        with sort.stdout, sort.stderr:
            trouble = sort.stderr.read().strip()
            sort.wait()
    if sort.returncode:
        raise EnvironmentFault(f"{trouble}: make room in {folder}, or choose another place with --out")
