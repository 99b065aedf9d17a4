"""Functions, files and lines of call sites, by ``addr2line`` of binutils, from the program files."""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from mpicoloc.errors import MpicolocError
from mpicoloc.launch import elf
from mpicoloc.profile.assembly import symbols

TIME_S = 30
"""Longest time for the sites of one file; those of a program with gigabytes of debug information take it."""


class Place(NamedTuple):
    """Where a call is made; None: not known."""

    function: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """``function file:line``, without what is not known; empty where nothing is."""
        where = f"{os.path.basename(self.file)}:{self.line}" if self.file else ""
        return " ".join(filter(None, (self.function, where)))


def offset_in(paths: Sequence[str], i_module: int, offset: int) -> str:
    """A call site in words where nothing more is known: ``app+0x1234``."""
    module = os.path.basename(paths[i_module]) if 0 <= i_module < len(paths) else "?"
    return f"{module}+{offset:#x}"


def resolve(
    modules: Sequence[tuple[str, str]], sites: Sequence[tuple[int, int]]
) -> tuple[list[Place], list[str]]:
    """Function, file and line of each site.

    Parameters
    ----------
    modules : sequence of (str, str)
        File and build ID of each loaded object, as in the table `modules`.
    sites : sequence of (int, int)
        Row of the object, and return address in it, as in the table `call_sites`.

    Returns
    -------
    places : list of Place
        One for each site.
    reasons : list of str
        Why those of a file are not known, in a line each.
    """
    found = [Place()] * len(sites)
    reasons = []
    for i_module in sorted({i for i, _ in sites if 0 <= i < len(modules)}):
        path, build_id = modules[i_module]
        rows = [row for row, site in enumerate(sites) if site[0] == i_module]
        reason = _trouble(path, build_id)
        if reason is None:
            # A return address is that of the next instruction, which may be of another line.
            places, reason = _look_up(path, [sites[row][1] - 1 for row in rows])
            for row, place in zip(rows, places, strict=True):
                found[row] = place
        if reason is not None:
            reasons.append(reason)
    return found, reasons


def _trouble(path: str, build_id: str) -> str | None:
    """Why the file at `path` is not to be asked: the profile may be of another one, or from a stranger."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return f"{path} is no file"
        is_same = bool(build_id) and elf.build_id(path).startswith(build_id)
    except (OSError, ValueError, MpicolocError) as error:  # ValueError: a name with a NUL
        return f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
    if not build_id:
        return f"{path} has no build ID (link with -Wl,--build-id), so it may have changed since the job ran"
    return None if is_same else f"{path} is not the file that the job ran: it was built again"


@functools.cache
def _program() -> str | None:
    return next(filter(None, map(shutil.which, ("addr2line", "llvm-addr2line"))), None)


def _look_up(path: str, addresses: Sequence[int]) -> tuple[list[Place], str | None]:
    nothing = [Place()] * len(addresses)
    program = _program()
    if program is None:
        return nothing, "no addr2line in PATH: install binutils to see functions and lines of call sites"
    argv = [program, "-f", "-C", "-e", path]
    text = "".join(f"{address:#x}\n" for address in addresses)
    try:
        done = subprocess.run(
            argv, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIME_S
        )
    except subprocess.TimeoutExpired:
        return (
            nothing,
            f"{path} has more debug information than can be read in {TIME_S} s",
        )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    if len(lines) != 2 * len(addresses):
        return nothing, f"{program} does not understand {path}"
    found = [_place(*pair) for pair in zip(lines[::2], lines[1::2], strict=True)]
    return _without_guesses(path, addresses, found), None


def _without_guesses(path: str, addresses: Sequence[int], found: Sequence[Place]) -> list[Place]:
    """Without functions that are only the nearest. A line is from debug information, which knows better."""
    guesses = [row for row, place in enumerate(found) if place.function and place.line is None]
    known = list(found)
    named = symbols.are_named(path, [addresses[row] for row in guesses])
    for row, is_named in zip(guesses, named, strict=True):
        known[row] = known[row] if is_named else Place()
    return known


def _place(function: str, where: str) -> Place:
    match = re.fullmatch(r"(.*):(\d+)(?: \(discriminator \d+\))?", where)
    file, line = match.groups() if match and match[1] != "??" else (None, None)
    known = None if function == "??" else function
    return Place(known, file, int(line) if line and int(line) else None)
