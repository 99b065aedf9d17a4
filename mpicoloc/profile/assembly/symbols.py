"""The functions that a program file names, with the addresses that each covers."""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mpicoloc.launch import elf

_SYMBOL_TABLES = (2, 11)
"""SHT_SYMTAB, which `strip` removes, and SHT_DYNSYM, the names that other files may call: one each."""
_FUNCTIONS = (2, 10)
"""STT_FUNC and STT_GNU_IFUNC."""


def are_named(path: str, addresses: Sequence[int]) -> list[bool]:
    """Whether each address lies in a function that the file's symbols name.

    A stripped library keeps the symbols that it exports. Tools such as ``addr2line`` give any other address
    the name of the function before it, however far that is; so the symbol's size is compared.

    Parameters
    ----------
    path : str
        ELF file of 64 bits.
    addresses : sequence of int
        As in the file's symbols.

    Returns
    -------
    list of bool
        All False where the file has no symbols that can be read.
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
    """Begin and size of the functions, by address; of several at one address the longest."""
    order = "<" if image[5] == 1 else ">"
    symbol = np.dtype(
        [("name", f"{order}u4"), ("info", "u1"), ("other", "u1"), ("section", f"{order}u2"),
         ("begin", f"{order}u8"), ("size", f"{order}u8")]
    )  # fmt: skip
    tables = [np.frombuffer(image[start : start + n_bytes // symbol.itemsize * symbol.itemsize], symbol)
              for start, n_bytes in itertools.islice(_tables(image, order), len(_SYMBOL_TABLES))]  # fmt: skip
    symbols = np.concatenate([np.zeros(0, symbol), *tables])
    # Section 0: the function is in another file.
    symbols = symbols[np.isin(symbols["info"] & 15, _FUNCTIONS) & (symbols["section"] != 0)]
    begin, of = np.unique(symbols["begin"].astype(np.uint64), return_inverse=True)
    size = np.zeros(len(begin), np.uint64)
    np.maximum.at(size, of, symbols["size"].astype(np.uint64))
    return begin, size


def _tables(image: mmap.mmap, order: str) -> Iterator[tuple[int, int]]:
    """Place in the file and length of each table of symbols."""
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
