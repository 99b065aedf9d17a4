"""Lines in order of a number in them, however many they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator

from mpicoloc.errors import EnvironmentFault

_MEMORY = "256M"


def in_order(lines: Iterable[str], field: int, folder: str) -> Iterator[str]:
    """Lines in order of one of their fields, a whole number; those of one number stay in their order.

    The system's ``sort`` does it, with 256 MB of memory; what is more lies in files in `folder` meanwhile.

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
    with sort:
        assert sort.stdin and sort.stdout and sort.stderr
        try:
            sort.stdin.writelines(lines)
            sort.stdin.close()
            yield from sort.stdout
        except BrokenPipeError:
            # It has said why it went away.
            pass
        except BaseException:
            sort.kill()
            raise
        trouble = sort.stderr.read().strip()
    if sort.returncode:
        raise EnvironmentFault(f"{trouble}: make room in {folder}, or choose another place with --out")
