"""Look up function, file and line of call sites in the program files, with ``addr2line`` of binutils."""

from __future__ import annotations

import functools
import itertools
import mmap
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpicoloc.core.profile import Profile, Table, text
from mpicoloc.errors import MpicolocError
from mpicoloc.pmpi import elf

_SYMBOL_TABLES = (2, 11)
"""SHT_SYMTAB, which `strip` removes, and SHT_DYNSYM, the exported symbols; a file has at most one of each."""
_FUNCTIONS = (2, 10)
"""STT_FUNC and STT_GNU_IFUNC."""


def are_named(path: str, addresses: Sequence[int]) -> list[bool]:
    """Whether each address lies in a function that the file's symbols name.

    A stripped library keeps only its exported symbols. Tools such as ``addr2line`` name any other address
    after the nearest symbol before it, however far away; hence this check against the symbol's size.

    Result: all False if the file's symbols cannot be read.
    """
    try:
        with elf.open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
            begin, size = _functions(image)
    except (OSError, ValueError, IndexError):
        return [False] * len(addresses)
    last = np.searchsorted(begin, np.array(addresses, np.uint64), side="right") - 1
    return [
        bool(i >= 0 and address - int(begin[i]) < int(size[i]))
        for i, address in zip(last.tolist(), addresses, strict=True)
    ]


def _functions(image: mmap.mmap) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Start and size of each function, sorted by address. Of functions at the same address, the longest."""
    order = "<" if image[5] == 1 else ">"
    symbol = np.dtype(
        [("name", f"{order}u4"), ("info", "u1"), ("other", "u1"), ("section", f"{order}u2"),
         ("begin", f"{order}u8"), ("size", f"{order}u8")]
    )  # fmt: skip
    tables = [np.frombuffer(image[start : start + n_bytes // symbol.itemsize * symbol.itemsize], symbol)
              for start, n_bytes in itertools.islice(_tables(image, order), len(_SYMBOL_TABLES))]  # fmt: skip
    symbols = np.concatenate([np.zeros(0, symbol), *tables])
    # Section 0 means undefined: the function is in another file.
    symbols = symbols[np.isin(symbols["info"] & 15, _FUNCTIONS) & (symbols["section"] != 0)]
    begin, of = np.unique(symbols["begin"].astype(np.uint64), return_inverse=True)
    size = np.zeros(len(begin), np.uint64)
    np.maximum.at(size, of, symbols["size"].astype(np.uint64))
    return begin, size


def _tables(image: mmap.mmap, order: str) -> Iterator[tuple[int, int]]:
    """Offset and length of each symbol table in the file."""
    if image[:4] != b"\x7fELF" or image[4] != 2:
        return
    start = int(np.frombuffer(image[40:48], f"{order}u8")[0])
    step, n = np.frombuffer(image[58:62], f"{order}u2").tolist()
    section = np.dtype(
        [("name", f"{order}u4"), ("type", f"{order}u4"), ("flags", f"{order}u8"), ("address", f"{order}u8"),
         ("offset", f"{order}u8"), ("size", f"{order}u8")]
    )  # fmt: skip
    for at in range(start, start + n * step, max(step, section.itemsize)):
        row = np.frombuffer(image[at : at + section.itemsize], section)[0]
        if row["type"] in _SYMBOL_TABLES:
            yield int(row["offset"]), int(row["size"])


TIME_S = 30
"""Time limit for looking up the sites of one file, s; gigabytes of debug information take that long."""


class Place(NamedTuple):
    """The place of a call in the source; None: not known."""

    function: str | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        """``function file:line`` without unknown parts; empty if all are unknown."""
        where = f"{os.path.basename(self.file)}:{self.line}" if self.file else ""
        return " ".join(filter(None, (self.function, where)))


def offset_in(paths: Sequence[str], i_module: int, offset: int) -> str:
    """A call site by module and offset, ``app+0x1234``, for sites without a known function."""
    module = os.path.basename(paths[i_module]) if 0 <= i_module < len(paths) else "?"
    return f"{module}+{offset:#x}"


def resolve(
    modules: Sequence[tuple[str, str]], sites: Sequence[tuple[int, int]]
) -> tuple[list[Place], list[str]]:
    """Function, file and line of each site."""
    found = [Place()] * len(sites)
    reasons = []
    for i_module in sorted({i for i, _ in sites if 0 <= i < len(modules)}):
        path, build_id = modules[i_module]
        rows = [row for row, site in enumerate(sites) if site[0] == i_module]
        reason = _trouble(path, build_id)
        if reason is None:
            # Minus 1: a site is a return address. It is the address of the next instruction, which may belong
            # to another line.
            places, reason = _look_up(path, [sites[row][1] - 1 for row in rows])
            for row, place in zip(rows, places, strict=True):
                found[row] = place
        if reason is not None:
            reasons.append(reason)
    return found, reasons


def _trouble(path: str, build_id: str) -> str | None:
    """Why not to use the file at `path`: it may not be the file that ran, or is unreadable; else None."""
    try:
        found = elf.build_id(path)
    except (OSError, ValueError, MpicolocError) as error:  # ValueError: the name contains a NUL
        return f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
    if not build_id:
        return f"{path} has no build ID (link with -Wl,--build-id), so it may have changed since the job ran"
    return None if found.startswith(build_id) else f"{path} is not the file that the job ran: it was rebuilt"


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
    """Remove functions that are only the nearest symbol, unless a line shows that debug data name them."""
    guesses = [row for row, place in enumerate(found) if place.function and place.line is None]
    known = list(found)
    named = are_named(path, [addresses[row] for row in guesses])
    for row, is_named in zip(guesses, named, strict=True):
        known[row] = known[row] if is_named else Place()
    return known


def _place(function: str, where: str) -> Place:
    match = re.fullmatch(r"(.*):(\d+)(?: \(discriminator \d+\))?", where)
    file, line = match.groups() if match and match[1] != "??" else (None, None)
    known = None if function == "??" else function
    return Place(known, file, int(line) if line and int(line) else None)


def site_words(profile: Profile, sites: Table, n_looked_up: int | None = None) -> list[tuple[str, str]]:
    """Name and offset of each call site.

    If two sites that call the same MPI function have the same name, their offsets are appended.

    Result: function, file and line as far as known (empty if none is), and ``app+0x1234``.
    """
    modules = [(text(row["path"]), text(row["build_id"])) for row in profile.tables["modules"]]
    keys = [(int(row["i_module"]), int(row["offset"])) for row in sites]
    is_site = (sites["i_site"] != 0).tolist()
    paths = [path for path, _ in modules]
    offsets = [
        offset_in(paths, *key) if known else "(others)" for key, known in zip(keys, is_site, strict=True)
    ]
    found, _ = resolve(modules, keys[:n_looked_up])
    found += [Place()] * (len(keys) - len(found))
    names = [str(place) if known else "" for place, known in zip(found, is_site, strict=True)]
    alike = Counter(zip(names, sites["call"].tolist(), strict=True))
    return [
        (f"{name} {offset}" if name and alike[name, call] > 1 else name, offset)
        for name, call, offset in zip(names, sites["call"].tolist(), offsets, strict=True)
    ]
