"""Programs and a library of the code that moves instructions, and the windows that they exchange."""

from __future__ import annotations

import ctypes
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import elf_functions
import objects

from mpicoloc.pmpi import build_shim

HERE = Path(__file__).resolve().parent
COUNT = tuple(build_shim.c_files(objects.CSRC, ("agent/relocation",)))
OPTIMISED = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror")
CANNOT = 77


def capstone() -> build_shim.Capstone | None:
    return build_shim.find_capstone()


def build(
    name: str, folder: Path, flags: tuple[str, ...], files: list[Path], csrc: Path = objects.CSRC
) -> Path:
    """A program that finds Capstone's library beside itself."""
    wheel = capstone()
    assert wheel is not None
    for alias in ("libcapstone.so", "libcapstone.so.5"):
        if not (folder / alias).exists():
            shutil.copyfile(wheel.library, folder / alias)
    count = build_shim.c_files(csrc, ("agent/relocation",))
    words = (*flags, *wheel.flags, f"-I{HERE}", f"-I{csrc}")
    link = (str(folder / "libcapstone.so.5"), "-Wl,-rpath,$ORIGIN", "-ldl")
    return objects.program(folder / name, [*count, *files], words, folder / "objects", link=link)


def build_finder(folder: Path, csrc: Path = objects.CSRC) -> Path:
    return build("find_windows", folder, OPTIMISED, [HERE / "find_windows.c"], csrc)


def build_runner(folder: Path, csrc: Path = objects.CSRC) -> Path:
    return build("run_windows", folder, OPTIMISED, [HERE / "run_windows.c", HERE / "enter.S"], csrc)


@dataclass(frozen=True)
class Window:
    """As in windows.h."""

    remainder: int
    is_cut: bool
    code: bytes


def parse_windows(data: bytes) -> Iterator[Window]:
    at = 0
    while at < len(data):
        n = data[at + 2]
        yield Window(data[at], data[at + 1] != 0, data[at + 3 : at + 3 + n])
        at += 3 + n


def find_windows(finder: Path, path: Path, n_instructions: int) -> tuple[dict[str, int], bytes]:
    """The finder's counts and windows of about so many instructions, from functions all over a file."""
    counts: dict[str, int] = {}
    found = b""
    for code in elf_functions.read_code(path):
        functions = code.functions
        step = max(1, round(sum(end - begin for begin, end in functions) / 4.5 / n_instructions))
        chosen = functions[::step]
        head = struct.pack("<3Q", code.base, len(code.text), len(chosen))
        spans = b"".join(struct.pack("<2Q", *span) for span in chosen)
        done = subprocess.run(
            [finder], input=head + code.text + spans, capture_output=True, timeout=3000, check=False
        )
        assert done.returncode == 0, f"{path}: {done.returncode}"
        for name, number in parse_counts(done.stderr).items():
            counts[name] = counts.get(name, 0) + number
        found += done.stdout
    return counts, found


def parse_counts(text: bytes) -> dict[str, int]:
    return {name: int(number) for name, number in (line.split() for line in text.decode().splitlines())}


def load_library(folder: Path) -> tuple[Any, Any]:
    """The product's functions for Python: cffi's interface and library."""
    wheel = capstone()
    assert wheel is not None
    ctypes.CDLL(str(wheel.library), ctypes.RTLD_GLOBAL)  # the decoder asks for it by its soname
    library = objects.program(
        folder / "librelocate.so",
        list(COUNT),
        (*OPTIMISED, "-fPIC", *wheel.flags),
        folder / "objects",
        link=("-shared", "-ldl"),
    )
    ffi = cffi.FFI()
    ffi.cdef(declarations("relocate"))
    return ffi, ffi.dlopen(str(library))


def declarations(*names: str) -> str:
    """Of headers in agent/relocation, for cffi."""
    text = subprocess.run(
        [*objects.compiler(), "-E", "-P", f"-I{objects.CSRC}", "-DMC_CDEF", "-x", "c", "-"],
        input="".join(f'#include "agent/relocation/{name}.h"\n' for name in names),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    return text[re.search(r"enum \{\s*MC_GOES_ON", text).start() :]  # type: ignore[union-attr]


def boundaries_by_objdump(path: Path, begin: int, end: int) -> list[int]:
    """Addresses of the instructions of a function, in order."""
    command = ["objdump", "-d", "-w", f"--start-address={begin:#x}", f"--stop-address={end:#x}", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    return [int(found, 16) for found in re.findall(r"^ *([0-9a-f]+):\t", told, re.MULTILINE)]
